//! Interner: distinct words to dense ids, one table a worker.
//!
//! Words of up to 15 bytes are distinguished by their keys (`key`), longer ones byte for byte.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use std::hash::BuildHasher;

use crate::storage::key::Key;
use crate::storage::strings::Strings;

#[derive(Default)]
pub struct Interner {
    short: HashMap<Key, u32, FixedState>,
    long: HashTable<u32>,
    /// By id.
    words: Strings,
}

impl Interner {
    pub fn len(&self) -> usize {
        self.words.len()
    }

    pub fn word(&self, id: u32) -> &str {
        self.words.get(id as usize)
    }

    /// The id of a word, new or known.
    #[inline]
    pub fn intern(&mut self, word: &str) -> u32 {
        let next = self.len() as u32;
        let id = match Key::of(word.as_bytes(), 0, word.len()) {
            Some(key) => *self.short.entry(key).or_insert(next),
            None => {
                let (hash, words) = (hash_long(word), &self.words);
                let known = self.long.find(hash, |&id| words.get(id as usize) == word).copied();
                known.unwrap_or_else(|| {
                    self.long.insert_unique(hash, next, |&id| hash_long(words.get(id as usize)));
                    next
                })
            }
        };
        if id == next {
            self.words.push(word);
        }
        id
    }

    /// The id of a known word.
    #[inline]
    pub fn find(&self, word: &str) -> Option<u32> {
        if let Some(key) = Key::of(word.as_bytes(), 0, word.len()) {
            return self.short.get(&key).copied();
        }
        self.long.find(hash_long(word), |&id| self.word(id) == word).copied()
    }
}

#[inline]
fn hash_long(word: &str) -> u64 {
    FixedState::default().hash_one(word)
}
