// Projections of the n-gram rows, decode form (architecture.md 9.2):
//
//     keys[r] = key e[r]      values[r] = value e[r]
//
// The first workgroups have tiles of `key`, the rest tiles of `value`.
//
// Row invariance: see `gemv_weight.wgsl`.

struct Task {
    rows: u32,
    key_tiles: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> e: array<vec4<f32>>; // [rows, key_COLS]
@group(0) @binding(1) var<storage, read_write> keys: array<f32>; // [rows, key_ROWS]
@group(0) @binding(2) var<storage, read_write> values: array<f32>; // [rows, value_ROWS]

fn input_quad(index: u32) -> vec4<f32> {
    return e[index];
}

fn key_input(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(row * key_COLS, key_COLS, quad);
}

fn value_input(row: u32, quad: u32) -> vec4<f32> {
    return key_input(row, quad);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    if group.x < task.key_tiles {
        key_multiply(group.x, key_ROWS, first, rows, thread);
        for (var i = thread; i < key_TILE * rows; i += THREADS) {
            let output = key_output(group.x, i % key_TILE);
            if output < key_ROWS {
                keys[(first + i / key_TILE) * key_ROWS + output] = key_sum(i % key_TILE, i / key_TILE);
            }
        }
        return;
    }
    let tile = group.x - task.key_tiles;
    value_multiply(tile, value_ROWS, first, rows, thread);
    for (var i = thread; i < value_TILE * rows; i += THREADS) {
        let output = value_output(tile, i % value_TILE);
        if output < value_ROWS {
            values[(first + i / value_TILE) * value_ROWS + output] = value_sum(i % value_TILE, i / value_TILE);
        }
    }
}
