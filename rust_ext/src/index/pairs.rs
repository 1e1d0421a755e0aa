//! Pairs: from two (n-1)-grams to the n-gram they make, with its rank and support.
//!
//! A table with open addressing and one cache line for each look-up, so many lines can be fetched ahead ([`Pairs::fetch`]).

use crate::storage::buffer::{Buffer, prefetch};

/// Rank and support of n-grams, by the numbers of the two (n-1)-grams that each is made of (`left << 32 | right`).
pub struct Pairs {
    /// Key; rank in the lower half, support in the upper. Every n-gram has a support, so zero is a free slot.
    slots: Buffer<[u64; 2]>,
}

impl Pairs {
    /// A table with room for so many n-grams.
    pub fn with_room(num_ngrams: usize) -> Self {
        Self { slots: Buffer::table((num_ngrams * 3 / 2 + 1).next_power_of_two()) }
    }

    /// Add an n-gram that is not there; its support is not 0.
    pub fn insert(&mut self, key: u64, rank: u32, support: u32) {
        debug_assert!(support > 0);
        let mut place = self.first_place(key);
        while self.slots[place][1] != 0 {
            place = (place + 1) & (self.slots.len() - 1);
        }
        self.slots[place] = [key, u64::from(support) << 32 | u64::from(rank)];
    }

    /// Have the place of a key in the cache soon.
    #[inline(always)]
    pub fn fetch(&self, key: u64) {
        prefetch(&self.slots[self.first_place(key)]);
    }

    /// Rank and support.
    #[inline(always)]
    pub fn get(&self, key: u64) -> Option<(u32, u32)> {
        let mut place = self.first_place(key);
        loop {
            let [own, value] = self.slots[place];
            if value == 0 {
                return None;
            }
            if own == key {
                return Some((value as u32, (value >> 32) as u32));
            }
            place = (place + 1) & (self.slots.len() - 1);
        }
    }

    #[inline(always)]
    fn first_place(&self, key: u64) -> usize {
        let mixed = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Of a table of one slot all bits are shifted out.
        mixed.checked_shr(64 - self.slots.len().trailing_zeros()).unwrap_or(0) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_with_their_rank_and_support_and_no_others() {
        for num in [0u64, 1, 2, 5, 1000] {
            let key = |i: u64| ((i / 7) << 32) | ((i * i) % 1001);
            let mut keys: Vec<u64> = (0..num).map(key).collect();
            keys.sort_unstable();
            keys.dedup();
            let mut pairs = Pairs::with_room(keys.len());
            for (rank, &key) in keys.iter().enumerate() {
                pairs.insert(key, rank as u32, u32::MAX - rank as u32);
            }
            for (rank, &key) in keys.iter().enumerate() {
                pairs.fetch(key);
                assert_eq!(pairs.get(key), Some((rank as u32, u32::MAX - rank as u32)));
                assert!(keys.binary_search(&(key + 1)).is_ok() || pairs.get(key + 1).is_none());
            }
            assert!(pairs.get(u64::MAX).is_none());
        }
    }
}
