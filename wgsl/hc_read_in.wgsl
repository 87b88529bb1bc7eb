// First half of the hyper-connection read, decode form (architecture.md section 4), over streams x[r, s, :]:
//
//     normed[r, s, :] = x[r, s, :] / sqrt(mean(x[r, s, :]^2) + eps) * norm[s, :]
//     lowrank[r, :] = silu(down normed[r] / STREAMS)        inject[r, :] = 2 sigmoid(inject normed[r] / STREAMS)
//
// The first workgroups have tiles of `down`, the rest tiles of `inject`; each makes the statistics of its rows again,
// and all together write `normed`. A final mixer has no injection: it names `down` twice and has no workgroups for it.
//
// Row invariance: a statistic is one sum over its own stream, threads adding every SHARE-th quad in order, then a tree;
// products see `gemv_weight.wgsl`.

override STREAMS: u32; // at most 8
override HIDDEN: u32; // numbers in a stream
override SHARE: u32; // threads that share a statistic, a power of two, at most THREADS / STREAMS
override WIDTH: u32 = STREAMS * HIDDEN;

const MOST_STREAMS = 8u;

struct Task {
    rows: u32,
    first: u32, // row of x from which row 0 is made
    eps: f32,
    down_tiles: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> x: array<f32>; // [first + rows, STREAMS, HIDDEN]
@group(0) @binding(1) var<storage, read> norm: array<f32>; // [STREAMS, HIDDEN]
@group(0) @binding(2) var<storage, read_write> normed: array<f32>; // [rows, STREAMS, HIDDEN]
@group(0) @binding(3) var<storage, read_write> lowrank: array<f32>; // [rows, down_ROWS]
@group(0) @binding(4) var<storage, read_write> inject: array<f32>; // [rows, STREAMS]

var<workgroup> squares: array<f32, THREADS>; // [STREAMS, SHARE]
var<workgroup> factors: array<f32, 32>; // [ROWS_AT_ONCE, MOST_STREAMS]

// The factors of the rows at hand.
fn measure(first: u32, rows: u32, thread: u32) {
    let stream = thread / SHARE;
    let share = thread % SHARE;
    for (var r = 0u; r < rows; r++) {
        let begin = (task.first + first + r) * WIDTH + stream * HIDDEN;
        var sum = 0.0;
        if stream < STREAMS {
            for (var c = 4u * share; c < HIDDEN; c += 4u * SHARE) {
                for (var i = c; i < min(c + 4u, HIDDEN); i++) {
                    sum = fma(x[begin + i], x[begin + i], sum);
                }
            }
        }
        squares[thread] = sum;
        workgroupBarrier();
        for (var apart = SHARE / 2u; apart > 0u; apart /= 2u) {
            if share < apart {
                squares[thread] += squares[thread + apart];
            }
            workgroupBarrier();
        }
        if share == 0u && stream < STREAMS {
            factors[r * MOST_STREAMS + stream] = 1.0 / sqrt(squares[thread] / f32(HIDDEN) + task.eps);
        }
        workgroupBarrier();
    }
}

// Number `col` of the normed streams of row `first + r`.
fn normed_at(first: u32, r: u32, col: u32) -> f32 {
    return x[(task.first + first + r) * WIDTH + col] * factors[r * MOST_STREAMS + col / HIDDEN] * norm[col];
}

fn down_input(row: u32, quad: u32) -> vec4<f32> {
    let first = row / ROWS_AT_ONCE * ROWS_AT_ONCE;
    var value = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        if 4u * quad + i < WIDTH {
            value[i] = normed_at(first, row - first, 4u * quad + i);
        }
    }
    return value;
}

fn inject_input(row: u32, quad: u32) -> vec4<f32> {
    return down_input(row, quad);
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    measure(first, rows, thread);
    for (var i = group.x * THREADS + thread; i < rows * WIDTH; i += groups.x * THREADS) {
        normed[first * WIDTH + i] = normed_at(first, i / WIDTH, i % WIDTH);
    }
    if group.x < task.down_tiles {
        down_multiply(group.x, down_ROWS, first, rows, thread);
        for (var i = thread; i < down_TILE * rows; i += THREADS) {
            let output = down_output(group.x, i % down_TILE);
            if output < down_ROWS {
                let sum = down_sum(i % down_TILE, i / down_TILE);
                lowrank[(first + i / down_TILE) * down_ROWS + output] = silu(sum / f32(STREAMS));
            }
        }
        return;
    }
    let tile = group.x - task.down_tiles;
    inject_multiply(tile, inject_ROWS, first, rows, thread);
    for (var i = thread; i < inject_TILE * rows; i += THREADS) {
        let output = inject_output(tile, i % inject_TILE);
        if output < inject_ROWS {
            let sum = inject_sum(i % inject_TILE, i / inject_TILE);
            inject[(first + i / inject_TILE) * STREAMS + output] = 2.0 * sigmoid(sum / f32(STREAMS));
        }
    }
}
