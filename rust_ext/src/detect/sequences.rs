//! Sequences: patterns of several pieces, looked up piece by piece in a tree.
//!
//! An entry is a sequence of pieces (`pieces`), found where its pieces follow each other and stand free of letters and digits. A
//! text costs one table look-up a piece, and some more where an entry goes on from there, so a million entries are as fast as ten,
//! also if each begins with the same first names. What stands between two pieces must be what stands there in the entry, or both
//! are what joins the parts of a name (`Saint-Élie`, `SAINT ELIE`).

use std::borrow::Cow;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::storage::intern::Interner;
use crate::storage::key::Hashed;
use crate::storage::key_table::KeyTable;
use crate::text::pieces::View;

/// A sequence of pieces: its number, and the next entry of the same pieces.
#[derive(Clone, Copy)]
struct Entry {
    number: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;

/// The first and last of the entries of the same pieces; `NONE` for none.
#[derive(Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

/// What begins with a piece.
#[derive(Clone, Copy, Default)]
struct Starting {
    /// The entries that are this piece.
    alone: Chain,
    /// Whether others go on.
    goes_on: bool,
}

/// Pieces that are told to the table before they are looked up.
const AHEAD: usize = 8;
/// Up to 2^20 bits stay in the cache together with everything else.
const MAX_BITS: u32 = 20;

/// A bit for each place that the hash of a short piece can have.
pub struct Places {
    bits: Vec<u64>,
}

impl Default for Places {
    fn default() -> Self {
        Self { bits: vec![0; 1 << (MAX_BITS - 6)] }
    }
}

impl Places {
    #[inline(always)]
    fn of(key: Hashed) -> (usize, u64) {
        let place = key.hash >> (64 - MAX_BITS);
        ((place >> 6) as usize, 1 << (place & 63))
    }

    pub fn set(&mut self, key: Hashed) {
        let (place, bit) = Self::of(key);
        self.bits[place] |= bit;
    }

    #[inline(always)]
    pub fn has(&self, key: Hashed) -> bool {
        let (place, bit) = Self::of(key);
        self.bits[place] & bit != 0
    }
}

/// Sequences of pieces by their first.
#[derive(Default)]
pub struct Sequences {
    /// Pieces, and what stands between them.
    pieces: Interner,
    /// The short first pieces: most pieces of a text begin nothing, and are told so from the cache, not from a table of all
    /// names.
    beginnings: Places,
    /// What begins with a piece: of short pieces, and by number of those that have no key.
    short: KeyTable<Starting>,
    long: Vec<Starting>,
    /// Entries of several pieces: the node behind a node, a gap and a piece, by their numbers. A first piece is the node of the
    /// inverse of its number.
    behind: HashMap<(u32, u32, u32), u32, FixedState>,
    /// The entries that end at each node.
    ends: Vec<Chain>,
    /// The short second pieces, as `beginnings`.
    seconds: Places,
    entries: Vec<Entry>,
}

impl Sequences {
    /// What begins with a piece.
    fn starting(&mut self, head: &str) -> &mut Starting {
        if let Some(key) = Hashed::of(head.as_bytes(), 0, head.len()) {
            self.beginnings.set(key);
            return self.short.entry(key);
        }
        let id = self.pieces.intern(head) as usize;
        if id >= self.long.len() {
            self.long.resize(id + 1, Starting::default());
        }
        &mut self.long[id]
    }

    /// Add the pieces `first..=last` of a text under a number.
    pub fn add(&mut self, view: &View, first: usize, last: usize, number: u32) {
        let rest = (first + 1..=last).map(|piece| (view.gap(piece - 1), view.piece(piece)));
        self.add_pieces(view.piece(first), rest, number);
    }

    /// Add pieces and gaps, in turn.
    pub fn add_form(&mut self, form: &[&str], number: u32) {
        let (pairs, _) = form[1..].as_chunks::<2>();
        self.add_pieces(form[0], pairs.iter().map(|&[gap, piece]| (gap, piece)), number);
    }

