// First half of the gathered experts (architecture.md section 8): for each pair p = (row, choice) that has a slot,
//
//     out[p, o] = silu(g) * u    with g = gate(o) . x[row], u = up(o) . x[row], silu(g) = g / (1 + exp(-g))
//
// Row invariance: see `experts_affine4.wgsl`; gate and up walk the same blocks in the same order, each in its own sum.

override GATE_CODES: u32;
override GATE_SCALES: u32;
override GATE_BIASES: u32;
override UP_CODES: u32;
override UP_SCALES: u32;
override UP_BIASES: u32;

// exp of more would be infinite, which fast math may not expect.
const LARGEST_EXPONENT = 88.0;

var<workgroup> sums: array<vec2<f32>, TILE * LANES>; // [TILE, LANES], gate and up

fn silu(g: f32) -> f32 {
    return g / (1.0 + exp(min(-g, LARGEST_EXPONENT)));
}

@compute @workgroup_size(LANES, TILE)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let pair = task.first + group.y;
    let slot = slots[pair];
    let place = place_of(slot);
    if slot >= task.slots || !sees(place.chunk, task.bound) {
        return;
    }
    let lane = local.x;
    let output = group.x * TILE + local.y;
    let row = pair / task.sharing;
    var sum = vec2<f32>(0.0);
    if output < OUTPUTS {
        for (var step = 0u; step * LANES + lane < BLOCKS; step++) {
            let block = step * LANES + lane;
            let x = inputs_of(row, step, lane);
            sum.x += block_dot(place, Part(GATE_CODES, GATE_SCALES, GATE_BIASES), output, block, x);
            sum.y += block_dot(place, Part(UP_CODES, UP_SCALES, UP_BIASES), output, block, x);
        }
    }
    sums[local.y * LANES + lane] = sum;
    workgroupBarrier();
    if lane == 0u && output < OUTPUTS {
        var total = vec2<f32>(0.0);
        for (var i = 0u; i < LANES; i++) {
            total += sums[local.y * LANES + i];
        }
        out[pair * OUTPUTS + output] = silu(total.x) * total.y;
    }
}
