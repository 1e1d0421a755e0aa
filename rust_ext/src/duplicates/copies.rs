//! Copies: the hashes of each document that find documents which repeat another, and the texts that are equal.
//!
//! For each text two things are kept: its words as 64-bit hashes in order (8 bytes for each word; among a million distinct
//! words the probability of any collision is 3e-8), and a 128-bit hash of the whole text. The seeds of the hashes are
//! constants, so results never change.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::error::{Error, Result};
use crate::text::classes::InstructionSet;
use crate::text::surface::Surface;
use crate::text::texts::Texts;
use crate::text::words::{Scanner, check_length};

/// Every document as the hashes of its words: those of `d` are `words[offsets[d]..offsets[d + 1]]`.
pub struct Documents {
    pub offsets: Vec<usize>,
    pub words: Vec<u64>,
    /// Hash of the text in NFC, each run of white space as one space, none at its ends.
    texts: Vec<u128>,
}

/// Takes batches of documents in any order, from many threads.
#[derive(Default)]
pub struct Collector {
    parts: Mutex<Vec<Part>>,
}

struct Part {
    first: usize,
    /// Words up to the end of each document.
    ends: Vec<usize>,
    words: Vec<u64>,
    texts: Vec<u128>,
}

impl Collector {
    /// Add documents that are numbered from `first` on.
    pub fn add(&self, first: usize, texts: &Texts) -> Result<()> {
        let mut scanner = Scanner::new(InstructionSet::detect());
        let mut bounds = Vec::new();
        let mut part = Part { first, ends: Vec::new(), words: Vec::new(), texts: Vec::new() };
        let mut hasher = Xxh3::new();
        for row in 0..texts.len() {
            let text = texts.get(row);
            check_length(text, row)?;
            bounds.clear();
            scanner.words(text, &mut bounds);
            let word = |&(start, end): &(u32, u32)| {
                xxh3_64(Surface::Exact.apply(&text[start as usize..end as usize]).as_bytes())
            };
            part.words.extend(bounds.iter().map(word));
            part.ends.push(part.words.len());
            hasher.reset();
            for piece in text.split_whitespace() {
                hasher.update(Surface::Exact.apply(piece).as_bytes());
                hasher.update(b" ");
            }
            part.texts.push(hasher.digest128());
        }
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        Ok(())
    }

    /// All documents, whose numbers must run from 0 without a gap.
    pub fn finish(self) -> Result<Documents> {
        let mut parts = self.parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        parts.sort_unstable_by_key(|part| (part.first, part.ends.len()));
        let num_words = parts.iter().map(|part| part.words.len()).sum();
        let mut all = Documents { offsets: vec![0], words: Vec::with_capacity(num_words), texts: Vec::new() };
        for part in parts {
            if part.first != all.len() {
                return Err(Error::Corpus(format!("document {} expected next, got {}", all.len(), part.first)));
            }
            let base = all.words.len();
            all.words.extend(part.words);
            all.offsets.extend(part.ends.iter().map(|end| base + end));
            all.texts.extend(part.texts);
        }
        Ok(all)
    }
}

impl Documents {
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    pub fn words_of(&self, document: usize) -> &[u64] {
        &self.words[self.offsets[document]..self.offsets[document + 1]]
    }

    /// For each document the first one with an equal text (itself, where there is none before it).
    pub fn first_equal(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.par_sort_unstable_by_key(|&document| (self.texts[document as usize], document));
        let mut first_equal: Vec<u32> = (0..self.len() as u32).collect();
        for group in order.chunk_by(|&a, &b| self.texts[a as usize] == self.texts[b as usize]) {
            let words = self.words_of(group[0] as usize);
            for &document in &group[1..] {
                if self.words_of(document as usize) == words {
                    first_equal[document as usize] = group[0];
                }
            }
        }
        first_equal
    }

    /// `Err` unless there is a number for each document.
    pub fn check(&self, num: usize, of: &str) -> Result<()> {
        if num != self.len() {
            return Err(Error::Corpus(format!("{num} {of} were given for {} documents", self.len())));
        }
        Ok(())
    }
}
