//! Surfaces: what was found once, looked for wherever else it may stand.
//!
//! The surface of a span is its pieces (`pieces`) with what joins them. It is looked for in the documents of the same individual
//! or in all of them, as its scope says, and the parts of a name in that individual's. Surfaces that say too little do not
//! spread: fewer than three letters or digits, numbers of up to three digits, single words that are common (`common`) or stand
//! more often than in a tenth of as many documents, several words that are all common (a department). In a line with case, a single
//! word is not found in small letters where the corpus has such a word (`pilar`) or in documents of others than its individual,
//! nor short and in capitals in those (`ANA` is a test there); and a name is not found in that of a place (`places`).
//! In a line typed small, words of many documents are not found. In documents of others, what the corpus writes small
//! is not found there either, nor what goes on as another name (`Santiago de Compostela`).
//!
//! Two passes, each a look-up a piece; memory holds the surfaces and the words of the corpus, never its text.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet, HashTable};
use rayon::prelude::*;

use crate::detect::common::{Class, CommonWords};
use crate::detect::context::{is_announced, is_capital, is_eponym, is_particle};
use crate::detect::letter_case::{Lines, has_case};
use crate::detect::letter_case::{is_all_capitals, is_in_address};
use crate::detect::places::is_in_place;
use crate::detect::sequences::{Sequences, gap_form};
use crate::error::{Error, Result};
use crate::pool::rows;
use crate::storage::strings::Strings;
use crate::text::pieces::View;
use crate::text::spans::{Found, Spans};
use crate::text::surface::Surface;
use crate::text::texts::Texts;
use crate::word_lists::is_first_name;

/// How far a span's surface spreads, as its label says: 0 nowhere, 1 over its individual's documents, and over all.
pub const CORPUS: u8 = 2;

/// Longer spans are sentences.
const MAX_PIECES: usize = 16;
/// Letters of an abbreviation.
const MAX_ABBREVIATION: usize = 5;
/// Words that stand fewer times than this are not frequent, however small the corpus.
const MIN_FREQUENT: u64 = 20;

/// Spans of a batch of documents, with a label each.
pub struct Labelled<'a> {
    pub spans: Spans<'a>,
    pub labels: &'a [u32],
}

impl Labelled<'_> {
    fn check(&self, num_documents: usize) -> Result<()> {
        self.spans.check(num_documents)?;
        let whole = self.labels.len() == self.spans.starts.len();
        whole.then_some(()).ok_or_else(|| Error::Corpus("surfaces: one label is needed for each span".into()))
    }

    /// Bounds in bytes of the spans of a document, and their labels.
    fn of(&self, row: usize, text: &str) -> Result<Vec<(usize, usize, u32)>> {
        let found = self.spans.in_bytes(row, text)?.into_iter();
        Ok(found.zip(&self.labels[self.spans.of(row)]).map(|(span, &label)| (span.start, span.end, label)).collect())
    }
}

/// A surface under one label.
struct Entry {
    label: u32,
    /// Who found it first.
    source: u32,
    everywhere: bool,
    is_name: bool,
}

/// Many forms: the pieces of each and the gaps between them, in turn.
#[derive(Default)]
struct Forms {
    parts: Strings,
    /// The parts of each form end here.
    ends: Vec<usize>,
}

impl Forms {
    fn push(&mut self, form: impl Iterator<Item = impl AsRef<str>>) {
        form.for_each(|part| self.parts.push(part.as_ref()));
        self.ends.push(self.parts.len());
    }

    fn of(&self, number: u32) -> impl Iterator<Item = &str> + Clone {
        let first = number.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        (first..self.ends[number as usize]).map(|part| self.parts.get(part))
    }
}

fn hash_of<'a>(label: u32, form: impl Iterator<Item = &'a str>) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write_u32(label);
    form.for_each(|part| part.hash(&mut hasher));
    hasher.finish()
}

