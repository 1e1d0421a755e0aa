//! Dictionary: distinct words to dense ids, with how often each was seen. One a worker of the index builder.
//!
//! Words of up to 15 bytes are told apart by their keys (`key`), longer ones byte for byte in an arena. Words are looked up
//! `AHEAD` at a time: their places are fetched into the cache together before the first is read.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::buffer::{Buffer, Zero};
use crate::key::Key;
use crate::strings::Strings;

const AHEAD: usize = 32;

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
}

impl Default for Dictionary {
    fn default() -> Self {
        Self { slots: Buffer::new(1 << 12), num_short: 0, long: HashTable::new(), words: Strings::new() }
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

    /// Ids of words given by their bounds in `text`, in order; with `distinct` only of those this visit has not seen.
    pub fn intern(&mut self, text: &str, bounds: &[(u32, u32)], visit: u32, distinct: bool, ids: &mut Vec<u32>) {
        for bounds in bounds.chunks(AHEAD) {
            let mut keys = [Key::default(); AHEAD];
            let mut places = [0usize; AHEAD];
            // Each chunk may add words: grow before places are computed.
            if (self.num_short + AHEAD) * 4 > self.slots.len() * 3 {
                self.grow();
            }
            let shift = 64 - self.slots.len().trailing_zeros();
            for (at, &(start, end)) in bounds.iter().enumerate() {
                // A longer word has nobody's key.
                let key = Key::of(text.as_bytes(), start as usize, end as usize).unwrap_or_default();
                keys[at] = key;
                places[at] = (key.hash() >> shift) as usize;
                prefetch(&self.slots[places[at]]);
            }
            for (at, &(start, end)) in bounds.iter().enumerate() {
                let (key, mut place) = (keys[at], places[at]);
                let word = (start as usize, end as usize);
                if key == Key::default() {
                    self.intern_long(&text[word.0..word.1], visit, distinct, ids);
                    continue;
                }
                let mask = self.slots.len() - 1;
                let slot = loop {
                    let slot = &mut self.slots[place];
                    if slot.key == key {
                        break slot;
                    }
                    if slot.count == 0 {
                        let id = self.words.len() as u32;
                        self.words.push(&text[word.0..word.1]);
                        self.num_short += 1;
                        *slot = Slot { key, count: 0, id, visit: visit.wrapping_sub(1) };
                        break slot;
                    }
                    place = (place + 1) & mask;
                };
                slot.count += 1;
                if !distinct || slot.visit != visit {
                    slot.visit = visit;
                    ids.push(slot.id);
                }
            }
        }
    }

    fn intern_long(&mut self, word: &str, visit: u32, distinct: bool, ids: &mut Vec<u32>) {
        let hash = FixedState::default().hash_one(word);
        let words = &self.words;
        if let Some(found) = self.long.find_mut(hash, |long| words.get(long.id as usize) == word) {
            found.count += 1;
            if !distinct || found.visit != visit {
                found.visit = visit;
                ids.push(found.id);
            }
            return;
        }
        let id = self.words.len() as u32;
        self.words.push(word);
        let words = &self.words;
        self.long.insert_unique(hash, Long { id, visit, count: 1 }, |long| {
            FixedState::default().hash_one(words.get(long.id as usize))
        });
        ids.push(id);
    }

    #[cold]
    fn grow(&mut self) {
        let new = Buffer::new(self.slots.len() * 2);
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

    /// The words by id, and how often each was seen.
    pub fn into_words(self) -> (Strings, Vec<u64>) {
        let mut counts = vec![0u64; self.words.len()];
        for slot in self.slots.iter().filter(|slot| slot.count > 0) {
            counts[slot.id as usize] = slot.count;
        }
        for long in &self.long {
            counts[long.id as usize] = long.count;
        }
        (self.words, counts)
    }
}

#[inline(always)]
fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; the reference is valid.
    unsafe {
        std::arch::x86_64::_mm_prefetch(std::ptr::from_ref(place).cast(), std::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
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
        let (words, counts) = dictionary.into_words();
        let mut expected: HashMap<&str, u64> = HashMap::new();
        for (&(start, end), &id) in bounds.iter().zip(&ids) {
            let word = &text[start as usize..end as usize];
            assert_eq!(words.get(id as usize), word);
            *expected.entry(word).or_default() += 2;
        }
        assert_eq!(words.len(), expected.len());
        assert_eq!(distinct.len(), expected.len());
        assert!((0..words.len()).all(|id| expected[words.get(id)] == counts[id]));
    }
}
