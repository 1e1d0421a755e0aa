//! Numbers: the words of documents by their rows in an index, so that what follows from supports needs no text.
//!
//! A number takes three bytes, four where the index has more words than three count. A word that the index does not hold
//! has the largest number of all.

use std::ops::Range;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::lookup::Found;
use crate::index::ngram_index::NgramIndex;
use crate::text::texts::Texts;
use crate::text::words::Words;

/// The number of a word that an index does not hold, as [`Numbers::get`] gives it.
pub const UNKNOWN: u32 = u32::MAX;

/// Bytes a number takes.
pub fn width_of(num_words: usize) -> usize {
    if num_words < (1 << 24) - 1 { 3 } else { 4 }
}

/// Numbers of words in bytes.
#[derive(Clone, Copy)]
pub struct Numbers<'a> {
    bytes: &'a [u8],
    width: usize,
}

impl<'a> Numbers<'a> {
    pub fn new(bytes: &'a [u8], width: usize) -> Result<Self> {
        if !(3..=4).contains(&width) || !bytes.len().is_multiple_of(width) {
            return Err(Error::Artifact("word numbers: not a whole number of words; damaged, make them again".into()));
        }
        Ok(Self { bytes, width })
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / self.width
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline(always)]
    pub fn get(&self, word: usize) -> u32 {
        let at = word * self.width;
        if self.width == 3 { of_three(&self.bytes[at..at + 3]) } else { of_four(&self.bytes[at..at + 4]) }
    }

    /// The numbers of some words, as [`Numbers::get`] gives them, in place of what is in `to`.
    pub fn read(&self, words: Range<usize>, to: &mut Vec<u32>) {
        let bytes = &self.bytes[words.start * self.width..words.end * self.width];
        to.clear();
        if self.width == 3 {
            to.extend(bytes.chunks_exact(3).map(of_three));
        } else {
            to.extend(bytes.chunks_exact(4).map(of_four));
        }
    }
}

#[inline(always)]
fn of_three(bytes: &[u8]) -> u32 {
    let number = u32::from(bytes[0]) | u32::from(bytes[1]) << 8 | u32::from(bytes[2]) << 16;
    if number == (1 << 24) - 1 { UNKNOWN } else { number }
}

#[inline(always)]
fn of_four(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Documents that one thread takes at a time.
const SHARE: usize = 64;

impl NgramIndex {
    /// The number of each word of the texts, in bytes.
    pub fn number_words(&self, texts: &Texts, words: &Words) -> Result<Vec<u8>> {
        words.check(texts.len())?;
        let (lookup, width) = (self.lookup(), width_of(self.words.len()));
        let mut bytes = vec![0u8; words.starts.len() * width];
        let (mut jobs, mut left) = (Vec::new(), &mut bytes[..]);
        for first in (0..texts.len()).step_by(SHARE) {
            let rows = first..(first + SHARE).min(texts.len());
            let own;
            (own, left) = left.split_at_mut((words.first(rows.end) - words.first(rows.start)) * width);
            jobs.push((rows, own));
        }
        jobs.into_par_iter().with_max_len(1).for_each(|(rows, own)| {
            let mut memo = lookup.memo();
            let mut places = own.chunks_exact_mut(width);
            for row in rows {
                let known = (&self.words, &*self.support);
                lookup.find_all(known, texts.get(row), words.of(row), &mut memo, |_, found| {
                    // Every word that is listed has a support.
                    let number = if found.support > 0 { found.id } else { UNKNOWN };
                    if let Some(place) = places.next() {
                        place.copy_from_slice(&number.to_le_bytes()[..width]);
                    }
                });
            }
            lookup.put_back(memo);
        });
        Ok(bytes)
    }

    /// For each word of `numbered` (of the same surface) what this index says of it.
    pub fn found_by_number(&self, numbered: &NgramIndex) -> Vec<Found> {
        let mut own = 0;
        let is_same = std::ptr::eq(self, numbered);
        (0..numbered.words.len())
            .map(|number| {
                if is_same {
                    own = number;
                } else {
                    let word = numbered.words.get(number);
                    while own < self.words.len() && self.words.get(own) < word {
                        own += 1;
                    }
                    if own == self.words.len() || self.words.get(own) != word {
                        return Found::default();
                    }
                }
                Found { id: own as u32, support: self.support[own] }
            })
            .collect()
    }
}
