// First half of the hyper-connection read, decode form (architecture.md section 4), over streams x[r, s, :]:
//
//     parts[r] = [s, :] down(columns of s) (x[r, s] * norm[s])    the product of each stream before its statistic
//                [s, :] inject(columns of s) (x[r, s] * norm[s])  the same
//                [s]    sum of x[r, s, :]^2
//
// A statistic is a factor of its stream's products, so that nobody has to wait for it: the second half multiplies and adds.
// The workgroups have tiles of `down` by stream, then of `inject`, then the squares of a stream each. A final mixer has no
// injection: it names `down` twice and has no workgroups for it.
//
// Row invariance: a statistic is one sum over its own stream, threads adding every THREADS-th quad in order, then a tree;
// products see `gemv_weight.wgsl`.

override STREAMS: u32; // at most 8
override HIDDEN: u32; // numbers in a stream
override WIDTH: u32 = STREAMS * HIDDEN;
override INJECTS: u32; // STREAMS, or none

struct Task {
    rows: u32,
    first: u32, // row of x from which row 0 is made
    down_tiles: u32, // of a stream
    inject_tiles: u32, // of a stream
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>; // [first + rows, STREAMS, HIDDEN]
@group(0) @binding(1) var<storage, read> norm: array<vec4<f32>>; // [STREAMS, HIDDEN]
@group(0) @binding(2) var<storage, read_write> parts: array<f32>; // [rows, STREAMS (down_ROWS + INJECTS + 1)]

override PITCH: u32 = STREAMS * (down_ROWS + INJECTS + 1u);

var<workgroup> squares: array<f32, THREADS>;
var<private> stream: u32; // of this workgroup

fn input_quad(index: u32) -> vec4<f32> {
    return x[index];
}

// Numbers of other streams are left out: a unit may have numbers of two.
fn down_input(row: u32, quad: u32) -> vec4<f32> {
    let value = row_quad((task.first + row) * WIDTH, WIDTH, quad) * norm[quad];
    let col = vec4<u32>(4u * quad) + vec4<u32>(0u, 1u, 2u, 3u);
    let own = (col >= vec4<u32>(stream * HIDDEN)) & (col < vec4<u32>((stream + 1u) * HIDDEN));
    return select(vec4<f32>(), value, own);
}

fn inject_input(row: u32, quad: u32) -> vec4<f32> {
    return down_input(row, quad);
}

fn measure(first: u32, rows: u32, thread: u32) {
    for (var r = 0u; r < rows; r++) {
        let begin = (task.first + first + r) * WIDTH + stream * HIDDEN;
        var sums = vec4<f32>();
        for (var quad = thread; quad < (HIDDEN + 3u) / 4u; quad += THREADS) {
            let value = row_quad(begin, HIDDEN, quad);
            sums = fma(value, value, sums);
        }
        squares[thread] = (sums.x + sums.y) + (sums.z + sums.w);
        workgroupBarrier();
        for (var apart = THREADS / 2u; apart > 0u; apart /= 2u) {
            if thread < apart {
                squares[thread] += squares[thread + apart];
            }
            workgroupBarrier();
        }
        if thread == 0u {
            parts[(first + r) * PITCH + STREAMS * (down_ROWS + INJECTS) + stream] = squares[0];
        }
        workgroupBarrier();
    }
}

fn project_down(tile: u32, first: u32, rows: u32, thread: u32) {
    let begin = stream * HIDDEN / down_UNIT;
    let end = ((stream + 1u) * HIDDEN + down_UNIT - 1u) / down_UNIT;
    down_multiply_part(tile, down_ROWS, begin, end, first, rows, thread);
    for (var i = thread; i < down_TILE * rows; i += THREADS) {
        let output = down_output(tile, i % down_TILE);
        if output < down_ROWS {
            let at = (first + i / down_TILE) * PITCH + stream * down_ROWS + output;
            parts[at] = down_sum(i % down_TILE, i / down_TILE);
        }
    }
}

fn project_inject(tile: u32, first: u32, rows: u32, thread: u32) {
    let begin = stream * HIDDEN / inject_UNIT;
    let end = ((stream + 1u) * HIDDEN + inject_UNIT - 1u) / inject_UNIT;
    inject_multiply_part(tile, inject_ROWS, begin, end, first, rows, thread);
    for (var i = thread; i < inject_TILE * rows; i += THREADS) {
        let output = inject_output(tile, i % inject_TILE);
        if output < inject_ROWS {
            let at = (first + i / inject_TILE) * PITCH + STREAMS * down_ROWS + stream * INJECTS + output;
            parts[at] = inject_sum(i % inject_TILE, i / inject_TILE);
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    stream = group.x % STREAMS;
    let tile = group.x / STREAMS;
    if tile < task.down_tiles {
        project_down(tile, first, rows, thread);
    } else if tile < task.down_tiles + task.inject_tiles {
        project_inject(tile - task.down_tiles, first, rows, thread);
    } else {
        measure(first, rows, thread);
    }
}
