//! Owns: a reply while it is held to a grammar: reasoning and prose, which are free, and what the grammar holds.
//! Refuses: nothing of its own: what may not come is masked out before it can.
//! Invariants: a reply can end exactly where its grammar may; tags are found in the text, however it fell into tokens.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use llguidance::TokenParser;
use llguidance::api::StopReason;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::SimpleVob;
use ss_generate::Constraint;

use crate::tokens::Tokens;
use crate::watch::{Lines, Tag};

/// What the reply after the reasoning is held to.
#[derive(Clone)]
pub(crate) enum Body {
    /// All of it.
    Whole {
        parser: TokenParser,
        /// Whether there may be calls in it.
        calls: bool,
    },
    /// Calls alone, each from behind its opening tag on; text around them is free.
    Calls { call: TokenParser, at_most_one: bool },
}

/// A grammar as it holds one reply.
pub struct Compiled {
    tokens: Arc<Tokens>,
    body: Body,
    phase: Phase,
    lines: Lines,
    /// The mask as it was given out.
    mask: Vec<u32>,
}

/// Where the reply is.
#[derive(Clone)]
enum Phase {
    /// In the reasoning, until its closing tag.
    Reasoning(Tag),
    /// In free text, until a call's opening tag.
    Free(Tag),
    /// In what the grammar holds.
    Held(Box<TokenParser>),
    /// Nothing may follow.
    Over,
}

impl Compiled {
    pub(crate) fn new(tokens: Arc<Tokens>, body: Body, thinking: bool) -> Self {
        let phase = if thinking { Phase::Reasoning(Tag::new("</think>")) } else { Phase::after_reasoning(&body) };
        Compiled { tokens, body, phase, lines: Lines::new(), mask: Vec::new() }
    }

    /// The same grammar for another reply, as it was before the first token of this one if none was accepted yet. What the
    /// grammar engine has learnt of it is shared.
    pub fn fork(&self) -> Self {
        Compiled {
            tokens: self.tokens.clone(),
            body: self.body.clone(),
            phase: self.phase.clone(),
            lines: self.lines.clone(),
            mask: Vec::new(),
        }
    }

    /// Whether tags of calls must stay at the starts of lines here.
    fn guards_lines(&self) -> bool {
        matches!(self.body, Body::Whole { calls: true, .. } | Body::Calls { .. })
    }

    /// Goes on with text that was accepted.
    fn text(&mut self, id: u32, bytes: &[u8]) -> Result<(), String> {
        match &mut self.phase {
            Phase::Reasoning(tag) => {
                let Some(end) = tag.push(bytes) else { return Ok(()) };
                self.phase = Phase::after_reasoning(&self.body);
                self.free(&bytes[end..])
            }
            Phase::Free(_) => self.free(bytes),
            Phase::Held(parser) => {
                let over = consume(parser, id)?;
                self.lines.push(bytes);
                if over {
                    self.phase = match &self.body {
                        Body::Calls { at_most_one: false, .. } => Phase::Free(Tag::new("<tool_call>")),
                        _ => Phase::Over,
                    };
                }
                Ok(())
            }
            Phase::Over => Err("nothing may follow its end".to_owned()),
        }
    }

    /// Goes on with free text.
    fn free(&mut self, bytes: &[u8]) -> Result<(), String> {
        let past = || Err("a token went on behind a tag".to_owned());
        match (&mut self.phase, &self.body) {
            (Phase::Free(tag), Body::Calls { call, .. }) => {
                let Some(end) = tag.push(bytes) else { return Ok(()) };
                self.phase = Phase::Held(Box::new(call.clone()));
                self.lines.restart();
                if end == bytes.len() { Ok(()) } else { past() }
            }
            _ if bytes.is_empty() => Ok(()),
            _ => past(),
        }
    }

    fn held_mask(&mut self) -> Result<(), String> {
        let Phase::Held(parser) = &mut self.phase else { return Ok(()) };
        let mask = match parser.stop_reason() {
            StopReason::NotStopped => mask(parser)?,
            _ => self.tokens.factory.tok_env().tok_trie().eos_token_set(),
        };
        self.mask.clear();
        self.mask.extend_from_slice(mask.as_slice());
        if self.guards_lines() {
            forbid(&mut self.mask, self.lines.forbidden(&self.tokens));
        }
        Ok(())
    }
}

impl Phase {
    fn after_reasoning(body: &Body) -> Self {
        match body {
            Body::Whole { parser, .. } => Phase::Held(Box::new(parser.clone())),
            Body::Calls { .. } => Phase::Free(Tag::new("<tool_call>")),
        }
    }
}

/// What may come next by a parser; a fault of its is an error.
pub(crate) fn mask(parser: &mut TokenParser) -> Result<SimpleVob, String> {
    catch_unwind(AssertUnwindSafe(|| parser.compute_mask())).map_err(|error| error.to_string())
}

/// Gives a parser a token, and tells whether nothing may follow it.
fn consume(parser: &mut TokenParser, id: u32) -> Result<bool, String> {
    let step = || match parser.consume_token(id)? {
        0 => Ok(Some(parser.check_stop()?)),
        _ => Ok(None),
    };
    let over = catch_unwind(AssertUnwindSafe(step)).map_err(|error| error.to_string())?;
    over.ok_or_else(|| "it would have to take text back".to_owned())
}

fn forbid(mask: &mut [u32], ids: &[u32]) {
    for &id in ids {
        if let Some(word) = mask.get_mut((id / u32::BITS) as usize) {
            *word &= !(1 << (id % u32::BITS));
        }
    }
}

fn broken(reason: String) -> ss_generate::Error {
    let reason = reason.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason was given").to_owned();
    ss_generate::Error::Constraint(reason)
}

impl Constraint for Compiled {
    fn mask(&mut self) -> ss_generate::Result<Option<&[u32]>> {
        match (&mut self.phase, &self.body) {
            (Phase::Reasoning(_), Body::Calls { .. }) => return Ok(None),
            (Phase::Reasoning(tag), Body::Whole { .. }) => {
                let overshooting = tag.overshooting(&self.tokens);
                self.mask.clear();
                self.mask.extend_from_slice(self.tokens.unended());
                forbid(&mut self.mask, overshooting);
            }
            (Phase::Free(tag), _) => {
                let overshooting = tag.overshooting(&self.tokens);
                if overshooting.is_empty() {
                    return Ok(None);
                }
                self.mask.clear();
                self.mask.resize(self.tokens.unended().len(), u32::MAX);
                forbid(&mut self.mask, overshooting);
            }
            (Phase::Held(_), _) => self.held_mask().map_err(broken)?,
            (Phase::Over, _) => {
                let ends = self.tokens.factory.tok_env().tok_trie().eos_token_set();
                self.mask.clear();
                self.mask.extend_from_slice(ends.as_slice());
            }
        }
        Ok(Some(&self.mask))
    }

    fn accept(&mut self, id: u32) -> ss_generate::Result<()> {
        let tokens = self.tokens.clone();
        self.text(id, tokens.seen(id)).map_err(broken)
    }
}