    fn add_pieces<'a>(&mut self, head: &str, rest: impl Iterator<Item = (&'a str, &'a str)>, number: u32) {
        let mut rest = rest.peekable();
        let entry = self.entries.len() as u32;
        self.entries.push(Entry { number, next: NONE });
        let chain = match rest.peek() {
            Some((_, second)) => {
                self.starting(head).goes_on = true;
                if let Some(key) = Hashed::of(second.as_bytes(), 0, second.len()) {
                    self.seconds.set(key);
                }
                let mut node = !self.pieces.intern(head);
                for (gap, piece) in rest {
                    let (gap, piece) = (self.pieces.intern(&gap_form(gap)), self.pieces.intern(piece));
                    node = self.node_behind((node, gap, piece));
                }
                &mut self.ends[node as usize]
            }
            None => &mut self.starting(head).alone,
        };
        let before = std::mem::replace(&mut chain.last, entry);
        match before {
            NONE => chain.first = entry,
            before => self.entries[before as usize].next = entry,
        }
    }

    /// The node behind another, a gap and a piece; it is made where there is none.
    fn node_behind(&mut self, at: (u32, u32, u32)) -> u32 {
        let next = self.ends.len() as u32;
        let node = *self.behind.entry(at).or_insert(next);
        if node == next {
            self.ends.push(Chain::default());
        }
        node
    }

    /// The pieces that entries may begin with, ascending; few others are among them.
    pub fn candidates(&self, view: &View) -> Vec<u32> {
        let text = view.text().as_bytes();
        let mut candidates = vec![0; view.len()];
        let mut num = 0;
        // Without a branch that hangs on the text: whether a word is a name, a processor cannot foresee.
        for (piece, &(start, end)) in view.pieces().iter().enumerate() {
            candidates[num] = piece as u32;
            num += match Hashed::of(text, start as usize, end as usize) {
                Some(key) => usize::from(self.beginnings.has(key)),
                None => 1,
            };
        }
        candidates.truncate(num);
        candidates
    }

    /// Give each entry that stands in a text: its piece, its number and the last piece of the match; by piece.
    #[inline]
    pub fn find(&self, view: &View, emit: impl FnMut(usize, u32, usize)) {
        self.find_where(view, |_, _| true, emit);
    }

    /// The same of those that begin with a short piece that is `wanted`, and of all that begin with a longer one.
    #[inline(always)]
    pub fn find_where(
        &self,
        view: &View,
        wanted: impl Fn(usize, Hashed) -> bool,
        mut emit: impl FnMut(usize, u32, usize),
    ) {
        let candidates = self.candidates(view);
        let key = |&piece: &u32| {
            let (start, end) = view.pieces()[piece as usize];
            Hashed::of(view.text().as_bytes(), start as usize, end as usize)
        };
        // The keys of the next ones, in turn.
        let mut ahead: [Option<Hashed>; AHEAD] = std::array::from_fn(|at| candidates.get(at).and_then(key));
        for (at, piece) in candidates.iter().enumerate() {
            let next = candidates.get(at + AHEAD).and_then(key);
            if let Some(next) = next {
                self.short.prefetch(next);
            }
            let (number, key) = (*piece as usize, std::mem::replace(&mut ahead[at % AHEAD], next));
            if key.is_none_or(|key| wanted(number, key)) {
                self.at(view, number, key, |entry, last| emit(number, entry, last));
            }
        }
    }

    /// The short first pieces of entries that are of several pieces, or else `wanted`.
    pub fn places_of(&self, wanted: impl Fn(u32) -> bool) -> Places {
        let mut places = Places::default();
        for (key, starting) in self.short.pairs() {
            if starting.goes_on || self.chained(starting.alone).any(|entry| wanted(entry.number)) {
                places.set(key.into());
            }
        }
        places
    }

    fn chained(&self, chain: Chain) -> impl Iterator<Item = Entry> {
        let entry = |at: u32| (at != NONE).then(|| self.entries[at as usize]);
        std::iter::successors(entry(chain.first), move |before| entry(before.next))
    }

