//! Dictionary: distinct words to dense ids, with how often each was seen. One a worker of the index builder.
//!
//! Words of up to 15 bytes are told apart by their keys (`key`), longer ones byte for byte in an arena. Words are looked up
//! one by one, while the places of the next `AHEAD` are fetched into the cache.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::buffer::{Buffer, Zero, prefetch};
use crate::key::Key;
use crate::strings::Strings;

const AHEAD: usize = 16;

/// A short word. 32 bytes: half a line of the cache.
#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
struct Slot {
    key: Key,
    /// Times seen; 0: the slot is free.
    count: u64,
    id: u32,
    /// The visit that saw it last.
    visit: u32,
}

// SAFETY: numbers; all zero is a free slot.
unsafe impl Zero for Slot {}

struct Long {
    id: u32,
    visit: u32,
    count: u64,
}

pub struct Dictionary {
    slots: Buffer<Slot>,
    num_short: usize,
    long: HashTable<Long>,
    words: Strings,
    /// How often words were seen by dictionaries taken in, by id, less once each; shorter than the words.
    absorbed: Vec<u64>,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            slots: Buffer::table(1 << 12),
            num_short: 0,
            long: HashTable::new(),
            words: Strings::new(),
            absorbed: Vec::new(),
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

    /// Append the ids of words given by their bounds in `text`, in order; with `distinct` only of those this visit has not
    /// seen.
    pub fn intern(&mut self, text: &str, bounds: &[(u32, u32)], visit: u32, distinct: bool, ids: &mut Vec<u32>) {
        let num_ids = ids.len();
        ids.resize(num_ids + bounds.len(), 0);
        // Every id is written, and stays where the next one is not written over it: whether a word is new to the visit is
        // what a processor guesses wrong.
        let (out, mut num_new) = (&mut ids[num_ids..], 0);
        let mut fetched = [(Key::default(), 0u32); AHEAD];
        for chunk in bounds.chunks(1 << 10) {
            // Each chunk may add words: grow before places are computed.
            while self.num_short + chunk.len() > self.slots.len() / 4 * 3 {
                self.grow();
            }
            let mask = self.slots.len() - 1;
            for (at, &word) in chunk.iter().take(AHEAD).enumerate() {
                fetched[at] = self.fetch(text, word);
            }
            for (at, &(start, end)) in chunk.iter().enumerate() {
                let (key, place) = fetched[at % AHEAD];
                if let Some(&word) = chunk.get(at + AHEAD) {
                    fetched[at % AHEAD] = self.fetch(text, word);
                }
                let mut place = place as usize;
                let (id, is_new);
                if key == Key::default() {
                    (id, is_new) = self.intern_long(&text[start as usize..end as usize], visit);
                } else {
                    let slot = loop {
                        let slot = &mut self.slots[place & mask];
                        if slot.key == key {
                            break slot;
                        }
                        if slot.count == 0 {
                            let id = self.words.len() as u32;
                            self.words.push(&text[start as usize..end as usize]);
                            self.num_short += 1;
                            *slot = Slot { key, count: 0, id, visit: visit.wrapping_sub(1) };
                            break slot;
                        }
                        place += 1;
                    };
                    slot.count += 1;
                    (id, is_new) = (slot.id, slot.visit != visit);
                    slot.visit = visit;
                }
                out[num_new] = id;
                num_new += usize::from(is_new | !distinct);
            }
        }
        ids.truncate(num_ids + num_new);
    }

    /// Key of a word, and where the table is looked at first, which is fetched into the cache.
    #[inline(always)]
    fn fetch(&self, text: &str, (start, end): (u32, u32)) -> (Key, u32) {
        // A longer word has nobody's key.
        let key = Key::of(text.as_bytes(), start as usize, end as usize).unwrap_or_default();
        let place = key.hash() >> (64 - self.slots.len().trailing_zeros());
        prefetch(&self.slots[place as usize]);
        (key, place as u32)
    }

