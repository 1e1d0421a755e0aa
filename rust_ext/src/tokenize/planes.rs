//! Planes: from the protection of words to one bit for each token, for documents whose tokens are packed (`packed`).
//!
//! A token has a flag where a word that it meets has it. No text is read, and no tokenizer.

use std::ops::Range;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::protect::{DIRECT, INDIRECT};
use crate::storage::bits::{Bits, bit_at, eight_bytes, word_at};
use crate::tokenize::packed::Exception;

/// Tokens of some documents, in a store of more: bits stand at the numbers that tokens have in the store.
#[derive(Clone, Copy)]
pub struct StoredTokens<'a> {
    pub begins: &'a [u8],
    pub outside: &'a [u8],
    /// Tokens that meet what a span of the text holds between words.
    pub gaps: Option<&'a [u8]>,
    /// Of the whole store, ascending.
    pub exceptions: &'a [Exception],
    /// Tokens of document d are `offsets[d]..offsets[d + 1]`, by their numbers in the store.
    pub offsets: &'a [i64],
}

/// What is protected of the words of the same documents; those of document d are `offsets[d]..offsets[d + 1]`.
#[derive(Clone, Copy)]
pub struct FlaggedWords<'a> {
    pub flags: &'a [u8],
    /// Bit n - 1 where a minimal identifying n-gram of n words starts.
    pub ngram_starts: &'a [u8],
    pub offsets: &'a [i64],
    /// Documents whose tokens the planes have bits for; others are passed over.
    pub kept: &'a [bool],
}

/// One bit a token of the kept documents each, and those tokens where n-grams start: their numbers among these tokens, and the
/// lengths as bits.
#[derive(Default)]
pub struct Planes {
    pub direct: Bits,
    pub indirect: Bits,
    pub starts: Vec<(u64, u8)>,
    /// Words of the kept documents that the tokens do not tell: their numbers among these words, [`INDIRECT`] or 0, and the lengths of
    /// the n-grams that start there as bits.
    pub untold: Vec<(u64, u8, u8)>,
    num_words: u64,
}

/// Documents that one thread takes at a time.
const SHARE: usize = 64;

/// The planes of some documents.
pub fn planes(tokens: StoredTokens<'_>, words: FlaggedWords<'_>) -> Result<Planes> {
    check(tokens, words)?;
    let num_documents = words.kept.len();
    let shares: Vec<Range<usize>> =
        (0..num_documents).step_by(SHARE).map(|first| first..(first + SHARE).min(num_documents)).collect();
    let parts: Vec<Planes> = shares
        .into_par_iter()
        .map(|documents| {
            let mut made = Planes::default();
            let mut scratch = Vec::new();
            for document in documents {
                one_document(tokens, words, document, &mut scratch, &mut made)?;
            }
            Ok(made)
        })
        .collect::<Result<_>>()?;
    let mut whole = Planes::default();
    for part in parts {
        let (base, words) = (whole.direct.len() as u64, whole.num_words);
        whole.starts.extend(part.starts.iter().map(|&(token, lengths)| (base + token, lengths)));
        whole.untold.extend(part.untold.iter().map(|&(word, flag, lengths)| (words + word, flag, lengths)));
        whole.num_words += part.num_words;
        whole.direct.append(&part.direct);
        whole.indirect.append(&part.indirect);
    }
    Ok(whole)
}

fn check(tokens: StoredTokens<'_>, words: FlaggedWords<'_>) -> Result<()> {
    let bad = |what: &str| Err(Error::Artifact(format!("token store: {what}; damaged, run protect again")));
    let num_documents = words.kept.len();
    let goes_up = |offsets: &[i64]| {
        offsets.len() == num_documents + 1 && offsets.first().is_some_and(|&first| first >= 0) && offsets.is_sorted()
    };
    if !goes_up(tokens.offsets) || !goes_up(words.offsets) || words.offsets[0] != 0 {
        return bad("documents, tokens and words do not fit together");
    }
    let num_words = words.offsets[num_documents] as usize;
    if words.flags.len() != num_words || words.ngram_starts.len() != num_words {
        return bad("flags do not fit the words");
    }
    let end = tokens.offsets[num_documents] as usize;
    if [Some(tokens.begins), Some(tokens.outside), tokens.gaps].into_iter().flatten().any(|bits| bits.len() * 8 < end) {
        return bad("a plane is shorter than the tokens");
    }
    Ok(())
}

