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
const PITCH = 40u; // inputs of a block and room that keeps neighbours out of one memory bank

var<workgroup> row_tile: array<f16, 2560>; // [ROW_TILE, PITCH]
var<workgroup> weight_tile: array<f16, 5120>; // [OUTPUT_TILE, PITCH]

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

const DOWN = ROW_TILE / UNIT; // matrices over rows

var<private> products: array<Products, 64>; // [DOWN, ACROSS]

fn begin_units() {
    for (var i = 0u; i < DOWN * ACROSS; i++) {
        products[i] = Products();
    }
}

// Adds products of the rows that there are, or more, with the weights at `weights`, from input `k` of the block on.
fn add_units(weights: u32, k: u32) {
    var w: array<Right, 8>;
    for (var j = 0u; j < ACROSS; j++) {
        w[j] = coopLoad<Right>(&weight_tile[weights + j * UNIT * PITCH], PITCH);
    }
    for (var i = 0u; i < min(DOWN, (rows_here.x + UNIT - 1u) / UNIT); i++) {
        let x = coopLoadT<Left>(&row_tile[i * UNIT * PITCH + k], PITCH);
        for (var j = 0u; j < ACROSS; j++) {
            products[i * ACROSS + j] = coopMultiplyAdd(x, w[j], products[i * ACROSS + j]);
        }
    }
}

// Gives all sums to the kernel, a strip of rows after the other; `first` is the first output of the subgroup.
fn end_units(tile: Tile, first: u32, thread: u32) {
    for (var i = 0u; i < DOWN; i++) {
        workgroupBarrier();
        for (var j = 0u; j < ACROSS; j++) {
            coopStoreT(products[i * ACROSS + j], &strip[first + j * UNIT], STRIP_PITCH);
        }
        workgroupBarrier();
        give_strip(tile, tile.first_row + i * UNIT, thread);
    }
}
