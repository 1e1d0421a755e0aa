//! Stretches: what of a text a folding copies as it is, up to the next byte that it must look at.
//!
//! Masks of 64 bytes say where those bytes stand, so that a text is walked over from one to the next, and what stands between
//! two is copied in blocks. In the same way the few spaces are found before which a letter may stand alone.

/// The bytes of a text at which a folding stops.
pub struct Stops<'a> {
    bytes: &'a [u8],
    /// Whether it stops at white space too, but for a space behind none.
    at_white: bool,
    /// The block that was looked at last, and where to stop in it.
    number: usize,
    mask: u64,
}

const BLOCK: usize = 64;

impl<'a> Stops<'a> {
    /// What is not ASCII.
    pub fn at_others(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), at_white: false, number: usize::MAX, mask: 0 }
    }

    /// What is not ASCII, and all white space but single spaces.
    pub fn at_others_and_white(text: &'a str) -> Self {
        Self { at_white: true, ..Self::at_others(text) }
    }

    /// The first of them from a byte on; the end of the text if there is none.
    #[inline]
    pub fn next(&mut self, from: usize) -> usize {
        let mut left = self.mask_of(from / BLOCK) & (u64::MAX << (from % BLOCK));
        while left == 0 {
            let next = self.number + 1;
            if next * BLOCK >= self.bytes.len() {
                return self.bytes.len();
            }
            left = self.mask_of(next);
        }
        self.number * BLOCK + left.trailing_zeros() as usize
    }

    #[inline]
    fn mask_of(&mut self, number: usize) -> u64 {
        if number != self.number {
            let rest = self.bytes.get(number * BLOCK..).unwrap_or_default();
            let masks = Masks::of_first(rest);
            self.number = number;
            self.mask = masks.other;
            if self.at_white {
                let before = number > 0 && self.bytes[number * BLOCK - 1] == b' ';
                self.mask |= masks.control | masks.space & (masks.space << 1 | u64::from(before));
            }
        }
        self.mask
    }
}

/// The spaces behind a capital of ASCII that no letter or digit stands before, and behind what is not ASCII.
pub fn spaces_behind_letters(bytes: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut before = Masks::default();
    for (number, block) in bytes.chunks(BLOCK).enumerate() {
        let now = Masks::of_first(block);
        let moved = |now: u64, before: u64, by: u32| now << by | before >> (64 - by);
        let alone = moved(now.capital, before.capital, 1) & !moved(now.word, before.word, 2);
        let mut left = now.space & (alone | moved(now.other, before.other, 1));
        while left != 0 {
            found.push(number * BLOCK + left.trailing_zeros() as usize);
            left &= left - 1;
        }
        before = now;
    }
    found
}

/// Classes of 64 bytes; bit i is byte i.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Masks {
    /// Beyond ASCII.
    other: u64,
    /// From tab to carriage return.
    control: u64,
    space: u64,
    /// Of ASCII.
    capital: u64,
    /// Letters and digits of ASCII, and what is beyond it.
    word: u64,
}

