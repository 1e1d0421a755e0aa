//! Columns: names and ages behind a field's name without a colon, at the beginning of a line or of a column, or on the next line.
//!
//! "Name Deshawn Okafor   DOB ..", "NOM LE GOFF   Prénom Erwan", "Patient" and below it "Robert Kiefer". A colon announces a value
//! wherever it stands; without one the name of the field must begin its column, and the value must fill it.

use std::sync::LazyLock;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::ages::is_possible;
use super::values::is_field_name;
use super::{Hit, Rank, Rule, behind_last, behind_last_row, rule};
use crate::word_lists::{WordSet, Words, alternatives, words};

pub const PARTS: &[(&str, &str)] = &[("%YEARS%", r"(?:(?i:anos|ans|jahre|yrs?|y/?o|y|a|j\.)(?: ?\d{1,2} ?m)?)")];

/// `%KEY%`: the names of columns as forms write them, and in capitals.
pub fn key() -> String {
    let names = words("names of columns").flat_map(|name| [name.to_owned(), name.to_ascii_uppercase()]);
    format!("(?:{})", alternatives(names))
}

pub const RULES: &[Rule] = &[
    Rule {
        behind: begins_column,
        ..rule(
            "name_column",
            "NAME",
            Rank::Form,
            "names behind a field's name without a colon, in a column or on the next line",
            r"%KEY%(?: {1,3}|\t|\r?\n)((?:(?:[MD]\.|D\.a\.?|Da\.) {0,2})?(?:%TITLE%\b[.:]? {0,2}){0,6}(?:%PARTICLES%){0,2}%NAME%(?:, ?%NAME%)?)",
            is_name_of_column,
        )
    },
    Rule {
        behind: |before| begins_column(before) || before.ends_with(b"("),
        ..rule(
            "age_column",
            "AGE",
            Rank::Form,
            "ages behind Age, Edad, Alter without a colon, and those that fill a column: 62 y, 58 a, 27 J.",
            r"(?:Age|AGE|Edad|EDAD|Alter|ALTER) {1,3}\d{1,3}(?: ?%YEARS%)?|\d{1,3} ?%YEARS%",
            is_age_of_column,
        )
    },
];

/// What `%KEY%` matches.
static KEYS: LazyLock<HashSet<String, FixedState>> =
    LazyLock::new(|| words("names of columns").map(str::to_ascii_lowercase).collect());
/// Fields whose name may be a word of a sentence or of a heading too: a name of two words at least stands behind them.
static COMMON: Words = LazyLock::new(|| WordSet::marked("fields without a colon", "word"));
/// Names of other fields, as a table's head has them side by side.
static OTHER_FIELDS: Words = LazyLock::new(|| WordSet::marked("fields without a colon", "other"));

/// Whether a word is the name of a field.
pub fn is_key_word(word: &[u8]) -> bool {
    OTHER_FIELDS.has_any_case(word) || COMMON.has_any_case(word)
}

/// A line, two spaces or a cell begin here.
fn begins_column(before: &[u8]) -> bool {
    let edge = before.strip_suffix(b" ").unwrap_or(before);
    matches!(edge, [] | [.., b'\n' | b'\t' | b'|']) || before.ends_with(b"  ")
}

/// A line, two spaces, a cell or a remark end it.
fn ends_column(after: &[u8]) -> bool {
    matches!(after, [] | [b'\n' | b'\r' | b'\t' | b'|' | b',', ..] | [b' ', b' ' | b'|' | b'(' | b'*' | b'"', ..])
}

/// What stands in the column before a value: the name of its field.
fn key_before<'a>(hit: &Hit<'a>) -> &'a [u8] {
    let before = hit.before().trim_ascii_end();
    let column = behind_last_row(before, b"  ");
    let sign = behind_last(before, |byte| matches!(byte, b'\n' | b'\t' | b'|'));
    before[column.max(sign)..].trim_ascii_start()
}

fn is_name_of_column(hit: &mut Hit) -> bool {
    let key = key_before(hit).to_ascii_lowercase();
    let is_key = str::from_utf8(&key).is_ok_and(|key| KEYS.contains(key));
    if !is_key || !is_field_name(hit) || !ends_column(hit.after()) {
        return false;
    }
    let is_other = |word: &[u8]| OTHER_FIELDS.has_any_case(word);
    let mut words = hit.piece().split(|byte| matches!(byte, b' ' | b',')).filter(|word| word.len() > 1);
    let several = hit.piece().contains(&b' ');
    // "Name of procedure", "NOMBRE DEL FICHERO"
    let first = hit.piece().split(|byte| *byte == b' ').next().unwrap_or_default();
    let goes_on = [&b"of"[..], b"du", b"des", b"del", b"der", b"and", b"et", b"y", b"und"]
        .iter()
        .any(|word| first.eq_ignore_ascii_case(word));
    (several || !COMMON.has(&key)) && !goes_on && !words.any(is_other)
}

fn is_age_of_column(hit: &mut Hit) -> bool {
    let named = hit.piece().iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let spaces = hit.piece()[named..].iter().take_while(|byte| **byte == b' ').count();
    // "08/02/2013 (6 A)"
    let dated = hit
        .before()
        .strip_suffix(b"(")
        .is_some_and(|before| before.trim_ascii_end().last().is_some_and(u8::is_ascii_digit));
    if dated && hit.after().starts_with(b")") && hit.piece().iter().any(u8::is_ascii_alphabetic) {
        return is_possible(hit);
    }
    if !begins_column(hit.before()) || !ends_column(hit.after()) || hit.after().starts_with(b",") {
        return false;
    }
    hit.start += named + spaces;
    let unit = hit.piece().iter().any(u8::is_ascii_alphabetic);
    // A number and a unit alone fill a column that others follow or precede on the line.
    let delimited = hit.before().ends_with(b"  ") || hit.before().ends_with(b"| ") || hit.before().ends_with(b"\t");
    (named > 0 || unit && delimited) && is_possible(hit)
}
