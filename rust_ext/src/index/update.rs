//! Update: an index from other indexes, without their documents.
//!
//! Support is a sum over units, so the supports of disjoint sets of units add up, and those of a part can be taken away. All
//! tables stand in an order that the numbers of another index keep, so every step is one pass over sorted tables. Only
//! indexes with `min_support` 1 can be combined: a pruned one has forgotten counts that a sum needs. [`NgramIndex::prune`]
//! makes the pruned one from them.

use std::cmp::Ordering;

use crate::error::{Error, Result};
use crate::index::level_table::LevelTable;
use crate::index::ngram_index::{Level, NgramIndex, check_min_support};
use crate::storage::spool::Store;
use crate::storage::strings::Strings;

/// How many n-grams of one n an update has moved; supports on either side of k.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Moved {
    /// In the new index only; in the old one only.
    pub new: u64,
    pub gone: u64,
    /// In both: support was k or more and is less now; or the other way.
    pub to_identifying: u64,
    pub to_shared: u64,
}

impl Moved {
    fn note(&mut self, old: u64, new: u64, k: u64) {
        match (old, new) {
            (0, 0) => {}
            (0, _) => self.new += 1,
            (_, 0) => self.gone += 1,
            _ if old >= k && new < k => self.to_identifying += 1,
            _ if old < k && new >= k => self.to_shared += 1,
            _ => {}
        }
    }
}

impl NgramIndex {
    /// The index of `self`, less the documents of `removed`, with those of `added`; and what moved, for each n.
    ///
    /// All three must be built with `min_support` 1. `removed` is the index of all documents some units have in `self`;
    /// `added` that of all documents some units are to have, none of which is left in `self` without `removed`. A unit whose
    /// documents change stands in both.
    pub fn update(&self, removed: &Self, added: &Self, k: u32) -> Result<(Self, Vec<Moved>)> {
        let parts = [self, removed, added];
        if parts.iter().any(|part| part.min_support != 1) {
            return Err(Error::Policy("update: the indexes must be built with min_support = 1".into()));
        }
        if parts.iter().any(|part| part.max_n != self.max_n || part.surface != self.surface) {
            return Err(Error::Policy("update: the indexes differ in max_n or surface".into()));
        }
        let mut moved = vec![Moved::default(); self.max_n];

        let (mut index, mut numbers) = update_words(parts, k, &mut moved[0])?;
        for (n, moved) in (2..).zip(&mut moved[1..]) {
            let (level, next) = update_level(parts.map(|part| &part.levels[n - 2]), &numbers, k, moved)?;
            index.levels.push(level.into());
            numbers = next;
        }
        Ok((index, moved))
    }

    /// The index of the union of two sets of documents that share no unit.
    pub fn merge(&self, other: &Self) -> Result<Self> {
        Ok(self.update(&self.empty(), other, 1)?.0)
    }

    fn empty(&self) -> Self {
        let mut index = Self::new(self.max_n, self.surface, self.min_support, Strings::new());
        index.levels = (2..=self.max_n).map(|_| Level::new(&Store::in_memory()).into()).collect();
        index
    }

    /// The index that the same documents give with a greater `min_support`.
    pub fn prune(&self, min_support: u32) -> Result<Self> {
        check_min_support(min_support)?;
        if min_support < self.min_support {
            return Err(Error::Policy(format!(
                "prune: the index has min_support {}; expected that or more, got {min_support}",
                self.min_support
            )));
        }
        let mut index = Self::new(self.max_n, self.surface, min_support, self.words.clone());
        (index.support, index.occurrences) = (self.support.clone(), self.occurrences.clone());
        (index.num_units, index.num_documents) = (self.num_units, self.num_documents);
        // Number of an n-gram here -> its number there; those under `min_support` have none. Words keep theirs.
        let mut numbers: Vec<Option<u32>> =
            (0..).zip(&self.support).map(|(id, &support)| (support >= min_support).then_some(id)).collect();
        for level in &self.levels {
            let mut pruned = Level::new(&Store::in_memory());
            let mut next = Vec::new();
            let mut num_kept = 0;
            level.for_each(|keys, supports| {
                for (&key, &support) in keys.iter().zip(supports) {
                    let ids = (numbers[(key >> 32) as usize], numbers[key as u32 as usize]);
                    let number = if let (Some(left), Some(right)) = ids {
                        pruned.extend(&[u64::from(left) << 32 | u64::from(right)], &[support])?;
                        (support >= min_support).then(|| {
                            num_kept += 1;
                            num_kept - 1
                        })
                    } else {
                        None
                    };
                    // Numbers of the next level count what this index keeps.
                    if support >= self.min_support {
                        next.push(number);
                    }
                }
                Ok(())
            })?;
            index.levels.push(pruned.into());
            numbers = next;
        }
        Ok(index)
    }
}

/// What numbers the n-grams of one n have.
#[derive(Default)]
struct Numbers {
    /// By part: the number of each of its n-grams in the union of the three.
    joint: [Vec<u32>; 3],
    /// The number of each n-gram of the union in the result, or `GONE`.
    kept: Vec<u32>,
}

