//! Read words: a check of the words in a model's inputs, by their characters, against the identifying words.
//!
//! The check does not use the flags. It spells each word of a batch from the pieces of its tokens, normalises it to the surface on
//! which supports are counted, and searches it among the words that fewer than k individuals use. If the tokenizer itself maps
//! several spellings to one (lower case, accents), a spelling that a shared word has too identifies no individual and is left out.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;
use hashbrown::{HashMap, HashSet};
use rayon::prelude::*;
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::error::{Error, Result};
use crate::text::surface::Surface;
use crate::tokenize::tokenizer_check::{fields_of, opened, unknown_of};

/// Bits of the class of a piece: a space before it, first letter upper case, a digit in it, a lower-case letter in it.
const SPACED: u8 = 1;
const UPPER: u8 = 2;
const DIGIT: u8 = 4;
const LOWER: u8 = 8;

pub struct ReadWords {
    /// Bytes of each id, a space before them where the vocabulary writes one.
    pieces: Vec<Box<[u8]>>,
    unknown: Option<u32>,
    surface: Surface,
    /// Spellings that only identifying words have, by hash: what is not found here was never added.
    rare: HashSet<u64, FixedState>,
}

impl ReadWords {
    /// `words` with whether each of them identifies; they are surfaces of an index.
    pub fn new(json: &str, words: &[&str], is_rare: &[u8], surface: Surface) -> Result<Self> {
        if words.len() != is_rare.len() {
            return Err(Error::Corpus(format!("{} flags for {} words", is_rare.len(), words.len())));
        }
        let mut tokenizer = opened(json)?;
        tokenizer.set_encode_special_tokens(true);
        let (pieces, unknown) = (pieces(&tokenizer, &fields_of(json)?), unknown_of(&tokenizer));
        let mut read = Self { pieces, unknown, surface, rare: HashSet::default() };
        let spelt: Vec<Option<u64>> = words
            .par_iter()
            .map(|word| {
                let tokens = tokenizer.encode_fast(*word, false).ok()?;
                let mut bytes = Vec::new();
                if !read.spell(tokens.get_ids().iter().copied(), &mut bytes) {
                    return None;
                }
                let text = std::str::from_utf8(&bytes).ok()?.trim();
                (!text.is_empty()).then(|| read.hash(text))
            })
            .collect();
        let of = |wanted: bool| {
            spelt.iter().zip(is_rare).filter(move |&(_, &rare)| (rare != 0) == wanted).filter_map(|(&hash, _)| hash)
        };
        let shared: HashSet<u64, FixedState> = of(false).collect();
        read.rare = of(true).filter(|hash| !shared.contains(hash)).collect();
        Ok(read)
    }

    /// Spellings that only identifying words have.
    pub fn len(&self) -> usize {
        self.rare.len()
    }

    /// What stands for characters without a piece.
    pub fn unknown(&self) -> Option<u32> {
        self.unknown
    }

    /// A class of bits for each id.
    pub fn classes(&self) -> Vec<u8> {
        self.pieces.iter().map(|piece| class_of(piece)).collect()
    }

    /// Words of a row that identify. Tokens of a word are those with its number that follow each other; words with a token
    /// that is `skipped` are passed over.
    pub fn count(&self, ids: &[i64], words: &[i32], skipped: &[bool]) -> usize {
        let (mut found, mut start, mut bytes) = (0, 0, Vec::new());
        while start < ids.len() {
            let word = words[start];
            let len = words[start..].iter().take_while(|&&other| other == word).count();
            let run = start..start + len;
            start = run.end;
            if word < 0 || skipped[run.clone()].contains(&true) {
                continue;
            }
            let tokens = ids[run].iter().map(|&id| u32::try_from(id).unwrap_or(u32::MAX));
            if self.spell(tokens, &mut bytes) {
                found += usize::from(self.holds(&bytes));
            }
        }
        found
    }

    /// Whether a run of ids spells a word that identifies.
    pub fn is_rare(&self, ids: &[u32]) -> bool {
        let mut bytes = Vec::new();
        self.spell(ids.iter().copied(), &mut bytes) && self.holds(&bytes)
    }

    /// The bytes of tokens; false where one of them is unknown.
    fn spell(&self, ids: impl Iterator<Item = u32>, bytes: &mut Vec<u8>) -> bool {
        bytes.clear();
        for id in ids {
            let Some(piece) = self.pieces.get(id as usize).filter(|_| Some(id) != self.unknown) else { return false };
            bytes.extend_from_slice(piece);
        }
        true
    }

    /// Whether one of the words of these bytes identifies. Pieces over words hold several, and marks may be glued on.
    fn holds(&self, bytes: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        text.split_whitespace().any(|part| {
            let bare = part.trim_matches(|c: char| !c.is_alphanumeric());
            self.rare.contains(&self.hash(part)) || (bare.len() < part.len() && self.rare.contains(&self.hash(bare)))
        })
    }

