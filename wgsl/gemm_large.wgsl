// Tiles of 64 rows and 128 outputs for `gemm.wgsl`: a thread has eight rows.

const TALL = 8u; // threads over rows
const WIDE = 16u; // threads over outputs
const GEMM_THREADS = 128u; // TALL * WIDE
const ROW_TILE = 64u;
const OUTPUT_TILE = 128u;

// All threads feed both.
const WEIGHT_FEEDERS = GEMM_THREADS;
const ROW_FEEDERS = GEMM_THREADS;
const FIRST_ROW_FEEDER = 0u;
const ROW_QUADS = ROW_TILE * DEEP / GEMM_THREADS; // of a thread

var<workgroup> row_tile: array<vec4<f32>, 576>; // [ROW_TILE, PITCH]
var<workgroup> weight_tile: array<vec4<f32>, 1152>; // [OUTPUT_TILE, PITCH]

var<private> sums_0: Sums;
var<private> sums_1: Sums;
var<private> sums_2: Sums;
var<private> sums_3: Sums;
var<private> sums_4: Sums;
var<private> sums_5: Sums;
var<private> sums_6: Sums;
var<private> sums_7: Sums;

// Before the first block of a tile.
fn begin_sums(tile: Tile, thread: u32) {
    sums_0 = Sums();
    sums_1 = Sums();
    sums_2 = Sums();
    sums_3 = Sums();
    sums_4 = Sums();
    sums_5 = Sums();
    sums_6 = Sums();
    sums_7 = Sums();
}

// Adds a block of the K loop to the sums. Tiles of experts are often less than half full.
fn add_block(tile: Tile, thread: u32) {
    let full = tile.end_row - tile.first_row > 4u * TALL;
    let output = thread % WIDE * PITCH;
    let row = thread / WIDE * PITCH;
    for (var quad = 0u; quad < DEEP; quad++) {
        let a = weights_at(output + quad);
        let b = weights_at(output + 4u * WIDE * PITCH + quad);
        sums_0 = added_row(sums_0, row_tile[row + 0u * TALL * PITCH + quad], a, b);
        sums_1 = added_row(sums_1, row_tile[row + 1u * TALL * PITCH + quad], a, b);
        sums_2 = added_row(sums_2, row_tile[row + 2u * TALL * PITCH + quad], a, b);
        sums_3 = added_row(sums_3, row_tile[row + 3u * TALL * PITCH + quad], a, b);
        if full {
            sums_4 = added_row(sums_4, row_tile[row + 4u * TALL * PITCH + quad], a, b);
            sums_5 = added_row(sums_5, row_tile[row + 5u * TALL * PITCH + quad], a, b);
            sums_6 = added_row(sums_6, row_tile[row + 6u * TALL * PITCH + quad], a, b);
            sums_7 = added_row(sums_7, row_tile[row + 7u * TALL * PITCH + quad], a, b);
        }
    }
}

// After the last block: gives the sums of each row to the kernel.
fn end_sums(tile: Tile, thread: u32) {
    let row = tile.first_row + thread / WIDE;
    workgroupBarrier();
    hold(0u, sums_0, thread);
    hold(1u, sums_1, thread);
    hold(2u, sums_2, thread);
    hold(3u, sums_3, thread);
    give_held(tile, row, 4u, thread);
    hold(0u, sums_4, thread);
    hold(1u, sums_5, thread);
    hold(2u, sums_6, thread);
    hold(3u, sums_7, thread);
    give_held(tile, row + 4u * TALL, 4u, thread);
}
