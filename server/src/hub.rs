//! Owns: the queue before the engine, and the thread on which it makes one reply after the other (server.md section 1.1).
//! Refuses: more requests than may wait, and those that would wait too long.
//! Invariants: replies are made in the order of their coming; a ticket that is dropped cancels its reply, and if it still
//! waited, its place is free at once and its work never starts; whatever a reply ends with, a panic too, the next one begins.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use ss_model::Cancel;
use tokio::sync::mpsc;

use crate::engine::{Ended, Engine, Job, Outcome, Piece};
use crate::refusal::{Code, Refusal};
use crate::snapshot::{Board, DoneView, Reached};

/// Most bytes, about, that wait for the reader of a stream: one that takes less than is written is dropped.
const MOST_UNREAD: usize = 1 << 20;

/// Tokens of a prompt from which the rate of long ones can be told: short ones wait for experts that long ones share.
const MEASURED: u32 = 512;

/// Who takes what a ticket tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A client, as quickly as it can.
    Client,
    /// The server itself, which gathers a reply: the window bounds what waits.
    Server,
}

/// How many may wait, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that may wait beside the one that runs.
    pub queue: usize,
    /// Most time from a request to its first token; none: any.
    pub prefill_wait: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { queue: 32, prefill_wait: Some(Duration::from_secs(30 * 60)) }
    }
}

/// Which request it is.
#[derive(Clone, Debug)]
pub struct Tag {
    /// A number of its own.
    pub number: u64,
    /// Its id in logs and headers.
    pub id: String,
    /// The path that it came by.
    pub path: &'static str,
}

/// What a ticket tells.
#[derive(Debug)]
pub enum Note {
    /// Its turn came.
    Began,
    /// A piece of the reply.
    Piece(Piece),
    /// The reply is whole.
    Ended(Outcome),
    /// There will be no more of it.
    Failed(Refusal),
}

/// The queue and its state.
pub struct Hub {
    limits: Limits,
    board: Arc<Board>,
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    running: Option<Cancel>,
    stage: Stage,
    /// Prompt tokens a second, as measured last.
    rate: Option<f64>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// What is here is done; nothing more is taken.
    Draining,
    Over,
}

struct Waiting {
    tag: Tag,
    job: Job,
    line: Line,
}

/// What connects a reply with its ticket.
#[derive(Clone)]
struct Line {
    cancel: Cancel,
    notes: mpsc::UnboundedSender<Note>,
    reader: Reader,
    unread: Arc<AtomicUsize>,
    /// Why the reply was broken off, if not because its client left.
    why: Arc<Mutex<Option<Refusal>>>,
}

impl Line {
    fn say(&self, note: Note) {
        // A ticket that is gone has cancelled the reply.
        let _ = self.notes.send(note);
    }

    /// Why the reply was broken off.
    fn broken_off(&self) -> Refusal {
        self.why.lock().take().unwrap_or_else(|| Refusal::new(Code::Cancelled, "the client went away"))
    }
}

/// A place in the queue, and then a reply.
pub struct Ticket {
    hub: Arc<Hub>,
    number: u64,
    cancel: Cancel,
    notes: mpsc::UnboundedReceiver<Note>,
    unread: Arc<AtomicUsize>,
    why: Arc<Mutex<Option<Refusal>>>,
    deadline: Option<Instant>,
    /// What was told and put back.
    back: Option<Note>,
}

impl Hub {
    /// An empty queue.
    pub fn new(limits: Limits, board: Arc<Board>) -> Arc<Self> {
        Arc::new(Hub { limits, board, queue: Mutex::default(), wake: Condvar::new() })
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.queue.lock().waiting.len()
    }

    /// Whether a reply is being made.
    pub fn is_busy(&self) -> bool {
        self.queue.lock().running.is_some()
    }

    /// Takes a place in the queue.
    ///
    /// # Errors
    /// When the queue is full, the server is ending, or the prompt would be read too late.
    pub fn submit(self: &Arc<Self>, tag: Tag, job: Job, reader: Reader) -> Result<Ticket, Refusal> {
        let (sender, notes) = mpsc::unbounded_channel();
        let line =
            Line { cancel: Cancel::default(), notes: sender, reader, unread: Arc::default(), why: Arc::default() };
        let ticket = Ticket {
            hub: self.clone(),
            number: tag.number,
            cancel: line.cancel.clone(),
            notes,
            unread: line.unread.clone(),
            why: line.why.clone(),
            deadline: self.limits.prefill_wait.map(|wait| Instant::now() + wait),
            back: None,
        };
        let mut queue = self.queue.lock();
        if queue.stage != Stage::Open {
            return Err(stopping());
        }
        if queue.waiting.len() >= self.limits.queue && (queue.running.is_some() || !queue.waiting.is_empty()) {
            let (most, noun) =
                (self.limits.queue, if self.limits.queue == 1 { "request waits" } else { "requests wait" });
            return Err(Refusal::new(Code::Busy, format!("{most} {noun} already; try again in a moment")));
        }
        self.check_wait(&queue, job.prompt.len())?;
        self.board.came(tag.number, &tag.id, tag.path, job.prompt.len(), job.max_tokens);
        queue.waiting.push_back(Waiting { tag, job, line });
        drop(queue);
        self.wake.notify_all();
        Ok(ticket)
    }

