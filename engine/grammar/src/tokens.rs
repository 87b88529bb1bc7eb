//! Owns: the tokenizer as the grammar engine sees it: a trie of the tokens' bytes, the ids that end a reply.
//! Refuses: control tokens inside a grammar's text: readers do not see them. The tags of reasoning and calls are text like any
//! other, whether the vocabulary has a token for each or spells them out.
//! Invariants: built once for a model and shared; text that a grammar forces is forced in the tokens that the tokenizer would
//! make of it.

use std::sync::Arc;

use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{ParserFactory, api::ParserLimits, earley::SlicedBiasComputer};
use ss_generate::Words;
use ss_text::{AddedTokens, SpecialTokens};

use crate::watch::holds_tag;
use crate::{Error, Result};

/// Added tokens that a reply's readers look for as text (chat-template.md section 5).
const TAGS: [&[u8]; 4] = [b"<think>", b"</think>", b"<tool_call>", b"</tool_call>"];

/// Bytes of the longest token that may come in a grammar; the trie allows 1,024.
const LONGEST: usize = 512;

/// What compiling and one mask may take: about ten times the engine's own choice for items, for objects with a thousand optional
/// properties, and less than half of its states, of which one takes up to two kilobytes.
const LIMITS: ParserLimits = ParserLimits {
    max_items_in_row: 20_000,
    initial_lexer_fuel: 1_000_000,
    step_lexer_fuel: 200_000,
    step_max_items: 500_000,
    max_lexer_states: 100_000,
    max_grammar_size: 500_000,
    precompute_large_lexemes: true,
    verbose_errors: false,
};

/// The tokens of a model.
pub(crate) struct Tokens {
    words: Arc<Words>,
    pub factory: ParserFactory,
    /// Every id but those that end a reply, as a mask.
    unended: Vec<u32>,
    /// Ids whose bytes hold the last character of a tag.
    closing: Vec<u32>,
    /// Ids whose bytes hold a tag whole.
    tags: Vec<u32>,
}

impl Tokens {
    pub fn new(words: &Arc<Words>) -> Result<Self> {
        let (tokenizer, ends) = (words.tokenizer(), words.stop_ids());
        let count = tokenizer.vocabulary() as u32;
        let ends: Vec<u32> = ends.iter().copied().filter(|&id| id < count).collect();
        let first = *ends.first().ok_or(Error::NoEnd)?;
        let bytes: Vec<Vec<u8>> = (0..count).map(|id| as_text(words, &ends, id)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(count, first), &bytes).with_eos_tokens(&ends);
        let env: TokEnv = Arc::new(Env { words: words.clone(), trie });
        let slices = SlicedBiasComputer::json_slices();
        let refuse = |error: &dyn std::fmt::Display| Error::Grammar { kind: "tokenizer", reason: error.to_string() };
        let mut factory =
            ParserFactory::new(&env, InferenceCapabilities::default(), &slices).map_err(|error| refuse(&error))?;
        factory.quiet();
        *factory.limits_mut() = LIMITS;
        let mut unended = vec![0u32; count.div_ceil(u32::BITS) as usize];
        (0..count).filter(|id| !ends.contains(id)).for_each(|id| unended[(id / 32) as usize] |= 1 << (id % 32));
        let closes = |id: &u32| tokenizer.bytes_of(*id).iter().any(|byte| matches!(byte, b'>' | b'='));
        let closing: Vec<u32> = (0..count).filter(closes).collect();
        let tags = closing.iter().copied().filter(|&id| holds_tag(tokenizer.bytes_of(id))).collect();
        Ok(Tokens { words: words.clone(), factory, unended, closing, tags })
    }

    /// Every id but those that end a reply.
    pub fn unended(&self) -> &[u32] {
        &self.unended
    }

    /// Ids that complete a tag of which one of these is left to come, or hold one whole, as far as `wanted` says.
    pub fn completing(&self, rests: &[&[u8]], wanted: impl Fn(&[u8]) -> bool) -> Vec<u32> {
        let begun = self.closing.iter().filter(|id| rests.iter().any(|rest| self.seen(**id).starts_with(rest)));
        let mut ids: Vec<u32> = begun.chain(&self.tags).copied().filter(|&id| wanted(self.seen(id))).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// What a reader of the reply sees of an id.
    pub fn seen(&self, id: u32) -> &[u8] {
        if is_hidden(&self.words, id) { &[] } else { self.words.tokenizer().bytes_of(id) }
    }
}

/// Whether a reader of a reply does not see an id.
fn is_hidden(words: &Words, id: u32) -> bool {
    let tokenizer = words.tokenizer();
    tokenizer.is_special(id) && tokenizer.decode(&[id], SpecialTokens::Drop).is_empty()
}

/// An id's bytes in the trie: those of control tokens begin with a byte that no text has, others that must not come are empty.
fn as_text(words: &Words, ends: &[u32], id: u32) -> Vec<u8> {
    let tokenizer = words.tokenizer();
    let bytes = tokenizer.bytes_of(id);
    let tag = TAGS.contains(&bytes);
    if ends.contains(&id) || (!tag && (tokenizer.is_special(id) || tokenizer.is_printable_special(id))) {
        return [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat();
    }
    if bytes.len() > LONGEST || bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) { Vec::new() } else { bytes.to_vec() }
}

/// What the grammar engine asks of a tokenizer.
struct Env {
    words: Arc<Words>,
    trie: TokTrie,
}

impl Env {
    /// The tokenizer's own ids of a text, if they spell it byte for byte: normalising may compose characters.
    fn canonical(&self, text: &[u8]) -> Option<Vec<TokenId>> {
        let ids = self.words.tokenizer().encode(std::str::from_utf8(text).ok()?, AddedTokens::Recognise).ok()?;
        let spelt: Vec<u8> = ids.iter().flat_map(|&id| self.trie.token(id)).copied().collect();
        (spelt == text).then_some(ids)
    }
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.canonical(text).unwrap_or_else(|| self.trie.greedy_tokenize(text))
    }
}
