//! Memo: what short strings came to before, in a fixed number of slots.
//!
//! Strings are told apart by their keys (`key`), never by a hash. Two keys share a line of the cache; a newcomer takes the first place of its line and the one that has been there longest is
//! forgotten. Whoever asks must be able to work an answer out again.

use crate::key::Key;

#[derive(Clone, Copy, Default)]
struct Slot<V> {
    key: Key,
    value: V,
}

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line<V>([Slot<V>; 2]);

pub struct Memo<V> {
    lines: Box<[Line<V>]>,
    shift: u32,
}

impl<V: Copy + Default> Memo<V> {
    /// With `1 << bits` lines; each takes 64 bytes if a value takes up to 16.
    pub fn new(bits: u32) -> Self {
        Self { lines: vec![Line::default(); 1 << bits].into_boxed_slice(), shift: 64 - bits }
    }

    #[inline(always)]
    pub fn get(&self, key: Key) -> Option<V> {
        let line = &self.lines[(key.hash() >> self.shift) as usize];
        let slot = line.0[usize::from(line.0[1].key == key)];
        (slot.key == key).then_some(slot.value)
    }

    /// Remember a key that [`Memo::get`] does not know.
    pub fn insert(&mut self, key: Key, value: V) {
        let line = &mut self.lines[(key.hash() >> self.shift) as usize];
        line.0[1] = line.0[0];
        line.0[0] = Slot { key, value };
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
        let mut memo: Memo<u64> = Memo::new(6);
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
        let mut memo: Memo<u64> = Memo::new(2);
        memo.insert(Key::of(b"a\0\0", 0, 2).unwrap(), 2);
        assert_eq!(memo.get(Key::of(b"a\0\0", 0, 1).unwrap()), None);
        assert_eq!(memo.get(Key::of(b"a\0\0", 0, 3).unwrap()), None);
        assert_eq!(memo.get(Key::of(b"\0a\0b", 1, 3).unwrap()), Some(2));
    }

    #[test]
    fn a_line_has_two_slots() {
        assert_eq!(size_of::<Line<[u32; 4]>>(), 64);
    }
}
