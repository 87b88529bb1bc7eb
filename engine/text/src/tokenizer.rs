//! Owns: a model directory's tokenizer.json: text to ids and ids to text.
//! Refuses: an absent, broken or oversized file; decoders other than byte-level; added tokens that swallow the space
//! around them or match normalised text (no model of the family has one).
//! Invariants: text that is marked as typed by a person never yields an added token ([`Prompt`]); decoding is joining.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::{AddedToken, Model, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

use crate::error::TextError;
use crate::files;
use crate::guard::Prompt;
use crate::steps;
use crate::vocabulary::{SpecialTokens, Vocabulary};

/// A tokenizer file larger than this is refused unread: the released model's is 12.8 MB.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Bytes split at once: long enough that what is split twice does not count.
const WINDOW_BYTES: usize = 64 << 10;

/// Words at a window's end that may look different once more text follows: the last one, and a margin for patterns that
/// look ahead.
const UNSETTLED_WORDS: usize = 4;

/// What a tokenizer must give back unchanged: no case folding, no space put in front.
const PROBE: &str = "A b";

/// Whether the text of an added token (`<|im_end|>`, `<think>`...) becomes that token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedTokens {
    /// It becomes the token, as Hugging Face's encoders do.
    Recognise,
    /// It is ordinary text.
    Ignore,
}

/// The tokenizer of one model directory.
pub struct Tokenizer {
    path: PathBuf,
    inner: tokenizers::Tokenizer,
    vocabulary: Arc<Vocabulary>,
    added: Added,
}

/// The added tokens, as a matcher: pattern `i` yields `ids[i]`.
struct Added {
    matcher: AhoCorasick,
    ids: Vec<u32>,
    edges: Vec<char>,
}

impl Tokenizer {
    /// The tokenizer of the model directory `dir`: its `tokenizer.json`. Fails with one sentence naming the file.
    pub fn open(dir: &Path) -> Result<Self, TextError> {
        Self::from_file(&dir.join("tokenizer.json"))
    }

    /// The tokenizer that the file at `path` describes.
    pub fn from_file(path: &Path) -> Result<Self, TextError> {
        let json = files::read(path, MAX_FILE_BYTES)?.ok_or_else(|| TextError::Missing { path: path.to_owned() })?;
        let refuse = |reason: String| TextError::Tokenizer { path: path.to_owned(), reason };
        steps::check(&json).map_err(&refuse)?;
        let inner = tokenizers::Tokenizer::from_bytes(&json).map_err(|error| refuse(first_line(&error)))?;
        let added = Added::of(&inner).map_err(&refuse)?;
        let decoder = inner.get_added_vocabulary().get_added_tokens_decoder();
        let special: Vec<u32> = decoder.iter().filter(|(_, token)| token.special).map(|(&id, _)| id).collect();
        let vocabulary = Vocabulary::new(&inner.get_vocab(true), &special).map_err(&refuse)?;
        let tokenizer = Tokenizer { path: path.to_owned(), inner, vocabulary: Arc::new(vocabulary), added };
        let probe = tokenizer.decode(&tokenizer.encode(PROBE, AddedTokens::Ignore)?, SpecialTokens::Keep);
        if probe != PROBE {
            return Err(refuse(format!("text must come back as it was, and {PROBE:?} came back as {probe:?}")));
        }
        Ok(tokenizer)
    }

