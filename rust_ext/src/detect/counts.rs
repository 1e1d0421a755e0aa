//! Counts: how a corpus writes each of its words, in a table that is filled in the order of texts.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::detect::few::Documents;
use crate::storage::key::Hashed;
use crate::storage::key_table::KeyTable;

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
    pub documents: Documents,
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
    fn see(&mut self, written: Written, document: Documents) {
        // Without a branch, which a processor could not foresee.
        let count = &mut self.of[written as usize & 3];
        *count = count.saturating_add(u32::from(written != Written::Other));
        self.all = self.all.saturating_add(1);
        self.documents = self.documents.then(if written.is_small() { document } else { Documents::default() });
    }

    fn merge(&mut self, other: &Self) {
        self.of.iter_mut().zip(other.of).for_each(|(own, other)| *own = own.saturating_add(other));
        self.all = self.all.saturating_add(other.all);
        self.documents = self.documents.merged(other.documents);
    }
}

/// Counts of words, beside their keys: a rare word costs one look into memory.
#[derive(Default)]
pub struct Table {
    short: KeyTable<Counts>,
    long: HashMap<Box<str>, Counts, FixedState>,
    /// Documents counted so far.
    pub num_documents: u32,
}

impl Table {
    #[inline(always)]
    pub fn prefetch(&self, key: Hashed) {
        self.short.prefetch(key);
    }

    /// Count a word that is written so in a document, given its key if it has one.
    #[inline(always)]
    pub fn see(&mut self, key: Option<Hashed>, word: &str, written: Written, document: Documents) {
        match key {
            Some(key) => self.short.entry(key).see(written, document),
            None => self.change_long(word, |counts| counts.see(written, document)),
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