    /// Id of a word of 16 bytes or more, and whether this visit has not seen it.
    fn intern_long(&mut self, word: &str, visit: u32) -> (u32, bool) {
        let hash = FixedState::default().hash_one(word);
        let words = &self.words;
        if let Some(found) = self.long.find_mut(hash, |long| words.get(long.id as usize) == word) {
            found.count += 1;
            let is_new = found.visit != visit;
            found.visit = visit;
            return (found.id, is_new);
        }
        let id = self.words.len() as u32;
        self.words.push(word);
        let words = &self.words;
        self.long.insert_unique(hash, Long { id, visit, count: 1 }, |long| {
            FixedState::default().hash_one(words.get(long.id as usize))
        });
        (id, true)
    }

    #[cold]
    fn grow(&mut self) {
        let new = Buffer::table(self.slots.len() * 2);
        let old = std::mem::replace(&mut self.slots, new);
        let shift = 64 - self.slots.len().trailing_zeros();
        let mask = self.slots.len() - 1;
        for slot in old.iter().copied().filter(|slot| slot.count > 0) {
            let mut place = (slot.key.hash() >> shift) as usize;
            while self.slots[place].count > 0 {
                place = (place + 1) & mask;
            }
            self.slots[place] = slot;
        }
    }

    /// Take another dictionary in; returns what its ids are here.
    pub fn absorb(&mut self, other: Self) -> Vec<u32> {
        let (words, counts) = other.into_words();
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
            self.intern(text, &bounds, 0, false, &mut ids);
        }
        self.absorbed.resize(self.words.len(), 0);
        ids.iter().zip(counts).for_each(|(&id, count)| self.absorbed[id as usize] += count - 1);
        ids
    }

    /// The words by id, and how often each was seen.
    pub fn into_words(self) -> (Strings, Vec<u64>) {
        let mut counts = self.absorbed;
        counts.resize(self.words.len(), 0);
        for slot in self.slots.iter().filter(|slot| slot.count > 0) {
            counts[slot.id as usize] += slot.count;
        }
        for long in &self.long {
            counts[long.id as usize] += long.count;
        }
        (self.words, counts)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn ids_and_counts_match_a_map() {
        let mut text = String::new();
        let mut state = 1u64;
        for _ in 0..50_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let number = (state >> 40) % 9_000;
            text += &"abcdefgh".repeat(number as usize % 4)[..];
            text += &format!("é{number} ");
        }
        let bounds: Vec<(u32, u32)> = text
            .split_inclusive(' ')
            .scan(0, |at, word| {
                let start = *at;
                *at += word.len() as u32;
                Some((start, *at - 1))
            })
            .collect();
        let mut dictionary = Dictionary::default();
        let (mut ids, mut distinct) = (Vec::new(), Vec::new());
        dictionary.intern(&text, &bounds, 1, false, &mut ids);
        dictionary.intern(&text, &bounds, 2, true, &mut distinct);
        let mut other = Dictionary::default();
        let (first, mut others) = (&bounds[..10_000], Vec::new());
        other.intern("nowhere else", &[(0, 7)], 1, false, &mut others);
        other.intern(&text, first, 1, false, &mut others);
        let here = dictionary.absorb(other);
        let (words, counts) = dictionary.into_words();
        let mut expected = HashMap::from([("nowhere", 1)]);
        for (&(start, end), &id) in bounds.iter().zip(&ids) {
            let word = &text[start as usize..end as usize];
            assert_eq!(words.get(id as usize), word);
            *expected.entry(word).or_default() += 2;
        }
        for (&(start, end), &id) in first.iter().zip(&others[1..]) {
            let word = &text[start as usize..end as usize];
            assert_eq!(words.get(here[id as usize] as usize), word);
            *expected.entry(word).or_default() += 1;
        }
        assert_eq!(words.len(), expected.len());
        assert_eq!(distinct.len() + 1, expected.len());
        assert!((0..words.len()).all(|id| expected[words.get(id)] == counts[id]));
    }
}
