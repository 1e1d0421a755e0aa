//! Tables: the pairs of one partition, counted.
//!
//! Distinct pairs are numbered from 0 as they come, and known under these numbers until they are sorted. Numbers cost a second
//! access for each entry, but the hash table then holds keys and numbers alone and is small, and what is known of a pair
//! lies in the order in which pairs first came, which is nearly that in which they come back.
//!
//! Support needs no set of owners: entries come in the order of units, so a pair remembers the last unit that raised its count.
//!
//! **Memory of a pair.** A table that has grown is at least a quarter full, so a pair has at most 4 slots, and half as many
//! more while the table grows. With wide keys that is 6 * 16 bytes, then 12 for what is known of it, 16 in the order, 28 in
//! columns and 4 for the number of its entry: 156 at most, of which `limit` makes 160. Each further entry takes 4 bytes more,
//! and no partition has many more than `ENTRIES_IN_MIND` of these.
//!
//! **After an error** `Tables` is dropped: the room gets back exactly what was taken, and the spools give their pages back.

use std::sync::Arc;

use super::{ENTRIES_IN_MIND, Entry, Plan, Settings};
use crate::error::Result;
use crate::index::joined::Partition;
use crate::index::limit::Room;
use crate::storage::spool::{Spool, Store};

/// What is known of a distinct pair while its partition is counted.
#[derive(Clone, Copy)]
struct Pair {
    /// The unit that raised `support` last; units are numbered from 1 in the partition, over all shares. 0: none yet.
    /// It cannot run over: a unit is in one share, so there are no more numbers than units.
    last_unit: u32,
    /// Units so far. Exact only because a unit's entries follow each other: a unit that came back would count again.
    support: u32,
    /// Stays at the greatest u32 where there are more: it is a weight for the next plan, and no result.
    occurrences: u32,
}

/// Tables of one partition. They begin small and are dropped with it: most partitions are small, and clearing the largest table
/// so far for each of them would cost more than growing.
pub(super) struct Tables<'a, E> {
    /// The memory that all partitions being counted share.
    room: &'a Room,
    /// Bytes that were taken of it, and are given back on drop.
    /// Only grows. It is what `take` granted, not what is in use, so a refused request changes nothing.
    taken: usize,
    /// (key, number of the pair + 1); 0: free. A power of two, at most half full; open addressing with linear probing.
    /// The number and not the key says that a slot is free: 0 is the key of the first left id with right id 0.
    slots: Vec<(E, u32)>,
    /// By number of the pair.
    pairs: Vec<Pair>,
    /// Distinct keys and the numbers of their pairs; ascending by key once all entries have been counted.
    order: Vec<(E, u32)>,
    /// Number of the pair of each entry, in the order of entries: the last ones, where `Entries::stored` has the first.
    numbers: Vec<u32>,
    /// Number of the pair -> rank + 1 among the kept pairs of the partition, or 0.
    ranks: Vec<u32>,
}

/// What the pass over a partition's entries leaves beside the tables.
struct Entries {
    /// Numbers of the pairs of the first entries; those of the rest are in `Tables::numbers`.
    /// Empty for a partition of the size that is aimed at (`ENTRIES_PER_PARTITION`), which stays in memory whole.
    stored: Spool<u32>,
    /// How many entries the shares have up to and with each.
    /// One for each share, as a share without entries has an empty list. All 0 without a next level, where nothing reads them.
    ends: Vec<usize>,
    /// Support of the pairs, by number, when the last share of the subset was counted.
    /// A copy, as the counts go on with the other shares. Shorter than `pairs` where those bring new pairs.
    in_subset: Vec<u32>,
}

impl<E> Drop for Tables<'_, E> {
    fn drop(&mut self) {
        self.room.give_back(self.taken);
    }
}

impl<'a, E: Entry> Tables<'a, E> {
    pub(super) fn new(room: &'a Room) -> Self {
        Self {
            room,
            taken: 0,
            // 8 or 16 KiB, which the nearest cache holds: cheap to clear for a partition of a few pairs.
            slots: vec![(E::default(), 0); 1 << 10],
            pairs: Vec::new(),
            order: Vec::new(),
            numbers: Vec::new(),
            ranks: Vec::new(),
        }
    }

