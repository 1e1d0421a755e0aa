//! Firms that bear the names of individuals: "Roy, Petit and Weber Inc", "Roy & Petit GmbH", "she works for Roy-Petit".
//!
//! Said by a legal form behind the name, over a list of surnames; by what the sentence says that it is ("Roy Petit is a bank"); by
//! a list that begins a sentence and takes a verb of one ("Roy, Petit and Weber is"); and by who works for it. Here too belong
//! places (`places`), things ("a Foley catheter") and the words of closed lists: all words with capitals that are nobody's.

use std::sync::LazyLock;

use rayon::prelude::*;

use crate::detect::context::{is_announced, is_capital, is_eponym, is_title, starts_sentence};
use crate::detect::letter_case::{Lines, has_case};
use crate::detect::name_runs::between;
use crate::detect::places::{is_head_of_place, is_in_place};
use crate::detect::running::kind_at;
use crate::detect::running_words::{ACT, AND, ARTICLE, COPULA, GREETING, NO_NAME, PLACE, ends_as_no_name, kind};
use crate::pool::rows;
use crate::text::pieces::View;
use crate::text::spans::Found;
use crate::text::surface::Surface;
use crate::text::texts::Texts;
use crate::word_lists::{WordSet, Words};

/// Words of a firm's name, and of what a sentence says that it is.
const MAX_WORDS: usize = 7;

/// Behind the name, folded, with a capital.
static FORMS: Words = LazyLock::new(|| WordSet::of("firm forms"));
/// What is a firm.
static NOUNS: Words = LazyLock::new(|| WordSet::of("firms"));
/// Who works.
static WORK: Words = LazyLock::new(|| WordSet::of("work"));

/// The words with capitals of documents that are of a place, a firm or a thing, or nobody, by document, then start.
pub fn find_all(texts: &Texts) -> Vec<Found> {
    rows(texts.len())
        .flat_map_iter(|row| {
            let view = View::new(texts.get(row), Surface::Fold);
            let count = if has_case(texts.get(row)) { view.len() } else { 0 };
            let mut lines = Lines::new(texts.get(row));
            let names = (0..count).filter(|&piece| {
                let capital = is_capital(&view, piece) == Some(true);
                let small = |lines: &mut Lines| !capital && !lines.has_case(&view, piece);
                (capital && !is_title(view.piece(piece)) && is_no_name(&view, piece))
                    || (is_eponym(&view, piece) && small(&mut lines) && !is_announced(&view, piece))
            });
            let found = |piece| {
                let (start, end) = view.origin_of(piece, piece)?;
                Some(Found { document: row as u32, start, end, source: 0 })
            };
            names.filter_map(found).collect::<Vec<_>>()
        })
        .collect()
}

/// Whether a word with a capital is nobody's.
pub fn is_no_name(view: &View, piece: usize) -> bool {
    let word = view.piece(piece);
    kind(word) & (NO_NAME | GREETING | ACT) != 0
        || ends_as_no_name(word)
        || is_eponym(view, piece)
        || is_in_place(view, piece, piece)
        || is_head_of_place(view, piece)
        || is_in_firm(view, piece)
}

/// Whether a piece is a part of the name of a firm.
pub fn is_in_firm(view: &View, piece: usize) -> bool {
    let (first, last) = name_around(view, piece);
    has_form(view, last)
        || (piece > first && FORMS.has(view.piece(piece)))
        || is_called_firm(view, last)
        || is_one(view, first, last)
        || is_worked_for(view, first)
        || is_at_place(view, first)
}

/// The run of capitals around a piece, with the surnames of a list: "Roy, Petit and Weber", "Roy & Petit", "Roy-Petit".
fn name_around(view: &View, piece: usize) -> (usize, usize) {
    let (mut first, mut last) = (piece, piece);
    while first > 0 && piece - first < MAX_WORDS && goes_on(view, first - 1) {
        first -= 1;
    }
    while last + 1 < view.len() && last - piece < MAX_WORDS && goes_on(view, last) {
        last += 1;
    }
    (first, last)
}

