//! Owns: an engine that says what a script tells it to, at a pace that the script sets: agents' loops, slow prompts, stalls and
//! faults are tested with it (behind `ss serve --script`, which help does not show).
//! Refuses: choosing words: a reply is a text of the script, cut into the model's tokens.
//! Invariants: it keeps the promises of a real engine: limits, stop strings, cancellation between tokens, one piece a token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use ss_model::Cancel;
use ss_text::{Ending, Event, ReplyParser};

use crate::engine::{Ended, Engine, Job, Outcome, Piece, Token, Watch, Words};
use crate::refusal::Refusal;
use crate::snapshot::{EngineView, MemoryPart};

/// What a script says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    /// Replies. The first whose `when` is in the prompt is given; of those without, one after the other, and the last for
    /// ever.
    pub replies: Vec<ScriptedReply>,
    /// Bytes of a token; none: the model's own tokens.
    pub token_bytes: Option<usize>,
}

/// A reply of a script.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedReply {
    /// Given when the end of the prompt holds this text.
    pub when: Option<String>,
    /// What the model writes, in its own form, tags and all.
    pub text: String,
    /// How often the text is said.
    pub times: Option<usize>,
    /// Milliseconds that reading the prompt takes.
    pub prefill_ms: u64,
    /// Milliseconds a token takes.
    pub token_ms: u64,
    /// Fails after so many tokens, with these words.
    pub fail: Option<(usize, String)>,
    /// Panics after so many tokens.
    pub panic: Option<usize>,
    /// Says nothing for so many milliseconds after so many tokens.
    pub stall: Option<(usize, u64)>,
}

/// How often it is looked whether a reply was cancelled.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes of the prompt's end in which a reply's `when` is looked for.
const TAIL: usize = 4096;

/// An engine that follows a script.
pub struct Scripted {
    script: Script,
    words: Arc<dyn Words>,
    /// Replies without a `when` that were given.
    given: usize,
}

impl Scripted {
    /// An engine with this script.
    pub fn new(script: Script, words: Arc<dyn Words>) -> Self {
        Scripted { script, words, given: 0 }
    }

    fn reply(&mut self, prompt: &[u32]) -> ScriptedReply {
        let tail = self.words.text_of(&prompt[prompt.len().saturating_sub(TAIL)..]);
        let matching = |reply: &&ScriptedReply| reply.when.as_ref().is_some_and(|when| tail.contains(when.as_str()));
        if let Some(reply) = self.script.replies.iter().find(matching) {
            return reply.clone();
        }
        let plain: Vec<&ScriptedReply> = self.script.replies.iter().filter(|reply| reply.when.is_none()).collect();
        let reply = plain.get(self.given).or(plain.last()).map(|reply| (*reply).clone());
        self.given += 1;
        reply.unwrap_or_default()
    }

    /// The text of a reply in tokens.
    fn tokens(&self, text: &str) -> Result<Vec<(u32, String)>, Refusal> {
        match self.script.token_bytes {
            Some(bytes) => Ok(cut(text, bytes).into_iter().map(|piece| (0, piece)).collect()),
            None => {
                let ids = self.words.text_ids(text)?;
                // Bytes of a character may lie in several tokens: its text comes with the last of them.
                let mut told = String::new();
                let mut tokens = Vec::with_capacity(ids.len());
                for at in 0..ids.len() {
                    let first = at.saturating_sub(8);
                    let (before, with) = (self.words.text_of(&ids[first..at]), self.words.text_of(&ids[first..=at]));
                    let piece = with
                        .strip_prefix(before.as_str())
                        .filter(|_| !with.ends_with('\u{fffd}'))
                        .unwrap_or("")
                        .to_owned();
                    told += &piece;
                    tokens.push((ids[at], piece));
                }
                // Where tokens do not add up to the text, the text is right.
                if told == text { Ok(tokens) } else { Ok(cut(text, 4).into_iter().map(|piece| (0, piece)).collect()) }
            }
        }
    }
}

