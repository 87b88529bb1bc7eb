// The output projection of a mixer and its hyper-connection write, prompt form (architecture.md section 4):
//
//     out[r, s, :] += inject[r, s] * (W x[r])
//
// With PLAIN the factor is one: the fusion in front of the MTP layer (architecture.md section 11).
//
// Row invariance: see `gemm_weight.wgsl`.

override STREAMS: u32;
override PLAIN: u32;

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(1) var<storage, read> inject: array<f32>; // [rows, STREAMS]
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, STREAMS, w_ROWS]

fn input_row(row: u32) -> u32 {
    return row;
}

fn w_row(tile: Tile, output: u32) -> u32 {
    return tile.first + output;
}

// Adds to outputs of a stream, WIDE apart, whose numbers in `out` begin at `begin`. All are read before one is written, so that
// they are under way at once.
fn add_to(begin: u32, first: u32, factor: f32, sums: vec4<f32>) {
    var before = vec4<f32>();
    for (var j = 0u; j < 4u; j++) {
        if first + j * WIDE < w_ROWS {
            before[j] = out[begin + first + j * WIDE];
        }
    }
    for (var j = 0u; j < 4u; j++) {
        if first + j * WIDE < w_ROWS {
            out[begin + first + j * WIDE] = fma(factor, sums[j], before[j]);
        }
    }
}

fn give(tile: Tile, row: u32, a: vec4<f32>, b: vec4<f32>, thread: u32) {
    if row >= tile.end_row {
        return;
    }
    let first = tile.first + output_of(thread, 0u);
    for (var s = 0u; s < STREAMS; s++) {
        let factor = select(inject[row * STREAMS + s], 1.0, PLAIN == 1u);
        let begin = (row * STREAMS + s) * w_ROWS;
        add_to(begin, first, factor, a);
        add_to(begin, first + OUTPUT_TILE / 2u, factor, b);
    }
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    w_multiply(tile_of(group, OUTPUT_TILE, task.rows), thread);
}