/// Append the planes of one document; `scratch` is room for the flags of its tokens.
fn one_document(
    tokens: StoredTokens<'_>,
    words: FlaggedWords<'_>,
    document: usize,
    scratch: &mut Vec<u8>,
    made: &mut Planes,
) -> Result<()> {
    let own = tokens.offsets[document] as usize..tokens.offsets[document + 1] as usize;
    if !words.kept[document] {
        return Ok(());
    }
    let range = words.offsets[document] as usize..words.offsets[document + 1] as usize;
    let (flags, starts) = (&words.flags[range.clone()], &words.ngram_starts[range]);
    let exceptions = &tokens.exceptions[tokens.exceptions.partition_point(|e| e.token < own.start as u64)..];
    let has_exception = exceptions.first().is_some_and(|exception| exception.token < own.end as u64);
    match (!has_exception).then(|| follows_from_bits(tokens, own.clone(), flags.len())).flatten() {
        Some(num_begun) => {
            by_bits(tokens, own, flags, starts, made);
            made.add_untold(num_begun, &flags[num_begun..], &starts[num_begun..], |_| (0, 0));
        }
        None => by_token(tokens, own, (flags, starts), exceptions, scratch, made)?,
    }
    made.num_words += flags.len() as u64;
    Ok(())
}

impl Planes {
    /// Add the words of a document from number `first` on whose flag and starts are not those that the tokens tell.
    fn add_untold(&mut self, first: usize, flags: &[u8], starts: &[u8], told: impl Fn(usize) -> (u8, u8)) {
        let words = flags.iter().map(|flag| flag & INDIRECT).zip(starts.iter().copied()).enumerate();
        let untold = words.filter(|&(word, known)| told(word) != known);
        let base = self.num_words + first as u64;
        self.untold.extend(untold.map(|(word, (flag, lengths))| (base + word as u64, flag, lengths)));
    }
}

/// How many words begin in a document without exceptions if each token is outside or belongs to the word that began last, and
/// that word is there.
fn follows_from_bits(tokens: StoredTokens<'_>, own: Range<usize>, num_words: usize) -> Option<usize> {
    let mut num_begun = 0;
    for at in own.clone().step_by(64) {
        let len = (own.end - at).min(64);
        let (begins, outside) = (word_at(tokens.begins, at, len), word_at(tokens.outside, at, len));
        // Tokens before the first beginning: all of these bits under its own.
        let before = if num_begun > 0 { 0 } else { begins.wrapping_sub(1) & !begins & low(len) };
        if begins & outside != 0 || before & !outside != 0 {
            return None;
        }
        num_begun += begins.count_ones() as usize;
    }
    (num_begun <= num_words).then_some(num_begun)
}

/// The planes of a document of which [`follows_from_bits`] holds, 64 tokens at a time.
fn by_bits(tokens: StoredTokens<'_>, own: Range<usize>, flags: &[u8], starts: &[u8], made: &mut Planes) {
    let (base, mut first) = (made.direct.len(), 0);
    // Whether the word of the token before has the flag.
    let (mut is_direct, mut is_indirect) = (false, false);
    for at in own.clone().step_by(64) {
        let len = (own.end - at).min(64);
        let begins = word_at(tokens.begins, at, len);
        let inside = !word_at(tokens.outside, at, len) & low(len);
        let in_gap = tokens.gaps.map_or(0, |bits| word_at(bits, at, len));
        let end = first + begins.count_ones() as usize;
        let (mut direct, mut indirect) = (0, 0);
        for (eight, place) in flags[first..end].chunks(8).zip((0..64).step_by(8)) {
            let eight = eight_bytes(eight);
            direct |= lowest_bits(eight) << place;
            indirect |= lowest_bits(eight >> 1) << place;
        }
        for (eight, place) in starts[first..end].chunks(8).zip((0..64).step_by(8)) {
            if eight_bytes(eight) != 0 {
                for (word, &lengths) in eight.iter().enumerate().filter(|&(_, &lengths)| lengths != 0) {
                    let token = deposit(1 << (place + word), begins).trailing_zeros() as usize;
                    made.starts.push(((base + at - own.start + token) as u64, lengths));
                }
            }
        }
        direct = spread(deposit(direct, begins), begins, &mut is_direct);
        indirect = spread(deposit(indirect, begins), begins, &mut is_indirect);
        made.direct.push_word(direct & inside | in_gap, len);
        made.indirect.push_word(indirect & inside, len);
        first = end;
    }
}

