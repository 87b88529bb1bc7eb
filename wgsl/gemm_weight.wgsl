// Rows times a weight, prompt form. Comes once for each weight of a kernel, after its `weight_*.wgsl` and before the
// kernel, which says where inputs and weights are, and takes the sums:
//
//     sum(r, o) = W(W_row(tile, o)) . x[input_row(r)]
//
// `input_row(r)` is the row of x behind row r of the product, `W_row(tile, o)` the weight row behind output o of the tile, at
// least W_ROWS for none. `give(tile, r, a, b, thread)` takes the sums of row r, which may not exist: those of the outputs
// `output_of(thread, 0 .. 3)` of the tile and those of `output_of(thread, 4 .. 7)`.
//
// Row invariance (engine.md 3.7b): an output is one sum over blocks of inputs in order, each block added in order;
// nothing is split over K, and no row enters another's sum.

override W_BLOCKS: u32 = (W_COLS + 4u * DEEP - 1u) / (4u * DEEP);

const W_UNITS_DEEP = DEEP / W_QUADS; // units of a weight row in a block

// Multiplies a tile. While a block is multiplied, the next is fetched.
fn W_multiply(tile: Tile, thread: u32) {
    var ahead: W_Ahead;
    begin_sums(tile, thread);
    W_begin(&ahead, tile, thread);
    W_fetch_rows(&ahead, 0u, thread);
    W_fetch(&ahead, tile, OUTPUT_TILE, 0u, thread);
    for (var block = 0u; block < W_BLOCKS; block++) {
        workgroupBarrier();
        W_put_rows(&ahead, tile, thread);
        W_put(&ahead, tile, 0u, OUTPUT_TILE, thread);
        workgroupBarrier();
        W_fetch_rows(&ahead, block + 1u, thread);
        W_fetch(&ahead, tile, OUTPUT_TILE, block + 1u, thread);
        add_block(tile, thread);
    }
    end_sums(tile, thread);
}
