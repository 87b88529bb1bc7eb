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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::AddedTokens;
    use crate::tokenizer::tests::{nano, tiny};

    fn streamed(tokenizer: &Tokenizer, ids: &[u32], special: SpecialTokens) -> String {
        let mut words = Detokenizer::new(tokenizer, special);
        let text: String = ids.iter().map(|&id| words.push(id)).collect();
        text + &words.finish()
    }

    #[test]
    fn streamed_text_is_the_whole_text_for_random_ids() {
        for (dir, vocabulary) in [(tiny(), 370), (nano(), 4100)] {
            let tokenizer = Tokenizer::open(&dir).unwrap();
            let mut state = 9u64;
            let mut broken = 0;
            for round in 0..2000 {
                let mut ids = Vec::new();
                // Half of the rounds draw from the single bytes, which seldom make whole characters.
                let bound = if round % 2 == 0 { 256 } else { vocabulary };
                for _ in 0..16 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    ids.push((state >> 33) as u32 % bound);
                }
                for special in [SpecialTokens::Keep, SpecialTokens::Drop] {
                    let whole = tokenizer.decode(&ids, special);
                    assert_eq!(streamed(&tokenizer, &ids, special), whole, "{ids:?}");
                    broken += usize::from(whole.contains('\u{fffd}'));
                }
            }
            assert!(broken > 1000);
        }
    }

    #[test]
    fn characters_arrive_whole_and_at_once() {
        // Nearly every byte of these texts is a token of its own in the tiny vocabulary.
        let tokenizer = Tokenizer::open(&tiny()).unwrap();
        for text in [
            "🙂",
            "👩\u{200d}👩\u{200d}👧\u{200d}👦",
            "❤\u{fe0f}",
            "🇫🇷🇩🇪",
            "q\u{301}\u{323}",
            "日本語",
            "ก็",
            "a\u{fffd}b",
        ] {
            let ids = tokenizer.encode(text, AddedTokens::Ignore).unwrap();
            let mut words = Detokenizer::new(&tokenizer, SpecialTokens::Keep);
            let (mut bytes, mut given) = (Vec::new(), String::new());
            for &id in &ids {
                bytes.extend_from_slice(tokenizer.bytes_of(id));
                given += &words.push(id);
                let complete = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
                assert_eq!(given, complete, "{text} must come as far as its bytes are complete");
            }
            assert_eq!(
                (given.as_str(), words.finish().as_str()),
                (tokenizer.decode(&ids, SpecialTokens::Keep).as_str(), "")
            );
        }
    }

    #[test]
    fn an_unfinished_character_ends_as_one_replacement() {
        let tokenizer = Tokenizer::open(&tiny()).unwrap();
        let ids = tokenizer.encode("🙂", AddedTokens::Ignore).unwrap();
        assert_eq!(streamed(&tokenizer, &ids[..ids.len() - 1], SpecialTokens::Keep), "\u{fffd}");
        let mut words = Detokenizer::new(&tokenizer, SpecialTokens::Keep);
        assert_eq!(words.push(ids[0]), "");
        let space = tokenizer.encode("a", AddedTokens::Ignore).unwrap();
        assert_eq!(words.push(space[0]), "\u{fffd}a");
    }
}
