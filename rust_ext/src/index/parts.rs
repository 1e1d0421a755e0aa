//! Parts: an index of documents that no one machine holds, counted by exchanging sorted tables.
//!
//! Documents are cut into *parts* by a hash of their unit, so that every unit is in one part whole and supports of parts add
//! up. A part counts a level of its own documents and *cuts* its sorted table into runs at the bounds of *ranges* (`run`). A
//! range merges one run of each part, sums what is equal and numbers it (`merge`): that is its stretch of the table of all. It
//! *answers by position*: for each row of a run, the support and the number that it has in all. No key travels back.
//!
//! **Numbers of a part lead to numbers of all in order.** Words stand in byte order here and there; pairs by (left, right),
//! and these are numbers that keep their order. So a part never sorts again, and its runs are sorted as they are cut.
//!
//! **Counting is pruned by the answers.** An n-gram that fewer than `min_support` units use in all is not extended in any part,
//! however often the part itself holds it: level n + 1 of a part lists pairs of n-grams that are kept in all, as the whole
//! index does. Without that, a part would have to extend everything it sees, as nothing is frequent in a small part.
//!
//! **Numbers of all have 64 bits**, those of a part 32: a thousand parts of four thousand million n-grams each can be counted.
//!
//! **Documents that are not counted** (of held-out individuals) are in parts too: their n-grams are sent with support 0 and
//! answered like the others, so that they can be protected. What no counted unit uses is in no table of all.
//!
//! **A part with the supports of all is an index** ([`Part::index`]): it knows every n-gram of its documents, so it protects
//! them as the whole index would, and nothing is broadcast.
//!
//! Cost of a part: 4 bytes a word of its text, and its own tables. It is kept as bytes between two levels (`state`).

mod merge;
mod run;
mod state;
#[cfg(test)]
mod tests;

pub use merge::{Merged, merge};
pub use run::{Key, Kind, Row, read_answers, write_runs};

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
    num_counted: usize,
    /// Documents in the order of their units: words of each, and the number of its unit, ascending among the counted and
    /// among the others.
    lens: Vec<u32>,
    units: Vec<u32>,
    /// For each position of these documents the row + 1 of `open` of the n-gram that begins there, or 0.
    stream: Vec<u32>,
    /// The words, and their occurrences in this part. Their supports are those of this part until they are answered.
    words: Strings,
    occurrences: Vec<u64>,
    support: Vec<u32>,
    /// Levels that are answered: keys of this part, supports of all.
    levels: Vec<(Vec<u64>, Vec<u32>)>,
    /// The level at hand: keys and supports of this part. Empty while words are at hand.
    open: (Vec<u64>, Vec<u32>),
    /// What an id of a key in `open` is in all: by number of the word on level 2, by rank among the kept above.
    globals: Vec<u64>,
}

/// What `IndexBuilder` found in the documents of a part.
pub struct Words {
    pub max_n: usize,
    pub surface: Surface,
    pub min_support: u32,
    pub num_units: u64,
    pub num_documents: u64,
    pub num_counted: usize,
    pub lens: Vec<u32>,
    pub units: Vec<u32>,
    pub stream: Vec<u32>,
    pub words: Strings,
    pub occurrences: Vec<u64>,
    pub support: Vec<u32>,
}

impl Part {
    pub fn new(found: Words) -> Self {
        let Words { max_n, surface, min_support, num_units, num_documents, lens, units, stream, .. } = found;
        let Words { num_counted, words, occurrences, support, .. } = found;
        Self {
            max_n,
            surface,
            min_support,
            num_units,
            num_documents,
            n: 1,
            num_counted,
            lens,
            units,
            stream,
            words,
            occurrences,
            support,
            levels: Vec::new(),
            open: (Vec::new(), Vec::new()),
            globals: Vec::new(),
        }
    }

    /// What the rows of the table at hand are.
    pub fn kind(&self) -> Kind {
        if self.n == 1 { Kind::Words } else { Kind::Pairs }
    }

    /// Rows of the table at hand; 0 once everything is answered.
    pub fn num_rows(&self) -> usize {
        match self.n {
            1 => self.words.len(),
            n if n > self.max_n => 0,
            _ => self.open.0.len(),
        }
    }

    fn row(&self, number: usize) -> Row<'_> {
        if self.n == 1 {
            let key = Key::Word(self.words.get(number).as_bytes());
            return Row { key, support: self.support[number], occurrences: self.occurrences[number] };
        }
        let key = self.open.0[number];
        let (left, right) = (self.globals[(key >> 32) as usize], self.globals[key as u32 as usize]);
        Row { key: Key::Pair(left, right), support: self.open.1[number], occurrences: 0 }
    }

    /// At most `num` keys, evenly spread over the table, from which bounds of ranges are chosen.
    pub fn sample(&self, num: usize) -> Vec<Vec<u8>> {
        let (num_rows, step) = (self.num_rows(), self.num_rows().div_ceil(num.max(1)).max(1));
        (step / 2..num_rows).step_by(step).map(|number| self.row(number).key.bound()).collect()
    }

    /// The table at hand in runs: one more than there are bounds, which ascend. A run may be empty.
    pub fn cut(&self, bounds: &[Vec<u8>]) -> Vec<Vec<u8>> {
        write_runs(self.kind(), (0..self.num_rows()).map(|number| self.row(number)), bounds)
    }

    /// Take the answers to the runs, in their order, each with the number of the first row of its range in all; then count
    /// the next level, if there is one.
    pub fn answer(&mut self, answers: &[(u64, &[u8])]) -> Result<()> {
        if self.n > self.max_n {
            return Err(Error::Policy("everything of this part is answered".into()));
        }
        let kind = self.kind();
        let (support, ranks) = read_answers(answers)?;
        if support.len() != self.num_rows() {
            return Err(Error::Artifact(format!("{} rows were answered of {}", support.len(), self.num_rows())));
        }
        // Row -> id + 1 among the kept, or 0; and the row of each id.
        let (mut kept, mut rows, mut at) = (vec![0u32; support.len()], Vec::new(), 0);
        self.globals = Vec::new();
        for (row, &support) in support.iter().enumerate() {
            let is_kept = support >= self.min_support;
            if is_kept {
                rows.push(row as u32);
                kept[row] = rows.len() as u32;
            }
            // A word that none of the counted units uses has no number in all. No key names it: any number will do.
            let is_ranked = is_kept || (kind == Kind::Words && support > 0);
            if is_ranked {
                let rank = ranks.get(at).ok_or_else(|| Error::Artifact("an answer lacks a number".into()))?;
                self.globals.push(*rank);
                at += 1;
            } else if kind == Kind::Words {
                self.globals.push(self.globals.last().copied().unwrap_or(0));
            }
        }
        match kind {
            Kind::Words => self.support = support,
            Kind::Pairs => self.levels.push((std::mem::take(&mut self.open.0), support)),
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
        // Pairs of words are listed by the numbers of the words, and longer n-grams by the ranks of what is kept.
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
