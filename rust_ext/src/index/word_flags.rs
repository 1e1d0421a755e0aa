//! Word flags: the protection of documents whose words are numbers (`numbers`) and whose spans are ranges of words.
//!
//! The same answer as from the text (`protect`, and `detect::blacklist`), in integers.

use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use rayon::prelude::*;

use crate::detect::blacklist::is_small_number;
use crate::error::{Error, Result};
use crate::index::lookup::Found;
use crate::index::ngram_index::NgramIndex;
use crate::index::numbers::{Stored, UNKNOWN};
use crate::index::protect::{DIRECT, Finder, Settings, shares};

/// Words by number, and what marks them, of some documents.
#[derive(Clone, Copy)]
pub struct NumberedDocuments<'a> {
    pub numbers: Stored<'a>,
    /// Words of document d are `offsets[d]..offsets[d + 1]`.
    pub offsets: &'a [i64],
    /// The unit of each document.
    pub units: &'a [u32],
    /// Documents that count.
    pub kept: &'a [bool],
    /// Spans of document d are `spans.offsets[d]..spans.offsets[d + 1]`.
    pub spans: WordSpans<'a>,
}

/// Spans by the words of their document that they meet, `first..end`.
#[derive(Clone, Copy)]
pub struct WordSpans<'a> {
    pub offsets: &'a [i64],
    pub firsts: &'a [u32],
    pub ends: &'a [u32],
    /// How far each reaches: [`OCCURRENCE`], [`INDIVIDUAL`] or [`CORPUS`].
    pub scopes: &'a [u8],
}

/// Beside the flags of protection: the word is too common to identify anybody.
pub const WIDESPREAD: u8 = 4;

/// A span protects its own words, and no other.
pub const OCCURRENCE: u8 = 0;
/// It protects its words in every document of the unit.
pub const INDIVIDUAL: u8 = 1;
/// It protects its words in every document.
pub const CORPUS: u8 = 2;

impl NumberedDocuments<'_> {
    fn check(&self) -> Result<()> {
        let bad =
            || Err(Error::Artifact("word numbers: they do not fit their documents and spans; make them again".into()));
        let num_documents = self.kept.len();
        let fits = |offsets: &[i64], num: usize| {
            offsets.len() == num_documents + 1
                && offsets[0] == 0
                && offsets.is_sorted()
                && offsets[num_documents] == num as i64
        };
        let spans = self.spans;
        if self.units.len() != num_documents
            || !fits(self.offsets, self.num_words())
            || !fits(spans.offsets, spans.firsts.len())
            || spans.firsts.len() != spans.ends.len()
            || spans.firsts.len() != spans.scopes.len()
        {
            return bad();
        }
        for document in 0..num_documents {
            let num_words = (self.offsets[document + 1] - self.offsets[document]) as u32;
            if self.spans_of(document).any(|(words, _)| words.start > words.end || words.end > num_words) {
                return bad();
            }
        }
        Ok(())
    }

    fn num_words(&self) -> usize {
        self.offsets.last().map_or(0, |&end| end.max(0) as usize)
    }

    /// Words of a document that each of its spans meets, and the span's scope.
    fn spans_of(&self, document: usize) -> impl Iterator<Item = (Range<u32>, u8)> {
        let WordSpans { offsets, firsts, ends, scopes } = self.spans;
        let own = offsets[document] as usize..offsets[document + 1] as usize;
        own.map(move |span| (firsts[span]..ends[span], scopes[span]))
    }
}

/// Words that are protected beyond the span that showed them: `detect::blacklist` by numbers.
pub struct NumberBlacklist {
    /// The word that stands for all that are seen alike (characters that print nothing aside); [`UNKNOWN`]: never spread.
    alike: Vec<u32>,
    /// Words that are too common for the corpus: they reach as far as [`INDIVIDUAL`].
    widespread: Vec<bool>,
    everywhere: Vec<bool>,
    /// Whether some unit has it.
    of_some: Vec<bool>,
    of_unit: HashSet<(u32, u32), FixedState>,
}

impl NumberBlacklist {
    /// `found` are by number the words of `by`, the index that protects.
    pub fn new(numbered: &NgramIndex, by: &NgramIndex, found: &[Found]) -> Self {
        let words = &numbered.words;
        let mut widespread = vec![false; words.len()];
        let mut unlisted: HashMap<String, u32, FixedState> = HashMap::default();
        let alike = (0..words.len())
            .map(|number| {
                let word = words.get(number);
                let seen = numbered.surface.apply_to_seen(word);
                if is_small_number(&seen) {
                    UNKNOWN
                } else if *seen == *word {
                    widespread[number] = by.is_widespread(word, found[number].support);
                    number as u32
                } else {
                    match words.find_sorted(&seen) {
                        Some(number) => number as u32,
                        None => *unlisted.entry(seen.into_owned()).or_insert(number as u32),
                    }
                }
            })
            .collect();
        let none = vec![false; words.len()];
        Self { alike, widespread, everywhere: none.clone(), of_some: none, of_unit: HashSet::default() }
    }

