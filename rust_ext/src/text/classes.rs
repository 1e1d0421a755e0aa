//! Classes of bytes as bit masks, 64 bytes at a time. The word scanner reads these masks instead of characters.
//!
//! The instruction set is chosen when the program runs: AVX2 if the processor has it, otherwise a table. Both give the same
//! masks (tests compare them).

use crate::error::{Error, Result};

/// Classes of 64 neighbouring bytes; bit i is byte i.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Block {
    pub letter: u64,
    pub digit: u64,
    /// `.` or `'`: inside a word between two letters or two digits.
    pub stop: u64,
    /// `:`: inside a word between two letters.
    pub colon: u64,
    /// `,` or `;`: inside a word between two digits.
    pub comma: u64,
    /// `-`, `/`, `.` or `:`: joins two words that hold digits.
    pub joiner: u64,
    pub underscore: u64,
    pub not_ascii: u64,
}

const LETTER: u8 = 0x01 | 0x02;
const DIGIT: u8 = 0x04;
const STOP: u8 = 0x08;
const COMMA: u8 = 0x10 | 0x40;
const COLON: u8 = 0x20;
const UNDERSCORE: u8 = 0x80;

/// A byte's class is `LOW[low nibble] & HIGH[high nibble]`. Letters and commas have two bits, as they stand in two rows of
/// the ASCII table with different columns.
const LOW: [u8; 16] = [0x06, 0x07, 0x07, 0x07, 0x07, 0x07, 0x07, 0x0f, 0x07, 0x07, 0x23, 0x41, 0x11, 0x01, 0x09, 0x81];
const HIGH: [u8; 16] = [0, 0, 0x18, 0x64, 0x01, 0x82, 0x01, 0x02, 0, 0, 0, 0, 0, 0, 0, 0];

/// Which code [`classify`] runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstructionSet {
    Table,
    Avx2,
}

impl InstructionSet {
    /// The best one this processor has.
    #[inline]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("bmi1") {
            return Self::Avx2;
        }
        Self::Table
    }

    /// The one of this name, where this processor has it.
    pub fn parse(name: &str) -> Result<Self> {
        let found = [Self::Table, Self::detect()].into_iter().find(|set| set.name() == name);
        found.ok_or_else(|| Error::Policy(format!("instruction_set: expected one that this machine has, got {name:?}")))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Avx2 => "avx2",
        }
    }
}

