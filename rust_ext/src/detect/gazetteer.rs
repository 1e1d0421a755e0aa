//! Gazetteers: long lists of names looked up in texts.
//!
//! The entries are sequences of pieces (`sequences`). With a guard, names that are common words (`common`) need evidence: see `is_name`.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use crate::detect::common::{Class, CommonWords};
use crate::detect::context::{
    is_announced, is_capital, is_eponym, is_in_date, is_initial, joins_names, may_be_announced, starts_sentence,
};
use crate::detect::letter_case::has_case;
use crate::detect::no_names::is_no_name;
use crate::detect::sequences::{Places, Sequences};
use crate::error::{Error, Result};
use crate::pool::rows;
use crate::storage::key::Hashed;
use crate::text::pieces::View;
use crate::text::spans::Found;
use crate::text::surface::Surface;
use crate::text::texts::Texts;

/// A list for every document.
pub struct Gazetteer {
    sequences: Sequences,
    surface: Surface,
    /// The one piece of each pattern; empty for those of several.
    words: Vec<Box<str>>,
    /// Whether each pattern is a name of individuals; empty: none is.
    are_names: Vec<bool>,
    /// What the words are, for the version of common words that was asked for last.
    classes: Mutex<(u64, Arc<Classes>)>,
}

/// What the corpus says of the patterns.
#[derive(Default)]
struct Classes {
    /// Of each pattern.
    known: Vec<Known>,
    /// First pieces of patterns that may be names in small letters though nothing announces them.
    small: Places,
}

