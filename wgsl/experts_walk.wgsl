// The walk of a workgroup over the pairs of its tile of rows, prompt form of the experts: pairs follow each other in `order`,
// slot by slot, and a run of those that have the same slot is multiplied together. Pairs without a slot come last. The kernel
// says what it multiplies: `multiply(first output, place, end, thread)`.

fn walk(group: vec3<u32>, thread: u32) {
    let last = min(task.pairs, (group.y + 1u) * ROW_TILE);
    var place = group.y * ROW_TILE;
    while place < last {
        let slot = slots[order[place]];
        if slot >= task.slots {
            return;
        }
        var end = place + 1u;
        while end < last && slots[order[min(end, task.pairs - 1u)]] == slot {
            end++;
        }
        if sees(slot / task.slots_per_chunk, task.bound) {
            hold_slot(slot, task.slots_per_chunk);
            multiply(group.x * OUTPUT_TILE, place, end, thread);
        }
        place = end;
    }
}
