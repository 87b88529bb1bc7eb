// Work of a few microseconds for one workgroup that nobody reads: it keeps a device from slowing down while a reply waits for
// records (`backends/wgpu/src/pulse.rs`).

override STEPS: u32;

@group(0) @binding(0) var<storage, read_write> kept: array<f32>; // [1]

@compute @workgroup_size(32)
fn main(@builtin(local_invocation_index) thread: u32) {
    var x = f32(thread);
    for (var step = 0u; step < STEPS; step++) {
        x = fma(x, 0.999, 1.0);
    }
    // Never so, which no compiler can know.
    if x < 0.0 {
        kept[0] = x;
    }
}
