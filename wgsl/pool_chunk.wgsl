// The slot pool where the device takes no arrays of buffers: one dispatch a chunk (engine.md 5.1).
// Same functions as `pool_array.wgsl`, hence the same arithmetic.

@group(1) @binding(0) var<storage, read> pool_quads: array<vec4<u32>>; // [slots_per_chunk, RECORD_QUADS]
@group(1) @binding(1) var<storage, read> pool_words: array<u32>; // [slots_per_chunk, 4 RECORD_QUADS]

fn quad(chunk: u32, index: u32) -> vec4<u32> {
    return pool_quads[index];
}

fn word(chunk: u32, index: u32) -> u32 {
    return pool_words[index];
}

// Whether this dispatch sees `chunk`: only the one that is bound.
fn sees(chunk: u32, bound: u32) -> bool {
    return chunk == bound;
}
