//! Owns: a request at the level of token ids: the prompt in passes, then one token after the other.
//! Refuses: text; and a reply limit that is not there is the room left in the window, never a silent number.
//! Invariants: pass sizes, pool and cache change no token (I1, I2); the n-th draw depends on the seed and n alone.

use std::time::{Duration, Instant};

use ss_model::{Cancel, Error, Likeliest, Model, Prompt, Result, State, Want};

use crate::repetition;
use crate::sampler::{Sampler, SamplerSettings};

/// Rows of a prefill pass unless told otherwise: enough to share an expert's bytes among many rows, while the scratch
/// memory stays under 0.3 GB at released geometry.
pub const DEFAULT_PREFILL_PASS: u32 = 512;

/// Prompt tokens that share one read of a layer's experts unless told otherwise (engine.md section 6).
pub const DEFAULT_READ_GROUP: u32 = 8192;

/// A request for tokens.
#[derive(Clone, Debug)]
pub struct Request {
    /// The prompt, at least one id.
    pub prompt: Vec<u32>,
    /// Most tokens of the reply; none: until it ends or the window is full.
    pub max_tokens: Option<u32>,
    /// Ids that end the reply; they are not part of it.
    pub stop_ids: Vec<u32>,
    /// How tokens are drawn.
    pub sampling: SamplerSettings,
    /// Ids that may be drawn lie below this.
    pub vocabulary: u32,
    /// Rows of a prefill pass.
    pub prefill_pass: u32,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    Stop,
    /// The listener had enough: a stop string.
    Listener,
    /// The limit or the window.
    Length,
    /// The reply went round in circles.
    Repeated,
    /// Somebody cancelled.
    Cancelled,
}

impl Finish {
    /// The word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Finish::Stop | Finish::Listener => "stop",
            Finish::Length => "length",
            Finish::Repeated => "repeated",
            Finish::Cancelled => "cancelled",
        }
    }
}

/// What a listener says to a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// This was enough.
    Stop,
}

/// What is told while a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many prompt tokens of so many are read, or what the layers that passes went through together amount to.
    Prefilled {
        /// Read.
        done: usize,
        /// In all.
        total: usize,
    },
    /// A token of the reply.
    Token(u32),
}

/// What a request came to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The reply, without the id that ended it.
    pub output: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// Time from the first pass to the first draw.
    pub prefill: Duration,
    /// Bytes read from files meanwhile.
    pub prefill_bytes: u64,
    /// Time of all decode steps.
    pub decode: Duration,
    /// Decode steps run: draws after the first.
    pub decode_steps: u32,
}

/// Reads the prompt into `state` and draws the reply, telling `listen` of every step.
///
/// # Errors
/// When the prompt is empty or leaves no room in the window, a file cannot be read or the device fails. Being cancelled
/// is not an error: what was drawn so far comes back.
pub fn generate(
    model: &mut Model,
    state: &mut State,
    request: &Request,
    cancel: &Cancel,
    listen: &mut dyn FnMut(Step) -> Flow,
) -> Result<Summary> {
    let window = model.geometry().max_positions;
    let used = u64::from(state.tokens()) + request.prompt.len() as u64;
    if used + 1 > u64::from(window) {
        return Err(Error::Context { wanted: used + 1, limit: window });
    }
    let room = window - used as u32;
    let limit = request.max_tokens.map_or(room, |max| max.min(room));
    let mut run = Summary {
        output: Vec::new(),
        finish: Finish::Length,
        prefill: Duration::ZERO,
        prefill_bytes: 0,
        decode: Duration::ZERO,
        decode_steps: 0,
    };
    let mut sampler = Sampler::new(&request.sampling, request.vocabulary);
    model.begin_reply(&sampler.logit_settings(), &request.prompt)?;
    let (started, before) = (Instant::now(), model.store().counters());
    let first = prefill(model, state, request, cancel, listen);
    run.prefill = started.elapsed();
    run.prefill_bytes = model.store().counters().since(before).bytes_read();
    let first = match first {
        Err(Error::Cancelled) => {
            run.finish = Finish::Cancelled;
            return Ok(run);
        }
        other => other?,
    };
    let started = Instant::now();
    let first = match sampler.sample_listed(&first) {
        Some(id) => id,
        None => sampler.sample(&model.adjusted_row(0)?),
    };
    sampler.advance();
    let ended = decode(model, state, request, cancel, Draws { sampler, first, limit }, &mut run, listen);
    run.decode = started.elapsed();
    match ended {
        Ok(finish) => run.finish = finish,
        Err(Error::Cancelled) => run.finish = Finish::Cancelled,
        Err(error) => return Err(error),
    }
    Ok(run)
}

fn prefill(
    model: &mut Model,
    state: &mut State,
    request: &Request,
    cancel: &Cancel,
    listen: &mut dyn FnMut(Step) -> Flow,
) -> Result<Likeliest> {
    let total = request.prompt.len();
    let prompt = Prompt { ids: &request.prompt, positions: None, pass: request.prefill_pass, want: Want::Likeliest };
    let mut told = |done: u32| _ = listen(Step::Prefilled { done: done as usize, total });
    let read = model.read(state, &prompt, cancel, &mut told)?;
    read.likeliest.ok_or(Error::Request("a prompt without tokens"))
}

/// Where the draws begin and how many there may be.
struct Draws {
    sampler: Sampler,
    first: u32,
    limit: u32,
}

fn decode(
    model: &mut Model,
    state: &mut State,
    request: &Request,
    cancel: &Cancel,
    draws: Draws,
    run: &mut Summary,
    listen: &mut dyn FnMut(Step) -> Flow,
) -> Result<Finish> {
    let Draws { mut sampler, first: mut token, limit } = draws;
    let mut decoder = model.decoder(state)?;
    while (run.output.len() as u32) < limit {
        cancel.check()?;
        if request.stop_ids.contains(&token) {
            return Ok(Finish::Stop);
        }
        run.output.push(token);
        if listen(Step::Token(token)) == Flow::Stop {
            return Ok(Finish::Listener);
        }
        if repetition::is_looping(&run.output) {
            return Ok(Finish::Repeated);
        }
        if run.output.len() as u32 == limit {
            break;
        }
        let likeliest = decoder.step(token, cancel)?;
        token = match sampler.sample_listed(&likeliest) {
            Some(id) => id,
            None => sampler.sample(&decoder.adjusted_row()?),
        };
        sampler.advance();
        run.decode_steps += 1;
    }
    Ok(Finish::Length)
}