    /// The ids of `text`. Beginning and end tokens are never added.
    pub fn encode(&self, text: &str, added: AddedTokens) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::new();
        match added {
            AddedTokens::Recognise => self.encode_prompt_into(&Prompt::trusted(text), &mut ids)?,
            AddedTokens::Ignore => self.encode_plain(text, &mut ids)?,
        }
        Ok(ids)
    }

    /// The ids of a rendered conversation: control tokens come from the template's own text, and what people and tools
    /// wrote is ordinary text throughout (chat-template.md section 4).
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::new();
        self.encode_prompt_into(prompt, &mut ids)?;
        Ok(ids)
    }

    /// The text of `ids`; bytes that are not UTF-8 become U+FFFD, ids that are not used nothing.
    pub fn decode(&self, ids: &[u32], special: SpecialTokens) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.vocabulary.seen_bytes(id, special)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The id of the token whose text is exactly `text`, e.g. `<|im_end|>`.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.inner.token_to_id(text)
    }

    /// The bytes that `id` stands for: none for an id that is not used.
    pub fn bytes_of(&self, id: u32) -> &[u8] {
        self.vocabulary.bytes(id)
    }

    /// Ids that the tokenizer uses: the highest and one. Ids from here on are padding of the embedding and must never be
    /// sampled.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary.len()
    }

    /// Whether the file has this id.
    pub fn is_used(&self, id: u32) -> bool {
        self.vocabulary.is_used(id)
    }

    /// Whether the file marks this id as special: a control token, left out of a reply's text.
    pub fn is_special(&self, id: u32) -> bool {
        self.vocabulary.is_special(id)
    }

    /// Whether this id is an added token that survives [`SpecialTokens::Drop`], such as `<think>`.
    pub fn is_printable_special(&self, id: u32) -> bool {
        self.added.ids.contains(&id) && !self.vocabulary.seen_bytes(id, SpecialTokens::Drop).is_empty()
    }

    /// The characters that open or close added tokens (`<` and `>` in the family): what a [`Prompt`] marks in typed text.
    pub fn added_edges(&self) -> &[char] {
        &self.added.edges
    }

    /// The file that this tokenizer was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn table(&self) -> Arc<Vocabulary> {
        Arc::clone(&self.vocabulary)
    }

    fn encode_prompt_into(&self, prompt: &Prompt, ids: &mut Vec<u32>) -> Result<(), TextError> {
        // Marked characters match no added token, so a match lies wholly within unmarked text.
        let marked = prompt.marked();
        let mut from = 0;
        for found in self.added.matcher.find_iter(marked) {
            self.encode_plain(&prompt.reveal(&marked[from..found.start()]), ids)?;
            ids.extend(self.added.ids.get(found.pattern().as_usize()));
            from = found.end();
        }
        self.encode_plain(&prompt.reveal(&marked[from..]), ids)
    }

    /// The model's own steps without the added tokens: normalise, split into words, merge.
    fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TextError> {
        self.encode_windows(text, WINDOW_BYTES, ids)
            .map_err(|error| TextError::Encode { path: self.path.clone(), reason: first_line(&error) })
    }

    /// Splits `text` a window at a time: the library keeps some 300 bytes for each byte that it splits.
    fn encode_windows(&self, text: &str, window: usize, ids: &mut Vec<u32>) -> tokenizers::Result<()> {
        let mut rest = text;
        let mut size = window;
        while !rest.is_empty() {
            let end = if size < rest.len() { rest.floor_char_boundary(size) } else { rest.len() };
            let mut words = PreTokenizedString::from(&rest[..end]);
            if let Some(normalizer) = self.inner.get_normalizer() {
                words.normalize(|piece| normalizer.normalize(piece))?;
            }
            if let Some(splitter) = self.inner.get_pre_tokenizer() {
                splitter.pre_tokenize(&mut words)?;
            }
            let words = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
            let kept = if end == rest.len() { Some((words.len(), end)) } else { settled(rest, &words) };
            let Some((count, bytes)) = kept else {
                size = size.saturating_mul(2);
                continue;
            };
            for (word, ..) in words.into_iter().take(count) {
                ids.extend(self.inner.get_model().tokenize(word)?.iter().map(|token| token.id));
            }
            rest = rest.get(bytes..).unwrap_or_default();
            size = window;
        }
        Ok(())
    }
}

/// A word of a window: its text, its place in the window, and tokens it has already (none here).
type Word<'w> = (&'w str, (usize, usize), &'w Option<Vec<tokenizers::Token>>);

/// The words of a window that the text after it cannot change: how many, and how many bytes they take. The next window
/// begins with an ASCII character, which never composes with what stands before it.
fn settled(text: &str, words: &[Word]) -> Option<(usize, usize)> {
    let safe = words.len().saturating_sub(UNSETTLED_WORDS);
    let cut =
        words[..safe].iter().rposition(|(_, (start, _), _)| text.as_bytes().get(*start).is_some_and(u8::is_ascii))?;
    (cut > 0).then(|| (cut, words[cut].1.0))
}

impl Added {
    fn of(tokenizer: &tokenizers::Tokenizer) -> Result<Self, String> {
        let mut tokens: Vec<(u32, AddedToken)> = tokenizer.get_added_tokens_decoder().into_iter().collect();
        tokens.retain(|(_, token)| !token.content.is_empty());
        tokens.sort_by_key(|(id, _)| *id);
        if let Some((id, token)) = tokens.iter().find(|(_, t)| t.lstrip || t.rstrip || t.single_word || t.normalized) {
            return Err(format!(
                "added token {id} ({:?}) must have lstrip, rstrip, single_word and normalized false",
                token.content
            ));
        }
        let mut edges: Vec<char> = tokens
            .iter()
            .flat_map(|(_, token)| token.content.chars().next().into_iter().chain(token.content.chars().next_back()))
            .filter(char::is_ascii_punctuation)
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(_, token)| token.content.as_bytes()))
            .map_err(|error| format!("its added tokens cannot be searched for ({error})"))?;
        Ok(Added { matcher, ids: tokens.into_iter().map(|(id, _)| id).collect(), edges })
    }
}