    /// Different surfaces.
    pub fn len(&self) -> usize {
        self.everywhere.iter().zip(&self.of_some).filter(|&(&all, &some)| all || some).count()
    }

    /// Add the words of the spans of documents.
    pub fn add(&mut self, documents: NumberedDocuments<'_>) -> Result<()> {
        documents.check()?;
        for document in (0..documents.kept.len()).filter(|&document| documents.kept[document]) {
            for (words, scope) in documents.spans_of(document).filter(|&(_, scope)| scope != OCCURRENCE) {
                for word in words {
                    let number = documents.numbers.get(document, word as usize);
                    let alike = self.alike.get(number as usize).copied().unwrap_or(UNKNOWN);
                    if alike == UNKNOWN {
                        if number == UNKNOWN {
                            return Err(unknown());
                        }
                    } else if scope == CORPUS && !self.widespread[alike as usize] {
                        self.everywhere[alike as usize] = true;
                    } else {
                        self.of_some[alike as usize] = true;
                        self.of_unit.insert((documents.units[document], alike));
                    }
                }
            }
        }
        Ok(())
    }

    /// By number, how far each word reaches beyond the spans that show it, [`OCCURRENCE`] (no farther), [`INDIVIDUAL`] or [`CORPUS`],
    /// and [`WIDESPREAD`] where it is that too.
    pub fn reaches(&self) -> Vec<u8> {
        let is_widespread = |number: usize| u8::from(self.widespread[number]) * WIDESPREAD;
        (0..self.alike.len()).map(|number| self.reach(number) | is_widespread(number)).collect()
    }

    fn reach(&self, number: usize) -> u8 {
        match self.alike[number] {
            UNKNOWN => OCCURRENCE,
            alike if self.everywhere[alike as usize] => CORPUS,
            alike if self.of_some[alike as usize] => INDIVIDUAL,
            _ => OCCURRENCE,
        }
    }

    fn is_of_unit(&self, number: u32, unit: u32) -> bool {
        self.of_unit.contains(&(unit, self.alike[number as usize]))
    }
}

fn unknown() -> Error {
    Error::Artifact("word numbers: a document that counts holds a word that the index does not; make them again".into())
}

/// Supports that decide, of the index whose rows the numbers are and of the one that protects.
pub struct Supports<'a> {
    pub index: &'a NgramIndex,
    /// By number: see [`NgramIndex::found_by_number`].
    pub found: &'a [Found],
    pub settings: Settings,
}

/// Flags of each word, also [`WIDESPREAD`], and the lengths of the minimal identifying n-grams that start there (bit n - 1); zero for
/// documents that do not count. `reaches` is, by number, how far a word reaches ([`NumberBlacklist::reaches`]).
pub fn flag_words(
    documents: NumberedDocuments<'_>,
    supports: &Supports<'_>,
    blacklist: &NumberBlacklist,
    reaches: &[u8],
) -> Result<(Vec<u8>, Vec<u8>)> {
    documents.check()?;
    let Supports { index, found, settings } = supports;
    settings.check(index)?;
    let pairs = index.pairs(settings.n, settings.k)?;
    let num_words = documents.num_words();
    let (mut flags, mut starts) = (vec![0; num_words], vec![0; num_words]);
    shares(documents.offsets, &mut flags, &mut starts).into_par_iter().with_max_len(1).for_each(|share| {
        let (mut finder, mut numbers) = (Finder::new(&pairs, *settings), Vec::new());
        share.for_each(documents.offsets, |document, flags, starts| {
            if !documents.kept[document] {
                return;
            }
            numbers.resize(flags.len(), 0);
            documents.numbers.read(document, &mut numbers);
            let known = |&number: &u32| found.get(number as usize).copied().unwrap_or_default();
            finder.minimal_starts_of(numbers.iter().map(known), starts);
            finder.apply(starts, flags);
            for (words, _) in documents.spans_of(document) {
                flags[words.start as usize..words.end as usize].iter_mut().for_each(|flag| *flag |= DIRECT);
            }
            let unit = documents.units[document];
            for (flag, &number) in flags.iter_mut().zip(&numbers) {
                let reach = reaches.get(number as usize).copied().unwrap_or_default();
                *flag |= reach & WIDESPREAD;
                match reach & !WIDESPREAD {
                    CORPUS => *flag |= DIRECT,
                    INDIVIDUAL if blacklist.is_of_unit(number, unit) => *flag |= DIRECT,
                    _ => {}
                }
            }
        });
    });
    Ok((flags, starts))
}
