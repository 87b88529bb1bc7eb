enable wgpu_binding_array;

// The slot pool where the device takes arrays of buffers: all chunks are bound at once (engine.md 5.1).
// A chunk is bound twice, for loads of 16 bytes and of 4. `chunk` must be the same in all of a workgroup.

struct Quads { at: array<vec4<u32>> }
struct Words { at: array<u32> }

@group(1) @binding(0) var<storage, read> pool_quads: binding_array<Quads>; // [chunks] of [slots_per_chunk, RECORD_QUADS]
@group(1) @binding(1) var<storage, read> pool_words: binding_array<Words>; // [chunks] of [slots_per_chunk, 4 RECORD_QUADS]

fn quad(chunk: u32, index: u32) -> vec4<u32> {
    return pool_quads[chunk].at[index];
}

fn word(chunk: u32, index: u32) -> u32 {
    return pool_words[chunk].at[index];
}

// Whether this dispatch sees `chunk`; `bound` is the one that a dispatch of `pool_chunk.wgsl` sees.
fn sees(chunk: u32, bound: u32) -> bool {
    return true;
}
