// How outputs and units of a weight are spread over the threads of a workgroup, decode form, and how they come by their inputs. Comes
// once for each weight of a kernel, in front of its `gemv_weight.wgsl` or `gemv_walk.wgsl`.

override W_LANES: u32; // lanes that share an output
override W_OUTPUTS: u32; // outputs of a lane, at most 8, a multiple of ALIKE
override W_ALIKE: u32; // outputs that lie APART rows from one another and meet in one thread
override W_APART: u32; // rows of the weight between them
override W_TEAMS: u32 = THREADS / W_LANES;
override W_TILE: u32 = W_TEAMS * W_OUTPUTS;
override W_SPAN: u32 = W_TILE / W_ALIKE; // of a tile, outputs that are not alike
override W_ROOM: u32 = W_QUADS * (W_LANES + 1u); // quads that one step takes
override W_STEPS: u32; // that are staged at once: all of a row, or equal stretches

// The weight row behind place `i` of a tile, `i` below TILE.
fn W_output(tile: u32, i: u32) -> u32 {
    return (tile * W_TILE + i) / W_ALIKE + i % W_ALIKE * W_APART;
}

// The sum at place `i` of a tile, row `r` of those at hand.
fn W_sum(i: u32, r: u32) -> f32 {
    return totals[r * W_TILE + i];
}

// Inputs of some steps of a row from unit `first` on. The turns of the loop are known and none is left out, so that all
// loads are under way at once.
fn W_stage(row: u32, first: u32, thread: u32) {
    for (var turn = 0u; turn < (W_STEPS * W_LANES * W_QUADS + THREADS - 1u) / THREADS; turn++) {
        let quad = turn * THREADS + thread;
        let unit = quad / W_QUADS;
        let place = unit / W_LANES * W_ROOM + quad % W_QUADS * (W_LANES + 1u) + unit % W_LANES;
        let value = W_input(row, first * W_QUADS + quad);
        if quad < W_STEPS * W_LANES * W_QUADS {
            staged[place] = value;
        }
    }
}

// The inputs of a unit.
fn W_take(place: u32) -> Inputs {
    var x: Inputs;
    x.a = staged[place];
    if W_QUADS > 1u {
        x.b = staged[place + W_LANES + 1u];
    }
    if W_QUADS > 2u {
        x.c = staged[place + 2u * (W_LANES + 1u)];
        x.d = staged[place + 3u * (W_LANES + 1u)];
    }
    if W_QUADS > 4u {
        x.e = staged[place + 4u * (W_LANES + 1u)];
        x.f = staged[place + 5u * (W_LANES + 1u)];
        x.g = staged[place + 6u * (W_LANES + 1u)];
        x.h = staged[place + 7u * (W_LANES + 1u)];
    }
    let all = ((x.a + x.b) + (x.c + x.d)) + ((x.e + x.f) + (x.g + x.h));
    x.sum = (all.x + all.y) + (all.z + all.w);
    return x;
}