/// Fill `blocks` with the classes of `bytes`; bytes past the end have none. Returns whether all of them are ASCII.
pub fn classify(bytes: &[u8], blocks: &mut Vec<Block>, set: InstructionSet) -> bool {
    blocks.clear();
    blocks.reserve(bytes.len() / 64 + 1);
    match set {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the function asks for a processor with AVX2. Only `detect` makes this value (`parse` chooses among its
        // answers), and it does so after asking the processor.
        InstructionSet::Avx2 => unsafe { avx2::classify(bytes, blocks) },
        _ => classify_chunks(bytes, blocks, by_table),
    }
    blocks.iter().fold(0, |all, block| all | block.not_ascii) == 0
}

#[inline(always)]
fn classify_chunks(bytes: &[u8], blocks: &mut Vec<Block>, one: impl Fn(&[u8; 64]) -> Block) {
    let (chunks, rest) = bytes.as_chunks::<64>();
    blocks.extend(chunks.iter().map(&one));
    if !rest.is_empty() {
        let mut last = [0u8; 64];
        last[..rest.len()].copy_from_slice(rest);
        blocks.push(one(&last));
    }
}

const CLASSES: [u8; 256] = {
    let mut classes = [0u8; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = LOW[byte & 15] & HIGH[byte >> 4];
        byte += 1;
    }
    classes
};

fn by_table(bytes: &[u8; 64]) -> Block {
    let mut block = Block::default();
    for (bit, &byte) in bytes.iter().enumerate() {
        let class = CLASSES[byte as usize];
        let has = |wanted: u8| u64::from(class & wanted != 0) << bit;
        block.letter |= has(LETTER);
        block.digit |= has(DIGIT);
        block.stop |= has(STOP);
        block.colon |= has(COLON);
        block.comma |= has(COMMA);
        block.joiner |= u64::from(matches!(byte, b'-' | b'/' | b'.' | b':')) << bit;
        block.underscore |= has(UNDERSCORE);
        block.not_ascii |= u64::from(byte >> 7) << bit;
    }
    block
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, COMMA, HIGH, LETTER, LOW, classify_chunks};

    #[target_feature(enable = "avx2")]
    pub fn classify(bytes: &[u8], blocks: &mut Vec<Block>) {
        // SAFETY: 16 bytes are read from constants of 16 bytes; `loadu` asks for no alignment.
        let (low, high) = unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(LOW.as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(HIGH.as_ptr().cast())),
            )
        };
        let nibble = _mm256_set1_epi8(0x0f);
        let zero = _mm256_setzero_si256();
        // `-`, `.` and `/` are neighbours.
        let joiner = |bytes: __m256i| {
            let above = _mm256_sub_epi8(bytes, _mm256_set1_epi8(b'-' as i8));
            let range = _mm256_cmpeq_epi8(_mm256_min_epu8(above, _mm256_set1_epi8(2)), above);
            let colon = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b':' as i8));
            u64::from(_mm256_movemask_epi8(_mm256_or_si256(range, colon)) as u32)
        };
        let half = |bytes: __m256i| {
            let classes = _mm256_and_si256(
                _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, nibble)),
                _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble)),
            );
            let any = |wanted: u8| {
                let chosen = _mm256_and_si256(classes, _mm256_set1_epi8(wanted as i8));
                u64::from(!_mm256_movemask_epi8(_mm256_cmpeq_epi8(chosen, zero)) as u32)
            };
            let top = |bytes: __m256i| u64::from(_mm256_movemask_epi8(bytes) as u32);
            Block {
                letter: any(LETTER),
                digit: top(_mm256_slli_epi16(classes, 5)),
                stop: top(_mm256_slli_epi16(classes, 4)),
                colon: top(_mm256_slli_epi16(classes, 2)),
                comma: any(COMMA),
                joiner: joiner(bytes),
                underscore: top(classes),
                not_ascii: top(bytes),
            }
        };
        classify_chunks(bytes, blocks, |bytes| {
            // SAFETY: 32 bytes are read at offsets 0 and 32 of an array of 64; `loadu` asks for no alignment.
            let (first, second) = unsafe {
                (_mm256_loadu_si256(bytes.as_ptr().cast()), _mm256_loadu_si256(bytes.as_ptr().add(32).cast()))
            };
            let (a, b) = (half(first), half(second));
            Block {
                letter: a.letter | b.letter << 32,
                digit: a.digit | b.digit << 32,
                stop: a.stop | b.stop << 32,
                colon: a.colon | b.colon << 32,
                comma: a.comma | b.comma << 32,
                joiner: a.joiner | b.joiner << 32,
                underscore: a.underscore | b.underscore << 32,
                not_ascii: a.not_ascii | b.not_ascii << 32,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_every_byte() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut blocks = Vec::new();
        assert!(!classify(&bytes, &mut blocks, InstructionSet::Table));
        for byte in 0..=255u8 {
            let (block, bit) = (&blocks[byte as usize / 64], byte % 64);
            let has = |mask: u64| mask >> bit & 1 == 1;
            assert_eq!(has(block.letter), byte.is_ascii_alphabetic());
            assert_eq!(has(block.digit), byte.is_ascii_digit());
            assert_eq!(has(block.stop), matches!(byte, b'.' | b'\''));
            assert_eq!(has(block.colon), byte == b':');
            assert_eq!(has(block.comma), matches!(byte, b',' | b';'));
            assert_eq!(has(block.joiner), matches!(byte, b'-' | b'/' | b'.' | b':'));
            assert_eq!(has(block.underscore), byte == b'_');
            assert_eq!(has(block.not_ascii), byte >= 128);
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_masks() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i.wrapping_mul(2654435761) >> 13) as u8).collect();
        for length in (0..300).chain([9_999]) {
            let (mut table, mut best) = (Vec::new(), Vec::new());
            classify(&bytes[..length], &mut table, InstructionSet::Table);
            classify(&bytes[..length], &mut best, InstructionSet::detect());
            assert_eq!(table, best);
        }
    }
}
