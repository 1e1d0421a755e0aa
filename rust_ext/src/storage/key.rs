//! Key: a short string as one integer.
//!
//! A string of 1 to 15 bytes *is* its key (its bytes, and its length in the last byte), so identity never rests on a
//! hash. A table of keys must store longer strings in another way.

/// A string of 1 to 15 bytes; the default is the key of none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Key(u128);

/// `MASKS[n]` keeps the first n bytes.
const MASKS: [u128; Key::MAX + 1] = {
    let mut masks = [0; Key::MAX + 1];
    let mut len = 1;
    while len <= Key::MAX {
        masks[len] = u128::MAX >> (8 * (16 - len));
        len += 1;
    }
    masks
};

/// The 16 bytes from `at` on as one integer, zeros beyond the end.
#[inline(always)]
pub fn load(bytes: &[u8], at: usize) -> u128 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
        Some(block) => u128::from_le_bytes(*block),
        None => load_end(&bytes[at..]),
    }
}

#[cold]
fn load_end(rest: &[u8]) -> u128 {
    let mut block = [0; 16];
    block[..rest.len()].copy_from_slice(rest);
    u128::from_le_bytes(block)
}

impl Key {
    pub const MAX: usize = 15;

    /// The key of the bytes `start..end`, if there are 1 to 15.
    #[inline(always)]
    pub fn of(bytes: &[u8], start: usize, end: usize) -> Option<Self> {
        let len = end - start;
        (1..=Self::MAX).contains(&len).then(|| Self(load(bytes, start) & MASKS[len] | (len as u128) << 120))
    }

    /// For tables, by its highest bits.
    #[inline(always)]
    pub fn hash(self) -> u64 {
        let low = (self.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let high = ((self.0 >> 64) as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        (low ^ low >> 32 ^ high.rotate_left(29)).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }
}

/// A key with its hash, for those who ask several tables.
#[derive(Clone, Copy)]
pub struct Hashed {
    pub key: Key,
    pub hash: u64,
}

impl Hashed {
    /// That of the bytes `start..end`, if there are 1 to 15.
    #[inline(always)]
    pub fn of(bytes: &[u8], start: usize, end: usize) -> Option<Self> {
        Key::of(bytes, start, end).map(Self::from)
    }
}

impl From<Key> for Hashed {
    #[inline(always)]
    fn from(key: Key) -> Self {
        Self { key, hash: key.hash() }
    }
}

/// A bijection of 64 bits that leaves no structure (the end of SplitMix64).
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_of_1_to_15_bytes() {
        assert!(Key::of(b"", 0, 0).is_none());
        assert!(Key::of(&[b'a'; 16], 0, 16).is_none());
        assert!(Key::of(&[b'a'; 16], 0, 15).is_some());
    }
}
