//! Gazetteers: long lists of names looked up in texts.
//!
//! An entry is a sequence of pieces (`pieces`), found where its pieces follow each other and stand free of letters and digits. A
//! text costs one table look-up a piece, so a million entries are as fast as ten. What stands between two pieces must be what
//! stands there in the entry, or both are what joins the parts of a name (`Saint-Élie`, `SAINT ELIE`).
//!
//! With a guard, names that are common words (`common`) need evidence: see `is_name`.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use crate::detect::common::CommonWords;
use crate::detect::context::{has_case, joins_names};
use crate::detect::listed::{Known, is_name, is_pair_of_names, may_be_name};
use crate::error::{Error, Result};
use crate::pool::rows;
use crate::storage::intern::Interner;
use crate::storage::key::Key;
use crate::storage::key_table::KeyTable;
use crate::text::pieces::View;
use crate::text::spans::Found;
use crate::text::surface::Surface;
use crate::text::texts::Texts;

/// A sequence of pieces: its number, where what follows its first piece stands in `rests`, and the next entry with that
/// first piece.
#[derive(Clone, Copy)]
struct Entry {
    number: u32,
    rest: (u32, u32),
    next: u32,
}

const NONE: u32 = u32::MAX;

/// The first and last entry that begins with a piece; `NONE` for none.
#[derive(Clone, Copy)]
struct Starting {
    first: u32,
    last: u32,
}

impl Default for Starting {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

/// Pieces that are told to the table before they are looked up.
const AHEAD: usize = 8;
/// 2^20 bits stay in the cache beside everything else.
const BEGINNINGS: u32 = 20;

#[inline(always)]
fn beginning(key: Key) -> (usize, u64) {
    let place = key.hash() >> (64 - BEGINNINGS);
    ((place >> 6) as usize, 1 << (place & 63))
}

/// Sequences of pieces by their first.
#[derive(Default)]
pub struct Sequences {
    pieces: Interner,
    /// A bit for each place that the hash of a short first piece can have: most pieces of a text begin nothing, and are told
    /// so from the cache, not from a table of all names.
    beginnings: Vec<u64>,
    /// The entries that begin with a piece: of short pieces, and by number of those that have no key.
    short: KeyTable<Starting>,
    long: Vec<Starting>,
    entries: Vec<Entry>,
    /// The gap before each further piece, and its id.
    rests: Vec<(Box<str>, u32)>,
}

impl Sequences {
    pub fn new() -> Self {
        Self { pieces: Interner::new(), beginnings: vec![0; 1 << (BEGINNINGS - 6)], ..Self::default() }
    }

