//! No names: words with capitals that are nobody's, whoever takes them for a name.
//!
//! They are of places (`places`), of things ("a Foley catheter") or of a closed list: days of the week, words of forms.

use std::ops::Range;
use std::sync::LazyLock;

use rayon::prelude::*;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

use crate::detect::context::{is_announced, is_capital, is_eponym, is_title};
use crate::detect::letter_case::{Lines, has_case};
use crate::detect::places::{is_head_of_place, is_in_place};
use crate::error::{Error, Result};
use crate::text::pieces::View;
use crate::text::spans::Places;
use crate::text::surface::Surface;
use crate::text::texts::Texts;
use crate::word_lists::{Words, weekdays, words};

/// Words that have a capital and are nobody's, folded.
static NOBODY: Words = LazyLock::new(|| words("nobody").chain(weekdays()).collect());

/// Spans of categories without a fixed form, in characters; those of a document stand together with ascending starts.
pub struct Formless<'a> {
    pub documents: &'a [i64],
    pub starts: &'a [i32],
    pub ends: &'a [i32],
    pub are_names: &'a [bool],
}

/// The end of each span in characters, and whether it is kept. Dropped are spans without a letter, and names with a number
/// ("EVA 7/10") or whose first word is of a place or a thing, or nobody's. A name includes the initial behind it ("Anna T., seen").
pub fn refine(texts: &Texts, spans: &Formless<'_>) -> Result<Vec<(i32, bool)>> {
    let mut firsts: Vec<usize> = (0..spans.documents.len()).collect();
    firsts.dedup_by_key(|row| spans.documents[*row]);
    let refined = firsts.par_iter().enumerate().map(|(number, &first)| {
        let rows = first..firsts.get(number + 1).copied().unwrap_or(spans.documents.len());
        let text =
            usize::try_from(spans.documents[first]).ok().filter(|&row| row < texts.len()).map(|row| texts.get(row));
        let text = text.ok_or_else(|| Error::Corpus("a span is of no document".into()))?;
        let places = Places::new(text, &spans.starts[rows.clone()], &spans.ends[rows.clone()]);
        let mut nobodys: Option<Nobodys<'_>> = None;
        rows.map(|row| {
            let (end, is_name) = (spans.ends[row], spans.are_names[row]);
            let bytes = places.bytes(spans.starts[row], end);
            let bytes = bytes.ok_or_else(|| Error::Corpus("a span does not fit its document".into()))?;
            let is_kept = has_letter(&text[bytes.clone()])
                && !(is_name && has_number(text, &bytes))
                && !(is_name && nobodys.get_or_insert_with(|| Nobodys::new(text)).has(bytes.start));
            Ok((end + if is_name && has_initial(&text[bytes.end..]) { 2 } else { 0 }, is_kept))
        })
        .collect::<Result<Vec<_>>>()
    });
    Ok(refined.collect::<Result<Vec<_>>>()?.concat())
}

/// A sign of a number.
fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || !c.is_ascii() && c.general_category() == GeneralCategory::DecimalNumber
}

fn has_letter(span: &str) -> bool {
    span.bytes().any(|byte| byte.is_ascii_alphabetic())
        || !span.is_ascii() && span.chars().any(|c| c.is_alphanumeric() && !is_digit(c))
}

/// Whether a span has a number that is no part of a word ("x²", "T4").
fn has_number(text: &str, span: &Range<usize>) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let within = &text[span.clone()];
    if within.is_ascii() && !within.bytes().any(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let goes_on = text[..span.start].chars().next_back().is_some_and(in_word);
    let mut parts = within.split(|c| !in_word(c));
    let first = parts.next().unwrap_or_default();
    let is_number = |part: &str| !part.is_empty() && part.chars().all(is_digit);
    !goes_on && is_number(first) || parts.any(is_number)
}

/// Whether a name goes on with a capital and a point, before a sign or a word that no sentence begins with.
fn has_initial(rest: &str) -> bool {
    let mut signs = rest.chars();
    signs.next() == Some(' ')
        && signs.next().is_some_and(|c| matches!(c, 'A'..='Z' | 'À'..='Ö' | 'Ø'..='Þ'))
        && signs.next() == Some('.')
        && match signs.next() {
            Some(' ') => signs.next().is_some_and(|c| c.is_alphanumeric() && !is_digit(c) && !c.is_ascii_uppercase()),
            sign => matches!(sign, Some(',' | ';' | ':' | ')')),
        }
}

/// What in a text is nobody's; asked for from left to right.
struct Nobodys<'a> {
    /// None for a text without case.
    view: Option<View<'a>>,
    lines: Lines<'a>,
    next: usize,
}

impl<'a> Nobodys<'a> {
    fn new(text: &'a str) -> Self {
        Self { view: has_case(text).then(|| View::new(text, Surface::Fold)), lines: Lines::new(text), next: 0 }
    }

    /// Whether the word that begins at a byte is of a place or a thing, or nobody.
    fn has(&mut self, start: usize) -> bool {
        let Some(view) = &self.view else { return false };
        while self.next < view.len() && view.origin_start(self.next).is_none_or(|at| at < start) {
            self.next += 1;
        }
        let piece = self.next;
        if piece == view.len() || view.origin_start(piece) != Some(start) {
            return false;
        }
        let capital = is_capital(view, piece) == Some(true);
        if capital {
            !is_title(view.piece(piece)) && is_no_name(view, piece)
        } else {
            !self.lines.has_case(view, piece) && is_eponym(view, piece) && !is_announced(view, piece)
        }
    }
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
            let mut nobodys = Nobodys::new(text);
            let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            let found: Vec<_> =
                words.filter(|word| nobodys.has(word.as_ptr() as usize - text.as_ptr() as usize)).collect();
            assert_eq!(found, names, "{text}");
        }
    }
}
