//! Pairs: from two (n-1)-grams to the n-gram they make, with its rank and support.
//!
//! A table with open addressing that holds of each n-gram the right half of its key, its rank and its support up to 255, in
//! nine bytes. The left half is not stored: n-grams are ranked in the order of their keys, so those of one left half have
//! ranks that follow each other, and where they begin is known. What a look-up reads can be fetched ahead ([`Pairs::fetch`]).

use crate::storage::buffer::{Buffer, prefetch};

/// Rank and support of n-grams, by the numbers of the two (n-1)-grams that each is made of (`left << 32 | right`).
pub struct Pairs {
    /// `right << 32 | rank + 1`; zero is a free slot.
    slots: Buffer<u64>,
    /// By slot: the support, 255 where it is more.
    support: Buffer<u8>,
    /// The ranks of the n-grams of a left half are `firsts[left]..firsts[left + 1]`.
    firsts: Vec<u32>,
    len: u32,
}

/// N-grams that are fetched, then added.
const AHEAD: usize = 32;

impl Pairs {
    /// A table with room for so many n-grams.
    pub fn with_room(num_ngrams: usize) -> Self {
        let num_slots = num_ngrams + num_ngrams / 2 + 1;
        Self { slots: Buffer::table(num_slots), support: Buffer::table(num_slots), firsts: Vec::new(), len: 0 }
    }

    /// Add the n-grams with a support of `min_support` or more; keys ascend, from call to call too, and no support is 0.
    pub fn extend(&mut self, keys: &[u64], support: &[u32], min_support: u32) {
        let mut kept = keys.iter().zip(support).filter(|pair| *pair.1 >= min_support);
        loop {
            let mut taken = [(0u64, 0u32); AHEAD];
            let mut num_taken = 0;
            for (slot, (&key, &support)) in taken.iter_mut().zip(kept.by_ref()) {
                prefetch(&self.slots[self.first_place(key)]);
                *slot = (key, support);
                num_taken += 1;
            }
            for &(key, support) in &taken[..num_taken] {
                self.insert(key, support);
            }
            if num_taken < AHEAD {
                break;
            }
        }
    }

    fn insert(&mut self, key: u64, support: u32) {
        let left = (key >> 32) as usize;
        debug_assert!(support > 0 && left + 1 >= self.firsts.len());
        if self.firsts.len() <= left {
            self.firsts.resize(left + 1, self.len);
        }
        self.len += 1;
        let mut place = self.first_place(key);
        while self.slots[place] != 0 {
            place = self.next_place(place);
        }
        self.slots[place] = key << 32 | u64::from(self.len);
        self.support[place] = support.min(u32::from(u8::MAX)) as u8;
    }

    /// Have what a look-up of a key reads in the cache soon.
    #[inline(always)]
    pub fn fetch(&self, key: u64) {
        let place = self.first_place(key);
        prefetch(&self.slots[place]);
        prefetch(&self.support[place]);
        if let Some(first) = self.firsts.get((key >> 32) as usize) {
            prefetch(first);
        }
    }

    /// Rank, and support up to 255.
    #[inline(always)]
    pub fn get(&self, key: u64) -> Option<(u32, u32)> {
        let (left, right) = ((key >> 32) as usize, key as u32);
        let mut place = self.first_place(key);
        loop {
            let slot = self.slots[place];
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 == right {
                let rank = slot as u32 - 1;
                let first = *self.firsts.get(left)?;
                let end = self.firsts.get(left + 1).copied().unwrap_or(self.len);
                if (first..end).contains(&rank) {
                    return Some((rank, u32::from(self.support[place])));
                }
            }
            place = self.next_place(place);
        }
    }

    #[inline(always)]
    fn first_place(&self, key: u64) -> usize {
        let mixed = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mixed) * self.slots.len() as u128) >> 64) as usize
    }

    #[inline(always)]
    fn next_place(&self, place: usize) -> usize {
        if place + 1 == self.slots.len() { 0 } else { place + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_with_their_rank_and_support_and_no_others() {
        for num in [0u64, 1, 2, 5, 31, 32, 33, 1000, 40_000] {
            // Few right halves: many slots hold that of another left half.
            let mut keys: Vec<u64> = (0..num).map(|i| ((i / 7 * 3) << 32) | ((i * i) % 101)).collect();
            keys.sort_unstable();
            keys.dedup();
            let support: Vec<u32> = (0..keys.len() as u32).map(|number| number % 400 + 1).collect();
            let kept = || keys.iter().zip(&support).filter(|pair| *pair.1 >= 2);
            let mut pairs = Pairs::with_room(kept().count());
            let half = keys.len() / 2;
            pairs.extend(&keys[..half], &support[..half], 2);
            pairs.extend(&keys[half..], &support[half..], 2);
            for (rank, (&key, &support)) in kept().enumerate() {
                pairs.fetch(key);
                assert_eq!(pairs.get(key), Some((rank as u32, support.min(255))));
                for other in [key + 1, key + (1 << 32), key ^ (1 << 63)] {
                    pairs.fetch(other);
                    assert!(kept().any(|pair| *pair.0 == other) || pairs.get(other).is_none());
                }
            }
            assert!(keys.iter().zip(&support).all(|(&key, &support)| support > 1 || pairs.get(key).is_none()));
            assert!(pairs.get(u64::MAX).is_none());
        }
    }
}