impl Masks {
    /// Those of the first bytes of a text; past its end there is nothing.
    #[inline(always)]
    fn of_first(bytes: &[u8]) -> Self {
        match bytes.first_chunk::<BLOCK>() {
            Some(block) => Self::of(block),
            None => {
                let mut last = [0; BLOCK];
                last[..bytes.len()].copy_from_slice(bytes);
                Self::of(&last)
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of(block: &[u8; BLOCK]) -> Self {
        Self::by_bytes(block)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn of(block: &[u8; BLOCK]) -> Self {
        use std::arch::x86_64::*;
        let mut masks = Self::default();
        for (number, part) in block.as_chunks::<16>().0.iter().enumerate() {
            // SAFETY: every x86-64 processor has these instructions; 16 bytes are read of an array of 16, and `loadu` asks for
            // no alignment.
            let [other, control, space, capital, word] = unsafe {
                let part = _mm_loadu_si128(part.as_ptr().cast());
                let among = |bytes: __m128i, first: u8, num: u8| {
                    let above = _mm_sub_epi8(bytes, _mm_set1_epi8(first as i8));
                    _mm_cmpeq_epi8(_mm_min_epu8(above, _mm_set1_epi8(num as i8 - 1)), above)
                };
                let letter = among(_mm_or_si128(part, _mm_set1_epi8(0x20)), b'a', 26);
                let word = _mm_or_si128(_mm_or_si128(letter, among(part, b'0', 10)), part);
                let space = _mm_cmpeq_epi8(part, _mm_set1_epi8(b' ' as i8));
                [part, among(part, b'\t', 5), space, among(part, b'A', 26), word]
                    .map(|part| u64::from(_mm_movemask_epi8(part) as u32))
            };
            masks.other |= other << (16 * number);
            masks.control |= control << (16 * number);
            masks.space |= space << (16 * number);
            masks.capital |= capital << (16 * number);
            masks.word |= word << (16 * number);
        }
        masks
    }

    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn by_bytes(block: &[u8; BLOCK]) -> Self {
        let mut masks = Self::default();
        for (bit, byte) in block.iter().enumerate() {
            masks.other |= u64::from(!byte.is_ascii()) << bit;
            masks.control |= u64::from(matches!(byte, b'\t'..=b'\r')) << bit;
            masks.space |= u64::from(*byte == b' ') << bit;
            masks.capital |= u64::from(byte.is_ascii_uppercase()) << bit;
            masks.word |= u64::from(byte.is_ascii_alphanumeric() || !byte.is_ascii()) << bit;
        }
        masks
    }
}

/// Append `start..end` of a text, all ASCII, in small letters for `lower`.
#[inline]
pub fn push_ascii(to: &mut String, text: &str, start: usize, end: usize, lower: bool) {
    const WIDTH: usize = 32;
    let bytes = text.as_bytes();
    let length = to.len() + (end - start);
    // SAFETY: between here and the cut, which no panic can prevent, nobody reads the string. It then ends in bytes of ASCII,
    // behind what was UTF-8 before.
    let to = unsafe { to.as_mut_vec() };
    debug_assert!(bytes[start..end].is_ascii());
    for part in bytes[start..].chunks(WIDTH).take((end - start).div_ceil(WIDTH)) {
        let mut block = [0; WIDTH];
        match part.first_chunk::<WIDTH>() {
            Some(part) => block = *part,
            None => block[..part.len()].copy_from_slice(part),
        }
        if lower {
            block.make_ascii_lowercase();
        }
        to.extend_from_slice(&block);
    }
    to.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::packing::tests::draws_below;

    #[test]
    fn stops_are_those_of_each_byte() {
        let (mut draw, mut text) = (draws_below(1), String::new());
        for length in 0..400 {
            text.clear();
            while text.len() < length {
                text.push(if draw(8) == 0 { [' ', '\n', 'é', '\u{b}', 'Z', '7'][draw(6)] } else { 'x' });
                text.push_str([" ", "", "A"][draw(3)]);
            }
            let bytes = text.as_bytes();
            let is_stop = |at: usize, white: bool| {
                let space = bytes[at] == b' ' && at > 0 && bytes[at - 1] == b' ';
                !bytes[at].is_ascii() || white && (matches!(bytes[at], b'\t'..=b'\r') || space)
            };
            for white in [false, true] {
                let next = |from: usize| (from..bytes.len()).find(|&at| is_stop(at, white)).unwrap_or(bytes.len());
                let mut stops = if white { Stops::at_others_and_white(&text) } else { Stops::at_others(&text) };
                for from in 0..bytes.len() {
                    assert_eq!(stops.next(from), next(from), "{text:?} from {from}");
                }
            }
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || !byte.is_ascii();
            let behind = |at: &usize| {
                let alone =
                    |before: usize| bytes[before].is_ascii_uppercase() && !(before > 0 && is_word(bytes[before - 1]));
                let letter = |before: usize| !bytes[before].is_ascii() || alone(before);
                bytes[*at] == b' ' && at.checked_sub(1).is_some_and(letter)
            };
            assert_eq!(spaces_behind_letters(bytes), (0..bytes.len()).filter(behind).collect::<Vec<_>>(), "{text:?}");
            let mut block = [0; BLOCK];
            block.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            assert_eq!(Masks::of(&block), Masks::by_bytes(&block));
        }
    }

    #[test]
    fn ascii_is_copied_in_blocks() {
        let text = format!("{}é", "aBC ".repeat(20));
        for (start, end) in [(0, 0), (1, 2), (3, 35), (0, 64), (79, 80), (47, 80), (48, 80)] {
            let (mut kept, mut small) = ("é".to_owned(), "é".to_owned());
            push_ascii(&mut kept, &text, start, end, false);
            push_ascii(&mut small, &text, start, end, true);
            let part = &text[start..end];
            assert_eq!((kept, small), (format!("é{part}"), format!("é{}", part.to_ascii_lowercase())));
        }
    }
}
