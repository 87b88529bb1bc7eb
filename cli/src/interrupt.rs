//! Owns: Ctrl-C.
//! Invariants: the first stops the answer that is being made, the second the program; before any answer one is enough.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use ss_model::Cancel;

use crate::exit::Exit;
use crate::terminal;

/// Ctrl-C as a switch that somebody looks at, who has something to put away first: it ends nothing by itself.
///
/// # Errors
/// When the system does not let it be watched.
pub fn switch() -> Result<Cancel> {
    let switch = Cancel::default();
    let own = switch.clone();
    ctrlc::set_handler(move || own.cancel()).context("Ctrl-C cannot be watched")?;
    Ok(switch)
}

/// Ctrl-C, as the switch of the answer that is being made.
#[derive(Clone)]
pub struct Interrupt(Arc<Mutex<Option<Cancel>>>);

impl Interrupt {
    /// Watches Ctrl-C from now on.
    ///
    /// # Errors
    /// When the system does not let it be watched.
    pub fn install() -> Result<Self> {
        Self::install_with("stopped".into())
    }

    /// The same, with other last words where the program ends at once.
    ///
    /// # Errors
    /// As [`Interrupt::install`].
    pub fn install_with(last_words: String) -> Result<Self> {
        let interrupt = Interrupt(Arc::default());
        let seen = interrupt.clone();
        let on_signal = move || match seen.current() {
            Some(answer) if !answer.is_cancelled() => answer.cancel(),
            _ => {
                terminal::note(&last_words);
                std::process::exit(Exit::Interrupted.code().into())
            }
        };
        ctrlc::set_handler(on_signal).context("Ctrl-C cannot be watched")?;
        Ok(interrupt)
    }

    fn current(&self) -> Option<Cancel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A fresh switch for the next answer.
    pub fn arm(&self) -> Cancel {
        let fresh = Cancel::default();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(fresh.clone());
        fresh
    }
}
