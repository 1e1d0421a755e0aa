//! No names: words with capitals that are nobody's, whoever takes them for a name.
//!
//! They are of places (`places`), of things ("a Foley catheter") or of a closed list: days of the week, words of forms.

use std::sync::LazyLock;

use rayon::prelude::*;

use crate::detect::context::{is_announced, is_capital, is_eponym, is_title};
use crate::detect::letter_case::{Lines, has_case};
use crate::detect::places::{is_head_of_place, is_in_place};
use crate::pool::rows;
use crate::text::pieces::View;
use crate::text::spans::Found;
use crate::text::surface::Surface;
use crate::text::texts::Texts;
use crate::word_lists::{Words, weekdays, words};

/// Words that have a capital and are nobody's, folded.
static NOBODY: Words = LazyLock::new(|| words("nobody").chain(weekdays()).collect());

/// The words with capitals of documents that are of a place or a thing, or nobody, by document, then start.
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
                    || (small(&mut lines) && is_eponym(&view, piece) && !is_announced(&view, piece))
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
    NOBODY.has(view.piece(piece))
        || is_eponym(view, piece)
        || is_in_place(view, piece, piece)
        || is_head_of_place(view, piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_nobodys() {
        for (text, names) in [
            ("Anna Roy lives on Petit Avenue.", vec!["Petit", "Avenue"]),
            ("vive en la calle Ana Roy, 3", vec!["Ana", "Roy"]),
            ("She works for Roy, Petit and Weber Inc on Monday.", vec!["Monday"]),
            ("A Foley catheter; Samstag, Roy", vec!["Foley", "Samstag"]),
            ("anna roy", vec![]),
            ("roy level 4\nThe Level and ALL THAT", vec!["roy"]),
            ("dr. roy level 4\nThe Level and ALL THAT", vec![]),
        ] {
            let found = find_all(&Texts::of(&[text]));
            let found: Vec<_> = found.iter().map(|found| &text[found.start..found.end]).collect();
            assert_eq!(found, names, "{text}");
        }
    }
}
