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
//! the bit above it says that a unit begins.

use std::sync::Arc;

use rayon::prelude::*;

use crate::error::Result;
use crate::index::Level;
use crate::spool::{Number, Reader, Spool, Store};

/// What the pairs of a stream cost: entries a partition, at least and at most partitions.
const ENTRIES_PER_PARTITION: u64 = 1 << 17;
const MAX_PARTITIONS: usize = 1 << 11;
const NO_PAIR: u16 = u16::MAX;

/// One thread's documents, in the order of units.
pub trait Share: Send {
    /// Call `visit(unit number, ids + 1)` for each document; 0 is no id. Units are numbered from 0 as they come.
    fn documents(self, visit: impl FnMut(u32, &[u32]) -> Result<()>) -> Result<()>;
}

/// What one level needs to know of the one before.
pub struct Plan {
    num_ids: u64,
    shift: u32,
    /// `left >> shift` -> partition.
    partitions: Vec<u16>,
    first_left: Vec<u32>,
    narrow: bool,
    /// Id here -> id in the level's keys; empty where they are the same.
    names: Vec<u32>,
}

impl Plan {
    /// Ranges of left ids that hold about as many pairs each; `weights[left]` bounds the pairs of one. `names` (ascending)
    /// are what the ids are called in the level's keys, if that is something else.
    pub fn new(weights: &[u32], names: Vec<u32>, max_partitions: usize) -> Self {
        let num_ids = weights.len() as u64;
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let wanted = total.div_ceil(ENTRIES_PER_PARTITION).clamp(1, max_partitions.clamp(1, MAX_PARTITIONS) as u64);
        let shift = (64 - num_ids.leading_zeros()).saturating_sub(15);
        // The widest range of left ids whose keys fit a narrow entry, if ranges that narrow are still few enough.
        let width = ((1 << u32::KEY_BITS) / num_ids.max(1)) >> shift << shift;
        let narrow = width > 0 && wanted + num_ids / width <= MAX_PARTITIONS as u64;
        let target = total / wanted + 1;
        let mut plan = Self { num_ids, shift, partitions: Vec::new(), first_left: Vec::new(), narrow, names };
        let (mut held, mut first) = (0, 0);
        for (bin, weights) in weights.chunks(1 << shift).enumerate() {
            let left = (bin as u64) << shift;
            let weight: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
            let too_wide = narrow && left + (1 << shift) - first > width;
            if bin == 0
                || too_wide
                || (held > 0 && held + weight / 2 > target && plan.first_left.len() < MAX_PARTITIONS)
            {
                (held, first) = (0, left);
                plan.first_left.push(left as u32);
            }
            held += weight;
            plan.partitions.push((plan.first_left.len() - 1) as u16);
        }
        plan
    }

    /// The partition of two ids + 1, or `NO_PAIR` where one is 0.
    #[inline(always)]
    fn partition_of(&self, left: u32, right: u32) -> u16 {
        if left == 0 || right == 0 { NO_PAIR } else { self.partitions[((left - 1) >> self.shift) as usize] }
    }

    #[inline(always)]
    fn key(&self, partition: usize, left: u32, right: u32) -> u64 {
        u64::from(left - 1 - self.first_left[partition]) * self.num_ids + u64::from(right - 1)
    }

    fn name(&self, id: u64) -> u64 {
        self.names.get(id as usize).map_or(id, |&name| u64::from(name))
    }

    fn num_partitions(&self) -> usize {
        self.first_left.len()
    }
}

/// A level, and the streams (one a share) and weights of the next.
pub struct Counted {
    pub level: Level,
    pub streams: Vec<Spool<u32>>,
    pub weights: Vec<u32>,
}

/// Count the pairs of each share's documents. With `next` the streams of the next level are made too: rank + 1 where the
/// pair has at least `min_support` units, else 0.
pub fn count_level<S: Share>(
    shares: Vec<S>,
    plan: &Plan,
    min_support: u32,
    next: bool,
    store: &Arc<Store>,
) -> Result<Counted> {
    if plan.narrow {
        count::<u32, S>(shares, plan, min_support, next, store)
    } else {
        count::<u64, S>(shares, plan, min_support, next, store)
    }
}

