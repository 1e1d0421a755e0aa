//! Counts: how often words were seen and by how many units, by number of the word.
//!
//! The counts are columns and not rows, because an index keeps both as columns of its table and takes them without a copy.

use crate::storage::buffer::prefetch;
use crate::storage::strings::Strings;

/// How often one word was seen, and how many units are known to use it so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Count {
    pub occurrences: u64,
    pub support: u32,
}

/// The counts of words by number. The two columns are equally long. Words past their end have counts of 0: where nothing is
/// counted (no subset), there is nothing to allocate.
#[derive(Clone, Default)]
pub struct Counts {
    pub occurrences: Vec<u64>,
    pub support: Vec<u32>,
}

impl Counts {
    pub fn get(&self, number: usize) -> Count {
        match self.support.get(number) {
            Some(&support) => Count { occurrences: self.occurrences[number], support },
            None => Count::default(),
        }
    }

    pub fn add(&mut self, number: usize, count: Count) {
        if count == Count::default() {
            return;
        }
        if number >= self.support.len() {
            self.resize(number + 1);
        }
        self.occurrences[number] += count.occurrences;
        self.support[number] += count.support;
    }

    /// Have a word's count in the cache soon; a hint.
    #[inline(always)]
    pub fn fetch(&self, number: usize) {
        if let (Some(occurrences), Some(support)) = (self.occurrences.get(number), self.support.get(number)) {
            prefetch(occurrences);
            prefetch(support);
        }
    }

    pub fn resize(&mut self, len: usize) {
        self.occurrences.resize(len, 0);
        self.support.resize(len, 0);
    }
}

/// Words, and the counts of each: in all documents, and in those of the subset of units alone. `subset` may be shorter than
/// `whole`, and is empty where there is no subset.
#[derive(Clone, Default)]
pub struct Counted {
    pub words: Strings,
    pub whole: Counts,
    pub subset: Counts,
}

impl Counted {
    /// No words yet, with room for these.
    pub fn with_capacity(words: &Strings, has_subset: bool) -> Self {
        let counts = |len| Counts { occurrences: Vec::with_capacity(len), support: Vec::with_capacity(len) };
        let subset = if has_subset { counts(words.len()) } else { Counts::default() };
        Self { words: Strings::with_capacity(words.len(), words.as_str().len()), whole: counts(words.len()), subset }
    }

    /// Add a word, or add to the last one where it is the same; returns its number. Words must come in order: that is how
    /// equal surfaces of one sorted dictionary, and of several that are merged, become one word.
    pub fn take(&mut self, word: &str, whole: Count, subset: Count) -> usize {
        if self.words.is_empty() || self.words.get(self.words.len() - 1) != word {
            self.words.push(word);
        }
        let last = self.words.len() - 1;
        self.whole.add(last, whole);
        self.subset.add(last, subset);
        last
    }
}
