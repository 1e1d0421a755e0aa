//! Joined: the partitions of a level in their order, whichever is counted first.
//!
//! A very frequent left id makes a partition that takes as long as many others. The others must not wait for it, nor stay in
//! memory until it is done, so their counts are set aside on pages of the store. One thread at a time holds the joined level and
//! appends every partition whose turn it is. A thread that finds the level taken sets its partition aside and continues counting.
//!
//! Why no partition is lost: `Queue` is one lock for the joined level and for the list of waiting partitions. The holder gives
//! the level back only if, under that lock, the next partition is not waiting. A thread that sets a partition aside checks, under
//! the same lock, whether the level is free, and if so takes it. So a partition whose turn has come never waits while no
//! thread holds the level.
//!
//! Why there is no deadlock: no thread holds two of these locks at once. Why the result does not depend on threads: they
//! decide which thread appends, and never the order of the partitions.
//!
//! After an error nothing is repaired. The pass over the partitions ends with it, and all spools give their pages back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::index::ngram_index::Level;
use crate::storage::packing::Number;
use crate::storage::spool::{Reader, Spool, Store};

/// The counts of one partition.
pub struct Partition {
    /// Ascending, and above those of every partition before.
    /// `left << 32 | right`, as in the level. Partitions are ranges of left ids: that is why the order holds between them.
    pub keys: Vec<u64>,
    /// By key.
    pub support: Vec<u32>,
    /// By key: support in the subset. Empty where there is no subset.
    pub support_of_subset: Vec<u32>,
    /// Occurrences of each kept pair, in the order of keys. Empty without a next level, as are the results.
    pub weights: Vec<u32>,
    /// By share: rank + 1 of the pair of each entry, or 0, in the order of entries.
    pub results: Vec<Spool<u32>>,
}

/// The partitions that were appended.
pub struct Joined {
    pub level: Level,
    /// As long as the level, or empty.
    pub support_of_subset: Spool<u32>,
    /// By rank in the level: occurrences of the kept pairs.
    pub weights: Spool<u32>,
    /// By share, then partition. Ranks count from the first kept pair of the partition.
    /// Empty lists without a next level.
    pub results: Vec<Vec<Reader<u32>>>,
    /// Partition -> rank in the level of its first kept pair. Its length is the number of partitions that were appended.
    pub first_rank: Vec<u32>,
}

impl Joined {
    /// The number of the partition whose turn it is.
    fn next(&self) -> usize {
        self.first_rank.len()
    }

    fn append(&mut self, partition: Partition) -> Result<()> {
        // Before the weights grow: so many kept pairs come before those of this partition. `next` counts these
        // entries, so the turn of the following partition comes with this push; no other thread sees it before the
        // level is given back.
        // The cast is exact: the test below has let no more than `u32::MAX` weights through.
        self.first_rank.push(self.weights.len() as u32);
        self.level.extend(&partition.keys, &partition.support)?;
        self.support_of_subset.extend(&partition.support_of_subset)?;
        self.weights.extend(&partition.weights)?;
        // Ids are below u32::MAX, as streams hold id + 1 and keep 0 for "none".
        if self.weights.len() > u32::MAX as usize {
            return Err(Error::Corpus("more than 4 294 967 295 n-grams of one length to extend".into()));
        }
        for (results, result) in self.results.iter_mut().zip(partition.results) {
            results.push(result.into_reader());
        }
        Ok(())
    }
}

/// The partitions that one thread set aside, one after the other in the same spools. (Spools of their own would take an open page
/// for each partition and column, and many may wait.)
/// A partition that is taken out returns its pages. So waiting partitions use few pages, in memory or on disk, within the limit
/// of the store.
struct LaidBy {
    level: Level,
    support_of_subset: Spool<u32>,
    weights: Spool<u32>,
    /// Partitions in the spools that have not been taken out.
    /// Raised and lowered under the lock of this list, so at 0 no thread is about to read from the spools.
    num_waiting: usize,
}

/// A partition that was set aside: the thread whose columns hold it, and its bounds in them.
struct Waiting {
    thread: usize,
    /// Where it begins and ends in the level, in the support of the subset and in the weights.
    /// Three bounds for four columns: keys and support are equally long.
    starts: [usize; 3],
    ends: [usize; 3],
    results: Vec<Spool<u32>>,
}

