// Blocks of rows and of a weight on their way to the tiles, where a GPU multiplies. Comes once for each weight of a kernel,
// before its `gemm_weight.wgsl`. What a thread fetches stays in its registers while others still multiply the block before;
// then it is put down.

const W_FETCHED = OUTPUT_TILE * W_UNITS_DEEP / GEMM_THREADS; // units of a thread
const W_FETCHED_ROWS = ROW_TILE * DEEP / GEMM_THREADS; // quads of rows of a thread

var<private> W_next: array<W_Unit, W_FETCHED>;
var<private> W_next_rows: array<vec4<f32>, W_FETCHED_ROWS>;

fn W_fetch_rows(tile: Tile, block: u32, thread: u32) {
    for (var i = 0u; i < W_FETCHED_ROWS; i++) {
        let row = tile.first_row + thread / DEEP + i * (GEMM_THREADS / DEEP);
        var x = vec4<f32>();
        if row < tile.end_row {
            x = input_quad(input_row(row), block * DEEP + thread % DEEP, W_COLS);
        }
        W_next_rows[i] = x;
    }
}

fn W_put_rows(tile: Tile, block: u32, thread: u32) {
    for (var i = 0u; i < W_FETCHED_ROWS; i++) {
        put_row(thread / DEEP + i * (GEMM_THREADS / DEEP), thread % DEEP, W_next_rows[i]);
    }
}

// Fetches a block of the first `outputs` outputs of a tile.
fn W_fetch(tile: Tile, outputs: u32, block: u32, thread: u32) {
    for (var i = 0u; i < W_FETCHED; i++) {
        let at = thread + i * GEMM_THREADS;
        let row = W_row(tile, at / W_UNITS_DEEP);
        let unit = block * W_UNITS_DEEP + at % W_UNITS_DEEP;
        if at / W_UNITS_DEEP < outputs && row < W_ROWS && unit < W_UNITS {
            W_next[i] = W_load(row, unit);
        } else {
            W_next[i] = W_Unit();
        }
    }
}

// Puts down what was fetched, the first output at `place` of the tile.
fn W_put(tile: Tile, place: u32, outputs: u32, block: u32, thread: u32) {
    for (var i = 0u; i < W_FETCHED; i++) {
        let at = thread + i * GEMM_THREADS;
        if at / W_UNITS_DEEP < outputs {
            let numbers = W_numbers(W_next[i]);
            for (var q = 0u; q < W_QUADS; q++) {
                put_weight(place + at / W_UNITS_DEEP, at % W_UNITS_DEEP * W_QUADS + q, numbers[q]);
            }
        }
    }
}
