//! Owns: the bytes of every token, and which tokens a reader sees.
//! Refuses: ids beyond [`MAX_TOKENS`], so that a broken file cannot ask for unbounded memory.
//! Invariants: the bytes of a token never depend on its neighbours, so a text is its tokens' bytes, joined.

use std::collections::HashMap;

/// More ids than any vocabulary of the family has (248,320 in the released model).
pub(crate) const MAX_TOKENS: usize = 1 << 22;

/// Tags that a reply's readers look for: printed whatever the tokenizer file says of them (chat-template.md section 5).
const TAGS: [&str; 4] = ["<think>", "</think>", "<tool_call>", "</tool_call>"];

/// Whether the tokens marked `special` in the tokenizer file are written when ids become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// Every token is written.
    Keep,
    /// Control tokens are left out; added tokens that are not special, and the tags of a reply, stay.
    Drop,
}

/// What the table holds of one id.
#[derive(Clone, Copy, Default)]
struct Token {
    start: u32,
    len: u32,
    used: bool,
    special: bool,
    hidden: bool,
}

/// The table of all tokens, indexed by id.
pub(crate) struct Vocabulary {
    bytes: Vec<u8>,
    tokens: Vec<Token>,
}

impl Vocabulary {
    /// The table of `texts` (a token's text in the tokenizer file, and its id) with the ids marked `special`.
    pub(crate) fn new(texts: &HashMap<String, u32>, special: &[u32]) -> Result<Self, String> {
        let count = texts.values().max().map_or(0, |&id| id as usize + 1);
        if count == 0 || count > MAX_TOKENS {
            return Err(format!("its highest id must be below {MAX_TOKENS}, and it has {count} ids"));
        }
        let byte_of = byte_level_bytes();
        let mut table = Vocabulary { bytes: Vec::new(), tokens: vec![Token::default(); count] };
        for (text, &id) in texts {
            let start = table.bytes.len();
            table.bytes.extend(token_bytes(text, &byte_of));
            let len = table.bytes.len() - start;
            let (Ok(start), Ok(len)) = (u32::try_from(start), u32::try_from(len)) else {
                return Err("its tokens hold more than 4 GiB of text".to_owned());
            };
            let special = special.contains(&id);
            let hidden = special && !TAGS.contains(&text.as_str());
            table.tokens[id as usize] = Token { start, len, used: true, special, hidden };
        }
        Ok(table)
    }

    /// The highest id and one: ids from here on are padding of the embedding.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether the tokenizer file has this id.
    pub(crate) fn is_used(&self, id: u32) -> bool {
        self.token(id).used
    }

    /// Whether the tokenizer file marks this id as special.
    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.token(id).special
    }

    /// The bytes of one token: none for an id that is not used.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        let token = self.token(id);
        let start = token.start as usize;
        self.bytes.get(start..start + token.len as usize).unwrap_or_default()
    }

    /// The bytes that a reader sees of one token.
    pub(crate) fn seen_bytes(&self, id: u32, special: SpecialTokens) -> &[u8] {
        if special == SpecialTokens::Drop && self.token(id).hidden { &[] } else { self.bytes(id) }
    }

    fn token(&self, id: u32) -> Token {
        self.tokens.get(id as usize).copied().unwrap_or_default()
    }
}

/// A token's text as bytes: each character stands for one byte, unless one of them stands for none (an added token).
fn token_bytes(text: &str, byte_of: &HashMap<char, u8>) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = text.chars().map(|c| byte_of.get(&c).copied()).collect();
    bytes.unwrap_or_else(|| text.as_bytes().to_vec())
}

/// The byte-level alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100 onwards in order.
fn byte_level_bytes() -> HashMap<char, u8> {
    let mut shifted = 0u32;
    let mut table = HashMap::with_capacity(256);
    for byte in 0..=u8::MAX {
        let code = if matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) {
            u32::from(byte)
        } else {
            shifted += 1;
            0xff + shifted
        };
        if let Some(letter) = char::from_u32(code) {
            table.insert(letter, byte);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    #[test]
    fn the_alphabet_is_the_librarys() {
        let table = byte_level_bytes();
        assert_eq!(table.len(), 256);
        assert!(ByteLevel::alphabet().iter().all(|letter| table.contains_key(letter)));
        assert_eq!((table[&'Ġ'], table[&'Ċ'], table[&'a'], table[&'é']), (b' ', b'\n', b'a', 0xe9));
    }

    #[test]
    fn a_huge_id_is_refused() {
        let texts = HashMap::from([("a".to_owned(), u32::MAX)]);
        assert!(Vocabulary::new(&texts, &[]).is_err());
    }

    #[test]
    fn tags_are_printed_even_when_the_file_calls_them_special() {
        let texts = HashMap::from([("<think>".to_owned(), 0), ("<|im_end|>".to_owned(), 1)]);
        let table = Vocabulary::new(&texts, &[0, 1]).unwrap();
        assert_eq!(table.seen_bytes(0, SpecialTokens::Drop), b"<think>");
        assert_eq!(table.seen_bytes(1, SpecialTokens::Drop), b"");
        assert_eq!(table.seen_bytes(1, SpecialTokens::Keep), b"<|im_end|>");
        assert_eq!(table.seen_bytes(7, SpecialTokens::Keep), b"");
    }
}
