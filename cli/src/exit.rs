//! Owns: what the exit code says (engine.md section 9).

use std::error::Error;
use std::process::ExitCode;

use crate::plan::NoRoom;
use crate::trust::Broken;

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
        error.chain().find_map(of_cause).unwrap_or(Exit::Usage)
    }
}

/// What one cause says; errors that pass another one on hide it from the chain of causes.
fn of_cause(cause: &(dyn Error + 'static)) -> Option<Exit> {
    if let Some(e) = cause.downcast_ref::<ss_generate::Error>() {
        return match e {
            ss_generate::Error::Model(e) => of_model(e),
            _ => None,
        };
    }
    cause
        .downcast_ref()
        .and_then(of_model)
        .or_else(|| cause.downcast_ref().and_then(of_stream))
        .or_else(|| cause.downcast_ref().map(of_device))
        .or_else(|| cause.downcast_ref::<NoRoom>().map(|_| Exit::Memory))
        .or_else(|| cause.downcast_ref::<Broken>().map(|_| Exit::Device))
}

fn of_model(error: &ss_model::Error) -> Option<Exit> {
    match error {
        ss_model::Error::Backend(e) => Some(of_device(e)),
        ss_model::Error::Stream(e) => of_stream(e),
        ss_model::Error::Cancelled => Some(Exit::Interrupted),
        _ => None,
    }
}

fn of_stream(error: &ss_stream::Error) -> Option<Exit> {
    match error {
        ss_stream::Error::Device(e) => Some(of_device(e)),
        _ => None,
    }
}

fn of_device(error: &ss_backend::Error) -> Exit {
    match error {
        ss_backend::Error::OutOfMemory { .. } => Exit::Memory,
        _ => Exit::Device,
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_found_however_deep_the_cause_lies() {
        let full = || ss_backend::Error::OutOfMemory { device: "d".into(), what: "slots".into(), bytes: 1 };
        let lost = || ss_backend::Error::Lost { device: "d".into(), reason: "r".into() };
        assert_eq!(Exit::of(&full().into()), Exit::Memory);
        assert_eq!(Exit::of(&ss_stream::Error::from(full()).into()), Exit::Memory);
        assert_eq!(Exit::of(&ss_model::Error::from(ss_stream::Error::from(full())).into()), Exit::Memory);
        assert_eq!(Exit::of(&ss_generate::Error::from(ss_model::Error::from(full())).into()), Exit::Memory);
        let deep = ss_generate::Error::from(ss_model::Error::from(ss_stream::Error::from(lost())));
        assert_eq!(Exit::of(&anyhow::Error::from(deep).context("while answering")), Exit::Device);
        assert_eq!(Exit::of(&anyhow::anyhow!("something else")), Exit::Usage);
    }
}
