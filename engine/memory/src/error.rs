//! Owns: what the system would not say, in words for a person.

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a figure cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("the system does not say {what}: {call} failed with {cause}")]
    System {
        /// The figure that was asked for.
        what: &'static str,
        /// The call.
        call: &'static str,
        /// The system's own words.
        cause: std::io::Error,
    },
}
