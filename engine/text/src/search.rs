//! Owns: finding the first of a few strings in text that arrives in pieces.
//! Refuses: nothing; empty strings are never found.
//! Invariants: what is found does not depend on how the text was cut; only the longest tail that may still become a match
//! is held back; each byte is looked at once (Knuth, Morris and Pratt's automaton, one for each string).

/// A set of strings being looked for, and how much of each the text so far ends with.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    needles: Vec<Needle>,
}

/// What one piece of text brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Text that no match can include any more: all before the match, if there is one.
    pub(crate) before: String,
    /// The match: which string, and where in the piece the text after it begins.
    pub(crate) found: Option<(usize, usize)>,
}

impl Search {
    /// A search for `strings`. Where several end at one place, the longest is found.
    pub(crate) fn new<'s>(strings: impl IntoIterator<Item = &'s str>) -> Self {
        Search { needles: strings.into_iter().map(Needle::new).collect() }
    }

    /// Reads a piece up to the first match. After a match the search starts afresh, with the text that follows it.
    pub(crate) fn push(&mut self, piece: &str) -> Step {
        let held = self.held().to_owned();
        for (at, byte) in piece.bytes().enumerate() {
            let mut longest: Option<(usize, usize)> = None;
            for (index, needle) in self.needles.iter_mut().enumerate() {
                if needle.step(byte) && longest.is_none_or(|(_, len)| needle.text.len() > len) {
                    longest = Some((index, needle.text.len()));
                }
            }
            if let Some((index, len)) = longest {
                self.reset();
                let end = at + 1;
                return Step { before: joined(&held, &piece[..end], len), found: Some((index, end)) };
            }
        }
        Step { before: joined(&held, piece, self.held().len()), found: None }
    }

    /// The text that is held back: the longest tail that begins one of the strings.
    pub(crate) fn held(&self) -> &str {
        let longest = self.needles.iter().max_by_key(|needle| needle.matched);
        longest.map_or("", |needle| &needle.text[..needle.matched])
    }

    /// Gives up waiting: the text that was held back, which is no match.
    pub(crate) fn drain(&mut self) -> String {
        let held = self.held().to_owned();
        self.reset();
        held
    }

    fn reset(&mut self) {
        self.needles.iter_mut().for_each(|needle| needle.matched = 0);
    }
}

/// `held` and `piece` without their last `drop` bytes, which are the beginning of, or all of, a string looked for.
fn joined(held: &str, piece: &str, drop: usize) -> String {
    let keep = (held.len() + piece.len()).saturating_sub(drop);
    let mut text = String::with_capacity(keep);
    text.push_str(&held[..keep.min(held.len())]);
    text.push_str(&piece[..keep.saturating_sub(held.len())]);
    text
}

/// One string, and how many of its bytes the text so far ends with.
#[derive(Clone, Debug)]
struct Needle {
    text: String,
    /// For each length matched, the longest shorter beginning of the string that it ends with.
    shorter: Vec<usize>,
    matched: usize,
}

impl Needle {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut shorter = vec![0; bytes.len()];
        for end in 1..bytes.len() {
            let mut len = shorter[end - 1];
            while len > 0 && bytes[len] != bytes[end] {
                len = shorter[len - 1];
            }
            shorter[end] = len + usize::from(bytes[len] == bytes[end]);
        }
        Needle { text: text.to_owned(), shorter, matched: 0 }
    }

    /// Reads one byte; whether the string ends with it.
    fn step(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        if bytes.is_empty() {
            return false;
        }
        while self.matched > 0 && bytes[self.matched] != byte {
            self.matched = self.shorter[self.matched - 1];
        }
        self.matched += usize::from(bytes[self.matched] == byte);
        self.matched == bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_is_found_whatever_the_cut() {
        let text = "aab<<tag>é";
        for cut in (0..=text.len()).filter(|&cut| text.is_char_boundary(cut)) {
            let mut search = Search::new(["<tag>", "aaa"]);
            let first = search.push(&text[..cut]);
            if let Some(found) = first.found {
                assert_eq!((first.before.as_str(), found), ("aab<", (0, 9)));
                continue;
            }
            let second = search.push(&text[cut..]);
            assert_eq!(first.before + &second.before, "aab<");
            assert_eq!(second.found, Some((0, 9 - cut)));
        }
    }

    #[test]
    fn only_a_possible_beginning_is_held() {
        let mut search = Search::new(["</think>", "abab"]);
        assert_eq!(search.push("x</thi").before, "x");
        assert_eq!(search.held(), "</thi");
        assert_eq!(search.push("s aba").before, "</this ");
        assert_eq!(search.push("x").before, "abax");
        assert_eq!(search.push("aba<").before, "aba");
        assert_eq!((search.drain().as_str(), search.drain().as_str()), ("<", ""));
    }

    #[test]
    fn overlapping_beginnings_are_not_missed() {
        let mut search = Search::new(["aabaaa"]);
        let step = search.push("aabaabaaa!");
        assert_eq!((step.before.as_str(), step.found), ("aab", Some((0, 9))));
    }

    #[test]
    fn the_longest_of_several_that_end_together_is_found() {
        let step = Search::new(["c", "abc", "bc"]).push("xabc");
        assert_eq!((step.before.as_str(), step.found), ("x", Some((1, 4))));
    }

    #[test]
    fn empty_strings_are_never_found() {
        assert_eq!(Search::new([""]).push("abc"), Step { before: "abc".to_owned(), found: None });
        assert_eq!(Search::new([]).push("abc").found, None);
    }
}
