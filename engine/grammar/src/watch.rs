//! Owns: tags in a reply's text while it is written, and which tokens would complete one where it must not stand.
//! Refuses: nothing.
//! Invariants: a tag is found wherever its bytes join, however they fell into tokens.

use std::collections::HashMap;

use crate::tokens::Tokens;

/// A tag that is waited for.
#[derive(Clone)]
pub(crate) struct Tag {
    tag: &'static [u8],
    /// Bytes of the tag that the text so far ends with.
    met: usize,
    /// By those bytes, the tokens that would complete the tag and go on after it.
    overshooting: HashMap<usize, Vec<u32>>,
}

impl Tag {
    pub fn new(tag: &'static str) -> Self {
        Tag { tag: tag.as_bytes(), met: 0, overshooting: HashMap::new() }
    }

    /// How much of `bytes` belongs to the text up to the tag's end; `None` if it does not end here.
    pub fn push(&mut self, bytes: &[u8]) -> Option<usize> {
        let (met, end) = self.read(bytes);
        self.met = met;
        end
    }

    /// Bytes of the tag met after `bytes`, and where the tag ends in them.
    fn read(&self, bytes: &[u8]) -> (usize, Option<usize>) {
        let mut met = self.met;
        for (at, &byte) in bytes.iter().enumerate() {
            // A tag's first byte does not come again in it, so a failure starts anew.
            met = if self.tag.get(met) == Some(&byte) { met + 1 } else { usize::from(self.tag[0] == byte) };
            if met == self.tag.len() {
                return (0, Some(at + 1));
            }
        }
        (met, None)
    }

    /// Tokens that would complete the tag and go on after it.
    pub fn overshooting(&mut self, tokens: &Tokens) -> &[u32] {
        if !self.overshooting.contains_key(&self.met) {
            let ids = tokens
                .completing(&[&self.tag[self.met..]], |bytes| self.read(bytes).1.is_some_and(|end| end < bytes.len()));
            self.overshooting.insert(self.met, ids);
        }
        self.overshooting.get(&self.met).map_or(&[], Vec::as_slice)
    }
}

/// Tags of a call, which mean the same wherever they stand (chat-template.md section 5.2).
const CALL_TAGS: [&str; 5] = ["<tool_call>", "<parameter=", "</parameter>", "</function>", "</tool_call>"];

/// Keeps tags out of values: the template writes each at the start of a line, and a JSON text that is inside a value has no line
/// that begins with one.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    /// The end of the text, as far as a tag or the line before it may have begun there.
    tail: Vec<u8>,
    /// Tokens that are forbidden after a tail.
    known: HashMap<Vec<u8>, Vec<u32>>,
}

impl Lines {
    /// Before an answer's first character, which begins a line.
    pub fn new() -> Self {
        Lines { tail: vec![b'\n'], known: HashMap::new() }
    }

    /// Behind a tag that opens a call.
    pub fn restart(&mut self) {
        self.tail.clear();
    }

    /// Goes on with text.
    pub fn push(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        let begins = |at: &usize| {
            let end = &self.tail[*at..];
            let after = end.strip_prefix(b"\n").unwrap_or(end);
            CALL_TAGS.iter().any(|tag| tag.len() > after.len() && tag.as_bytes().starts_with(after))
        };
        let from = (0..self.tail.len()).find(begins).unwrap_or(self.tail.len());
        self.tail.drain(..from);
    }

    /// Tokens that would complete a tag that does not begin a line.
    pub fn forbidden(&mut self, tokens: &Tokens) -> &[u32] {
        let tail = &self.tail;
        self.known.entry(tail.clone()).or_insert_with(|| {
            let begun = tail.strip_prefix(b"\n").unwrap_or(tail);
            let rests: Vec<&[u8]> = CALL_TAGS.iter().filter_map(|tag| tag.as_bytes().strip_prefix(begun)).collect();
            tokens.completing(&rests, |bytes| misplaces(tail, bytes))
        })
    }
}

fn misplaces(tail: &[u8], bytes: &[u8]) -> bool {
    let text = [tail, bytes].concat();
    (tail.len() + 1..=text.len()).any(|end| {
        CALL_TAGS.iter().any(|tag| {
            let before = text[..end].strip_suffix(tag.as_bytes());
            before.is_some_and(|before| before.last() != Some(&b'\n'))
        })
    })
}

/// Whether a token's bytes hold a tag whole.
pub(crate) fn holds_tag(bytes: &[u8]) -> bool {
    let tags = CALL_TAGS.iter().copied().chain(["</think>"]);
    tags.into_iter().any(|tag| bytes.windows(tag.len()).any(|part| part == tag.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_across_pieces() {
        let mut tag = Tag::new("</think>");
        assert_eq!(tag.push(b"a<</thi"), None);
        assert_eq!(tag.met, 5);
        assert_eq!(tag.push(b"nk>\n"), Some(3));
        assert_eq!(tag.push(b"</think</think>"), Some(15));
    }

    #[test]
    fn a_tag_within_a_line_is_misplaced() {
        let mut lines = Lines::new();
        assert!(!misplaces(&lines.tail, b"<tool_call>"));
        lines.push(b"<tool_call>\n<function=f>\n<parameter=a>\n{\"x\":\"</para");
        assert_eq!(lines.tail, b"</para");
        assert!(misplaces(&lines.tail, b"meter>"));
        assert!(!misplaces(&lines.tail, b"meter"));
        lines.push(b"m\"}\n</para");
        assert_eq!(lines.tail, b"\n</para");
        assert!(!misplaces(&lines.tail, b"meter>\n"));
        lines.push(b"meter>\n");
        assert_eq!(lines.tail, b"\n");
    }
}
