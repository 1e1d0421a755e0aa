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

use std::sync::Arc;

use rayon::prelude::*;

use crate::error::Result;
use crate::index::joined::{Joined, Joining, Partition};
use crate::index::limit::Room;
use crate::index::ngram_index::Level;
use crate::storage::packing::Number;
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
    pub fn new(weights: &Spool<u32>, names: Vec<u32>, max_partitions: usize) -> Result<Self> {
        let num_ids = weights.len() as u64;
        let shift = (64 - num_ids.leading_zeros()).saturating_sub(15);
        let bins = sums(weights, 1 << shift)?;
        let total: u64 = bins.iter().sum();
        let wanted = total.div_ceil(ENTRIES_PER_PARTITION).clamp(1, max_partitions.clamp(1, MAX_PARTITIONS) as u64);
        // The widest range of left ids whose keys fit an entry: a narrow one, if ranges that narrow are still few enough.
        let fitting = |key_bits: u32| ((1 << key_bits) / num_ids.max(1)) >> shift << shift;
        let at_most = 2 * max_partitions.clamp(1, MAX_PARTITIONS);
        let narrow = num_ids.checked_div(fitting(u32::KEY_BITS)).is_some_and(|more| wanted + more <= at_most as u64);
        let width = fitting(if narrow { u32::KEY_BITS } else { u64::KEY_BITS });
        let target = total / wanted + 1;
        let mut plan = Self { num_ids, shift, partitions: Vec::new(), first_left: Vec::new(), narrow, names };
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

/// The sums of so many numbers each.
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
        (key as u32) << 1 | u32::from(first)
    }
    #[inline(always)]
    fn split(self) -> (u32, Self) {
        (self & 1, self >> 1)
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
        key << 1 | u64::from(first)
    }
    #[inline(always)]
    fn split(self) -> (u32, Self) {
        ((self & 1) as u32, self >> 1)
    }
    #[inline(always)]
    fn key(self) -> u64 {
        self
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

/// What is known of a distinct pair while its partition is counted.
#[derive(Clone, Copy)]
struct Pair {
    last_unit: u32,
    support: u32,
    occurrences: u32,
}

/// Tables of one partition. They begin small: to wipe the largest so far for each would cost more.
struct Tables<'a, E> {
    room: &'a Room,
    /// Bytes that were taken of it.
    taken: usize,
    /// (key, number of the pair + 1); 0: free.
    slots: Vec<(E, u32)>,
    pairs: Vec<Pair>,
    order: Vec<(E, u32)>,
    /// Number of the pair of each entry, in order.
    numbers: Vec<u32>,
    /// Number of the pair -> rank + 1 among the kept pairs of the partition, or 0.
    ranks: Vec<u32>,
}

impl<E> Drop for Tables<'_, E> {
    fn drop(&mut self) {
        self.room.give_back(self.taken);
    }
}

impl<'a, E: Entry> Tables<'a, E> {
    fn new(room: &'a Room) -> Self {
        Self {
            room,
            taken: 0,
            slots: vec![(E::default(), 0); 1 << 10],
            pairs: Vec::new(),
            order: Vec::new(),
            numbers: Vec::new(),
            ranks: Vec::new(),
        }
    }

    /// Take what is known of each pair so far, and what its slots take, of the room.
    fn take_room(&mut self) -> Result<()> {
        let per_pair = size_of::<Pair>() + size_of::<(E, u32)>() + 7 * size_of::<u32>();
        let slots = self.slots.len() * 3 / 2 * size_of::<(E, u32)>();
        let needed = slots + self.pairs.len() * per_pair + self.numbers.capacity() * 4;
        if needed > self.taken {
            self.room.take(needed - self.taken)?;
            self.taken = needed;
        }
        Ok(())
    }

