//! Owns: parting a reply into reasoning and answer (chat-template.md section 5.1).
//! Refuses: nothing.
//! Invariants: everything before the first `</think>` is reasoning; newlines right after it are dropped; without the tag
//! all of it is reasoning.

use crate::search::Search;

const THINK_END: &str = "</think>";

/// A reply being parted. The prompt has opened the reasoning already, so the text begins inside it.
#[derive(Clone, Debug)]
pub struct Thinking {
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Reasoning(Search),
    /// After the tag, before the first character of the answer.
    Gap,
    Answer,
}

/// What one piece of a reply holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thought {
    /// Reasoning.
    pub reasoning: String,
    /// Answer.
    pub answer: String,
}

impl Thinking {
    /// A reply at its start: inside the reasoning when thinking is `on`, else in the answer.
    pub fn new(on: bool) -> Self {
        Thinking { place: if on { Place::Reasoning(Search::new([THINK_END])) } else { Place::Answer } }
    }

    /// Reads a piece.
    pub fn push(&mut self, text: &str) -> Thought {
        let mut thought = Thought::default();
        let mut rest = text;
        if let Place::Reasoning(search) = &mut self.place {
            let step = search.push(rest);
            thought.reasoning = step.before;
            let Some((_, end)) = step.found else { return thought };
            self.place = Place::Gap;
            rest = &rest[end..];
        }
        if let Place::Gap = self.place {
            rest = rest.trim_start_matches('\n');
            if rest.is_empty() {
                return thought;
            }
            self.place = Place::Answer;
        }
        thought.answer = rest.to_owned();
        thought
    }

    /// The end of the reply: reasoning that was held back and turned out to be no tag.
    pub fn finish(&mut self) -> String {
        match &mut self.place {
            Place::Reasoning(search) => search.drain(),
            Place::Gap | Place::Answer => String::new(),
        }
    }

    /// Whether the text read so far ends inside the reasoning.
    pub fn is_reasoning(&self) -> bool {
        matches!(self.place, Place::Reasoning(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(on: bool, pieces: &[&str]) -> (String, String) {
        let mut thinking = Thinking::new(on);
        let mut whole = Thought::default();
        for piece in pieces {
            let thought = thinking.push(piece);
            whole.reasoning += &thought.reasoning;
            whole.answer += &thought.answer;
        }
        (whole.reasoning + &thinking.finish(), whole.answer)
    }

    #[test]
    fn the_tag_parts_the_reply_also_when_it_is_cut() {
        let (reasoning, answer) = ("It is Tokyo.\n".to_owned(), "Tokyo.\n</think>\n".to_owned());
        let cuts: [&[&str]; 3] = [
            &["It is Tokyo.\n</think>\n\nTokyo.\n</think>\n"],
            &["It is Tokyo.\n</th", "ink>\n", "\n", "Tokyo.\n</think>\n"],
            &["It is Tokyo.\n", "<", "/think", ">", "\n\nT", "okyo.\n</think>\n"],
        ];
        for pieces in cuts {
            assert_eq!(run(true, pieces), (reasoning.clone(), answer.clone()));
        }
    }

    #[test]
    fn without_the_tag_all_is_reasoning() {
        assert_eq!(run(true, &["a </thin"]), ("a </thin".into(), String::new()));
        assert_eq!(run(true, &["a </think>", "\n"]), ("a ".into(), String::new()));
    }

    #[test]
    fn with_thinking_off_all_is_answer() {
        assert_eq!(run(false, &["\na</think>"]), (String::new(), "\na</think>".into()));
    }

    #[test]
    fn only_a_possible_tag_is_held_back() {
        let mut thinking = Thinking::new(true);
        assert_eq!(thinking.push("a<b</").reasoning, "a<b");
        assert_eq!(thinking.push("<").reasoning, "</");
        assert!(thinking.is_reasoning());
    }
}
