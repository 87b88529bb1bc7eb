// The output projection of a mixer and its hyper-connection write, decode form (architecture.md section 4):
//
//     out[r, s, :] += inject[r, s] * (W x[r])
//
// With PLAIN the factor is one: the fusion in front of the MTP layer (architecture.md section 11).
//
// Row invariance: see `gemv_weight.wgsl`.

override STREAMS: u32;
override PLAIN: u32;

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>; // [rows, w_COLS]
@group(0) @binding(1) var<storage, read> inject: array<f32>; // [rows, STREAMS]
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, STREAMS, w_ROWS]

fn input_quad(index: u32) -> vec4<f32> {
    return x[index];
}

fn w_input(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(row * w_COLS, w_COLS, quad);
}

// What the streams of a place hold, the first four of them.
fn held(row: u32, output: u32) -> vec4<f32> {
    let at = vec4<u32>(row * STREAMS) + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(STREAMS - 1u));
    let place = at * w_ROWS + min(output, w_ROWS - 1u);
    return vec4<f32>(out[place.x], out[place.y], out[place.z], out[place.w]);
}

fn factors(row: u32) -> vec4<f32> {
    let at = vec4<u32>(row * STREAMS) + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(STREAMS - 1u));
    return select(vec4<f32>(inject[at.x], inject[at.y], inject[at.z], inject[at.w]), vec4<f32>(1.0), PLAIN == 1u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    // Asked for before the product, beside which they come; of one row only.
    let ahead = held(first, w_output(group.x, thread % w_TILE));
    let by = factors(first);
    w_multiply(group.x, w_ROWS, first, rows, thread);
    for (var i = thread; i < w_TILE * rows; i += THREADS) {
        let row = first + i / w_TILE;
        let output = w_output(group.x, i % w_TILE);
        if output < w_ROWS {
            let y = w_sum(i % w_TILE, i / w_TILE);
            if STREAMS <= 4u && i < min(w_TILE, THREADS) {
                let sums = fma(by, vec4<f32>(y), ahead);
                for (var s = 0u; s < STREAMS; s++) {
                    out[(row * STREAMS + s) * w_ROWS + output] = sums[s];
                }
                continue;
            }
            for (var s = 0u; s < STREAMS; s++) {
                let factor = select(inject[row * STREAMS + s], 1.0, PLAIN == 1u);
                let at = (row * STREAMS + s) * w_ROWS + output;
                out[at] = fma(factor, y, out[at]);
            }
        }
    }
}
