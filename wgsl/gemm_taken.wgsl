// How sums of the prompt form reach a kernel that takes them one by one: `take(row, output, sum)`, for rows that exist and
// outputs that may not. In place of a `give` of the kernel's own; after `gemm_tile.wgsl`.

fn give(tile: Tile, row: u32, a: vec4<f32>, b: vec4<f32>, thread: u32) {
    if row < tile.end_row {
        for (var j = 0u; j < 4u; j++) {
            let output = tile.first + output_of(thread, j);
            take(row, output, a[j]);
            take(row, output + OUTPUT_TILE / 2u, b[j]);
        }
    }
}
