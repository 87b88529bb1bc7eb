//! Owns: what the layer above the drivers complains of, passed on to standard error: why a kernel was not taken is told there and
//! nowhere else.
//! Refuses: everything below an error.

use log::{LevelFilter, Log, Metadata, Record};

use crate::terminal;

struct Listener;

impl Log for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Error
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            terminal::note(format_args!("driver: {}", record.args()));
        }
    }

    fn flush(&self) {}
}

/// Passes complaints on from now on.
pub fn listen() {
    static LISTENER: Listener = Listener;
    // There is one already where this is called twice.
    if log::set_logger(&LISTENER).is_ok() {
        log::set_max_level(LevelFilter::Error);
    }
}
