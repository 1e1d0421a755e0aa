//! Common words: which names are also words of the language, by how this corpus writes them.
//!
//! A word that stands in small letters more often than with a capital inside a sentence is common (`will`, `brown`); one that
//! does so in a twentieth of the cases is mixed. Texts and lines without case say nothing, and no word in capitals alone does. A list of the user's is common as it stands.
//! Memory grows with the vocabulary: some 50 to 110 bytes a distinct word.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use rayon::prelude::*;

use crate::detect::context::{is_capital, starts_sentence};
use crate::detect::letter_case::{Lines, has_case, is_all_capitals, is_in_address};
use crate::error::{Error, Result};
use crate::pool::rows;
use crate::storage::key::Hashed;
use crate::storage::key_table::KeyTable;
use crate::text::pieces::View;
use crate::text::surface::Surface;
use crate::text::texts::Texts;
use crate::text::words::Bounds;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Not known as a word: a name wherever it stands.
    Name,
    /// A name where it has a capital inside a sentence.
    Mixed,
    /// A name only where something else says so.
    Common,
}

pub struct CommonWords {
    total: Table,
    /// What threads have counted since the last `merge`; each writes to its own.
    parts: Vec<Mutex<Table>>,
    version: u64,
}

/// How many states of `CommonWords` there have been.
static VERSIONS: AtomicU64 = AtomicU64::new(0);

const NUM_PARTS: usize = 64;
/// Pieces that are told to the table before they are counted.
const AHEAD: usize = 8;

impl CommonWords {
    pub fn new() -> Self {
        let parts = std::iter::repeat_with(Mutex::default).take(NUM_PARTS).collect();
        Self { total: Table::default(), parts, version: 0 }
    }

    /// Count the words of documents; they tell once merged. Several batches may be counted at a time.
    pub fn add(&self, texts: &Texts, individuals: Option<&Texts>) -> Result<()> {
        if individuals.is_some_and(|individuals| individuals.len() != texts.len()) {
            return Err(Error::Corpus("common words: one individual is needed for each document".into()));
        }
        rows(texts.len()).for_each(|row| {
            let individual = individuals.map(|individuals| FixedState::default().hash_one(individuals.get(row)));
            self.count(&View::new(texts.get(row), Surface::Fold), individual);
        });
        Ok(())
    }

    /// Count the words of a document, as it is folded and cut, of an individual if it counts whose they are.
    pub fn count(&self, view: &View, individual: Option<u64>) {
        let cased = has_case(view.original);
        let thread = rayon::current_thread_index().unwrap_or(0) % NUM_PARTS;
        let mut part = self.parts[thread].lock().unwrap_or_else(PoisonError::into_inner);
        part.num_documents = part.num_documents.saturating_add(1);
        let document = DocFrequency::one(part.num_documents);
        let owner = individual.map_or(NOBODY, |individual| individual as u32 | 1);
        let mut lines = Lines::new(view.original);
        let folded = view.text();
        let key = |&(start, end): &Bounds| Hashed::of(folded.as_bytes(), start as usize, end as usize);
        // The keys of the next pieces, in turn; the table has been told of them.
        let mut ahead: [Option<Hashed>; AHEAD] = std::array::from_fn(|at| view.pieces().get(at).and_then(key));
        for (number, &(start, end)) in view.pieces().iter().enumerate() {
            let next = view.pieces().get(number + AHEAD).and_then(key);
            if let Some(next) = next {
                part.prefetch(next);
            }
            let key = std::mem::replace(&mut ahead[number % AHEAD], next);
            let (start, end) = (start as usize, end as usize);
            if end - start < 2 || folded.as_bytes()[start].is_ascii_digit() {
                continue;
            }
            let has_case = lines.has_case(view, number);
            let written = match cased.then(|| is_capital(view, number)).flatten() {
                Some(false) if has_case && !is_in_address(folded, start, end) => Written::Small,
                Some(false) if !has_case => Written::Typed,
                Some(true) if has_case && !is_all_capitals(view, number) => match starts_sentence(view, number) {
                    true => Written::Start,
                    false => Written::Capital,
                },
                _ => Written::Other,
            };
            let word = &folded[start..end];
            part.see(key, word, written, document, owner);
        }
    }

