//! Owns: bars for everything that takes over a second, on a terminal only, on standard error (engine.md section 9).
//! Invariants: nothing is drawn before a second has passed, and work that comes to its end leaves nothing behind.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

const PATIENCE: Duration = Duration::from_secs(1);

/// A bar that shows itself once the work has taken a second.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    on_terminal: bool,
}

impl Progress {
    /// For loading: bytes of bytes.
    pub fn loading() -> Self {
        Self::new("loading {wide_bar} {bytes} of {total_bytes}, {eta} left")
    }

    /// For filling host memory with records: bytes of bytes.
    pub fn preloading() -> Self {
        Self::new("preloading {wide_bar} {bytes} of {total_bytes}, {eta} left")
    }

    /// For reading a prompt: tokens of tokens.
    pub fn reading() -> Self {
        Self::new("reading {wide_bar} {pos} of {len} tokens, {rate}, {eta} left")
    }

    /// For packing: bytes of bytes.
    pub fn packing() -> Self {
        Self::new("packing {wide_bar} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left")
    }

    /// For reading packs again: bytes of bytes.
    pub fn verifying() -> Self {
        Self::new("verifying {wide_bar} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left")
    }

    /// For building what a device runs: kernels of kernels.
    pub fn building() -> Self {
        Self::new("building kernels {wide_bar} {pos} of {len}, {eta} left")
    }

    /// For a self-test: checks of checks.
    pub fn testing() -> Self {
        Self::new("self-test {wide_bar} {pos} of {len} checks, {eta} left")
    }

    /// For writing a checkpoint: bytes of bytes.
    pub fn writing() -> Self {
        Self::new("writing {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
    }

    /// For making a trace up: tokens of tokens.
    pub fn making() -> Self {
        Self::new("making tokens up {wide_bar} {pos} of {len}, {eta} left")
    }

    /// For replaying a trace: passes of passes, over all pools and policies.
    pub fn replaying() -> Self {
        Self::new("replaying {wide_bar} {percent} %, {eta} left")
    }

    fn new(template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.with_key("rate", rate));
        }
        Progress { bar, started: Instant::now(), on_terminal: std::io::stderr().is_terminal() }
    }

    /// So much is done of so much.
    pub fn update(&mut self, done: u64, total: u64) {
        if self.on_terminal && self.started.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.on_terminal = false;
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        if done >= total {
            self.bar.finish_and_clear();
        }
    }
}

fn rate(state: &ProgressState, into: &mut dyn Write) {
    // A bar without its rate is still a bar.
    let _ = write!(into, "{:.0} tok/s", state.per_sec());
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
