//! Lookup: from spelled words to their rows in an index.
//!
//! All threads share one table of the index's words, by key (`key`). Slots are fetched into the cache many words ahead. A word that
//! is in the table as it is spelled is its own surface. Any other word is looked up by its surface, and the result is stored. With
//! the exact surface only non-ASCII words can have a different surface.
//!
//! A surface may have another surface itself: `ῼ` and a diaeresis are folded to three characters, of which the last two compose in
//! the next turn. Such a word of the index is found by a surface alone, never by a spelling.

use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::storage::buffer::{Buffer, Zero, prefetch};
use crate::storage::key::Key;
use crate::storage::memo::Memo;
use crate::storage::strings::Strings;
use crate::text::surface::Surface;

/// What the index says of a word.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its number in the index; 0 also where it is not there.
    pub id: u32,
    /// 0: it is not there.
    pub support: u32,
}

// SAFETY: two integers, of which zero is a value; neither needs drop.
unsafe impl Zero for Found {}

#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
struct Slot {
    key: Key,
    found: Found,
}

// SAFETY: integers all the way down, of which zero is a value. The zero key is the key of no string, so a zeroed slot reads
// as free.
unsafe impl Zero for Slot {}

/// Words, or pairs, looked up together: one then waits for memory beside the others.
pub const AHEAD: usize = 32;

pub struct Lookup {
    surface: Surface,
    /// Words of up to 15 bytes that are their own surface.
    slots: Buffer<Slot>,
    /// Numbers of the other words.
    others: HashTable<u32>,
    /// Of threads at rest: what words came to by their surface.
    memos: Mutex<Vec<Memo<Found>>>,
}

impl Lookup {
    pub fn new(surface: Surface, words: &Strings, support: &[u32]) -> Self {
        let num_slots = (words.len() * 4 / 3 + 1).next_power_of_two().max(64);
        let mut slots: Buffer<Slot> = Buffer::table(num_slots);
        let mut others = HashTable::new();
        // Of ASCII a surface is in small letters, and stays.
        let is_own = |word: &str| surface == Surface::Exact || word.is_ascii() || surface.apply(word) == word;
        let mut entries = words.iter().zip(support).enumerate();
        loop {
            let mut keyed = [(Key::default(), Found::default()); AHEAD];
            let (mut num_taken, mut num_keyed) = (0, 0);
            for (id, (word, &support)) in entries.by_ref().take(AHEAD) {
                num_taken += 1;
                let found = Found { id: id as u32, support };
                match Key::of(word.as_bytes(), 0, word.len()).filter(|_| is_own(word)) {
                    Some(key) => {
                        prefetch(&slots[first_place(num_slots, key)]);
                        keyed[num_keyed] = (key, found);
                        num_keyed += 1;
                    }
                    None => {
                        let hash_of = |word: &str| FixedState::default().hash_one(word);
                        others.insert_unique(hash_of(word), found.id, |&id| hash_of(words.get(id as usize)));
                    }
                }
            }
            for &(key, found) in &keyed[..num_keyed] {
                let mut place = first_place(num_slots, key);
                while slots[place].key != Key::default() {
                    place = (place + 1) & (num_slots - 1);
                }
                slots[place] = Slot { key, found };
            }
            if num_taken < AHEAD {
                break;
            }
        }
        Self { surface, slots, others, memos: Mutex::default() }
    }

