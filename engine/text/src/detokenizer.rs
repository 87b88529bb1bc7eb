//! Owns: turning ids into text one at a time.
//! Refuses: nothing; bytes that can never become a character are U+FFFD, as in [`crate::Tokenizer::decode`].
//! Invariants: the pieces joined are the text of all ids decoded at once; only an unfinished character (at most three
//! bytes) is ever held back; the work for one token depends on that token alone.

use std::sync::Arc;

use crate::tokenizer::Tokenizer;
use crate::vocabulary::{SpecialTokens, Vocabulary};

/// The text of a growing list of ids.
pub struct Detokenizer {
    vocabulary: Arc<Vocabulary>,
    special: SpecialTokens,
    /// Bytes of a character that is not complete yet.
    pending: Vec<u8>,
}

impl Detokenizer {
    /// A reader at the start of a text.
    pub fn new(tokenizer: &Tokenizer, special: SpecialTokens) -> Self {
        Detokenizer { vocabulary: tokenizer.table(), special, pending: Vec::new() }
    }

    /// The text that `id` completes; empty while a character lacks bytes.
    pub fn push(&mut self, id: u32) -> String {
        self.pending.extend_from_slice(self.vocabulary.seen_bytes(id, self.special));
        let mut text = String::new();
        let mut unread = self.pending.as_slice();
        loop {
            match std::str::from_utf8(unread) {
                Ok(rest) => {
                    text.push_str(rest);
                    unread = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = unread.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    unread = after;
                    let Some(wrong) = error.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    unread = &unread[wrong..];
                }
            }
        }
        self.pending = unread.to_vec();
        text
    }

    /// The end of the text: U+FFFD if a character was left unfinished.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}
