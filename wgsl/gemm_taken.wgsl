// How sums of the prompt form reach a kernel that takes them one by one: `take(begin, output, sum)`, for rows that exist and
// outputs that may not; `begin_of(row)` is what a kernel wants to know of a row, asked once for all of its outputs. In place of a
// `give` of the kernel's own; after `gemm_tile.wgsl`.

fn give(tile: Tile, row: u32, a: vec4<f32>, b: vec4<f32>, thread: u32) {
    if row < tile.end_row {
        let begin = begin_of(row);
        for (var j = 0u; j < 4u; j++) {
            let output = tile.first + output_of(thread, j);
            take(begin, output, a[j]);
            take(begin, output + OUTPUT_TILE / 2u, b[j]);
        }
    }
}
