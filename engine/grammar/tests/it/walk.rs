//! Replies without a model: texts held against a grammar token by token, and texts drawn from what it allows.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use ss_generate::{Constraint, Words};
use ss_grammar::{Compiled, Error, Grammar, Grammars, Options};
use ss_text::AddedTokens;

/// The shipped model's directory.
fn nano() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/flash-next-nano")
}

/// A vocabulary that spells the tags out.
fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/fixtures/tiny")
}

/// A vocabulary and its grammars.
pub struct Vocabulary {
    pub words: Arc<Words>,
    pub grammars: Grammars,
}

impl Vocabulary {
    pub fn open(dir: &Path) -> Self {
        let words = Arc::new(Words::read(dir, Vec::new(), 262_144).unwrap());
        Vocabulary { grammars: Grammars::new(words.clone()), words }
    }

    /// The shipped model's.
    pub fn nano() -> &'static Self {
        static OPENED: OnceLock<Vocabulary> = OnceLock::new();
        OPENED.get_or_init(|| Vocabulary::open(&nano()))
    }

    /// One with few tokens.
    pub fn tiny() -> &'static Self {
        static OPENED: OnceLock<Vocabulary> = OnceLock::new();
        OPENED.get_or_init(|| Vocabulary::open(&tiny()))
    }

    /// The released one, where `SS_TOKENIZER` says where it is.
    pub fn released() -> Option<Self> {
        let dir = std::env::var_os("SS_TOKENIZER")?;
        Some(Vocabulary::open(Path::new(&dir)))
    }

    pub fn compile(&self, grammar: &Grammar) -> Result<Compiled, Error> {
        self.grammars.compile(grammar, &Options::default())
    }

    /// Whether a grammar allows a text as a whole reply.
    pub fn allows(&self, held: Compiled, text: &str) -> bool {
        let ids = self.words.tokenizer().encode(text, AddedTokens::Recognise).unwrap();
        self.allows_ids(held, &ids) == Some(ids.len())
    }

    /// How many of these ids a grammar allows one after the other; none if it allows all, but not the end behind them.
    pub fn allows_ids(&self, mut held: Compiled, ids: &[u32]) -> Option<usize> {
        for (index, &id) in ids.iter().enumerate() {
            if !is_in(held.mask().unwrap(), id) {
                return Some(index).filter(|&index| index != ids.len());
            }
            held.accept(id).unwrap();
        }
        self.may_end(&mut held).then_some(ids.len())
    }

    pub fn may_end(&self, held: &mut Compiled) -> bool {
        let mask = held.mask().unwrap();
        let ends: Vec<bool> = self.words.stop_ids().iter().map(|&id| is_in(mask, id)).collect();
        assert!(ends.iter().all(|&end| end == ends[0]), "all ends or none");
        ends[0]
    }

    /// A reply of single bytes' tokens: the text spelt out.
    pub fn spelt(&self, text: &str) -> Vec<u32> {
        let single = |byte: u8| {
            let tokenizer = self.words.tokenizer();
            (0..tokenizer.vocabulary() as u32).find(|&id| tokenizer.bytes_of(id) == [byte]).unwrap()
        };
        text.bytes().map(single).collect()
    }

    /// A reply drawn from what a grammar allows, which ends as soon as it may after `patience` tokens, and is given up after
    /// ten times as many.
    pub fn draw(&self, mut held: Compiled, dice: &mut Dice, patience: usize) -> Option<String> {
        let mut ids: Vec<u32> = Vec::new();
        while ids.len() < 10 * patience {
            let ends = self.may_end(&mut held);
            let mask = held.mask().unwrap().map(<[u32]>::to_vec);
            let stops = self.words.stop_ids();
            let count = self.words.tokenizer().vocabulary() as u32;
            let open: Vec<u32> = (0..count).filter(|id| is_in(mask.as_deref(), *id) && !stops.contains(id)).collect();
            if ends && (open.is_empty() || ids.len() >= patience || dice.below(4) == 0) {
                return Some(self.words.text_of(&ids));
            }
            // A text within a call goes on unless its end is written out.
            if dice.below(8) == 0
                && let Some(ended) = self.try_text(&held, "\n</parameter>\n")
            {
                held = ended.0;
                ids.extend(ended.1);
                continue;
            }
            assert!(!open.is_empty(), "a reply that may neither end nor go on: {:?}", self.words.text_of(&ids));
            // Long replies come to their end by what closes something, where that may come.
            let closes = |id: &&u32| {
                let bytes = self.words.tokenizer().bytes_of(**id);
                bytes.first().is_some_and(|byte| b"\"}],</\n".contains(byte))
            };
            let closing: Vec<u32> = open.iter().filter(closes).copied().collect();
            let pool = if !closing.is_empty() && dice.below(patience) < ids.len() { &closing } else { &open };
            let id = pool[dice.below(pool.len())];
            held.accept(id).unwrap();
            ids.push(id);
        }
        None
    }
}

impl Vocabulary {
    /// The reply after a text, if it may come here.
    fn try_text(&self, held: &Compiled, text: &str) -> Option<(Compiled, Vec<u32>)> {
        let mut held = held.fork();
        let ids = self.words.tokenizer().encode(text, AddedTokens::Recognise).unwrap();
        for &id in &ids {
            if !is_in(held.mask().unwrap(), id) {
                return None;
            }
            held.accept(id).unwrap();
        }
        Some((held, ids))
    }
}

pub fn is_in(mask: Option<&[u32]>, id: u32) -> bool {
    mask.is_none_or(|words| words.get((id / 32) as usize).is_some_and(|word| word >> (id % 32) & 1 == 1))
}

/// A generator for tests: the same numbers on every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }

    pub fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

/// A schema as a grammar.
pub fn schema(schema: Value) -> Grammar {
    Grammar::JsonSchema(schema)
}
