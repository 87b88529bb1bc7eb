// What the prompt form of all products shares: the memory of a workgroup and the sums of a thread. Comes once in a
// kernel, before one `gemm_weight.wgsl` a weight.

const TEAM = 4u; // rows and outputs of a thread
const TALL = 8u; // threads over rows
const WIDE = 16u; // threads over outputs
const GEMM_THREADS = 128u; // TALL * WIDE
const ROW_TILE = 32u; // TALL * TEAM
const OUTPUT_TILE = 64u; // WIDE * TEAM
const DEEP = 8u; // quads of inputs in a block of the K loop
const PITCH = 9u; // DEEP and room that keeps neighbours out of one memory bank

var<workgroup> row_tile: array<vec4<f32>, 288>; // [ROW_TILE, PITCH]
var<workgroup> weight_tile: array<vec4<f32>, 576>; // [OUTPUT_TILE, PITCH]

// Sums of a thread: its four rows, each over its four outputs.
var<private> sums: array<vec4<f32>, TEAM>;

// Row of a tile, first output of a tile: where thread `thread` has its sums.
fn row_of(thread: u32) -> u32 {
    return thread / WIDE * TEAM;
}

fn output_of(thread: u32) -> u32 {
    return thread % WIDE * TEAM;
}

// Adds a block of the K loop to the sums.
fn add_block(thread: u32) {
    var block: array<vec4<f32>, TEAM>;
    for (var quad = 0u; quad < DEEP; quad++) {
        let at = output_of(thread) * PITCH + quad;
        let a = weight_tile[at];
        let b = weight_tile[at + PITCH];
        let c = weight_tile[at + 2u * PITCH];
        let d = weight_tile[at + 3u * PITCH];
        for (var i = 0u; i < TEAM; i++) {
            let x = row_tile[(row_of(thread) + i) * PITCH + quad];
            block[i] = fma(vec4<f32>(x.x), vec4<f32>(a.x, b.x, c.x, d.x), block[i]);
            block[i] = fma(vec4<f32>(x.y), vec4<f32>(a.y, b.y, c.y, d.y), block[i]);
            block[i] = fma(vec4<f32>(x.z), vec4<f32>(a.z, b.z, c.z, d.z), block[i]);
            block[i] = fma(vec4<f32>(x.w), vec4<f32>(a.w, b.w, c.w, d.w), block[i]);
        }
    }
    for (var i = 0u; i < TEAM; i++) {
        sums[i] += block[i];
    }
}
