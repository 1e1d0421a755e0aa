//! Sorted: one dictionary, its surfaces in byte order.
//!
//! What is sorted is not the words but a head of each: its first 16 bytes as an integer, and its id. Nearly all comparisons are
//! decided by two integers that lie in the array that is sorted. A sort of ids, with the words elsewhere, would wait for
//! memory twice for each comparison.
//!
//! Cost: w log w comparisons for w words. While it is sorted a dictionary is in memory twice, as it came and in order, with
//! 32 bytes a word for the heads and 4 for the places. Under a limit the builder closes dictionaries early enough for that
//! (`is_full`).
//!
//! The result depends on the words and their counts alone. Ids depend on the order of arrival, and end in `places`.

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
    /// In memory from `new` to `spool`, and then on disk as far as the store has no room; `places` is in the same
    /// state.
    pub(super) names: Names,
    /// Word id in the dictionary -> place of its surface here. Not a permutation where spellings share a surface.
    /// As long as the dictionary, since the stream of the worker holds its ids. Example: the letter `é` and an `e`
    /// with a combining accent are two spellings with two ids. They are one surface, and both ids have its place.
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

/// The words of a sorted dictionary with what was counted of each, in byte order and each once. So a word is its
/// place, and all columns are equally long but the subset's.
pub(super) enum Names {
    Memory(Counted),
    /// Length and bytes of each surface, one after the other; how often each was seen; its support so far; and whether all of
    /// it was counted in the subset. (A closed dictionary has documents of one side alone, so its counts in the subset are
    /// its counts, or 0, and need not be stored.)
    Spooled(Spool<u8>, Spool<u64>, Spool<u32>, bool),
}

impl Sorted {
    /// Sort a dictionary. Spellings of one surface become neighbours, and one word: their counts are added up.
    pub fn new(dictionary: Dictionary, surface: Surface) -> Self {
        let Counted { words, whole, subset } = dictionary.into_counted();
        // Before the sort and not after it: a surface may come elsewhere in the order than its spelling.
        let words = surfaces(words, surface);
        let mut order: Vec<Head> = words.iter().zip(0..).map(|(word, id)| Head::new(word, id)).collect();
        // An unstable sort will do: heads that compare as equal are one surface, so their order changes neither a
        // place nor a sum. It sorts in place, where a stable one would take memory beside the heads.
        let compare = |a: &Head, b: &Head| a.compare(b, &words);
        // Outside a pool this would start rayon's own, which does not survive a `fork` (`pool`).
        match rayon::current_thread_index() {
            Some(_) => order.par_sort_unstable_by(compare),
            None => order.sort_unstable_by(compare),
        }
        // From sorted heads back to columns by id: reads at random, so the counts of the words to come are fetched ahead.
        // With room for all words, so that no column is in memory twice while it grows. Surfaces that become one
        // leave some of it unused.
        let mut sorted = Counted::with_capacity(&words, !subset.support.is_empty());
        let mut places = vec![0u32; words.len()];
        for (at, head) in order.iter().enumerate() {
            if let Some(ahead) = order.get(at + AHEAD) {
                whole.fetch(ahead.id as usize);
                subset.fetch(ahead.id as usize);
                prefetch(&places[ahead.id as usize]);
            }
            let id = head.id as usize;
            // Equal words come one after the other, so `take` gives them the number of the first.
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
    ///
    /// After an error (a full disk) the dictionary is lost, and its pages are given back. A dictionary that is
    /// spooled already stays as it is.
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
            // Example: `cough` is 05 00 00 00 00 00 00 00 and its five bytes. The length stands in front, so that a
            // reader knows how many bytes to ask for.
            bytes.extend(&(word.len() as u64).to_le_bytes())?;
            bytes.extend(word.as_bytes())?;
        }
        occurrences.extend(&counted.whole.occurrences)?;
        support.extend(&counted.whole.support)?;
        Ok(Self { names: Names::Spooled(bytes, occurrences, support, of_subset), places: Numbers::Spooled(places) })
    }
}

/// Words by id, as their surfaces. The whole arena is tested at once: with the exact surface, text is nearly always in NFC.
/// The number and the order of words stay the same, so an id is still the id of its word. Equal surfaces stay apart
/// until they are sorted.
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
///
/// 32 bytes, two to a line of the cache. Sixteen bytes of the word hold nearly all words of a text whole, and an
/// integer of that size is compared in a few instructions.
struct Head {
    /// The first 16 bytes, most significant first, so that integers compare as the bytes do; zeros after a shorter word.
    first: u128,
    /// Length in bytes. Tells a word from one that has zero bytes more, which `first` cannot.
    /// A word too long for this has the greatest length. That is no loss: over 16 it only says that the arena must be
    /// asked.
    len: u32,
    /// Id in the dictionary: where the word, its counts and its entry in `places` are found.
    id: u32,
}

impl Head {
    fn new(word: &str, id: u32) -> Self {
        let mut first = [0u8; 16];
        let len = word.len().min(16);
        first[..len].copy_from_slice(&word.as_bytes()[..len]);
        Self { first: u128::from_be_bytes(first), len: u32::try_from(word.len()).unwrap_or(u32::MAX), id }
    }

    /// The order of the words' bytes. That of `str` is the same, so both ways to compare agree.
    ///
    /// Example: `a` and `a\0` have equal `first`, and lengths 1 and 2: the shorter one comes first, as it does among
    /// strings.
    #[inline(always)]
    fn compare(&self, other: &Self, words: &Strings) -> Ordering {
        self.first.cmp(&other.first).then_with(|| match self.len.min(other.len) {
            // One begins with the other.
            0..=16 => self.len.cmp(&other.len),
            // Both are longer than 16 bytes and share these. Rare: such words, and among them those that begin alike.
            _ => words.get(self.id as usize).cmp(words.get(other.id as usize)),
        })
    }

    /// Call `take` with the word. A word of 16 bytes or fewer is taken from the head, whose line is in the cache
    /// already; in sorted order each look at the arena would be one at random.
    #[inline(always)]
    fn with_word<T>(&self, words: &Strings, take: impl FnOnce(&str) -> T) -> T {
        let bytes = self.first.to_be_bytes();
        match bytes.get(..self.len as usize).map(std::str::from_utf8) {
            Some(Ok(word)) => take(word),
            // Longer than 16 bytes. A short word is a whole `str` here, so that it is not UTF-8 cannot be; the arena
            // would be right for it too.
            _ => take(words.get(self.id as usize)),
        }
    }
}
