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
    // Half of the threads fetch the one, the rest the other.
    let other = (thread + GEMM_THREADS / 2u) % GEMM_THREADS;
    begin_sums(tile, thread);
    for (var block = 0u; block < gate_BLOCKS; block++) {
        gate_fetch_rows(tile, block, thread);
        gate_fetch(tile, SWIGLU_TILE, block, thread);
        up_fetch(tile, SWIGLU_TILE, block, other);
        workgroupBarrier();
        gate_put_rows(tile, block, thread);
        gate_put(tile, 0u, SWIGLU_TILE, block, thread);
        up_put(tile, SWIGLU_TILE, SWIGLU_TILE, block, other);
        workgroupBarrier();
        add_block(tile, thread);
    }
    end_sums(tile, thread);
}

// Sums of gates and ups of a row.
fn give(tile: Tile, row: u32, gates: vec4<f32>, ups: vec4<f32>, thread: u32) {
    if row < tile.end_row {
        for (var j = 0u; j < 4u; j++) {
            let output = tile.first + output_of(thread, j);
            if output < up_ROWS {
                out[output_row(row) * up_ROWS + output] = silu(gates[j]) * ups[j];
            }
        }
    }
}
