//! Levels: how many units use each pair of neighbouring ids, counted partition by partition.
//!
//! Documents stand in the order of their unit. One thread walks one share of the units and writes the key of each pair to the
//! partition that its left id belongs to (*scatter*). Then each partition is counted by itself in tables that fit the
//! cache: an entry is a key, a count and the last unit that raised it, so no set of owners is kept. The keys of a partition are
//! sorted; partitions are ranges of keys, so one after the other they are the level in order. What became of each pair
//! (its rank, or nothing) is written down in the order the pairs came, and walked once more with the order of partitions
//! kept from the scatter, which makes the stream of the next level (*gather*).
//!
//! Every pass is sequential but for the tables of one partition: that is why it runs at the same speed from memory and disk.
//! A key is `(left - first left of the partition) * number of ids + right`: exact, and 31 bits wide wherever that holds it;
//! the bit below it says that a unit begins (above it would make every entry wide on disk).

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

/// What the pairs of a stream cost: entries a partition, and at most partitions (twice as many where that makes keys
/// narrow).
const ENTRIES_PER_PARTITION: u64 = 1 << 17;
pub const MAX_PARTITIONS: usize = 1 << 11;
const NO_PAIR: u16 = u16::MAX;
/// Entries of a partition whose pairs are kept in mind as they come; those of a very frequent left id go to the store.
const ENTRIES_IN_MIND: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// One thread's documents, in the order of units.
pub trait Share: Send {
    /// Call `visit(unit number, ids + 1)` for each document; 0 is no id. Units are numbered from 0 as they come.
    fn documents(self, visit: impl FnMut(u32, &[u32]) -> Result<()>) -> Result<()>;
}

/// A level, and the streams (one a share) and weights of the next.
pub struct Counted {
    pub level: Level,
    /// Support of each pair in the subset of the units, where it has shares.
    pub support_of_subset: Spool<u32>,
    pub streams: Vec<Spool<u32>>,
    pub weights: Spool<u32>,
}

/// What to count of a level's pairs.
#[derive(Clone, Copy)]
pub struct Settings {
    pub min_support: u32,
    /// So many of the first shares are the subset's.
    pub num_of_subset: usize,
    /// Whether to make the streams of the next level too: rank + 1 where the pair has at least `min_support` units, else 0.
    pub next: bool,
}

/// Count the pairs of each share's documents; the tables of partitions take no more than their `room`.
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
    // Entries of each partition by share, and the partition of each position by share.
    let mut lists: Vec<Vec<Spool<E>>> = (0..num_partitions).map(|_| Vec::new()).collect();
    let mut orders = Vec::new();
    for (entries, order) in scattered {
        for (list, entries) in lists.iter_mut().zip(entries) {
            list.push(entries);
        }
        orders.push(order);
    }
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

/// Write the key of each pair of one share to its partition; with `next` also the partition + 1 of each position, or 0.
fn scatter<E: Entry, S: Share>(
    share: S,
    plan: &Plan,
    next: bool,
    store: &Arc<Store>,
) -> Result<(Vec<Spool<E>>, Spool<u16>)> {
    let mut lists: Vec<Spool<E>> = (0..plan.num_partitions()).map(|_| Spool::new(store)).collect();
    let mut last_unit = vec![u32::MAX; lists.len()];
    let mut order = Spool::new(store);
    let mut numbers: Vec<u16> = Vec::new();
    share.documents(|unit, ids| {
        numbers.clear();
        numbers.extend(ids.windows(2).map(|pair| plan.partition_of(pair[0], pair[1])));
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

/// The stream of the next level of one share: one id + 1, or 0, for each position.
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
        order.read(1 << 12, &mut numbers)?;
        if numbers.is_empty() {
            return Ok(stream);
        }
        for &number in &numbers {
            ids.push(match usize::from(number).checked_sub(1) {
                None => 0,
                Some(number) => match results[number].take()? {
                    Some(0) | None => 0,
                    Some(rank) => rank + first_rank[number],
                },
            });
        }
        stream.extend(&ids)?;
    }
}
