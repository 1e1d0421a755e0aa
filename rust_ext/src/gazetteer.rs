//! Gazetteers: lists of names looked up in texts, for everyone or for one individual's own documents.
//!
//! Texts and patterns are compared as `surface` says: without case, and (fold) without accents, since records say `Élodie` where
//! notes say `ELODIE` (see `fold`). A match must stand free of letters and digits.

use aho_corasick::{AhoCorasick, MatchKind};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memchr::memmem::Finder;
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::fold::fold;
use crate::rules::stands_free;
use crate::spans::Found;
use crate::surface::Surface;
use crate::text::Texts;

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