    /// The entries that begin with a piece.
    fn starting(&mut self, head: &str) -> &mut Starting {
        if let Some(key) = Key::of(head.as_bytes(), 0, head.len()) {
            let (place, bit) = beginning(key);
            self.beginnings[place] |= bit;
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
        let from = self.rests.len() as u32;
        for (gap, piece) in rest {
            let id = self.pieces.intern(piece);
            self.rests.push((gap_form(gap).into(), id));
        }
        let to = self.rests.len() as u32;
        let entry = self.entries.len() as u32;
        self.entries.push(Entry { number, rest: (from, to), next: NONE });
        let starting = self.starting(head);
        let before = std::mem::replace(&mut starting.last, entry);
        match before {
            NONE => starting.first = entry,
            before => self.entries[before as usize].next = entry,
        }
    }

    /// The pieces that entries may begin with, ascending; few others are among them.
    pub fn candidates(&self, view: &View) -> Vec<u32> {
        let text = view.text().as_bytes();
        let mut candidates = vec![0; view.len()];
        let mut num = 0;
        // Without a branch that hangs on the text: whether a word is a name, a processor cannot foresee.
        for (piece, &(start, end)) in view.pieces.iter().enumerate() {
            candidates[num] = piece as u32;
            num += match Key::of(text, start as usize, end as usize) {
                Some(key) => {
                    let (place, bit) = beginning(key);
                    usize::from(self.beginnings[place] & bit != 0)
                }
                None => 1,
            };
        }
        candidates.truncate(num);
        candidates
    }

    /// Give each entry that stands in a text: its piece, its number and the last piece of the match; by piece.
    #[inline]
    pub fn find(&self, view: &View, mut emit: impl FnMut(usize, u32, usize)) {
        let candidates = self.candidates(view);
        for (at, &piece) in candidates.iter().enumerate() {
            if let Some(&next) = candidates.get(at + AHEAD)
                && let (start, end) = view.pieces[next as usize]
                && let Some(key) = Key::of(view.text().as_bytes(), start as usize, end as usize)
            {
                self.short.prefetch(key);
            }
            self.at(view, piece as usize, |number, last| emit(piece as usize, number, last));
        }
    }

    /// Give each entry that stands at a piece: its number and the last piece of the match.
    #[inline]
    fn at(&self, view: &View, piece: usize, mut emit: impl FnMut(u32, usize)) {
        let (start, end) = (view.pieces[piece].0 as usize, view.pieces[piece].1 as usize);
        let starting = match Key::of(view.text().as_bytes(), start, end) {
            Some(key) => self.short.get(key),
            None => {
                let id = self.pieces.find_at(view.text(), start, end);
                id.and_then(|id| self.long.get(id as usize)).copied()
            }
        };
        let mut entry = starting.map_or(NONE, |starting| starting.first);
        while entry != NONE {
            let Entry { number, rest: (from, to), next } = self.entries[entry as usize];
            entry = next;
            let rest = &self.rests[from as usize..to as usize];
            let follows = |(at, (gap, id)): (usize, &(Box<str>, u32))| {
                let next = piece + at + 1;
                next < view.len() && self.pieces.word(*id) == view.piece(next) && **gap == *gap_form(view.gap(next - 1))
            };
            if rest.iter().enumerate().all(follows) {
                emit(number, piece + rest.len());
            }
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

/// A list for every document.
pub struct Gazetteer {
    sequences: Sequences,
    surface: Surface,
    /// The one piece of each pattern; empty for those of several.
    words: Vec<Box<str>>,
    /// Whether each pattern is a name of individuals; empty: none is.
    are_names: Vec<bool>,
    /// What the words are, for the version of common words that was asked for last.
    classes: Mutex<(u64, Arc<Vec<Known>>)>,
}

impl Gazetteer {
    pub fn new(patterns: &Texts, surface: Surface) -> Result<Self> {
        let (mut sequences, mut words) = (Sequences::new(), Vec::with_capacity(patterns.len()));
        for row in 0..patterns.len() {
            let view = View::new(patterns.get(row), surface);
            let num_chars: usize = (0..view.len()).map(|number| view.piece(number).chars().count()).sum();
            if num_chars < 2 {
                return Err(Error::Corpus(format!("gazetteer: row {row} has fewer than 2 letters or digits")));
            }
            sequences.add(&view, 0, view.len() - 1, row as u32);
            words.push(if view.len() == 1 { view.piece(0).into() } else { Box::default() });
        }
        Ok(Self { sequences, surface, words, are_names: Vec::new(), classes: Mutex::default() })
    }

    /// Say which patterns are names of individuals, one a pattern: these are not found in a place, a firm or a thing, nor in small
    /// letters where the corpus has them with a capital nowhere.
    pub fn with_names(mut self, are_names: Vec<bool>) -> Result<Self> {
        if are_names.len() != self.words.len() {
            return Err(Error::Corpus("gazetteer: whether it is a name is needed once for each pattern".into()));
        }
        self.are_names = are_names;
        Ok(self)
    }

    fn is_of_individuals(&self, pattern: usize) -> bool {
        self.are_names.get(pattern).copied().unwrap_or(false)
    }

    /// The class of each pattern's word: looked up once, not at every hit.
    fn classes_of(&self, common: &CommonWords) -> Arc<Vec<Known>> {
        let classes = || self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = classes().clone();
        if known.0 == common.version() && known.1.len() == self.words.len() {
            return known.1;
        }
        // Not under the lock: a thread that waits for the parts of others may take up another batch, and want it itself.
        let words = self.words.par_iter().enumerate();
        let known = words.map(|(number, word)| Known::of(word, common, self.is_of_individuals(number)));
        let found: Arc<Vec<Known>> = Arc::new(known.collect());
        *classes() = (common.version(), found.clone());
        found
    }

    /// Every free-standing occurrence of every pattern; `source` is the pattern's number. With `common` words, a pattern of one
    /// piece that is among them counts only with evidence.
    pub fn find(&self, texts: &Texts, common: Option<&CommonWords>) -> Vec<Found> {
        let guarded = self.guarded(common);
        rows(texts.len())
            .flat_map_iter(|row| guarded.find(row as u32, &View::new(texts.get(row), self.surface)))
            .collect()
    }

    pub fn surface(&self) -> Surface {
        self.surface
    }

    /// The list, with what is known of its words.
    pub fn guarded(&self, common: Option<&CommonWords>) -> Guarded<'_> {
        Guarded { gazetteer: self, classes: common.map(|common| self.classes_of(common)) }
    }
}

pub struct Guarded<'a> {
    gazetteer: &'a Gazetteer,
    classes: Option<Arc<Vec<Known>>>,
}

impl Guarded<'_> {
    /// What stands in a document, by start.
    pub fn find(&self, document: u32, view: &View) -> Vec<Found> {
        let mut hits = Vec::new();
        self.gazetteer.sequences.find(view, |piece, number, last| hits.push((piece, last, number)));
        if let Some(classes) = &self.classes {
            guard(view, &mut hits, classes);
        }
        let mut found: Vec<Found> = hits
            .iter()
            .filter_map(|&(first, last, source)| {
                let (start, end) = view.origin_of(first, last)?;
                Some(Found { document, start, end, source })
            })
            .collect();
        found.sort_unstable_by_key(|found| (found.start, found.end, found.source));
        found.dedup();
        found
    }
}

/// First piece, last piece and number of a hit.
type Hit = (usize, usize, u32);

/// Keep the hits that are names: those of several pieces, those of a word that is not common, and those with evidence.
fn guard(view: &View, hits: &mut Vec<Hit>, classes: &[Known]) {
    if hits.is_empty() {
        return;
    }
    // For each piece, whether it is a name: 0 unknown, 1 perhaps, 2 surely.
    let mut names = vec![0u8; view.len()];
    // The pieces that are not unknown, ascending.
    let mut listed: Vec<usize> = Vec::with_capacity(hits.len());
    for &(first, last, _) in hits.iter() {
        let level = if first < last { 2 } else { names[first].max(1) };
        names[first..=last].fill(level);
        let next = listed.last().map_or(0, |&piece| piece + 1);
        listed.extend(first.max(next)..=last);
    }
    let cased = has_case(view.original);
    let is_other = |&(piece, _, number): &Hit| cased && classes[number as usize].is_other(view, piece);
    for at_piece in hits.chunk_by(|one, next| one.0 == next.0) {
        let piece = at_piece[0].0;
        if names[piece] != 1 {
            continue;
        }
        if at_piece.iter().all(is_other) {
            names[piece] = 0;
        } else if at_piece.iter().any(|hit| is_name(view, piece, classes[hit.2 as usize], cased)) {
            names[piece] = 2;
        }
    }
    for &piece in listed.iter().filter(|&&piece| piece > 0 && piece + 1 < view.len()) {
        if cased && names[piece] == 1 && names[piece + 1] == 1 && is_pair_of_names(view, piece) {
            names[piece..=piece + 1].fill(2);
        }
    }
    // What is sure makes its neighbours sure, to the right and then to the left.
    let spread = |names: &mut Vec<u8>, piece: usize, beside: usize, between: usize| {
        if names[piece] == 1 && names[beside] == 2 && joins_names(view, between) && may_be_name(view, piece, cased) {
            names[piece] = 2;
        }
    };
    for &piece in listed.iter().filter(|&&piece| piece > 0) {
        spread(&mut names, piece, piece - 1, piece - 1);
    }
    for &piece in listed.iter().rev().filter(|&&piece| piece + 1 < view.len()) {
        spread(&mut names, piece, piece + 1, piece);
    }
    hits.retain(|&(first, last, _)| first < last || names[first] == 2);
}
