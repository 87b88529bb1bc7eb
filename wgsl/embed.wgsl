// Embedding rows (architecture.md section 5):  out[r, s, :] = table[ids[r], :]  for every copy s, unrounded.
//
// Row invariance: a row is a copy of its own table row.

override THREADS: u32; // of a workgroup

struct Task {
    first: u32, // table rows before the bound ones
    bound: u32, // table rows that are bound
    copies: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> ids: array<u32>; // [rows]
@group(0) @binding(1) var<storage, read_write> out: array<f32>; // [rows, copies, table_COLS]

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let unit = id.x;
    let row = ids[id.y] - task.first;
    // An id before the bound rows wraps past them.
    if row >= task.bound || unit >= table_UNITS {
        return;
    }
    let numbers = table_numbers(table_load(row, unit));
    for (var copy = 0u; copy < task.copies; copy++) {
        let begin = (id.y * task.copies + copy) * table_COLS;
        for (var i = 0u; i < table_UNIT; i++) {
            let col = unit * table_UNIT + i;
            if col < table_COLS {
                out[begin + col] = numbers[i / 4u][i % 4u];
            }
        }
    }
}
