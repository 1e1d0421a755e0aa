//! Joined: the partitions of a level, one after the other, whichever is counted first.
//!
//! A very frequent left id makes a partition that takes as long as many others. These are not to wait for it: what was counted
//! of them is laid by, under a memory limit on the pages of the store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::index::Level;
use crate::packing::Number;
use crate::spool::{Reader, Spool, Store};

/// What was counted of one partition.
pub struct Partition {
    pub keys: Vec<u64>,
    pub support: Vec<u32>,
    /// Support in the subset, if there is one.
    pub support_of_subset: Vec<u32>,
    /// Occurrences of each kept pair.
    pub weights: Vec<u32>,
    /// By share: rank + 1 of each pair in order, or 0.
    pub results: Vec<Spool<u32>>,
}

/// Partitions on pages of the store, in the order they came: with an open page each, many would be too many.
struct LaidBy {
    keys: Spool<u64>,
    support: Spool<u32>,
    support_of_subset: Spool<u32>,
    weights: Spool<u32>,
}

impl LaidBy {
    fn new(store: &Arc<Store>) -> Self {
        let numbers = || Spool::new(store);
        Self { keys: Spool::new(store), support: numbers(), support_of_subset: numbers(), weights: numbers() }
    }

    fn ends(&self) -> [usize; 4] {
        [self.keys.len(), self.support.len(), self.support_of_subset.len(), self.weights.len()]
    }

    fn add(&mut self, partition: Partition) -> Result<Waiting> {
        let starts = self.ends();
        self.keys.extend(&partition.keys)?;
        self.support.extend(&partition.support)?;
        self.support_of_subset.extend(&partition.support_of_subset)?;
        self.weights.extend(&partition.weights)?;
        Ok(Waiting::LaidBy { starts, ends: self.ends(), results: partition.results })
    }

    fn take_up(&self, starts: [usize; 4], ends: [usize; 4], results: Vec<Spool<u32>>) -> Result<Partition> {
        fn read<T: Number>(spool: &Spool<T>, start: usize, end: usize) -> Result<Vec<T>> {
            let mut numbers = Vec::with_capacity(end - start);
            spool.read(start, end - start, &mut numbers, true)?;
            Ok(numbers)
        }
        Ok(Partition {
            keys: read(&self.keys, starts[0], ends[0])?,
            support: read(&self.support, starts[1], ends[1])?,
            support_of_subset: read(&self.support_of_subset, starts[2], ends[2])?,
            weights: read(&self.weights, starts[3], ends[3])?,
            results,
        })
    }
}

/// A partition that was counted before one that comes before it.
enum Waiting {
    Here(Partition),
    LaidBy { starts: [usize; 4], ends: [usize; 4], results: Vec<Spool<u32>> },
}

pub struct Joined {
    pub level: Level,
    pub support_of_subset: Spool<u32>,
    pub weights: Vec<u32>,
    /// By share, then partition; ranks count from the first kept pair of the partition, which is this one of the level.
    pub results: Vec<Vec<Reader<u32>>>,
    pub first_rank: Vec<u32>,
    waiting: BTreeMap<usize, Waiting>,
    laid_by: LaidBy,
}

impl Joined {
    fn new(num_shares: usize, store: &Arc<Store>) -> Self {
        Self {
            level: Level::new(store),
            support_of_subset: Spool::new(store),
            weights: Vec::new(),
            results: (0..num_shares).map(|_| Vec::new()).collect(),
            first_rank: Vec::new(),
            waiting: BTreeMap::new(),
            laid_by: LaidBy::new(store),
        }
    }

    fn add(&mut self, number: usize, partition: Partition, store: &Arc<Store>) -> Result<()> {
        if number != self.first_rank.len() {
            let waiting = if store.has_limit() { self.laid_by.add(partition)? } else { Waiting::Here(partition) };
            self.waiting.insert(number, waiting);
            return Ok(());
        }
        self.append(partition)?;
        while let Some(waiting) = self.waiting.remove(&self.first_rank.len()) {
            let partition = match waiting {
                Waiting::Here(partition) => partition,
                Waiting::LaidBy { starts, ends, results } => self.laid_by.take_up(starts, ends, results)?,
            };
            self.append(partition)?;
        }
        if self.waiting.is_empty() {
            self.laid_by = LaidBy::new(store); // a page that was begun to be read when it was not full is not given back
        }
        Ok(())
    }

    /// Append the next partition.
    fn append(&mut self, partition: Partition) -> Result<()> {
        self.first_rank.push(self.weights.len() as u32);
        self.level.extend(&partition.keys, &partition.support)?;
        self.support_of_subset.extend(&partition.support_of_subset)?;
        self.weights.extend(partition.weights);
        if self.weights.len() > u32::MAX as usize {
            return Err(Error::Corpus("more than 4 294 967 295 n-grams of one length to extend".into()));
        }
        for (results, result) in self.results.iter_mut().zip(partition.results) {
            results.push(result.into_reader());
        }
        Ok(())
    }
}

/// What many threads add partitions to.
pub struct Joining<'a> {
    joined: Mutex<Joined>,
    store: &'a Arc<Store>,
}

impl<'a> Joining<'a> {
    pub fn new(num_shares: usize, store: &'a Arc<Store>) -> Self {
        Self { joined: Mutex::new(Joined::new(num_shares, store)), store }
    }

    /// Add the partition of this number; each is added once, and none is left out.
    pub fn add(&self, number: usize, partition: Partition) -> Result<()> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner).add(number, partition, self.store)
    }

    pub fn into_joined(self) -> Joined {
        self.joined.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::packing_store;

    fn partition(number: u32, store: &Arc<Store>) -> Partition {
        let len = number % 5 * 3_000;
        Partition {
            keys: (0..len).map(|at| u64::from(number) << 32 | u64::from(at)).collect(),
            support: vec![number; len as usize],
            support_of_subset: vec![number / 2; len as usize],
            weights: vec![number + 1; len as usize / 3],
            results: (0..2).map(|share| Spool::from_numbers(&[number, share], store).unwrap()).collect(),
        }
    }

    #[test]
    fn partitions_stand_in_order_in_whatever_order_they_come() {
        for store in [Store::in_memory(), packing_store()] {
            let joining = Joining::new(2, &store);
            for number in [3, 0, 1, 6, 5, 4, 2, 7] {
                joining.add(number as usize, partition(number, &store)).unwrap();
            }
            let all: Vec<Partition> = (0..8).map(|number| partition(number, &store)).collect();
            let joined = joining.into_joined();
            assert!(joined.waiting.is_empty());
            let keys = all.iter().flat_map(|one| one.keys.clone());
            assert!(keys.eq(joined.level.keys.to_vec().unwrap()));
            let support = all.iter().flat_map(|one| one.support.clone());
            assert!(support.eq(joined.level.support.to_vec().unwrap()));
            let support = all.iter().flat_map(|one| one.support_of_subset.clone());
            assert!(support.eq(joined.support_of_subset.to_vec().unwrap()));
            assert!(all.iter().flat_map(|one| one.weights.clone()).eq(joined.weights));
            assert_eq!(joined.first_rank, [0, 0, 1_000, 3_000, 6_000, 10_000, 10_000, 11_000]);
            for (share, results) in joined.results.into_iter().enumerate() {
                for (number, mut result) in results.into_iter().enumerate() {
                    let found = [result.take().unwrap(), result.take().unwrap(), result.take().unwrap()];
                    assert_eq!(found, [Some(number as u32), Some(share as u32), None]);
                }
            }
        }
    }
}
