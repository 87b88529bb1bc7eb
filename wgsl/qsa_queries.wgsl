// The queries of a workgroup of attention, where no matrix units multiply.

override STAGED: u32 = AT_ONCE * QUADS;

var<workgroup> queries: array<vec4<f32>, STAGED>; // [AT_ONCE, QUADS]

fn take_queries(work: Work, thread: u32) {
    for (var i = thread; i < STAGED; i += THREADS) {
        // A head past the last one is read as the last one and not written.
        let h = min(i / QUADS, work.heads - 1u);
        queries[i] = q[(work.row * HEADS + work.head + h) * QUADS + i % QUADS];
    }
}
