// Norms of rows, one statistic for each group of a row (architecture.md section 3):
//
//     out[r, g, :] = x[r, g, :] / sqrt(mean(x[r, g, :]^2) + eps) * weight[g, :]
//
// Row invariance: a workgroup has one group of one row: each thread adds every THREADS-th square in order, then a tree
// adds the threads.

override THREADS: u32; // of a workgroup, a power of two
override GROUP: u32; // numbers in a group

struct Task {
    eps: f32,
    x_begin: u32, // number of x at which row 0 begins
    x_pitch: u32, // numbers of x from a row to the next
    out_begin: u32, // number of out at which row 0 begins
    out_pitch: u32, // numbers of out from a row to the next
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> x: array<f32>; // [rows, groups, GROUP], rows x_pitch apart
@group(0) @binding(1) var<storage, read> weight: array<f32>; // [groups, GROUP]
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, groups, GROUP], rows out_pitch apart

var<workgroup> squares: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let begin = task.x_begin + id.y * task.x_pitch + id.x * GROUP;
    var sum = 0.0;
    for (var c = thread; c < GROUP; c += THREADS) {
        sum = fma(x[begin + c], x[begin + c], sum);
    }
    squares[thread] = sum;
    workgroupBarrier();
    for (var apart = THREADS / 2u; apart > 0u; apart /= 2u) {
        if thread < apart {
            squares[thread] += squares[thread + apart];
        }
        workgroupBarrier();
    }
    let factor = 1.0 / sqrt(squares[0] / f32(GROUP) + task.eps);
    let to = task.out_begin + id.y * task.out_pitch + id.x * GROUP;
    for (var c = thread; c < GROUP; c += THREADS) {
        out[to + c] = x[begin + c] * factor * weight[id.x * GROUP + c];
    }
}
