//! Subset: the index of some of the units, out of that of all.
//!
//! What the subset keeps the whole keeps too, since no support is larger in a part. So every n-gram that the subset's index
//! lists is one of the whole's, in the same order: its level is the whole's, less what is not listed, with the counts of the
//! subset and its own numbers.

use std::sync::Arc;

use crate::error::Result;
use crate::index::counts::{Count, Counts};
use crate::index::ngram_index::{Level, NgramIndex};
use crate::storage::spool::{Spool, Store};
use crate::storage::strings::Strings;

/// Which ids of the whole the subset keeps, and what number they have among those.
#[derive(Default)]
pub struct Kept {
    bits: Vec<u64>,
    /// Ids that are kept before each 64.
    before: Vec<u32>,
    len: usize,
    num_kept: u32,
}

impl Kept {
    pub fn push(&mut self, kept: bool) {
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

    #[inline(always)]
    fn number(&self, id: u32) -> Option<u32> {
        let (at, bit) = (id as usize / 64, id % 64);
        let bits = self.bits[at];
        (bits >> bit & 1 > 0).then(|| self.before[at] + (bits & !(u64::MAX << bit)).count_ones())
    }
}

/// The index of the subset, as far as it is made.
pub struct Subset {
    pub index: NgramIndex,
    /// Which ids of the whole's next level the subset keeps.
    kept: Kept,
    /// What these are called in the subset's keys, if that is something else than their number among themselves.
    names: Vec<u32>,
}

impl Subset {
    /// The words of the whole that the subset has; `counts` are those of the whole's words in the subset.
    pub fn new(whole: &NgramIndex, counts: Counts) -> Self {
        let mut index = NgramIndex::new(whole.max_n, whole.surface, whole.min_support, Strings::new());
        let (mut kept, mut names) = (Kept::default(), Vec::new());
        for (number, word) in whole.words.iter().enumerate() {
            let Count { occurrences, support } = counts.get(number);
            kept.push(support >= whole.min_support);
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

    /// Add the next level, given the whole's and the support of its n-grams in the subset, which is used up.
    pub fn add_level(&mut self, whole: &Level, of_subset: &Spool<u32>, store: &Arc<Store>) -> Result<()> {
        let (mut level, mut next) = (Level::new(store), Kept::default());
        let (mut keys, mut found, mut counts, mut at) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let min_support = self.index.min_support;
        whole.for_each(|some, support| {
            keys.clear();
            found.clear();
            counts.clear();
            of_subset.read(at, some.len(), &mut counts, true)?;
            at += some.len();
            for ((&key, &support), &count) in some.iter().zip(support).zip(&counts) {
                if count > 0
                    && let (Some(left), Some(right)) = (self.number((key >> 32) as u32), self.number(key as u32))
                {
                    keys.push(u64::from(left) << 32 | u64::from(right));
                    found.push(count);
                }
                if support >= min_support {
                    next.push(count >= min_support);
                }
            }
            level.extend(&keys, &found)
        })?;
        self.index.levels.push(level);
        (self.kept, self.names) = (next, Vec::new());
        Ok(())
    }

    /// What an id of the whole is called in the subset's keys.
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