    /// Refuses a prompt that would be read too late, by the rate measured last.
    fn check_wait(&self, queue: &Queue, prompt: usize) -> Result<(), Refusal> {
        let (Some(limit), Some(rate)) = (self.limits.prefill_wait, queue.rate) else { return Ok(()) };
        let ahead: usize = queue.waiting.iter().map(|waiting| waiting.job.prompt.len()).sum();
        let seconds = (ahead + prompt) as f64 / rate;
        if seconds <= limit.as_secs_f64() {
            return Ok(());
        }
        Err(Refusal::new(
            Code::PrefillWait,
            format!(
                "reading {prompt} prompt tokens after {ahead} that wait would take about {seconds:.0} s at {rate:.0} tokens a \
                 second, and --max-prefill-wait is {} s",
                limit.as_secs()
            ),
        ))
    }

    /// Takes nothing more; what waits is still done.
    pub fn drain(&self) {
        let mut queue = self.queue.lock();
        if queue.stage == Stage::Open {
            queue.stage = Stage::Draining;
        }
        drop(queue);
        self.wake.notify_all();
    }

    /// Ends everything: what waits is refused, what runs is cancelled.
    pub fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.stage = Stage::Over;
        for waiting in std::mem::take(&mut queue.waiting) {
            self.finish(&waiting.tag, &waiting.line, Err(stopping()));
        }
        if let Some(running) = &queue.running {
            running.cancel();
        }
        drop(queue);
        self.wake.notify_all();
    }

    /// Whether nothing waits and nothing runs.
    pub fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        queue.waiting.is_empty() && queue.running.is_none()
    }

    /// Makes replies until the end; this is the engine's thread.
    pub fn run(&self, engine: &mut dyn Engine) {
        while let Some(Waiting { tag, job, line }) = self.next() {
            self.board.began(tag.number);
            line.say(Note::Began);
            let mut tell = |piece: Piece| self.tell(tag.number, &line, piece);
            let made = catch_unwind(AssertUnwindSafe(|| engine.answer(job, &line.cancel, &mut tell)));
            let made = made.unwrap_or_else(|_| {
                tracing::error!(request = tag.id, "the engine came upon a fault of its own");
                Err(Refusal::inference("the engine came upon a fault of its own; the server's log tells more"))
            });
            let over = {
                let mut queue = self.queue.lock();
                queue.running = None;
                if let Ok(outcome) = &made
                    && outcome.prefill > Duration::ZERO
                    && outcome.prompt >= MEASURED
                    && outcome.ended != Ended::Cancelled
                {
                    queue.rate = Some(f64::from(outcome.prompt) / outcome.prefill.as_secs_f64());
                }
                queue.stage == Stage::Over
            };
            let made = match made {
                Ok(outcome) if outcome.ended == Ended::Cancelled && over => Err(stopping()),
                // What the client left behind keeps its counts.
                Ok(outcome) if outcome.ended == Ended::Cancelled && line.why.lock().is_some() => Err(line.broken_off()),
                other => other,
            };
            if made.as_ref().is_ok_and(|outcome| outcome.ended == Ended::Repeated) {
                tracing::warn!(request = tag.id, "the reply went round in circles: it was ended");
            }
            self.finish(&tag, &line, made);
        }
    }

    fn next(&self) -> Option<Waiting> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(waiting) = queue.waiting.pop_front() {
                queue.running = Some(waiting.line.cancel.clone());
                return Some(waiting);
            }
            if queue.stage != Stage::Open {
                return None;
            }
            self.wake.wait(&mut queue);
        }
    }

    fn tell(&self, number: u64, line: &Line, piece: Piece) {
        match &piece {
            Piece::Reading { done, .. } => self.board.read(number, *done),
            Piece::Token(_) => self.board.token(number),
            _ => {}
        }
        let unread = line.unread.fetch_add(piece.weight(), Ordering::Relaxed);
        if unread > MOST_UNREAD && line.reader == Reader::Client {
            let why = Refusal::inference("the client took less than was written: the connection is closed");
            line.why.lock().get_or_insert(why);
            line.cancel.cancel();
        }
        line.say(Note::Piece(piece));
    }

    /// Writes a reply's end on the board, and tells its ticket.
    fn finish(&self, tag: &Tag, line: &Line, made: Result<Outcome, Refusal>) {
        let outcome = made.as_ref().ok();
        if let Some(outcome) = outcome {
            self.board.spent(outcome.prefill, outcome.decode);
        }
        self.board.ended(tag.number, |reached| {
            let done = done_view(tag, &made, reached);
            log(&done, made.as_ref().err());
            done
        });
        line.say(match made {
            Ok(outcome) => Note::Ended(outcome),
            Err(refusal) => Note::Failed(refusal),
        });
    }

    /// Gives a place back.
    fn leave(&self, number: u64) {
        let mut queue = self.queue.lock();
        let Some(at) = queue.waiting.iter().position(|waiting| waiting.tag.number == number) else { return };
        let gone = queue.waiting.remove(at);
        drop(queue);
        if let Some(Waiting { tag, line, .. }) = gone {
            let why = line.broken_off();
            self.finish(&tag, &line, Err(why));
        }
    }
}