impl LaidBy {
    fn new(store: &Arc<Store>) -> Self {
        Self {
            level: Level::new(store),
            support_of_subset: Spool::new(store),
            weights: Spool::new(store),
            num_waiting: 0,
        }
    }

    fn ends(&self) -> [usize; 3] {
        [self.level.len(), self.support_of_subset.len(), self.weights.len()]
    }

    fn add(&mut self, partition: Partition, thread: usize) -> Result<Waiting> {
        // Nothing but this appends to the columns, so where they end is where the partition begins.
        let starts = self.ends();
        self.level.extend(&partition.keys, &partition.support)?;
        self.support_of_subset.extend(&partition.support_of_subset)?;
        self.weights.extend(&partition.weights)?;
        self.num_waiting += 1;
        Ok(Waiting { thread, starts, ends: self.ends(), results: partition.results })
    }

    fn take_up(&mut self, waiting: Waiting, store: &Arc<Store>) -> Result<Partition> {
        fn read<T: Number>(spool: &Spool<T>, start: usize, end: usize) -> Result<Vec<T>> {
            let mut numbers = Vec::with_capacity(end - start);
            // `true`: each number is read once, so a full page goes back with the last partition on it.
            spool.read(start, end - start, &mut numbers, true)?;
            Ok(numbers)
        }
        let Waiting { starts, ends, results, .. } = waiting;
        let partition = Partition {
            keys: read(&self.level.keys, starts[0], ends[0])?,
            support: read(&self.level.support, starts[0], ends[0])?,
            support_of_subset: read(&self.support_of_subset, starts[1], ends[1])?,
            weights: read(&self.weights, starts[2], ends[2])?,
            results,
        };
        self.num_waiting -= 1;
        if self.num_waiting == 0 {
            // A page that was read in part while it was open never counts as used up. Dropping the old spools frees it.
            *self = Self::new(store);
        }
        Ok(partition)
    }
}

struct Queue {
    /// None while a thread appends to it, and for ever after an error in that thread.
    joined: Option<Joined>,
    /// By number of the partition.
    /// Never holds the partition whose turn it is while `joined` is here: the thread that enters it takes the level at once.
    waiting: BTreeMap<usize, Waiting>,
}

/// The level that many threads add partitions to.
pub struct Joining<'a> {
    queue: Mutex<Queue>,
    /// By thread of the pool. Locked, because the holder of the level takes up the partitions of other threads. Never locked
    /// while the queue is: appending does not keep other threads from adding.
    laid_by: Vec<Mutex<LaidBy>>,
    store: &'a Arc<Store>,
}