/// Set each bit to that of the last beginning at or before it; `last` is that of the token before, and becomes that of the last
/// one.
///
/// This is the carry of an addition: a beginning makes one where it is set and none where it is not, and every other bit hands it
/// on. With `x = set | !begins` and `y = set` both have a one where a carry is made, one of them where it is handed on.
#[inline(always)]
fn spread(set: u64, begins: u64, last: &mut bool) -> u64 {
    let (x, y) = (set | !begins, set);
    let (sum, over) = x.overflowing_add(y);
    let (sum, over_by_last) = sum.overflowing_add(u64::from(*last));
    let carried_in = x ^ y ^ sum;
    *last = over | over_by_last;
    carried_in >> 1 | u64::from(*last) << 63
}

/// The lowest bits of `bits`, in order, at the places of the ones of `mask`.
#[inline(always)]
fn deposit(bits: u64, mask: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("bmi2") {
        // SAFETY: the processor has the instruction, as was just asked.
        return unsafe { std::arch::x86_64::_pdep_u64(bits, mask) };
    }
    deposit_one_by_one(bits, mask)
}

fn deposit_one_by_one(mut bits: u64, mut mask: u64) -> u64 {
    let mut found = 0;
    while bits != 0 && mask != 0 {
        found |= mask & mask.wrapping_neg() & (bits & 1).wrapping_neg();
        mask &= mask - 1;
        bits >>= 1;
    }
    found
}

