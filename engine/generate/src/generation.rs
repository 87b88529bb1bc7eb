//! Owns: a request at the level of token ids: the prompt in passes, then one token after the other.
//! Refuses: text; and a reply limit that is not there is the room left in the window, never a silent number.
//! Invariants: pass sizes, pool and cache change no token (I1, I2); the n-th draw depends on the seed and n alone.

use std::time::{Duration, Instant};

use ss_model::{Cancel, Decoder, Likeliest, Model, Prompt, State, Want};

use crate::constraint::{Constraint, Held};
use crate::logprobs::{IdLogprob, MAX_TOP_LOGPROBS, PromptLogprob, Row};
use crate::repetition;
use crate::sampler::{Sampler, SamplerSettings};
use crate::{Error, Result};

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
    /// Most tokens of prompt and reply together, where that is less than the model's window.
    pub window: Option<u32>,
    /// Tells how likely each token was, with so many alternatives, at most [`MAX_TOP_LOGPROBS`].
    pub logprobs: Option<u8>,
    /// Tells how likely each token of the prompt was, with as many alternatives as `logprobs` says.
    pub prompt_logprobs: bool,
}

impl Request {
    fn alternatives(&self) -> usize {
        usize::from(self.logprobs.unwrap_or(0).min(MAX_TOP_LOGPROBS))
    }
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
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// So many prompt tokens of so many are read, or what the layers that passes went through together amount to.
    Prefilled {
        /// Read.
        done: usize,
        /// In all.
        total: usize,
    },
    /// How likely the prompt's tokens were.
    Prompt(Vec<PromptLogprob>),
    /// A token of the reply.
    Token(Drawn),
}

/// A token as it was drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// The token.
    pub id: u32,
    /// The natural logarithm of its probability, if that was asked for.
    pub logprob: Option<f32>,
    /// The likeliest ids in its place, descending, equal ones by id.
    pub top: Vec<IdLogprob>,
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
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the reply that belong to its reasoning; none where nobody reads the reply as text.
    pub reasoning_tokens: u32,
}

/// Reads the prompt into `state` and draws the reply, telling `listen` of every step. With a constraint, ids are drawn from
/// those that it allows.
///
/// # Errors
/// When the prompt is empty or leaves no room in the window, a file cannot be read, the device fails or the constraint
/// cannot be kept. Being cancelled is not an error: what was drawn so far comes back.
pub fn generate(
    model: &mut Model,
    state: &mut State,
    request: &Request,
    constraint: Option<&mut dyn Constraint>,
    cancel: &Cancel,
    listen: &mut dyn FnMut(Step) -> Flow,
) -> Result<Summary> {
    let limit = room(model, state, request)?;
    let mut run = Summary {
        output: Vec::new(),
        finish: Finish::Length,
        prefill: Duration::ZERO,
        prefill_bytes: 0,
        decode: Duration::ZERO,
        decode_steps: 0,
        prompt_tokens: request.prompt.len() as u32,
        reasoning_tokens: 0,
    };
    let sampler = Sampler::new(&request.sampling, request.vocabulary);
    model.begin_reply(&sampler.logit_settings(), &request.prompt)?;
    let mut reply = Reply { request, sampler, held: Held::new(constraint), limit, cancel, listen };
    let ended = reply.make(model, state, &mut run);
    // The next reply must not inherit a mask, whatever became of this one.
    let released = reply.held.release(model);
    match ended {
        Ok(finish) => run.finish = finish,
        Err(Error::Model(ss_model::Error::Cancelled)) => run.finish = Finish::Cancelled,
        Err(error) => return Err(error),
    }
    released?;
    Ok(run)
}

/// Most tokens that the reply may have.
fn room(model: &Model, state: &State, request: &Request) -> Result<u32> {
    let window = model.geometry().max_positions;
    let window = request.window.map_or(window, |smaller| smaller.min(window));
    let used = u64::from(state.tokens()) + request.prompt.len() as u64;
    // A prompt that is only read needs no room behind it.
    let wanted = used + u64::from(request.max_tokens != Some(0));
    if wanted > u64::from(window) {
        return Err(ss_model::Error::Context { wanted, limit: window }.into());
    }
    let room = window - used as u32;
    Ok(request.max_tokens.map_or(room, |max| max.min(room)))
}

/// A reply while it is made.
struct Reply<'r, 'c> {
    request: &'r Request,
    sampler: Sampler,
    held: Held<'c>,
    limit: u32,
    cancel: &'r Cancel,
    listen: &'r mut dyn FnMut(Step) -> Flow,
}

