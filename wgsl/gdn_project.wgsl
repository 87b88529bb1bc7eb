// Projections of Gated DeltaNet, decode form (architecture.md section 6):
//
//     qkv_out[r] = qkv u[r]      z_out[r] = z u[r]      ab_out[r] = (a u[r], b u[r])
//
// The first workgroups have tiles of `qkv`, the next ones of `z`, of `a` and of `b`.
//
// Row invariance: see `gemv_weight.wgsl`.

struct Task {
    rows: u32,
    qkv_tiles: u32,
    z_tiles: u32,
    a_tiles: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> u: array<vec4<f32>>; // [rows, qkv_COLS]
@group(0) @binding(1) var<storage, read_write> qkv_out: array<f32>; // [rows, qkv_ROWS]
@group(0) @binding(2) var<storage, read_write> z_out: array<f32>; // [rows, z_ROWS]
@group(0) @binding(3) var<storage, read_write> ab_out: array<f32>; // [rows, 2, a_ROWS]

fn input_quad(index: u32) -> vec4<f32> {
    return u[index];
}

fn qkv_input(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(row * qkv_COLS, qkv_COLS, quad);
}

fn z_input(row: u32, quad: u32) -> vec4<f32> {
    return qkv_input(row, quad);
}

fn a_input(row: u32, quad: u32) -> vec4<f32> {
    return qkv_input(row, quad);
}

fn b_input(row: u32, quad: u32) -> vec4<f32> {
    return qkv_input(row, quad);
}

fn project_qkv(tile: u32, first: u32, rows: u32, thread: u32) {
    qkv_multiply(tile, qkv_ROWS, first, rows, thread);
    for (var i = thread; i < qkv_TILE * rows; i += THREADS) {
        let output = qkv_output(tile, i % qkv_TILE);
        if output < qkv_ROWS {
            qkv_out[(first + i / qkv_TILE) * qkv_ROWS + output] = qkv_sum(i % qkv_TILE, i / qkv_TILE);
        }
    }
}

fn project_z(tile: u32, first: u32, rows: u32, thread: u32) {
    z_multiply(tile, z_ROWS, first, rows, thread);
    for (var i = thread; i < z_TILE * rows; i += THREADS) {
        let output = z_output(tile, i % z_TILE);
        if output < z_ROWS {
            z_out[(first + i / z_TILE) * z_ROWS + output] = z_sum(i % z_TILE, i / z_TILE);
        }
    }
}

fn project_a(tile: u32, first: u32, rows: u32, thread: u32) {
    a_multiply(tile, a_ROWS, first, rows, thread);
    for (var i = thread; i < a_TILE * rows; i += THREADS) {
        let output = a_output(tile, i % a_TILE);
        if output < a_ROWS {
            ab_out[(first + i / a_TILE) * 2u * a_ROWS + output] = a_sum(i % a_TILE, i / a_TILE);
        }
    }
}

fn project_b(tile: u32, first: u32, rows: u32, thread: u32) {
    b_multiply(tile, b_ROWS, first, rows, thread);
    for (var i = thread; i < b_TILE * rows; i += THREADS) {
        let output = b_output(tile, i % b_TILE);
        if output < b_ROWS {
            ab_out[(2u * (first + i / b_TILE) + 1u) * b_ROWS + output] = b_sum(i % b_TILE, i / b_TILE);
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    var tile = group.x;
    if tile < task.qkv_tiles {
        project_qkv(tile, first, rows, thread);
        return;
    }
    tile -= task.qkv_tiles;
    if tile < task.z_tiles {
        project_z(tile, first, rows, thread);
        return;
    }
    tile -= task.z_tiles;
    if tile < task.a_tiles {
        project_a(tile, first, rows, thread);
        return;
    }
    project_b(tile - task.a_tiles, first, rows, thread);
}
