//! Owns: what the server shows of itself: the form of an engine's view, the requests that run and ran, counters.
//! Refuses: waiting: everything here is written in passing and read at once.
//! Invariants: nothing is invented: what is not measured is absent or zero, and says so by its name.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

/// Requests that are remembered.
const REMEMBERED: usize = 50;
/// Gaps between tokens that are remembered.
const GAPS: usize = 1024;

/// A part of the memory that is allocated.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryPart {
    /// What it is: `trunk`, `slots`, `state`, ...
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
}

/// A layer's part of the slot pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LayerView {
    /// Its number.
    pub layer: u32,
    /// Experts of it in slots.
    pub resident: u32,
    /// Experts of it in all.
    pub experts: u32,
}

/// What there is to see of an engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineView {
    /// `wgpu` or `reference`.
    pub backend: String,
    /// The device's name.
    pub device: String,
    /// Whether that is a GPU.
    pub gpu: bool,
    /// The arithmetic profile.
    pub arithmetic: String,
    /// What is allocated.
    pub memory: Vec<MemoryPart>,
    /// Memory of this machine, in bytes.
    pub machine_bytes: u64,
    /// Slots of the pool.
    pub slots: u32,
    /// Experts of all layers.
    pub experts: u32,
    /// The pool, layer by layer.
    pub layers: Vec<LayerView>,
    /// Times that an expert was in a slot when it was wanted.
    pub hits: u64,
    /// Times that it was not.
    pub misses: u64,
    /// Bytes read from disk.
    pub disk_bytes: u64,
    /// Seconds that were waited for the disk.
    pub disk_wait_seconds: f64,
    /// Commands that the device was given.
    pub dispatches: u64,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It waits for its turn.
    Queued,
    /// Its prompt is read.
    Reading,
    /// Its reply is written.
    Writing,
}

/// A request that runs or waits.
#[derive(Clone, Debug, Serialize)]
pub struct RunningView {
    /// Its id.
    pub id: String,
    /// The path that it came by.
    pub path: &'static str,
    /// Where it is.
    pub phase: Phase,
    /// Prompt tokens.
    pub prompt_tokens: usize,
    /// Of those, read.
    pub read_tokens: usize,
    /// Tokens written.
    pub output_tokens: u32,
    /// Most tokens that it asked for; none where it named no number.
    pub max_tokens: Option<u32>,
    /// Seconds since it came.
    pub seconds: f64,
}

/// A request that ended.
#[derive(Clone, Debug, Serialize)]
pub struct DoneView {
    /// Its id.
    pub id: String,
    /// The path that it came by.
    pub path: &'static str,
    /// How it ended: `stop`, `length`, `tool_calls`, `cancelled`, or a refusal's code.
    pub ended: String,
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Of those, not read anew. There is no prefix cache yet: it is 0.
    pub cached_tokens: u32,
    /// Tokens written.
    pub output_tokens: u32,
    /// Milliseconds from the request to the first token, queueing included; none where no token came.
    pub ttft_ms: Option<f64>,
    /// Prompt tokens read a second.
    pub prefill_rate: f64,
    /// Tokens written a second.
    pub decode_rate: f64,
}

/// Gaps between tokens, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GapView {
    /// How many were measured.
    pub count: usize,
    /// Half are shorter.
    pub p50_ms: f64,
    /// Of a hundred, 99 are shorter.
    pub p99_ms: f64,
    /// The longest.
    pub most_ms: f64,
}

/// Everything that is counted.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Answers by path and status.
    pub requests: BTreeMap<(&'static str, u16), u64>,
    /// Prompt tokens read.
    pub prompt_tokens: u64,
    /// Of those, not read anew.
    pub cached_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Time of prompts.
    pub prefill: Duration,
    /// Time of replies.
    pub decode: Duration,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Prompt tokens read, those of requests that still run too.
    pub read_so_far: u64,
    /// Tokens written, those of requests that still run too.
    pub written_so_far: u64,
    /// Fields of bodies that were left out of account.
    pub ignored: u64,
}

/// A request on its way.
struct Running {
    view: RunningView,
    since: Instant,
    began: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

/// How far a request came.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    /// Time to its first token, if there was one.
    pub first: Option<Duration>,
    /// Prompt tokens read.
    pub read: u32,
    /// Time that they took.
    pub reading: Duration,
    /// Tokens written.
    pub written: u32,
    /// Time from the first of them to the last.
    pub writing: Duration,
}

/// The board on which everything is written.
pub struct Board {
    started: Instant,
    state: Mutex<State>,
}

struct State {
    running: BTreeMap<u64, Running>,
    done: VecDeque<DoneView>,
    gaps: VecDeque<Duration>,
    totals: Totals,
    idle_since: Instant,
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

impl Board {
    /// An empty board.
    pub fn new() -> Self {
        let now = Instant::now();
        Board {
            started: now,
            state: Mutex::new(State {
                running: BTreeMap::new(),
                done: VecDeque::new(),
                gaps: VecDeque::new(),
                totals: Totals::default(),
                idle_since: now,
            }),
        }
    }

    /// A request came.
    pub fn came(&self, number: u64, id: &str, path: &'static str, prompt_tokens: usize, max_tokens: Option<u32>) {
        let view = RunningView {
            id: id.to_owned(),
            path,
            phase: Phase::Queued,
            prompt_tokens,
            read_tokens: 0,
            output_tokens: 0,
            max_tokens,
            seconds: 0.0,
        };
        let running = Running { view, since: Instant::now(), began: None, first_token: None, last_token: None };
        self.state.lock().running.insert(number, running);
    }

