//! Words of ASCII and Latin letters by bit masks, 64 bytes at a time.

use super::Bounds;
use crate::text::classes::Block;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1")]
pub(super) fn scan_bmi(
    bytes: &[u8],
    blocks: &[Block],
    from: usize,
    to: usize,
    inside: &mut Vec<u64>,
    words: &mut Vec<Bounds>,
) {
    scan_masks(bytes, blocks, from, to, inside, words);
}

/// UAX #29 words of ASCII and Latin letters: runs of letters, digits and `_`; `.` and `'` stay inside a word between two
/// letters or two digits, `:` between two letters, `,` and `;` between two digits. Runs of `_` alone are none, and words with
/// digits are joined.
#[inline(always)]
pub(super) fn scan_masks(
    bytes: &[u8],
    blocks: &[Block],
    from: usize,
    to: usize,
    inside: &mut Vec<u64>,
    words: &mut Vec<Bounds>,
) {
    let first = from / 64;
    let blocks = &blocks[first..to.div_ceil(64)];
    mark_inside(blocks, inside);
    inside[0] &= !0 << (from % 64);
    if let left @ 1.. = to % 64 {
        inside[blocks.len() - 1] &= !(!0 << left);
    }
    let run = Run { bytes, inside, base: first * 64 };
    // Bounds are two numbers, so the places where runs begin and end are bounds one after the other.
    let mut edge_before = 0;
    // Where a run of `_` that is no word ends.
    let mut dropped = 0;
    let mut open: Option<u32> = None;
    for (number, block) in blocks.iter().enumerate() {
        let here = run.inside[number];
        let starts_after = here << 1 | if number > 0 { run.inside[number - 1] >> 63 } else { 0 };
        let ends_before = here >> 1 | run.inside.get(number + 1).map_or(0, |next| next << 63);
        let base = run.base + number * 64;
        let mut shown = here;
        let joining = block.joiner & !here & starts_after & ends_before;
        if joining != 0 {
            shown |= run.joined(joining, base);
        }
        let blank = block.underscore & here & !starts_after;
        if blank != 0 || dropped > base {
            shown &= !run.blank(blank, base, &mut dropped);
        }
        let mut edges = shown ^ (shown << 1 | edge_before);
        edge_before = shown >> 63;
        if edges == 0 {
            continue;
        }
        let at = |edges: u64| base as u32 + edges.trailing_zeros();
        if let Some(start) = open.take() {
            words.push((start, at(edges)));
            edges &= edges - 1;
        }
        push_pairs(edges, base as u32, words, &mut open);
    }
    if let Some(start) = open {
        words.push((start, to as u32));
    }
}

/// Bounds from the places of the bits of `edges`, in pairs; `open` is the place of the last one where their number is odd.
#[inline(always)]
fn push_pairs(mut edges: u64, base: u32, words: &mut Vec<Bounds>, open: &mut Option<u32>) {
    let num_edges = edges.count_ones() as usize;
    // The compiler would check the length at each push; up to 32 words are in a block.
    words.reserve(33);
    let length = words.len();
    let room = words.spare_capacity_mut();
    let mut done = 0;
    let mut next = || {
        let place = base.wrapping_add(edges.trailing_zeros());
        edges &= edges.wrapping_sub(1);
        place
    };
    // Four at a time without a look at how many are left: which of them count is said at the end.
    for four in room[..32].as_chunks_mut::<4>().0 {
        for pair in four {
            pair.write((next(), next()));
        }
        done += 8;
        if done >= num_edges {
            break;
        }
    }
    if num_edges % 2 == 1 {
        // SAFETY: the loop above wrote pairs until it had written at least as many places as there are edges, so pair
        // `num_edges / 2`, whose first half is the last edge, is written. The index is below 32, as 64 is even.
        *open = Some(unsafe { room[num_edges / 2].assume_init() }.0);
    }
    // SAFETY: the pairs before `num_edges / 2 <= 32` were written by the loop above, and `reserve` made room for 33.
    unsafe { words.set_len(length + num_edges / 2) };
}

/// Bits of the bytes that are inside a run, with what stands between two of its letters or digits.
#[inline(always)]
fn mark_inside(blocks: &[Block], inside: &mut Vec<u64>) {
    inside.clear();
    let mut before = Block::default();
    inside.extend(blocks.iter().enumerate().map(|(number, block)| {
        let mut bits = block.letter | block.digit | block.underscore;
        if block.stop | block.colon | block.comma != 0 {
            let after = blocks.get(number + 1).copied().unwrap_or_default();
            let between = |mask: u64, before: u64, after: u64| (mask << 1 | before >> 63) & (mask >> 1 | after << 63);
            let letters = between(block.letter, before.letter, after.letter);
            let digits = between(block.digit, before.digit, after.digit);
            bits |= block.stop & (letters | digits) | block.colon & letters | block.comma & digits;
        }
        before = *block;
        bits
    }));
}

/// A stretch and which of its bytes are inside a word.
struct Run<'a> {
    bytes: &'a [u8],
    inside: &'a [u64],
    /// Place of the first bit in the text.
    base: usize,
}

impl Run<'_> {
    fn is_inside(&self, at: usize) -> bool {
        at >= self.base && self.inside.get((at - self.base) / 64).is_some_and(|bits| bits >> (at % 64) & 1 == 1)
    }

    /// Of these single characters between two words those that join them, as both hold a digit.
    #[cold]
    fn joined(&self, mut joining: u64, base: usize) -> u64 {
        let mut joined = 0;
        while joining != 0 {
            let bit = joining.trailing_zeros();
            let at = base + bit as usize;
            let mut left = (self.base..at).rev().take_while(|&at| self.is_inside(at));
            let mut right = (at + 1..).take_while(|&at| self.is_inside(at));
            let is_digit = |at: usize| self.bytes[at].is_ascii_digit();
            if left.any(is_digit) && right.any(is_digit) {
                joined |= 1 << bit;
            }
            joining &= joining - 1;
        }
        joined
    }

    /// The bits of runs of `_` alone, which begin at `blank` or reach here from a block before.
    #[cold]
    fn blank(&self, mut blank: u64, base: usize, dropped: &mut usize) -> u64 {
        let up_to = |end: usize| if end >= base + 64 { !0 } else { !(!0 << (end.max(base) - base)) };
        let mut bits = up_to(*dropped);
        while blank != 0 {
            let start = base + blank.trailing_zeros() as usize;
            let length = (start..).take_while(|&at| self.is_inside(at)).count();
            if self.bytes[start..start + length].iter().all(|&byte| byte == b'_') {
                *dropped = start + length;
                bits |= up_to(*dropped) & (!0 << (start - base));
            }
            blank &= blank - 1;
        }
        bits
    }
}
