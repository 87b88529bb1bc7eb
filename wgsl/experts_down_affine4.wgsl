// Second half of the gathered experts (architecture.md section 8): for each pair p = (row, choice) that has a slot,
//
//     out[p, o] = down(o) . x[p]
//
// unweighted; the choices of a row are added elsewhere, in choice order (engine.md 3.7e).
// Row invariance: see `experts_affine4.wgsl`.

override DOWN_CODES: u32;
override DOWN_SCALES: u32;
override DOWN_BIASES: u32;

var<workgroup> sums: array<f32, TILE * LANES>; // [TILE, LANES]

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
    var sum = 0.0;
    if output < OUTPUTS {
        for (var step = 0u; step * LANES + lane < BLOCKS; step++) {
            let x = inputs_of(row, step, lane);
            sum += block_dot(place, Part(DOWN_CODES, DOWN_SCALES, DOWN_BIASES), output, step * LANES + lane, x);
        }
    }
    sums[local.y * LANES + lane] = sum;
    workgroupBarrier();
    if lane == 0u && output < OUTPUTS {
        var total = 0.0;
        for (var i = 0u; i < LANES; i++) {
            total += sums[local.y * LANES + i];
        }
        out[pair * OUTPUTS + output] = total;
    }
}
