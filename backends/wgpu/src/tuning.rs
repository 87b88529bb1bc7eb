//! Owns: the numbers that make kernels fast, each with its reason.
//! Invariants: they follow from the shape of a weight, never from the number of rows (engine.md 3.7h).

/// Threads of a workgroup: four subgroups of 32, small enough for any adapter (WebGPU grants 256).
pub(crate) const THREADS: u32 = 128;

/// Inputs in a block: 16 bytes of 4-bit codes.
pub(crate) const BLOCK: u32 = 32;

/// Most lanes that share an output. Past 16 the sum at the end costs more than the shorter walk gains.
const MOST_LANES: u32 = 16;

/// Fewest blocks that a lane walks; 2560 inputs then take 16 lanes and 640 take 4, the fastest on an H200.
const FEWEST_STEPS: u32 = 5;

/// Slot writes that wait for a submission before they are submitted by themselves: a bound on staging memory.
pub(crate) const MOST_PENDING_SLOTS: usize = 64;

/// Uploaded bytes that wait for a submission before they are submitted by themselves, for the same reason.
pub(crate) const MOST_PENDING_BYTES: u64 = 256 << 20;

/// Lanes that share an output of a weight with this many inputs.
pub(crate) const fn lanes(inputs: u32) -> u32 {
    let mut lanes = 1;
    while lanes < MOST_LANES && inputs / BLOCK >= 2 * lanes * FEWEST_STEPS {
        lanes *= 2;
    }
    lanes
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_released_shapes_get_the_lanes_that_were_measured() {
        assert_eq!(super::lanes(2560), 16);
        assert_eq!(super::lanes(640), 4);
        assert_eq!(super::lanes(32), 1);
    }
}