    /// Take the memory of all tables so far from the room, and, before they are made, that of the columns that the pairs will need:
    /// the order, the keys (8 bytes), support, support in the subset (twice), weights and ranks (4 bytes each). While the
    /// slots grow, the old table of half their length is there too.
    ///
    /// The room is one counter for all threads, so whoever asks last is refused, and not who holds most. The error ends the
    /// level in any case.
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

    /// Count the pairs of one partition, given its entries by share (those of the subset first).
    ///
    /// The result depends on the entries alone. Numbers of pairs depend on the order of shares, and none of them leaves: keys
    /// and supports are sorted, and entries get ranks.
    pub(super) fn count_partition(
        mut self,
        lists: Vec<Spool<E>>,
        plan: &Plan,
        number: usize,
        settings: Settings,
        store: &Arc<Store>,
    ) -> Result<Partition> {
        let counted = self.count_entries(lists, settings, store)?;
        self.order.extend(self.slots.iter().filter(|slot| slot.1 > 0).map(|slot| (slot.0, slot.1 - 1)));
        // Keys are distinct, so there is no order among equals to keep. From the slots and not as they came: the
        // slots hold the keys, and are needed no more.
        self.order.sort_unstable_by_key(|pair| pair.0);
        // Pairs are numbered as they come, and the subset's entries came first: the pairs that it does not have are the last.
        let of_subset = |pair: u32| counted.in_subset.get(pair as usize).copied().unwrap_or(0);
        let support_of_subset = match settings.num_of_subset {
            0 => Vec::new(),
            _ => self.order.iter().map(|&(_, pair)| of_subset(pair)).collect(),
        };
        let (keys, support, weights) = self.rank_pairs(plan, number, settings);
        let results = if settings.next { self.rank_entries(counted, store)? } else { Vec::new() };
        Ok(Partition { keys, support, support_of_subset, weights, results })
    }

    /// One pass over the entries, which gives their pages back. Afterwards `slots` and `pairs` hold every distinct pair, and, with
    /// a next level, `numbers` and the result tell which pair each entry is.
    fn count_entries(&mut self, lists: Vec<Spool<E>>, settings: Settings, store: &Arc<Store>) -> Result<Entries> {
        // Units are numbered here, from the marks, as entries hold no unit. 0 is no unit, so a new pair's `last_unit`
        // differs from all.
        let Settings { num_of_subset, next, .. } = settings;
        let num_entries: usize = lists.iter().map(Spool::len).sum();
        if next {
            self.numbers.reserve(num_entries.min(ENTRIES_IN_MIND));
        }
        // A guess from text, where pairs repeat: a list that grows is copied, and is in memory twice for that moment.
        self.pairs.reserve(num_entries / 16);
        let mut unit = 0u32;
        let mut counted = Entries { stored: Spool::new(store), ends: Vec::new(), in_subset: Vec::new() };
        for list in lists {
            let mut list = list.into_reader();
            while let Some(entries) = list.next_page()? {
                for &entry in entries {
                    let (first, key) = entry.split();
                    // The first entry of each list is marked, so units of two shares get two numbers.
                    unit += first;
                    let pair = self.find(key);
                    let found = &mut self.pairs[pair as usize];
                    found.occurrences = found.occurrences.saturating_add(1);
                    // An addition and no branch: whether a pair repeats within a unit is hard to guess for a processor.
                    found.support += u32::from(found.last_unit != unit);
                    found.last_unit = unit;
                    if next {
                        self.numbers.push(pair);
                    }
                }
                // Once for each page: often enough for a limit, as a page of entries can bring only so many pairs,
                // and no cost for an entry.
                self.take_room()?;
                if self.numbers.len() >= ENTRIES_IN_MIND {
                    counted.stored.extend(&self.numbers)?;
                    self.numbers.clear();
                }
            }
            // The stored ones come first, so a sum is the place in the one sequence that both make.
            counted.ends.push(counted.stored.len() + self.numbers.len());
            // At this one moment the counts are the subset's. Never where there is no subset, as there is one end by now.
            if counted.ends.len() == num_of_subset {
                counted.in_subset.extend(self.pairs.iter().map(|pair| pair.support));
            }
        }
        Ok(counted)
    }

