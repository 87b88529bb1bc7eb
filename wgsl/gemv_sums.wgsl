// Where `gemv_walk.wgsl` adds the lanes. Comes once in a kernel, behind `gemv.wgsl`.

override SUMS: u32; // most sums of lanes

var<workgroup> lane_sums: array<f32, SUMS>; // [TILE, LANES + 1]
var<workgroup> part_sums: array<f32, THREADS>; // [TILE, SPLIT]
