//! Owns: noticing that a reply goes round in circles (server.md section 5).
//! Invariants: looks only at the last [`WINDOW`] tokens, so its work a token is bounded.

/// Tokens that must repeat before a reply is ended.
pub const WINDOW: usize = 256;

/// Longest cycle that counts as one.
const LONGEST_CYCLE: usize = 32;

/// Whether the last [`WINDOW`] tokens are one cycle of at most 32 tokens, over and over.
pub fn is_looping(ids: &[u32]) -> bool {
    let Some(start) = ids.len().checked_sub(WINDOW) else { return false };
    let tail = &ids[start..];
    (1..=LONGEST_CYCLE).any(|cycle| tail[cycle..].iter().zip(tail).all(|(now, then)| now == then))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_of_one_token_or_of_a_short_cycle_is_a_loop() {
        assert!(is_looping(&[7; WINDOW]));
        let cycle: Vec<u32> = (0..300).map(|i| i % 31).collect();
        assert!(is_looping(&cycle));
    }

    #[test]
    fn shorter_runs_longer_cycles_and_ordinary_text_are_not() {
        assert!(!is_looping(&[7; WINDOW - 1]));
        let cycle: Vec<u32> = (0..600).map(|i| i % 33).collect();
        assert!(!is_looping(&cycle));
        let mut broken = vec![7; WINDOW];
        broken[100] = 8;
        assert!(!is_looping(&broken));
    }
}
