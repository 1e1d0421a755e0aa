//! Bits: a row of bits that grows, the first in the lowest bit of the first byte (as NumPy's `bitorder="little"`).

/// A growing row of bits. What lies beyond `len` in the last word is zero.
#[derive(Default, Clone, PartialEq, Eq, Debug)]
pub struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Append one bit for each entry for which `is_set` holds, 64 at a time.
    pub fn extend_from<T>(&mut self, entries: &[T], is_set: impl Fn(&T) -> bool) {
        self.words.reserve(entries.len() / 64 + 2);
        for chunk in entries.chunks(64) {
            let mut word = 0u64;
            for (place, entry) in chunk.iter().enumerate() {
                word |= u64::from(is_set(entry)) << place;
            }
            self.push_word(word, chunk.len());
        }
    }

    /// Append the lowest `len` bits of a word; those above are zero.
    #[inline]
    pub fn push_word(&mut self, word: u64, len: usize) {
        let shift = self.len % 64;
        match self.words.last_mut() {
            Some(last) if shift > 0 => {
                *last |= word << shift;
                if shift + len > 64 {
                    self.words.push(word >> (64 - shift));
                }
            }
            _ if len > 0 => self.words.push(word),
            _ => {}
        }
        self.len += len;
    }

    pub fn append(&mut self, other: &Self) {
        self.words.reserve(other.words.len() + 1);
        let mut left = other.len;
        for &word in &other.words {
            let len = left.min(64);
            self.push_word(word, len);
            left -= len;
        }
    }

    /// The bytes that hold them; bits beyond the last are zero.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(self.len.div_ceil(8));
        bytes
    }
}

/// Bit `at` of a row of bits in bytes.
#[inline(always)]
pub fn bit_at(bytes: &[u8], at: usize) -> bool {
    bytes[at / 8] >> (at % 8) & 1 == 1
}

/// The `len` bits (1 to 64) from bit `at` on, the first lowest; those above are zero.
#[inline(always)]
pub fn word_at(bytes: &[u8], at: usize, len: usize) -> u64 {
    let (first, shift) = (at / 8, at % 8);
    let word = match bytes[first..].first_chunk::<9>() {
        Some(nine) => {
            let [eight @ .., ninth] = nine;
            u64::from_le_bytes(*eight) >> shift | u64::from(*ninth) << 1 << (63 - shift)
        }
        None => {
            let rest = bytes[first..].iter().rev().fold(0u128, |all, &byte| all << 8 | u128::from(byte));
            (rest >> shift) as u64
        }
    };
    word & u64::MAX >> (64 - len)
}

/// Up to eight bytes as a number, the first lowest.
#[inline(always)]
pub fn eight_bytes(bytes: &[u8]) -> u64 {
    match bytes.try_into() {
        Ok(eight) => u64::from_le_bytes(eight),
        Err(_) => bytes.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_bits_are_read_from_anywhere() {
        let bits: Vec<bool> = (0..300).map(|i| (i * i + i / 7) % 3 == 1).collect();
        let mut made = Bits::default();
        made.extend_from(&bits, |&bit| bit);
        let bytes = made.into_bytes();
        for at in 0..bits.len() {
            for len in 1..=64.min(bits.len() - at) {
                let expected = (0..len).fold(0u64, |word, i| word | u64::from(bits[at + i]) << i);
                assert_eq!(word_at(&bytes, at, len), expected);
            }
        }
    }

    #[test]
    fn rows_of_any_length_are_appended_to_one_another() {
        let bits = |seed: usize, len: usize| (0..len).map(|i| (i * i + seed * 7) % 5 < 2).collect::<Vec<bool>>();
        for lengths in [vec![0, 1, 63, 64, 65, 0, 200], vec![3; 50], vec![128, 64, 1], vec![]] {
            let (mut whole, mut expected) = (Bits::default(), Vec::new());
            for (seed, &len) in lengths.iter().enumerate() {
                let mut part = Bits::default();
                part.extend_from(&bits(seed, len), |&bit| bit);
                assert_eq!(part.len(), len);
                whole.append(&part);
                expected.extend(bits(seed, len));
                whole.push_word(0b0001, 4);
                expected.extend([true, false, false, false]);
            }
            assert_eq!(whole.len(), expected.len());
            let bytes = whole.into_bytes();
            assert_eq!(bytes.len(), expected.len().div_ceil(8));
            assert!(expected.iter().enumerate().all(|(at, &bit)| bit_at(&bytes, at) == bit));
        }
    }
}
