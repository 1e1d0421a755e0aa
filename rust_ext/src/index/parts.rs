//! Parts: an index of documents that no one machine holds; what lies between the parts is a `groupBy` of Spark.
//!
//! Documents are cut into *parts* by a hash of their unit, so that every unit is in one part whole and supports of parts add
//! up. A part lists the distinct n-grams of one length of its own documents, with their supports there ([`Part::num_rows`],
//! [`Part::word`], [`Part::pair`]). They are summed over all parts, and every n-gram of at least `min_support` units gets an
//! *id* over all parts. The part is *answered* with support and id of those of its n-grams; of the others, what it knows of
//! them itself is enough.
//!
//! **Keys are exact.** A word is its bytes; a longer n-gram is the ids, over all parts, of the two n-grams that it is made of.
//! Answers are matched by these keys and never by position.
//!
//! **Counting is pruned by the answers.** An n-gram that fewer than `min_support` units use in all is not extended in any part,
//! however often the part itself holds it: level n + 1 of a part lists pairs of n-grams that are kept in all, as the whole
//! index does. Without that, a part would have to extend everything it sees, as nothing is frequent in a small part.
//!
//! **Ids have 64 bits**, numbers of a part 32: a thousand parts of four thousand million n-grams each can be counted.
//!
//! **Documents that are not counted** (of held-out individuals) are in parts too: their n-grams are sent with support 0 and
//! answered like the others, so that they can be protected. What no counted unit uses is in no table of all.
//!
//! **A part with the supports of all is an index** ([`Part::index`]): it knows every n-gram of its documents, so it protects
//! them as the whole index would, and nothing is broadcast.
//!
//! Cost of a part: 4 bytes a word of its text, and its own tables. It is kept as bytes between two levels (`state`).

mod state;
#[cfg(test)]
mod tests;

use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::index::levels::{Plan, Settings, Share, count_level};
use crate::index::limit::Room;
use crate::index::ngram_index::{Level, NgramIndex};
use crate::storage::spool::{Spool, Store};
use crate::storage::strings::Strings;
use crate::text::surface::Surface;

/// The documents of some units, and their n-grams so far.
pub struct Part {
    pub max_n: usize,
    pub surface: Surface,
    /// Of the index of all documents.
    pub min_support: u32,
    /// Of this part, those that are counted.
    pub num_units: u64,
    pub num_documents: u64,
    /// The length of the n-grams that `open` holds; `max_n + 1` once everything is answered.
    pub n: usize,
    /// So many of the first documents are counted. N-grams of the others are looked up in all, and raise no support.
    pub(super) num_counted: usize,
    /// Documents in the order of their units: words of each, and the number of its unit, ascending among the counted and
    /// among the others.
    pub(super) lens: Vec<u32>,
    pub(super) units: Vec<u32>,
    /// For each position of these documents the row + 1 of `open` of the n-gram that begins there, or 0.
    pub(super) stream: Vec<u32>,
    /// The words, and their occurrences in this part. Their supports are those of this part until they are answered.
    pub(super) words: Strings,
    pub(super) occurrences: Vec<u64>,
    pub(super) support: Vec<u32>,
    /// Levels that are answered: keys of this part, supports of all.
    pub(super) levels: Vec<(Vec<u64>, Vec<u32>)>,
    /// The level at hand: keys and supports of this part. Empty while words are at hand.
    pub(super) open: (Vec<u64>, Vec<u32>),
    /// The id in all of what a key in `open` names: by row of the word on level 2, by number among the kept above.
    pub(super) globals: Vec<u64>,
}

impl Part {
    /// Rows of the table at hand; 0 once everything is answered.
    pub fn num_rows(&self) -> usize {
        match self.n {
            1 => self.words.len(),
            n if n > self.max_n => 0,
            _ => self.open.0.len(),
        }
    }

    /// A row of the words: the word, its support and its occurrences in this part. Rows ascend by the bytes of the word.
    pub fn word(&self, row: usize) -> (&str, u32, u64) {
        (self.words.get(row), self.support[row], self.occurrences[row])
    }

    /// A row of a level above the words: the ids in all of the two n-grams that it is made of, and its support in this part.
    pub fn pair(&self, row: usize) -> (u64, u64, u32) {
        let key = self.open.0[row];
        (self.globals[(key >> 32) as usize], self.globals[key as u32 as usize], self.open.1[row])
    }