    /// Add words that are common whatever the corpus says.
    pub fn add_list(&mut self, words: &Texts) {
        for row in 0..words.len() {
            let view = View::new(words.get(row), Surface::Fold);
            for number in 0..view.len() {
                self.total.list(view.piece(number));
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

    /// DocFrequency that were counted before the last `merge`.
    pub fn num_documents(&self) -> u32 {
        self.total.num_documents
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A number for each state that can be asked; 0 where nothing is known.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What a folded word is.
    pub fn class(&self, word: &str) -> Class {
        let counts = self.counts(word);
        let (small, capital, start, typed) = (counts.small(), counts.capital(), counts.start(), counts.typed());
        if small >= MIN_SMALL && small > capital {
            return Class::Common;
        }
        // Whoever types all in small letters types names so too, but the rest of the corpus gives these a capital.
        if typed >= MIN_SMALL && typed / TYPED_A_CAPITAL > capital.saturating_add(start) {
            return Class::Common;
        }
        if small >= MIN_SMALL && small >= capital / 19 { Class::Mixed } else { Class::Name }
    }

    fn counts(&self, word: &str) -> Counts {
        self.total.get(word).unwrap_or_default()
    }

    /// How often a folded word stands in the documents.
    pub fn num_occurrences(&self, word: &str) -> u64 {
        self.counts(word).all.into()
    }

    /// Whether a folded word is one of the user's list.
    pub fn is_listed(&self, word: &str) -> bool {
        self.counts(word).small() == u32::MAX
    }

    /// Whether a folded word is common and many documents have it in small letters: as a name of individuals, which dialogues and
    /// careless notes write small too, has few. Many are three, and one in fifty, and are no more than 200.
    pub fn is_widespread(&self, word: &str) -> bool {
        let counts = self.counts(word);
        let many = (self.total.num_documents / 50).clamp(MIN_DOCUMENTS, MAX_DOCUMENTS);
        self.class(word) == Class::Common && (counts.small() == u32::MAX || counts.documents.num() >= many)
    }

    /// Whether a folded word stands in small letters in a line with case, and more often so in all than with a capital.
    pub fn is_mostly_small(&self, word: &str) -> bool {
        let counts = self.counts(word);
        let small = counts.small();
        small > 0 && small.saturating_add(counts.typed()) > counts.capital().saturating_add(counts.start())
    }

    /// Whether a folded word has been seen in small letters in lines without case alone and in one document, and in capitals alone
    /// nowhere, as an abbreviation is.
    pub fn is_typed_in_one(&self, word: &str) -> bool {
        let counts = self.counts(word);
        let others = counts.typed().saturating_add(counts.capital()).saturating_add(counts.start());
        counts.small() == 0 && counts.documents.num() == 1 && counts.all == others
    }

    /// Whether the documents of several individuals have a folded word, as far as individuals were told.
    pub fn is_of_several(&self, word: &str) -> bool {
        self.counts(word).owner == SEVERAL
    }

    /// Whether documents were counted, and none has a folded word with a capital.
    pub fn has_no_capital(&self, word: &str) -> bool {
        let counts = self.counts(word);
        self.total.num_documents > 0 && counts.capital() == 0 && counts.start() == 0
    }

    /// Whether a folded word has been seen in small letters at all.
    pub fn is_word(&self, word: &str) -> bool {
        let counts = self.counts(word);
        counts.small() > 0 || counts.typed() > 0
    }
}

/// Once is a slip of the pen.
const MIN_SMALL: u32 = 2;
/// A word stands this many times in lines without case for each capital it has elsewhere, or a name of the corpus does not.
const TYPED_A_CAPITAL: u32 = 3;
const MIN_DOCUMENTS: u32 = 3;
const MAX_DOCUMENTS: u32 = 200;
/// Owners of a word: none that is known, and more than one. An individual's number is odd.
const NOBODY: u32 = 0;
const SEVERAL: u32 = 2;

// Counts: how a corpus writes each of its words, in a table that is filled in the order of texts.

/// How a word is written in one place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// In small letters, in a line with case.
    Small,
    /// With a capital inside a sentence, in a line with case; not in capitals alone.
    Capital,
    /// The same at the start of a sentence.
    Start,
    /// In small letters, in a line without case.
    Typed,
    /// In any other way.
    Other,
}

impl Written {
    pub fn is_small(self) -> bool {
        matches!(self, Self::Small | Self::Typed)
    }
}

/// How the corpus writes a word.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Small, capital, start and typed, by the number of `Written`.
    of: [u32; 4],
    /// All there are.
    pub all: u32,
    /// Of those in small letters.
    pub documents: DocFrequency,
    /// The individual whose documents have it, `NOBODY` or `SEVERAL`.
    owner: u32,
}

impl Counts {
    /// In small letters, in lines with case; `u32::MAX` for a word of a list.
    pub fn small(&self) -> u32 {
        self.of[0]
    }

    pub fn capital(&self) -> u32 {
        self.of[1]
    }

    pub fn start(&self) -> u32 {
        self.of[2]
    }

    pub fn typed(&self) -> u32 {
        self.of[3]
    }

    /// One more, in the next document of this thread or in the same.
    #[inline(always)]
    fn see(&mut self, written: Written, document: DocFrequency, owner: u32) {
        // Without a branch, which a processor could not foresee.
        let count = &mut self.of[written as usize & 3];
        *count = count.saturating_add(u32::from(written != Written::Other));
        self.all = self.all.saturating_add(1);
        self.documents = self.documents.then(if written.is_small() { document } else { DocFrequency::default() });
        self.owner = Self::owner_of(self.owner, owner);
    }

    fn merge(&mut self, other: &Self) {
        self.of.iter_mut().zip(other.of).for_each(|(own, other)| *own = own.saturating_add(other));
        self.all = self.all.saturating_add(other.all);
        self.documents = self.documents.merged(other.documents);
        self.owner = Self::owner_of(self.owner, other.owner);
    }

    #[inline(always)]
    fn owner_of(one: u32, other: u32) -> u32 {
        match (one, other) {
            (NOBODY, owner) | (owner, NOBODY) => owner,
            _ if one == other => one,
            _ => SEVERAL,
        }
    }
}

/// Counts of words, next to their keys: a rare word costs one look into memory.
#[derive(Default)]
pub struct Table {
    short: KeyTable<Counts>,
    long: HashMap<Box<str>, Counts, FixedState>,
    /// DocFrequency counted so far.
    pub num_documents: u32,
}

impl Table {
    #[inline(always)]
    pub fn prefetch(&self, key: Hashed) {
        self.short.prefetch(key);
    }

    /// Count a word that is written so in a document, given its key if it has one.
    #[inline(always)]
    pub fn see(&mut self, key: Option<Hashed>, word: &str, written: Written, document: DocFrequency, owner: u32) {
        match key {
            Some(key) => self.short.entry(key).see(written, document, owner),
            None => self.change_long(word, |counts| counts.see(written, document, owner)),
        }
    }

    /// Change the counts of a word that has no key.
    #[cold]
    fn change_long(&mut self, word: &str, change: impl FnOnce(&mut Counts)) {
        match self.long.get_mut(word) {
            Some(known) => change(known),
            None => {
                let mut counts = Counts::default();
                change(&mut counts);
                self.long.insert(word.into(), counts);
            }
        }
    }

    /// Have a word as one of a list.
    pub fn list(&mut self, word: &str) {
        let list = |counts: &mut Counts| counts.of[Written::Small as usize] = u32::MAX;
        match Hashed::of(word.as_bytes(), 0, word.len()) {
            Some(key) => list(self.short.entry(key)),
            None => self.change_long(word, list),
        }
    }

    pub fn merge(&mut self, mut other: Self) {
        if other.len() > self.len() {
            std::mem::swap(self, &mut other);
        }
        self.num_documents = self.num_documents.saturating_add(other.num_documents);
        other.short.into_pairs().for_each(|(key, counts)| self.short.entry(key.into()).merge(&counts));
        other.long.into_iter().for_each(|(word, counts)| self.long.entry(word).or_default().merge(&counts));
    }

    pub fn get(&self, word: &str) -> Option<Counts> {
        match Hashed::of(word.as_bytes(), 0, word.len()) {
            Some(key) => self.short.get(key),
            None => self.long.get(word).copied(),
        }
    }

    pub fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }
}

// Few: in how many documents a word stands, as far as that must be told.

/// DocFrequency with a word in small letters, up to 255, and in the other three bytes the number of the last of them: a thread
/// that counts sees each of its documents once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocFrequency(u32);

impl DocFrequency {
    const LAST: u32 = 0xff_ffff;

