//! A small counter-based generator: splitmix64 over a hash of (seed, purpose, number). Stable for ever; not for secrets.

use crate::storage::key::mix;

pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64, purpose: u64, number: u64) -> Self {
        let mut key = [0u8; 24];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&purpose.to_le_bytes());
        key[16..].copy_from_slice(&number.to_le_bytes());
        Self(xxhash_rust::xxh3::xxh3_64(&key))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Uniform in 0..bound.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// A rank in 0..bound that falls off like 1 / rank.
    pub fn zipf(&mut self, bound: usize) -> usize {
        let rank = ((bound as f64 + 1.0).powf(self.uniform()) - 1.0) as usize;
        rank.min(bound - 1)
    }
}