    fn hash(&self, text: &str) -> u64 {
        let surface: Cow<'_, str> = self.surface.apply(text);
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(surface.as_bytes());
        hasher.finish()
    }
}

fn class_of(piece: &[u8]) -> u8 {
    let text = String::from_utf8_lossy(piece);
    let bare = text.trim_start();
    let mut class = if bare.len() < text.len() { SPACED } else { 0 };
    if bare.chars().next().is_some_and(char::is_uppercase) {
        class |= UPPER;
    }
    if bare.chars().any(char::is_numeric) {
        class |= DIGIT;
    }
    if bare.chars().any(char::is_lowercase) {
        class |= LOWER;
    }
    class
}

/// The bytes that each id stands for.
fn pieces(tokenizer: &Tokenizer, parsed: &Value) -> Vec<Box<[u8]>> {
    let model = &parsed["model"];
    let byte_level = has_type(&parsed["pre_tokenizer"], "ByteLevel") || has_type(&parsed["decoder"], "ByteLevel");
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or("");
    let suffix = model["end_of_word_suffix"].as_str().unwrap_or("");
    let by_byte = model["byte_fallback"] == true;
    let bytes_of = byte_of_char();
    let vocabulary = tokenizer.get_vocab(true);
    let len = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
    let mut pieces = vec![Box::from([]); len];
    for (piece, id) in &vocabulary {
        let bytes = if byte_level {
            let exact: Option<Vec<u8>> = piece.chars().map(|c| bytes_of.get(&c).copied()).collect();
            exact.unwrap_or_else(|| piece.clone().into_bytes())
        } else if model["type"] == "WordPiece" {
            piece.strip_prefix(prefix).filter(|rest| !rest.is_empty()).unwrap_or(piece).as_bytes().into()
        } else if let Some(byte) = by_byte.then(|| fallback_byte(piece)).flatten() {
            vec![byte]
        } else {
            let bare = piece.strip_suffix(suffix).filter(|rest| !rest.is_empty()).unwrap_or(piece);
            bare.replace('▁', " ").into_bytes()
        };
        pieces[*id as usize] = bytes.into_boxed_slice();
    }
    pieces
}

/// Whether a part of a tokenizer, or a step of it, is of this type.
fn has_type(part: &Value, kind: &str) -> bool {
    part["type"] == kind
        || ["pretokenizers", "decoders"]
            .into_iter()
            .filter_map(|name| part[name].as_array())
            .flatten()
            .any(|step| has_type(step, kind))
}

fn fallback_byte(piece: &str) -> Option<u8> {
    u8::from_str_radix(piece.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

/// GPT-2's table of characters that stand for bytes.
fn byte_of_char() -> HashMap<char, u8, FixedState> {
    let mut next = 256;
    (0..=255u8)
        .map(|byte| {
            let printed = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
            let code = if printed {
                u32::from(byte)
            } else {
                next += 1;
                next - 1
            };
            (char::from_u32(code).unwrap_or('\u{fffd}'), byte)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDPIECE: &str = r###"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
        "lowercase": true}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null,
        "decoder": null, "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "smi": 1, "##th": 2, "as": 3, "the": 4, "##s": 5}}}"###;

    #[test]
    fn a_word_is_spelt_from_its_pieces() {
        let read = ReadWords::new(WORDPIECE, &["Smith", "AS", "as", "Zoë"], &[1, 1, 0, 1], Surface::Exact).unwrap();
        assert_eq!(read.len(), 1); // "AS" is spelt as a shared word is, "Zoë" has no pieces
        assert_eq!(read.count(&[4, 1, 2, 3], &[0, 1, 1, 2], &[false; 4]), 1);
        assert_eq!(read.count(&[4, 1, 2, 3], &[0, 1, 1, 2], &[false, false, true, false]), 0);
        assert_eq!(read.count(&[1, 2, 5], &[0, 0, 0], &[false; 3]), 0); // another word begins with it
        assert_eq!(read.count(&[1, 2], &[0, 1], &[false; 2]), 0); // two words, not one
        assert_eq!(read.count(&[1, 2], &[-1, -1], &[false; 2]), 0);
        assert!(read.is_rare(&[1, 2]) && !read.is_rare(&[3]) && !read.is_rare(&[0]) && !read.is_rare(&[99]));
    }

    #[test]
    fn characters_of_bytes_are_those_of_gpt2() {
        let bytes = byte_of_char();
        assert_eq!((bytes[&'Ġ'], bytes[&'Ċ'], bytes[&'a'], bytes[&'Ã']), (b' ', b'\n', b'a', 0xc3));
        assert_eq!(bytes.len(), 256);
    }

    #[test]
    fn classes_tell_space_case_and_digits() {
        assert_eq!(class_of(b" Smith"), SPACED | UPPER | LOWER);
        assert_eq!((class_of(b"ECG"), class_of(b"12a"), class_of(b"-")), (UPPER, DIGIT | LOWER, 0));
    }
}