/// A panic propagates to the thread that waits for all partitions, which then has no level. So the data behind a poisoned lock
/// is never used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Joining<'a> {
    pub fn new(num_shares: usize, store: &'a Arc<Store>) -> Self {
        let joined = Joined {
            level: Level::new(store),
            support_of_subset: Spool::new(store),
            weights: Spool::new(store),
            results: (0..num_shares).map(|_| Vec::new()).collect(),
            first_rank: Vec::new(),
        };
        let laid_by = (0..rayon::current_num_threads()).map(|_| Mutex::new(LaidBy::new(store))).collect();
        Self { queue: Mutex::new(Queue { joined: Some(joined), waiting: BTreeMap::new() }), laid_by, store }
    }

    /// Add the partition of this number. Each number from 0 on must be added once, in any order and by any thread.
    pub fn add(&self, number: usize, partition: Partition) -> Result<()> {
        // Its turn already: no detour over the store. Not its turn: the level stays for the thread whose turn it is.
        let mut taken = lock(&self.queue).joined.take_if(|joined| joined.next() == number);
        if let Some(joined) = &mut taken {
            joined.append(partition)?;
        } else {
            // Outside a pool all threads share the first list. Its lock makes that slow at worst.
            let thread = rayon::current_thread_index().unwrap_or(0) % self.laid_by.len();
            let waiting = lock(&self.laid_by[thread]).add(partition, thread)?;
            let mut queue = lock(&self.queue);
            // The entry is made, and the level taken if it is here, under one lock. Between two locks the holder could
            // find no entry and give the level back, and this partition would wait for ever.
            queue.waiting.insert(number, waiting);
            taken = queue.joined.take();
        }
        let Some(mut joined) = taken else { return Ok(()) };
        loop {
            // The lock covers the look-up alone. Appending may wait for the disk, and other threads must be able to set
            // partitions aside meanwhile.
            let waiting = {
                let mut queue = lock(&self.queue);
                let Some(waiting) = queue.waiting.remove(&joined.next()) else {
                    queue.joined = Some(joined);
                    return Ok(());
                };
                waiting
            };
            // An error here or below drops `joined`: no other thread continues with half a level, and `into_joined`
            // reports the loss.
            let partition = lock(&self.laid_by[waiting.thread]).take_up(waiting, self.store)?;
            joined.append(partition)?;
        }
    }

    /// The joined level; an error if a thread failed while it held the level.
    /// Call it only after every `add` has succeeded. If a partition could not be set aside, the level is still here and this
    /// returns no error; the caller learns of it from the error of that `add`.
    pub fn into_joined(self) -> Result<Joined> {
        let queue = self.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        queue.joined.ok_or_else(|| Error::Artifact("a partition of a level was lost".into()))
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;
    use crate::storage::spool::tests::{holds_nothing, packing_store};

    fn partition(number: u32, store: &Arc<Store>) -> Partition {
        let len = number % 5 * 3_000;
        let result = |share| {
            let mut result = Spool::new(store);
            result.extend(&[number, share]).unwrap();
            result
        };
        Partition {
            keys: (0..len).map(|at| u64::from(number) << 32 | u64::from(at)).collect(),
            support: vec![number; len as usize],
            support_of_subset: vec![number / 2; len as usize],
            weights: vec![number + 1; len as usize / 3],
            results: (0..2).map(result).collect(),
        }
    }

    fn check(joining: Joining, num: u32, store: &Arc<Store>) {
        assert!(lock(&joining.queue).waiting.is_empty());
        assert!(joining.laid_by.iter().all(|laid_by| lock(laid_by).num_waiting == 0));
        let all: Vec<Partition> = (0..num).map(|number| partition(number, store)).collect();
        let joined = joining.into_joined().unwrap();
        let keys = all.iter().flat_map(|one| one.keys.clone());
        assert!(keys.eq(joined.level.keys.to_vec().unwrap()));
        let support = all.iter().flat_map(|one| one.support.clone());
        assert!(support.eq(joined.level.support.to_vec().unwrap()));
        let support = all.iter().flat_map(|one| one.support_of_subset.clone());
        assert!(support.eq(joined.support_of_subset.to_vec().unwrap()));
        assert!(all.iter().flat_map(|one| one.weights.clone()).eq(joined.weights.to_vec().unwrap()));
        let first_rank = all.iter().scan(0, |sum, one| {
            *sum += one.weights.len() as u32;
            Some(*sum - one.weights.len() as u32)
        });
        assert!(first_rank.eq(joined.first_rank));
        for (share, results) in joined.results.into_iter().enumerate() {
            assert_eq!(results.len(), num as usize);
            for (number, mut result) in results.into_iter().enumerate() {
                let found = [result.take().unwrap(), result.take().unwrap(), result.take().unwrap()];
                assert_eq!(found, [Some(number as u32), Some(share as u32), None]);
            }
        }
    }

    #[test]
    fn partitions_stand_in_order_in_whatever_order_they_come() {
        for store in [Store::in_memory(), packing_store()] {
            let joining = Joining::new(2, &store);
            for number in [3, 0, 1, 6, 5, 4, 2, 7] {
                joining.add(number as usize, partition(number, &store)).unwrap();
            }
            check(joining, 8, &store);
            assert!(holds_nothing(&store));
        }
    }

    #[test]
    fn partitions_stand_in_order_whichever_thread_is_late() {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(5).build().unwrap();
        for store in [Store::in_memory(), packing_store()] {
            let joining = threads.install(|| Joining::new(2, &store));
            threads.install(|| {
                (0..100u32).par_bridge().for_each(|number| {
                    let found = partition(number, &store);
                    std::thread::sleep(std::time::Duration::from_millis(if number % 17 == 0 { 30 } else { 1 }));
                    joining.add(number as usize, found).unwrap();
                })
            });
            check(joining, 100, &store);
            assert!(holds_nothing(&store));
        }
    }
}
