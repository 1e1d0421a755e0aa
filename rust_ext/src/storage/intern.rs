//! Interner: distinct words to dense ids, one table a worker.
//!
//! Words of up to 15 bytes are distinguished by their keys (`key`), longer ones byte for byte in an arena.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use std::hash::BuildHasher;

use crate::storage::key::Key;

#[derive(Default)]
pub struct Interner {
    short: HashMap<Key, u32, FixedState>,
    long: HashTable<u32>,
    arena: String,
    /// Bounds of word `id` in the arena are `bounds[id]..bounds[id + 1]`.
    bounds: Vec<usize>,
}

impl Interner {
    pub fn new() -> Self {
        Self { bounds: vec![0], ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    pub fn word(&self, id: u32) -> &str {
        &self.arena[self.bounds[id as usize]..self.bounds[id as usize + 1]]
    }

    /// The id of a word, new or known.
    #[inline]
    pub fn intern(&mut self, word: &str) -> u32 {
        self.intern_at(word, 0, word.len())
    }

    /// The id of a word that stands in a text, which is faster than where it stands alone.
    #[inline]
    pub fn intern_at(&mut self, text: &str, start: usize, end: usize) -> u32 {
        let next = self.len() as u32;
        let word = &text[start..end];
        if let Some(key) = Key::of(text.as_bytes(), start, end) {
            let id = *self.short.entry(key).or_insert(next);
            if id == next {
                self.append(word);
            }
            return id;
        }
        let hash = hash_long(word);
        let (arena, bounds) = (&self.arena, &self.bounds);
        let found = self.long.find(hash, |&id| &arena[bounds[id as usize]..bounds[id as usize + 1]] == word);
        if let Some(&id) = found {
            return id;
        }
        self.append(word);
        let (arena, bounds) = (&self.arena, &self.bounds);
        self.long.insert_unique(hash, next, |&id| hash_long(&arena[bounds[id as usize]..bounds[id as usize + 1]]));
        next
    }

    /// The id of a known word.
    #[inline]
    pub fn find(&self, word: &str) -> Option<u32> {
        if let Some(key) = Key::of(word.as_bytes(), 0, word.len()) {
            return self.short.get(&key).copied();
        }
        self.long.find(hash_long(word), |&id| self.word(id) == word).copied()
    }

    fn append(&mut self, word: &str) {
        self.arena.push_str(word);
        self.bounds.push(self.arena.len());
    }
}

#[inline]
fn hash_long(word: &str) -> u64 {
    FixedState::default().hash_one(word)
}
