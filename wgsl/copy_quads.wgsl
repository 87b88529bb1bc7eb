// Copies quads of words:  to[to_begin + i] = from[from_begin + i]  for i below `quads`. A thread has four loads in flight.
//
// Row invariance: nothing is computed.

override THREADS: u32; // of a workgroup

const FLIGHT = 4u;

struct Task {
    quads: u32,
    from_begin: u32,
    to_begin: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> from_quads: array<vec4<u32>>; // [from_begin + quads ..]
@group(0) @binding(1) var<storage, read_write> to_quads: array<vec4<u32>>; // [to_begin + quads ..]

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let stride = groups.x * THREADS;
    for (var first = id.x; first < task.quads; first += FLIGHT * stride) {
        var loaded: array<vec4<u32>, FLIGHT>;
        for (var i = 0u; i < FLIGHT; i++) {
            // A place past the end is read as the last one and not written.
            loaded[i] = from_quads[task.from_begin + min(first + i * stride, task.quads - 1u)];
        }
        for (var i = 0u; i < FLIGHT; i++) {
            if first + i * stride < task.quads {
                to_quads[task.to_begin + first + i * stride] = loaded[i];
            }
        }
    }
}
