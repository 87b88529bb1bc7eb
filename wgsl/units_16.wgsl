// Matrices of 16 x 16, as some matrix units have them: two of F16 are multiplied and added to one of F32.
//
// A subgroup has 32 threads and so two columns of matrices. Its sums are named one by one, since drivers keep what is indexed
// in memory.

enable f16;
enable wgpu_cooperative_matrix;

alias Left = coop_mat16x16<f16, A>;
alias Right = coop_mat16x16<f16, B>;
alias Products = coop_mat16x16<f32, C>;

const UNIT = 16u; // rows and columns of a matrix
const QUAD = 1u; // elements of a tile that hold a quad
const DEEP = 1024u / ROW_TILE; // quads of inputs in a block of the K loop, what 48 KiB of workgroup memory hold
const PITCH = DEEP + 2u; // room that keeps neighbours out of one memory bank

var<workgroup> row_tile: array<vec4<f16>, ROW_TILE * PITCH>; // [ROW_TILE, PITCH]
var<workgroup> weight_tile: array<vec4<f16>, OUTPUT_TILE * PITCH>; // [OUTPUT_TILE, PITCH]

fn put_row(row: u32, quad: u32, x: vec4<f32>) {
    row_tile[row * PITCH + quad] = vec4<f16>(x);
}

fn put_weight(output: u32, quad: u32, x: vec4<f32>) {
    weight_tile[output * PITCH + quad] = vec4<f16>(x);
}

var<private> sums_0_0: Products;
var<private> sums_0_1: Products;
var<private> sums_1_0: Products;
var<private> sums_1_1: Products;
var<private> sums_2_0: Products;
var<private> sums_2_1: Products;
var<private> sums_3_0: Products;
var<private> sums_3_1: Products;

fn begin_units() {
    sums_0_0 = Products();
    sums_0_1 = Products();
    sums_1_0 = Products();
    sums_1_1 = Products();
    sums_2_0 = Products();
    sums_2_1 = Products();
    sums_3_0 = Products();
    sums_3_1 = Products();
}

// Adds products of a team's strips, two or four, with the weights at `weights`, from quad `k` of the block on.
fn add_units(team: u32, weights: u32, k: u32) {
    let w0 = coopLoad<Right>(&weight_tile[weights + 0u * UNIT * PITCH], PITCH);
    let w1 = coopLoad<Right>(&weight_tile[weights + 1u * UNIT * PITCH], PITCH);
    let x0 = coopLoadT<Left>(&row_tile[strip_row(team, 0u) * PITCH + k], PITCH);
    let x1 = coopLoadT<Left>(&row_tile[strip_row(team, 1u) * PITCH + k], PITCH);
    sums_0_0 = coopMultiplyAdd(x0, w0, sums_0_0);
    sums_0_1 = coopMultiplyAdd(x0, w1, sums_0_1);
    sums_1_0 = coopMultiplyAdd(x1, w0, sums_1_0);
    sums_1_1 = coopMultiplyAdd(x1, w1, sums_1_1);
    if STRIPS > 2u {
        let x2 = coopLoadT<Left>(&row_tile[strip_row(team, 2u) * PITCH + k], PITCH);
        let x3 = coopLoadT<Left>(&row_tile[strip_row(team, 3u) * PITCH + k], PITCH);
        sums_2_0 = coopMultiplyAdd(x2, w0, sums_2_0);
        sums_2_1 = coopMultiplyAdd(x2, w1, sums_2_1);
        sums_3_0 = coopMultiplyAdd(x3, w0, sums_3_0);
        sums_3_1 = coopMultiplyAdd(x3, w1, sums_3_1);
    }
}

// The same for the first half of the strips: the others have no rows.
fn add_half(team: u32, weights: u32, k: u32) {
    let w0 = coopLoad<Right>(&weight_tile[weights + 0u * UNIT * PITCH], PITCH);
    let w1 = coopLoad<Right>(&weight_tile[weights + 1u * UNIT * PITCH], PITCH);
    let x0 = coopLoadT<Left>(&row_tile[strip_row(team, 0u) * PITCH + k], PITCH);
    sums_0_0 = coopMultiplyAdd(x0, w0, sums_0_0);
    sums_0_1 = coopMultiplyAdd(x0, w1, sums_0_1);
    if STRIPS > 2u {
        let x1 = coopLoadT<Left>(&row_tile[strip_row(team, 1u) * PITCH + k], PITCH);
        sums_1_0 = coopMultiplyAdd(x1, w0, sums_1_0);
        sums_1_1 = coopMultiplyAdd(x1, w1, sums_1_1);
    }
}

// Gives the sums of both teams' strips `i` to the kernel; the subgroup's first is at `first`.
fn give_units(tile: Tile, i: u32, first: u32, a: Products, b: Products, thread: u32) {
    workgroupBarrier();
    coopStoreT(a, &strip[first], STRIP_PITCH);
    coopStoreT(b, &strip[first + UNIT], STRIP_PITCH);
    workgroupBarrier();
    give_strips(tile, i, thread);
}

// Gives all sums to the kernel, a strip of each team after the other.
fn end_units(tile: Tile, first: u32, thread: u32) {
    give_units(tile, 0u, first, sums_0_0, sums_0_1, thread);
    give_units(tile, 1u, first, sums_1_0, sums_1_1, thread);
    if STRIPS > 2u {
        give_units(tile, 2u, first, sums_2_0, sums_2_1, thread);
        give_units(tile, 3u, first, sums_3_0, sums_3_1, thread);
    }
}
