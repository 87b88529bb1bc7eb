//! Owns: what the exit code says (engine.md section 9).

use std::process::ExitCode;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Answered.
    Answered,
    /// Wrong usage or a bad model.
    Usage,
    /// No memory.
    Memory,
    /// The device failed.
    Device,
    /// Ctrl-C.
    Interrupted,
}

impl Exit {
    /// The number that a shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Answered => 0,
            Exit::Usage => 2,
            Exit::Memory => 3,
            Exit::Device => 4,
            Exit::Interrupted => 130,
        }
    }

    /// What an error ends the program with.
    pub fn of(error: &anyhow::Error) -> Self {
        let device = |e: &ss_backend::Error| match e {
            ss_backend::Error::OutOfMemory { .. } => Exit::Memory,
            _ => Exit::Device,
        };
        for cause in error.chain() {
            if let Some(e) = cause.downcast_ref::<ss_backend::Error>() {
                return device(e);
            }
            // A transparent error hides its source from the chain.
            match cause.downcast_ref::<ss_model::Error>() {
                Some(ss_model::Error::Backend(e)) => return device(e),
                Some(ss_model::Error::Stream(ss_stream::Error::Device(e))) => return device(e),
                Some(ss_model::Error::Cancelled) => return Exit::Interrupted,
                _ => {}
            }
            if cause.downcast_ref::<crate::plan::NoRoom>().is_some() {
                return Exit::Memory;
            }
        }
        Exit::Usage
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}
