// What the prompt form of all products shares where matrix units multiply: the same functions as `gemm.wgsl`. Comes once
// in a kernel, before one `gemm_weight.wgsl` a weight, after `units_*.wgsl`, which hold the tiles and multiply.
//
// Inputs and weights are rounded to F16, once, sums are F32 (engine.md 3.5). Each subgroup multiplies all rows of the tile
// with SUBGROUP outputs, so that the tile has as many outputs as the workgroup has threads; at the end the sums go through
// workgroup memory to the threads that `gemm.wgsl` has.
//
// Matrices are loaded from and stored to multiples of 16 bytes, so that every variable of workgroup memory of such a kernel
// is whole groups of 16 bytes, whatever order a driver gives them.
//
// Row invariance: the units add the products of an output in an order that does not depend on its place in a matrix
// (proved on each device by `ss selftest`); rows that do not exist change no other row.

override SUBGROUP: u32; // threads of a subgroup

const TALL = 8u; // threads over rows
const WIDE = 16u; // threads over outputs
const GEMM_THREADS = 128u; // TALL * WIDE
const ROW_TILE = 64u;
const OUTPUT_TILE = 128u;
const DEEP = 8u; // quads of inputs in a block of the K loop
const STRIP_PITCH = 144u; // OUTPUT_TILE and room that keeps neighbours out of one memory bank

var<workgroup> strip: array<f32, 2304>; // [UNIT, STRIP_PITCH]

// Rows of the tile at hand, in the first. Four numbers for the alignment; shared, so that all threads go the same way.
var<workgroup> rows_here: vec4<u32>;

// Before the first block of a tile.
fn begin_sums(tile: Tile, thread: u32) {
    if thread == 0u {
        rows_here = vec4<u32>(tile.end_row - tile.first_row);
    }
    begin_units();
}

// Adds a block of the K loop to the sums. Tiles of experts are often less than half full.
fn add_block(tile: Tile, thread: u32) {
    let first = thread / SUBGROUP * SUBGROUP * PITCH;
    for (var k = 0u; k < DEEP * QUAD; k += UNIT / 4u * QUAD) {
        add_units(first + k, k);
    }
}

// A quad of sums in the strip.
fn strip_quad(at: u32) -> vec4<f32> {
    return vec4<f32>(strip[at], strip[at + WIDE], strip[at + 2u * WIDE], strip[at + 3u * WIDE]);
}

// Gives the sums of the strip's rows to the kernel; `row` is the first of them.
fn give_strip(tile: Tile, row: u32, thread: u32) {
    for (var r = thread / WIDE; r < UNIT; r += TALL) {
        let at = r * STRIP_PITCH + thread % WIDE;
        give(tile, row + r, strip_quad(at), strip_quad(at + 4u * WIDE), thread);
    }
}

// After the last block: gives the sums of each row to the kernel.
fn end_sums(tile: Tile, thread: u32) {
    end_units(tile, thread / SUBGROUP * SUBGROUP, thread);
}