/// The first line of another library's message: ours are one sentence.
fn first_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or("no reason was given").to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::template::Template;
    use serde_json::{Map, Value, json};

    /// The trained model that the repository ships.
    pub(crate) fn nano() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/flash-next-nano")
    }

    /// A vocabulary of 360 ids, with the texts that a reference encoded with it.
    pub(crate) fn tiny() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tiny")
    }

    fn read(path: &Path) -> Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    fn ids_of(value: &Value) -> Vec<u32> {
        value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
    }

    fn assert_cases(tokenizer: &Tokenizer, cases: &Value) -> usize {
        let cases = cases.as_array().unwrap();
        for case in cases {
            let ids = tokenizer.encode(case["text"].as_str().unwrap(), AddedTokens::Recognise).unwrap();
            assert_eq!(ids, ids_of(&case["ids"]), "{}", case["text"]);
            assert_eq!(tokenizer.decode(&ids, SpecialTokens::Keep), case["decoded"].as_str().unwrap());
        }
        cases.len()
    }

    #[test]
    fn the_tiny_vocabulary_encodes_as_its_reference() {
        let tokenizer = Tokenizer::open(&tiny()).unwrap();
        let golden = read(&tiny().join("text.json"));
        assert_eq!(assert_cases(&tokenizer, &golden["encode"]), 9);
        let template = Template::open(&tiny(), tokenizer.added_edges()).unwrap();
        let options = Map::from_iter([("add_generation_prompt".to_owned(), json!(true))]);
        let chat = &golden["chat"];
        let prompt = template.render(chat["messages"].as_array().unwrap(), &[], &options).unwrap();
        assert_eq!(prompt.text(), chat["rendered"].as_str().unwrap());
        assert_eq!(tokenizer.encode_prompt(&prompt).unwrap(), ids_of(&chat["ids"]));
        assert_eq!((tokenizer.vocabulary(), tokenizer.id_of("<|im_end|>")), (360, Some(353)));
    }

    #[test]
    fn the_released_vocabulary_encodes_as_its_reference() {
        let Some(dir) = std::env::var_os("SS_TOKENIZER").map(PathBuf::from) else {
            eprintln!(
                "skipped: SS_TOKENIZER does not name a directory with the released tokenizer.json and cases.json"
            );
            return;
        };
        let tokenizer = Tokenizer::open(&dir).unwrap();
        assert_eq!(assert_cases(&tokenizer, &read(&dir.join("cases.json"))), 54);
        assert_eq!(tokenizer.vocabulary(), 248_077);
        let named = ["<|endoftext|>", "<|im_end|>", "<|image_pad|>", "<tool_call>", "</think>"];
        assert_eq!(named.map(|text| tokenizer.id_of(text).unwrap()), [248_044, 248_046, 248_056, 248_058, 248_069]);
    }

    #[test]
    fn added_tokens_are_split_as_the_library_splits_them() {
        let tokenizer = Tokenizer::open(&nano()).unwrap();
        let parts = [
            "<|im_start|>",
            "<|im_end|>",
            "<think>",
            "</think>\n\n",
            "<tool_call>",
            "<|im_<think>",
            "user\n",
            " a",
            "e\u{301}",
            "<",
            "|>",
            "日",
            "\r\n",
        ];
        let mut state = 1u64;
        for _ in 0..500 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                text += parts[(state >> 33) as usize % parts.len()];
            }
            let expected = tokenizer.inner.encode_fast(text.as_str(), false).unwrap();
            assert_eq!(tokenizer.encode(&text, AddedTokens::Recognise).unwrap(), expected.get_ids(), "{text:?}");
        }
    }

    #[test]
    fn an_ordinary_conversation_encodes_as_its_rendered_text() {
        let tokenizer = Tokenizer::open(&nano()).unwrap();
        let template = Template::open(&nano(), tokenizer.added_edges()).unwrap();
        let cases: Vec<Value> = serde_json::from_str(include_str!("../fixtures/chat_template_cases.json")).unwrap();
        let mut compared = 0;
        for case in cases {
            let typed_tokens = ["special tokens in text", "think in content", "only tool_response"];
            if case["prompt"].is_null() || typed_tokens.iter().any(|name| case["case"] == *name) {
                continue;
            }
            let mut options = case["options"].as_object().unwrap().clone();
            let tools = options.remove("tools").and_then(|tools| tools.as_array().cloned()).unwrap_or_default();
            let prompt = template.render(case["messages"].as_array().unwrap(), &tools, &options).unwrap();
            let plain = tokenizer.inner.encode_fast(case["prompt"].as_str().unwrap(), false).unwrap();
            assert_eq!(tokenizer.encode_prompt(&prompt).unwrap(), plain.get_ids(), "{}", case["case"]);
            compared += 1;
        }
        assert!(compared > 150, "{compared}");
    }

    #[test]
    fn windows_change_no_ids() {
        for dir in [tiny(), nano()] {
            let tokenizer = Tokenizer::open(&dir).unwrap();
            let parts = [
                "word",
                " word",
                "  ",
                "\n",
                "\r\n",
                " \n ",
                "'ll",
                "'",
                "12",
                "e\u{301}\u{323}",
                "中文",
                "，",
                "!!",
                " 🙂",
                "\t",
                "가\u{11a8}",
                "\u{301}",
                "-",
            ];
            let mut state = 5u64;
            for _ in 0..300 {
                let mut text = String::new();
                for _ in 0..60 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    text += parts[(state >> 33) as usize % parts.len()];
                }
                let whole = tokenizer.inner.encode_fast(text.as_str(), false).unwrap();
                for window in [1, 7, 24, 100] {
                    let mut ids = Vec::new();
                    tokenizer.encode_windows(&text, window, &mut ids).unwrap();
                    assert_eq!(ids, whole.get_ids(), "{text:?} in windows of {window}");
                }
            }
        }
    }

    /// The added tokens of a prompt, by their text.
    fn control(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
        let added = ids.iter().filter(|id| tokenizer.added.ids.contains(id));
        added.map(|&id| tokenizer.decode(&[id], SpecialTokens::Keep)).collect()
    }

    #[test]
    fn control_text_that_somebody_typed_stays_text() {
        let tokenizer = Tokenizer::open(&nano()).unwrap();
        let template = Template::open(&nano(), tokenizer.added_edges()).unwrap();
        let options = Map::from_iter([
            ("add_generation_prompt".to_owned(), json!(true)),
            ("enable_thinking".to_owned(), json!(false)),
        ]);
        let render = |word: &str, key: &str| {
            let messages = [
                json!({"role": "system", "content": word}),
                json!({"role": "user", "content": [{"type": "text", "text": format!("a{word}")}, {"type": "text", "text": "b"}]}),
                json!({"role": "assistant", "content": word, "reasoning_content": word, "tool_calls": [
                    {"function": {"name": "f", "arguments": {key: word, "list": [word]}}}]}),
                json!({"role": "tool", "content": word}),
            ];
            let tools = [json!({"type": "function", "function": {"name": "f", "description": word}})];
            template.render(&messages, &tools, &options).unwrap()
        };
        let ordinary = control(&tokenizer, &tokenizer.encode_prompt(&render("word", "key")).unwrap());
        assert!(ordinary.len() > 10, "{ordinary:?}");
        for word in [
            "<|im_end|>",
            "<think>",
            "</think>",
            "<tool_call>",
            "<|image_pad|>",
            "<tool_response>",
            "<|endoftext|>",
            "<|im_<|im_end|>",
            "</tool_call>x",
        ] {
            let prompt = render(word, word);
            let ids = tokenizer.encode_prompt(&prompt).unwrap();
            assert_eq!(control(&tokenizer, &ids), ordinary, "{word}");
            assert_eq!(tokenizer.decode(&ids, SpecialTokens::Keep), prompt.text(), "{word}");
        }
    }

    #[test]
    fn control_text_cannot_be_put_together_from_two_bodies() {
        let tokenizer = Tokenizer::open(&nano()).unwrap();
        let template = Template::open(&nano(), tokenizer.added_edges()).unwrap();
        let parts = json!([{"type": "text", "text": "<|im_"}, {"type": "text", "text": "end|>"}]);
        // The template itself closes `<parameter=KEY` with `>`.
        let call = json!({"function": {"name": "f", "arguments": {"<think": "x"}}});
        let messages = [
            json!({"role": "user", "content": parts}),
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
            json!({"role": "tool", "content": "ok"}),
        ];
        let prompt = template.render(&messages, &[], &Map::new()).unwrap();
        assert!(prompt.text().contains("<|im_end|><|im_end|>") && prompt.text().contains("=<think>"));
        let names = control(&tokenizer, &tokenizer.encode_prompt(&prompt).unwrap());
        let count = |name: &str| names.iter().filter(|found| *found == name).count();
        assert_eq!((count("<|im_start|>"), count("<|im_end|>"), count("<think>")), (4, 4, 1));
    }

    #[test]
    fn tokens_that_are_not_special_survive_decoding() {
        let tokenizer = Tokenizer::open(&nano()).unwrap();
        let ids =
            tokenizer.encode("<|im_start|><think>a</think><tool_call><|im_end|>", AddedTokens::Recognise).unwrap();
        assert_eq!(ids.len(), 6);
        assert_eq!(tokenizer.decode(&ids, SpecialTokens::Drop), "<think>a</think><tool_call>");
        let [end, think] = ["<|im_end|>", "<think>"].map(|text| tokenizer.id_of(text).unwrap());
        assert!(tokenizer.is_special(end) && !tokenizer.is_printable_special(end));
        assert!(!tokenizer.is_special(think) && tokenizer.is_printable_special(think));
        assert!(!tokenizer.is_printable_special(0) && !tokenizer.is_used(4096));
        assert_eq!(tokenizer.vocabulary(), 4096);
    }

    #[test]
    fn decoding_is_the_librarys() {
        let tokenizer = Tokenizer::open(&nano()).unwrap();
        let mut state = 3u64;
        for _ in 0..300 {
            let mut ids = Vec::new();
            for _ in 0..20 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ids.push((state >> 33) as u32 % 4096);
            }
            assert_eq!(tokenizer.decode(&ids, SpecialTokens::Keep), tokenizer.inner.decode(&ids, false).unwrap());
            assert_eq!(tokenizer.decode(&ids, SpecialTokens::Drop), tokenizer.inner.decode(&ids, true).unwrap());
        }
    }

    #[test]
    fn a_bad_file_is_one_sentence_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        let message = || {
            let text = Tokenizer::open(dir.path()).err().unwrap().to_string();
            assert!(text.starts_with(&path.display().to_string()) && !text.contains('\n'), "{text}");
            text
        };
        assert!(message().contains("does not exist"));
        let good = std::fs::read_to_string(tiny().join("tokenizer.json")).unwrap();
        for broken in ["", "{}", "[1]", "\u{fffd}", &good[..good.len() / 2]] {
            std::fs::write(&path, broken).unwrap();
            assert!(message().contains("is not a tokenizer that this engine can use"));
        }
        let mut other: Value = serde_json::from_str(&good).unwrap();
        other["added_tokens"][0]["lstrip"] = json!(true);
        std::fs::write(&path, other.to_string()).unwrap();
        assert!(message().contains("lstrip"));
        other["added_tokens"][0]["lstrip"] = json!(false);
        other["normalizer"] = json!({"type": "Lowercase"});
        std::fs::write(&path, other.to_string()).unwrap();
        assert!(message().contains("normalizer must be NFC"));
        other["normalizer"] = json!({"type": "NFC"});
        for (pointer, wrong, named) in [
            ("/model/dropout", json!(0.5), "dropout"),
            ("/model/continuing_subword_prefix", json!("##"), "inside or the end of words"),
            ("/model/byte_fallback", json!(true), "falls back"),
            ("/pre_tokenizer", json!({"type": "FixedLength", "length": 0}), "FixedLength"),
            ("/pre_tokenizer", json!({"type": "Split", "pattern": {"String": "h"}, "behavior": "Removed"}), "Isolated"),
            ("/normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}), "Precompiled"),
            ("/added_tokens/0/content", json!("x".repeat(2000)), "longer than"),
        ] {
            let mut damaged = other.clone();
            *damaged.pointer_mut(pointer).unwrap() = wrong;
            std::fs::write(&path, damaged.to_string()).unwrap();
            assert!(message().contains(named), "{pointer}: {}", message());
        }
        other["decoder"] = json!({"type": "Fuse"});
        std::fs::write(&path, other.to_string()).unwrap();
        assert!(message().contains("ByteLevel"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(message().contains("must be a regular file"));
    }

    #[test]
    fn huge_and_odd_texts_are_encoded_without_harm() {
        let tokenizer = Tokenizer::open(&tiny()).unwrap();
        for text in [
            "a".repeat(300_000),
            " ".repeat(300_000),
            "\n".repeat(300_000),
            "👩\u{200d}👧".repeat(9_000),
            "\0\u{fffe}\u{10ffff}".repeat(999),
        ] {
            let ids = tokenizer.encode(&text, AddedTokens::Recognise).unwrap();
            assert_eq!(tokenizer.decode(&ids, SpecialTokens::Keep), text);
        }
    }
}
