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

use crate::{Error, Result};

/// Added tokens that a reply's readers look for as text (chat-template.md section 5).
const TAGS: [&[u8]; 4] = [b"<think>", b"</think>", b"<tool_call>", b"</tool_call>"];

/// Bytes of the longest token that may come in a grammar; the trie allows 1,024.
const LONGEST: usize = 512;

/// The tokens of a model.
pub(crate) struct Tokens {
    words: Arc<Words>,
    pub factory: ParserFactory,
    /// Every id but those that end a reply, as a mask.
    unended: Vec<u32>,
    /// Ids whose bytes hold the last character of a tag.
    closing: Vec<u32>,
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
        *factory.limits_mut() = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
        let mut unended = vec![0u32; count.div_ceil(u32::BITS) as usize];
        (0..count).filter(|id| !ends.contains(id)).for_each(|id| unended[(id / 32) as usize] |= 1 << (id % 32));
        let closes = |id: &u32| tokenizer.bytes_of(*id).iter().any(|byte| matches!(byte, b'>' | b'='));
        let closing = (0..count).filter(closes).collect();
        Ok(Tokens { words: words.clone(), factory, unended, closing })
    }

    /// Every id but those that end a reply.
    pub fn unended(&self) -> &[u32] {
        &self.unended
    }

    /// Ids whose text may complete a tag.
    pub fn closing(&self) -> &[u32] {
        &self.closing
    }

    /// What a reader of the reply sees of an id.
    pub fn seen(&self, id: u32) -> &[u8] {
        let tokenizer = self.words.tokenizer();
        if is_hidden(&self.words, id) { &[] } else { tokenizer.bytes_of(id) }
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