    /// Give each entry that stands at a piece: its number and the last piece of the match.
    #[inline]
    fn at(&self, view: &View, piece: usize, key: Option<Hashed>, mut emit: impl FnMut(u32, usize)) {
        let starting = match key {
            Some(key) => self.short.get(key),
            None => {
                let id = self.pieces.find(view.piece(piece));
                id.and_then(|id| self.long.get(id as usize)).copied()
            }
        };
        let Some(Starting { alone, goes_on }) = starting else { return };
        self.chained(alone).for_each(|entry| emit(entry.number, piece));
        if !(goes_on && piece + 1 < view.len()) {
            return;
        }
        let second = view.piece(piece + 1);
        if Hashed::of(second.as_bytes(), 0, second.len()).is_some_and(|key| !self.seconds.has(key)) {
            return;
        }
        let Some(mut node) = self.pieces.find(view.piece(piece)).map(|head| !head) else { return };
        for last in piece + 1..view.len() {
            let next = || {
                let (gap, piece) =
                    (self.pieces.find(&gap_form(view.gap(last - 1)))?, self.pieces.find(view.piece(last))?);
                self.behind.get(&(node, gap, piece)).copied()
            };
            let Some(next) = next() else { return };
            node = next;
            self.chained(self.ends[node as usize]).for_each(|entry| emit(entry.number, last));
        }
    }
}

/// One writing of what may stand between two pieces: a space for all that joins the parts of a name, else itself, with
/// white space as one space.
pub fn gap_form(gap: &str) -> Cow<'_, str> {
    if gap == " " {
        return Cow::Borrowed(gap);
    }
    let joins = |c: char| c.is_whitespace() || matches!(c, '-' | '\'' | '.' | ',');
    if !gap.is_empty() && gap.len() <= 8 && gap.chars().all(joins) {
        return Cow::Borrowed(" ");
    }
    let mut one = String::with_capacity(gap.len());
    for c in gap.chars() {
        match c.is_whitespace() {
            true if one.ends_with(' ') => {}
            true => one.push(' '),
            false => one.push(c),
        }
    }
    Cow::Owned(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::packing::tests::draws_below;
    use crate::text::surface::Surface;

    /// A pattern's pieces, and what stands between them.
    fn parts(view: &View) -> (Vec<String>, Vec<String>) {
        let pieces = (0..view.len()).map(|piece| view.piece(piece).to_owned()).collect();
        (pieces, (1..view.len()).map(|piece| gap_form(view.gap(piece - 1)).into_owned()).collect())
    }

    #[test]
    fn what_is_found_is_every_pattern_at_every_piece() {
        let words = ["ann", "de", "la", "cruz", "otorhinolaryngologist", "bo", "radiotherapeutically"];
        let gaps = [" ", "-", ": ", ", "];
        let mut next = draws_below(7);
        let mut text = |num: usize| -> String {
            (0..num).map(|_| [words[next(words.len())], gaps[next(gaps.len())]].concat()).collect()
        };
        let patterns: Vec<String> = (0..300).map(|at| text(1 + at % 4)).collect();
        let mut sequences = Sequences::default();
        for (number, pattern) in patterns.iter().enumerate() {
            let view = View::new(pattern, Surface::Fold);
            sequences.add(&view, 0, view.len() - 1, number as u32);
        }
        let mut num_of = [0; 5];
        for _ in 0..50 {
            let text = text(20);
            let view = View::new(&text, Surface::Fold);
            let (pieces, between) = parts(&view);
            let mut expected = Vec::new();
            for (number, pattern) in patterns.iter().enumerate() {
                let (own, own_between) = parts(&View::new(pattern, Surface::Fold));
                for piece in 0..=(pieces.len() - own.len()) {
                    let last = piece + own.len() - 1;
                    if pieces[piece..=last] == own && between[piece..last] == own_between {
                        expected.push((piece, number as u32, last));
                        num_of[own.len()] += 1;
                    }
                }
            }
            let mut found = Vec::new();
            sequences.find(&view, |piece, number, last| found.push((piece, number, last)));
            assert!(found.is_sorted_by_key(|&(piece, _, _)| piece));
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{text}");
        }
        assert!(num_of[1..].iter().all(|&num| num > 0), "{num_of:?}");
    }
}
