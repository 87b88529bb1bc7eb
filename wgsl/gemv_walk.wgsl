// Rows times a weight, decode form, where a lane has a unit or a few of a row. As `gemv_weight.wgsl`, comes once for each weight of
// a kernel, after its `weight_*.wgsl` and `gemv_spread.wgsl`, and before the kernel, which says what the inputs are:
// `W_input(row, quad)` is inputs 4 quad .. 4 quad + 3 of a row, zeros past the end.
//
//     sum(o, r) = W(o) . x[r]
//
// A workgroup makes TILE outputs of up to four rows. LANES lanes share OUTPUTS outputs: lane l takes the units l,
// l + LANES, ... in order, one of each output after the other, so that it reads inputs once for all of them. Then the lanes
// are added: every SPLIT-th, then those SPLIT. A lane asks for the next units before it multiplies with those at hand, and
// for the first before the inputs are there.
//
// One loop walks units and outputs, and nothing in it is written out twice: a lane has few turns, and code that runs once or
// twice takes longer to fetch than to run. Nothing that a lane keeps is an array: drivers put arrays in memory where they do
// not unroll all that indexes them.
//
// Row invariance (engine.md 3.2, 3.7): which values meet in which order follows from the weight's shape and format
// alone. Rows come one after the other.

override W_ONCE: u32; // whether a lane has one unit of a row at most
override W_SPLIT: u32; // threads that add the lanes of an output, SPLIT TILE of them at most THREADS

// What a lane multiplies at `turn` of its walk: output `turn % OUTPUTS` of its own with unit `turn / OUTPUTS`. A unit past the
// end is read as the last one. A row past the end may be anything; its sum is not asked for.
fn W_fetch(tile: u32, own: u32, unit: u32, last: u32, turn: u32) -> W_Unit {
    let row = W_output(tile, own + turn % W_OUTPUTS);
    return W_load(row, min(unit + turn / W_OUTPUTS * W_LANES, last - 1u));
}

// Multiplies `rows` rows from `first_row` with the outputs of a tile, of which there are none from `end` on. Afterwards every
// thread may ask for the sums.
fn W_multiply(tile: u32, end: u32, first_row: u32, rows: u32, thread: u32) {
    W_multiply_part(tile, end, 0u, W_UNITS, first_row, rows, thread);
}

// The same with the units from `first` to `last` alone.
fn W_multiply_part(tile: u32, end: u32, first: u32, last: u32, first_row: u32, rows: u32, thread: u32) {
    // Threads past the last team do as its lanes do, for nothing.
    let team = min(thread / W_LANES, W_TEAMS - 1u);
    let lane = min(thread - team * W_LANES, W_LANES - 1u);
    let works = thread < W_TEAMS * W_LANES;
    let own = team * W_OUTPUTS;
    let unit = first + lane;
    // Rows are fewer than 2^31: this adds nothing, which compilers cannot know, so that they do not unroll the walk.
    let turns = W_STEPS * W_OUTPUTS + (first_row >> 31u);
    for (var r = 0u; r < rows; r++) {
        var near = W_fetch(tile, own, unit, last, 0u);
        for (var stretch = 0u; stretch < last - first; stretch += W_STEPS * W_LANES) {
            workgroupBarrier();
            W_stage(first_row + r, first + stretch, thread);
            workgroupBarrier();
            var x: Inputs;
            for (var turn = 0u; turn < turns; turn++) {
                let at_hand = near;
                near = W_fetch(tile, own, unit, last, stretch / W_LANES * W_OUTPUTS + turn + 1u);
                let step = turn / W_OUTPUTS;
                if turn % W_OUTPUTS == 0u {
                    x = W_take(step * W_ROOM + lane);
                }
                let there = unit + stretch + step * W_LANES < last;
                let sum = select(0.0, W_dot(at_hand, x), there);
                let place = (own + turn % W_OUTPUTS) * (W_LANES + 1u) + lane;
                if works {
                    if W_ONCE == 1u || stretch + step == 0u {
                        lane_sums[place] = sum;
                    } else {
                        lane_sums[place] += sum;
                    }
                }
            }
        }
        workgroupBarrier();
        W_fold(r, thread);
    }
    workgroupBarrier();
}

// Adds the lanes.
fn W_fold(r: u32, thread: u32) {
    for (var i = thread; i < W_TILE * W_SPLIT; i += THREADS) {
        var sum = 0.0;
        for (var turn = 0u; turn < (W_LANES + W_SPLIT - 1u) / W_SPLIT; turn++) {
            let lane = turn * W_SPLIT + i % W_SPLIT;
            if lane < W_LANES {
                sum += lane_sums[i / W_SPLIT * (W_LANES + 1u) + lane];
            }
        }
        if W_SPLIT == 1u {
            totals[r * W_TILE + i] = sum;
        } else {
            part_sums[i] = sum;
        }
    }
    if W_SPLIT > 1u {
        workgroupBarrier();
        if thread < W_TILE {
            var sum = 0.0;
            for (var part = 0u; part < W_SPLIT; part++) {
                sum += part_sums[thread * W_SPLIT + part];
            }
            totals[r * W_TILE + thread] = sum;
        }
    }
}
