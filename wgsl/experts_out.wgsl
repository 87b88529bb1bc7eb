// Second half of the experts, decode form (architecture.md section 8): for each pair p = (row, choice) that has a slot,
//
//     out[p, o] = down(o) . x[p]
//
// unweighted, and the same for the shared expert, whose workgroups come after those of the pairs, a row each. The
// choices of a row are added elsewhere, in choice order (engine.md 3.7e).
//
// Row invariance: see `gemv_weight.wgsl`. Pair, slot and chunk enter no sum; a pair is multiplied alone.

override CHOICES: u32; // of a row

struct Task {
    rows: u32,
    choices: u32, // of a row
    slots: u32, // slots of the pool
    slots_per_chunk: u32,
    bound: u32, // chunk that is bound, where only one is
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>; // [rows, choices, down_COLS]
@group(0) @binding(1) var<storage, read> slots: array<u32>; // [rows, choices], a number past the pool for none
@group(0) @binding(2) var<storage, read> shared_x: array<vec4<f32>>; // [rows, shared_down_COLS]
@group(0) @binding(3) var<storage, read_write> out: array<f32>; // [rows, choices, down_ROWS]
@group(0) @binding(4) var<storage, read_write> shared_out: array<f32>; // [rows, shared_down_ROWS]

var<private> is_shared: bool; // whether a workgroup has the shared expert

fn input_quad(index: u32) -> vec4<f32> {
    if is_shared {
        return shared_x[index];
    }
    return x[index];
}

fn down_input(pair: u32, quad: u32) -> vec4<f32> {
    return row_quad(pair * down_COLS, down_COLS, quad);
}

fn shared_down_input(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(row * shared_down_COLS, shared_down_COLS, quad);
}

fn routed(pair: u32, tile: u32, thread: u32) {
    let slot = slots[pair];
    if slot >= task.slots || !sees(slot / SLOTS_PER_CHUNK, task.bound) || tile * down_TILE >= down_ROWS {
        return;
    }
    hold_slot(slot);
    down_multiply(tile, down_ROWS, pair, 1u, thread);
    for (var i = thread; i < down_TILE; i += THREADS) {
        let output = down_output(tile, i);
        if output < down_ROWS {
            out[pair * down_ROWS + output] = down_sum(i, 0u);
        }
    }
}

fn shared_expert(row: u32, tile: u32, thread: u32) {
    if tile * shared_down_TILE >= shared_down_ROWS {
        return;
    }
    is_shared = true;
    shared_down_multiply(tile, shared_down_ROWS, row, 1u, thread);
    for (var i = thread; i < shared_down_TILE; i += THREADS) {
        let output = shared_down_output(tile, i);
        if output < shared_down_ROWS {
            let at = row * shared_down_ROWS + output;
            shared_out[at] = shared_down_sum(i, 0u);
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let pairs = task.rows * CHOICES;
    if group.y < pairs {
        routed(group.y, group.x, thread);
    } else if task.bound == 0u {
        shared_expert(group.y - pairs, group.x, thread);
    }
}