#[derive(Default)]
pub struct Surfaces {
    entries: Vec<Entry>,
    /// Of each entry, until all are added.
    forms: Forms,
    numbers: HashTable<u32>,
    /// (entry, unit): spreads over the documents of that unit.
    of_units: HashSet<(u32, u32), FixedState>,
    /// (entry, unit): how often it stood behind the first word of a name that a title announces, where it may be no name.
    weak: HashMap<(u32, u32), u32, FixedState>,
    num_documents: u64,
    sequences: Sequences,
}

/// What kept surfaces from spreading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub surfaces: u64,
    pub short: u64,
    pub common: u64,
}

impl Surfaces {
    /// Take the surfaces of the spans of a batch: `scopes` and `sources` one a span, `names` 1 where the parts count too. The words
    /// of the documents are counted in `counted`, if it is given.
    #[allow(clippy::too_many_arguments)]
    pub fn add(
        &mut self,
        texts: &Texts,
        units: &[u32],
        labelled: &Labelled,
        scopes: &[u8],
        names: &[u8],
        sources: &[u32],
        counted: Option<&CommonWords>,
    ) -> Result<()> {
        labelled.check(texts.len())?;
        let Labelled { spans, labels } = labelled;
        if [scopes.len(), names.len(), sources.len()] != [labels.len(); 3] || units.len() != texts.len() {
            return Err(Error::Corpus("surfaces: one scope, name and source a span, and one unit a document".into()));
        }
        self.num_documents += texts.len() as u64;
        let found: Vec<DocumentForms> = rows(texts.len())
            .map(|row| {
                let view = View::new(texts.get(row), Surface::Fold);
                if let Some(counted) = counted {
                    counted.count(&view, Some(u64::from(units[row]) << 1));
                }
                Ok(forms(&view, &spans.in_bytes(row, texts.get(row))?, spans.of(row).start))
            })
            .collect::<Result<_>>()?;
        for (found, &unit) in found.iter().zip(units) {
            for (at, &(span, titled)) in found.spans.iter().enumerate().filter(|(_, (span, _))| scopes[*span] != 0) {
                let form = found.forms.of(at as u32);
                let is_single = form.clone().nth(1).is_none();
                let weak = titled && !form.clone().next().is_some_and(is_first_name);
                let number = self.number(form.clone(), labels[span], sources[span], names[span] != 0);
                self.entries[number as usize].everywhere |= scopes[span] == CORPUS;
                // Where a single word is a name, neither capitals nor small letters make it another word.
                if scopes[span] != CORPUS || is_single {
                    self.of_units.insert((number, unit));
                }
                if is_single || names[span] == 0 {
                    continue;
                }
                for (place, part) in form.step_by(2).filter(|piece| is_strong(piece)).enumerate() {
                    let number = self.number(std::iter::once(part), labels[span], sources[span], true);
                    if weak && place > 0 {
                        *self.weak.entry((number, unit)).or_default() += 1;
                    } else {
                        self.of_units.insert((number, unit));
                    }
                }
            }
        }
        Ok(())
    }

