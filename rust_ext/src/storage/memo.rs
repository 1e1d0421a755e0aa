//! Memo: what short strings came to before, in a bounded number of slots.
//!
//! Strings are distinguished by their keys (`key`), never by a hash. Two keys share a line of the cache; a newcomer takes the first
//! place of its line and the one that has been there longest is forgotten. It grows with what it is told, up to a limit.
//! Whoever asks must be able to work an answer out again.

use crate::storage::buffer::{Buffer, Zero, prefetch};
use crate::storage::key::Key;

#[derive(Clone, Copy, Default)]
struct Slot<V> {
    key: Key,
    value: V,
}

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line<V>([Slot<V>; 2]);

// SAFETY: two integers as keys and two values that are themselves `Zero`. The zero key is the key of no string, so a zeroed
// line reads as empty.
unsafe impl<V: Zero> Zero for Line<V> {}

pub struct Memo<V: Zero> {
    lines: Buffer<Line<V>>,
    bits: u32,
    max_bits: u32,
    num_inserted: usize,
}

impl<V: Zero + Default> Memo<V> {
    /// With `1 << bits` lines, later up to `1 << max_bits`; each takes 64 bytes if a value takes up to 16.
    pub fn new(bits: u32, max_bits: u32) -> Self {
        Self { lines: Buffer::table(1 << bits), bits, max_bits, num_inserted: 0 }
    }

    #[inline(always)]
    fn place(&self, key: Key) -> usize {
        (key.hash() >> (64 - self.bits)) as usize
    }

    /// Have what is remembered of a key in the cache soon.
    #[inline(always)]
    pub fn prefetch(&self, key: Key) {
        prefetch(&self.lines[self.place(key)]);
    }

    #[inline(always)]
    pub fn get(&self, key: Key) -> Option<V> {
        let line = &self.lines[self.place(key)];
        let slot = line.0[usize::from(line.0[1].key == key)];
        (slot.key == key).then_some(slot.value)
    }

    /// Remember a key that [`Memo::get`] does not know.
    pub fn insert(&mut self, key: Key, value: V) {
        self.num_inserted += 1;
        if self.num_inserted * 2 > self.lines.len() && self.bits < self.max_bits {
            self.grow();
        }
        self.put(key, value);
    }

    fn put(&mut self, key: Key, value: V) {
        let place = self.place(key);
        let line = &mut self.lines[place];
        line.0[1] = line.0[0];
        line.0[0] = Slot { key, value };
    }

    #[cold]
    fn grow(&mut self) {
        self.bits += 1;
        let old = std::mem::replace(&mut self.lines, Buffer::table(1 << self.bits));
        for line in old.iter() {
            for slot in line.0.iter().rev().filter(|slot| slot.key != Key::default()) {
                self.put(slot.key, slot.value);
            }
        }
    }

    pub fn clear(&mut self) {
        self.lines.fill(Line::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_memo_answers_what_was_put_in_last_or_nothing() {
        let text: Vec<u8> = (0..4000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 30) as u8).collect();
        let mut memo: Memo<u64> = Memo::new(3, 6);
        let mut all: HashMap<&[u8], u64> = HashMap::new();
        let mut hits = 0;
        for at in 0..text.len() {
            let end = (at + 1 + at % Key::MAX).min(text.len());
            let key = Key::of(&text, at, end).unwrap();
            match memo.get(key) {
                Some(value) => {
                    assert_eq!(all[&text[at..end]], value);
                    hits += 1;
                }
                None => {
                    memo.insert(key, at as u64);
                    all.insert(&text[at..end], at as u64);
                    assert_eq!(memo.get(key), Some(at as u64));
                }
            }
        }
        assert!(hits > 100, "{hits}");
    }

    #[test]
    fn keys_tell_zero_bytes_from_none() {
        let mut memo: Memo<u64> = Memo::new(2, 2);
        memo.insert(Key::of(b"a\0\0", 0, 2).unwrap(), 2);
        assert_eq!(memo.get(Key::of(b"a\0\0", 0, 1).unwrap()), None);
        assert_eq!(memo.get(Key::of(b"a\0\0", 0, 3).unwrap()), None);
        assert_eq!(memo.get(Key::of(b"\0a\0b", 1, 3).unwrap()), Some(2));
    }

    #[test]
    fn a_line_has_two_slots() {
        assert_eq!(size_of::<Line<[u64; 2]>>(), 64);
    }

    #[test]
    fn a_memo_that_may_grow_forgets_little() {
        let keys: Vec<Key> = (0..10_000u32).map(|i| Key::of(&i.to_le_bytes(), 0, 4).unwrap()).collect();
        let mut memo: Memo<u64> = Memo::new(2, 14);
        keys.iter().enumerate().for_each(|(at, &key)| memo.insert(key, at as u64));
        let known = keys
            .iter()
            .enumerate()
            .filter(|&(at, &key)| memo.get(key).inspect(|&of| assert_eq!(of, at as u64)).is_some());
        assert!(known.count() > 9_000);
    }
}
