//! Sorted: one dictionary, its surfaces in byte order.
//!
//! What is sorted is not the words but a head of each: its first 16 bytes as an integer, and its id. Nearly all comparisons are
//! decided by two integers that lie in the array that is sorted. A sort of ids, with the words elsewhere, would wait for
//! memory twice for each comparison.

use std::cmp::Ordering;
use std::sync::Arc;

use rayon::prelude::*;

use super::{LENGTH_BYTES, Size};
use crate::error::Result;
use crate::index::counts::Counted;
use crate::index::dictionary::Dictionary;
use crate::storage::buffer::prefetch;
use crate::storage::spool::{Spool, Store};
use crate::storage::strings::Strings;
use crate::text::surface::Surface;

/// Words whose counts are fetched into the cache before they are needed.
const AHEAD: usize = 16;

/// A dictionary that takes no more words: its distinct surfaces in byte order, and the place of each of its words among them.
pub struct Sorted {
    pub(super) names: Names,
    /// Word id in the dictionary -> place of its surface here. Not a permutation where spellings share a surface.
    pub(super) places: Numbers,
}

/// A table of numbers, read whole or not at all.
pub(super) enum Numbers {
    Memory(Vec<u32>),
    Spooled(Spool<u32>),
}

impl Numbers {
    pub(super) fn push(&mut self, number: u32) -> Result<()> {
        match self {
            Self::Memory(numbers) => numbers.push(number),
            Self::Spooled(numbers) => numbers.push(number)?,
        }
        Ok(())
    }

    pub(super) fn into_vec(self) -> Result<Vec<u32>> {
        match self {
            Self::Memory(numbers) => Ok(numbers),
            Self::Spooled(numbers) => numbers.to_vec(),
        }
    }
}

pub(super) enum Names {
    Memory(Counted),
    /// Length and bytes of each surface, one after the other; how often each was seen; its support so far; and whether all of
    /// it was counted in the subset. (A closed dictionary has documents of one side alone, so its counts in the subset are
    /// its counts, or 0, and need not be stored.)
    Spooled(Spool<u8>, Spool<u64>, Spool<u32>, bool),
}

impl Sorted {
    pub fn new(dictionary: Dictionary, surface: Surface) -> Self {
        let Counted { words, whole, subset } = dictionary.into_counted();
        let words = surfaces(words, surface);
        let mut order: Vec<Head> = words.iter().zip(0..).map(|(word, id)| Head::new(word, id)).collect();
        let compare = |a: &Head, b: &Head| a.compare(b, &words);
        // Outside a pool this would start rayon's own, which does not survive a `fork` (`pool`).
        match rayon::current_thread_index() {
            Some(_) => order.par_sort_unstable_by(compare),
            None => order.sort_unstable_by(compare),
        }
        // From sorted heads back to columns by id: reads at random, so the counts of the words to come are fetched ahead.
        let mut sorted = Counted::with_capacity(&words, !subset.support.is_empty());
        // Written at random, once: the only such pass over a column, and why the next heads are looked at ahead.
        let mut places = vec![0u32; words.len()];
        for (at, head) in order.iter().enumerate() {
            if let Some(ahead) = order.get(at + AHEAD) {
                whole.fetch(ahead.id as usize);
                subset.fetch(ahead.id as usize);
                prefetch(&places[ahead.id as usize]);
            }
            let id = head.id as usize;
            places[id] = head.with_word(&words, |word| sorted.take(word, whole.get(id), subset.get(id))) as u32;
        }
        Self { names: Names::Memory(sorted), places: Numbers::Memory(places) }
    }

    /// Distinct surfaces, and their bytes.
    pub fn size(&self) -> Size {
        match &self.names {
            Names::Memory(counted) => Size::of(&counted.words),
            Names::Spooled(bytes, occurrences, ..) => {
                Size { num: occurrences.len(), num_bytes: bytes.len() - LENGTH_BYTES * occurrences.len() }
            }
        }
    }

    /// Move all to pages of a store. Nothing, or everything, was counted of the subset (`of_subset`).
    pub fn spool(self, of_subset: bool, store: &Arc<Store>) -> Result<Self> {
        let (Names::Memory(counted), Numbers::Memory(numbers)) = (&self.names, &self.places) else {
            return Ok(self);
        };
        let mut places = Spool::new(store);
        places.extend(numbers)?;
        // Three spools of one width each, and not one of records: packing (`storage::packing`) gives a page the width
        // of its largest number.
        let (mut bytes, mut occurrences, mut support) = (Spool::new(store), Spool::new(store), Spool::new(store));
        for word in counted.words.iter() {
            bytes.extend(&(word.len() as u64).to_le_bytes())?;
            bytes.extend(word.as_bytes())?;
        }
        occurrences.extend(&counted.whole.occurrences)?;
        support.extend(&counted.whole.support)?;
        Ok(Self { names: Names::Spooled(bytes, occurrences, support, of_subset), places: Numbers::Spooled(places) })
    }
}

/// Words by id, as their surfaces. The whole arena is tested at once: with the exact surface, text is nearly always in NFC.
fn surfaces(words: Strings, surface: Surface) -> Strings {
    if surface.keeps(words.as_str()) {
        return words;
    }
    let mut changed = Strings::new();
    for word in words.iter() {
        changed.push(&surface.apply(word));
    }
    changed
}

/// A word as it is sorted. Most words are compared, and copied to the sorted list, without a look at the arena.
struct Head {
    /// The first 16 bytes, most significant first, so that integers compare as the bytes do; zeros after a shorter word.
    first: u128,
    /// Length in bytes. Tells a word from one that has zero bytes more, which `first` cannot.
    len: u32,
    id: u32,
}

impl Head {
    fn new(word: &str, id: u32) -> Self {
        let mut first = [0u8; 16];
        let len = word.len().min(16);
        first[..len].copy_from_slice(&word.as_bytes()[..len]);
        Self { first: u128::from_be_bytes(first), len: u32::try_from(word.len()).unwrap_or(u32::MAX), id }
    }

    #[inline(always)]
    fn compare(&self, other: &Self, words: &Strings) -> Ordering {
        self.first.cmp(&other.first).then_with(|| match self.len.min(other.len) {
            // One begins with the other.
            0..=16 => self.len.cmp(&other.len),
            _ => words.get(self.id as usize).cmp(words.get(other.id as usize)),
        })
    }

    #[inline(always)]
    fn with_word<T>(&self, words: &Strings, take: impl FnOnce(&str) -> T) -> T {
        let bytes = self.first.to_be_bytes();
        match bytes.get(..self.len as usize).map(std::str::from_utf8) {
            Some(Ok(word)) => take(word),
            _ => take(words.get(self.id as usize)),
        }
    }
}
