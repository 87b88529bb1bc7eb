// What the prompt form of all products shares where matrix units multiply: the same functions as `gemm.wgsl`. Comes once
// in a kernel, before one `gemm_weight.wgsl` a weight, after `units_tall.wgsl` or `units_low.wgsl`, which say how many rows
// a tile has, and `units_8.wgsl` or `units_16.wgsl`, which hold the tiles and multiply.
//
// Inputs and weights are rounded to F16, once, sums are F32 (engine.md 3.5). Subgroups multiply in two teams: a team has every
// second strip of UNIT rows, and each of its subgroups SUBGROUP outputs, so that the tile has as many outputs as a team has
// threads. At the end the sums go through workgroup memory to the threads that `gemm.wgsl` has.
//
// Matrices are loaded from and stored to multiples of 16 bytes, so that every variable of workgroup memory of such a kernel
// is whole groups of 16 bytes, whatever order a driver gives them.
//
// Row invariance: the units add the products of an output in an order that does not depend on its place in a matrix
// (proved on each device by `ss selftest`); rows that do not exist change no other row.

override SUBGROUP: u32; // threads of a subgroup

const TALL = 16u; // threads over rows
const WIDE = 16u; // threads over outputs
const GEMM_THREADS = 256u; // TALL * WIDE
const OUTPUT_TILE = 128u;
const TEAM = 128u; // threads
const TEAMS = 2u;

const ROW_QUADS = ROW_TILE * DEEP / ROW_FEEDERS; // of a thread

const STRIPS = ROW_TILE / UNIT / TEAMS; // of a team
const STRIP_PITCH = 144u; // OUTPUT_TILE and room that keeps neighbours out of one memory bank
const STRIP_ROWS = TEAMS * UNIT;

var<workgroup> strip: array<f32, STRIP_ROWS * STRIP_PITCH>; // [TEAMS, UNIT, STRIP_PITCH]

// Rows of the tile at hand, in the first. Four numbers for the alignment; shared, so that all threads go the same way.
var<workgroup> rows_here: vec4<u32>;

// Before the first block of a tile.
fn begin_sums(tile: Tile, thread: u32) {
    if thread == 0u {
        rows_here = vec4<u32>(tile.end_row - tile.first_row);
    }
    begin_units();
}

// First row of a team's strip in the tile.
fn strip_row(team: u32, i: u32) -> u32 {
    return (i * TEAMS + team) * UNIT;
}

// Adds a block of the K loop to the sums.
fn add_block(tile: Tile, thread: u32) {
    let team = thread / TEAM;
    let first = thread % TEAM / SUBGROUP * SUBGROUP * PITCH;
    if SPARSE && 2u * rows_here.x <= ROW_TILE {
        for (var k = 0u; k < DEEP * QUAD; k += UNIT / 4u * QUAD) {
            add_half(team, first + k, k);
        }
        return;
    }
    for (var k = 0u; k < DEEP * QUAD; k += UNIT / 4u * QUAD) {
        add_units(team, first + k, k);
    }
}

// A quad of sums in the strip.
fn strip_quad(at: u32) -> vec4<f32> {
    return vec4<f32>(strip[at], strip[at + WIDE], strip[at + 2u * WIDE], strip[at + 3u * WIDE]);
}

// Gives the sums of both teams' strips `i` to the kernel.
fn give_strips(tile: Tile, i: u32, thread: u32) {
    for (var r = thread / WIDE; r < STRIP_ROWS; r += TALL) {
        let at = r * STRIP_PITCH + thread % WIDE;
        give(tile, tile.first_row + strip_row(0u, i) + r, strip_quad(at), strip_quad(at + 4u * WIDE), thread);
    }
}

// After the last block: gives the sums of each row to the kernel.
fn end_sums(tile: Tile, thread: u32) {
    end_units(tile, thread / TEAM * UNIT * STRIP_PITCH + thread % TEAM / SUBGROUP * SUBGROUP, thread);
}
