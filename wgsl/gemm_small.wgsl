// Tiles of 32 rows and 64 outputs for `gemm.wgsl`: a thread has two rows. For adapters without a GPU, which compile long
// kernels slowly and have no registers to keep larger tiles in.

const TALL = 16u; // threads over rows
const WIDE = 8u; // threads over outputs
const GEMM_THREADS = 128u; // TALL * WIDE
const ROW_TILE = 32u;
const OUTPUT_TILE = 64u;

// All threads feed both.
const WEIGHT_FEEDERS = GEMM_THREADS;
const ROW_FEEDERS = GEMM_THREADS;
const FIRST_ROW_FEEDER = 0u;
const ROW_QUADS = ROW_TILE * DEEP / GEMM_THREADS; // of a thread

var<workgroup> row_tile: array<vec4<f32>, 288>; // [ROW_TILE, PITCH]
var<workgroup> weight_tile: array<vec4<f32>, 576>; // [OUTPUT_TILE, PITCH]

var<private> sums_0: Sums;
var<private> sums_1: Sums;

// Before the first block of a tile.
fn begin_sums(tile: Tile, thread: u32) {
    sums_0 = Sums();
    sums_1 = Sums();
}

// Adds a block of the K loop to the sums.
fn add_block(tile: Tile, thread: u32) {
    let output = thread % WIDE * PITCH;
    let row = thread / WIDE * PITCH;
    for (var quad = 0u; quad < DEEP; quad++) {
        let a = weights_at(output + quad);
        let b = weights_at(output + 4u * WIDE * PITCH + quad);
        sums_0 = added_row(sums_0, row_tile[row + 0u * TALL * PITCH + quad], a, b);
        sums_1 = added_row(sums_1, row_tile[row + 1u * TALL * PITCH + quad], a, b);
    }
}

// After the last block: gives the sums of each row to the kernel.
fn end_sums(tile: Tile, thread: u32) {
    let row = tile.first_row + thread / WIDE;
    workgroupBarrier();
    hold(0u, sums_0, thread);
    hold(1u, sums_1, thread);
    give_held(tile, row, 2u, thread);
}
