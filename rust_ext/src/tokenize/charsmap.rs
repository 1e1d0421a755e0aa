//! Maps of SentencePiece (the `Precompiled` normaliser of XLM-R, T5, CamemBERT): offsets recovered where they delete characters.
//!
//! The tokenizers library takes the length of what a map deletes off the character before. Where there is none, at the start
//! of a text, every offset after it is too small; where that one had become several (`ﬁ`), the last of these stands at the
//! deleted character. So deleted characters at the start are cut off before the library sees them, and a token that begins at
//! a deleted character is taken to begin with what stands before it: tokens can only become wider, so that protection grows.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};
use unicode_normalization::char::is_combining_mark;

pub struct Charsmap {
    maps: Vec<NormalizerWrapper>,
    /// Whether the maps leave nothing of a character, for those that were met.
    deletes: RwLock<HashMap<char, bool>>,
}

impl Charsmap {
    /// The maps of a `tokenizer.json`; None where it has none.
    pub fn of(tokenizer: &Value) -> Option<Self> {
        let mut maps = Vec::new();
        collect(&tokenizer["normalizer"], &mut maps);
        (!maps.is_empty()).then(|| Self { maps, deletes: RwLock::default() })
    }

    /// Bytes at the start of which nothing is left.
    pub fn deleted_prefix(&self, text: &str) -> usize {
        text.char_indices().find(|&(_, c)| !self.is_deleted(c)).map_or(0, |(at, _)| at)
    }

    /// Where a token begins that the library lets begin at `start`.
    pub fn begin(&self, text: &str, start: usize) -> usize {
        if !text[start..].starts_with(|c| self.is_deleted(c)) {
            return start;
        }
        // Back to the character that is left, and from a mark on to what it hangs on.
        let moved = text[..start].char_indices().rfind(|&(_, c)| !self.is_deleted(c) && !is_combining_mark(c));
        moved.map_or(start, |(at, _)| at)
    }

    fn is_deleted(&self, c: char) -> bool {
        if c == ' ' || c.is_ascii_graphic() {
            return false;
        }
        if let Some(&known) = self.deletes.read().unwrap_or_else(PoisonError::into_inner).get(&c) {
            return known;
        }
        let mut left = NormalizedString::from(c.to_string());
        let is_deleted = self.maps.iter().all(|map| map.normalize(&mut left).is_ok()) && left.get().is_empty();
        self.deletes.write().unwrap_or_else(PoisonError::into_inner).insert(c, is_deleted);
        is_deleted
    }
}

fn collect(normalizer: &Value, maps: &mut Vec<NormalizerWrapper>) {
    if normalizer["type"] == "Precompiled" {
        maps.extend(serde_json::from_value(normalizer.clone()).ok());
    }
    normalizer["normalizers"].as_array().into_iter().flatten().for_each(|part| collect(part, maps));
}
