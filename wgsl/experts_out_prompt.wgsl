// Second half of the routed experts, prompt form (architecture.md section 8): for each pair p = (row, choice) that has a
// slot,
//
//     out[p, o] = down(o) . x[p]
//
// unweighted.
//
// Row invariance: see `gemm_weight.wgsl`. Which pairs are multiplied together enters no sum.

struct Task {
    pairs: u32,
    slots: u32, // slots of the pool
    slots_per_chunk: u32,
    bound: u32, // chunk that is bound, where only one is
}

var<immediate> task: Task;

@group(0) @binding(1) var<storage, read> slots: array<u32>; // [pairs], a number past the pool for none
@group(0) @binding(2) var<storage, read> order: array<u32>; // [3, pairs], as `experts_order.wgsl` leaves them
@group(0) @binding(3) var<storage, read_write> out: array<f32>; // [pairs, down_ROWS]

fn input_row(place: u32) -> u32 {
    return order[place];
}

fn down_row(tile: Tile, output: u32) -> u32 {
    return tile.first + output;
}

fn begin_of(place: u32) -> u32 {
    return order[place] * down_ROWS;
}

fn take(begin: u32, output: u32, sum: f32) {
    if output < down_ROWS {
        out[begin + output] = sum;
    }
}

// Multiplies the pairs at `place .. end` with a tile of outputs of the expert in the slot at hand.
fn multiply(tile: u32, place: u32, end: u32, thread: u32) {
    down_multiply(Tile(tile * OUTPUT_TILE, place, end), thread);
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    walk(group, thread);
}
