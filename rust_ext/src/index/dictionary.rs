//! Dictionary: distinct words to consecutive ids, with their counts. Each worker of the index builder has one.
//!
//! Ids are assigned in the order in which words appear, from 0. They depend on threads and batches, so they never leave the
//! builder (`vocabulary` gives words their numbers).
//!
//! A *visit* is a stretch of neighbouring documents of one unit. If a unit has no other documents, its visit raises the
//! support of each of its words by one at once. Each word stores its last visit, so a repetition raises nothing.
//!
//! **Why not a `HashMap<String, …>`.** This is the hottest loop of the index: one look-up for each word of the text. Its cost is
//! not arithmetic but waiting for memory, as the words of the long tail are in no cache. So:
//!
//! - A word of up to 15 bytes *is* its key, an integer of 16 bytes (`key`). It is compared without a visit to the arena, and
//!   identity never rests on a hash: a collision would merge two words and raise their support, which protects too little.
//! - All data of a short word is in one slot of 32 bytes: one cache line for each look-up.
//! - Words are looked up one by one, while the slots of the next `AHEAD` are fetched into the cache.
//!
//! Longer words are rare. They are compared byte for byte in the arena.
//!
//! The table is filled to three quarters at most, with linear probing, and grows by half in place (`grow`).

#[cfg(test)]
mod tests;

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::index::counts::{Count, Counted, Counts};
use crate::index::pairs::next;
use crate::storage::buffer::{Buffer, Zero, prefetch};
use crate::storage::key::Key;
use crate::storage::strings::Strings;

/// Words whose slots are on their way into the cache. Enough that memory answers in time, and few enough that a slot is not
/// pushed out before it is its turn.
const AHEAD: usize = 16;
/// Slots that a table can grow to without moving: 32 MiB of addresses, of which the slots in use take memory.
const ROOM: usize = 1 << 20;

/// A short word. 32 bytes, aligned: half a line of the cache, and never on two lines.
#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
struct Slot {
    key: Key,
    /// Times seen since the last `settle`. A taken slot has 1 or more (`settle` leaves 1 behind); 0: the slot is free. It says so
    /// instead of the key, so that the zeroed memory of a new table is a table of free slots.
    count: u32,
    /// Visits that were the only one of their unit and held the word. At most the number of visits, which is 32 bits wide.
    support: u32,
    /// Number of the word in `Dictionary::words`.
    id: u32,
    /// The visit that saw it last.
    visit: u32,
}

// SAFETY: integers all the way down, of which zero is a value; a zeroed slot has count 0 and so reads as free.
unsafe impl Zero for Slot {}

/// A word of 16 bytes or more; as [`Slot`], but its bytes are in `Dictionary::words`.
struct Long {
    id: u32,
    visit: u32,
    support: u32,
    count: u64,
}

/// One visit, told from the others by its number.
#[derive(Clone, Copy, Default)]
pub struct Visit {
    pub number: u32,
    /// Whether it is the only one of its unit, and raises the support of its words. Where it is not, the unit's documents are
    /// counted when all have come: a word in two visits of a unit must count once.
    pub only: bool,
}

pub struct Dictionary {
    /// Short words, by key. Never full: three quarters at most are taken before a chunk of words is looked up.
    slots: Buffer<Slot>,
    /// Slots that are taken.
    num_short: usize,
    /// Longer words, by a hash of their bytes.
    long: HashTable<Long>,
    /// All words by id. `long` and `slots` together hold each id once.
    words: Strings,
    /// Words seen since the last `settle`: an upper bound of every `Slot::count`, and kept below 2^32.
    num_seen: u64,
    /// Counts by id that come on top of those in the tables: from before the last `settle`, and from absorbed dictionaries.
    known: Counts,
    /// The counts by id when `end_subset` was called. Words that came later have none.
    subset: Counts,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            slots: Buffer::growing_table(1 << 12, ROOM),
            num_short: 0,
            long: HashTable::new(),
            words: Strings::new(),
            num_seen: 0,
            known: Counts::default(),
            subset: Counts::default(),
        }
    }
}

