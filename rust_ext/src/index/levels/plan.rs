//! Plan: which partition a pair belongs to, and how wide its key is there.
//!
//! A partition is a range of left ids. So all occurrences of a pair are in one partition, partitions one after the other are the
//! level in order, and a key need not hold the whole left id: it is `(left - first left of the partition) * number of ids +
//! right`, which is exact, and ascends with (left, right).
//!
//! There are two conflicting goals. Few wide partitions need few open pages in scatter. Many narrow ones have small tables,
//! and keys of 31 bits: entries of half the size. The plan makes as many partitions as the number of pairs needs, and more if
//! that makes keys narrow and is still allowed.

use super::{ENTRIES_PER_PARTITION, Entry, MAX_PARTITIONS, NO_PAIR};
use crate::error::Result;
use crate::storage::spool::Spool;

/// Everything that one level needs from the level before.
pub struct Plan {
    /// Ids of the level before are 0 to this, exclusive. The radix of keys.
    pub(super) num_ids: u64,
    /// `left >> shift` is the *bin* of a left id. Chosen so that there are at most 2^15 bins, and `partitions` fits the cache,
    /// because scatter reads it for each pair.
    pub(super) shift: u32,
    /// Bin -> partition, ascending. Below `NO_PAIR`.
    pub(super) partitions: Vec<u16>,
    /// Partition -> its first left id, ascending; a multiple of the width of a bin.
    pub(super) first_left: Vec<u32>,
    /// Whether every key fits 31 bits, and entries 32.
    pub(super) narrow: bool,
    /// Id here -> number in the level's table, ascending, so that the order stays; empty where they are the same.
    pub(super) names: Vec<u32>,
}

impl Plan {
    /// Ranges of left ids that hold about as many pairs each; `weights[left]` (its occurrences) bounds the pairs that begin with
    /// it. `names` (ascending) are the ids' numbers in the level's table, if these differ from the ids.
    ///
    /// Postconditions (tests check them for weights of many shapes): at most `2 * max_partitions` partitions, ranges in order,
    /// and every key fits its entry.
    pub fn new(weights: &Spool<u32>, names: Vec<u32>, max_partitions: usize) -> Result<Self> {
        let num_ids = weights.len() as u64;
        let shift = (64 - num_ids.leading_zeros()).saturating_sub(15);
        let bins = sums(weights, 1 << shift)?;
        let total: u64 = bins.iter().sum();
        let wanted = total.div_ceil(ENTRIES_PER_PARTITION).clamp(1, max_partitions.clamp(1, MAX_PARTITIONS) as u64);
        // The widest range of left ids whose keys fit an entry, in whole bins: a narrow one, if ranges that narrow are still few
        // enough. (0 where not even one bin fits; then keys cannot be narrow.)
        let fitting = |key_bits: u32| ((1 << key_bits) / num_ids.max(1)) >> shift << shift;
        let at_most = 2 * max_partitions.clamp(1, MAX_PARTITIONS);
        let narrow = num_ids.checked_div(fitting(u32::KEY_BITS)).is_some_and(|more| wanted + more <= at_most as u64);
        let width = fitting(if narrow { u32::KEY_BITS } else { u64::KEY_BITS });
        let target = total / wanted + 1;
        let mut plan = Self { num_ids, shift, partitions: Vec::new(), first_left: Vec::new(), narrow, names };
        // A partition ends where its keys would become too wide, or where it has its share of pairs, to the nearest bin.
        let (mut held, mut first) = (0, 0);
        for (bin, &weight) in bins.iter().enumerate() {
            let left = (bin as u64) << shift;
            let too_wide = left + (1 << shift) - first > width;
            if bin == 0 || too_wide || (held > 0 && held + weight / 2 > target && plan.first_left.len() < at_most) {
                (held, first) = (0, left);
                plan.first_left.push(left as u32);
            }
            held += weight;
            plan.partitions.push((plan.first_left.len() - 1) as u16);
        }
        Ok(plan)
    }

    /// The partition of two ids + 1, or `NO_PAIR` where one is 0.
    #[inline(always)]
    pub(super) fn partition_of(&self, left: u32, right: u32) -> u16 {
        if left == 0 || right == 0 { NO_PAIR } else { self.partitions[((left - 1) >> self.shift) as usize] }
    }

    /// The key of two ids + 1, neither of which is 0, in the partition of the left one.
    #[inline(always)]
    pub(super) fn key(&self, partition: usize, left: u32, right: u32) -> u64 {
        u64::from(left - 1 - self.first_left[partition]) * self.num_ids + u64::from(right - 1)
    }

    /// The number in the level's table of an id here.
    pub(super) fn name(&self, id: u64) -> u64 {
        self.names.get(id as usize).map_or(id, |&name| u64::from(name))
    }

    pub(super) fn num_partitions(&self) -> usize {
        self.first_left.len()
    }
}

/// The sums of each `len` numbers (a power of two), a stretch of the spool in memory at a time.
fn sums(numbers: &Spool<u32>, len: usize) -> Result<Vec<u64>> {
    let (mut sums, mut some) = (Vec::with_capacity(numbers.len().div_ceil(len)), Vec::new());
    let step = len.max(1 << 16); // both are powers of two
    for start in (0..numbers.len()).step_by(step) {
        some.clear();
        numbers.read(start, step.min(numbers.len() - start), &mut some, false)?;
        sums.extend(some.chunks(len).map(|some| some.iter().map(|&number| u64::from(number)).sum::<u64>()));
    }
    Ok(sums)
}
