// What the decode form of all products shares: the memory of a workgroup, and how rows of numbers are read. Comes once in
// a kernel, before one `gemv_weight.wgsl` a weight. The kernel says what quad `index` of its inputs is: `input_quad`.

override THREADS: u32; // of a workgroup

const ROWS_AT_ONCE = 4u; // most rows of a workgroup
override STAGED: u32; // quads of workgroup memory: less of it leaves room for more workgroups

// First the inputs of a stretch of a row, [steps, QUADS, LANES + 1] (the last lane is room that keeps neighbours out of
// one memory bank); then the sums of the lanes, [TILE, LANES] numbers.
var<workgroup> staged: array<vec4<f32>, STAGED>;

override TOTALS: u32; // most outputs of a workgroup, of all its rows
var<workgroup> totals: array<f32, TOTALS>; // [rows, TILE]

// Numbers 4 quad .. 4 quad + 3 of the `count` numbers that begin at number `begin` of the inputs, zeros past their end. Where
// `count` is a multiple of 4, `begin` is one. No branch depends on the place, so that all loads of a thread are under way
// at once.
fn row_quad(begin: u32, count: u32, quad: u32) -> vec4<f32> {
    if count % 4u == 0u {
        return select(vec4<f32>(), input_quad(begin / 4u + quad), 4u * quad < count);
    }
    let at = begin + 4u * quad;
    var value = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        if 4u * quad + i < count {
            value[i] = input_quad((at + i) / 4u)[(at + i) % 4u];
        }
    }
    return value;
}