impl Reply<'_, '_> {
    fn make(&mut self, model: &mut Model, state: &mut State, run: &mut Summary) -> Result<Finish> {
        if self.limit > 0 {
            self.held.restrict(|mask| model.set_mask(mask))?;
        }
        let (started, before) = (Instant::now(), model.store().counters());
        let first = self.prefill(model, state);
        run.prefill = started.elapsed();
        run.prefill_bytes = model.store().counters().since(before).bytes_read();
        let first = first?;
        if self.limit == 0 {
            return Ok(Finish::Length);
        }
        let started = Instant::now();
        let first = self.draw(&first, model)?;
        let ended = self.decode(model, state, first, run);
        run.decode = started.elapsed();
        ended
    }

    fn prefill(&mut self, model: &mut Model, state: &mut State) -> Result<Likeliest> {
        let prompt = &self.request.prompt;
        let scored = if self.request.prompt_logprobs { self.score(model, state)? } else { 0 };
        let total = prompt.len();
        let ids = &prompt[scored..];
        let pass = self.request.prefill_pass;
        let prompt = Prompt { ids, positions: None, pass, want: Want::Likeliest };
        let listen = &mut *self.listen;
        let mut told = |done: u32| _ = listen(Step::Prefilled { done: scored + done as usize, total });
        let read = model.read(state, &prompt, self.cancel, &mut told)?;
        Ok(read.likeliest.ok_or(ss_model::Error::Request("a prompt without tokens"))?)
    }

    /// Reads all of the prompt but its last token, and tells how likely each token was. Gives how many were read.
    fn score(&mut self, model: &mut Model, state: &mut State) -> Result<usize> {
        let (vocabulary, alternatives) = (self.request.vocabulary, self.request.alternatives());
        let ids = &self.request.prompt;
        let total = ids.len();
        let mut scores: Vec<PromptLogprob> = Vec::with_capacity(total);
        scores.extend(ids.first().map(|&id| PromptLogprob { id, logprob: None, top: Vec::new() }));
        let before = &ids[..total.saturating_sub(1)];
        let mut row = |logits: &[f32]| {
            let (row, id) = (Row::new(logits), ids[scores.len()]);
            scores.push(PromptLogprob { id, logprob: Some(row.of(id)), top: row.top(alternatives, vocabulary) });
        };
        if !before.is_empty() {
            let prompt = Prompt { ids: before, positions: None, pass: self.request.prefill_pass, want: Want::All };
            let listen = &mut *self.listen;
            let mut told = |done: u32| _ = listen(Step::Prefilled { done: done as usize, total });
            model.read_rows(state, &prompt, self.cancel, &mut told, &mut row)?;
        }
        _ = (self.listen)(Step::Prompt(scores));
        Ok(before.len())
    }

    fn decode(&mut self, model: &mut Model, state: &mut State, first: Drawn, run: &mut Summary) -> Result<Finish> {
        let mut drawn = first;
        let mut decoder = model.decoder(state)?;
        loop {
            self.cancel.check()?;
            let token = drawn.id;
            if self.request.stop_ids.contains(&token) {
                return Ok(Finish::Stop);
            }
            run.output.push(token);
            if (self.listen)(Step::Token(drawn)) == Flow::Stop {
                return Ok(Finish::Listener);
            }
            if repetition::is_looping(&run.output) {
                return Ok(Finish::Repeated);
            }
            if run.output.len() as u32 == self.limit {
                return Ok(Finish::Length);
            }
            self.held.accept(token)?;
            self.held.restrict(|mask| decoder.set_mask(mask))?;
            let likeliest = decoder.step(token, self.cancel)?;
            drawn = self.draw(&likeliest, &mut decoder)?;
            run.decode_steps += 1;
        }
    }

    /// Draws a token from what the last pass gave.
    fn draw(&mut self, likeliest: &Likeliest, rows: &mut impl Rows) -> Result<Drawn> {
        let id = match self.sampler.sample_listed(likeliest) {
            Some(id) => id,
            None => self.sampler.sample(&rows.adjusted()?),
        };
        self.sampler.advance();
        if self.request.logprobs.is_none() {
            return Ok(Drawn { id, logprob: None, top: Vec::new() });
        }
        let logits = rows.raw()?;
        let row = Row::new(&logits);
        let top = row.top(self.request.alternatives(), self.request.vocabulary);
        Ok(Drawn { id, logprob: Some(row.of(id)), top })
    }
}

/// All logits behind the last row of a pass.
trait Rows {
    /// As bias, penalties and mask leave them.
    fn adjusted(&mut self) -> ss_model::Result<Vec<f32>>;
    /// As the model gives them.
    fn raw(&mut self) -> ss_model::Result<Vec<f32>>;
}

impl Rows for Model {
    fn adjusted(&mut self) -> ss_model::Result<Vec<f32>> {
        self.adjusted_row(0)
    }

    fn raw(&mut self) -> ss_model::Result<Vec<f32>> {
        self.raw_row(0)
    }
}

impl Rows for Decoder<'_> {
    fn adjusted(&mut self) -> ss_model::Result<Vec<f32>> {
        self.adjusted_row()
    }

    fn raw(&mut self) -> ss_model::Result<Vec<f32>> {
        self.raw_row()
    }
}
