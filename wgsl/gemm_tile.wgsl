// A tile of a product in the prompt form: rows and outputs that a workgroup multiplies.

struct Tile {
    first: u32, // output
    first_row: u32,
    end_row: u32, // at most ROW_TILE rows later
}

// The tile of a workgroup, `outputs` of the product wide.
fn tile_of(group: vec3<u32>, outputs: u32, rows: u32) -> Tile {
    let first_row = group.y * ROW_TILE;
    return Tile(group.x * outputs, first_row, min(rows, first_row + ROW_TILE));
}

// Output `j` of a thread in the tile.
fn output_of(thread: u32, j: u32) -> u32 {
    return j * WIDE + thread % WIDE;
}
