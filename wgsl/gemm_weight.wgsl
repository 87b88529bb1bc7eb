// Rows times a weight, prompt form. Comes once for each weight of a kernel, after its `weight_*.wgsl` and before the
// kernel, which says what the inputs are: `W_input(row, quad)` is inputs 4 quad .. 4 quad + 3 of a row, zeros past the end.
//
//     sums[i][j] = W(o + j) . x[r + i]        r, o: where the thread has its sums
//
// With ROUNDED the inputs are rounded to F16 on the way, to nearest, ties to even (engine.md 3.5).
//
// Row invariance (engine.md 3.7b): an output is one sum over blocks of 32 inputs in order, each block summed in order
// by one thread; nothing is split over K, and no row enters another's sum.

override W_ROUNDED: u32; // 1 to round the inputs to F16

override W_BLOCKS: u32 = (W_COLS + 31u) / 32u;

fn W_stage_rows(first_row: u32, end_row: u32, block: u32, thread: u32) {
    for (var i = thread; i < ROW_TILE * DEEP; i += GEMM_THREADS) {
        let row = first_row + i / DEEP;
        var x = vec4<f32>();
        if row < end_row {
            x = W_input(row, block * DEEP + i % DEEP);
        }
        if W_ROUNDED == 1u {
            x = through_f16_quad(x);
        }
        row_tile[i / DEEP * PITCH + i % DEEP] = x;
    }
}

fn W_stage_weights(first: u32, end: u32, block: u32, thread: u32) {
    const units = DEEP / W_QUADS; // in a block
    for (var i = thread; i < OUTPUT_TILE * units; i += GEMM_THREADS) {
        let output = first + i / units;
        let unit = block * units + i % units;
        let place = i / units * PITCH + i % units * W_QUADS;
        var numbers: array<vec4<f32>, W_QUADS>;
        if output < end && unit < W_UNITS {
            numbers = W_numbers(W_load(output, unit));
        }
        for (var q = 0u; q < W_QUADS; q++) {
            weight_tile[place + q] = numbers[q];
        }
    }
}

// Multiplies the rows `first_row .. end_row`, a tile at most, with the outputs `first .. end`, a tile at most.
fn W_multiply(first: u32, end: u32, first_row: u32, end_row: u32, thread: u32) {
    sums = array<vec4<f32>, TEAM>();
    for (var block = 0u; block < W_BLOCKS; block++) {
        workgroupBarrier();
        W_stage_rows(first_row, end_row, block, thread);
        W_stage_weights(first, end, block, thread);
        workgroupBarrier();
        // A thread whose rows do not exist has nothing to add.
        if first_row + row_of(thread) < end_row {
            add_block(thread);
        }
    }
}