/// The lowest bit of each of eight bytes, the first lowest. The product brings them together in its highest byte: byte i is
/// shifted by 56 - 7 i, so that its bit comes to 56 + i, and no two products meet.
#[inline(always)]
fn lowest_bits(eight: u64) -> u64 {
    (eight & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// The lowest `len` bits; `len` is 1 to 64.
#[inline(always)]
fn low(len: usize) -> u64 {
    u64::MAX >> (64 - len)
}

/// The planes of a document, token by token.
fn by_token(
    tokens: StoredTokens<'_>,
    own: Range<usize>,
    (flags, starts): (&[u8], &[u8]),
    exceptions: &[Exception],
    scratch: &mut Vec<u8>,
    made: &mut Planes,
) -> Result<()> {
    let base = made.direct.len();
    scratch.clear();
    let mut exceptions = exceptions.iter();
    let mut next = exceptions.next();
    // The first word of the last token that met one, and the first word that no token has met.
    let (mut word, mut unseen) = (-1i64, 0usize);
    // What the tokens tell of each word: indirect where all that meet it are, and where n-grams start.
    let mut told: Vec<Option<(u8, u8)>> = vec![None; flags.len()];
    for token in own.clone() {
        let mut more = 0;
        word += i64::from(bit_at(tokens.begins, token));
        if let Some(exception) = next.filter(|exception| exception.token == token as u64) {
            word += i64::from(exception.skipped);
            more = exception.more as usize;
            next = exceptions.next();
        }
        let in_gap = u8::from(tokens.gaps.is_some_and(|bits| bit_at(bits, token))) * DIRECT;
        if bit_at(tokens.outside, token) {
            scratch.push(in_gap);
            continue;
        }
        let first = word as usize;
        let end = first + 1 + more;
        if word < 0 || end > flags.len() {
            let message = "token store: a token belongs to a word that is not there; damaged, run protect again";
            return Err(Error::Artifact(message.into()));
        }
        let flag = flags[first..end].iter().fold(in_gap, |all, flag| all | flag);
        scratch.push(flag);
        for told in &mut told[first..end] {
            *told = Some(told.map_or((flag & INDIRECT, 0), |(all, lengths)| (all & flag, lengths)));
        }
        if end > unseen {
            let lengths = starts[first.max(unseen)..end].iter().fold(0, |all, lengths| all | lengths);
            if lengths != 0 {
                made.starts.push(((base + token - own.start) as u64, lengths));
                let known = told[first.max(unseen)].get_or_insert((0, 0));
                known.1 |= lengths;
            }
            unseen = end;
        }
    }
    made.add_untold(0, flags, starts, |word| told[word].unwrap_or((0, 0)));
    made.direct.extend_from(scratch, |flag| flag & DIRECT != 0);
    made.indirect.extend_from(scratch, |flag| flag & INDIRECT != 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::packing::tests::draws_below;

    /// Pseudo-random bits, each set in one of `in_so_many`.
    fn drawn(seed: u64, len: usize, in_so_many: usize) -> Vec<bool> {
        let mut draw = draws_below(seed);
        (0..len).map(|_| draw(in_so_many) == 0).collect()
    }

    fn bytes_of(bits: &[bool]) -> Vec<u8> {
        let mut made = Bits::default();
        made.extend_from(bits, |&bit| bit);
        made.into_bytes()
    }

    #[test]
    fn bits_give_what_single_tokens_give() {
        let mut num_by_bits = 0;
        for seed in 1..400u64 {
            let len = [1, 2, 63, 64, 65, 130, 700][seed as usize % 7];
            let before = seed as usize % 11;
            let mut begins = drawn(seed, before + len, [1, 2, 5, 40][seed as usize % 4]);
            let mut outside: Vec<bool> = drawn(seed + 1000, before + len, [3, 9][seed as usize % 2]);
            if seed % 5 > 0 {
                // As a store has them: no token that begins a word is outside, and none belongs to a word before one begins.
                outside.iter_mut().zip(&begins).for_each(|(out, begins)| *out &= !begins);
                let begun = before + begins[before..].iter().position(|&begins| begins).unwrap_or(len);
                outside[before..begun].fill(true);
            } else {
                begins[before] |= seed % 2 == 0;
            }
            let num_begun = begins[before..].iter().filter(|&&begins| begins).count();
            let num_words = (num_begun + seed as usize % 3).saturating_sub(usize::from(seed % 37 == 0));
            let (direct, indirect) = (drawn(seed + 2000, num_words, 4), drawn(seed + 3000, num_words, 3));
            let flags: Vec<u8> = direct
                .iter()
                .zip(&indirect)
                .map(|(&direct, &indirect)| (u8::from(direct) * DIRECT) | (u8::from(indirect) * INDIRECT))
                .collect();
            let starts: Vec<u8> = drawn(seed + 4000, num_words, 6).iter().map(|&starts| u8::from(starts) * 5).collect();
            let (begins, outside, gaps) =
                (bytes_of(&begins), bytes_of(&outside), bytes_of(&drawn(seed + 5000, before + len, 20)));
            let offsets = [before as i64, (before + len) as i64];
            let tokens = StoredTokens {
                begins: &begins,
                outside: &outside,
                gaps: (seed % 3 > 0).then_some(&gaps[..]),
                exceptions: &[],
                offsets: &offsets,
            };
            let own = before..before + len;
            let (mut slow, mut fast) = (Planes::default(), Planes::default());
            // Behind other tokens, so that the words of the planes are not aligned with those of the store.
            slow.direct.push_word(0, 3);
            slow.indirect.push_word(0, 3);
            fast.direct.push_word(0, 3);
            fast.indirect.push_word(0, 3);
            let done = by_token(tokens, own.clone(), (&flags, &starts), &[], &mut Vec::new(), &mut slow);
            if follows_from_bits(tokens, own.clone(), num_words).is_some() {
                by_bits(tokens, own, &flags, &starts, &mut fast);
                assert!(done.is_ok());
                assert_eq!((fast.direct, fast.indirect, fast.starts), (slow.direct, slow.indirect, slow.starts));
                num_by_bits += 1;
            } else {
                assert!(seed % 5 == 0 || seed % 37 == 0);
            }
        }
        assert!(num_by_bits > 250);
    }

    #[test]
    fn deposits_are_those_of_the_instruction() {
        for seed in 1..200u64 {
            let bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mask = bits.rotate_left(seed as u32) & seed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            assert_eq!(deposit(bits, mask), deposit_one_by_one(bits, mask));
            assert_eq!(deposit_one_by_one(u64::MAX, mask), mask);
        }
        assert_eq!(deposit_one_by_one(0b101, 0b1110_0000), 0b1010_0000);
    }
}
