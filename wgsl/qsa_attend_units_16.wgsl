// Matrices of 16 x 16 for `qsa_attend_units.wgsl`: a subgroup of 32 threads, of which there are four, has the logits of 16
// keys of a tile, and 16 numbers of each part of the sums. What is indexed drivers keep in memory, so that parts are named.

enable f16;
enable wgpu_cooperative_matrix;

alias Left = coop_mat16x16<f16, A>;
alias Right = coop_mat16x16<f16, B>;
alias Products = coop_mat16x16<f32, C>;

const UNIT = 16u; // rows and columns of a matrix
const GROUP_HEADS = 16u;
const PART = 64u;
const MOST_PARTS = 4u;
const CELL_PITCH = 18u; // quads of a part and room that keeps neighbours out of one memory bank
const QUERY_PITCH = 66u; // quads of a head and room
const WEIGHT_PITCH = 18u; // quads of a tile and room
const STRIP_PITCH = 72u; // numbers of a tile or a part, and room

var<workgroup> cell_tile: array<vec4<f16>, 1152>; // [TILE, CELL_PITCH]: of a part of keys or of values
var<workgroup> query_tile: array<vec4<f16>, 1056>; // [GROUP_HEADS, QUERY_PITCH]
var<workgroup> weight_tile: array<vec4<f16>, 288>; // [GROUP_HEADS, WEIGHT_PITCH]
var<workgroup> strip: array<f32, 1152>; // [GROUP_HEADS, STRIP_PITCH]: logits, or sums of a part

fn put_cells(key: u32, quad: u32, x: vec4<f32>) {
    cell_tile[key * CELL_PITCH + quad] = vec4<f16>(x);
}

fn put_query(head: u32, quad: u32, x: vec4<f32>) {
    query_tile[head * QUERY_PITCH + quad] = vec4<f16>(x);
}

fn put_weights(head: u32, quad: u32, x: vec4<f32>) {
    weight_tile[head * WEIGHT_PITCH + quad] = vec4<f16>(x);
}

var<private> products: Products; // logits
var<private> sums_0: Products;
var<private> sums_1: Products;
var<private> sums_2: Products;
var<private> sums_3: Products;

// First key, or first number of a part, of a subgroup.
fn column(thread: u32) -> u32 {
    return thread / SUBGROUP * UNIT;
}

fn begin_logits() {
    products = Products();
}

// Adds the products of a part of the queries and of the keys in the tile.
fn add_logits(part: u32, thread: u32) {
    for (var k = 0u; k < PART / 4u; k += UNIT / 4u) {
        let x = coopLoadT<Left>(&query_tile[part * (PART / 4u) + k], QUERY_PITCH);
        let y = coopLoad<Right>(&cell_tile[column(thread) * CELL_PITCH + k], CELL_PITCH);
        products = coopMultiplyAdd(x, y, products);
    }
}

fn put_logits(thread: u32) {
    coopStoreT(products, &strip[column(thread)], STRIP_PITCH);
}

fn begin_sums() {
    sums_0 = Products();
    sums_1 = Products();
    sums_2 = Products();
    sums_3 = Products();
}

// A part of the sums. Which part is decided outside of what the units do, which all threads of a workgroup must do alike.
fn sums_of(part: u32) -> Products {
    var sums = sums_0;
    if part == 1u {
        sums = sums_1;
    } else if part == 2u {
        sums = sums_2;
    } else if part == 3u {
        sums = sums_3;
    }
    return sums;
}

fn keep_sums(part: u32, sums: Products) {
    if part == 0u {
        sums_0 = sums;
    } else if part == 1u {
        sums_1 = sums;
    } else if part == 2u {
        sums_2 = sums;
    } else {
        sums_3 = sums;
    }
}

// Adds the products of the weights and of the values in the tile to a part of the sums.
fn add_values(part: u32, thread: u32) {
    var sums = sums_of(part);
    for (var k = 0u; k < TILE; k += UNIT) {
        let x = coopLoadT<Left>(&weight_tile[k / 4u], WEIGHT_PITCH);
        let y = coopLoadT<Right>(&cell_tile[k * CELL_PITCH + column(thread) / 4u], CELL_PITCH);
        sums = coopMultiplyAdd(x, y, sums);
    }
    keep_sums(part, sums);
}

// Puts a part of the sums into the strip.
fn put_sums(part: u32, thread: u32) {
    coopStoreT(sums_of(part), &strip[column(thread)], STRIP_PITCH);
}

// Takes it back.
fn take_sums(part: u32, thread: u32) {
    keep_sums(part, coopLoadT<Products>(&strip[column(thread)], STRIP_PITCH));
}
