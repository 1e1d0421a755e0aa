//! Gazetteers: lists of names looked up in texts, for everyone or for one individual's own documents.
//!
//! Texts and patterns are compared as `surface` says: without case, and (fold) without accents, since records say `Élodie` where
//! notes say `ELODIE`. White space of any kind and length is one space, so a name broken over two lines is found. Folding is
//! done character by character with a map back, so offsets always mean the original text. A match must stand free of letters
//! and digits.

use aho_corasick::{AhoCorasick, MatchKind};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memchr::memmem::Finder;
use rayon::prelude::*;
use unicode_normalization::char::{decompose_canonical, is_combining_mark};

use crate::error::{Error, Result};
use crate::rules::stands_free;
use crate::spans::Found;
use crate::surface::{Surface, is_invisible};
use crate::text::Texts;

/// Text as it is compared, and where each of its bytes stood.
struct Folded {
    text: String,
    /// Byte in the original of each folded byte, and of the end; empty when they are the same.
    origin: Vec<u32>,
}

fn fold(text: &str, surface: Surface) -> Folded {
    let only_single_spaces = !text.bytes().any(|byte| matches!(byte, b'\t'..=b'\r')) && !text.contains("  ");
    if text.is_ascii() && only_single_spaces {
        let text = if surface == Surface::Exact { text.to_owned() } else { text.to_ascii_lowercase() };
        return Folded { text, origin: Vec::new() };
    }
    let mut folded = Folded { text: String::with_capacity(text.len()), origin: Vec::with_capacity(text.len() + 1) };
    for (at, c) in text.char_indices() {
        if c.is_whitespace() {
            if !folded.text.ends_with(' ') {
                folded.text.push(' ');
            }
        } else if c.is_ascii() {
            folded.text.push(if surface == Surface::Exact { c } else { c.to_ascii_lowercase() });
        } else {
            decompose_canonical(c, |part| push_folded(&mut folded.text, part, surface));
        }
        folded.origin.resize(folded.text.len(), at as u32);
    }
    folded.origin.push(text.len() as u32);
    folded
}

/// One character of a canonical decomposition, so that composed and decomposed letters meet.
fn push_folded(to: &mut String, c: char, surface: Surface) {
    match (surface, c) {
        (Surface::Exact, _) => to.push(c),
        (Surface::Fold, _) if is_combining_mark(c) || is_invisible(c) => {}
        (Surface::Fold, '\u{2018}' | '\u{2019}' | '\u{2bc}') => to.push('\''),
        (Surface::Fold, '\u{2010}' | '\u{2011}') => to.push('-'),
        _ => to.extend(c.to_uppercase().flat_map(char::to_lowercase)),
    }
}

impl Folded {
    /// The original bounds of a match, or None when it cuts a character: one that folds to several, or one and its accent.
    fn original(&self, text: &str, start: usize, end: usize) -> Option<(usize, usize)> {
        if self.origin.is_empty() {
            return Some((start, end));
        }
        let cuts = |at: usize| {
            at > 0 && at < self.text.len() && self.origin[at] == self.origin[at - 1] && self.text.is_char_boundary(at)
        };
        if cuts(start) || cuts(end) || self.text[end..].starts_with(is_combining_mark) {
            return None;
        }
        let (start, end) = (self.origin[start] as usize, self.origin[end] as usize);
        (text.is_char_boundary(start) && text.is_char_boundary(end)).then_some((start, end))
    }
}

/// A global list.
pub struct Gazetteer {
    automaton: AhoCorasick,
    surface: Surface,
}

impl Gazetteer {
    pub fn new(patterns: &Texts, surface: Surface) -> Result<Self> {
        let folded: Vec<String> = (0..patterns.len()).map(|i| fold(patterns.get(i).trim(), surface).text).collect();
        if let Some(row) = folded.iter().position(|pattern| pattern.chars().count() < 2) {
            return Err(Error::Corpus(format!("gazetteer: row {row} has fewer than 2 characters")));
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&folded)
            .map_err(|error| Error::Corpus(format!("gazetteer: {error}")))?;
        Ok(Self { automaton, surface })
    }

    /// Every free-standing occurrence of every pattern; `source` is the pattern's number.
    pub fn find(&self, texts: &Texts) -> Vec<Found> {
        (0..texts.len())
            .into_par_iter()
            .flat_map_iter(|row| {
                let text = texts.get(row);
                let folded = fold(text, self.surface);
                let mut found: Vec<Found> = self
                    .automaton
                    .find_overlapping_iter(&folded.text)
                    .filter_map(|hit| {
                        let (start, end) = folded.original(text, hit.start(), hit.end())?;
                        stands_free(text, start, end).then_some(Found {
                            document: row as u32,
                            start,
                            end,
                            source: hit.pattern().as_u32(),
                        })
                    })
                    .collect();
                found.sort_unstable_by_key(|found| (found.start, found.end, found.source));
                found
            })
            .collect()
    }
}

/// Values of record fields in the documents of the individual they belong to; `source` is the value's number.
pub fn find_records(texts: &Texts, units: &[u32], record_units: &[u32], values: &Texts) -> Result<Vec<Found>> {
    if units.len() != texts.len() || record_units.len() != values.len() {
        return Err(Error::Corpus("records: one individual is needed for each document and each value".into()));
    }
    let mut of_unit: HashMap<u32, Vec<u32>, FixedState> = HashMap::default();
    for (row, &unit) in record_units.iter().enumerate() {
        of_unit.entry(unit).or_default().push(row as u32);
    }
    Ok((0..texts.len())
        .into_par_iter()
        .flat_map_iter(|row| {
            let mut found = Vec::new();
            if let Some(rows) = of_unit.get(&units[row]) {
                let text = texts.get(row);
                let folded = fold(text, Surface::Fold);
                for &source in rows {
                    let value = fold(values.get(source as usize).trim(), Surface::Fold).text;
                    if value.chars().count() < 2 {
                        continue;
                    }
                    for start in Finder::new(&value).find_iter(folded.text.as_bytes()) {
                        if let Some((start, end)) = folded.original(text, start, start + value.len())
                            && stands_free(text, start, end)
                        {
                            found.push(Found { document: row as u32, start, end, source });
                        }
                    }
                }
                found.sort_unstable_by_key(|found| (found.start, found.end, found.source));
            }
            found
        })
        .collect())
}