impl Dictionary {
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Memory in use, about.
    pub fn num_bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>() + self.long.len() * 2 * size_of::<Long>() + self.words.num_bytes()
    }

    /// Append the ids of words given by their bounds in `text`, in order.
    pub fn intern(&mut self, text: &str, bounds: &[(u32, u32)], visit: Visit, ids: &mut Vec<u32>) {
        let first = ids.len();
        ids.resize(first + bounds.len(), 0);
        let mut out = ids[first..].iter_mut();
        self.each(text, bounds, visit, |id, _| {
            if let Some(out) = out.next() {
                *out = id;
            }
        });
    }

    /// Append the ids of the words that this visit has not seen: its distinct words, over all its documents.
    pub fn intern_new(&mut self, text: &str, bounds: &[(u32, u32)], visit: Visit, ids: &mut Vec<u32>) {
        let first = ids.len();
        ids.resize(first + bounds.len(), 0);
        // Every id is written, and stays where the next one is not written over it: whether a word is new to the visit is
        // what a processor guesses wrong.
        let (out, mut num_new) = (&mut ids[first..], 0);
        self.each(text, bounds, visit, |id, is_new| {
            out[num_new] = id;
            num_new += usize::from(is_new);
        });
        ids.truncate(first + num_new);
    }

    /// Count words and support, without ids.
    pub fn count(&mut self, text: &str, bounds: &[(u32, u32)], visit: Visit) {
        self.each(text, bounds, visit, |_, _| ());
    }

    /// Call `found` with the id of each word and whether this visit has not seen it.
    ///
    /// `found` is inlined three times, so that each caller's loop does no more than it needs: to `count`, ids are nothing.
    #[inline(always)]
    fn each(&mut self, text: &str, bounds: &[(u32, u32)], visit: Visit, mut found: impl FnMut(u32, bool)) {
        self.num_seen += bounds.len() as u64;
        if self.num_seen >= u64::from(u32::MAX) {
            self.settle();
            self.num_seen += bounds.len() as u64;
        }
        // A ring: entry `at % AHEAD` is key and first place of word `at`, until it is looked up; then of word `at + AHEAD`.
        let mut fetched = [(Key::default(), 0u32); AHEAD];
        for chunk in bounds.chunks(1 << 10) {
            // Each word of a chunk may be new. Grow before places are computed: they depend on the length of the table, and the
            // ring holds places.
            while self.num_short + chunk.len() > self.slots.len() / 4 * 3 {
                self.grow();
            }
            for (at, &word) in chunk.iter().take(AHEAD).enumerate() {
                fetched[at] = self.fetch(text, word);
            }
            for (at, &(start, end)) in chunk.iter().enumerate() {
                let (key, place) = fetched[at % AHEAD];
                if let Some(&word) = chunk.get(at + AHEAD) {
                    fetched[at % AHEAD] = self.fetch(text, word);
                }
                let mut place = place as usize;
                if key == Key::default() {
                    let (id, is_new) = self.see_long(&text[start as usize..end as usize], visit);
                    found(id, is_new);
                    continue;
                }
                let slot = loop {
                    let slot = &mut self.slots[place];
                    if slot.key == key {
                        break slot;
                    }
                    if slot.count == 0 {
                        let id = self.words.len() as u32;
                        self.words.push(&text[start as usize..end as usize]);
                        self.num_short += 1;
                        // Of any visit but this one; the count becomes 1 below, and the slot taken.
                        *slot = Slot { key, count: 0, support: 0, id, visit: visit.number.wrapping_sub(1) };
                        break slot;
                    }
                    place = next(place, self.slots.len());
                };
                // Additions instead of branches: which words repeat within a document is what a processor guesses wrong.
                let is_new = slot.visit != visit.number;
                slot.count += 1;
                slot.support += u32::from(is_new & visit.only);
                slot.visit = visit.number;
                found(slot.id, is_new);
            }
        }
    }

    /// Move counts from the slots to `known`, before they could run over 32 bits. A taken slot keeps a count of 1, as 0 would
    /// free it; hence `count - 1`, and one word seen. Once in four billion words: 32 bits keep a slot at half a line.
    #[cold]
    fn settle(&mut self) {
        self.known.resize(self.words.len());
        for slot in self.slots.iter_mut().filter(|slot| slot.count > 0) {
            self.known.occurrences[slot.id as usize] += u64::from(slot.count - 1);
            slot.count = 1;
        }
        self.num_seen = 1;
    }

    /// Key of a word, and the place where the table is looked at first, which is fetched into the cache.
    #[inline(always)]
    fn fetch(&self, text: &str, (start, end): (u32, u32)) -> (Key, u32) {
        // A longer word has the default key, which no string has.
        let key = Key::of(text.as_bytes(), start as usize, end as usize).unwrap_or_default();
        let place = home(key, self.slots.len());
        prefetch(&self.slots[place]);
        (key, place as u32)
    }

    /// Id of a word of 16 bytes or more, and whether this visit has not seen it.
    fn see_long(&mut self, word: &str, visit: Visit) -> (u32, bool) {
        let hash = FixedState::default().hash_one(word);
        let words = &self.words;
        if let Some(found) = self.long.find_mut(hash, |long| words.get(long.id as usize) == word) {
            let is_new = found.visit != visit.number;
            found.count += 1;
            found.support += u32::from(is_new & visit.only);
            found.visit = visit.number;
            return (found.id, is_new);
        }
        let id = self.words.len() as u32;
        self.words.push(word);
        let words = &self.words;
        let long = Long { id, visit: visit.number, support: u32::from(visit.only), count: 1 };
        self.long.insert_unique(hash, long, |long| FixedState::default().hash_one(words.get(long.id as usize)));
        (id, true)
    }

    /// Make the table larger by half, in its place: two tables at a time would be the most memory that counting takes.
    ///
    /// The memory behind the table is there (`Buffer::growing_table`), so slots move within one table. A slot's first place is
    /// its hash, scaled to the length (`home`), so slots stand about in the order of their hashes, and in the longer table
    /// nearly every slot moves up. `waiting` says of each slot whether it still stands where the old length put it; such a
    /// slot is in no other's way, since the one that needs its place takes it, and moves it on (`put`).
    #[cold]
    fn grow(&mut self) {
        let num_old = self.slots.len();
        let len = num_old + num_old / 2;
        self.slots.grow(len, ROOM.max(len * 2));
        let mut waiting: Vec<bool> = self.slots[..num_old].iter().map(|slot| slot.count > 0).collect();
        // Run after run of taken slots, from the last run to the first: what moves up then finds free places. Within a run
        // from the first slot: words that came early are the frequent ones, and they keep the places that are looked at first.
        let mut end = num_old;
        while end > 0 {
            let first = (0..end).rev().find(|&place| !waiting[place]).map_or(0, |before| before + 1);
            for place in first..end {
                if std::mem::take(&mut waiting[place]) {
                    let slot = std::mem::take(&mut self.slots[place]);
                    self.put(slot, &mut waiting);
                }
            }
            end = first.saturating_sub(1);
        }
    }

    /// Put a slot at the first place from its home on that is free or waiting. A slot that waited there is put next in the same
    /// way, so the loop ends: each swap clears one of `waiting`, and the table is never full.
    fn put(&mut self, mut slot: Slot, waiting: &mut [bool]) {
        let len = self.slots.len();
        let mut place = home(slot.key, len);
        loop {
            let there = &mut self.slots[place];
            if there.count == 0 {
                *there = slot;
                return;
            }
            if waiting.get_mut(place).is_some_and(std::mem::take) {
                std::mem::swap(&mut slot, there);
                place = home(slot.key, len);
            } else {
                place = next(place, len);
            }
        }
    }

    /// Take another dictionary in, which has no subset; returns what its ids are here.
    ///
    /// Its words are looked up as if they were one text, a few thousand at a time. This counts each once too often, with the
    /// default visit, which raises no support.
    pub fn absorb(&mut self, other: Self) -> Vec<u32> {
        let Counted { words, whole, .. } = other.into_counted();
        let mut ids = Vec::with_capacity(words.len());
        let mut bounds = Vec::new();
        while ids.len() < words.len() {
            let (first, text) = (ids.len(), words.starting_at(ids.len()));
            bounds.clear();
            let mut end = 0;
            for word in (first..words.len()).take(4096).map(|id| words.get(id)) {
                let start = end;
                end += word.len();
                // Bounds are 32 bits wide; the next stretch begins with this word.
                if end > u32::MAX as usize {
                    break;
                }
                bounds.push((start as u32, end as u32));
            }
            self.intern(text, &bounds, Visit::default(), &mut ids);
        }
        self.known.resize(self.words.len());
        for (other, &id) in ids.iter().enumerate() {
            // Once it has just been seen.
            self.known.occurrences[id as usize] += whole.occurrences[other] - 1;
            self.known.support[id as usize] += whole.support[other];
        }
        ids
    }

    /// All that was counted so far was of the subset; the documents to come are not. A copy of the counts at this point is all
    /// that is needed: they only grow from here on.
    pub fn end_subset(&mut self) {
        self.subset = self.counts();
    }

    fn counts(&self) -> Counts {
        let mut counts = self.known.clone();
        counts.resize(self.words.len());
        for slot in self.slots.iter().filter(|slot| slot.count > 0) {
            counts.add(slot.id as usize, Count { occurrences: slot.count.into(), support: slot.support });
        }
        for long in &self.long {
            counts.add(long.id as usize, Count { occurrences: long.count, support: long.support });
        }
        counts
    }

    /// The words by id, and what was counted.
    pub fn into_counted(self) -> Counted {
        let whole = self.counts();
        Counted { words: self.words, whole, subset: self.subset }
    }
}

/// Where a key is looked for first in a table of so many slots: its hash, as a fraction of all hashes, times the length. So the
/// length need not be a power of two, and keys stand about in the order of their hashes, whatever the length.
#[inline(always)]
fn home(key: Key, num_slots: usize) -> usize {
    ((u128::from(key.hash()) * num_slots as u128) >> 64) as usize
}
