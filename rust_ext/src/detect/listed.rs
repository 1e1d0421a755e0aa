//! Listed words: whether a word of a list is a name where it stands.

use crate::detect::common::{Class, CommonWords};
use crate::detect::context::{
    is_announced, is_capital, is_eponym, is_in_date, is_initial, joins_names, starts_sentence,
};
use crate::detect::firms::is_no_name;
use crate::text::pieces::View;

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
/// often a name as not; or a title, a cue ("Patient:") or an initial stands beside it.
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