fn done_view(tag: &Tag, made: &Result<Outcome, Refusal>, reached: Reached) -> DoneView {
    let rate = |tokens: u32, time: Duration| if time.is_zero() { 0.0 } else { f64::from(tokens) / time.as_secs_f64() };
    // What failed or was broken off has come as far as was seen of it.
    let (prompt, output, rates) = match made {
        Ok(outcome) => {
            let written = rate(outcome.output.saturating_sub(1), outcome.decode);
            (outcome.prompt, outcome.output, (rate(outcome.prompt, outcome.prefill), written))
        }
        Err(_) => {
            let written = rate(reached.written.saturating_sub(1), reached.writing);
            (reached.read, reached.written, (rate(reached.read, reached.reading), written))
        }
    };
    DoneView {
        id: tag.id.clone(),
        path: tag.path,
        ended: match made {
            Ok(outcome) => match outcome.ended {
                Ended::Stop => "stop",
                Ended::Limit | Ended::Window => "length",
                Ended::Repeated => "repeated",
                Ended::Cancelled => "cancelled",
            },
            Err(refusal) => refusal.code.name(),
        }
        .to_owned(),
        prompt_tokens: prompt,
        cached_tokens: made.as_ref().map_or(0, |outcome| outcome.cached),
        output_tokens: output,
        ttft_ms: reached.first.map(|time| time.as_secs_f64() * 1e3),
        prefill_rate: rates.0,
        decode_rate: rates.1,
    }
}

/// One line a request.
fn log(done: &DoneView, refusal: Option<&Refusal>) {
    let tenth = |number: f64| (number * 10.0).round() / 10.0;
    tracing::info!(
        request = done.id,
        path = done.path,
        ended = done.ended,
        input = done.prompt_tokens,
        cached = done.cached_tokens,
        // Why nothing was found in it.
        cache = "none yet",
        output = done.output_tokens,
        ttft_ms = done.ttft_ms.map(tenth),
        prefill_rate = tenth(done.prefill_rate),
        decode_rate = tenth(done.decode_rate),
        why = refusal.filter(|refusal| refusal.code != Code::Cancelled).map(|refusal| refusal.message.as_str()),
        "answered"
    );
}

fn stopping() -> Refusal {
    Refusal::new(Code::Stopping, "the server is ending; ask again when it is back")
}

impl Ticket {
    /// What comes next; none after the end.
    pub async fn next(&mut self) -> Option<Note> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Has a note be told again.
    pub fn put_back(&mut self, note: Note) {
        self.back = Some(note);
    }

    /// As [`Ticket::next`].
    pub fn poll_next(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Option<Note>> {
        if let Some(note) = self.back.take() {
            return std::task::Poll::Ready(Some(note));
        }
        let note = std::task::ready!(self.notes.poll_recv(context));
        if let Some(Note::Piece(piece)) = &note {
            self.unread.fetch_sub(piece.weight(), Ordering::Relaxed);
        }
        std::task::Poll::Ready(note)
    }

    /// Breaks the reply off whose first token did not come in time.
    pub fn late(&self) -> Refusal {
        let message = "no token came within --max-prefill-wait; ask again when less is waiting";
        self.why.lock().get_or_insert(Refusal::new(Code::PrefillDeadline, message)).clone()
    }

    /// When the first token must be there.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.hub.leave(self.number);
    }
}
