//! Numbers: the words of documents by their rows in an index, so that what follows from supports needs no text.
//!
//! Stored, a number takes as many bits as the rows of the index need, the first in the lowest, and each document begins with a byte
//! of its own. A word that the index does not hold has all bits set.

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::lookup::Found;
use crate::index::ngram_index::NgramIndex;
use crate::storage::bits::eight_bytes;
use crate::text::texts::Texts;
use crate::text::words::Words;

/// The number of a word that an index does not hold.
pub const UNKNOWN: u32 = u32::MAX;

/// The numbers of documents as they are stored; those of document d are `offsets[d]..offsets[d + 1]`.
pub fn pack(numbers: &[u32], offsets: &[i64], bits: u32) -> Result<Vec<u8>> {
    let bad = || Error::Policy("word numbers: they do not fit their documents or their bits".into());
    let (mask, mut bytes) = (mask_of(bits).ok_or_else(bad)?, Vec::with_capacity(numbers.len() * bits as usize / 8));
    for ends in offsets.windows(2) {
        let own = numbers.get(ends[0] as usize..ends[1] as usize).ok_or_else(bad)?;
        let (mut open, mut num_open) = (0u64, 0);
        for &number in own {
            if number >= mask && number != UNKNOWN {
                return Err(bad());
            }
            open |= u64::from(number & mask) << num_open;
            num_open += bits;
            if num_open >= 32 {
                bytes.extend_from_slice(&(open as u32).to_le_bytes());
                (open, num_open) = (open >> 32, num_open - 32);
            }
        }
        bytes.extend_from_slice(&open.to_le_bytes()[..num_open.div_ceil(8) as usize]);
    }
    Ok(bytes)
}

/// Numbers of the words of some documents, as they are stored.
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    packed: &'a [u8],
    bits: u32,
    mask: u32,
    /// The first byte of each document.
    firsts: &'a [i64],
}

impl<'a> Stored<'a> {
    /// Documents with so many words each.
    pub fn new(
        packed: &'a [u8],
        bits: u32,
        firsts: &'a [i64],
        lengths: impl ExactSizeIterator<Item = i64>,
    ) -> Result<Self> {
        let bad =
            || Error::Artifact("word numbers: they do not fit their documents; damaged, run protect again".into());
        let mask = mask_of(bits).ok_or_else(bad)?;
        let num_bytes = |length: i64| (length as u64).saturating_mul(bits.into()).div_ceil(8);
        let is_inside = |(length, &first): (i64, &i64)| {
            first >= 0 && length >= 0 && (first as u64).saturating_add(num_bytes(length)) <= packed.len() as u64
        };
        if firsts.len() != lengths.len() || !lengths.zip(firsts).all(is_inside) {
            return Err(bad());
        }
        Ok(Self { packed, bits, mask, firsts })
    }

    /// The number of a word of a document.
    #[inline(always)]
    pub fn get(&self, document: usize, word: usize) -> u32 {
        let bit = word * self.bits as usize;
        let at = self.firsts[document] as usize + bit / 8;
        let found = (eight_bytes(&self.packed[at..self.packed.len().min(at + 8)]) >> (bit % 8)) as u32 & self.mask;
        if found == self.mask { UNKNOWN } else { found }
    }

    /// Those of the first words of a document, as many as there is room for.
    pub fn read(&self, document: usize, numbers: &mut [u32]) {
        let (bits, mask) = (self.bits as usize, self.mask);
        let own = &self.packed[self.firsts[document] as usize..];
        // Eight bytes from the first of a number: all of them are there but for the last few numbers.
        let num_inside = (own.len().saturating_sub(7) * 8 / bits).min(numbers.len());
        let (inside, last) = numbers.split_at_mut(num_inside);
        for (word, number) in inside.iter_mut().enumerate() {
            let bit = word * bits;
            let found = (eight_bytes(&own[bit / 8..bit / 8 + 8]) >> (bit % 8)) as u32 & mask;
            *number = if found == mask { UNKNOWN } else { found };
        }
        last.iter_mut().zip(num_inside..).for_each(|(number, word)| *number = self.get(document, word));
    }
}

/// The numbers of documents, one after the other, from the first byte of each and how many it has.
pub fn unpack(packed: &[u8], bits: u32, firsts: &[i64], lengths: &[i64]) -> Result<Vec<u32>> {
    let stored = Stored::new(packed, bits, firsts, lengths.iter().copied())?;
    let mut numbers = vec![0u32; lengths.iter().sum::<i64>() as usize];
    let mut left = &mut numbers[..];
    for (document, &length) in lengths.iter().enumerate() {
        let own;
        (own, left) = left.split_at_mut(length as usize);
        stored.read(document, own);
    }
    Ok(numbers)
}