    /// One document, with a number from 1 on.
    pub fn one(number: u32) -> Self {
        Self((1 << 24) | (number % Self::LAST + 1))
    }

    pub fn num(self) -> u32 {
        self.0 >> 24
    }

    /// Those of a thread, with the next one of it.
    #[inline]
    pub fn then(self, other: Self) -> Self {
        // Without a branch, which a processor could not foresee.
        let is_next = u32::from(other.0 != 0) & u32::from((self.0 ^ other.0) & Self::LAST != 0);
        let last = if other.0 == 0 { self.0 } else { other.0 } & Self::LAST;
        Self((self.num() + is_next).min(255) << 24 | last)
    }

    /// Those of two threads.
    pub fn merged(self, other: Self) -> Self {
        Self((self.num() + other.num()).min(255) << 24)
    }
}

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

    #[test]
    fn widespread_words_are_those_of_many_documents() {
        for num_batches in [1, 4] {
            let mut common = CommonWords::new();
            for _ in 0..num_batches {
                let texts = ["The pain and miller, miller, miller, miller.", "So the pain is bad and bad."];
                common.add(&Texts::of(&texts[..2]), None).unwrap();
            }
            common.add(&Texts::of(&["A pain in the note of Mr. Miller"]), None).unwrap();
            common.merge();
            // Three documents with one batch; miller stands in one, and in four with four batches.
            let found = ["pain", "the", "miller", "bad", "mr"].map(|word| common.is_widespread(word));
            assert_eq!(
                found,
                if num_batches == 1 { [true, false, false, false, false] } else { [true, true, true, true, false] }
            );
        }
        let mut listed = CommonWords::new();
        listed.add_list(&Texts::of(&["Petit"]));
        assert!(listed.is_widespread("petit"));
    }

    #[test]
    fn documents_of_threads_add_up() {
        let thread =
            |numbers: &[u32]| numbers.iter().fold(DocFrequency::default(), |all, &n| all.then(DocFrequency::one(n)));
        assert_eq!(thread(&[1, 1, 2, 2, 2, 5]).num(), 3);
        assert_eq!(thread(&[1, 2]).merged(thread(&[1, 2, 3])).num(), 5);
        assert_eq!(thread(&(1..400).collect::<Vec<_>>()).num(), 255);
    }
}