    /// Its turn came.
    pub fn began(&self, number: u64) {
        self.change(number, |running| {
            running.view.phase = Phase::Reading;
            running.began = Some(Instant::now());
        });
    }

    /// So much of its prompt is read.
    pub fn read(&self, number: u64, done: usize) {
        let mut state = self.state.lock();
        let Some(running) = state.running.get_mut(&number) else { return };
        let before = std::mem::replace(&mut running.view.read_tokens, done);
        state.totals.read_so_far += done.saturating_sub(before) as u64;
    }

    /// It brought a token.
    pub fn token(&self, number: u64) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let Some(running) = state.running.get_mut(&number) else { return };
        running.view.phase = Phase::Writing;
        running.view.output_tokens += 1;
        running.first_token.get_or_insert(now);
        let last = running.last_token.replace(now);
        state.totals.written_so_far += 1;
        if let Some(last) = last {
            state.gaps.push_back(now - last);
            if state.gaps.len() > GAPS {
                state.gaps.pop_front();
            }
        }
    }

    /// It ended; `done` tells how, given how far it came.
    pub fn ended(&self, number: u64, done: impl FnOnce(Reached) -> DoneView) {
        let mut state = self.state.lock();
        let Some(running) = state.running.remove(&number) else { return };
        let until = running.first_token.unwrap_or_else(Instant::now);
        let view = done(Reached {
            first: running.first_token.map(|first| first - running.since),
            read: running.view.read_tokens as u32,
            reading: running.began.map_or(Duration::ZERO, |began| until - began),
            written: running.view.output_tokens,
            writing: running.first_token.zip(running.last_token).map_or(Duration::ZERO, |(first, last)| last - first),
        });
        state.totals.prompt_tokens += u64::from(view.prompt_tokens);
        state.totals.cached_tokens += u64::from(view.cached_tokens);
        state.totals.output_tokens += u64::from(view.output_tokens);
        state.totals.cancelled += u64::from(view.ended == "cancelled");
        state.done.push_front(view);
        state.done.truncate(REMEMBERED);
        if state.running.is_empty() {
            state.idle_since = Instant::now();
        }
    }

    /// The engine's time for a reply.
    pub fn spent(&self, prefill: Duration, decode: Duration) {
        let mut state = self.state.lock();
        state.totals.prefill += prefill;
        state.totals.decode += decode;
    }

    /// A path was answered.
    pub fn answered(&self, path: &'static str, status: u16) {
        *self.state.lock().totals.requests.entry((path, status)).or_default() += 1;
    }

    /// Fields of a body were left out of account.
    pub fn ignored(&self, fields: u64) {
        self.state.lock().totals.ignored += fields;
    }

    /// Requests that run or wait, the oldest first.
    pub fn running(&self) -> Vec<RunningView> {
        let state = self.state.lock();
        let view =
            |running: &Running| RunningView { seconds: running.since.elapsed().as_secs_f64(), ..running.view.clone() };
        state.running.values().map(view).collect()
    }

    /// Requests that ended, the last first.
    pub fn done(&self) -> Vec<DoneView> {
        self.state.lock().done.iter().cloned().collect()
    }

    /// Gaps between the last tokens.
    pub fn gaps(&self) -> GapView {
        let mut gaps: Vec<f64> = self.state.lock().gaps.iter().map(|gap| gap.as_secs_f64() * 1e3).collect();
        gaps.sort_by(f64::total_cmp);
        let Some(&most_ms) = gaps.last() else { return GapView::default() };
        let at = |share: f64| gaps[((gaps.len() - 1) as f64 * share).round() as usize];
        GapView { count: gaps.len(), p50_ms: at(0.5), p99_ms: at(0.99), most_ms }
    }

    /// What was counted.
    pub fn totals(&self) -> Totals {
        self.state.lock().totals.clone()
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Time since the last request ended; zero while one runs.
    pub fn idle(&self) -> Duration {
        let state = self.state.lock();
        if state.running.is_empty() { state.idle_since.elapsed() } else { Duration::ZERO }
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Running)) {
        if let Some(running) = self.state.lock().running.get_mut(&number) {
            change(running);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_seen_from_its_coming_to_its_end() {
        let board = Board::new();
        board.came(1, "req", "/api/chat", 5, Some(9));
        assert_eq!(board.running()[0].phase, Phase::Queued);
        board.began(1);
        board.read(1, 5);
        board.token(1);
        board.token(1);
        let running = &board.running()[0];
        assert_eq!((running.phase, running.read_tokens, running.output_tokens), (Phase::Writing, 5, 2));
        assert_eq!((board.totals().read_so_far, board.totals().written_so_far), (5, 2));
        assert_eq!(board.gaps().count, 1);
        assert_eq!(board.idle(), Duration::ZERO);
        board.ended(1, |reached| DoneView {
            id: "req".into(),
            path: "/api/chat",
            ended: "stop".into(),
            prompt_tokens: 5,
            cached_tokens: 0,
            output_tokens: 2,
            ttft_ms: reached.first.map(|time| time.as_secs_f64() * 1e3),
            prefill_rate: 1.0,
            decode_rate: 1.0,
        });
        assert!(board.running().is_empty() && board.done()[0].ttft_ms.is_some());
        assert_eq!(board.totals().output_tokens, 2);
    }
}
