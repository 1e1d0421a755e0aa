//! Word flags: the protection of documents whose words are numbers (`numbers`) and whose spans are ranges of words.
//!
//! The same answer as from the text (`protect`, and `detect::blacklist`), in integers. n-grams are looked up, or their supports stand
//! beside the numbers (`capped`); words alone need neither.

use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use rayon::prelude::*;

use crate::detect::blacklist::is_small_number;
use crate::error::{Error, Result};
use crate::index::capped::{KEPT, Planes, RARE, Starts, are_found, num_planes};
use crate::index::lookup::Found;
use crate::index::ngram_index::NgramIndex;
use crate::index::numbers::{Stored, UNKNOWN};
use crate::index::protect::{DIRECT, Finder, Settings};

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

    fn num_words_of(&self, document: usize) -> usize {
        (self.offsets[document + 1] - self.offsets[document]) as usize
    }

    /// Words of those that count.
    fn num_kept(&self, documents: Range<usize>) -> usize {
        documents.filter(|&document| self.kept[document]).map(|document| self.num_words_of(document)).sum()
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
    everywhere: Vec<bool>,
    /// Whether some unit has it.
    of_some: Vec<bool>,
    of_unit: HashSet<(u32, u32), FixedState>,
}

impl NumberBlacklist {
    pub fn new(numbered: &NgramIndex) -> Self {
        let words = &numbered.words;
        let mut unlisted: HashMap<String, u32, FixedState> = HashMap::default();
        let alike = (0..words.len())
            .map(|number| {
                let word = words.get(number);
                let seen = numbered.surface.apply_to_seen(word);
                if is_small_number(&seen) {
                    UNKNOWN
                } else if *seen == *word {
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
        Self { alike, everywhere: none.clone(), of_some: none, of_unit: HashSet::default() }
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
                    } else if scope == CORPUS {
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

    /// How far a word reaches.
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
    /// By number, and last of a word without one: see [`known_words`].
    pub known: &'a [u8],
    pub settings: Settings,
}

/// Bits of a word that reaches beyond the spans that show it, beside [`KEPT`] and [`RARE`].
const OF_INDIVIDUAL: u8 = 4;
const OF_CORPUS: u8 = 8;

/// By number, and last of a word without one, what decides alone: [`KEPT`], [`RARE`] and how far the word reaches.
pub fn known_words(found: &[Found], settings: Settings, blacklist: &NumberBlacklist) -> Vec<u8> {
    let known_by_support = |support: u32| {
        let is_rare = settings.max_word_support.is_none_or(|limit| support < limit);
        u8::from(support >= settings.k) * KEPT + u8::from(is_rare) * RARE
    };
    let known = found.iter().enumerate().map(|(number, found)| {
        let reaches = match blacklist.reach(number) {
            CORPUS => OF_CORPUS,
            INDIVIDUAL => OF_INDIVIDUAL,
            _ => 0,
        };
        known_by_support(found.support) | reaches
    });
    known.chain([known_by_support(0)]).collect()
}

/// Documents that one thread takes at a time.
const SHARE: usize = 64;

/// Of each word its flags, and the lengths of the minimal identifying n-grams that start there (bit n - 1); zero for documents that do
/// not count.
pub struct Flagged {
    pub flags: Vec<u8>,
    pub starts: Vec<u8>,
    /// Supports of the words of documents that count, where they were to be kept (`capped`).
    pub planes: Vec<Vec<u8>>,
}

/// Where supports come from.
pub enum SupportsFrom<'a> {
    Planes(Planes<'a>),
    /// They are looked up, and those of documents that count are kept if that is asked for.
    Index {
        keeps: bool,
    },
}

/// What one thread works on.
struct Share<'a> {
    rows: Range<usize>,
    flags: &'a mut [u8],
    starts: &'a mut [u8],
    planes: Planes<'a>,
    kept: Vec<&'a mut [u8]>,
}

pub fn flag_words(
    documents: NumberedDocuments<'_>,
    supports: &Supports<'_>,
    blacklist: &NumberBlacklist,
    from: SupportsFrom<'_>,
) -> Result<Flagged> {
    documents.check()?;
    let Supports { index, settings, .. } = supports;
    settings.check(index)?;
    let num_kept = documents.num_kept(0..documents.kept.len());
    let (mut planes, keeps) = match from {
        SupportsFrom::Planes(planes) => (planes, None),
        SupportsFrom::Index { .. } if settings.n == 1 => (Planes(Vec::new()), None),
        SupportsFrom::Index { keeps } => (Planes(Vec::new()), Some(keeps)),
    };
    let pairs = if keeps.is_some() { index.pairs(settings.n, settings.k)? } else { Vec::new() };
    if keeps.is_none() {
        planes.check(*settings, num_kept)?;
    }
    let num_made = if keeps == Some(true) && are_found(&pairs, *settings) { num_planes(settings.n) } else { 0 };
    let num_words = documents.num_words();
    let mut made =
        Flagged { flags: vec![0; num_words], starts: vec![0; num_words], planes: vec![vec![0; num_kept]; num_made] };
    let mut shares = Vec::new();
    let (mut flags_left, mut starts_left) = (&mut made.flags[..], &mut made.starts[..]);
    let mut made_left: Vec<&mut [u8]> = made.planes.iter_mut().map(|plane| &mut plane[..]).collect();
    for first in (0..documents.kept.len()).step_by(SHARE) {
        let rows = first..(first + SHARE).min(documents.kept.len());
        let num = (documents.offsets[rows.end] - documents.offsets[rows.start]) as usize;
        let num_kept = documents.num_kept(rows.clone());
        let (flags, starts) = (split_off(&mut flags_left, num), split_off(&mut starts_left, num));
        let kept = made_left.iter_mut().map(|left| split_off(left, num_kept)).collect();
        shares.push(Share { rows, flags, starts, planes: planes.split_off(num_kept), kept });
    }
    shares.into_par_iter().for_each(|share| {
        let (mut finder, mut by_planes) = (Finder::new(&pairs, *settings), Starts::new(*settings));
        let (mut numbers, mut known) = (Vec::new(), Vec::new());
        let Share { rows, flags: mut flags_left, starts: mut starts_left, mut planes, kept: mut kept_left } = share;
        for document in rows {
            let num_words = documents.num_words_of(document);
            let (flags, starts) = (split_off(&mut flags_left, num_words), split_off(&mut starts_left, num_words));
            if !documents.kept[document] {
                continue;
            }
            numbers.resize(num_words, 0);
            documents.numbers.read(document, &mut numbers);
            let num_known = supports.known.len() - 1;
            known.clear();
            known.extend(numbers.iter().map(|&number| supports.known[(number as usize).min(num_known)]));
            if keeps.is_some() {
                let found = |&number: &u32| supports.found.get(number as usize).copied().unwrap_or_default();
                let mut kept: Vec<&mut [u8]> = kept_left.iter_mut().map(|left| split_off(left, num_words)).collect();
                finder.minimal_starts_of(numbers.iter().map(found), starts, &mut kept);
                finder.apply(starts, flags);
            } else {
                by_planes.flag(&known, &planes.split_off(num_words), starts, flags);
            }
            for (words, _) in documents.spans_of(document) {
                flags[words.start as usize..words.end as usize].iter_mut().for_each(|flag| *flag |= DIRECT);
            }
            let unit = documents.units[document];
            for ((flag, &known), &number) in flags.iter_mut().zip(&known).zip(&numbers) {
                if known & OF_CORPUS != 0 || known & OF_INDIVIDUAL != 0 && blacklist.is_of_unit(number, unit) {
                    *flag |= DIRECT;
                }
            }
        }
    });
    Ok(made)
}

fn split_off<'a>(left: &mut &'a mut [u8], num: usize) -> &'a mut [u8] {
    let (own, rest) = std::mem::take(left).split_at_mut(num);
    *left = rest;
    own
}