    fn number<'a>(
        &mut self,
        form: impl Iterator<Item = &'a str> + Clone,
        label: u32,
        source: u32,
        is_name: bool,
    ) -> u32 {
        let Self { entries, forms, numbers, .. } = self;
        let hash = hash_of(label, form.clone());
        let is_same = |&number: &u32| entries[number as usize].label == label && forms.of(number).eq(form.clone());
        if let Some(&known) = numbers.find(hash, is_same) {
            return known;
        }
        let next = entries.len() as u32;
        entries.push(Entry { label, source, everywhere: false, is_name });
        forms.push(form);
        numbers.insert_unique(hash, next, |&number| hash_of(entries[number as usize].label, forms.of(number)));
        next
    }

    /// Make ready what may spread, by the words of all documents; nothing is added afterwards.
    pub fn finish(&mut self, common: &CommonWords) -> Counts {
        self.numbers = HashTable::new();
        let forms = std::mem::take(&mut self.forms);
        // What one hit alone shows and others have too ("Herr Tolmann Diabetes mellitus") is no name to look for.
        for ((number, unit), num_hits) in std::mem::take(&mut self.weak) {
            if num_hits > 1 || !forms.of(number).next().is_some_and(|word| common.is_of_several(word)) {
                self.of_units.insert((number, unit));
            }
        }
        let mut counts = Counts::default();
        for number in 0..self.entries.len() as u32 {
            let form: Vec<&str> = forms.of(number).collect();
            if is_short(&form) {
                counts.short += 1;
            } else if self.is_common(&form, common) {
                counts.common += 1;
            } else {
                counts.surfaces += 1;
                self.sequences.add_form(&form, number);
            }
        }
        counts
    }

    fn is_common(&self, form: &[&str], common: &CommonWords) -> bool {
        let [word] = form else {
            let mut words = form.iter().step_by(2).filter(|piece| !is_particle(piece));
            return words.all(|word| common.class(word) == Class::Common);
        };
        let most = (self.num_documents / 10).max(MIN_FREQUENT);
        let is_word = common.class(word) == Class::Common && !common.is_typed_in_one(word);
        is_word || common.num_occurrences(word) > most
    }

    /// Where else the surfaces stand, by document, then start; `source` is the number of the entry. What lies within a span of
    /// the same label, given or found, is not told again.
    pub fn find(&self, texts: &Texts, units: &[u32], spans: &Labelled, common: &CommonWords) -> Result<Vec<Found>> {
        spans.check(texts.len())?;
        let parts: Vec<Vec<Found>> = rows(texts.len())
            .map(|row| {
                let view = View::new(texts.get(row), Surface::Fold);
                let mut found: Vec<Found> = Vec::new();
                let (cased, mut lines) = (has_case(texts.get(row)), Lines::new(texts.get(row)));
                self.sequences.find(&view, |piece, source, last| {
                    let own = self.of_units.contains(&(source, units[row]));
                    let entry = &self.entries[source as usize];
                    let spreads = (own || entry.everywhere)
                        && !(entry.is_name && is_of_other(&view, piece, last, &mut lines))
                        && !(entry.is_name && !own && piece == last && goes_on_as_another(&view, piece))
                        && (last > piece || !cased || is_written_so(&view, piece, &mut lines, own, common));
                    if spreads && let Some((start, end)) = view.origin_of(piece, last) {
                        found.push(Found { document: row as u32, start, end, source });
                    }
                });
                if found.is_empty() {
                    return Ok(found);
                }
                let mut known = spans.of(row, texts.get(row))?;
                known.sort_unstable_by_key(|&(start, ..)| start);
                found.sort_unstable_by_key(|found| (found.start, std::cmp::Reverse(found.end), found.source));
                // From left to right, by label how far what is known reaches so far.
                let (mut known, mut furthest) =
                    (known.into_iter().peekable(), HashMap::<u32, usize, FixedState>::default());
                found.retain(|hit| {
                    while let Some((_, end, label)) = known.next_if(|&(start, ..)| start <= hit.start) {
                        let furthest = furthest.entry(label).or_default();
                        *furthest = end.max(*furthest);
                    }
                    let furthest = furthest.entry(self.label(hit.source)).or_default();
                    let within = hit.end <= *furthest;
                    *furthest = hit.end.max(*furthest);
                    !within
                });
                Ok(found)
            })
            .collect::<Result<_>>()?;
        Ok(parts.concat())
    }

    pub fn label(&self, number: u32) -> u32 {
        self.entries[number as usize].label
    }

    pub fn source(&self, number: u32) -> u32 {
        self.entries[number as usize].source
    }
}

/// Whether case lets a single word be the name that was found elsewhere.
fn is_written_so(view: &View, piece: usize, lines: &mut Lines, own: bool, common: &CommonWords) -> bool {
    let word = view.piece(piece);
    if is_capital(view, piece) == Some(false) {
        if lines.has_case(view, piece) {
            let (start, end) = view.pieces()[piece];
            own && common.class(word) == Class::Name && !is_in_address(view.text(), start as usize, end as usize)
        } else {
            is_announced(view, piece) || !common.is_widespread(word) && (own || !common.is_mostly_small(word))
        }
    } else {
        own || word.len() > MAX_ABBREVIATION || !is_all_capitals(view, piece) || !lines.has_case(view, piece)
    }
}