fn mask_of(bits: u32) -> Option<u32> {
    (1..=u32::BITS).contains(&bits).then(|| u32::MAX >> (u32::BITS - bits))
}

/// Documents that one thread takes at a time.
const SHARE: usize = 64;

impl NgramIndex {
    /// The number of each word of the texts.
    pub fn number_words(&self, texts: &Texts, words: &Words) -> Result<Vec<u32>> {
        words.check(texts.len())?;
        let lookup = self.lookup();
        let mut numbers = vec![0u32; words.starts.len()];
        let (mut jobs, mut left) = (Vec::new(), &mut numbers[..]);
        for first in (0..texts.len()).step_by(SHARE) {
            let rows = first..(first + SHARE).min(texts.len());
            let own;
            (own, left) = left.split_at_mut(words.first(rows.end) - words.first(rows.start));
            jobs.push((rows, own));
        }
        jobs.into_par_iter().with_max_len(1).for_each(|(rows, own)| {
            let mut memo = lookup.memo();
            let mut places = own.iter_mut();
            for row in rows {
                let known = (&self.words, &*self.support);
                lookup.find_all(known, texts.get(row), words.of(row), &mut memo, |_, found| {
                    if let Some(place) = places.next() {
                        // Every word that is listed has a support.
                        *place = if found.support > 0 { found.id } else { UNKNOWN };
                    }
                });
            }
            lookup.put_back(memo);
        });
        Ok(numbers)
    }

    /// For each word of `numbered` (of the same surface) what this index says of it.
    pub fn found_by_number(&self, numbered: &NgramIndex) -> Vec<Found> {
        let mut own = 0;
        let is_same = std::ptr::eq(self, numbered);
        (0..numbered.words.len())
            .map(|number| {
                if is_same {
                    own = number;
                } else {
                    let word = numbered.words.get(number);
                    while own < self.words.len() && self.words.get(own) < word {
                        own += 1;
                    }
                    if own == self.words.len() || self.words.get(own) != word {
                        return Found::default();
                    }
                }
                Found { id: own as u32, support: self.support[own] }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::packing::tests::draws_below;

    #[test]
    fn numbers_are_unpacked_as_they_were_packed() {
        for num_words in [0usize, 1, 2, 3, 127, 128, 329_879, (1 << 24) - 1, 1 << 24, u32::MAX as usize] {
            // Also for one more than the last, which stands for a word that is none of them.
            let bits = (usize::BITS - num_words.leading_zeros()).max(1);
            let mut draw = draws_below(7);
            let mut number = || if draw(5) == 0 || num_words == 0 { UNKNOWN } else { draw(num_words) as u32 };
            let lengths: Vec<i64> = [0, 1, 7, 0, 64, 3, 1000, 0].into();
            let ends: Vec<i64> = std::iter::once(0)
                .chain(lengths.iter().scan(0, |end, length| {
                    *end += length;
                    Some(*end)
                }))
                .collect();
            let mut numbers: Vec<u32> = (0..ends[8]).map(|_| number()).collect();
            numbers[1] = num_words.checked_sub(1).map_or(UNKNOWN, |last| last as u32);
            let packed = pack(&numbers, &ends, bits).unwrap();
            let mut firsts = vec![0i64];
            firsts.extend(lengths.iter().scan(0, |end, length| {
                *end += (length * i64::from(bits) + 7) / 8;
                Some(*end)
            }));
            assert_eq!(firsts[8] as usize, packed.len());
            assert_eq!(unpack(&packed, bits, &firsts[..8], &lengths).unwrap(), numbers);
            // Two documents out of order.
            let some = unpack(&packed, bits, &[firsts[6], firsts[2]], &[1000, 7]).unwrap();
            assert_eq!(some, [&numbers[75..1075], &numbers[1..8]].concat());
            // More than there is, and a number with more bits.
            assert!(unpack(&packed, bits, &firsts[6..7], &[1001 + i64::from(64 / bits)]).is_err());
            assert!(unpack(&packed, bits, &[-1], &[1]).is_err() && unpack(&packed, bits, &[0], &[i64::MAX]).is_err());
            assert!(bits == 32 || pack(&[1 << bits], &[0, 1], bits).is_err());
        }
        assert!(unpack(&[], 0, &[], &[]).is_err() && unpack(&[], 33, &[], &[]).is_err());
    }
}
