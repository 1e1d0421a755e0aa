//! Context: what stands around a piece and says whether it is a name.
//!
//! The words are those of `rust_ext/words`: titles, particles of surnames, months and what follows an eponym; no names.

use std::sync::LazyLock;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::text::pieces::View;
use crate::word_lists::{marked, months, words};

/// What a word of the lists is: bits of them, and the number of a month.
#[derive(Clone, Copy, Default)]
struct Kind {
    lists: u8,
    month: u32,
}

const TITLE: u8 = 1;
const CUE: u8 = 2;
const PARTICLE: u8 = 4;
const HEAD: u8 = 8;
const THING: u8 = 16;
const SIGN: u8 = 32;
const SCORE: u8 = 64;

#[derive(Default)]
struct Kinds {
    /// Bit n: a word of the lists has n bytes and these two letters first (`place`). Most words of a text have not.
    lengths: Vec<u32>,
    /// The same of titles and cues.
    announcing: Vec<u32>,
    words: HashMap<&'static str, Kind, FixedState>,
}

#[inline]
fn place(word: &[u8]) -> usize {
    let letter = |at: usize| word.get(at).map_or(0, |&byte| usize::from(byte & 31));
    letter(0) << 5 | letter(1)
}

static KINDS: LazyLock<Kinds> = LazyLock::new(|| {
    let mut kinds: HashMap<&str, Kind, _> = HashMap::default();
    let mut add = |list: u8, word| kinds.entry(word).or_default().lists |= list;
    for (list, name) in [(CUE, "cues"), (HEAD, "eponym heads"), (THING, "things"), (SCORE, "scores"), (SIGN, "signed")]
    {
        words(name).for_each(|word| add(list, word));
    }
    marked("titles", "announce").for_each(|word| add(TITLE, word));
    marked("particles", "part").chain(marked("titles", "part")).for_each(|word| add(PARTICLE, word));
    for (number, name) in months("records") {
        kinds.entry(name).or_default().month = number;
    }
    let (mut lengths, mut announcing) = (vec![0; 1024], vec![0; 1024]);
    for (word, kind) in &kinds {
        let (place, length) = (place(word.as_bytes()), 1 << word.len().min(31));
        lengths[place] |= length;
        if kind.lists & (TITLE | CUE) != 0 {
            announcing[place] |= length;
        }
    }
    Kinds { lengths, announcing, words: kinds }
});

#[inline]
fn kind(piece: &str) -> Kind {
    let kinds = &*KINDS;
    if kinds.lengths[place(piece.as_bytes())] >> piece.len().min(31) & 1 == 0 {
        return Kind::default();
    }
    kinds.words.get(piece).copied().unwrap_or_default()
}

pub fn is_title(piece: &str) -> bool {
    kind(piece).lists & TITLE != 0
}

pub fn is_particle(piece: &str) -> bool {
    kind(piece).lists & PARTICLE != 0
}

/// 1 to 12 for the name of a month.
pub fn month(piece: &str) -> Option<u32> {
    Some(kind(piece).month).filter(|&month| month > 0)
}

/// Between two parts of one name: white space, a hyphen, an apostrophe or a comma; a point only after what is cut short ("J.", "St.").
#[inline]
pub fn joins_names(view: &View, number: usize) -> bool {
    let gap = view.gap(number);
    let soft = |byte: u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b'-' | b'\'' | b',' | b'_');
    !gap.is_empty()
        && gap.len() <= 4
        && number + 1 < view.len()
        && (gap.bytes().all(soft)
            || gap.starts_with('.') && gap[1..].bytes().all(soft) && is_cut_short(view.piece(number)))
}

/// What ends in a point without ending a sentence: an initial, "St.", "Jr.", "Dr.".
fn is_cut_short(piece: &str) -> bool {
    piece.chars().count() == 1 || is_title(piece) || matches!(piece, "st" | "ste" | "jr" | "mt")
}

/// Whether a piece begins with a capital; None for a script or a digit without case.
#[inline]
pub fn is_capital(view: &View, number: usize) -> Option<bool> {
    let start = view.origin_start(number)?;
    match view.original.as_bytes()[start] {
        b'a'..=b'z' => Some(false),
        b'A'..=b'Z' => Some(true),
        0..0x80 => None,
        _ => {
            let first = view.original[start..].chars().next()?;
            (first.is_uppercase() || first.is_lowercase()).then(|| first.is_uppercase())
        }
    }
}

/// The first piece, or one after a full stop or a line break; a point after a title or an initial ends nothing.
pub fn starts_sentence(view: &View, number: usize) -> bool {
    let Some(before) = number.checked_sub(1) else {
        return true;
    };
    let (Some(from), Some(start)) = (view.origin_start(before), view.origin_start(number)) else {
        return true;
    };
    // From the end, no further than into the piece before, which has none of these signs in it; an escape may have letters.
    let (bytes, whole) = (&view.original.as_bytes()[from..start], view.is_unescaped());
    let mut point = false;
    for (at, byte) in bytes.iter().enumerate().rev() {
        match byte {
            b'\n' | b'\r' | b'!' | b'?' | b'*' => return true,
            b'.' => point = true,
            0xe2 if view.original[from + at..].starts_with('\u{2022}') => return true,
            _ if byte.is_ascii_alphanumeric() && !whole => break,
            _ => {}
        }
    }
    point && !is_cut_short(view.piece(before))
}

