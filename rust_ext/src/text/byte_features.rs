//! What a text has anywhere, of all that escapes and layouts may do to it: one pass of bit masks, 64 bytes at a time.
//!
//! Most texts have nothing of it and are read as they are. Every detector asks this first, so it must cost less than reading:
//! a comparison a class, and shifts of masks for what several bytes in a row say. The instruction set is chosen as in `classes`;
//! tests compare the two.

use crate::text::classes::InstructionSet;

/// What a text has anywhere: bytes with which an escape may begin, letters between spaces, numbers at the end of a line.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ByteFeatures {
    /// `&`, `%` or a backslash.
    pub sign: bool,
    pub equals: bool,
    /// " U P" before what is no letter or digit, or "  U  "; a letter may have two bytes (É, И, Σ).
    pub spaced: bool,
    /// A line ends in a digit, `-` or `/` and the next begins with a digit or a space.
    pub broken: bool,
    /// A tab, `|` or `>`: what ends a cell or a tag.
    pub edge: bool,
}

pub fn byte_features(bytes: &[u8]) -> ByteFeatures {
    byte_features_with(bytes, InstructionSet::detect())
}

fn byte_features_with(bytes: &[u8], set: InstructionSet) -> ByteFeatures {
    match set {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the function asks for a processor with AVX2, and only `detect` makes this value, after asking it.
        InstructionSet::Avx2 => unsafe { avx2::byte_features(bytes) },
        _ => features_in_chunks(bytes, by_table),
    }
}

/// Classes of 64 neighbouring bytes; bit i is byte i.
#[derive(Clone, Copy, Default)]
struct Masks {
    letter: u64,
    /// Of a character beyond ASCII.
    high: u64,
    digit: u64,
    space: u64,
    line_feed: u64,
    /// `-`, `/` or a carriage return.
    open: u64,
    /// Not zero where there is any.
    sign: u64,
    equals: u64,
    edge: u64,
}

/// The bits of a class, moved on by some bytes: those of the bytes before come in.
#[inline(always)]
fn moved(now: u64, before: u64, by: u32) -> u64 {
    now << by | before >> (64 - by)
}

#[inline(always)]
fn features_in_chunks(bytes: &[u8], one: impl Fn(&[u8; 64]) -> Masks) -> ByteFeatures {
    let (chunks, rest) = bytes.as_chunks::<64>();
    let mut before = Masks::default();
    let (mut any, mut spaced, mut broken) = (Masks::default(), 0, 0);
    // Zeros behind the text: a word may end with it.
    let mut last = [0; 64];
    last[..rest.len()].copy_from_slice(rest);
    for chunk in chunks.iter().chain([&last]) {
        let now = one(chunk);
        let space = |by| moved(now.space, before.space, by);
        let letter = |by| moved(now.letter, before.letter, by);
        let high = |by| moved(now.high, before.high, by);
        // A letter of one byte or of two that ends so many bytes before.
        let ends = |by| letter(by) & space(by + 1) | high(by) & high(by + 1) & space(by + 2);
        let behind = !(now.letter | now.digit);
        spaced |= letter(1) & space(2) & ends(3) & behind;
        spaced |= high(1) & high(2) & space(3) & ends(4) & behind & !now.high;
        spaced |= now.space & space(1) & (letter(2) & space(3) & space(4) | high(2) & high(3) & space(4) & space(5));
        let open = moved(now.digit | now.open, before.digit | before.open, 2);
        broken |= open & moved(now.line_feed, before.line_feed, 1) & (now.digit | now.space);
        any.sign |= now.sign;
        any.equals |= now.equals;
        any.edge |= now.edge;
        before = now;
    }
    ByteFeatures {
        sign: any.sign != 0,
        equals: any.equals != 0,
        spaced: spaced != 0,
        broken: broken != 0,
        edge: any.edge != 0,
    }
}