/// An entry of a partition: a key, and whether it is the first of its unit there.
trait Entry: Number + Ord {
    const KEY_BITS: u32;
    fn new(key: u64, first: bool) -> Self;
    /// 1 for the first of a unit, else 0; and the entry without that.
    fn split(self) -> (u32, Self);
    fn key(self) -> u64;
}

impl Entry for u32 {
    const KEY_BITS: u32 = 31;
    #[inline(always)]
    fn new(key: u64, first: bool) -> Self {
        key as u32 | u32::from(first) << Self::KEY_BITS
    }
    #[inline(always)]
    fn split(self) -> (u32, Self) {
        (self >> Self::KEY_BITS, self & !(1 << Self::KEY_BITS))
    }
    #[inline(always)]
    fn key(self) -> u64 {
        u64::from(self)
    }
}

impl Entry for u64 {
    const KEY_BITS: u32 = 63;
    #[inline(always)]
    fn new(key: u64, first: bool) -> Self {
        key | u64::from(first) << Self::KEY_BITS
    }
    #[inline(always)]
    fn split(self) -> (u32, Self) {
        ((self >> Self::KEY_BITS) as u32, self & !(1 << Self::KEY_BITS))
    }
    #[inline(always)]
    fn key(self) -> u64 {
        self
    }
}

fn count<E: Entry, S: Share>(
    shares: Vec<S>,
    plan: &Plan,
    min_support: u32,
    next: bool,
    store: &Arc<Store>,
) -> Result<Counted> {
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
    let mut level = Level::new(store);
    let mut weights = Vec::new();
    // Results by share, then partition; ranks count from the first kept pair of the partition.
    let mut results: Vec<Vec<Reader<u32>>> = orders.iter().map(|_| Vec::new()).collect();
    let mut first_rank = Vec::new();
    let wave = rayon::current_num_threads() * 4;
    let mut lists = lists.into_iter().enumerate();
    loop {
        let some: Vec<_> = lists.by_ref().take(wave).collect();
        if some.is_empty() {
            break;
        }
        let done: Vec<Partition> = some
            .into_par_iter()
            .with_max_len(1)
            .map_init(Tables::default, |tables, (number, lists)| {
                tables.count_partition(lists, plan, number, min_support, next, store)
            })
            .collect::<Result<_>>()?;
        for partition in done {
            first_rank.push(weights.len() as u32);
            level.extend(&partition.keys, &partition.support)?;
            weights.extend(partition.weights);
            for (results, result) in results.iter_mut().zip(partition.results) {
                results.push(result.into_reader());
            }
        }
    }
    let streams = if next {
        orders
            .into_par_iter()
            .zip(results)
            .map(|(order, results)| gather(order, results, &first_rank, store))
            .collect::<Result<_>>()?
    } else {
        Vec::new()
    };
    Ok(Counted { level, streams, weights })
}

/// Write the key of each pair of one share to its partition; with `next` also the partition of each position.
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
        if next { order.extend(&numbers) } else { Ok(()) }
    })?;
    Ok((lists, order))
}

/// What is known of a distinct pair while its partition is counted.
#[derive(Clone, Copy)]
struct Pair {
    last_unit: u32,
    support: u32,
    occurrences: u32,
}

/// Tables of one thread, used for one partition after the other.
struct Tables<E> {
    /// (key, number of the pair + 1); 0: free.
    slots: Vec<(E, u32)>,
    pairs: Vec<Pair>,
    order: Vec<(E, u32)>,
    /// Number of the pair of each entry, in order.
    numbers: Vec<u32>,
    /// Number of the pair -> rank + 1 among the kept pairs of the partition, or 0.
    ranks: Vec<u32>,
}

impl<E: Entry> Default for Tables<E> {
    fn default() -> Self {
        Self {
            slots: vec![(E::default(), 0); 1 << 10],
            pairs: Vec::new(),
            order: Vec::new(),
            numbers: Vec::new(),
            ranks: Vec::new(),
        }
    }
}