/// Whether a piece before may announce a name: faster than `is_announced`, and never false where that is true.
#[inline]
pub fn may_be_announced(view: &View, number: usize) -> bool {
    number.checked_sub(1).is_some_and(|before| {
        let piece = view.piece(before);
        KINDS.announcing[place(piece.as_bytes())] >> piece.len().min(31) & 1 != 0
    })
}

/// Whether a title stands before a piece, or a cue and a colon.
pub fn is_announced(view: &View, number: usize) -> bool {
    let Some(before) = number.checked_sub(1).filter(|_| may_be_announced(view, number)) else {
        return false;
    };
    let (piece, gap) = (view.piece(before), view.gap(before));
    let blank = |text: &str| text.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'.'));
    is_title(piece) && blank(gap) && !(piece.len() == 1 && is_capital(view, before) == Some(false))
        || gap.contains(':')
            && gap.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b':'))
            && kind(piece).lists & CUE != 0
}

/// Pieces that hyphens may join to a name that something is called after; a longer chain (a peptide's) is gone through by none.
const MAX_JOINED: usize = 8;

/// Whether a piece is what something is called after: `Crohn's disease`, `maladie de Crohn`, both of a `Bard-Parker blade`.
pub fn is_eponym(view: &View, number: usize) -> bool {
    let is_head = |number: usize, lists: u8| number < view.len() && kind(view.piece(number)).lists & lists != 0;
    let mut next = number + 1;
    while next < view.len() && next <= number + MAX_JOINED && view.gap(next - 1) == "-" {
        next += 1;
    }
    let genitive = next < view.len() && view.piece(next) == "s" && matches!(view.gap(next - 1), "'" | "\u{2019}");
    next += usize::from(genitive);
    let spaced = |number: usize| view.gap(number) == " ";
    let signed = number >= 1 && spaced(number - 1) && is_head(number - 1, SIGN)
        || genitive && spaced(next - 1) && is_head(next, SIGN);
    let of = number >= 2 && matches!(view.piece(number - 1), "de" | "d" | "of" | "del");
    let thing = next < view.len() && view.gap(next - 1) == " " && is_capital(view, next) == Some(false);
    let scored = kind(view.piece(number)).lists & SCORE != 0
        && number + 1 < view.len()
        && matches!(view.gap(number), " " | ": " | " = " | "=")
        && view.piece(number + 1).len() <= 2
        && view.piece(number + 1).bytes().all(|byte| byte.is_ascii_digit())
        && !view.gap(number + 1).starts_with('/');
    scored
        || is_head(next, HEAD)
        || signed
        || thing && is_head(next, THING)
        || of && is_head(number - 2, HEAD)
        || number >= 1 && view.gap(number - 1) == " " && is_head(number - 1, HEAD)
}

/// Whether a piece is one letter, written as a capital: an initial, when a name stands next to it.
pub fn is_initial(view: &View, number: usize) -> bool {
    let (start, end) = view.pieces()[number];
    end - start == 1 && is_capital(view, number) == Some(true)
}

/// Whether a month's name stands next to a number, and so is no person's.
pub fn is_in_date(view: &View, number: usize) -> bool {
    let is_number =
        |at: usize| view.pieces().get(at).is_some() && view.piece(at).starts_with(|c: char| c.is_ascii_digit());
    month(view.piece(number)).is_some() && (is_number(number + 1) || number > 0 && is_number(number - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::surface::Surface;

    fn at<'a>(text: &'a str, piece: &str) -> (View<'a>, usize) {
        let view = View::new(text, Surface::Fold);
        let number = (0..view.len()).find(|&number| view.piece(number) == piece).unwrap();
        (view, number)
    }

    #[test]
    fn hand_worked_contexts() {
        for (text, piece, announced, sentence, eponym) in [
            ("Mr. Young", "young", true, false, false),
            ("m young", "young", false, false, false),
            ("M. Petit", "petit", true, false, false),
            ("Nom : Petit", "petit", true, false, false),
            ("It is. Young men", "young", false, true, false),
            ("Crohn's disease", "crohn", false, true, true),
            ("a Foley catheter", "foley", false, false, true),
            ("a Clark level of 4", "clark", false, false, true),
            ("with negative Roy's", "roy", false, false, true),
            ("with Roy's negative", "roy", false, false, true),
            ("was negative. Roy came", "roy", false, true, false),
            ("Braden 17, Morse: 45", "braden", false, true, true),
            ("seen by Norton 11/02", "norton", false, false, false),
            ("maladie de Crohn", "crohn", false, false, true),
            ("a Bard-Parker blade", "bard", false, false, true),
            ("a Bard-Parker blade", "parker", false, false, true),
            ("seen by Parker. Blade", "parker", false, false, false),
            ("seen by J. Young", "young", false, false, false),
            ("so it was.&nbsp;Young men", "young", false, true, false),
            ("so &eacute;t&eacute;&nbsp;Young", "young", false, false, false),
        ] {
            let (view, number) = at(text, piece);
            let found = (is_announced(&view, number), starts_sentence(&view, number), is_eponym(&view, number));
            assert_eq!(found, (announced, sentence, eponym), "{text}");
        }
    }

    #[test]
    fn months_in_four_languages() {
        let found = ["may", "aout", "marzo", "dezember", "smarch"].map(month);
        assert_eq!(found, [Some(5), Some(8), Some(3), Some(12), None]);
    }
}
