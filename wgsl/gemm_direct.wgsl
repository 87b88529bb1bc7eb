// Blocks of rows and of a weight on their way to the tiles, where a processor multiplies: read when they are put down, in loops
// that are compiled once and not once a turn, since compilers take seconds otherwise. Comes once for each weight of a kernel,
// before its `gemm_weight.wgsl`. The same functions as `gemm_ahead.wgsl`.

struct W_Ahead {
    block: u32, // that is to be put down
}

fn W_begin(ahead: ptr<function, W_Ahead>, tile: Tile, thread: u32) {
}

fn W_fetch_rows(ahead: ptr<function, W_Ahead>, block: u32, thread: u32) {
    (*ahead).block = block;
}

fn W_put_rows(ahead: ptr<function, W_Ahead>, tile: Tile, thread: u32) {
    for (var i = thread; i < ROW_TILE * DEEP; i += GEMM_THREADS) {
        let row = tile.first_row + i / DEEP;
        var x = vec4<f32>();
        if row < tile.end_row {
            x = input_quad(input_row(row), (*ahead).block * DEEP + i % DEEP, W_COLS);
        }
        put_row(i / DEEP, i % DEEP, x);
    }
}

fn W_fetch(ahead: ptr<function, W_Ahead>, tile: Tile, outputs: u32, block: u32, feeder: u32) {
    (*ahead).block = block;
}

// Puts a block of the first `outputs` outputs of a tile down, the first at `place`.
fn W_put(ahead: ptr<function, W_Ahead>, tile: Tile, place: u32, outputs: u32, feeder: u32) {
    for (var at = feeder; at < outputs * W_UNITS_DEEP; at += WEIGHT_FEEDERS) {
        let row = W_row(tile, at / W_UNITS_DEEP);
        let unit = (*ahead).block * W_UNITS_DEEP + at % W_UNITS_DEEP;
        var next = W_Unit();
        if row < W_ROWS && unit < W_UNITS {
            next = W_load(row, unit);
        }
        let numbers = W_numbers(next);
        for (var q = 0u; q < W_QUADS; q++) {
            put_weight(place + at / W_UNITS_DEEP, at % W_UNITS_DEEP * W_QUADS + q, numbers[q]);
        }
    }
}
