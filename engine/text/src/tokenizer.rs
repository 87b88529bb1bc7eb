//! Owns: a model directory's tokenizer.json: text to ids and ids to text.
//! Refuses: an absent, broken or oversized file; decoders other than byte-level; added tokens that swallow the space
//! around them or match normalised text (no model of the family has one).
//! Invariants: text that is marked as typed by a person never yields an added token ([`Prompt`]); decoding is joining.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::tokenizer::{Model, OffsetType, PreTokenizer};
use tokenizers::{AddedToken, DecoderWrapper, Normalizer, PreTokenizedString};

use crate::error::TextError;
use crate::guard::Prompt;
use crate::vocabulary::{SpecialTokens, Vocabulary};

/// A tokenizer file larger than this is refused unread: the released model's is 12.8 MB.
const MAX_FILE_BYTES: u64 = 256 << 20;

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
        let json = read_bounded(path)?;
        let refuse = |reason: String| TextError::Tokenizer { path: path.to_owned(), reason };
        let inner = tokenizers::Tokenizer::from_bytes(&json).map_err(|error| refuse(first_line(&error)))?;
        if !matches!(inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
            return Err(refuse("its decoder must be of type ByteLevel".to_owned()));
        }
        let added = Added::of(&inner).map_err(&refuse)?;
        let decoder = inner.get_added_vocabulary().get_added_tokens_decoder();
        let special: Vec<u32> = decoder.iter().filter(|(_, token)| token.special).map(|(&id, _)| id).collect();
        let vocabulary = Vocabulary::new(&inner.get_vocab(true), &special).map_err(&refuse)?;
        Ok(Tokenizer { path: path.to_owned(), inner, vocabulary: Arc::new(vocabulary), added })
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
        if text.is_empty() {
            return Ok(());
        }
        let steps = || -> tokenizers::Result<Vec<u32>> {
            let mut words = PreTokenizedString::from(text);
            if let Some(normalizer) = self.inner.get_normalizer() {
                words.normalize(|piece| normalizer.normalize(piece))?;
            }
            if let Some(splitter) = self.inner.get_pre_tokenizer() {
                splitter.pre_tokenize(&mut words)?;
            }
            words.tokenize(|word| self.inner.get_model().tokenize(word.get()))?;
            Ok(words.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
        };
        ids.extend(steps().map_err(|error| TextError::Encode { path: self.path.clone(), reason: first_line(&error) })?);
        Ok(())
    }
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

/// The file's bytes, or one sentence: absent, a directory, too large, unreadable.
fn read_bounded(path: &Path) -> Result<Vec<u8>, TextError> {
    let unreadable = |reason: String| TextError::Unreadable { path: path.to_owned(), reason };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(TextError::Missing { path: path.to_owned() });
        }
        Err(error) => return Err(unreadable(error.to_string())),
    };
    if !meta.is_file() {
        return Err(unreadable("it must be a regular file".to_owned()));
    }
    if meta.len() > MAX_FILE_BYTES {
        return Err(unreadable(format!("it has {} bytes, at most {MAX_FILE_BYTES} are expected", meta.len())));
    }
    std::fs::read(path).map_err(|error| unreadable(error.to_string()))
}

/// The first line of another library's message: ours are one sentence.
fn first_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or("no reason was given").to_owned()
}
