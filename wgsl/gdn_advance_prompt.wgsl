// The recurrence of Gated DeltaNet over prompt rows (`gdn_recurrence.wgsl`), whose inputs lie in `mixed` as
// `gdn_inputs_prompt.wgsl` leaves them. A workgroup has GROUP / LANES rows of the state of a value head: they do not
// see each other. Inputs of the next BATCH rows are fetched while those of a batch are used.
//
// Row invariance: see `gdn_recurrence.wgsl`.

override MIXED: u32 = 2u * KEYS + VALUES + (2u * VALUE_HEADS + 3u) / 4u * 4u; // numbers from a row of mixed to the next
override FETCHED: u32 = (2u * BATCH * KEY_QUADS + GROUP - 1u) / GROUP; // quads of a thread, at most 16

const MOST_BATCH = 4u;

struct Task {
    rows: u32,
    first: u32, // row of out that is the first of mixed
}

var<immediate> task: Task;

@group(0) @binding(2) var<storage, read> mixed: array<f32>; // [rows, MIXED]
@group(0) @binding(3) var<storage, read> mixed_quads: array<vec4<f32>>; // the same
@group(0) @binding(4) var<storage, read_write> out: array<f32>; // [first + rows, VALUE_HEADS, VALUE_DIM]

override OWN: u32 = BATCH * GROUP;

// Value, decay and beta of the rows at hand for each thread.
var<workgroup> owned: array<vec3<f32>, OWN>; // [BATCH, GROUP]

// What was fetched of the next rows: queries and keys for all threads, value, decay and beta for this one.
var<private> next: array<vec4<f32>, 16>;
var<private> next_own: array<vec3<f32>, MOST_BATCH>;

fn fetch(head: u32, row: u32, lane: u32, thread: u32) {
    for (var i = 0u; i < FETCHED; i++) {
        let at = lane + i * GROUP;
        let begin = min(row + at / (2u * KEY_QUADS), task.rows - 1u) * (MIXED / 4u);
        let quad = at % (2u * KEY_QUADS);
        next[i] = mixed_quads[begin + quad / KEY_QUADS * (KEYS / 4u) + head / SHARING * KEY_QUADS + quad % KEY_QUADS];
    }
    for (var i = 0u; i < BATCH; i++) {
        let begin = min(row + i, task.rows - 1u) * MIXED;
        let gates = begin + 2u * KEYS + VALUES + 2u * head;
        let value = mixed[begin + 2u * KEYS + head * VALUE_DIM + thread / LANES];
        next_own[i] = vec3<f32>(value, mixed[gates], mixed[gates + 1u]);
    }
}

fn put(lane: u32) {
    for (var i = 0u; i < FETCHED; i++) {
        let at = lane + i * GROUP;
        let quad = at % (2u * KEY_QUADS);
        let row = at / (2u * KEY_QUADS);
        if row < BATCH {
            if quad < KEY_QUADS {
                query[row * KEY_QUADS + quad] = next[i];
            } else {
                key[row * KEY_QUADS + quad - KEY_QUADS] = next[i];
            }
        }
    }
    for (var i = 0u; i < BATCH; i++) {
        owned[i * GROUP + lane] = next_own[i];
    }
}

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = group.x;
    // Among the threads of the head.
    let thread = group.y * GROUP + lane;
    load_state(head, thread);
    fetch(head, 0u, lane, thread);
    for (var first = 0u; first < task.rows; first += BATCH) {
        workgroupBarrier();
        put(lane);
        workgroupBarrier();
        fetch(head, first + BATCH, lane, thread);
        for (var i = 0u; i < BATCH; i++) {
            if first + i < task.rows {
                let own_inputs = owned[i * GROUP + lane];
                let y = advance(thread, i, own_inputs.x, own_inputs.y, own_inputs.z);
                if thread % LANES == 0u {
                    out[(task.first + first + i) * VALUES + head * VALUE_DIM + thread / LANES] = y;
                }
            }
        }
    }
    store_state(head, thread);
}
