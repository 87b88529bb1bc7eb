//! Owns: the words beside a made-up model: a tokenizer of single bytes, a chat template, settings of a reply.
//! Refuses: vocabularies without room for 256 bytes and the control tokens.
//! Invariants: ids that the configuration names keep their meaning; every id that can be drawn is some text, and only bytes
//! and control tokens are ever made of text.

use serde_json::{Map, Value, json};
use ss_checkpoint::Geometry;

use crate::error::{Error, Result};

/// One turn after the other, as the family writes them.
pub(crate) const TEMPLATE: &str = "\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}{{- message.content -}}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
";

/// Control tokens that the configuration gives ids, by its field.
const NAMED: [(&str, &str); 4] = [
    ("vision_start_token_id", "<|vision_start|>"),
    ("vision_end_token_id", "<|vision_end|>"),
    ("image_token_id", "<|image_pad|>"),
    ("video_token_id", "<|video_pad|>"),
];
/// Control tokens that take the first free ids behind the end of text, as in the family's vocabulary.
const FOLLOWING: [&str; 6] = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>"];
const END_OF_TEXT: &str = "<|endoftext|>";
const END_OF_TURN: &str = "<|im_end|>";
const BYTES: u32 = 256;

/// The ids of a made-up vocabulary.
pub(crate) struct Words {
    control: Vec<(u32, &'static str)>,
    texts: Map<String, Value>,
}

impl Words {
    /// The words of a configuration.
    pub(crate) fn new(config: &Value, geometry: &Geometry) -> Result<Self> {
        let needed = BYTES + (1 + NAMED.len() + FOLLOWING.len()) as u32;
        if geometry.vocab < needed {
            return Err(Error::Vocabulary { needed, found: geometry.vocab });
        }
        let mut ids = Ids { taken: vec![false; geometry.vocab as usize], control: Vec::new() };
        ids.take(geometry.ngram.boundary, END_OF_TEXT);
        for (field, text) in NAMED {
            let id = config.get(field).and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
            id.into_iter().for_each(|id| ids.take(id, text));
        }
        FOLLOWING.into_iter().for_each(|text| ids.take_after(geometry.ngram.boundary, text));
        let texts = ids.texts();
        Ok(Words { control: ids.control, texts })
    }

    /// `tokenizer.json`.
    pub(crate) fn tokenizer(&self) -> Value {
        let added: Vec<Value> = self.control.iter().map(|(id, text)| added(*id, text)).collect();
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": { "type": "NFC" },
            "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false },
            "post_processor": null,
            "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": self.texts, "merges": [],
            },
        })
    }

    /// `tokenizer_config.json`.
    pub(crate) fn tokenizer_config(&self) -> Value {
        json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END_OF_TURN,
            "pad_token": END_OF_TEXT,
            "clean_up_tokenization_spaces": false,
        })
    }

    /// `generation_config.json`: the family's own settings (checkpoint.md section 6).
    pub(crate) fn generation_config(&self) -> Value {
        let id = |wanted: &str| self.control.iter().find(|(_, text)| *text == wanted).map(|(id, _)| *id);
        let ends: Vec<u32> = [END_OF_TURN, END_OF_TEXT].into_iter().filter_map(id).collect();
        json!({ "do_sample": true, "eos_token_id": ends, "temperature": 1.0, "top_k": 20, "top_p": 0.95 })
    }
}

/// Ids while they are given away.
struct Ids {
    taken: Vec<bool>,
    control: Vec<(u32, &'static str)>,
}

impl Ids {
    /// Gives an id to a control token, unless it has none to give.
    fn take(&mut self, id: u32, text: &'static str) {
        if let Some(taken @ false) = self.taken.get_mut(id as usize) {
            *taken = true;
            self.control.push((id, text));
        }
    }

    /// Gives the first free id behind another, or else the last free one of all.
    fn take_after(&mut self, after: u32, text: &'static str) {
        let free = |id: &u32| self.taken.get(*id as usize) == Some(&false);
        let all = self.taken.len() as u32;
        let id = (after.saturating_add(1)..all).find(free).or_else(|| (0..all).rev().find(free));
        id.into_iter().for_each(|id| self.take(id, text));
    }

    /// The text of every id up to the last that text can become; those behind are padding, which is never drawn.
    fn texts(&self) -> Map<String, Value> {
        let mut free = (0..).zip(&self.taken).filter(|(_, taken)| !**taken).map(|(id, _)| id);
        let mut texts: Vec<(u32, String)> =
            letters().zip(free.by_ref()).map(|(letter, id)| (id, letter.into())).collect();
        let control = self.control.iter().map(|&(id, text)| (id, text.to_owned()));
        texts.extend(control);
        let last = texts.iter().map(|(id, _)| *id).max().unwrap_or_default();
        texts.extend(free.take_while(|id| *id < last).map(|id| (id, word(id))));
        texts.sort_unstable_by_key(|(id, _)| *id);
        texts.into_iter().map(|(id, text)| (text, Value::from(id))).collect()
    }
}

/// The characters that stand for the bytes in a byte-level vocabulary: printable ones for themselves, the others from
/// U+0100 on.
fn letters() -> impl Iterator<Item = char> {
    let mut shifted = 0xFF;
    (0..=u8::MAX).map(move |byte| match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        _ => {
            shifted += 1;
            char::from_u32(shifted).unwrap_or_default()
        }
    })
}

/// A word that can be spoken, with the space before it: what a reply of such a model is made of.
fn word(id: u32) -> String {
    const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
    const VOWELS: &[u8; 4] = b"aeio";
    /// The space of a byte-level vocabulary.
    const SPACE: char = '\u{120}';
    /// Bits of the id in one syllable: four for its consonant, two for its vowel.
    const SYLLABLE: u32 = 6;
    let mut text = String::from(SPACE);
    let mut rest = id;
    // Two at least: a single syllable is no word.
    for place in 0.. {
        if place > 1 && rest == 0 {
            break;
        }
        text.push(char::from(CONSONANTS[(rest >> 2 & 15) as usize]));
        text.push(char::from(VOWELS[(rest & 3) as usize]));
        rest >>= SYLLABLE;
    }
    text
}

fn added(id: u32, text: &str) -> Value {
    // Tags of a reply are text to its reader, the others are not.
    let special = text.starts_with("<|");
    json!({
        "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": special,
    })
}
