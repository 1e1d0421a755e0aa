//! Rules: identifiers that have a form, found in linear time.
//!
//! A rule is a regular expression over the plain folding of a text (`text::fold::fold_plain`: ASCII, so patterns know neither accents
//! nor full-width digits), tried only where a word, a number, `+` or `(` begins, and a check of what it matched (a checksum, a
//! calendar, the words around it). What it finds must stand free: its first and last letter or digit touch no other.
//!
//! `scan` finds the places, `filter` says which rules can match there, `split` where a group begins, `fields` where a form announces a value, `checks` and `numbers` hold what an expression cannot
//! say; the other files are the table of rules, one subject each.

mod ages;
mod checks;
mod columns;
mod contacts;
mod cued;
mod dates;
mod fields;
mod filter;
mod hospitals;
mod numbers;
mod people;
mod places;
mod scan;
mod split;
mod tables;
mod values;

use std::sync::LazyLock;

use crate::detect::common::CommonWords;
use crate::error::{Error, Result};
use crate::text::spans::Found;
use crate::text::texts::Texts;

pub use fields::Fields;
use filter::Mask;

/// How sure a rule is of its label. A hit within a surer one, or within one of its own label, is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Some number: nothing says of what.
    General,
    /// The form says it.
    Form,
    /// A cue word or a telling form says it.
    Sure,
}

/// What a rule's expression matched, with the text around it.
pub struct Hit<'a> {
    text: &'a [u8],
    start: usize,
    end: usize,
    /// It is written in letters with spaces between them, as no word of a sentence is.
    spaced: bool,
    /// How the corpus writes its words, where that is known.
    common: Option<&'a CommonWords>,
}

impl<'a> Hit<'a> {
    fn piece(&self) -> &'a [u8] {
        &self.text[self.start..self.end]
    }

    /// The digits that the piece begins with.
    fn leading_digits(&self) -> &'a [u8] {
        let piece = self.piece();
        &piece[..piece.iter().take_while(|byte| byte.is_ascii_digit()).count()]
    }

    fn before(&self) -> &'a [u8] {
        &self.text[self.start.saturating_sub(scan::LIMIT)..self.start]
    }

    fn after(&self) -> &'a [u8] {
        &self.text[self.end..self.text.len().min(self.end + scan::LIMIT)]
    }
}

/// A form of identifier.
pub struct Rule {
    pub name: &'static str,
    pub label: &'static str,
    /// What it finds, for a reader.
    pub finds: &'static str,
    rank: Rank,
    /// It is tried where a field's name announces its label, not at every word.
    of_field: bool,
    /// Anchored where it is tried. The groups are what is reported; without a group, all of it.
    pattern: &'static str,
    /// Whether the text before a place may have a match behind it: said sooner than an expression can be tried.
    behind: fn(&[u8]) -> bool,
    /// Whether a match is one; it may give up a part at the end.
    accepts: fn(&mut Hit) -> bool,
}

const fn rule(
    name: &'static str,
    label: &'static str,
    rank: Rank,
    finds: &'static str,
    pattern: &'static str,
    accepts: fn(&mut Hit) -> bool,
) -> Rule {
    Rule { name, label, finds, rank, of_field: false, pattern, behind: anything, accepts }
}

/// A rule of the value behind a field's name.
const fn field(
    name: &'static str,
    label: &'static str,
    rank: Rank,
    finds: &'static str,
    pattern: &'static str,
    accepts: fn(&mut Hit) -> bool,
) -> Rule {
    Rule { name, label, finds, rank, of_field: true, pattern, behind: anything, accepts }
}

/// Where begins what stands behind the last of these signs: at the start where there is none.
#[inline]
fn behind_last(text: &[u8], is_sign: impl Fn(&u8) -> bool) -> usize {
    text.iter().rposition(is_sign).map_or(0, |at| at + 1)
}

/// The same of several signs in a row, such as two spaces.
#[inline]
fn behind_last_row<const N: usize>(text: &[u8], row: &[u8; N]) -> usize {
    text.windows(N).rposition(|window| window == row).map_or(0, |at| at + N)
}

fn always(_: &mut Hit) -> bool {
    true
}

const fn anything(_: &[u8]) -> bool {
    true
}

const TABLES: [&[Rule]; 10] = [
    contacts::RULES,
    numbers::RULES,
    cued::RULES,
    dates::RULES,
    places::RULES,
    ages::RULES,
    people::RULES,
    columns::RULES,
    hospitals::RULES,
    values::RULES,
];

/// Every rule.
pub static RULES: LazyLock<Vec<&'static Rule>> = LazyLock::new(|| TABLES.into_iter().flatten().collect());

const _: () = {
    let (mut num_rules, mut table) = (0, 0);
    while table < TABLES.len() {
        num_rules += TABLES[table].len();
        table += 1;
    }
    assert!(num_rules <= Mask::BITS as usize, "there are more rules than bits of `filter::Mask`: make it a wider one");
};

/// Parts of expressions by name: those that are written out, and those that the word lists have.
static PARTS: LazyLock<Vec<(&'static str, String)>> = LazyLock::new(|| {
    let written = [
        dates::PARTS,
        cued::PARTS,
        places::PARTS,
        ages::PARTS,
        people::PARTS,
        columns::PARTS,
        hospitals::PARTS,
        contacts::PARTS,
        values::PARTS,
    ];
    let mut parts = dates::listed_parts();
    parts.extend(places::listed_parts());
    parts.extend(people::listed_parts());
    parts.extend([("%KEY%", columns::key()), ("%HOSPITAL%", hospitals::head())]);
    parts.extend(written.into_iter().flatten().map(|&(name, part)| (name, part.to_owned())));
    parts
});

/// An expression with the names of its parts (`%MONTH%`) replaced, and those of their parts.
fn expand(pattern: &str) -> String {
    let named = |at: usize| PARTS.iter().find(|(name, _)| pattern[at..].starts_with(name)).map(|part| (at, part));
    let Some((at, (name, part))) = pattern.match_indices('%').find_map(|(at, _)| named(at)) else {
        return pattern.to_owned();
    };
    [&pattern[..at], &expand(part), &expand(&pattern[at + name.len()..])].concat()
}

/// Matches of the rules with these labels (every rule for None), by document, then start.
///
/// `rows` are the user's names of fields with their labels; `common` says which words behind a titled name are none; `filtered` false tries every rule at every place: the
/// definition, for tests.
pub fn scan(
    texts: &Texts,
    labels: Option<&[String]>,
    rows: &[(String, String)],
    common: Option<&CommonWords>,
    filtered: bool,
) -> Result<Vec<Found>> {
    let wanted = |rule: &Rule| labels.is_none_or(|labels| labels.iter().any(|label| label == rule.label));
    for label in labels.into_iter().flatten() {
        if !RULES.iter().any(|rule| rule.label == label) {
            return Err(Error::Policy(format!("rules: unknown label {label:?}")));
        }
    }
    let mut active: Mask = 0;
    for (number, rule) in RULES.iter().enumerate() {
        active |= Mask::from(wanted(rule)) << number;
    }
    if rows.is_empty() {
        return scan::scan(texts, active, Fields::shipped()?, common, filtered);
    }
    scan::scan(texts, active, &Fields::with(rows)?, common, filtered)
}