    /// Keys and support of the pairs in order; occurrences of the kept ones. These get their ranks, in the same order, which is
    /// what makes the ids of the next level ascend with the keys of this one.
    ///
    /// A key is `(left - first left of the partition) * number of ids + right`. In DESIGN.md, with 5 ids, key 11 of partition 0
    /// is left 0 + 2 and right 1; in partition 1, which begins with left id 3, key 5 is left 3 + 1 and right 0. `names` makes
    /// numbers 4 and 2 of the first, and 9 and 1 of the second. They ascend with the ids, so the keys stay sorted.
    fn rank_pairs(&mut self, plan: &Plan, number: usize, settings: Settings) -> (Vec<u64>, Vec<u32>, Vec<u32>) {
        let Settings { min_support, next, .. } = settings;
        let (mut keys, mut support, mut weights) =
            (Vec::with_capacity(self.order.len()), Vec::with_capacity(self.order.len()), Vec::new());
        // 0 for all, and so for the pairs that are not kept. Without a next level nothing reads them.
        self.ranks.resize(self.pairs.len(), 0);
        let first_left = u64::from(plan.first_left[number]);
        for &(key, pair) in &self.order {
            let (left, right) = (first_left + key.key() / plan.num_ids, key.key() % plan.num_ids);
            keys.push(plan.name(left) << 32 | plan.name(right));
            let pair_support = self.pairs[pair as usize].support;
            // Listed whatever its support: a pair that is not kept is one that identifies.
            support.push(pair_support);
            if next && pair_support >= min_support {
                weights.push(self.pairs[pair as usize].occurrences);
                self.ranks[pair as usize] = weights.len() as u32;
            }
        }
        (keys, support, weights)
    }

    /// By share, the rank + 1 of each entry's pair, or 0, in the order in which the entries came. Numbers are replaced by ranks
    /// where they stand: 4 bytes in, 4 bytes out.
    fn rank_entries(&mut self, counted: Entries, store: &Arc<Store>) -> Result<Vec<Spool<u32>>> {
        let mut results = Vec::new();
        // Taken out, so that `numbers` can hold what is read from the store: no third list is needed.
        let mut in_mind = std::mem::take(&mut self.numbers);
        let (num_stored, mut stored) = (counted.stored.len(), counted.stored.into_reader());
        let mut at = 0;
        for end in counted.ends {
            // A spool for each share, also where it has no entry here: `gather` finds its share by place.
            let mut result = Spool::new(store);
            while at < end {
                let part = if at < num_stored {
                    self.numbers.clear();
                    // 16 KiB at a time stay in the cache. A share may end in the store and the next begin there, or one may
                    // go from the store on into memory; the reader then gives what is left, and the next turn goes on.
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
        Ok(results)
    }

    /// The number of a key's pair, new or known.
    #[inline(always)]
    fn find(&mut self, key: E) -> u32 {
        // Half of the slots are free at least, so the walk ends. Neighbouring slots share a line of the cache, which
        // is why the next one is tried and not one far away.
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
        // `last_unit` 0 is no unit's number, so the caller's count makes the support 1.
        self.pairs.push(Pair { last_unit: 0, support: 0, occurrences: 0 });
        self.slots[place] = (key, self.pairs.len() as u32);
        let number = self.pairs.len() as u32 - 1;
        if self.pairs.len() * 2 > self.slots.len() {
            self.grow();
        }
        number
    }

    /// A place is the first bits of a hash, so in a table of twice the length it is twice the old one, or that plus 1. So
    /// the new table is written nearly from front to back, as the old one is read: memory is fetched ahead for both.
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

/// The highest bits of a product with 2^64 / golden ratio: they depend on all bits of the key. Keys are regular numbers, so
/// to spread them is enough, and one multiplication is all it costs.
#[inline(always)]
fn place_of<E: Entry>(key: E, num_slots: usize) -> usize {
    // A table has 1,024 slots or more, so the shift is below 64.
    (key.key().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - num_slots.trailing_zeros())) as usize
}