/// Whether a name that has the piece has the next one too.
fn goes_on(view: &View, piece: usize) -> bool {
    let is_name = |piece: usize| is_capital(view, piece) == Some(true) && !is_title(view.piece(piece));
    let is_and = |piece: usize| kind_at(view, Some(piece)) & AND != 0 && is_capital(view, piece) == Some(false);
    match between(view, piece) {
        Some(" ") if is_and(piece + 1) => {
            is_name(piece) && piece + 2 < view.len() && is_name(piece + 2) && view.gap(piece + 1) == " "
        }
        Some(" ") if is_and(piece) => piece > 0 && is_name(piece - 1) && is_name(piece + 1),
        Some(" " | "-" | " & ") => is_name(piece) && is_name(piece + 1),
        // A list of single surnames.
        Some(", ") => {
            let several = piece > 0 && view.gap(piece - 1) == " " && is_name(piece - 1);
            is_name(piece) && is_name(piece + 1) && !several
        }
        _ => false,
    }
}

/// "Inc" at the end, or behind it.
fn has_form(view: &View, last: usize) -> bool {
    FORMS.has(view.piece(last))
}

/// "is a design agency"
fn is_called_firm(view: &View, last: usize) -> bool {
    between(view, last) == Some(" ")
        && kind_at(view, Some(last + 1)) & COPULA != 0
        && kind_at(view, Some(last + 2)) & ARTICLE != 0
        && (last + 3..view.len().min(last + 3 + MAX_WORDS))
            .take_while(|&at| view.gap(at - 1) == " " || view.gap(at - 1) == "-")
            .any(|at| NOUNS.has(view.piece(at)))
}

/// Several surnames that begin a sentence, and a verb of one.
fn is_one(view: &View, first: usize, last: usize) -> bool {
    let list = last >= first + 2 && kind_at(view, Some(last - 1)) & AND != 0;
    list && starts_sentence(view, first)
        && between(view, last) == Some(" ")
        && last + 1 < view.len()
        && matches!(view.piece(last + 1), "is" | "was" | "has" | "est" | "etait" | "es" | "era" | "ist" | "war" | "hat")
}

/// "works for", "employed at", "travaille chez", "trabaja en", "arbeitet bei"
fn is_worked_for(view: &View, first: usize) -> bool {
    first > 1
        && view.gap(first - 1) == " "
        && view.gap(first - 2) == " "
        && matches!(view.piece(first - 1), "for" | "at" | "by" | "chez" | "en" | "para" | "bei")
        && WORK.has(view.piece(first - 2))
}

/// "the infusion center at Roy"
fn is_at_place(view: &View, first: usize) -> bool {
    first > 1
        && view.gap(first - 1) == " "
        && view.gap(first - 2) == " "
        && matches!(view.piece(first - 1), "at" | "bei" | "chez")
        && (kind(view.piece(first - 2)) & PLACE != 0 || matches!(view.piece(first - 2), "room" | "office" | "lab"))
        && is_capital(view, first - 2) == Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firms_of_hand_worked_texts() {
        for (text, names) in [
            ("She is with Roy, Petit and Weber Inc today.", vec!["Roy", "Petit", "Weber", "Inc"]),
            ("Roy & Petit GmbH", vec!["Roy", "Petit", "GmbH"]),
            ("Roy, Petit and Weber is hiring.", vec!["Roy", "Petit", "Weber"]),
            ("Roy, Petit and Weber are here. Seen with Roy and Petit is nothing.", vec![]),
            ("Roy-Petit is an old insurer.", vec!["Roy", "Petit"]),
            ("Roy is an old man.", vec![]),
            ("Elle travaille chez Roy Petit.", vec!["Roy", "Petit"]),
            ("She works for Mrs. Roy.", vec![]),
            ("Seen by Anna Roy, the company paid.", vec![]),
            ("Anna Roy lives on Petit Avenue.", vec!["Petit", "Avenue"]),
            ("vive en la calle Ana Roy, 3", vec!["Ana", "Roy"]),
            ("anna roy inc", vec![]),
            ("She is at the infusion center at Roy today.", vec!["Roy"]),
            ("She is in the center of Roy and at Petit today.", vec![]),
            ("Similarly, Lives alone", vec!["Similarly", "Lives"]),
            ("roy level 4\nThe Level and ALL THAT", vec!["roy"]),
            ("dr. roy level 4\nThe Level and ALL THAT", vec![]),
        ] {
            let found = find_all(&Texts::of(&[text]));
            let found: Vec<_> = found.iter().map(|found| &text[found.start..found.end]).collect();
            assert_eq!(found, names, "{text}");
        }
    }
}
