// Copies words:  to[to_begin + i] = from[from_begin + i]  for i below `words`.
//
// Row invariance: nothing is computed.

override THREADS: u32; // of a workgroup

struct Task {
    words: u32,
    from_begin: u32,
    to_begin: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> from_words: array<u32>; // [from_begin + words ..]
@group(0) @binding(1) var<storage, read_write> to_words: array<u32>; // [to_begin + words ..]

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < task.words; i += groups.x * THREADS) {
        to_words[task.to_begin + i] = from_words[task.from_begin + i];
    }
}
