// What the decode form of all products shares: the memory of a workgroup. Comes once in a kernel, before one
// `gemv_weight.wgsl` a weight.

override THREADS: u32; // of a workgroup

const ROWS_AT_ONCE = 4u; // rows that share what is loaded of a weight: the columns of a quad of sums
override STAGED: u32; // quads of workgroup memory: less of it leaves room for more workgroups

// First the inputs of a stretch of the columns, [ROWS_AT_ONCE, steps, QUADS, LANES + 1] (the last lane is room that
// keeps neighbours out of one memory bank); at the end the sums, [TILE, LANES], a row a column.
var<workgroup> staged: array<vec4<f32>, STAGED>;
