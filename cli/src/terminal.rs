//! Owns: where words go: the answer to standard output, everything said beside it to standard error.
//! Refuses: nothing; a standard error that cannot be written changes no run.
//! Invariants: the answer's bytes are the model's; what is said beside it begins on a line of its own.

use std::fmt::Display;
use std::io::{IsTerminal, Result, Write, stderr, stdout};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anstyle::Style;

/// Whether the last line that a person sees on standard error is not ended.
static OPEN: AtomicBool = AtomicBool::new(false);

/// What is said beside the answer steps back; `NO_COLOR` and files see no style.
const QUIET: Style = Style::new().dimmed();

/// Writes a piece of the answer.
///
/// # Errors
/// When standard output cannot be written.
pub fn answer(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    // A terminal shows both streams on the same line.
    if out.is_terminal() && !text.is_empty() {
        OPEN.store(!text.ends_with('\n'), Relaxed);
    }
    Ok(())
}

/// Writes a piece of the model's thoughts.
pub fn thought(text: &str) {
    if !text.is_empty() {
        beside(format_args!("{QUIET}{text}{QUIET:#}"));
        OPEN.store(!text.ends_with('\n'), Relaxed);
    }
}

/// Says something on lines of its own.
pub fn note(text: impl Display) {
    end_line();
    beside(format_args!("{text}\n"));
}

/// Says something on lines of its own that is there for those who look for it.
pub fn aside(text: impl Display) {
    note(format_args!("{QUIET}{text}{QUIET:#}"));
}

/// Leaves a line empty between the answer and what stands above or below it, where a person sees both.
pub fn gap() {
    if stdout().is_terminal() && stderr().is_terminal() {
        note("");
    }
}

/// Ends the line that a person sees, if it is not ended.
pub fn end_line() {
    if OPEN.swap(false, Relaxed) {
        beside("\n");
    }
}

fn beside(text: impl Display) {
    // Nobody can be told that this did not work.
    let _ = write!(anstream::stderr(), "{text}");
}
