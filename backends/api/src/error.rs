//! Owns: what can go wrong on a device, in words for a person.

/// The result of asking a device for something.
pub type Result<T> = std::result::Result<T, Error>;

/// What a device could not do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No room.
    #[error(
        "the device `{device}` has no room for {bytes} bytes of {what}; ask for fewer slots with `--slots` or a smaller `--prefill-pass`"
    )]
    OutOfMemory {
        /// Name of the device.
        device: String,
        /// What the memory was for.
        what: String,
        /// How much was asked for.
        bytes: u64,
    },
    /// The device went away.
    #[error("the device `{device}` was lost ({reason}); start again, or use `--backend reference`")]
    Lost {
        /// Name of the device.
        device: String,
        /// What its driver said.
        reason: String,
    },
    /// No such device, or it lacks something that is needed.
    #[error("{0}")]
    Unavailable(String),
    /// The engine asked for something impossible: a fault in this program.
    #[error("the backend refused an operation ({0}); this is a fault in slotstream, please report it")]
    Refused(String),
}
