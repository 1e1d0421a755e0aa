//! Identity: ids of one individual that are spelt in several ways.
//!
//! An id is compared by its folded form ([`fold`]): without white space and characters that print nothing, NFKC with signs
//! and digits as ASCII has them, without case, and a number as numbers are compared. Only distinct ids are folded.

use std::hash::BuildHasher;

use arrow_array::ArrayRef;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use unicode_normalization::UnicodeNormalization;

use crate::ids::{prints_nothing, strings};
use crate::text::fold::{digit, plain_sign};

/// In what ids differ that fold to one another; [`Groups::differences`] has a bit of each.
pub const DIFFERENCES: [&str; 6] =
    ["white space", "invisible characters", "Unicode form or width", "letter case", "a trailing .0", "zero padding"];

const WHITE_SPACE: u8 = 1;
const INVISIBLE: u8 = 2;
const FORM: u8 = 4;
const CASE: u8 = 8;
const POINT_ZERO: u8 = 16;
const PADDING: u8 = 32;
const ALL: u8 = 63;

/// Ids that fold to one another; each spelling is told by the row where it stands first.
#[derive(Default)]
pub struct Groups {
    /// Rows of all groups; ascending within one, and groups are in the order of their first rows.
    pub rows: Vec<i64>,
    /// Group `g` is `rows[bounds[g]..bounds[g + 1]]`.
    pub bounds: Vec<i64>,
    /// In what the ids of each group differ from its first one.
    pub differences: Vec<u8>,
}

/// The form that ids are compared by, appended; empty for a blank id, and for no other. The form of a form is itself.
///
/// A number is compared without leading zeros: an id that is one, and the last digits of any other (`P-007` and `p-7`).
/// Of an id of digits a fraction of zeros goes too, which a table of floating numbers leaves (`12.0`).
pub fn fold(id: &str, to: &mut String) {
    let from = to.len();
    if id.bytes().all(|byte| byte.is_ascii_graphic()) {
        to.push_str(id);
        to[from..].make_ascii_lowercase();
    } else if id.is_ascii() {
        to.extend(id.chars().filter(char::is_ascii_graphic).map(|c| c.to_ascii_lowercase()));
    } else {
        to.push_str(&folded_letters(id, ALL));
    }
    fold_number(to, from, ALL);
}

/// With the steps chosen, in which [`DIFFERENCES`] says what goes.
fn folded(id: &str, steps: u8) -> String {
    let mut folded = folded_letters(id, steps);
    fold_number(&mut folded, 0, steps);
    folded
}

/// Until nothing changes: what is taken out may let characters compose, and a letter has another case once composed.
fn folded_letters(id: &str, steps: u8) -> String {
    let is_kept = |c: &char| match c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(c) {
        true => steps & WHITE_SPACE == 0,
        false => steps & INVISIBLE == 0 || !prints_nothing(*c),
    };
    let plain = |c| plain_sign(c).or_else(|| digit(c)).unwrap_or(c);
    let lower = |c: char| c.to_uppercase().flat_map(char::to_lowercase);
    let mut before = id.to_owned();
    loop {
        let kept = before.chars().filter(is_kept);
        let text: String = match (steps & FORM != 0, steps & CASE != 0) {
            (true, true) => kept.nfkc().map(plain).flat_map(lower).collect(),
            (true, false) => kept.nfkc().map(plain).collect(),
            (false, true) => kept.flat_map(lower).collect(),
            (false, false) => kept.collect(),
        };
        if text == before {
            return text;
        }
        before = text;
    }
}

fn fold_number(text: &mut String, from: usize, steps: u8) {
    let bytes = &text.as_bytes()[from..];
    if steps & POINT_ZERO != 0
        && let Some(whole) = bytes.iter().position(|byte| !byte.is_ascii_digit())
        && let [b'.', fraction @ ..] = &bytes[whole..]
        && whole > 0
        && !fraction.is_empty()
        && fraction.iter().all(|&byte| byte == b'0')
    {
        text.truncate(from + whole);
    }
    let bytes = &text.as_bytes()[from..];
    if steps & PADDING != 0 {
        let digits = bytes.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
        let most = (bytes.len() - digits).saturating_sub(1); // zero itself has a digit
        let padding = bytes[digits..].iter().take(most).take_while(|&&byte| byte == b'0').count();
        text.drain(from + digits..from + digits + padding);
    }
}

