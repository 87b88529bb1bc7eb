// The walk of a workgroup over pairs, prompt form of the experts: pairs follow each other in `order`, slot by slot, and a run
// of those that have the same slot is multiplied in tiles of rows that begin with the run. A workgroup has the tiles that
// begin among its WINDOW places. Pairs without a slot come last. The kernel says what it multiplies:
// `multiply(group, place, end, thread)`.

const WINDOW = 32u;

// Rows of the tile at hand; 0 if it is none of this workgroup's. Four numbers for the alignment of `gemm_units.wgsl`.
var<workgroup> tile_rows: vec4<u32>;

fn walk(group: vec3<u32>, thread: u32) {
    let last = min(task.pairs, (group.y + 1u) * WINDOW);
    var place = group.y * WINDOW;
    while place < last {
        let slot = slots[order[place]];
        let run_end = order[2u * task.pairs + place];
        let begin = place - (place - order[task.pairs + place]) % ROW_TILE;
        let end = min(begin + ROW_TILE, run_end);
        let own = begin == place && slot < task.slots && sees(slot / SLOTS_PER_CHUNK, task.bound);
        if thread == 0u {
            tile_rows = vec4<u32>(select(0u, end - place, own));
        }
        workgroupBarrier();
        if tile_rows.x > 0u {
            hold_slot(slot);
            multiply(group.x, place, end, thread);
        }
        workgroupBarrier();
        place = end;
    }
}
