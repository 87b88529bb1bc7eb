//! Owns: deliberate faults, by which a test shows that it would notice one (engine.md section 1).
//! Refuses: any use but in tests; the program never sets one.
//! Invariants: each makes what a caller gets depend on residency, and nothing else; with [`Mutation::None`] nothing changes.

/// Test support: a fault that makes a hit and a miss differ, so that every test of promise I1 must turn red.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutation {
    /// No fault.
    #[default]
    None,
    /// A record whose slot was another expert's is published without being read.
    StaleSlot,
    /// A record whose slot was another expert's gets its gate and up codes exchanged (or the first two pieces of one size).
    SwapPieces,
    /// Slots are handed out resident experts first, instead of in the order that was asked for.
    MisorderedSlots,
    /// A record that is read early gets its entry before it is read.
    EarlyEntry,
    /// A record that takes the place of another in host memory is not read.
    StaleRam,
    /// An n-gram row that comes from the cache is rounded to BF16.
    RoundedHits,
}
