//! Gazetteers: lists of names looked up in texts, for everyone or for one individual's own documents.
//!
//! Both text and patterns are compared case-folded (exactly, if asked). Folding is done character by character with a map back,
//! so offsets always mean the original text. A match must stand free of letters and digits.

use aho_corasick::{AhoCorasick, MatchKind};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memchr::memmem::Finder;
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::rules::stands_free;
use crate::spans::Found;
use crate::text::Texts;

/// Text as it is compared, and where each of its bytes stood.
struct Folded {
    text: String,
    /// Byte in the original of each folded byte, and of the end; empty when they are the same.
    origin: Vec<u32>,
}

fn fold(text: &str, exact: bool) -> Folded {
    if exact {
        return Folded { text: text.to_owned(), origin: Vec::new() };
    }
    if text.is_ascii() {
        return Folded { text: text.to_ascii_lowercase(), origin: Vec::new() };
    }
    let mut folded = Folded { text: String::with_capacity(text.len()), origin: Vec::with_capacity(text.len() + 1) };
    for (at, c) in text.char_indices() {
        for lower in c.to_lowercase() {
            folded.text.push(lower);
        }
        folded.origin.resize(folded.text.len(), at as u32);
    }
    folded.origin.push(text.len() as u32);
    folded
}

impl Folded {
    /// The original bounds of a match, or None when it cuts a character that folds to several.
    fn original(&self, text: &str, start: usize, end: usize) -> Option<(usize, usize)> {
        if self.origin.is_empty() {
            return Some((start, end));
        }
        let cuts = |at: usize| {
            at > 0 && at < self.text.len() && self.origin[at] == self.origin[at - 1] && self.text.is_char_boundary(at)
        };
        if cuts(start) || cuts(end) {
            return None;
        }
        let (start, end) = (self.origin[start] as usize, self.origin[end] as usize);
        (text.is_char_boundary(start) && text.is_char_boundary(end)).then_some((start, end))
    }
}

/// A global list.
pub struct Gazetteer {
    automaton: AhoCorasick,
    exact: bool,
}

impl Gazetteer {
    pub fn new(patterns: &Texts, exact: bool) -> Result<Self> {
        let folded: Vec<String> = (0..patterns.len()).map(|i| fold(patterns.get(i).trim(), exact).text).collect();
        if let Some(row) = folded.iter().position(|pattern| pattern.chars().count() < 2) {
            return Err(Error::Corpus(format!("gazetteer: row {row} has fewer than 2 characters")));
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&folded)
            .map_err(|error| Error::Corpus(format!("gazetteer: {error}")))?;
        Ok(Self { automaton, exact })
    }

    /// Every free-standing occurrence of every pattern; `source` is the pattern's number.
    pub fn find(&self, texts: &Texts) -> Vec<Found> {
        (0..texts.len())
            .into_par_iter()
            .flat_map_iter(|row| {
                let text = texts.get(row);
                let folded = fold(text, self.exact);
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
                let folded = fold(text, false);
                for &source in rows {
                    let value = fold(values.get(source as usize).trim(), false).text;
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