/// A text in pieces of about so many bytes.
fn cut(text: &str, bytes: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for letter in text.chars() {
        match pieces.last_mut() {
            Some(last) if last.len() < bytes.max(1) => last.push(letter),
            _ => pieces.push(letter.to_string()),
        }
    }
    pieces
}

/// Waits, unless it is cancelled.
fn rest(time: Duration, cancel: &Cancel) -> bool {
    let until = Instant::now() + time;
    while !cancel.is_cancelled() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
    false
}

impl Engine for Scripted {
    fn answer(&mut self, job: Job, cancel: &Cancel, tell: &mut dyn FnMut(Piece)) -> Result<Outcome, Refusal> {
        let reply = self.reply(&job.prompt);
        let (started, total) = (Instant::now(), job.prompt.len());
        let mut outcome = Outcome {
            ended: Ended::Cancelled,
            prompt: total as u32,
            cached: 0,
            output: 0,
            reasoning: 0,
            prefill: Duration::ZERO,
            decode: Duration::ZERO,
        };
        const STEPS: usize = 10;
        for step in 1..=STEPS {
            if !rest(Duration::from_millis(reply.prefill_ms) / STEPS as u32, cancel) {
                return Ok(outcome);
            }
            tell(Piece::Reading { done: total * step / STEPS, total });
        }
        outcome.prefill = started.elapsed();
        let started = Instant::now();
        let mut parser =
            ReplyParser::new(job.reply.clone()).map_err(|error| Refusal::field("stop", error.to_string()))?;
        outcome.ended = self.write(&reply, &job, cancel, &mut parser, &mut outcome, tell)?;
        outcome.decode = started.elapsed();
        let ending = if outcome.ended == Ended::Stop { Ending::Natural } else { Ending::Cut };
        parser.finish(ending).into_iter().for_each(|event| tell(Piece::Event(event)));
        Ok(outcome)
    }

    fn watch(&self) -> Watch {
        let view = EngineView {
            backend: "scripted".to_owned(),
            device: "a script".to_owned(),
            arithmetic: "none".to_owned(),
            memory: vec![MemoryPart { name: "script", bytes: 0 }],
            ..EngineView::default()
        };
        Arc::new(move || view.clone())
    }
}

impl Scripted {
    /// Says a reply, token by token; gives why it ended.
    fn write(
        &self,
        reply: &ScriptedReply,
        job: &Job,
        cancel: &Cancel,
        parser: &mut ReplyParser,
        outcome: &mut Outcome,
        tell: &mut dyn FnMut(Piece),
    ) -> Result<Ended, Refusal> {
        let text = reply.text.repeat(reply.times.unwrap_or(1));
        let room = job.window.saturating_sub(job.prompt.len() as u32);
        let limit = job.max_tokens.map_or(room, |most| most.min(room));
        for (at, (id, piece)) in self.tokens(&text)?.into_iter().enumerate() {
            if let Some((_, words)) = reply.fail.as_ref().filter(|(after, _)| *after == at) {
                return Err(Refusal::inference(words.clone()));
            }
            assert_ne!(reply.panic, Some(at), "the script says so");
            let stalled = reply.stall.filter(|(after, _)| *after == at).map_or(0, |(_, time)| time);
            if !rest(Duration::from_millis(reply.token_ms + stalled), cancel) {
                return Ok(Ended::Cancelled);
            }
            if at as u32 == limit {
                return Ok(if limit == room { Ended::Window } else { Ended::Limit });
            }
            outcome.output += 1;
            outcome.reasoning += u32::from(parser.is_reasoning());
            let logprob = job.logprobs.map(|_| 0.0);
            let bytes = piece.clone().into_bytes();
            let top = (0..job.logprobs.unwrap_or(0).min(1)).map(|_| (piece.clone(), bytes.clone(), 0.0)).collect();
            tell(Piece::Token(Token { id, text: piece.clone(), bytes, logprob, top }));
            parser.push(&piece).into_iter().for_each(|event: Event| tell(Piece::Event(event)));
            if parser.is_over() {
                return Ok(Ended::Stop);
            }
        }
        if let Some((_, words)) = &reply.fail {
            return Err(Refusal::inference(words.clone()));
        }
        Ok(Ended::Stop)
    }
}
