// Blocks of rows and of a weight on their way to the tiles, where a GPU multiplies. Comes once for each weight of a kernel,
// before its `gemm_weight.wgsl`. What a thread fetches stays in its registers while the block before is multiplied; then it is
// put down. Which threads feed what, the size of the tile says: WEIGHT_FEEDERS from thread 0 on feed weights, ROW_FEEDERS from
// thread FIRST_ROW_FEEDER on rows.

const W_FETCHED = (OUTPUT_TILE * W_UNITS_DEEP + WEIGHT_FEEDERS - 1u) / WEIGHT_FEEDERS; // units of a thread

struct W_Ahead {
    units: array<W_Unit, W_FETCHED>,
    rows: array<vec4<f32>, ROW_QUADS>,
    from_rows: array<u32, ROW_QUADS>, // rows of x behind those of the tile that the thread feeds
}

// Place of a thread among those that feed rows; past them for none.
fn W_row_feeder(thread: u32) -> u32 {
    return select(ROW_FEEDERS, thread - FIRST_ROW_FEEDER, thread >= FIRST_ROW_FEEDER);
}

// Before the first block of a tile. Past the last row is the last, whose sums nobody takes.
fn W_begin(ahead: ptr<function, W_Ahead>, tile: Tile, thread: u32) {
    let feeder = W_row_feeder(thread);
    for (var i = 0u; i < ROW_QUADS; i++) {
        let row = tile.first_row + feeder / DEEP + i * (ROW_FEEDERS / DEEP);
        (*ahead).from_rows[i] = input_row(min(row, tile.end_row - 1u));
    }
}

fn W_fetch_rows(ahead: ptr<function, W_Ahead>, block: u32, thread: u32) {
    if W_row_feeder(thread) < ROW_FEEDERS {
        for (var i = 0u; i < ROW_QUADS; i++) {
            (*ahead).rows[i] = input_quad((*ahead).from_rows[i], block * DEEP + thread % DEEP, W_COLS);
        }
    }
}

fn W_put_rows(ahead: ptr<function, W_Ahead>, tile: Tile, thread: u32) {
    let feeder = W_row_feeder(thread);
    if feeder < ROW_FEEDERS {
        for (var i = 0u; i < ROW_QUADS; i++) {
            put_row(feeder / DEEP + i * (ROW_FEEDERS / DEEP), feeder % DEEP, (*ahead).rows[i]);
        }
    }
}

// Fetches a block of the first `outputs` outputs of a tile. `feeder` is the place of the thread among those that feed weights.
fn W_fetch(ahead: ptr<function, W_Ahead>, tile: Tile, outputs: u32, block: u32, feeder: u32) {
    for (var i = 0u; i < W_FETCHED; i++) {
        let at = feeder + i * WEIGHT_FEEDERS;
        let row = W_row(tile, at / W_UNITS_DEEP);
        let unit = block * W_UNITS_DEEP + at % W_UNITS_DEEP;
        if feeder < WEIGHT_FEEDERS && at / W_UNITS_DEEP < outputs && row < W_ROWS && unit < W_UNITS {
            (*ahead).units[i] = W_load(row, unit);
        } else {
            (*ahead).units[i] = W_Unit();
        }
    }
}

// Puts down what was fetched, the first output at `place` of the tile.
fn W_put(ahead: ptr<function, W_Ahead>, tile: Tile, place: u32, outputs: u32, feeder: u32) {
    for (var i = 0u; i < W_FETCHED; i++) {
        let at = feeder + i * WEIGHT_FEEDERS;
        if feeder < WEIGHT_FEEDERS && at / W_UNITS_DEEP < outputs {
            let numbers = W_numbers((*ahead).units[i]);
            for (var q = 0u; q < W_QUADS; q++) {
                put_weight(place + at / W_UNITS_DEEP, at % W_UNITS_DEEP * W_QUADS + q, numbers[q]);
            }
        }
    }
}
