//! Common words: which names are also words of the language, by how this corpus writes them.
//!
//! A word that stands in small letters more often than with a capital inside a sentence is common (`will`, `brown`); one that
//! does so in a twentieth of the cases is mixed. Texts without case say nothing. A list of the user's is common as it stands.
//! Memory grows with the vocabulary: some 40 bytes a distinct word.
//!
//! Names of individuals are asked after another way (`bearers`), since a corpus that writes names small says nothing of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use rayon::prelude::*;

use crate::detect::bearers::{Bearers, number_of};
use crate::detect::context::{has_case, is_announced, is_capital, starts_sentence};
use crate::error::{Error, Result};
use crate::pool::rows;
use crate::storage::key::Key;
use crate::text::pieces::View;
use crate::text::surface::Surface;
use crate::text::texts::Texts;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Not known as a word: a name wherever it stands.
    Name,
    /// A name where it has a capital inside a sentence.
    Mixed,
    /// A name only where something else says so.
    Common,
}

/// Occurrences in small letters and with a capital inside a sentence, in texts with case, and all there are; `u32::MAX`
/// small ones for a word of a list.
type Counts = (u32, u32, u32);

/// Counts of words, beside their keys: a rare word costs one look into memory.
#[derive(Default)]
struct Table {
    short: HashMap<Key, Counts, FixedState>,
    long: HashMap<Box<str>, Counts, FixedState>,
}

impl Table {
    #[inline]
    fn add_at(&mut self, text: &str, start: usize, end: usize, counts: Counts) {
        match Key::of(text.as_bytes(), start, end) {
            Some(key) => add(self.short.entry(key).or_default(), counts),
            None => match self.long.get_mut(&text[start..end]) {
                Some(known) => add(known, counts),
                None => _ = self.long.insert(text[start..end].into(), counts),
            },
        }
    }

    fn merge(&mut self, mut other: Self) {
        if other.len() > self.len() {
            std::mem::swap(self, &mut other);
        }
        other.short.into_iter().for_each(|(key, counts)| add(self.short.entry(key).or_default(), counts));
        other.long.into_iter().for_each(|(word, counts)| add(self.long.entry(word).or_default(), counts));
    }

    fn get(&self, word: &str) -> Option<Counts> {
        match Key::of(word.as_bytes(), 0, word.len()) {
            Some(key) => self.short.get(&key).copied(),
            None => self.long.get(word).copied(),
        }
    }

    fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }
}

fn add(counts: &mut Counts, (small, capital, all): Counts) {
    *counts = (counts.0.saturating_add(small), counts.1.saturating_add(capital), counts.2.saturating_add(all));
}

pub struct CommonWords {
    total: Table,
    /// What threads have counted since the last `merge`; each writes to its own.
    parts: Vec<Mutex<Table>>,
    bearers: Bearers,
    version: u64,
}

/// How many states of `CommonWords` there have been.
static VERSIONS: AtomicU64 = AtomicU64::new(0);

impl Default for CommonWords {
    fn default() -> Self {
        Self::new()
    }
}

const NUM_PARTS: usize = 64;

impl CommonWords {
    pub fn new() -> Self {
        let parts = std::iter::repeat_with(Mutex::default).take(NUM_PARTS).collect();
        Self { total: Table::default(), parts, bearers: Bearers::default(), version: 0 }
    }

    /// Names that individuals have, before documents are counted.
    pub fn add_bearers(&mut self, individuals: &Texts, names: &Texts) -> Result<()> {
        if individuals.len() != names.len() {
            return Err(Error::Corpus("common words: one individual is needed for each name".into()));
        }
        self.bearers.add(individuals, names);
        Ok(())
    }