    /// A memo for [`Lookup::find_all`]; give it back with [`Lookup::put_back`].
    pub fn memo(&self) -> Memo<Found> {
        let spare = self.memos.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| Memo::new(6, 17))
    }

    pub fn put_back(&self, memo: Memo<Found>) {
        self.memos.lock().unwrap_or_else(PoisonError::into_inner).push(memo);
    }

    /// Call `emit` with the number of each word of a text, in order, and what the index (its words and supports) says of it.
    #[inline(always)]
    pub fn find_all(
        &self,
        (words, support): (&Strings, &[u32]),
        text: &str,
        (from, to): (&[u32], &[u32]),
        memo: &mut Memo<Found>,
        mut emit: impl FnMut(usize, Found),
    ) {
        let mut keys = [Key::default(); AHEAD];
        for first in (0..from.len()).step_by(AHEAD) {
            let range = first..from.len().min(first + AHEAD);
            for (word, key) in range.clone().zip(&mut keys) {
                // A longer word has the default key, which no string has.
                *key = Key::of(text.as_bytes(), from[word] as usize, to[word] as usize).unwrap_or_default();
                prefetch(&self.slots[first_place(self.slots.len(), *key)]);
            }
            for (word, key) in range.zip(keys) {
                let found = self.by_key(key).unwrap_or_else(|| {
                    let spelled = &text[from[word] as usize..to[word] as usize];
                    self.by_surface((words, support), spelled, key, memo)
                });
                emit(word, found);
            }
        }
    }

    #[inline(always)]
    fn by_key(&self, key: Key) -> Option<Found> {
        let mut place = first_place(self.slots.len(), key);
        loop {
            let slot = &self.slots[place];
            if slot.key == Key::default() {
                return None;
            }
            if slot.key == key {
                return Some(slot.found);
            }
            place = (place + 1) & (self.slots.len() - 1);
        }
    }

    /// What the index says of a word that does not stand there as it is spelled, or is long.
    #[inline(never)]
    fn by_surface(&self, (words, support): (&Strings, &[u32]), word: &str, key: Key, memo: &mut Memo<Found>) -> Found {
        if key != Key::default() {
            if self.surface == Surface::Exact && word.is_ascii() {
                return Found::default();
            }
            if let Some(known) = memo.get(key) {
                return known;
            }
        }
        let surface = self.surface.apply(word);
        let found = Key::of(surface.as_bytes(), 0, surface.len()).and_then(|key| self.by_key(key)).or_else(|| {
            let hash = FixedState::default().hash_one(&*surface);
            let found = self.others.find(hash, |&id| words.get(id as usize) == surface);
            found.map(|&id| Found { id, support: support[id as usize] })
        });
        let found = found.unwrap_or_default();
        if key != Key::default() {
            memo.insert(key, found);
        }
        found
    }
}

#[inline(always)]
fn first_place(num_slots: usize, key: Key) -> usize {
    (key.hash() >> (64 - num_slots.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_their_surface() {
        let long = "a".repeat(40);
        let words: Strings = ["", "Ab", "ab", "été", &long].into_iter().collect();
        let support = [9, 2, 3, 4, 5];
        let text = format!("Ab AB ab ÉTÉ été e\u{301}te\u{301} no {long} {} É", long.to_uppercase());
        let mut bounds = (Vec::new(), Vec::new());
        for word in text.split(' ') {
            let start = word.as_ptr() as usize - text.as_ptr() as usize;
            bounds.0.push(start as u32);
            bounds.1.push((start + word.len()) as u32);
        }
        for (surface, expected) in
            [(Surface::Exact, [2, 0, 3, 0, 4, 4, 0, 5, 0, 0]), (Surface::Casefold, [2, 3, 3, 4, 4, 4, 0, 5, 5, 0])]
        {
            let lookup = Lookup::new(surface, &words, &support);
            for _ in 0..2 {
                let mut memo = lookup.memo();
                let mut found = Vec::new();
                lookup.find_all((&words, &support), &text, (&bounds.0, &bounds.1), &mut memo, |word, of| {
                    assert_eq!(word, found.len());
                    found.push(of.support);
                });
                assert_eq!(found, expected);
                lookup.put_back(memo);
            }
        }
    }

    #[test]
    fn a_word_is_not_taken_for_the_surface_of_another() {
        // The surface of the first is the second of these words, whose own surface is the first.
        let (spelled, composed) = ("\u{1ffc}\u{308}", "\u{3c9}\u{3b9}\u{308}");
        let words: Strings = [composed, "\u{3c9}\u{3ca}"].into_iter().collect();
        assert_eq!(Surface::Casefold.apply(spelled), composed);
        assert_eq!(Surface::Casefold.apply(composed), words.get(1));
        let lookup = Lookup::new(Surface::Casefold, &words, &[7, 1]);
        for (word, support) in [(spelled, 7), (composed, 1), (words.get(1), 1)] {
            let mut found = Found::default();
            let bounds = (&[0][..], &[word.len() as u32][..]);
            lookup.find_all((&words, &[7, 1]), word, bounds, &mut lookup.memo(), |_, of| found = of);
            assert_eq!(found.support, support, "{word:?}");
        }
    }

    #[test]
    fn an_index_without_words_knows_none() {
        let lookup = Lookup::new(Surface::Exact, &Strings::new(), &[]);
        let mut memo = lookup.memo();
        lookup.find_all((&Strings::new(), &[]), "abc", (&[0], &[3]), &mut memo, |_, of| {
            assert_eq!(of, Found::default());
        });
    }
}