impl Numbers {
    /// Number the next n-gram, of the parts that have it (`here`), and move on in them; its support in the result, where it is
    /// n-gram `next` unless nobody has it.
    fn take(
        &mut self,
        here: [bool; 3],
        at: &mut [usize; 3],
        support: impl Fn(usize, usize) -> u32,
        next: usize,
        note: impl FnOnce(u64, u64),
    ) -> Result<u64> {
        let mut supports = [0u64; 3];
        for p in (0..3).filter(|&p| here[p]) {
            supports[p] = u64::from(support(p, at[p]));
            self.joint[p].push(number(self.kept.len())?);
            at[p] += 1;
        }
        let new = less(supports[0], supports[1])? + supports[2];
        note(supports[0], new);
        self.kept.push(if new > 0 { number(next)? } else { GONE });
        Ok(new)
    }
}

fn update_words(parts: [&NgramIndex; 3], k: u32, moved: &mut Moved) -> Result<(NgramIndex, Numbers)> {
    let [old, removed, added] = parts;
    let mut numbers = Numbers::default();
    let (mut words, mut support, mut occurrences) = (Strings::new(), Vec::new(), Vec::new());
    let mut at = [0usize; 3];
    loop {
        let heads = std::array::from_fn(|p| (at[p] < parts[p].words.len()).then(|| parts[p].words.get(at[p])));
        let Some((word, here)) = least(heads) else { break };
        let seen: [u64; 3] = std::array::from_fn(|p| if here[p] { parts[p].occurrences[at[p]] } else { 0 });
        let support_at = |p: usize, at: usize| parts[p].support[at];
        let new = numbers.take(here, &mut at, support_at, words.len(), |old, new| moved.note(old, new, k.into()))?;
        if new > 0 {
            words.push(word);
            support.push(support_of(new)?);
            occurrences.push(less(seen[0], seen[1])? + seen[2]);
        }
    }
    let mut index = NgramIndex::new(old.max_n, old.surface, 1, words);
    (index.support, index.occurrences) = (support, occurrences);
    index.num_units = less(old.num_units, removed.num_units)? + added.num_units;
    index.num_documents = less(old.num_documents, removed.num_documents)? + added.num_documents;
    Ok((index, numbers))
}

/// A level of the result, given the numbers of the (n-1)-grams; and the numbers of its own n-grams.
fn update_level(levels: [&LevelTable; 3], numbers: &Numbers, k: u32, moved: &mut Moved) -> Result<(Level, Numbers)> {
    let mut columns = Vec::new();
    for level in levels {
        columns.push(level.read(0, level.len())?);
    }
    let mut level = Level::new(&Store::in_memory());
    let mut next = Numbers::default();
    let mut at = [0usize; 3];
    loop {
        let heads = std::array::from_fn(|p| columns[p].0.get(at[p]).map(|&key| renumber(key, &numbers.joint[p])));
        let Some((key, here)) = least(heads) else { break };
        let support_at = |p: usize, at: usize| columns[p].1[at];
        let new = next.take(here, &mut at, support_at, level.len(), |old, new| moved.note(old, new, k.into()))?;
        if new > 0 {
            let key = renumber(key, &numbers.kept);
            if (key >> 32) as u32 == GONE || key as u32 == GONE {
                return Err(not_part());
            }
            level.extend(&[key], &[support_of(new)?])?;
        }
    }
    Ok((level, next))
}

fn not_part() -> Error {
    Error::Policy("update: what is to be removed is not part of the index".into())
}

fn less(count: u64, removed: u64) -> Result<u64> {
    count.checked_sub(removed).ok_or_else(not_part)
}

/// The number of an n-gram that no individual has any more.
const GONE: u32 = u32::MAX;

/// The number of the next n-gram. Two indexes that are each small enough may have more of them together.
fn number(len: usize) -> Result<u32> {
    let number = u32::try_from(len).ok().filter(|&number| number < GONE);
    number.ok_or_else(|| Error::Corpus("update: more than 4 294 967 294 n-grams of one length".into()))
}

fn support_of(sum: u64) -> Result<u32> {
    u32::try_from(sum).map_err(|_| Error::Corpus("update: more than 4 294 967 295 individuals use one n-gram".into()))
}

fn renumber(key: u64, numbers: &[u32]) -> u64 {
    u64::from(numbers[(key >> 32) as usize]) << 32 | u64::from(numbers[key as u32 as usize])
}

/// The least of the heads, and which of them it is.
fn least<T: Ord + Copy>(heads: [Option<T>; 3]) -> Option<(T, [bool; 3])> {
    let least = heads.into_iter().flatten().min()?;
    Some((least, heads.map(|head| head.is_some_and(|head| head.cmp(&least) == Ordering::Equal))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_supports_that_do_not_fit_are_refused_and_not_cut() {
        let last = GONE - 1;
        assert_eq!(number(last as usize).unwrap(), last);
        assert!(number(GONE as usize).is_err(), "it would stand for an n-gram that is gone");
        assert!(number(1 << 32).is_err());
        assert_eq!(support_of(u64::from(u32::MAX)).unwrap(), u32::MAX);
        assert!(support_of(1 << 32).is_err());
    }
}
