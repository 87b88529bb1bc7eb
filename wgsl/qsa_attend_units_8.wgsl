// Matrices of 8 x 8 for `qsa_attend_units.wgsl`: the logits of a tile, and each part of the sums, are two rows of eight
// matrices, of which a subgroup has OWN, column by column.

enable f16;
enable wgpu_cooperative_matrix;

alias Left = coop_mat8x8<f16, A>;
alias Right = coop_mat8x8<f16, B>;
alias Products = coop_mat8x8<f32, C>;

const UNIT = 8u; // rows and columns of a matrix
const GROUP_HEADS = 16u;
const PART = 64u;
const MOST_PARTS = 4u;
const CELL_PITCH = 72u; // numbers of a part and room that keeps neighbours out of one memory bank
const QUERY_PITCH = 264u; // numbers of a head and room
const WEIGHT_PITCH = 72u; // numbers of a tile and room
const STRIP_PITCH = 72u; // numbers of a tile or a part, and room

// Single numbers: Metal loads matrices from nothing else.
var<workgroup> cell_tile: array<f16, 4608>; // [TILE, CELL_PITCH]: of a part of keys or of values
var<workgroup> query_tile: array<f16, 4224>; // [GROUP_HEADS, QUERY_PITCH]
var<workgroup> weight_tile: array<f16, 1152>; // [GROUP_HEADS, WEIGHT_PITCH]
var<workgroup> strip: array<f32, 1152>; // [GROUP_HEADS, STRIP_PITCH]: logits, or sums of a part

fn put_cells(key: u32, quad: u32, x: vec4<f32>) {
    let half = vec4<f16>(x);
    let at = key * CELL_PITCH + 4u * quad;
    cell_tile[at] = half.x;
    cell_tile[at + 1u] = half.y;
    cell_tile[at + 2u] = half.z;
    cell_tile[at + 3u] = half.w;
}

fn put_query(head: u32, quad: u32, x: vec4<f32>) {
    let half = vec4<f16>(x);
    let at = head * QUERY_PITCH + 4u * quad;
    query_tile[at] = half.x;
    query_tile[at + 1u] = half.y;
    query_tile[at + 2u] = half.z;
    query_tile[at + 3u] = half.w;
}

fn put_weights(head: u32, quad: u32, x: vec4<f32>) {
    let half = vec4<f16>(x);
    let at = head * WEIGHT_PITCH + 4u * quad;
    weight_tile[at] = half.x;
    weight_tile[at + 1u] = half.y;
    weight_tile[at + 2u] = half.z;
    weight_tile[at + 3u] = half.w;
}

override OWN: u32 = SUBGROUP / UNIT; // matrices of a subgroup: two rows of eight, shared by THREADS / SUBGROUP subgroups

const MOST_OWN = 8u;

var<private> products: array<Products, MOST_OWN>; // logits
var<private> sums: array<Products, 32>; // [MOST_PARTS, OWN]

// First head of matrix `j` of a subgroup.
fn row_of(thread: u32, j: u32) -> u32 {
    return (thread / SUBGROUP * OWN + j) % 2u * UNIT;
}

// Its first key, or number of a part.
fn column_of(thread: u32, j: u32) -> u32 {
    return (thread / SUBGROUP * OWN + j) / 2u * UNIT;
}

fn begin_logits() {
    for (var j = 0u; j < OWN; j++) {
        products[j] = Products();
    }
}

// Adds the products of a part of the queries and of the keys in the tile.
fn add_logits(part: u32, thread: u32) {
    for (var j = 0u; j < OWN; j++) {
        let query = row_of(thread, j) * QUERY_PITCH + part * PART;
        let key = column_of(thread, j) * CELL_PITCH;
        for (var k = 0u; k < PART; k += UNIT) {
            let x = coopLoadT<Left>(&query_tile[query + k], QUERY_PITCH);
            let y = coopLoad<Right>(&cell_tile[key + k], CELL_PITCH);
            products[j] = coopMultiplyAdd(x, y, products[j]);
        }
    }
}

fn put_logits(thread: u32) {
    for (var j = 0u; j < OWN; j++) {
        coopStoreT(products[j], &strip[row_of(thread, j) * STRIP_PITCH + column_of(thread, j)], STRIP_PITCH);
    }
}

fn begin_sums() {
    for (var i = 0u; i < MOST_PARTS * OWN; i++) {
        sums[i] = Products();
    }
}

// Adds the products of the weights and of the values in the tile to a part of the sums.
fn add_values(part: u32, thread: u32) {
    for (var j = 0u; j < OWN; j++) {
        let head = row_of(thread, j) * WEIGHT_PITCH;
        let number = column_of(thread, j);
        for (var k = 0u; k < TILE; k += UNIT) {
            let x = coopLoadT<Left>(&weight_tile[head + k], WEIGHT_PITCH);
            let y = coopLoadT<Right>(&cell_tile[k * CELL_PITCH + number], CELL_PITCH);
            sums[part * OWN + j] = coopMultiplyAdd(x, y, sums[part * OWN + j]);
        }
    }
}

// Puts a part of the sums into the strip.
fn put_sums(part: u32, thread: u32) {
    for (var j = 0u; j < OWN; j++) {
        let at = row_of(thread, j) * STRIP_PITCH + column_of(thread, j);
        coopStoreT(sums[part * OWN + j], &strip[at], STRIP_PITCH);
    }
}

// Takes it back.
fn take_sums(part: u32, thread: u32) {
    for (var j = 0u; j < OWN; j++) {
        let at = row_of(thread, j) * STRIP_PITCH + column_of(thread, j);
        sums[part * OWN + j] = coopLoadT<Products>(&strip[at], STRIP_PITCH);
    }
}
