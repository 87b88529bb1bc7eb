//! Owns: what every handler sees: settings, the model and its queue, the names that the model answers to.
//! Invariants: nothing here is locked while a reply is made.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::engine::{Watch, Words};
use crate::fresh_seed;
use crate::http::gate::Gate;
use crate::hub::Hub;
use crate::refusal::{Code, Family, Refusal};
use crate::snapshot::Board;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The model's name.
    pub model: String,
    /// More names that it answers to.
    pub aliases: Vec<String>,
    /// This program's version.
    pub version: String,
    /// Where it listens.
    pub port: u16,
    /// Most connections at a time.
    pub connections: usize,
    /// How long streams may go on after the first signal.
    pub drain: Duration,
    /// Whether prompts are logged.
    pub log_prompts: bool,
    /// How long is waited for clients.
    pub times: Times,
}

/// How long a server waits for its clients (server.md section 2).
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// For a piece of a request that has begun.
    pub slow_request: Duration,
    /// For the next request of a connection.
    pub idle: Duration,
    /// For something of an answer to be taken.
    pub slow_reader: Duration,
    /// Until a quiet stream says that it is alive.
    pub quiet: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            slow_request: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            slow_reader: Duration::from_secs(120),
            quiet: Duration::from_secs(10),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            model: "qwen3.8-flash-next:4bit".to_owned(),
            aliases: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            port: 11434,
            connections: 256,
            drain: Duration::from_secs(5),
            log_prompts: false,
            times: Times::default(),
        }
    }
}

/// The model, as handlers see it.
pub struct Core {
    /// Its words.
    pub words: Arc<dyn Words>,
    /// The queue before it.
    pub hub: Arc<Hub>,
    /// What there is to see of it.
    pub watch: Watch,
}

/// The server.
pub struct App {
    /// Its settings.
    pub settings: Settings,
    /// Who may ask.
    pub gate: Gate,
    /// What is shown.
    pub board: Arc<Board>,
    core: OnceLock<Arc<Core>>,
    loaded: AtomicBool,
    count: AtomicU64,
    /// Tells this server's ids from others'.
    nonce: u32,
    started: SystemTime,
}

impl App {
    /// A server whose model is still being loaded.
    pub fn new(settings: Settings, gate: Gate) -> Arc<Self> {
        Arc::new(App {
            settings,
            gate,
            board: Arc::new(Board::new()),
            core: OnceLock::new(),
            loaded: AtomicBool::new(false),
            count: AtomicU64::new(1),
            nonce: fresh_seed() as u32,
            started: SystemTime::now(),
        })
    }

    /// The model is there.
    pub fn load(&self, core: Core) {
        if self.core.set(Arc::new(core)).is_ok() {
            self.loaded.store(true, Ordering::Release);
        }
    }

    /// Whether the model is there.
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// The model, once it is there.
    pub fn core(&self) -> Option<Arc<Core>> {
        self.core.get().cloned()
    }

    /// A number of its own for a request, and its id in logs.
    pub fn next_id(&self) -> (u64, String) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        (number, format!("req_{:08x}{number:08x}", self.nonce))
    }

    /// When it was started.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Whether the model answers to this name: its own, without its tag, with `:latest`, or an alias; case does not matter.
    pub fn answers_to(&self, name: &str) -> bool {
        let own = &self.settings.model;
        let bare = own.split(':').next().unwrap_or(own);
        let latest = format!("{bare}:latest");
        let aliases = self.settings.aliases.iter().map(String::as_str);
        [own.as_str(), bare, latest.as_str()].into_iter().chain(aliases).any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Requests that wait for their reply, or for the rest of it.
    pub fn unanswered(&self) -> usize {
        self.core().map_or(0, |core| core.hub.waiting() + usize::from(core.hub.is_busy()))
    }

    /// Refuses a name that is not this model's.
    ///
    /// # Errors
    /// Names the model that there is; 404 in Anthropic's API, 400 elsewhere.
    pub fn check_model(&self, name: Option<&str>, family: Family) -> Result<(), Refusal> {
        match name {
            None => Ok(()),
            Some(name) if self.answers_to(name) => Ok(()),
            Some(name) => {
                let name: String = name.chars().take(100).collect();
                let others = self.settings.aliases.iter().map(|alias| format!(", also called `{alias}`"));
                let message = format!(
                    "there is no model `{name}` here: this server has `{}`{}; ask for it, or start the server with --alias NAME",
                    self.settings.model,
                    others.collect::<String>()
                );
                Err(match family {
                    Family::Anthropic => Refusal::new(Code::NotFound, message),
                    _ => Refusal::field("model", message),
                })
            }
        }
    }
}

/// Seconds since 1970.
pub fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A time as RFC 3339 writes it, with microseconds.
pub fn rfc3339(time: SystemTime) -> String {
    let micros = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let stamp = i64::try_from(micros).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    stamp.map_or_else(String::new, |stamp| format!("{stamp:.6}"))
}

/// A fresh id: a prefix and 32 hexadecimal digits.
pub fn fresh_id(prefix: &str) -> String {
    format!("{prefix}{:016x}{:016x}", fresh_seed(), fresh_seed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_answers_to_its_names() {
        let app = App::new(Settings { aliases: vec!["claude-haiku".into()], ..Settings::default() }, Gate::default());
        for name in ["qwen3.8-flash-next:4bit", "QWEN3.8-flash-next", "qwen3.8-flash-next:latest", "Claude-Haiku"] {
            assert!(app.answers_to(name), "{name}");
        }
        for name in ["", "other", "qwen3.8-flash-next:8bit"] {
            assert!(!app.answers_to(name), "{name}");
        }
        assert!(
            app.check_model(Some("other"), Family::OpenAi).unwrap_err().message.contains("qwen3.8-flash-next:4bit")
        );
        assert_eq!(app.check_model(Some("other"), Family::Anthropic).unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn ids_are_fresh() {
        assert_ne!(fresh_id("call_"), fresh_id("call_"));
        assert_eq!(fresh_id("call_").len(), "call_".len() + 32);
    }

    #[test]
    fn times_are_written_as_clients_read_them() {
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(1500)), "1970-01-01T00:00:01.500000Z");
    }
}