/// Groups of several spellings of one id; nulls are no ids.
///
/// Cost: a hash of every row, and a fold and 16 bytes for every distinct id.
pub fn groups(ids: &ArrayRef) -> Groups {
    let mut groups = Groups { bounds: vec![0], ..Groups::default() };
    for spellings in by_form(alike(ids)) {
        let (_, first) = spellings[0];
        groups.differences.push(spellings[1..].iter().fold(0, |bits, (_, other)| bits | differences(first, other)));
        groups.rows.extend(spellings.iter().map(|&(row, _)| row as i64));
        groups.bounds.push(groups.rows.len() as i64);
    }
    groups
}

/// First row and id of each spelling whose form has the hash of another's.
fn alike(ids: &ArrayRef) -> Vec<(usize, &str)> {
    let hasher = FixedState::default();
    let mut seen = HashSet::with_hasher(hasher.clone());
    let (mut distinct, mut form) = (Vec::new(), String::new());
    for (row, id) in strings(ids).enumerate() {
        if let Some(id) = id.filter(|&id| seen.insert(id)) {
            form.clear();
            fold(id, &mut form);
            distinct.push((hasher.hash_one(&form), row));
        }
    }
    drop(seen);
    distinct.sort_unstable();
    let several = distinct.chunk_by(|a, b| a.0 == b.0).filter(|alike| alike.len() > 1);
    let mut rows: Vec<usize> = several.flatten().map(|&(_, row)| row).collect();
    rows.sort_unstable();
    let mut rows = rows.into_iter().peekable();
    strings(ids).enumerate().filter_map(|(row, id)| Some((rows.next_if_eq(&row)?, id?))).collect()
}

/// The spellings of each form that has several, in the order of their first rows: two forms may have one hash.
fn by_form(alike: Vec<(usize, &str)>) -> Vec<Vec<(usize, &str)>> {
    let mut forms: Vec<_> = alike.into_iter().map(|(row, id)| (folded(id, ALL), row, id)).collect();
    forms.sort_unstable();
    let several = forms.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1);
    let mut groups: Vec<Vec<_>> = several.map(|same| same.iter().map(|&(_, row, id)| (row, id)).collect()).collect();
    groups.sort_unstable();
    groups
}

/// In what two different ids differ that fold to one another: each step that is needed, or the first that is enough.
fn differences(one: &str, other: &str) -> u8 {
    let meet = |steps| folded(one, steps) == folded(other, steps);
    let bits = || (0..DIFFERENCES.len()).map(|number| 1 << number);
    let needed = bits().filter(|&step: &u8| !meet(ALL & !step)).fold(0, |all, step| all | step);
    if needed != 0 {
        return needed;
    }
    // Two steps may take the same difference away: a space that does not break is one, and a form of another.
    bits().find(|&step: &u8| meet(step | (step - 1))).unwrap_or(ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(id: &str) -> String {
        let mut form = String::new();
        fold(id, &mut form);
        form
    }

    #[test]
    fn forms_of_hand_worked_ids() {
        for (id, expected) in [
            ("P001", "p1"),
            ("P-000", "p-0"),
            ("000", "0"),
            ("0012.00", "12"),
            ("0.0", "0"),
            ("12.5", "12.5"),
            ("1.0.0", "1.0.0"),
            ("A1.0", "a1.0"),
            ("a0b01c", "a0b01c"),
            (" 12 \u{a0}3\n", "123"),
            ("\u{feff}P\u{200b}1\0", "p1"),
            ("Ｐ００１", "p1"),
            ("٠٠٧", "7"),
            ("e\u{301}", "é"),
            ("STRASSE", "strasse"),
            ("ẞ", "ss"),
            ("A‑1", "a-1"),
            ("\u{3164}\u{2800}\u{200b}\t", ""),
        ] {
            assert_eq!(form(id), expected, "{id:?}");
        }
    }

    #[test]
    fn a_form_is_its_own_and_empty_for_what_prints_nothing_alone() {
        for c in '\0'..=char::MAX {
            for id in [c.to_string(), format!("e{c}\u{301}0{c}"), format!("{c}00{c}.0")] {
                let once = form(&id);
                assert_eq!(form(&once), once, "{id:?}");
                assert_eq!(once, folded(&id, ALL), "{id:?}");
                assert_eq!(once.is_empty(), id.chars().all(prints_nothing), "{id:?}");
            }
        }
    }
}
