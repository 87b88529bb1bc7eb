// What the expert kernels for 4-bit affine records share; comes after one of `pool_*.wgsl`, before the kernel.
//
// The product of a weight row with inputs goes by blocks of 32 inputs, 16 bytes of codes (checkpoint.md section 3):
//
//     W(o, c) = scale[o, c / GROUP] * code(o, c) + bias[o, c / GROUP]
//     W(o) . x = sum over blocks b:  scale * sum(code * x in b) + bias * sum(x in b)
//
// Row invariance (engine.md 3.2, 3.7): a workgroup belongs to one pair (row, choice) and TILE outputs. LANES lanes share
// an output: lane l takes blocks l, l + LANES, ... in order, then one lane adds the LANES sums in order. Which values
// meet in which order follows from INPUTS, GROUP and LANES alone; pair, slot, chunk and subgroup size enter no sum.

const BLOCK = 32u;

override INPUTS: u32; // inputs of a weight row, a multiple of GROUP
override OUTPUTS: u32; // weight rows
override GROUP: u32; // inputs that share a scale: 32 or 64
override SCALAR: u32; // scales and biases: 0 BF16, 1 F16, 2 F32
override LANES: u32; // lanes that share an output
override TILE: u32; // outputs of a workgroup
override RECORD_QUADS: u32; // size of a slot, in 16 bytes

override BLOCKS: u32 = INPUTS / BLOCK;
override GROUPS: u32 = INPUTS / GROUP;
override STEPS: u32 = (BLOCKS + LANES - 1u) / LANES;

struct Task {
    first: u32, // first pair of this dispatch
    sharing: u32, // pairs that share a row of inputs
    slots: u32, // slots of the pool
    slots_per_chunk: u32,
    bound: u32, // chunk that is bound, where only one is
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> inputs: array<vec4<f32>>; // [rows, STEPS, 8, LANES] as `permute_inputs.wgsl` leaves them
@group(0) @binding(1) var<storage, read> slots: array<u32>; // [pairs], a slot each, or a number past the pool for none
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [pairs, OUTPUTS]

// A slot, seen from its chunk.
struct Place {
    chunk: u32,
    quad: u32,
}

fn place_of(slot: u32) -> Place {
    return Place(slot / task.slots_per_chunk, slot % task.slots_per_chunk * RECORD_QUADS);
}

// Where a projection lies in its slot: codes in quads, scales and biases in words.
struct Part {
    codes: u32,
    scales: u32,
    biases: u32,
}

// The inputs of one block: column w of `even` meets codes 0, 2, 4, 6 of word w, column w of `odd` meets 1, 3, 5, 7.
struct Inputs {
    even: mat4x4<f32>,
    odd: mat4x4<f32>,
    sum: f32,
}

// Neighbouring lanes read neighbouring quads.
fn inputs_of(row: u32, step: u32, lane: u32) -> Inputs {
    let at = (row * STEPS + step) * 8u * LANES + lane;
    let even = mat4x4<f32>(inputs[at], inputs[at + LANES], inputs[at + 2u * LANES], inputs[at + 3u * LANES]);
    let odd = mat4x4<f32>(
        inputs[at + 4u * LANES],
        inputs[at + 5u * LANES],
        inputs[at + 6u * LANES],
        inputs[at + 7u * LANES],
    );
    let all = ((even[0] + odd[0]) + (even[1] + odd[1])) + ((even[2] + odd[2]) + (even[3] + odd[3]));
    return Inputs(even, odd, dot(all, vec4<f32>(1.0)));
}

// Number `index` of the scales or biases that begin at word `start`.
fn number(chunk: u32, start: u32, index: u32) -> f32 {
    if SCALAR == 2u {
        return bitcast<f32>(word(chunk, start + index));
    }
    let both = word(chunk, start + index / 2u);
    if SCALAR == 1u {
        let halves = unpack2x16float(both);
        return select(halves.x, halves.y, index % 2u == 1u);
    }
    return bitcast<f32>(select(both << 16u, both & 0xffff0000u, index % 2u == 1u));
}

fn word_dot(codes: u32, even: vec4<f32>, odd: vec4<f32>) -> f32 {
    let low = vec4<f32>(unpack4xU8(codes & 0x0f0f0f0fu));
    let high = vec4<f32>(unpack4xU8((codes >> 4u) & 0x0f0f0f0fu));
    return dot(low, even) + dot(high, odd);
}

// What `block` of weight row `output` adds to the product.
fn block_dot(place: Place, part: Part, output: u32, block: u32, x: Inputs) -> f32 {
    let codes = quad(place.chunk, place.quad + part.codes + output * BLOCKS + block);
    let group = output * GROUPS + block / (GROUP / BLOCK);
    let start = place.quad * 4u;
    let scale = number(place.chunk, start + part.scales, group);
    let bias = number(place.chunk, start + part.biases, group);
    let first = word_dot(codes.x, x.even[0], x.odd[0]) + word_dot(codes.y, x.even[1], x.odd[1]);
    let second = word_dot(codes.z, x.even[2], x.odd[2]) + word_dot(codes.w, x.even[3], x.odd[3]);
    return scale * (first + second) + bias * x.sum;
}
