//! Owns: which blocks stand for a stretch of bytes where all of it would take minutes to read.
//! Refuses: nothing.
//! Invariants: the same stretch gives the same blocks, its first and its last bytes among them; a short one is read whole.

/// Blocks of a stretch.
const BLOCKS: u64 = 16;
/// Bytes of a block: a page of most disks.
const BLOCK_BYTES: u64 = 4096;

/// Offset and bytes of each block, ascending.
pub(crate) fn blocks(offset: u64, bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let length = bytes.min(BLOCK_BYTES);
    let at = move |block| offset + (bytes - length).saturating_mul(block) / (BLOCKS - 1);
    (0..BLOCKS).map(move |block| (at(block), length as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_inside_and_reach_both_ends() {
        for bytes in [0, 1, 4095, 4096, 4097, 1 << 20, 1 << 45] {
            let all: Vec<_> = blocks(100, bytes).collect();
            assert!(all.iter().all(|&(at, length)| at >= 100 && at + length as u64 <= 100 + bytes), "{bytes}");
            assert_eq!(all[0].0, 100);
            assert_eq!(all[15].0 + all[15].1 as u64, 100 + bytes);
        }
    }
}
