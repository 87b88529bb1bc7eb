// Matrices of 8 x 8, as some matrix units have them: two of F16 are multiplied and added to one of F32.
//
// A subgroup has as many columns of matrices as its threads fill.

enable f16;
enable wgpu_cooperative_matrix;

alias Left = coop_mat8x8<f16, A>;
alias Right = coop_mat8x8<f16, B>;
alias Products = coop_mat8x8<f32, C>;

const UNIT = 8u; // rows and columns of a matrix
const QUAD = 4u; // elements of a tile that hold a quad: Metal loads matrices from single numbers only
const DEEP = 8u; // quads of inputs in a block of the K loop, what 32 KiB of workgroup memory hold
const PITCH = 4u * DEEP + 8u; // room that keeps neighbours out of one memory bank

var<workgroup> row_tile: array<f16, ROW_TILE * PITCH>; // [ROW_TILE, PITCH]
var<workgroup> weight_tile: array<f16, OUTPUT_TILE * PITCH>; // [OUTPUT_TILE, PITCH]

fn put_row(row: u32, quad: u32, x: vec4<f32>) {
    let half = vec4<f16>(x);
    let at = row * PITCH + 4u * quad;
    row_tile[at] = half.x;
    row_tile[at + 1u] = half.y;
    row_tile[at + 2u] = half.z;
    row_tile[at + 3u] = half.w;
}

fn put_weight(output: u32, quad: u32, x: vec4<f32>) {
    let half = vec4<f16>(x);
    let at = output * PITCH + 4u * quad;
    weight_tile[at] = half.x;
    weight_tile[at + 1u] = half.y;
    weight_tile[at + 2u] = half.z;
    weight_tile[at + 3u] = half.w;
}

override ACROSS: u32 = SUBGROUP / UNIT; // matrices over the outputs of a subgroup

var<private> products: array<Products, 64>; // [STRIPS, ACROSS]

fn begin_units() {
    for (var i = 0u; i < STRIPS * ACROSS; i++) {
        products[i] = Products();
    }
}

// Adds products of a team's strips with the weights at `weights`, from input `k` of the block on.
fn add_units(team: u32, weights: u32, k: u32) {
    var w: array<Right, 8>;
    for (var j = 0u; j < ACROSS; j++) {
        w[j] = coopLoad<Right>(&weight_tile[weights + j * UNIT * PITCH], PITCH);
    }
    for (var i = 0u; i < STRIPS; i++) {
        let x = coopLoadT<Left>(&row_tile[strip_row(team, i) * PITCH + k], PITCH);
        for (var j = 0u; j < ACROSS; j++) {
            products[i * ACROSS + j] = coopMultiplyAdd(x, w[j], products[i * ACROSS + j]);
        }
    }
}

// The same for the first half of the strips: the others have no rows.
fn add_half(team: u32, weights: u32, k: u32) {
    var w: array<Right, 8>;
    for (var j = 0u; j < ACROSS; j++) {
        w[j] = coopLoad<Right>(&weight_tile[weights + j * UNIT * PITCH], PITCH);
    }
    for (var i = 0u; i < STRIPS / 2u; i++) {
        let x = coopLoadT<Left>(&row_tile[strip_row(team, i) * PITCH + k], PITCH);
        for (var j = 0u; j < ACROSS; j++) {
            products[i * ACROSS + j] = coopMultiplyAdd(x, w[j], products[i * ACROSS + j]);
        }
    }
}

// Gives all sums to the kernel, a strip of each team after the other; the subgroup's first is at `first`.
fn end_units(tile: Tile, first: u32, thread: u32) {
    for (var i = 0u; i < STRIPS; i++) {
        workgroupBarrier();
        for (var j = 0u; j < ACROSS; j++) {
            coopStoreT(products[i * ACROSS + j], &strip[first + j * UNIT], STRIP_PITCH);
        }
        workgroupBarrier();
        give_strips(tile, i, thread);
    }
}
