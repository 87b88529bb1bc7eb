// Projections of sparse attention and its indexer, decode form (architecture.md 7.1, 7.2):
//
//     q_out[r] = q u[r]    kv_out[r] = (k u[r], v u[r])    index_out[r] = index u[r]
//
// The workgroups have tiles of `q`, then of `k`, of `v` and of `index`.
//
// Row invariance: see `gemv_weight.wgsl`.

struct Task {
    rows: u32,
    k_begin: u32, // first workgroup of k
    v_begin: u32, // first workgroup of v
    index_begin: u32, // first workgroup of index
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> u: array<vec4<f32>>; // [rows, q_COLS]
@group(0) @binding(1) var<storage, read_write> q_out: array<f32>; // [rows, q_ROWS]
@group(0) @binding(2) var<storage, read_write> kv_out: array<f32>; // [rows, 2, k_ROWS]
@group(0) @binding(3) var<storage, read_write> index_out: array<f32>; // [rows, index_ROWS]

fn input_quad(index: u32) -> vec4<f32> {
    return u[index];
}

fn q_input(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(row * q_COLS, q_COLS, quad);
}

fn k_input(row: u32, quad: u32) -> vec4<f32> {
    return q_input(row, quad);
}

fn v_input(row: u32, quad: u32) -> vec4<f32> {
    return q_input(row, quad);
}

fn index_input(row: u32, quad: u32) -> vec4<f32> {
    return q_input(row, quad);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    if group.x < task.k_begin {
        q_multiply(group.x, q_ROWS, first, rows, thread);
        for (var i = thread; i < q_TILE * rows; i += THREADS) {
            let output = q_output(group.x, i % q_TILE);
            if output < q_ROWS {
                q_out[(first + i / q_TILE) * q_ROWS + output] = q_sum(i % q_TILE, i / q_TILE);
            }
        }
    } else if group.x < task.v_begin {
        let tile = group.x - task.k_begin;
        k_multiply(tile, k_ROWS, first, rows, thread);
        for (var i = thread; i < k_TILE * rows; i += THREADS) {
            let output = k_output(tile, i % k_TILE);
            if output < k_ROWS {
                kv_out[2u * (first + i / k_TILE) * k_ROWS + output] = k_sum(i % k_TILE, i / k_TILE);
            }
        }
    } else if group.x < task.index_begin {
        let tile = group.x - task.v_begin;
        v_multiply(tile, v_ROWS, first, rows, thread);
        for (var i = thread; i < v_TILE * rows; i += THREADS) {
            let output = v_output(tile, i % v_TILE);
            if output < v_ROWS {
                kv_out[(2u * (first + i / v_TILE) + 1u) * v_ROWS + output] = v_sum(i % v_TILE, i / v_TILE);
            }
        }
    } else {
        let tile = group.x - task.index_begin;
        index_multiply(tile, index_ROWS, first, rows, thread);
        for (var i = thread; i < index_TILE * rows; i += THREADS) {
            let output = index_output(tile, i % index_TILE);
            if output < index_ROWS {
                index_out[(first + i / index_TILE) * index_ROWS + output] = index_sum(i % index_TILE, i / index_TILE);
            }
        }
    }
}