fn by_table(bytes: &[u8; 64]) -> Masks {
    let mut masks = Masks::default();
    for (bit, &byte) in bytes.iter().enumerate() {
        let has = |is: bool| u64::from(is) << bit;
        masks.letter |= has(byte.is_ascii_alphabetic());
        masks.high |= has(!byte.is_ascii());
        masks.digit |= has(byte.is_ascii_digit());
        masks.space |= has(byte == b' ');
        masks.line_feed |= has(byte == b'\n');
        masks.open |= has(matches!(byte, b'-' | b'/' | b'\r'));
        masks.sign |= has(matches!(byte, b'&' | b'%' | b'\\'));
        masks.equals |= has(byte == b'=');
        masks.edge |= has(matches!(byte, b'\t' | b'|' | b'>'));
    }
    masks
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{ByteFeatures, Masks, features_in_chunks};

    #[target_feature(enable = "avx2")]
    pub fn byte_features(bytes: &[u8]) -> ByteFeatures {
        let is = |bytes: __m256i, byte: u8| _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(byte as i8));
        let among = |bytes: __m256i, first: u8, num: u8| {
            let above = _mm256_sub_epi8(bytes, _mm256_set1_epi8(first as i8));
            _mm256_cmpeq_epi8(_mm256_min_epu8(above, _mm256_set1_epi8(num as i8 - 1)), above)
        };
        let or = |a: __m256i, b: __m256i| _mm256_or_si256(a, b);
        let mask = |bytes: __m256i| u64::from(_mm256_movemask_epi8(bytes) as u32);
        let half = |bytes: __m256i| Masks {
            letter: mask(among(or(bytes, _mm256_set1_epi8(0x20)), b'a', 26)),
            high: mask(bytes),
            digit: mask(among(bytes, b'0', 10)),
            space: mask(is(bytes, b' ')),
            line_feed: mask(is(bytes, b'\n')),
            open: mask(or(or(is(bytes, b'-'), is(bytes, b'/')), is(bytes, b'\r'))),
            sign: mask(or(or(is(bytes, b'&'), is(bytes, b'%')), is(bytes, b'\\'))),
            equals: mask(is(bytes, b'=')),
            edge: mask(or(or(is(bytes, b'\t'), is(bytes, b'|')), is(bytes, b'>'))),
        };
        features_in_chunks(bytes, |bytes| {
            // SAFETY: 32 bytes are read at offsets 0 and 32 of an array of 64; `loadu` asks for no alignment.
            let (first, second) = unsafe {
                (_mm256_loadu_si256(bytes.as_ptr().cast()), _mm256_loadu_si256(bytes.as_ptr().add(32).cast()))
            };
            let (a, b) = (half(first), half(second));
            Masks {
                letter: a.letter | b.letter << 32,
                high: a.high | b.high << 32,
                digit: a.digit | b.digit << 32,
                space: a.space | b.space << 32,
                line_feed: a.line_feed | b.line_feed << 32,
                open: a.open | b.open << 32,
                sign: a.sign | b.sign,
                equals: a.equals | b.equals,
                edge: a.edge | b.edge,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::packing::tests::draws_below;

    #[test]
    fn a_text_is_looked_at_closely_only_where_it_may_have_something() {
        let (none, some) = (ByteFeatures::default(), |text: &str| byte_features(text.as_bytes()));
        for text in ["", "A bc d", "is a man", "line 12.\nNext", "12\nnext", &"word ".repeat(40)] {
            assert_eq!(some(text), none, "{text:?}");
        }
        assert_eq!(some("a\tb = c & d"), ByteFeatures { sign: true, equals: true, edge: true, ..none });
        for text in
            ["L E V Y", "Dr D U P.", "M Ü L L E R", "  U  P  O", "И В А Н О В", "É L É A", "Ö Ç Ü Ş", "  И  В  "]
        {
            assert_eq!(some(text), ByteFeatures { spaced: true, ..none }, "{text:?}");
            assert_eq!(some(&format!("{} {text}", "x".repeat(61))), ByteFeatures { spaced: true, ..none }, "{text:?}");
        }
        for text in ["12\n34", "12-\n34", "12/\r\n  34"] {
            assert_eq!(some(text), ByteFeatures { broken: true, ..none }, "{text:?}");
        }
    }

    /// The definition, byte by byte.
    fn by_bytes(bytes: &[u8]) -> ByteFeatures {
        let at = |place: usize| bytes.get(place).copied().unwrap_or(0);
        let mut features = ByteFeatures::default();
        for (place, &byte) in bytes.iter().enumerate() {
            let [b, c] = [1, 2].map(|further| at(place + further));
            // Bytes of the letter that begins at a place.
            let letter = |place: usize| match [at(place), at(place + 1)] {
                [first, _] if first.is_ascii_alphabetic() => Some(1),
                [first, second] if !first.is_ascii() && !second.is_ascii() => Some(2),
                _ => None,
            };
            features.sign |= matches!(byte, b'&' | b'%' | b'\\');
            features.equals |= byte == b'=';
            features.edge |= matches!(byte, b'\t' | b'|' | b'>');
            let close = letter(place + 1).is_some_and(|one| {
                let second = place + 2 + one;
                at(second - 1) == b' '
                    && letter(second).is_some_and(|two| {
                        let behind = at(second + two);
                        !behind.is_ascii_alphanumeric() && (two == 1 || behind.is_ascii())
                    })
            });
            let wide = b == b' '
                && letter(place + 2).is_some_and(|one| at(place + 2 + one) == b' ' && at(place + 3 + one) == b' ');
            features.spaced |= byte == b' ' && (close || wide);
            let open = byte.is_ascii_digit() || matches!(byte, b'-' | b'/' | b'\r');
            features.broken |= open && b == b'\n' && (c.is_ascii_digit() || c == b' ');
        }
        features
    }

    #[test]
    fn every_instruction_set_sees_the_same() {
        const BYTES: [&[u8]; 5] = [b" aB1.", b"1\n \r-x", b"a &%\\=|>\t \xc3", b" a  b12,\n", b" \xc3\xa9a  "];
        let mut draw = draws_below(1);
        for round in 0..4_000 {
            let bytes = BYTES[round % BYTES.len()];
            let text: Vec<u8> = std::iter::repeat_with(|| {
                // Long stretches of nothing, so that what is rare is seen by itself.
                if draw(16) < 13 { b'x' } else { bytes[draw(bytes.len())] }
            })
            .take(round % 200)
            .collect();
            let expected = by_bytes(&text);
            for set in [InstructionSet::Table, InstructionSet::detect()] {
                assert_eq!(byte_features_with(&text, set), expected, "{text:?}");
            }
        }
    }
}
