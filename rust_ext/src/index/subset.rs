//! Subset: the index of some of the units, derived from the index of all units.
//!
//! A training run needs two indexes: of the members, whose supports decide what is protected, and of all individuals. The
//! members' words would be read, cut and counted twice. But no support is larger in a part than in the whole. So an n-gram
//! that the subset keeps, the whole keeps too, and every n-gram that the subset's index lists is one of the whole's, in the
//! same order. It takes one more count for each pair to make the second index: its level is the whole's level, less the
//! n-grams that it does not list, with the counts of the subset and its own numbers.
//!
//! An n-gram is listed for the subset where the subset has it (count > 0) and both its parts are kept there. The parts are
//! known by their ids among the n-grams that the *whole* keeps; `Kept` turns these into the subset's numbers.

use std::sync::Arc;

use crate::error::Result;
use crate::index::counts::{Count, Counts};
use crate::index::ngram_index::{Level, NgramIndex};
use crate::storage::spool::{Spool, Store};
use crate::storage::strings::Strings;

/// The ids of the whole that the subset keeps, and their numbers among the kept ones.
///
/// A bitmap with ranks: a bit and a half for each id, and a number costs one access and a count of bits. A table of numbers would
/// take 32 bits for each id, and level 2 may have as many as there are words of text.
#[derive(Default)]
pub struct Kept {
    /// Bit `id % 64` of entry `id / 64`: the id is kept.
    bits: Vec<u64>,
    /// By entry of `bits`: how many ids before it are kept.
    before: Vec<u32>,
    /// Ids so far, and how many of them are kept.
    len: usize,
    num_kept: u32,
}

impl Kept {
    pub fn push(&mut self, kept: bool) {
        // A new entry starts with the rank so far. So a look-up counts the bits of one entry, however many come
        // before.
        if self.len.is_multiple_of(64) {
            self.bits.push(0);
            self.before.push(self.num_kept);
        }
        if let Some(last) = self.bits.last_mut() {
            *last |= u64::from(kept) << (self.len % 64);
        }
        self.len += 1;
        self.num_kept += u32::from(kept);
    }

    /// The number of an id among the kept ones, or None where it is not kept.
    #[inline(always)]
    fn number(&self, id: u32) -> Option<u32> {
        let (at, bit) = (id as usize / 64, id % 64);
        // The mask leaves the bits under this one: their number is its rank within the entry.
        let bits = self.bits[at];
        (bits >> bit & 1 > 0).then(|| self.before[at] + (bits & !(u64::MAX << bit)).count_ones())
    }
}

/// The index of the subset, as far as it is made.
pub struct Subset {
    /// Words and levels made so far, under its own numbers: nothing in it depends on what only others wrote.
    pub index: NgramIndex,
    /// Of the ids that make the keys of the whole's next level: which the subset keeps. (For level 2: of all words of the whole,
    /// since keys name words by their number in the vocabulary. For level n > 2: of the (n-1)-grams that the whole keeps.)
    kept: Kept,
    /// Number among the kept ones -> number in the subset's keys; empty where they are the same. Only words need it: the subset's
    /// vocabulary lists words that it does not keep, too.
    names: Vec<u32>,
}

impl Subset {
    /// The words of the whole that the subset has; `counts` are those of the whole's words in the subset.
    pub fn new(whole: &NgramIndex, counts: Counts) -> Self {
        let mut index = NgramIndex::new(whole.max_n, whole.surface, whole.min_support, Strings::new());
        // The words of the whole come in byte order, so those of the subset do, and their numbers ascend with the
        // whole's.
        let (mut kept, mut names) = (Kept::default(), Vec::new());
        for (number, word) in whole.words.iter().enumerate() {
            let Count { occurrences, support } = counts.get(number);
            // For every word of the whole, also those that the subset lacks: the place in the bitmap is the whole's
            // number.
            kept.push(support >= whole.min_support);
            // A word that only others use is not listed: the subset's index must not tell that it exists.
            if occurrences > 0 {
                if support >= whole.min_support {
                    names.push(index.words.len() as u32);
                }
                index.words.push(word);
                index.occurrences.push(occurrences);
                index.support.push(support);
            }
        }
        Self { index, kept, names }
    }

    /// Add the next level, given the whole's and the support of its n-grams in the subset, which is used up. One pass in order,
    /// so nothing is sorted.
    pub fn add_level(&mut self, whole: &Level, of_subset: &Spool<u32>, store: &Arc<Store>) -> Result<()> {
        let (mut level, mut next) = (Level::new(store), Kept::default());
        // One page of the level at a time, into columns that are used again: a level of any length takes the same
        // memory.
        let (mut keys, mut found, mut counts, mut at) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let min_support = self.index.min_support;
        whole.for_each(0, whole.len(), |some, support| {
            keys.clear();
            found.clear();
            counts.clear();
            of_subset.read(at, some.len(), &mut counts, true)?;
            at += some.len();
            for ((&key, &support), &count) in some.iter().zip(support).zip(&counts) {
                // A count of 0 is an n-gram that only others use. Where a part is not kept, that part identifies
                // already, and the n-gram is not listed, exactly as in an index that was built of the subset alone.
                if count > 0
                    && let (Some(left), Some(right)) = (self.number((key >> 32) as u32), self.number(key as u32))
                {
                    // Ascending: the whole's keys are, and the translation keeps the order of both halves.
                    keys.push(u64::from(left) << 32 | u64::from(right));
                    found.push(count);
                }
                // Ids of the next level number the n-grams that the whole keeps, in order, whether the subset has them or not.
                if support >= min_support {
                    next.push(count >= min_support);
                }
            }
            level.extend(&keys, &found)
        })?;
        self.index.levels.push(level.into());
        // From level 2 on ids are ranks among the kept n-grams, in both indexes; only words have two kinds of number.
        (self.kept, self.names) = (next, Vec::new());
        Ok(())
    }

    /// The number in the subset's keys of an id of the whole, or None where the subset does not keep it.
    #[inline(always)]
    fn number(&self, id: u32) -> Option<u32> {
        self.kept.number(id).map(|number| self.names.get(number as usize).copied().unwrap_or(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_among_what_is_kept() {
        let ids: Vec<bool> = (0..1_000).map(|id| id % 7 == 3 || (128..300).contains(&id)).collect();
        let mut kept = Kept::default();
        ids.iter().for_each(|&id| kept.push(id));
        let mut number = 0;
        for (id, &is_kept) in ids.iter().enumerate() {
            assert_eq!(kept.number(id as u32), is_kept.then_some(number));
            number += u32::from(is_kept);
        }
    }
}
