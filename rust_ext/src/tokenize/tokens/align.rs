//! Align: tokens and the words they meet, written to columns.

use super::memory::{Chunk, Piece};
use crate::index::protect::DIRECT;

/// Columns that grow in place: what lies beyond `len` is room, as much in each.
#[derive(Default)]
pub(super) struct Buffer {
    pub(super) ids: Vec<u32>,
    pub(super) words: Vec<i32>,
    pub(super) flags: Vec<u8>,
    pub(super) starts: Vec<u8>,
    /// Tokens that meet several words, and how many beside the first.
    pub(super) several: Vec<(usize, u32)>,
    pub(super) len: usize,
}

/// Byte i is all ones where bit i of the index is.
const SPREAD: [u64; 256] = {
    let mut spread = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let mut i = 0;
        while i < 8 {
            if bits >> i & 1 != 0 {
                spread[bits] |= 0xff << (8 * i);
            }
            i += 1;
        }
        bits += 1;
    }
    spread
};

/// The next N places of a column that has room for them.
#[inline(always)]
fn places<T, const N: usize>(column: &mut [T], at: usize) -> &mut [T; N] {
    match column[at..].first_chunk_mut() {
        Some(places) => places,
        None => unreachable!("room was made"),
    }
}

impl Buffer {
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.several.truncate(self.several.partition_point(|&(token, _)| token < self.len));
    }

    /// Room for eight tokens.
    #[inline(always)]
    pub(super) fn make_room(&mut self) {
        if self.ids.len() < self.len + 8 {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let room = (self.len * 2).max(1 << 12);
        self.ids.resize(room, 0);
        self.words.resize(room, 0);
        self.flags.resize(room, 0);
        self.starts.resize(room, 0);
    }

    /// The tokens of a chunk of up to N tokens and up to one word, which is `word`: N are written where there is room, and
    /// as many counted as there are.
    #[inline(always)]
    pub(super) fn push_of_word<const N: usize>(
        &mut self,
        chunk: Chunk,
        ids: [u32; N],
        misses: [i32; N],
        word: usize,
        document: Document<'_>,
    ) {
        let meets = usize::from(chunk.meets);
        let spread = |of: &[u8]| u64::from(of.get(word).copied().unwrap_or(0)) * 0x0101_0101_0101_0101;
        let flags = spread(document.flags) & SPREAD[meets];
        let starts = spread(document.starts) & SPREAD[meets & meets.wrapping_neg()];
        *places(&mut self.ids, self.len) = ids;
        let words: &mut [i32; N] = places(&mut self.words, self.len);
        for i in 0..N {
            words[i] = word as i32 | misses[i];
        }
        *places(&mut self.flags, self.len) = flags.to_le_bytes();
        *places(&mut self.starts, self.len) = starts.to_le_bytes();
        self.len += usize::from(chunk.num_tokens);
    }
}

/// What is known of a document's words.
#[derive(Clone, Copy)]
pub(super) struct Document<'a> {
    pub(super) words: (&'a [u32], &'a [u32]),
    pub(super) flags: &'a [u8],
    pub(super) starts: &'a [u8],
    /// Stretches outside words of which every token is direct.
    pub(super) gaps: (&'a [u32], &'a [u32]),
}

impl Document<'_> {
    /// Whether these bytes meet a direct stretch outside words.
    #[inline]
    pub(super) fn is_direct_gap(&self, start: usize, end: usize) -> bool {
        let (from, to) = self.gaps;
        if from.is_empty() {
            return false;
        }
        let first = to.partition_point(|&gap_end| gap_end as usize <= start);
        from.get(first).is_some_and(|&gap_start| (gap_start as usize) < end)
    }

    /// A token with its place in the document.
    pub(super) fn push_piece(&self, piece: Piece, met: Met, base: usize, tokens: &mut Buffer) {
        self.push(piece.id, met, base, tokens);
        tokens.flags[tokens.len - 1] |= DIRECT * u8::from(self.is_direct_gap(piece.start as usize, piece.end as usize));
    }

    /// A token by the words it meets, which are counted from word `base`.
    pub(super) fn push(&self, id: u32, met: Met, base: usize, tokens: &mut Buffer) {
        let (first, last, fresh) = (base + met.first as usize, base + met.last as usize, base + met.fresh as usize);
        let or = |of: &[u8]| of.iter().fold(0, |all, one| all | one);
        tokens.make_room();
        let at = tokens.len;
        tokens.ids[at] = id;
        tokens.words[at] = if first < last { first as i32 } else { -1 };
        tokens.flags[at] = or(&self.flags[first..last]);
        tokens.starts[at] = or(&self.starts[fresh..last]);
        if last - first > 1 {
            tokens.several.push((at, (last - first - 1) as u32));
        }
        tokens.len += 1;
    }
}

/// Words that meet a token, `first..last`, and those of them that no token before it met, `fresh..last`.
#[derive(Clone, Copy)]
pub(super) struct Met {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) fresh: u32,
}

/// Gives the tokens of one document or chunk, in order, the words they meet.
pub(super) struct Aligner<'a> {
    from: &'a [u32],
    to: &'a [u32],
    /// First word that does not end before the last token's start.
    first: usize,
    last_start: u32,
    /// Words before it have had their first token.
    unseen: usize,
}

impl<'a> Aligner<'a> {
    pub(super) fn new((from, to): (&'a [u32], &'a [u32])) -> Self {
        Self { from, to, first: 0, last_start: 0, unseen: 0 }
    }

    #[inline]
    pub(super) fn meet(&mut self, Piece { start, end, .. }: Piece) -> Met {
        if start < self.last_start {
            self.first = self.to.partition_point(|&word_end| word_end <= start);
        }
        self.last_start = start;
        while self.to.get(self.first).is_some_and(|&word_end| word_end <= start) {
            self.first += 1;
        }
        let mut last = self.first;
        while self.from.get(last).is_some_and(|&word_start| word_start < end) {
            last += 1;
        }
        let fresh = self.unseen.clamp(self.first, last);
        if self.first < last {
            self.unseen = self.unseen.max(last);
        }
        Met { first: self.first as u32, last: last as u32, fresh: fresh as u32 }
    }
}
