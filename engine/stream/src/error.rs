//! Owns: what can go wrong on the way from a file into a slot, in words for a person.

use std::path::PathBuf;

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why experts or n-gram rows could not be brought.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read, or holds damaged weights.
    #[error(transparent)]
    Checkpoint(#[from] ss_checkpoint::Error),
    /// The device could not give or take slots.
    #[error(transparent)]
    Device(#[from] ss_backend::Error),
    /// A pool size that is none.
    #[error("`{flag} {text}` is not a pool size, expected {expected}")]
    NotASize {
        /// The flag it was given to.
        flag: &'static str,
        /// What was given.
        text: String,
        /// What the flag takes.
        expected: &'static str,
    },
    /// A pool in which a token's experts would not fit.
    #[error(
        "`{flag} {asked}` makes a pool of {slots} slots, but this model needs at least {least} (3 times its {choices} experts a token); try `--slots smallest`"
    )]
    TooFewSlots {
        /// The flag.
        flag: &'static str,
        /// What was asked for.
        asked: u32,
        /// Slots that come of it.
        slots: u32,
        /// The smallest pool.
        least: u32,
        /// Experts a token.
        choices: u32,
    },
    /// More slots than experts.
    #[error("`--slots {asked}` is more than the {all} experts of this model; try `--slots all`")]
    TooManySlots {
        /// What was asked for.
        asked: u32,
        /// Experts of all main layers.
        all: u32,
    },
    /// More experts a layer than a layer has.
    #[error("`--experts-per-layer {asked}` is more than the {experts} experts that a layer of this model has")]
    TooManyPerLayer {
        /// What was asked for.
        asked: u32,
        /// Experts of a layer.
        experts: u32,
    },
    /// A number of lanes out of range.
    #[error("{found} {lane} reading lanes were asked for, expected a number from 1 to {most}")]
    LaneCount {
        /// Which lanes.
        lane: &'static str,
        /// What was asked for.
        found: u16,
        /// The largest number.
        most: u16,
    },
    /// A disk that cannot be imitated.
    #[error("`{flag}` must be {expected}")]
    Pace {
        /// The flag.
        flag: &'static str,
        /// What it takes.
        expected: &'static str,
    },
    /// The system gives no more threads.
    #[error("cannot start {threads} reading threads: {cause}; ask for fewer lanes")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system said.
        cause: String,
    },
    /// Every slot is held by work that is not finished.
    #[error(
        "{wanted} slots are needed but only {available} of the pool's {slots} are not in use; ask for more with `--slots`"
    )]
    PoolBusy {
        /// Slots needed for missing experts.
        wanted: usize,
        /// Slots that could be emptied.
        available: usize,
        /// All slots.
        slots: u32,
    },
    /// The draft layer's records differ from the main layers'.
    #[error(
        "{dir}: the experts of layer {layer} are stored in another layout than those of layer 0, so that they cannot share a pool"
    )]
    ForeignLayout {
        /// The model directory.
        dir: PathBuf,
        /// The layer.
        layer: u32,
    },
    /// A row of an n-gram table with a NaN or an infinity.
    #[error("{path}: row {row} of n-gram table {table} does not give finite numbers: the file is damaged")]
    DamagedRow {
        /// The file that holds the row.
        path: PathBuf,
        /// The row, counted over all shards.
        row: u64,
        /// Place of the table's layer among the layers that have one.
        table: usize,
    },
    /// Asked for something impossible: a fault in this program.
    #[error("the expert stream was asked for {0}; this is a fault in slotstream, please report it")]
    Fault(String),
}
