//! Table of short strings: keys to values, asked in the order of a text, where most of the time is waiting for memory.
//!
//! Whoever walks over words knows the next ones. The table can be told of a key some steps before it is asked for
//! (`prefetch`), so that several waits overlap. Keys and values stand apart, by linear probing; nothing is ever removed.

use crate::storage::buffer::prefetch;
use crate::storage::key::{Hashed, Key};

/// Free places are a quarter of all at least.
const FULL: (usize, usize) = (3, 4);
const MIN_PLACES: usize = 16;

pub struct KeyTable<V> {
    /// As many as a power of two; the key of none where a place is free.
    keys: Vec<Key>,
    values: Vec<V>,
    /// What leaves of a hash the number of a place.
    shift: u32,
    len: usize,
}

impl<V: Copy + Default> Default for KeyTable<V> {
    fn default() -> Self {
        Self {
            keys: vec![Key::default(); MIN_PLACES],
            values: vec![V::default(); MIN_PLACES],
            shift: 64 - MIN_PLACES.trailing_zeros(),
            len: 0,
        }
    }
}

impl<V: Copy + Default> KeyTable<V> {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where a key stands if no other stands there.
    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// The place of a key, and whether the key is there.
    #[inline(always)]
    fn place(&self, Hashed { key, hash }: Hashed) -> (usize, bool) {
        let mut place = self.home(hash);
        loop {
            let found = self.keys[place];
            if found == key || found == Key::default() {
                return (place, found == key);
            }
            place = (place + 1) & (self.keys.len() - 1);
        }
    }

    /// Fetch what `get` and `entry` will read of a key.
    #[inline(always)]
    pub fn prefetch(&self, Hashed { hash, .. }: Hashed) {
        let home = self.home(hash);
        prefetch(&self.keys[home]);
        prefetch(&self.values[home]);
    }

    #[inline(always)]
    pub fn get(&self, key: Hashed) -> Option<V> {
        let (place, found) = self.place(key);
        found.then(|| self.values[place])
    }

    /// The value of a key, the default for a new one.
    #[inline(always)]
    pub fn entry(&mut self, key: Hashed) -> &mut V {
        let (mut place, found) = self.place(key);
        if !found {
            if (self.len + 1) * FULL.1 > self.keys.len() * FULL.0 {
                self.grow();
                place = self.place(key).0;
            }
            self.keys[place] = key.key;
            self.len += 1;
        }
        &mut self.values[place]
    }

    #[cold]
    fn grow(&mut self) {
        let num_places = self.keys.len() * 2;
        self.shift -= 1;
        let keys = std::mem::replace(&mut self.keys, vec![Key::default(); num_places]);
        let values = std::mem::replace(&mut self.values, vec![V::default(); num_places]);
        for (key, value) in keys.into_iter().zip(values).filter(|&(key, _)| key != Key::default()) {
            let (place, _) = self.place(key.into());
            (self.keys[place], self.values[place]) = (key, value);
        }
    }

    /// Every key with its value, in no order.
    pub fn pairs(&self) -> impl Iterator<Item = (Key, V)> {
        self.keys.iter().copied().zip(self.values.iter().copied()).filter(|&(key, _)| key != Key::default())
    }

    /// The same, of a table that is not needed any more.
    pub fn into_pairs(self) -> impl Iterator<Item = (Key, V)> {
        self.keys.into_iter().zip(self.values).filter(|&(key, _)| key != Key::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_a_map() {
        let mut table = KeyTable::<u32>::default();
        let mut expected = std::collections::HashMap::new();
        for number in 0..5_000u32 {
            let word = format!("w{}", number.wrapping_mul(2_654_435_761) % 1_500);
            let key = Hashed::of(word.as_bytes(), 0, word.len()).unwrap();
            table.prefetch(key);
            *table.entry(key) += number;
            *expected.entry(word).or_insert(0) += number;
        }
        assert_eq!(table.len(), expected.len());
        let key = |word: &str| Hashed::of(word.as_bytes(), 0, word.len()).unwrap();
        assert!(expected.iter().all(|(word, &sum)| table.get(key(word)) == Some(sum)));
        assert_eq!(table.get(key("other")), None);
        assert_eq!(table.pairs().map(|(_, sum)| u64::from(sum)).sum::<u64>(), (0..5_000).sum::<u64>());
        assert_eq!(table.into_pairs().count(), expected.len());
    }
}
