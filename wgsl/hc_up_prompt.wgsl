// The gated mean of the hyper-connection read, prompt form (architecture.md section 4), with x from `hc_down_prompt.wgsl`:
//
//     u[r, j] = sum over s of sigmoid(up(s HIDDEN + j) . x[r]) * normed[r, s, j], divided by STREAMS
//
// Row invariance: products see `gemm_weight.wgsl`; streams are added in their order.

override STREAMS: u32;
override HIDDEN: u32; // numbers in a stream

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(1) var<storage, read> normed: array<f32>; // [rows, STREAMS, HIDDEN]
@group(0) @binding(2) var<storage, read_write> u: array<f32>; // [rows, HIDDEN]

override SPAN: u32; // numbers of a stream in a tile, a multiple of WIDE

fn input_row(row: u32) -> u32 {
    return row;
}

// A tile has the same SPAN numbers of all streams, one stream after the other.
fn up_row(tile: Tile, output: u32) -> u32 {
    let col = tile.first + output % SPAN;
    return select(up_ROWS, output / SPAN * HIDDEN + col, col < HIDDEN && output / SPAN < STREAMS);
}

fn give(tile: Tile, row: u32, a: vec4<f32>, b: vec4<f32>, thread: u32) {
    if row >= tile.end_row {
        return;
    }
    let sums = array<f32, 8>(a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w);
    for (var j = 0u; j < SPAN / WIDE; j++) {
        let col = tile.first + output_of(thread, j);
        if col < HIDDEN {
            var mean = 0.0;
            for (var s = 0u; s < STREAMS; s++) {
                let n = normed[(row * STREAMS + s) * HIDDEN + col];
                mean = fma(sigmoid(sums[s * (SPAN / WIDE) + j]), n, mean);
            }
            u[row * HIDDEN + col] = mean / f32(STREAMS);
        }
    }
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    up_multiply(tile_of(group, SPAN, task.rows), thread);
}
