//! Levels: how many units use each pair of neighbouring ids, counted partition by partition.
//!
//! An n-gram is a pair of (n-1)-grams that overlap in all but one word. So level n is the same task for every n: given for each
//! position the id of the (n-1)-gram that begins there (plus 1; 0 where that is not kept), count the units of each pair of
//! neighbouring ids. Keys are exact by recursion, and never hold more than two ids, whatever n.
//!
//! Documents stand in the order of their unit. Three passes:
//!
//! 1. **Scatter**, a thread for each share of the units: write the key of each pair to the partition that its left id belongs
//!    to (`plan`). For the next level, write down the partition of each position too.
//! 2. **Count**, a thread for each partition at a time: a table of the distinct keys, each with a count and the last unit that
//!    raised it (`tables`). The distinct keys are sorted. Partitions are ranges of left ids, so one after the other they are
//!    the level in order (`joined`). Then replace each entry by the rank of its pair among the kept ones, or 0, in the order
//!    in which the entries came.
//! 3. **Gather**, a thread for each share: walk the partitions of the positions once more, and take the next rank of each.
//!    That is the stream of ids for the next level.
//!
//! **Why not one hash table.** It would be as large as the level, and each pair of the text would wait for memory once. The
//! table of one partition fits the cache. **Why not sort all pairs.** A sort moves each pair of the text log(pairs) times;
//! here each is written once and read once, and only distinct pairs are sorted. **Why write the order of partitions.** The
//! ranks lie by partition, and the next level needs them by position; to carry positions with the entries would double them.
//!
//! Every pass is sequential but for the tables of one partition: so it runs at nearly the same speed from memory and disk.
//!
//! Precondition: a share holds whole units and names them in order. Postcondition: the level is the same however units are
//! cut into shares and keys into partitions, as its order is that of the keys and its counts are over units.

mod entry;
mod plan;
mod tables;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rayon::prelude::*;

use entry::Entry;
pub use plan::Plan;
use tables::Tables;

use crate::error::Result;
use crate::index::joined::{Joined, Joining};
use crate::index::limit::Room;
use crate::index::ngram_index::Level;
use crate::storage::spool::{Reader, Spool, Store};

/// Entries that a partition should have: few enough that its tables fit the cache.
const ENTRIES_PER_PARTITION: u64 = 1 << 17;
/// Partitions at most, or twice as many where that makes keys narrow: scatter has a page open for each.
pub const MAX_PARTITIONS: usize = 1 << 11;
/// The partition of a position at which no pair begins: one of the two ids is 0, or the document ends.
const NO_PAIR: u16 = u16::MAX;
/// Entries of a partition whose pairs are kept in memory as they come. A partition cannot be cut within one left id, so the
/// pairs of a very frequent left id may be many more; the numbers beyond this go to the store.
const ENTRIES_IN_MIND: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// One thread's documents, in the order of units. `self` is used up, as streams give their pages back while they are read.
pub trait Share: Send {
    /// Call `visit(unit number, ids + 1)` for each document; 0 is no id. Units are numbered from 0 as they come, all documents
    /// of a unit one after the other: the number tells a unit from its neighbours, and nothing more.
    fn documents(self, visit: impl FnMut(u32, &[u32]) -> Result<()>) -> Result<()>;
}

/// A level, and the input of the next one.
pub struct Counted {
    /// All pairs that were seen, kept or not, in the order of their keys: a pair that is not kept is what protection
    /// is about.
    pub level: Level,
    /// Support of each pair of the level in the subset of the units; empty where the subset has no shares.
    pub support_of_subset: Spool<u32>,
    /// By share: for each position the id + 1 of the kept n-gram that begins there, or 0. As long as the share's documents, so
    /// documents stand at the same places on every level. Empty without a next level.
    pub streams: Vec<Spool<u32>>,
    /// By id of a kept n-gram: its occurrences. Empty without a next level.
    pub weights: Spool<u32>,
}

/// Settings of the counting of a level's pairs.
#[derive(Clone, Copy)]
pub struct Settings {
    /// Pairs of at least so many units are kept. All pairs are listed; only kept ones have ids on the next level.
    pub min_support: u32,
    /// So many of the first shares are the subset's. First, so that the counts after them are the subset's counts.
    pub num_of_subset: usize,
    /// Whether to make the streams of the next level too: rank + 1 where the pair has at least `min_support` units, else 0.
    pub next: bool,
}

/// Count the pairs of each share's documents; the tables of partitions take no more than their `room`, or it is an error.
///
/// Time: linear in the positions, and d log d for the d distinct pairs of each partition. Memory or disk: an entry (4 or 8 bytes)
/// and, with a next level, 2 bytes of order for each position; entries are given back while ranks of 4 bytes replace them.
pub fn count_level<S: Share>(
    shares: Vec<S>,
    plan: &Plan,
    settings: Settings,
    room: &Room,
    store: &Arc<Store>,
) -> Result<Counted> {
    if plan.narrow {
        count::<u32, S>(shares, plan, settings, room, store)
    } else {
        count::<u64, S>(shares, plan, settings, room, store)
    }
}

