//! Places that bear the names of individuals: "Hospital Carlos Haya", "calle Ana Roy, 3", "Roy Avenue", "San Carlos".
//!
//! The head of such a name stands before it in Romance languages and behind it in English and German. The walk to it goes over
//! particles and words with capitals, as the parts of the name of a place are, and ends at a title, a sign or a word in small
//! letters: "Hospital Dr. Roy" may be a place or not.

use std::sync::LazyLock;

use crate::detect::context::{is_capital, is_particle, is_title};
use crate::text::pieces::View;
use crate::word_lists::{WordSet, Words};

/// Words of a name of a place.
const MAX_WORDS: usize = 4;
/// Pieces of it with its particles ("calle de la Virgen de los Dolores"): longer chains of particles are gone through by none.
const MAX_PIECES: usize = 16;

/// Before the name, folded.
static BEFORE: Words = LazyLock::new(|| WordSet::of("heads before"));
/// Behind it, with a capital.
static BEHIND: Words = LazyLock::new(|| WordSet::of("heads behind"));
/// Of them surnames too: "Anna Lane" lives in 12 Anna Lane.
static SURNAMES: Words = LazyLock::new(|| WordSet::of("heads that are surnames"));

/// Whether the pieces `first..=last` are a part of the name of a place.
pub fn is_in_place(view: &View, first: usize, last: usize) -> bool {
    is_behind_head(view, first) || is_before_head(view, first, last)
}

/// Whether a piece is the head of such a name: `Avenue` of "Roy Avenue".
pub fn is_head_of_place(view: &View, piece: usize) -> bool {
    piece > 0
        && BEHIND.has(view.piece(piece))
        && matches!(view.gap(piece - 1), " " | "-")
        && is_capital(view, piece - 1) == Some(true)
        && !is_title(view.piece(piece - 1))
        && (!SURNAMES.has(view.piece(piece)) || is_numbered(view, piece))
}

fn is_behind_head(view: &View, first: usize) -> bool {
    let mut words = 0;
    for piece in (0..first).rev().take(MAX_PIECES) {
        if !matches!(view.gap(piece), " " | "-" | "'" | ". ") {
            return false;
        }
        let (word, point) = (view.piece(piece), view.gap(piece) == ". ");
        if BEFORE.has(word) {
            // "... of the ward. Roy came": a point behind what is not cut short ends a sentence.
            return !point || matches!(word, "st" | "ste" | "avda" | "bd");
        }
        if point || is_title(word) {
            return false;
        }
        if is_particle(word) {
            continue;
        }
        words += 1;
        if words >= MAX_WORDS || is_capital(view, piece) != Some(true) {
            return false;
        }
    }
    false
}

fn is_before_head(view: &View, first: usize, last: usize) -> bool {
    for piece in (last + 1..view.len()).take(MAX_WORDS) {
        if !matches!(view.gap(piece - 1), " " | "-") || is_capital(view, piece) != Some(true) {
            return false;
        }
        let word = view.piece(piece);
        if BEHIND.has(word) {
            return !SURNAMES.has(word) || is_numbered(view, first);
        }
    }
    false
}

/// Whether the number of a house stands before a piece, perhaps with words of the street's name between.
fn is_numbered(view: &View, first: usize) -> bool {
    for piece in (first.saturating_sub(MAX_WORDS)..first).rev() {
        if !matches!(view.gap(piece), " " | "-") {
            return false;
        }
        if view.piece(piece).as_bytes()[0].is_ascii_digit() {
            return true;
        }
        if is_capital(view, piece) != Some(true) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::surface::Surface;

    #[test]
    fn places_of_hand_worked_texts() {
        for (text, name, place) in [
            ("en el Hospital Ramón y Cajal de Madrid", "ramon", true),
            ("Hospital Universitario Virgen del Rocío", "rocio", true),
            ("vive en la calle Ana Roy, 3", "ana", true),
            ("vive en la calle Ana Roy, 3", "roy", true),
            ("los encierros de San Carlos de los Reyes", "carlos", true),
            ("à l'hôpital Anna Roy", "anna", true),
            ("rue de la Roy", "roy", true),
            ("in der Anna-Roy-Straße", "anna", true),
            ("in der Anna Roy Klinik", "roy", true),
            ("the corner of Anna Roy Avenue", "anna", true),
            ("lives at 12 Anna Lane", "anna", true),
            ("seen by Anna Lane", "anna", false),
            ("en el hospital. Roy refiere dolor", "roy", false),
            ("del Hospital Dr. Roy refiere", "roy", false),
            ("Hospital, Anna Roy", "anna", false),
            ("St. Anna Hospital", "anna", true),
            ("Roy went to the hospital", "roy", false),
            ("Anna Roy", "anna", false),
        ] {
            let view = View::new(text, Surface::Fold);
            let piece = (0..view.len()).find(|&piece| view.piece(piece) == name).unwrap();
            assert_eq!(is_in_place(&view, piece, piece), place, "{text}: {name}");
        }
    }
}