    /// Count the words of documents; they tell once merged. Several batches may be counted at a time.
    pub fn add(&self, texts: &Texts, individuals: Option<&Texts>) -> Result<()> {
        if individuals.is_some_and(|individuals| individuals.len() != texts.len()) {
            return Err(Error::Corpus("common words: one individual is needed for each document".into()));
        }
        let individuals = individuals.filter(|_| !self.bearers.is_empty());
        let bearers = &self.bearers;
        let parts = &self.parts;
        rows(texts.len()).for_each(|row| {
            let text = texts.get(row);
            let cased = has_case(text);
            let thread = rayon::current_thread_index().unwrap_or(0) % NUM_PARTS;
            let mut part = parts[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let view = View::new(text, Surface::Fold);
            let individual = individuals.map(|individuals| number_of(individuals.get(row)));
            for (number, &(start, end)) in view.pieces.iter().enumerate() {
                let (text, start, end) = (view.text(), start as usize, end as usize);
                if end - start < 2 || text.as_bytes()[start].is_ascii_digit() {
                    continue;
                }
                let counts = match cased.then(|| is_capital(&view, number)).flatten() {
                    Some(false) => (1, 0, 1),
                    Some(true) if !starts_sentence(&view, number) => (0, 1, 1),
                    _ => (0, 0, 1),
                };
                part.add_at(text, start, end, counts);
                if let Some(individual) = individual
                    && counts.0 == 1
                {
                    bearers.saw(text, start, end, individual, || is_announced(&view, number));
                }
            }
        });
        Ok(())
    }

    /// Add words that are common whatever the corpus says.
    pub fn add_list(&mut self, words: &Texts) {
        for row in 0..words.len() {
            let view = View::new(words.get(row), Surface::Fold);
            for number in 0..view.len() {
                self.total.add_at(view.piece(number), 0, view.piece(number).len(), (u32::MAX, 0, 0));
            }
        }
        self.version = VERSIONS.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// Bring together what threads have counted, so that they can be asked for.
    pub fn merge(&mut self) {
        for part in &mut self.parts {
            self.total.merge(std::mem::take(part.get_mut().unwrap_or_else(PoisonError::into_inner)));
        }
        self.version = VERSIONS.fetch_add(1, Ordering::Relaxed) + 1;
    }

    pub fn len(&self) -> usize {
        self.total.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A number of its own for each state that can be asked; 0 where nothing is known.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What a folded word is.
    pub fn class(&self, word: &str) -> Class {
        match self.counts(word) {
            (small, ..) if small < MIN_SMALL => Class::Name,
            (small, capital, _) if small > capital => Class::Common,
            (small, capital, _) if small >= capital / 19 => Class::Mixed,
            _ => Class::Name,
        }
    }

    fn counts(&self, word: &str) -> Counts {
        self.total.get(word).unwrap_or_default()
    }

    /// How often a folded word stands in the documents.
    pub fn num_occurrences(&self, word: &str) -> u64 {
        self.counts(word).2.into()
    }

    /// Whether a folded word that is a name of individuals is a word of the language too: it is listed, or is written small
    /// as a name is not, and by many who do not have it.
    pub fn is_language(&self, name: &str) -> bool {
        self.counts(name).0 == u32::MAX || self.bearers.is_word(name) && self.class(name) != Class::Name
    }

    /// Whether a folded word has been seen with a capital inside a sentence.
    pub fn has_capital(&self, word: &str) -> bool {
        self.counts(word).1 > 0
    }

    /// Whether a folded word has been seen in small letters at all.
    pub fn is_word(&self, word: &str) -> bool {
        self.counts(word).0 > 0
    }
}

/// Once is a slip of the pen.
const MIN_SMALL: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_by_hand() {
        let mut common = CommonWords::new();
        common
            .add(
                &Texts::of(&[
                    "Will you say what you will? It will do.",
                    "all small: young young",
                    "So Ann Grant has a grant.",
                ]),
                None,
            )
            .unwrap();
        common
            .add(
                &Texts::of(&["See the brown one, a brown dog, of Mr. Brown, of Mrs. Brown and Dr. Brown, the grant"]),
                None,
            )
            .unwrap();
        common.add_list(&Texts::of(&["Petit", "van"]));
        common.merge();
        let classes = ["will", "young", "grant", "brown", "ann", "petit", "nobody"].map(|word| common.class(word));
        use Class::{Common, Mixed, Name};
        assert_eq!(classes, [Common, Name, Common, Mixed, Name, Common, Name]);
        assert!(common.is_word("you") && !common.is_word("young") && !common.is_word("ann"));
    }
}
