// The slots of what a router chose for a row (architecture.md section 8, engine.md 5.3):
//
//     slots[r, k] = table[layer, experts[r, k]]
//
// Where a choice has no slot, the control block names the layer, and every dispatch after this one gets no workgroups:
// their grids lie in `grids`, from `first` to `end`. The host brings the expert and goes on behind this kernel. A layer
// before this one that missed leaves this one nothing to do.
//
// Row invariance: a workgroup has one row at a time; a miss of any row ends the submission for all.

struct Task {
    layer: u32,
    rows: u32,
    first: u32, // dispatch after this one
    end: u32, // dispatches
}

var<immediate> task: Task;

@group(0) @binding(3) var<storage, read> table: array<u32>; // [layers, EXPERTS], NONE for no slot
@group(0) @binding(4) var<storage, read_write> slots: array<u32>; // [rows, CHOICES]
@group(0) @binding(5) var<storage, read_write> control: array<atomic<u32>>; // NONE or the layer that missed, [layers, rows, CHOICES]
@group(0) @binding(6) var<storage, read_write> grids: array<u32>; // [dispatches, 3]

const NONE = 0xffffffffu;

var<workgroup> missing: atomic<u32>;

// Whether a layer before this one missed. Another row of this layer may have missed already; this one's choices are wanted
// all the same.
fn is_halted() -> bool {
    let halted = atomicLoad(&control[0]);
    return halted != NONE && halted != task.layer;
}

// All of a workgroup chooses for a row and looks the choices up.
fn look_up(row: u32, thread: u32) {
    workgroupBarrier();
    if thread == 0u {
        atomicStore(&missing, 0u);
    }
    choose(row, thread);
    if thread < CHOICES {
        let expert = picked[thread];
        let slot = table[task.layer * EXPERTS + expert];
        slots[row * CHOICES + thread] = slot;
        atomicStore(&control[1u + (task.layer * task.rows + row) * CHOICES + thread], expert);
        if slot == NONE {
            atomicStore(&missing, 1u);
        }
    }
    workgroupBarrier();
    if atomicLoad(&missing) == 0u {
        return;
    }
    if thread == 0u {
        atomicStore(&control[0], task.layer);
    }
    for (var dispatch = task.first + thread; dispatch < task.end; dispatch += THREADS) {
        grids[3u * dispatch] = 0u;
    }
}