fn count<E: Entry, S: Share>(
    shares: Vec<S>,
    plan: &Plan,
    settings: Settings,
    room: &Room,
    store: &Arc<Store>,
) -> Result<Counted> {
    let next = settings.next;
    let num_partitions = plan.num_partitions();
    let scattered: Vec<(Vec<Spool<E>>, Spool<u16>)> =
        shares.into_par_iter().map(|share| scatter(share, plan, next, store)).collect::<Result<_>>()?;
    // From by share to by partition: the entries of each partition, share after share.
    let mut lists: Vec<Vec<Spool<E>>> = (0..num_partitions).map(|_| Vec::new()).collect();
    let mut orders = Vec::new();
    for (entries, order) in scattered {
        for (list, entries) in lists.iter_mut().zip(entries) {
            list.push(entries);
        }
        orders.push(order);
    }
    // One by one and not in stretches: partitions differ in size, and a thread that is done takes the next one.
    let joining = Joining::new(orders.len(), store);
    lists.into_iter().enumerate().par_bridge().try_for_each(|(number, lists)| {
        let counted = Tables::new(room).count_partition(lists, plan, number, settings, store)?;
        joining.add(number, counted)
    })?;
    let Joined { level, support_of_subset, weights, results, first_rank } = joining.into_joined()?;
    let streams = if next {
        orders
            .into_par_iter()
            .zip(results)
            .map(|(order, results)| gather(order, results, &first_rank, store))
            .collect::<Result<_>>()?
    } else {
        Vec::new()
    };
    Ok(Counted { level, support_of_subset, streams, weights })
}

/// Pass 1: write the key of each pair of one share to its partition; with `next` also the partition + 1 of each position, or 0.
///
/// The first entry of a unit in a partition is marked, so that the counting pass sees where units change without a number for
/// each entry. The first entry of a list is always marked: no unit has the number that `last_unit` begins with.
fn scatter<E: Entry, S: Share>(
    share: S,
    plan: &Plan,
    next: bool,
    store: &Arc<Store>,
) -> Result<(Vec<Spool<E>>, Spool<u16>)> {
    let mut lists: Vec<Spool<E>> = (0..plan.num_partitions()).map(|_| Spool::new(store)).collect();
    // One number for each partition is enough to tell a first entry, as the documents of a unit follow each other.
    let mut last_unit = vec![u32::MAX; lists.len()];
    let mut order = Spool::new(store);
    let mut numbers: Vec<u16> = Vec::new();
    share.documents(|unit, ids| {
        numbers.clear();
        numbers.extend(ids.windows(2).map(|pair| plan.partition_of(pair[0], pair[1])));
        // At the last position no pair begins; an empty document has no positions.
        numbers.resize(ids.len(), NO_PAIR);
        for (pair, &number) in ids.windows(2).zip(&numbers) {
            if number == NO_PAIR {
                continue;
            }
            let number = number as usize;
            let key = plan.key(number, pair[0], pair[1]);
            let first = last_unit[number] != unit;
            last_unit[number] = unit;
            lists[number].push(E::new(key, first))?;
        }
        if next {
            // From 1 on, and `NO_PAIR` is 0: small numbers take little room on disk.
            numbers.iter_mut().for_each(|number| *number = number.wrapping_add(1));
            order.extend(&numbers)?;
        }
        Ok(())
    })?;
    Ok((lists, order))
}

/// Pass 3: the stream of the next level of one share, one id + 1, or 0, for each position.
///
/// Scatter wrote the entries of a partition in the order of positions, and counting kept that order. So the next rank of the
/// partition that a position names is that of the position's pair. Ranks count within a partition; `first_rank` makes ids.
fn gather(
    order: Spool<u16>,
    mut results: Vec<Reader<u32>>,
    first_rank: &[u32],
    store: &Arc<Store>,
) -> Result<Spool<u32>> {
    let mut stream = Spool::new(store);
    let mut order = order.into_reader();
    let (mut numbers, mut ids) = (Vec::new(), Vec::new());
    loop {
        numbers.clear();
        ids.clear();
        // A few thousand positions at a time: they stay in the cache until the ids are written.
        order.read(1 << 12, &mut numbers)?;
        if numbers.is_empty() {
            return Ok(stream);
        }
        for &number in &numbers {
            ids.push(match usize::from(number).checked_sub(1) {
                None => 0,
                Some(number) => match results[number].take()? {
                    // Rank 0: the pair is not kept. (None would be an entry too few. Scatter writes one wherever the
                    // order names a partition.)
                    Some(0) | None => 0,
                    Some(rank) => rank + first_rank[number],
                },
            });
        }
        stream.extend(&ids)?;
    }
}