    fn count_partition(
        mut self,
        lists: Vec<Spool<E>>,
        plan: &Plan,
        number: usize,
        settings: Settings,
        store: &Arc<Store>,
    ) -> Result<Partition> {
        let Settings { min_support, num_of_subset, next } = settings;
        let num_entries: usize = lists.iter().map(Spool::len).sum();
        if next {
            self.numbers.reserve(num_entries.min(ENTRIES_IN_MIND));
        }
        self.pairs.reserve(num_entries / 16);
        let mut unit = 0u32;
        let mut ends = Vec::new();
        let mut stored = Spool::new(store);
        let mut in_subset: Vec<u32> = Vec::new();
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
                self.take_room()?;
                if self.numbers.len() >= ENTRIES_IN_MIND {
                    stored.extend(&self.numbers)?;
                    self.numbers.clear();
                }
            }
            ends.push(stored.len() + self.numbers.len());
            if ends.len() == num_of_subset {
                in_subset.extend(self.pairs.iter().map(|pair| pair.support));
            }
        }
        self.order.extend(self.slots.iter().filter(|slot| slot.1 > 0).map(|slot| (slot.0, slot.1 - 1)));
        self.order.sort_unstable_by_key(|pair| pair.0);
        let (mut keys, mut support, mut weights) =
            (Vec::with_capacity(self.order.len()), Vec::with_capacity(self.order.len()), Vec::new());
        // Pairs are numbered as they come: those that the subset has not are the last.
        let support_of_subset = match num_of_subset {
            0 => Vec::new(),
            _ => self.order.iter().map(|&(_, pair)| in_subset.get(pair as usize).copied().unwrap_or(0)).collect(),
        };
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
            let mut in_mind = std::mem::take(&mut self.numbers);
            let (num_stored, mut stored) = (stored.len(), stored.into_reader());
            let mut at = 0;
            for &end in &ends {
                let mut result = Spool::new(store);
                while at < end {
                    let part = if at < num_stored {
                        self.numbers.clear();
                        stored.read((end - at).min(1 << 12), &mut self.numbers)?;
                        &mut self.numbers[..]
                    } else {
                        &mut in_mind[at - num_stored..end - num_stored]
                    };
                    part.iter_mut().for_each(|number| *number = self.ranks[*number as usize]);
                    result.extend(part)?;
                    at += part.len();
                }
                results.push(result);
            }
        }
        Ok(Partition { keys, support, support_of_subset, weights, results })
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::error::Error;
    use crate::storage::spool::tests::packing_store;

    /// Documents of ids + 1 (0: no id), by unit, by share.
    type Corpus = Vec<Vec<Vec<Vec<u32>>>>;

    struct Given<'a>(&'a [Vec<Vec<u32>>]);

    impl Share for Given<'_> {
        fn documents(self, mut visit: impl FnMut(u32, &[u32]) -> Result<()>) -> Result<()> {
            for (unit, documents) in self.0.iter().enumerate() {
                documents.iter().try_for_each(|ids| visit(unit as u32, ids))?;
            }
            Ok(())
        }
    }

    fn plan_of(weights: &[u32], names: Vec<u32>, max_partitions: usize) -> Plan {
        Plan::new(&Spool::from_slice(weights).unwrap(), names, max_partitions).unwrap()
    }

    /// The same each time; small ids are frequent.
    fn corpus(num_shares: u64, num_ids: u64, num_documents: u64) -> Corpus {
        let mut state = num_ids;
        let mut draw = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let unit = |number: u64, draw: &mut dyn FnMut(u64) -> u64| {
            // One unit of each share has a hundred times as many documents; some documents are empty or one id long.
            let num_documents = if number == 1 { 100 } else { draw(4) };
            let document = |draw: &mut dyn FnMut(u64) -> u64| {
                let (len, below) = (draw(30), draw(num_ids + 1) + 1);
                (0..len).map(|_| draw(below) as u32).collect()
            };
            (0..num_documents).map(|_| document(draw)).collect()
        };
        (0..num_shares).map(|_| (0..num_documents).map(|number| unit(number, &mut draw)).collect()).collect()
    }

    /// Pair of ids -> its units and how often it stands there.
    #[allow(clippy::type_complexity)]
    fn oracle(corpus: &Corpus) -> BTreeMap<(u32, u32), (BTreeSet<(usize, usize)>, u32)> {
        let mut pairs: BTreeMap<_, (BTreeSet<_>, u32)> = BTreeMap::new();
        for (share, units) in corpus.iter().enumerate() {
            for (unit, documents) in units.iter().enumerate() {
                for pair in documents.iter().flat_map(|ids| ids.windows(2)).filter(|pair| pair[0] > 0 && pair[1] > 0) {
                    let found = pairs.entry((pair[0] - 1, pair[1] - 1)).or_default();
                    found.0.insert((share, unit));
                    found.1 += 1;
                }
            }
        }
        pairs
    }

    fn weights(corpus: &Corpus, num_ids: u64) -> Vec<u32> {
        let mut weights = vec![0; num_ids as usize];
        for &id in corpus.iter().flatten().flatten().flatten().filter(|&&id| id > 0) {
            weights[id as usize - 1] += 1;
        }
        weights
    }

    fn check(corpus: &Corpus, plan: &Plan, names: &[u32], min_support: u32, store: &Arc<Store>) {
        let shares = || corpus.iter().map(|units| Given(units)).collect::<Vec<_>>();
        let settings = Settings { min_support, num_of_subset: corpus.len() / 2, next: true };
        let counted = count_level(shares(), plan, settings, &Room::unlimited(), store).unwrap();
        let pairs = oracle(corpus);
        let name = |id: u32| u64::from(names.get(id as usize).copied().unwrap_or(id));
        let keys: Vec<u64> = pairs.keys().map(|&(left, right)| name(left) << 32 | name(right)).collect();
        assert_eq!(counted.level.keys.to_vec().unwrap(), keys);
        let support: Vec<u32> = pairs.values().map(|found| found.0.len() as u32).collect();
        assert_eq!(counted.level.support.to_vec().unwrap(), support);
        let in_subset =
            |found: &BTreeSet<(usize, usize)>| found.iter().filter(|unit| unit.0 < settings.num_of_subset).count();
        let of_subset: Vec<u32> = pairs.values().map(|found| in_subset(&found.0) as u32).collect();
        assert_eq!(
            counted.support_of_subset.to_vec().unwrap(),
            if settings.num_of_subset > 0 { of_subset } else { Vec::new() }
        );
        let kept: Vec<_> = pairs.iter().filter(|pair| pair.1.0.len() as u32 >= min_support).collect();
        assert_eq!(counted.weights.to_vec().unwrap(), kept.iter().map(|pair| pair.1.1).collect::<Vec<_>>());
        let ranks: BTreeMap<_, u32> = (1..).zip(&kept).map(|(rank, pair)| (*pair.0, rank)).collect();
        assert_eq!(counted.streams.len(), corpus.len());
        for (stream, units) in counted.streams.iter().zip(corpus) {
            let mut expected = Vec::new();
            for ids in units.iter().flatten() {
                let rank = |pair: &[u32]| {
                    let pair = (pair[0].checked_sub(1)?, pair[1].checked_sub(1)?);
                    ranks.get(&pair).copied()
                };
                expected.extend(ids.windows(2).map(|pair| rank(pair).unwrap_or(0)));
                expected.extend(ids.last().map(|_| 0));
            }
            assert_eq!(stream.to_vec().unwrap(), expected);
        }
        let last =
            count_level(shares(), plan, Settings { next: false, ..settings }, &Room::unlimited(), store).unwrap();
        assert!(last.streams.is_empty() && last.weights.is_empty());
        assert_eq!(last.level.keys.to_vec().unwrap(), keys);
        assert_eq!(last.level.support.to_vec().unwrap(), support);
    }

    #[test]
    fn pairs_match_a_map_in_memory_and_on_disk_with_narrow_and_wide_entries() {
        let folder = std::env::temp_dir();
        for (num_shares, num_ids, num_documents) in [(1, 1, 30), (3, 40, 60), (2, 3_000, 400), (4, 70_000, 100)] {
            let corpus = corpus(num_shares, num_ids, num_documents);
            let weights = weights(&corpus, num_ids);
            let names: Vec<u32> = (0..num_ids as u32).map(|id| 3 * id + 1).collect();
            for (narrow, min_support) in [(true, 1), (false, 2), (true, 3)] {
                let small = Store::limited(16 << 10, &folder).unwrap();
                let packing = (packing_store(), num_ids >= 3_000);
                for (store, spills) in [(Store::in_memory(), false), (small, true), packing] {
                    let mut plan = plan_of(&weights, names.clone(), usize::MAX);
                    assert!(plan.narrow);
                    plan.narrow = narrow;
                    check(&corpus, &plan, &names, min_support, &store);
                    assert_eq!(store.spilled_bytes() > 0, spills);
                }
            }
        }
    }

    #[test]
    fn pairs_match_a_map_for_any_partitions() {
        let corpus = corpus(3, 3_000, 200);
        let weights = weights(&corpus, 3_000);
        let store = Store::limited(64 << 10, &std::env::temp_dir()).unwrap();
        for left in 1..=5u32 {
            let mut plan = plan_of(&weights, Vec::new(), usize::MAX);
            // Each left id one of its own, then 11, 121, … together.
            let wide = 11u32.pow(left - 1);
            plan.first_left = (0..3_000).step_by(wide as usize).collect();
            plan.partitions = (0..3_000 >> plan.shift).map(|bin| ((bin << plan.shift) / wide) as u16).collect();
            assert_eq!(plan.shift, 0);
            plan.narrow = left % 2 == 0;
            check(&corpus, &plan, &[], 2, &store);
        }
        assert!(store.spilled_bytes() > 0);
    }

    #[test]
    fn tables_that_have_no_room_are_refused() {
        let corpus = corpus(2, 3_000, 400);
        let plan = plan_of(&weights(&corpus, 3_000), Vec::new(), usize::MAX);
        let settings = Settings { min_support: 2, num_of_subset: 0, next: true };
        let count = |room: &Room| {
            let shares = corpus.iter().map(|units| Given(units)).collect::<Vec<_>>();
            count_level(shares, &plan, settings, room, &Store::in_memory())
        };
        let refusal = Error::Policy("too little".into());
        let small = Room::within(1 << 16, &refusal);
        assert!(count(&small).is_err_and(|error| error.to_string() == "too little"));
        for room in [Room::within(64 << 20, &refusal), Room::unlimited()] {
            assert!(count(&room).is_ok());
            assert_eq!(room.num_bytes_taken(), 0);
        }
    }

    /// What must hold of every plan: partitions are ranges of left ids in order, and keys fit their entries.
    fn check_plan(plan: &Plan, num_ids: u64) {
        assert_eq!(plan.partitions.len() as u64, num_ids.div_ceil(1 << plan.shift));
        assert!(plan.num_partitions() <= 2 * MAX_PARTITIONS && plan.num_partitions() < NO_PAIR as usize);
        assert!(plan.partitions.is_sorted() && plan.first_left.is_sorted());
        for (number, &first) in plan.first_left.iter().enumerate() {
            let end = plan.first_left.get(number + 1).map_or(num_ids, |&next| u64::from(next));
            for left in [u64::from(first), end - 1] {
                assert_eq!(plan.partition_of(left as u32 + 1, 1) as usize, number);
            }
            let last = plan.key(number, end as u32, num_ids as u32);
            assert!(last < 1 << if plan.narrow { u32::KEY_BITS } else { u64::KEY_BITS });
        }
    }

    #[test]
    fn plans_hold_for_any_weights() {
        let even = |num_ids: u64, weight: u32| vec![weight; num_ids as usize];
        let mut heavy = even(100_000, 1);
        (heavy[0], heavy[50_000], heavy[99_999]) = (u32::MAX, u32::MAX, u32::MAX);
        let table: Vec<(Vec<u32>, usize, bool)> = vec![
            (even(1, 1), usize::MAX, true),
            (even(2_000, 100_000), usize::MAX, true),
            (even(100_000, 0), usize::MAX, true),
            (even(3_000_000, 1), usize::MAX, false),
            (even(1_000_000, 2), usize::MAX, true),
            (even(1_000_000, 2), 16, false),
            (even(300_000, u32::MAX), 0, false),
            (heavy.clone(), usize::MAX, true),
            (heavy, 3, false),
        ];
        for (weights, max_partitions, narrow) in table {
            let plan = plan_of(&weights, Vec::new(), max_partitions);
            assert_eq!(plan.narrow, narrow);
            check_plan(&plan, weights.len() as u64);
            if max_partitions < MAX_PARTITIONS {
                assert!(plan.num_partitions() <= 2 * max_partitions.max(1));
            }
        }
        let nothing = plan_of(&[], Vec::new(), usize::MAX);
        assert_eq!(nothing.num_partitions(), 0);
        check(&vec![vec![vec![vec![0, 0], vec![]]]], &nothing, &[], 1, &Store::in_memory());
    }
}