struct Partition {
    keys: Vec<u64>,
    support: Vec<u32>,
    /// Occurrences of each kept pair.
    weights: Vec<u32>,
    /// By share: rank + 1 of each pair in order, or 0.
    results: Vec<Spool<u32>>,
}

impl<E: Entry> Tables<E> {
    fn count_partition(
        &mut self,
        lists: Vec<Spool<E>>,
        plan: &Plan,
        number: usize,
        min_support: u32,
        next: bool,
        store: &Arc<Store>,
    ) -> Result<Partition> {
        self.pairs.clear();
        self.numbers.clear();
        self.slots.fill((E::default(), 0));
        let mut unit = 0u32;
        let mut ends = Vec::new();
        for list in lists {
            let mut list = list.into_reader();
            while let Some(entries) = list.next_page()? {
                for &entry in entries {
                    let (first, key) = entry.split();
                    unit += first;
                    let pair = self.find(key);
                    let found = &mut self.pairs[pair as usize];
                    found.occurrences = found.occurrences.saturating_add(1);
                    found.support += u32::from(found.last_unit != unit);
                    found.last_unit = unit;
                    if next {
                        self.numbers.push(pair);
                    }
                }
            }
            ends.push(self.numbers.len());
        }
        self.order.clear();
        self.order.extend(self.slots.iter().filter(|slot| slot.1 > 0).map(|slot| (slot.0, slot.1 - 1)));
        self.order.sort_unstable_by_key(|pair| pair.0);
        let (mut keys, mut support, mut weights) =
            (Vec::with_capacity(self.order.len()), Vec::with_capacity(self.order.len()), Vec::new());
        self.ranks.clear();
        self.ranks.resize(self.pairs.len(), 0);
        let first_left = u64::from(plan.first_left[number]);
        for &(key, pair) in &self.order {
            let (left, right) = (first_left + key.key() / plan.num_ids, key.key() % plan.num_ids);
            keys.push(plan.name(left) << 32 | plan.name(right));
            let pair_support = self.pairs[pair as usize].support;
            support.push(pair_support);
            if next && pair_support >= min_support {
                weights.push(self.pairs[pair as usize].occurrences);
                self.ranks[pair as usize] = weights.len() as u32;
            }
        }
        let mut results = Vec::new();
        if next {
            let mut start = 0;
            for &end in &ends {
                let mut result = Spool::new(store);
                self.numbers[start..end].iter_mut().for_each(|number| *number = self.ranks[*number as usize]);
                result.extend(&self.numbers[start..end])?;
                results.push(result);
                start = end;
            }
        }
        Ok(Partition { keys, support, weights, results })
    }

    /// The number of a key's pair, new or known.
    #[inline(always)]
    fn find(&mut self, key: E) -> u32 {
        let mask = self.slots.len() - 1;
        let mut place = place_of(key, self.slots.len());
        loop {
            let (held, number) = self.slots[place];
            if number == 0 {
                break;
            }
            if held == key {
                return number - 1;
            }
            place = (place + 1) & mask;
        }
        self.pairs.push(Pair { last_unit: 0, support: 0, occurrences: 0 });
        self.slots[place] = (key, self.pairs.len() as u32);
        let number = self.pairs.len() as u32 - 1;
        if self.pairs.len() * 2 > self.slots.len() {
            self.grow();
        }
        number
    }

    #[cold]
    fn grow(&mut self) {
        let new = vec![(E::default(), 0); self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, new);
        let mask = self.slots.len() - 1;
        for slot in old.into_iter().filter(|slot| slot.1 > 0) {
            let mut place = place_of(slot.0, mask + 1);
            while self.slots[place].1 > 0 {
                place = (place + 1) & mask;
            }
            self.slots[place] = slot;
        }
    }
}

#[inline(always)]
fn place_of<E: Entry>(key: E, num_slots: usize) -> usize {
    (key.key().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - num_slots.trailing_zeros())) as usize
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
            ids.push(match number {
                NO_PAIR => 0,
                _ => match results[number as usize].take()? {
                    Some(0) | None => 0,
                    Some(rank) => rank + first_rank[number as usize],
                },
            });
        }
        stream.extend(&ids)?;
    }
}
