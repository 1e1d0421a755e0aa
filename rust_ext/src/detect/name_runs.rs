//! Runs: one to five words with capitals, joined as the parts of a name, none of which this corpus writes small.

use crate::detect::common::{Class, CommonWords};
use crate::detect::context::{is_capital, is_eponym, is_initial, is_particle, is_title, month};
use crate::detect::running_words::{FUNCTION, ends_as_no_name, kind};
use crate::text::pieces::View;

/// Words of a run.
const MAX_WORDS: usize = 5;
/// Words of a corpus that shows its language.
const MIN_VOCABULARY: usize = 2000;

/// Pieces of a run, and how many of them are words and initials.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub first: usize,
    pub last: usize,
    pub num_words: usize,
    pub num_initials: usize,
}

/// What stands in the original between a piece and the next, with its white space as it is.
pub fn between<'a>(view: &View<'a>, number: usize) -> Option<&'a str> {
    let (_, end) = view.origin_of(number, number)?;
    let start = if number + 1 < view.len() { view.origin_start(number + 1)? } else { view.original.len() };
    view.original.get(end..start)
}

/// The runs of a text, from left to right.
pub fn runs(view: &View, common: Option<&CommonWords>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut piece = 0;
    while piece < view.len() {
        if is_capital(view, piece) != Some(true) || !(is_word(view, piece, common) || is_initial_of_name(view, piece)) {
            piece += 1;
            continue;
        }
        let mut run = Run { first: piece, last: piece, num_words: 0, num_initials: 0 };
        let mut at = piece;
        // Particles belong to a run where a word follows them.
        let mut inside = 0;
        while at < view.len() {
            if is_word(view, at, common) {
                run.num_words += 1;
            } else if is_initial_of_name(view, at) {
                run.num_initials += 1;
            } else if run.num_words > 0 && is_inner_particle(view, at) && inside < 2 && joins(view, at) {
                inside += 1;
                at += 1;
                continue;
            } else {
                break;
            }
            inside = 0;
            run.last = at;
            if run.num_words == MAX_WORDS || !joins(view, at) {
                break;
            }
            at += 1;
        }
        if run.num_words > 0 {
            runs.push(run);
        }
        piece = run.last + 1;
    }
    runs
}

/// A word with a capital that this corpus does not write small.
fn is_word(view: &View, piece: usize, common: Option<&CommonWords>) -> bool {
    let text = view.piece(piece);
    text.len() > 1
        && is_capital(view, piece) == Some(true)
        && text.chars().all(char::is_alphabetic)
        && (kind(text) == 0 || kind(text) == FUNCTION && common.is_some_and(|common| is_foreign(text, common)))
        && !is_title(text)
        && !is_particle(text)
        && month(text).is_none()
        && is_written_as_name(view, piece)
        && !ends_as_no_name(text)
        && common.is_none_or(|common| common.class(text) == Class::Name)
        && !is_eponym(view, piece)
}

/// Whether a corpus that shows its language has a pronoun nowhere in small letters: it is one of another language ("Ella").
fn is_foreign(word: &str, common: &CommonWords) -> bool {
    common.len() >= MIN_VOCABULARY && !common.is_word(word)
}

/// A capital and small letters behind it, as in Anna and McRoy: not MRI, IgG, pH.
fn is_written_as_name(view: &View, piece: usize) -> bool {
    let original = view.origin_of(piece, piece).and_then(|(start, end)| view.original.get(start..end));
    original.is_some_and(|original| {
        let capitals = original.chars().filter(|letter| letter.is_uppercase()).count();
        let small = original.chars().filter(|letter| letter.is_lowercase()).count();
        capitals <= 2 && small >= 2 * capitals - 1 && original.ends_with(char::is_lowercase)
    })
}

/// `B` of "Anna B. Roy": not the word "I" or "A".
fn is_initial_of_name(view: &View, piece: usize) -> bool {
    is_initial(view, piece)
        && (view.gap(piece).starts_with('.') || !matches!(view.piece(piece), "i" | "a" | "y" | "e" | "o"))
}

fn is_inner_particle(view: &View, piece: usize) -> bool {
    is_particle(view.piece(piece))
        && !is_title(view.piece(piece))
        && !matches!(view.piece(piece), "y" | "e" | "les" | "al")
}

/// One name goes on behind a piece: a space, a hyphen, an apostrophe, a point behind an initial.
fn joins(view: &View, piece: usize) -> bool {
    piece + 1 < view.len()
        && match between(view, piece) {
            Some(" " | "-" | "'" | "\u{2019}" | "\u{2010}" | "\u{2011}") => true,
            Some(". " | ".") => is_initial(view, piece),
            _ => false,
        }
}
