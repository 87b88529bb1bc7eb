// Rows times a weight, decode form. Comes once for each weight of a kernel, after its `weight_*.wgsl` and `gemv_spread.wgsl`, and
// before the kernel, which says what the inputs are: `W_input(row, quad)` is inputs 4 quad .. 4 quad + 3 of a row, zeros past the
// end.
//
//     sum(o, r) = W(o) . x[r]
//
// A workgroup makes TILE outputs of up to four rows. LANES lanes share OUTPUTS outputs: lane l takes the units l,
// l + LANES, ... in order, then the lanes are added: as a tree down to sixteen, then every fourth, then those four. A lane
// asks for its next units before it multiplies with those at hand, and for the first before the inputs are there.
//
// Nothing that a lane keeps is an array: drivers put arrays in memory where they do not unroll all that indexes them.
//
// Row invariance (engine.md 3.2, 3.7): which values meet in which order follows from the weight's shape and format
// alone. Rows come one after the other.

override W_AHEAD: u32 = max(4u / W_OUTPUTS, 1u); // steps that a lane loads at once
override W_SHARE: u32 = min(W_OUTPUTS, 4u); // outputs of a step that a lane loads at once

// What a lane loads at once: a unit of each of up to four outputs; two of two; four of one.
struct W_Units {
    first: W_Unit,
    second: W_Unit,
    third: W_Unit,
    fourth: W_Unit,
}

// Unit `j` of what a lane loads at once. A row past the end is read as the last one, and so is a unit; their sums are not
// asked for.
fn W_load_at(tile: u32, end: u32, own: u32, j: u32, unit: u32, last: u32) -> W_Unit {
    let output = W_output(tile, own + j % W_SHARE);
    return W_load(min(output, end - 1u), min(unit + j / W_SHARE * W_LANES, last - 1u));
}

fn W_fetch(tile: u32, end: u32, own: u32, unit: u32, last: u32) -> W_Units {
    return W_Units(
        W_load_at(tile, end, own, 0u, unit, last),
        W_load_at(tile, end, own, 1u, unit, last),
        W_load_at(tile, end, own, 2u, unit, last),
        W_load_at(tile, end, own, 3u, unit, last),
    );
}

// Adds the products of what was loaded at `unit` with inputs at `place`; `loads` is how many there are. Where a lane has few
// of them they are made in a loop that turns what was loaded, and no compiler unrolls it, knowing nothing of `loads`: code
// that runs once or twice takes longer to fetch than to run.
fn W_add(sums: vec4<f32>, units: W_Units, unit: u32, last: u32, place: u32, loads: u32) -> vec4<f32> {
    var all = sums;
    if W_SHARE < 4u || W_STEPS < 4u {
        var left = units;
        var x: Inputs;
        for (var j = 0u; j < loads; j++) {
            if j % W_SHARE == 0u {
                x = W_take(place + j / W_SHARE * W_ROOM);
            }
            let sum = select(all.x, all.x + W_dot(left.first, x), unit + j / W_SHARE * W_LANES < last);
            switch W_SHARE {
                case 1u: {
                    all.x = sum;
                }
                case 2u: {
                    all = vec4<f32>(all.y, sum, 0.0, 0.0);
                }
                case 3u: {
                    all = vec4<f32>(all.y, all.z, sum, 0.0);
                }
                default: {
                    all = vec4<f32>(all.y, all.z, all.w, sum);
                }
            }
            left = W_Units(left.second, left.third, left.fourth, left.first);
        }
        return all;
    }
    if unit >= last {
        return all;
    }
    let x = W_take(place);
    all.x += W_dot(units.first, x);
    all.y += W_dot(units.second, x);
    all.z += W_dot(units.third, x);
    all.w += W_dot(units.fourth, x);
    return all;
}

// Multiplies `rows` rows from `first_row` with the outputs of a tile; outputs from `end` on are left out. Afterwards
// every thread may ask for the sums.
fn W_multiply(tile: u32, end: u32, first_row: u32, rows: u32, thread: u32) {
    W_multiply_part(tile, end, 0u, W_UNITS, first_row, rows, thread);
}

// The same with the units from `first` to `last` alone.
fn W_multiply_part(tile: u32, end: u32, first: u32, last: u32, first_row: u32, rows: u32, thread: u32) {
    let lane = thread % W_LANES;
    let own = thread / W_LANES * W_OUTPUTS;
    // Rows are fewer than 2^31: this adds nothing, which compilers cannot know.
    let loads = W_SHARE * W_AHEAD + (first_row >> 31u);
    for (var r = 0u; r < rows; r++) {
        var sums = vec4<f32>();
        var more = vec4<f32>();
        var next = W_fetch(tile, end, own, first + lane, last);
        for (var stretch = first; stretch < last; stretch += W_STEPS * W_LANES) {
            workgroupBarrier();
            W_stage(first_row + r, stretch, thread);
            workgroupBarrier();
            for (var step = 0u; step < W_STEPS; step += W_AHEAD) {
                let unit = stretch + step * W_LANES + lane;
                let place = step * W_ROOM + lane;
                let units = next;
                next = W_fetch(tile, end, own, unit + W_AHEAD * W_LANES, last);
                sums = W_add(sums, units, unit, last, place, loads);
                if W_OUTPUTS > 4u {
                    let others = W_fetch(tile, end, own + 4u, unit, last);
                    more = W_add(more, others, unit, last, place, loads);
                }
            }
        }
        workgroupBarrier();
        W_fold(sums, more, r, lane, thread);
    }
    workgroupBarrier();
}

fn W_put_one(value: f32, at: u32) {
    staged[at / 4u][at % 4u] = value;
}

// Puts down up to four sums of a lane.
fn W_put(sums: vec4<f32>, at: u32, outputs: u32) {
    W_put_one(sums.x, at);
    if outputs > 1u {
        W_put_one(sums.y, at + W_LANES);
    }
    if outputs > 2u {
        W_put_one(sums.z, at + 2u * W_LANES);
    }
    if outputs > 3u {
        W_put_one(sums.w, at + 3u * W_LANES);
    }
}

// Puts the sums of a lane down, then adds the lanes.
fn W_fold(sums: vec4<f32>, more: vec4<f32>, r: u32, lane: u32, thread: u32) {
    let own = thread / W_LANES * W_OUTPUTS;
    W_put(sums, own * W_LANES + lane, W_OUTPUTS);
    if W_OUTPUTS > 4u {
        W_put(more, (own + 4u) * W_LANES + lane, W_OUTPUTS - 4u);
    }
    workgroupBarrier();
    for (var apart = W_LANES / 2u; apart > 8u; apart /= 2u) {
        if lane < apart {
            for (var o = 0u; o < W_OUTPUTS; o++) {
                let at = (own + o) * W_LANES + lane;
                staged[at / 4u][at % 4u] += staged[(at + apart) / 4u][at % 4u];
            }
        }
        workgroupBarrier();
    }
    for (var i = thread; i < W_TILE; i += THREADS) {
        var all = vec4<f32>();
        if W_LANES < 4u {
            for (var l = 0u; l < W_LANES; l++) {
                let at = i * W_LANES + l;
                all.x += staged[at / 4u][at % 4u];
            }
        } else {
            for (var l = 0u; l < min(W_LANES, 16u); l += 4u) {
                all += staged[(i * W_LANES + l) / 4u];
            }
        }
        totals[r * W_TILE + i] = (all.x + all.y) + (all.z + all.w);
    }
}
