// The first half of an expert over a tile of rows, prompt form: gate and up meet in one thread, since the first half of a
// tile's outputs is of the one and the second half of the other. The kernel
// says where results go: `output_row(row)` is the row of `out`.
//
// Row invariance: see `gemm_weight.wgsl`.

const SWIGLU_TILE = OUTPUT_TILE / 2u; // outputs of a workgroup

fn gate_row(tile: Tile, output: u32) -> u32 {
    return tile.first + output;
}

fn up_row(tile: Tile, output: u32) -> u32 {
    return tile.first + output;
}

// Multiplies a tile with gate and up.
fn multiply_both(tile: Tile, thread: u32) {
    // Half of the threads that feed weights feed the one, the rest the other.
    let other = select(thread, (thread + WEIGHT_FEEDERS / 2u) % WEIGHT_FEEDERS, thread < WEIGHT_FEEDERS);
    var gates: gate_Ahead;
    var ups: up_Ahead;
    begin_sums(tile, thread);
    gate_begin(&gates, tile, thread);
    gate_fetch_rows(&gates, 0u, thread);
    gate_fetch(&gates, tile, SWIGLU_TILE, 0u, thread);
    up_fetch(&ups, tile, SWIGLU_TILE, 0u, other);
    for (var block = 0u; block < gate_BLOCKS; block++) {
        workgroupBarrier();
        gate_put_rows(&gates, tile, thread);
        gate_put(&gates, tile, 0u, SWIGLU_TILE, thread);
        up_put(&ups, tile, SWIGLU_TILE, SWIGLU_TILE, other);
        workgroupBarrier();
        gate_fetch_rows(&gates, block + 1u, thread);
        gate_fetch(&gates, tile, SWIGLU_TILE, block + 1u, thread);
        up_fetch(&ups, tile, SWIGLU_TILE, block + 1u, other);
        add_block(tile, thread);
    }
    end_sums(tile, thread);
}

// Sums of gates and ups of a row.
fn give(tile: Tile, row: u32, gates: vec4<f32>, ups: vec4<f32>, thread: u32) {
    if row < tile.end_row {
        let begin = output_row(row) * up_ROWS;
        for (var j = 0u; j < 4u; j++) {
            let output = tile.first + output_of(thread, j);
            if output < up_ROWS {
                out[begin + output] = silu(gates[j]) * ups[j];
            }
        }
    }
}