/// Whether a name is there that of a place or a thing.
fn is_of_other(view: &View, first: usize, last: usize, lines: &mut Lines) -> bool {
    let mut thing = || {
        let typed = is_capital(view, last) == Some(false) && !is_announced(view, first);
        (lines.has_case(view, first) || typed) && is_eponym(view, last)
    };
    is_in_place(view, first, last) || thing()
}

/// "Santiago de Compostela", "Rosa de Bengala", both of "Dandy-Walker": a name that goes on is another.
fn goes_on_as_another(view: &View, piece: usize) -> bool {
    let capital = |piece: usize| piece < view.len() && is_capital(view, piece) == Some(true);
    let hyphen = |piece: usize| view.gap(piece) == "-" && capital(piece) && capital(piece + 1);
    let of = piece + 2 < view.len() && view.piece(piece + 1) == "de" && view.gap(piece) == " ";
    of && view.gap(piece + 1) == " " && capital(piece + 2)
        || piece + 1 < view.len() && hyphen(piece)
        || piece > 0 && hyphen(piece - 1)
}

/// The forms of the spans of a document.
#[derive(Default)]
struct DocumentForms {
    /// Of each form the number of its span, and whether a title announces it.
    spans: Vec<(usize, bool)>,
    forms: Forms,
}

/// The forms of a document's spans; those that begin or end inside a piece have none.
fn forms(view: &View, spans: &[Range<usize>], first_span: usize) -> DocumentForms {
    let mut found = DocumentForms::default();
    // Looked up once each, where they are not those of the folded text: a name may be looked for behind any number of them.
    let mut origins: Vec<(usize, usize)> = Vec::new();
    if !spans.is_empty() && (view.is_unescaped() || !view.original.is_ascii()) {
        // A piece without bounds (a half of "½") takes no room.
        let mut done = 0;
        origins.extend((0..view.len()).map(|piece| {
            let bounds = view.origin_of(piece, piece).unwrap_or((done, done));
            done = bounds.1;
            bounds
        }));
    }
    let origin = |piece: usize| {
        let (start, end) = view.pieces()[piece];
        origins.get(piece).copied().unwrap_or((start as usize, end as usize))
    };
    for (number, &Range { start, end }) in spans.iter().enumerate() {
        let (mut first, mut after) = (0, view.len());
        while first < after {
            let middle = first.midpoint(after);
            if origin(middle).1 <= start { first = middle + 1 } else { after = middle }
        }
        if first == view.len() {
            continue;
        }
        let (from, mut to) = origin(first);
        let mut last = first;
        while last + 1 < view.len() && last - first < MAX_PIECES && origin(last + 1).0 < end {
            last += 1;
            to = origin(last).1;
        }
        if from < start || to > end || last - first >= MAX_PIECES {
            continue;
        }
        let joined = (first + 1..=last).flat_map(|piece| [gap_form(view.gap(piece - 1)), Cow::from(view.piece(piece))]);
        found.forms.push(std::iter::once(Cow::from(view.piece(first))).chain(joined));
        found.spans.push((first_span + number, is_announced(view, first)));
    }
    found
}

/// Whether a part of a name may stand alone.
fn is_strong(piece: &str) -> bool {
    piece.chars().count() >= 3 && piece.chars().all(char::is_alphabetic) && !is_particle(piece)
}

fn is_short(form: &[&str]) -> bool {
    let num_chars: usize = form.iter().step_by(2).map(|piece| piece.chars().count()).sum();
    let is_number = form.iter().step_by(2).all(|piece| piece.chars().all(char::is_numeric));
    num_chars < if is_number { 4 } else { 3 }
}
