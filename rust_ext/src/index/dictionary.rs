//! Dictionary: distinct words to dense ids, with how often each was seen. One a worker of the index builder.
//!
//! A visit is what one unit's neighbouring documents are. Where a unit has no others, its visit raises the support of each of
//! its words by one, here and now.
//!
//! Words of up to 15 bytes are told apart by their keys (`key`), longer ones byte for byte in an arena. Words are looked up
//! one by one, while the places of the next `AHEAD` are fetched into the cache.

#[cfg(test)]
mod tests;

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::index::counts::{Count, Counted, Counts};
use crate::storage::buffer::{Buffer, Zero, prefetch};
use crate::storage::key::Key;
use crate::storage::strings::Strings;

const AHEAD: usize = 16;
/// Slots that a table can grow to without moving: 32 MiB, of which those in use take memory.
const ROOM: usize = 1 << 20;

/// A short word. 32 bytes: half a line of the cache.
#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
struct Slot {
    key: Key,
    /// Times seen since the last `settle`; 0: the slot is free.
    count: u32,
    /// Visits counted.
    support: u32,
    id: u32,
    /// The visit that saw it last.
    visit: u32,
}

// SAFETY: integers all the way down, of which zero is a value; a zeroed slot has count 0 and so reads as free.
unsafe impl Zero for Slot {}

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
    /// Whether it is the only one of its unit, and raises the support of its words.
    pub only: bool,
}

pub struct Dictionary {
    slots: Buffer<Slot>,
    num_short: usize,
    long: HashTable<Long>,
    words: Strings,
    /// Words seen since the last `settle`.
    num_seen: u64,
    /// What is known of words beside what the tables say.
    known: Counts,
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

    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

    /// Append the ids of the words that this visit has not seen.
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

    /// Count words and support; nobody asks for the ids.
    pub fn count(&mut self, text: &str, bounds: &[(u32, u32)], visit: Visit) {
        self.each(text, bounds, visit, |_, _| ());
    }

    /// Call `found` with the id of each word and whether this visit has not seen it.
    #[inline(always)]
    fn each(&mut self, text: &str, bounds: &[(u32, u32)], visit: Visit, mut found: impl FnMut(u32, bool)) {
        self.num_seen += bounds.len() as u64;
        if self.num_seen >= u64::from(u32::MAX) {
            self.settle();
            self.num_seen += bounds.len() as u64;
        }
        let mut fetched = [(Key::default(), 0u32); AHEAD];
        for chunk in bounds.chunks(1 << 10) {
            // Each chunk may add words: grow before places are computed.
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
                        *slot = Slot { key, count: 0, support: 0, id, visit: visit.number.wrapping_sub(1) };
                        break slot;
                    }
                    place = after(place, self.slots.len());
                };
                let is_new = slot.visit != visit.number;
                slot.count += 1;
                slot.support += u32::from(is_new & visit.only);
                slot.visit = visit.number;
                found(slot.id, is_new);
            }
        }
    }

    /// Write down how often words were seen, before the numbers in the slots run over; a slot that is taken stays so.
    #[cold]
    fn settle(&mut self) {
        self.known.resize(self.words.len());
        for slot in self.slots.iter_mut().filter(|slot| slot.count > 0) {
            self.known.occurrences[slot.id as usize] += u64::from(slot.count - 1);
            slot.count = 1;
        }
        self.num_seen = 1;
    }

    /// Key of a word, and where the table is looked at first, which is fetched into the cache.
    #[inline(always)]
    fn fetch(&self, text: &str, (start, end): (u32, u32)) -> (Key, u32) {
        // A longer word has nobody's key.
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
    #[cold]
    fn grow(&mut self) {
        let num_old = self.slots.len();
        let len = num_old + num_old / 2;
        self.slots.grow(len, ROOM.max(len * 2));
        let mut waiting = Bits::of(self.slots[..num_old].iter().map(|slot| slot.count > 0));
        // Run after run from the last, as nearly every slot moves up; in a run from the first, as words that came early are
        // the frequent ones, and stay where they are looked for first.
        let mut end = num_old;
        while end > 0 {
            let first = (0..end).rev().find(|&place| !waiting.has(place)).map_or(0, |before| before + 1);
            for place in first..end {
                if waiting.take(place) {
                    let slot = std::mem::take(&mut self.slots[place]);
                    self.put(slot, &mut waiting);
                }
            }
            end = first.saturating_sub(1);
        }
    }

    /// Put a slot where it belongs; one that waits there moves on.
    fn put(&mut self, mut slot: Slot, waiting: &mut Bits) {
        let len = self.slots.len();
        let mut place = home(slot.key, len);
        loop {
            let there = &mut self.slots[place];
            if there.count == 0 {
                *there = slot;
                return;
            }
            if waiting.take(place) {
                std::mem::swap(&mut slot, there);
                place = home(slot.key, len);
            } else {
                place = after(place, len);
            }
        }
    }

    /// Take another dictionary in, which has no subset; returns what its ids are here.
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

    /// All that was counted so far was of the subset; what comes is not.
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

struct Bits(Vec<u64>);

impl Bits {
    fn of(bits: impl ExactSizeIterator<Item = bool>) -> Self {
        let mut words = vec![0; bits.len().div_ceil(64)];
        bits.enumerate().for_each(|(at, bit)| words[at / 64] |= u64::from(bit) << (at % 64));
        Self(words)
    }

    fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Whether a bit was set; it is not any more.
    fn take(&mut self, at: usize) -> bool {
        let was = self.has(at);
        if was {
            self.0[at / 64] &= !(1 << (at % 64));
        }
        was
    }
}

/// Where a key is looked for first in a table of so many slots: keys stand about in the order of their hashes.
#[inline(always)]
fn home(key: Key, num_slots: usize) -> usize {
    ((u128::from(key.hash()) * num_slots as u128) >> 64) as usize
}

#[inline(always)]
fn after(place: usize, num_slots: usize) -> usize {
    if place + 1 == num_slots { 0 } else { place + 1 }
}
