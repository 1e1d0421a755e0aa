//! Keyed randomness: BLAKE3 under a secret key, so that a surrogate tells nothing of what it stands for without the key,
//! and no table of who became whom need be kept.

/// A secret of 256 bits: the run's, an individual's, or one occurrence's.
#[derive(Clone, Copy)]
pub struct Key([u8; 32]);

impl Key {
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// The key of something under this one; parts are separated by their lengths.
    pub fn derive(&self, parts: &[&[u8]]) -> Self {
        let mut message = Vec::with_capacity(64);
        for part in parts {
            message.extend_from_slice(&(part.len() as u64).to_le_bytes());
            message.extend_from_slice(part);
        }
        Self(*blake3::keyed_hash(&self.0, &message).as_bytes())
    }

    /// Draws for one value; `attempt` gives others for the same value.
    pub fn stream(&self, purpose: u8, value: &[u8], attempt: u32) -> Stream {
        let mut message = [0; MESSAGE];
        let long;
        let value = if value.len() <= LONGEST {
            value
        } else {
            long = *blake3::keyed_hash(&self.0, value).as_bytes();
            &long
        };
        message[..value.len()].copy_from_slice(value);
        message[MESSAGE - 6] = value.len() as u8;
        message[MESSAGE - 5] = purpose;
        message[MESSAGE - 4..].copy_from_slice(&attempt.to_le_bytes());
        Stream { key: self.0, message, block: [0; 32], blocks: 0, at: 32 }
    }
}

/// One block of BLAKE3: the value (hashed first where it is longer), how many blocks were drawn, and what it is for.
const MESSAGE: usize = 64;
const LONGEST: usize = MESSAGE - 10;

/// An endless row of uniform numbers.
pub struct Stream {
    key: [u8; 32],
    message: [u8; MESSAGE],
    block: [u8; 32],
    blocks: u32,
    at: usize,
}

impl Stream {
    fn next(&mut self) -> u32 {
        if self.at == 32 {
            self.message[LONGEST..LONGEST + 4].copy_from_slice(&self.blocks.to_le_bytes());
            self.block = *blake3::keyed_hash(&self.key, &self.message).as_bytes();
            self.blocks += 1;
            self.at = 0;
        }
        let mut word = [0; 4];
        word.copy_from_slice(&self.block[self.at..self.at + 4]);
        self.at += 4;
        u32::from_le_bytes(word)
    }

    /// Uniform in 0..bound, to one part in 2^32 / bound.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u64::from(self.next()) * bound as u64) >> 32) as usize
    }

    pub fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// A permutation of the 26 letters without a fixed point (Sattolo: one cycle of all).
pub fn cycle_of_letters(key: &Key) -> [u8; 26] {
    let mut letters: [u8; 26] = std::array::from_fn(|letter| letter as u8);
    let mut stream = key.stream(b'l', b"", 0);
    for last in (1..26).rev() {
        letters.swap(last, stream.below(last));
    }
    letters
}

/// Permute the strings of one shape among themselves: digit for digit, letter for letter.
///
/// A Feistel network over the two halves, each symbol added modulo its radix: two values never become one. `values[i]` is
/// below `radices[i]`, at least 2. A single symbol moves by a distance that is not 0.
pub fn permute(key: &Key, purpose: u8, attempt: u32, values: &mut [u32], radices: &[u32]) {
    const ROUNDS: u8 = 6;
    let middle = values.len() / 2;
    if middle == 0 {
        if let (Some(value), Some(&radix)) = (values.first_mut(), radices.first()) {
            let mut stream = key.stream(purpose, &radix.to_le_bytes(), attempt);
            *value = (*value + 1 + stream.below(radix as usize - 1) as u32) % radix;
        }
        return;
    }
    let mut message = Vec::with_capacity(1 + 8 * radices.len());
    for round in 0..ROUNDS {
        let (left, right) = values.split_at_mut(middle);
        let (left_radices, right_radices) = radices.split_at(middle);
        let (to, from, to_radices) =
            if round % 2 == 0 { (left, right, left_radices) } else { (right, left, right_radices) };
        message.clear();
        message.push(round);
        // Radices distinguish shapes; most are the same 10 or 26, so two bytes of each symbol say enough.
        message.extend(radices.iter().chain(from.iter()).flat_map(|&number| (number as u16).to_le_bytes()));
        let mut stream = key.stream(purpose, &message, attempt);
        for (value, &radix) in to.iter_mut().zip(to_radices) {
            *value = (*value + stream.below(radix as usize) as u32) % radix;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn permute_is_one_to_one_on_every_shape() {
        let key = Key::new([7; 32]);
        for radices in [vec![10, 10, 10], vec![26, 10], vec![10], vec![26], vec![3, 2, 4, 5, 2]] {
            let size: u32 = radices.iter().product();
            let mut seen = HashSet::new();
            for number in 0..size {
                let mut rest = number;
                let mut values: Vec<u32> = radices
                    .iter()
                    .map(|radix| {
                        let value = rest % radix;
                        rest /= radix;
                        value
                    })
                    .collect();
                permute(&key, b'i', 0, &mut values, &radices);
                assert!(values.iter().zip(&radices).all(|(value, radix)| value < radix));
                seen.insert(values);
            }
            assert_eq!(seen.len(), size as usize);
        }
    }

    #[test]
    fn letters_all_move() {
        for secret in 0..50 {
            let letters = cycle_of_letters(&Key::new([secret; 32]));
            assert!(letters.iter().enumerate().all(|(from, &to)| from != to as usize));
            assert_eq!(letters.iter().collect::<HashSet<_>>().len(), 26);
        }
    }

    #[test]
    fn keys_of_different_parts_differ() {
        let key = Key::new([1; 32]);
        assert_ne!(key.derive(&[b"ab", b"c"]).0, key.derive(&[b"a", b"bc"]).0);
    }
}