impl Gazetteer {
    pub fn new(patterns: &Texts, surface: Surface) -> Result<Self> {
        let (mut sequences, mut words) = (Sequences::default(), Vec::with_capacity(patterns.len()));
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
    fn classes_of(&self, common: &CommonWords) -> Arc<Classes> {
        let classes = || self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = classes().clone();
        if known.0 == common.version() && known.1.known.len() == self.words.len() {
            return known.1;
        }
        // Not under the lock: a thread that waits for the parts of others may take up another batch, and want it itself.
        let words = self.words.par_iter().enumerate();
        let known = words.map(|(number, word)| Known::of(word, common, self.is_of_individuals(number)));
        let known: Vec<Known> = known.collect();
        let small = self.sequences.places_of(|number| known[number as usize].may_be_small());
        let found = Arc::new(Classes { known, small });
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
    classes: Option<Arc<Classes>>,
}

impl Guarded<'_> {
    /// What stands in a document, by start.
    pub fn find(&self, document: u32, view: &View) -> Vec<Found> {
        let mut hits: Vec<Hit> = Vec::new();
        let sequences = &self.gazetteer.sequences;
        match &self.classes {
            None => sequences.find(view, |piece, number, last| hits.push((piece, last, number))),
            Some(classes) => {
                let cased = has_case(view.original);
                // Where the longest pattern so far ends: what stands in one of several pieces is kept with it.
                let covered = Cell::new(0);
                // A common word in small letters mostly, which `guard` would not keep.
                let wanted = |piece: usize, key: Hashed| {
                    !cased
                        || classes.small.has(key)
                        || is_capital(view, piece) != Some(false)
                        || piece < covered.get()
                        || may_be_announced(view, piece)
                };
                sequences.find_where(view, wanted, |piece, number, last| {
                    if piece < last {
                        covered.set(covered.get().max(last + 1));
                    }
                    hits.push((piece, last, number));
                });
                guard(view, &mut hits, &classes.known, cased);
            }
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
fn guard(view: &View, hits: &mut Vec<Hit>, classes: &[Known], cased: bool) {
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
    let spread = |names: &mut Vec<u8>, piece: usize, neighbour: usize, between: usize| {
        if names[piece] == 1 && names[neighbour] == 2 && joins_names(view, between) && may_be_name(view, piece, cased) {
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

// Listed words: whether a word of a list is a name where it stands.

/// What the corpus says of the word of a pattern.
#[derive(Clone, Copy)]
pub struct Known {
    class: Class,
    of_individuals: bool,
    /// A name of individuals that the corpus has with a capital nowhere.
    has_no_capital: bool,
}

impl Known {
    pub fn of(word: &str, common: &CommonWords, of_individuals: bool) -> Self {
        let has_no_capital = of_individuals && common.has_no_capital(word);
        Self { class: common.class(word), of_individuals, has_no_capital }
    }

    /// Whether it may be a name in small letters in a text with case, though nothing announces it.
    pub fn may_be_small(self) -> bool {
        self.class == Class::Name && !self.has_no_capital
    }

    /// Whether a name of individuals is nobody's where it stands with a capital, and no title says otherwise.
    pub fn is_other(self, view: &View, piece: usize) -> bool {
        self.of_individuals
            && is_capital(view, piece) == Some(true)
            && !is_announced(view, piece)
            && is_no_name(view, piece)
    }
}

/// Whether a piece and the next one are two words with capitals alone among small ones: "seen by Will Brown today".
pub fn is_pair_of_names(view: &View, piece: usize) -> bool {
    let capital = |piece: usize| is_capital(view, piece) == Some(true);
    view.gap(piece) == " "
        && capital(piece)
        && capital(piece + 1)
        && !starts_sentence(view, piece)
        && !capital(piece - 1)
        && !(piece + 2 < view.len() && view.gap(piece + 1) == " " && capital(piece + 2))
        && may_be_name(view, piece, true)
        && may_be_name(view, piece + 1, true)
}

/// A capital where case says something, and neither a month of a date nor what a disease is called after.
pub fn may_be_name(view: &View, piece: usize, cased: bool) -> bool {
    (!cased || is_capital(view, piece) != Some(false)) && !is_in_date(view, piece) && !is_eponym(view, piece)
}

/// Evidence that a listed word is a name here: it is no word of the language; or it has a capital inside a sentence and is as
/// often a name as not; or a title, a cue ("Patient:") or an initial stands next to it.
pub fn is_name(view: &View, piece: usize, known: Known, cased: bool) -> bool {
    if is_announced(view, piece) {
        return !is_in_date(view, piece);
    }
    // Most are words in small letters.
    let Known { class, has_no_capital, .. } = known;
    let small = is_capital(view, piece) == Some(false);
    if class != Class::Name && (!cased || small) || cased && small && has_no_capital {
        return false;
    }
    let initial = |at: usize, between: usize| {
        cased
            && at < view.len()
            && is_initial(view, at)
            && view.gap(between).starts_with(['.', ' '])
            && joins_names(view, between)
    };
    if is_eponym(view, piece) || is_in_date(view, piece) {
        return false;
    }
    match class {
        Class::Name => true,
        Class::Mixed if !starts_sentence(view, piece) => true,
        _ => {
            // "J. Young" and "Young J.", but neither "I Will" nor "Will I".
            piece > 0 && initial(piece - 1, piece - 1) && !matches!(view.piece(piece - 1), "i" | "a")
                || initial(piece + 1, piece) && view.gap(piece + 1).starts_with('.')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::packing::tests::draws_below;

    /// The definition: every hit goes through the guard.
    fn find_all(gazetteer: &Gazetteer, common: &CommonWords, view: &View) -> Vec<Hit> {
        let (mut hits, classes) = (Vec::new(), gazetteer.classes_of(common));
        gazetteer.sequences.find(view, |piece, number, last| hits.push((piece, last, number)));
        guard(view, &mut hits, &classes.known, has_case(view.original));
        hits.sort_unstable();
        hits
    }

    #[test]
    fn what_is_passed_over_is_what_the_guard_would_not_keep() {
        let words: Vec<&str> =
            "la La will Will the The Roy roy Dr nom paz Paz otorhinolaryngologist".split(' ').collect();
        let gaps = [" ", " ", " ", " ", ". ", ": ", ", ", "-", "\n", " to "];
        let (mut next, mut texts) = (draws_below(1), Vec::new());
        for _ in 0..600 {
            texts
                .push((0..12).map(|_| [words[next(words.len())], gaps[next(gaps.len())]].concat()).collect::<String>());
        }
        let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
        let patterns =
            Texts::of(&["La", "Will", "The", "Roy", "La Paz", "Will", "Paz La Roy", "otorhinolaryngologist"]);
        let gazetteer = Gazetteer::new(&patterns, Surface::Fold).unwrap();
        let gazetteer = gazetteer.with_names(vec![true, true, false, true, true, false, true, true]).unwrap();
        // Of few texts, so that words have been seen in some ways and not in others.
        let (mut num_small, mut num_passed) = (0, 0);
        for learned in [&texts[..1], &texts[..4], &texts[..40], &["la will the roy paz"; 3]] {
            let mut common = CommonWords::new();
            common.add(&Texts::of(learned), None).unwrap();
            common.merge();
            let guarded = gazetteer.guarded(Some(&common));
            for text in &texts {
                let view = View::new(text, Surface::Fold);
                let bounds = |&(first, last, source): &Hit| {
                    let (start, end) = view.origin_of(first, last)?;
                    Some(Found { document: 0, start, end, source })
                };
                let kept = find_all(&gazetteer, &common, &view);
                let mut expected: Vec<Found> = kept.iter().filter_map(bounds).collect();
                expected.sort_unstable_by_key(|found| (found.start, found.end, found.source));
                assert_eq!(guarded.find(0, &view), expected, "{text:?}");
                num_small += kept.iter().filter(|hit| is_capital(&view, hit.0) == Some(false)).count();
                num_passed += usize::from(kept.is_empty());
            }
        }
        assert!(num_small > 100 && num_passed > 100);
    }
}