    /// The rows of these words; `Artifact` where one is not this part's.
    pub fn rows_of_words<'a>(&self, words: impl Iterator<Item = &'a str>) -> Result<Vec<usize>> {
        words.map(|word| self.words.find_sorted(word).filter(|_| self.n == 1).ok_or_else(foreign)).collect()
    }

    /// The rows of these pairs of ids; `Artifact` where one is not this part's.
    pub fn rows_of_pairs(&self, pairs: impl Iterator<Item = (u64, u64)>) -> Result<Vec<usize>> {
        let num_rows = if self.n == 1 { 0 } else { self.num_rows() };
        let mut rows = HashMap::with_capacity_and_hasher(num_rows, foldhash::fast::RandomState::default());
        for row in 0..num_rows {
            let (left, right, _) = self.pair(row);
            rows.insert((left, right), row);
        }
        pairs.map(|pair| rows.get(&pair).copied().ok_or_else(foreign)).collect()
    }

    /// Take the support and the id in all of these rows, which are those of at least `min_support` units; then count the next
    /// level, if there is one. A row that is not among them keeps the support of this part.
    pub fn answer(&mut self, answers: impl Iterator<Item = (usize, u32, u64)>) -> Result<()> {
        if self.n > self.max_n {
            return Err(Error::Policy("everything of this part is answered".into()));
        }
        let num_rows = self.num_rows();
        let of_words = self.n == 1;
        let mut support = if of_words { self.support.clone() } else { std::mem::take(&mut self.open.1) };
        // Row -> id in all, of those that are kept.
        let mut ids = vec![None; num_rows];
        for (row, sum, id) in answers {
            if sum < self.min_support || ids[row].replace(id).is_some() {
                return Err(Error::Artifact("an n-gram was answered twice, or is none that is kept".into()));
            }
            support[row] = sum;
        }
        if let Some(row) = (0..num_rows).find(|&row| ids[row].is_none() && support[row] >= self.min_support) {
            return Err(Error::Artifact(format!("row {row} of {num_rows} has no answer")));
        }
        // Row -> number + 1 among the kept, or 0; and the row of each of these numbers.
        let (mut kept, mut rows) = (vec![0u32; num_rows], Vec::new());
        for row in (0..num_rows).filter(|&row| ids[row].is_some()) {
            rows.push(row as u32);
            kept[row] = rows.len() as u32;
        }
        // Pairs name words by their rows, and longer n-grams by their number among the kept.
        self.globals = match of_words {
            true => ids.iter().map(|id| id.unwrap_or(0)).collect(),
            false => ids.iter().flatten().copied().collect(),
        };
        drop(ids);
        match of_words {
            true => self.support = support,
            false => self.levels.push((std::mem::take(&mut self.open.0), support)),
        }
        self.n += 1;
        if self.n > self.max_n {
            // Nothing reads them any more, and the part is kept until its documents are protected.
            (self.open, self.stream, self.lens, self.units) = Default::default();
            (self.globals, self.num_counted) = (Vec::new(), 0);
            return Ok(());
        }
        let mut weights = vec![0u32; rows.len()];
        for position in &mut self.stream {
            *position = position.checked_sub(1).map_or(0, |row| kept[row as usize]);
            if let Some(id) = position.checked_sub(1) {
                weights[id as usize] = weights[id as usize].saturating_add(1);
            }
        }
        drop(kept);
        let names = if self.n == 2 { rows } else { Vec::new() };
        let plan = Plan::new(&Spool::from_slice(&weights)?, names, usize::MAX)?;
        // Those that are counted first, so that the counts after them are theirs.
        let (counted, others) = self.units.split_at(self.num_counted);
        let has_counted = !counted.is_empty();
        let num_words: usize = self.lens[..self.num_counted].iter().map(|&len| len as usize).sum();
        let mut shares = Vec::new();
        if has_counted {
            shares.push(Flat {
                lens: &self.lens[..self.num_counted],
                units: counted,
                stream: &self.stream[..num_words],
            });
        }
        if !others.is_empty() {
            shares.push(Flat {
                lens: &self.lens[self.num_counted..],
                units: others,
                stream: &self.stream[num_words..],
            });
        }
        let num_of_subset = usize::from(has_counted && !others.is_empty());
        // All that a part sees has a rank: whether it is kept is for the answers to say.
        let settings = Settings { min_support: 1, num_of_subset, next: self.n < self.max_n };
        let found = count_level(shares, &plan, settings, &Room::unlimited(), &Store::in_memory())?;
        let support = match (has_counted, num_of_subset) {
            (true, 0) => found.level.support.to_vec()?,
            (true, _) => found.support_of_subset.to_vec()?,
            (false, _) => vec![0; found.level.len()],
        };
        self.open = (found.level.keys.to_vec()?, support);
        self.stream = found.streams.iter().map(Spool::to_vec).collect::<Result<Vec<_>>>()?.concat();
        Ok(())
    }

    /// The index of this part with the supports of all, of which there are so many units and documents. Its words and n-grams
    /// are those of the part; it protects the part's documents as the index of all documents does.
    pub fn index(self, num_units: u64, num_documents: u64) -> Result<NgramIndex> {
        if self.n <= self.max_n {
            return Err(Error::Policy(format!("{}-grams of this part are not answered", self.n)));
        }
        let mut index = NgramIndex::new(self.max_n, self.surface, self.min_support, self.words);
        (index.num_units, index.num_documents) = (num_units, num_documents);
        (index.support, index.occurrences) = (self.support, self.occurrences);
        for (keys, support) in self.levels {
            let store = Store::in_memory();
            let mut level = Level::new(&store);
            level.extend(&keys, &support)?;
            index.levels.push(level.into());
        }
        Ok(index)
    }
}

/// The documents of a part, one after the other.
struct Flat<'a> {
    lens: &'a [u32],
    units: &'a [u32],
    stream: &'a [u32],
}

impl Share for Flat<'_> {
    fn documents(self, mut visit: impl FnMut(u32, &[u32]) -> Result<()>) -> Result<()> {
        let mut rest = self.stream;
        for (&unit, &len) in self.units.iter().zip(self.lens) {
            let (ids, later) = rest.split_at(len as usize);
            visit(unit, ids)?;
            rest = later;
        }
        Ok(())
    }
}

fn foreign() -> Error {
    Error::Artifact("an answer names an n-gram that is none of this part".into())
}
