// The router of generated rows, whole (architecture.md section 8, engine.md 5.3):
//
//     logits[r, e] = W(e) . u[r]
//
// then the choices (`route_topk.wgsl`) and their slots (`route_slots.wgsl`). The workgroup that arrives last at up to four rows
// (`ticket.wgsl`) chooses for them.
//
// Row invariance: products see `gemv_weight.wgsl`; rows are chosen for one after the other.

@group(0) @binding(0) var<storage, read_write> logits: array<atomic<u32>>; // [rows, EXPERTS] bits of F32
@group(0) @binding(7) var<storage, read> u: array<vec4<f32>>; // [rows, w_COLS]
@group(0) @binding(8) var<storage, read_write> tickets: array<atomic<u32>>; // [rows / 4, rounded up], zeros before and after

override TILES: u32 = (w_ROWS + w_TILE - 1u) / w_TILE;

fn logit(at: u32) -> f32 {
    return bitcast<f32>(atomicLoad(&logits[at]));
}

fn input_quad(index: u32) -> vec4<f32> {
    return u[index];
}

fn w_input(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(row * w_COLS, w_COLS, quad);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    let halted = is_halted();
    w_multiply(group.x, w_ROWS, first, rows, thread);
    for (var i = thread; i < w_TILE * rows; i += THREADS) {
        let output = w_output(group.x, i % w_TILE);
        if output < w_ROWS && !halted {
            atomicStore(&logits[(first + i / w_TILE) * w_ROWS + output], bitcast<u32>(w_sum(i % w_TILE, i / w_TILE)));
        }
    }
    if arrives_last(group.y, TILES, thread) && !halted {
        for (var r = 0u; r < rows; r++) {
            look_up(first + r, thread);
        }
    }
}
