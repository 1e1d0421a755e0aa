//! Lines typed all in small letters, as dialogues are: case says nothing there, and what stands before a word says more.
//!
//! "dr. roy", "hi anna ,", "my name is anna roy": a word behind a title, an address or "name is", unless many documents have it.

use std::sync::LazyLock;

use crate::detect::common::CommonWords;
use crate::detect::context::{is_capital, is_particle, is_title, month};
use crate::detect::lines::Lines;
use crate::detect::running::kind_at;
use crate::detect::running_words::{ARTICLE, CALL, COPULA, GREETING, NAME, OBJECT, ends_as_no_name, kind};
use crate::text::pieces::View;
use crate::word_lists::{WordSet, Words};

/// Before a name in small letters; "m" and "dr" without a point are other things too.
static TITLES: Words = LazyLock::new(|| WordSet::marked("titles", "typed"));

/// Names in lines typed all in small letters, where case says nothing: behind a title, an address or "my name is".
pub fn find_in_small(view: &View, common: &CommonWords, emit: &mut impl FnMut(usize, usize)) {
    let mut lines = Lines::new(view.original);
    let mut piece = 0;
    while piece < view.len() {
        if lines.has_case(view, piece) {
            // On to the next line: most texts have no other.
            while piece < view.len() && view.origin_start(piece).is_none_or(|start| start < lines.end()) {
                piece += 1;
            }
            continue;
        }
        if is_capital(view, piece) != Some(false) {
            piece += 1;
            continue;
        }
        if is_described(view, piece) && is_unusual(view.piece(piece), common) {
            emit(piece, piece);
            piece += 1;
            continue;
        }
        if piece == 0 {
            piece += 1;
            continue;
        }
        let word = view.piece(piece - 1);
        let gap = view.gap(piece - 1);
        let titled = matches!(gap, " " | ". " | " . ") && TITLES.has(word) && (gap != " " || word.len() > 2);
        let kind = kind(word);
        let addressed = matches!(gap, " " | " , " | ", ") && kind & GREETING != 0;
        let named = gap == " "
            && (kind & COPULA != 0 && piece > 1 && kind_at(view, Some(piece - 2)) & NAME != 0
                || kind & OBJECT != 0 && piece > 1 && kind_at(view, Some(piece - 2)) & CALL != 0);
        if !(titled || addressed || named) || !is_unusual(view.piece(piece), common) {
            piece += 1;
            continue;
        }
        let mut last = piece;
        while last + 1 < view.len()
            && last - piece < 2
            && matches!(view.gap(last), " " | "-")
            && is_unusual(view.piece(last + 1), common)
        {
            last += 1;
        }
        emit(piece, last);
        piece = last + 1;
    }
}

/// "anna is a 43 year old", "ana es una mujer": what only an individual is.
fn is_described(view: &View, piece: usize) -> bool {
    static PERSONS: Words = LazyLock::new(|| WordSet::of("described"));
    let copula = piece + 2 < view.len() && view.gap(piece) == " " && kind(view.piece(piece + 1)) & COPULA != 0;
    copula
        && kind(view.piece(piece + 2)) & ARTICLE != 0
        && (piece + 3..view.len().min(piece + 8))
            .take_while(|&at| !view.gap(at - 1).contains(['.', ',', ';', ':', '\n']))
            .any(|at| PERSONS.has(view.piece(at)))
}

/// A word that many documents do not write: nobody's language.
fn is_unusual(word: &str, common: &CommonWords) -> bool {
    word.len() > 2
        && word.chars().all(char::is_alphabetic)
        && kind(word) == 0
        && !is_title(word)
        && !is_particle(word)
        && month(word).is_none()
        && !ends_as_no_name(word)
        && !common.is_widespread(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::surface::Surface;
    use crate::text::texts::Texts;

    #[test]
    fn names_of_hand_worked_lines() {
        let mut common = CommonWords::new();
        let talk = "so the patient said how are you and the hill is there\nThe hill, she said.";
        common.add(&Texts::of(&[talk; 3]), None).unwrap();
        common.merge();
        for (text, names) in [
            ("hi , dr. roy , how are you", vec!["roy"]),
            ("ms . roy said so", vec!["roy"]),
            ("hey anna , how are you", vec!["anna"]),
            ("hi how are you", vec![]),
            ("my name is anna jerković and you", vec!["anna jerković"]),
            ("they call me anna", vec!["anna"]),
            ("anna is a 34 -year-old female with pain", vec!["anna"]),
            ("ana es una mujer de 43 años", vec!["ana"]),
            ("she is a 34 year old female", vec![]),
            ("gout is a ten year problem", vec![]),
            ("bonjour madame petit", vec!["petit"]),
            ("frau müller said", vec!["müller"]),
            // A word of many documents, and a line with case.
            ("dr. hill said", vec![]),
            ("Then dr. roy said so", vec![]),
            ("dr roy", vec![]),
            ("", vec![]),
        ] {
            let view = View::new(text, Surface::Fold);
            let mut found = Vec::new();
            find_in_small(&view, &common, &mut |first, last| {
                let (start, end) = view.origin_of(first, last).unwrap();
                found.push(&text[start..end]);
            });
            assert_eq!(found, names, "{text}");
        }
    }
}
