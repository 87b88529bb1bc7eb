// Rows times a weight, decode form. Comes once for each weight of a kernel, after its `weight_*.wgsl` and before the
// kernel, which says what the inputs are: `W_input(row, quad)` is inputs 4 quad .. 4 quad + 3 of a row, zeros past the end.
//
//     sum(o, r) = W(o) . x[r]
//
// A workgroup makes TILE outputs of up to four rows. LANES lanes share OUTPUTS outputs: lane l takes the units l,
// l + LANES, ... in order, then a tree adds the lanes.
//
// Row invariance (engine.md 3.2, 3.7): which values meet in which order follows from the weight's shape and format
// alone. Rows share what is loaded of the weight and nothing else; how many ride along only decides in how many
// stretches the inputs are staged, which enters no sum.

override W_LANES: u32; // lanes that share an output, a power of two
override W_OUTPUTS: u32; // outputs of a lane
override W_APART: u32; // rows of the weight between the outputs of a lane

const W_MOST_OUTPUTS = 8u;
override W_TEAMS: u32 = THREADS / W_LANES;
override W_TILE: u32 = W_TEAMS * W_OUTPUTS;
override W_ROOM: u32 = W_QUADS * (W_LANES + 1u); // quads that one step of one row takes

// The weight row behind place `i` of a tile, `i` below TILE.
fn W_output(tile: u32, i: u32) -> u32 {
    let team = tile * W_TEAMS + i / W_OUTPUTS;
    return select(team * W_OUTPUTS + i % W_OUTPUTS, team + i % W_OUTPUTS * W_APART, W_APART > 1u);
}

// The sum at place `i` of a tile, row `r` of those at hand.
fn W_sum(i: u32, r: u32) -> f32 {
    return staged[i * W_LANES][r];
}

fn W_stage(first_row: u32, rows: u32, first_unit: u32, steps: u32, thread: u32) {
    let quads = steps * W_LANES * W_QUADS;
    for (var i = thread; i < rows * quads; i += THREADS) {
        let quad = i % quads;
        let unit = quad / W_QUADS;
        let place = (i / quads * steps + unit / W_LANES) * W_ROOM + quad % W_QUADS * (W_LANES + 1u) + unit % W_LANES;
        staged[place] = W_input(first_row + i / quads, first_unit * W_QUADS + quad);
    }
}

// Multiplies `rows` rows from `first_row` with the outputs of a tile; outputs from `end` on are left out. Afterwards
// every thread may ask for the sums.
fn W_multiply(tile: u32, end: u32, first_row: u32, rows: u32, thread: u32) {
    let lane = thread % W_LANES;
    let team = thread / W_LANES;
    var sums: array<f32, ROWS_AT_ONCE * W_MOST_OUTPUTS>;
    let most = STAGED / (rows * W_ROOM) * W_LANES;
    for (var first = 0u; first < W_UNITS; first += most) {
        let steps = (min(most, W_UNITS - first) + W_LANES - 1u) / W_LANES;
        workgroupBarrier();
        W_stage(first_row, rows, first, steps, thread);
        workgroupBarrier();
        for (var step = 0u; step < steps; step++) {
            let unit = first + step * W_LANES + lane;
            if unit >= W_UNITS {
                continue;
            }
            var weights: array<W_Unit, W_MOST_OUTPUTS>;
            for (var o = 0u; o < W_OUTPUTS; o++) {
                // A row past the end is read as the last one; its sum is not asked for.
                weights[o] = W_load(min(W_output(tile, team * W_OUTPUTS + o), end - 1u), unit);
            }
            for (var r = 0u; r < ROWS_AT_ONCE; r++) {
                if r < rows {
                    var x: array<vec4<f32>, W_QUADS>;
                    var all = vec4<f32>();
                    for (var q = 0u; q < W_QUADS; q++) {
                        x[q] = staged[(r * steps + step) * W_ROOM + q * (W_LANES + 1u) + lane];
                        all += x[q];
                    }
                    let sum = dot(all, vec4<f32>(1.0));
                    for (var o = 0u; o < W_OUTPUTS; o++) {
                        sums[r * W_MOST_OUTPUTS + o] += W_dot(weights[o], x, sum);
                    }
                }
            }
        }
    }
    workgroupBarrier();
    for (var o = 0u; o < W_OUTPUTS; o++) {
        staged[(team * W_OUTPUTS + o) * W_LANES + lane] = vec4<f32>(
            sums[o],
            sums[W_MOST_OUTPUTS + o],
            sums[2u * W_MOST_OUTPUTS + o],
            sums[3u * W_MOST_OUTPUTS + o],
        );
    }
    W_add_lanes(team, lane);
}

// Adds the lanes of every place as a tree; the sum is left with lane 0.
fn W_add_lanes(team: u32, lane: u32) {
    workgroupBarrier();
    for (var apart = W_LANES / 2u; apart > 0u; apart /= 2u) {
        if lane < apart {
            for (var o = 0u; o < W_OUTPUTS; o++) {
                let place = (team * W_OUTPUTS + o) * W_LANES + lane;
                staged[place] += staged[place + apart];
            }
        }
        workgroupBarrier();
    }
}
