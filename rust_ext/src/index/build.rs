//! IndexBuilder: from documents to the tables of an index.
//!
//! Each call of `add` works with a worker of its own, so that many threads can add at once: it cuts the texts into words and
//! writes their ids down. At the end the workers' dictionaries become one vocabulary, documents are put in the order of their
//! unit (individual or household), words are counted, and level after level of pairs (`levels`). The result depends on the
//! documents alone: not on threads, batches, their order, or the memory limit.
//!
//! A unit whose documents all come in one call, next to each other, counts for the support of its words while they are looked
//! up; the others' are counted from the stream at the end. So for words alone (`max_n` 1) only those others' are written
//! down, and once for each stretch of neighbours.
//!
//! Units may be told to form a *subset*, whose own index is then made of the same pass (`subset`): its documents have workers of
//! their own, and come first wherever units are walked.
//!
//! Memory: 4 bytes a word of text, 6 more while a level is counted, and the tables. With a limit, pages of these go to disk,
//! dictionaries that have grown too large are closed and merged at the end, and what cannot go to disk is held or refused
//! (`limit`).

mod documents;
mod memory;
mod unite;
mod worker;

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use documents::{Documents, Numbered, Placed, Stream, Words, add, count_words};
use memory::Working;
use unite::{United, keep_words};
use worker::{Run, Worker};

use crate::error::{Error, Result};
use crate::index::counts::Counted;
use crate::index::levels::{Plan, Settings, count_level};
use crate::index::limit::{Limit, max_partitions};
use crate::index::ngram_index::{MAX_N, NgramIndex, check_min_support};
use crate::index::subset::Subset;
use crate::index::vocabulary::{Size, Sorted};
use crate::storage::spool::{Spool, Store};
use crate::text::surface::Surface;
use crate::text::texts::Texts;
use crate::text::words::check_length;

/// The unit of a document that is not to be counted.
pub const LEFT_OUT: u32 = u32::MAX;

/// Dictionaries that had grown too large, and how many words they have together.
#[derive(Default)]
struct Closed {
    parts: Vec<(Sorted, Run)>,
    size: Size,
}

pub struct IndexBuilder {
    max_n: usize,
    surface: Surface,
    /// How many documents each unit has in all, and how many came; empty where nobody knows.
    documents_of: Vec<(u32, AtomicU32)>,
    /// Which units form the subset; empty where there is none.
    subset: Vec<bool>,
    limit: Option<Limit>,
    store: Arc<Store>,
    /// Workers of the subset, and of the other units.
    idle: [Mutex<Vec<Worker>>; 2],
    num_workers: AtomicUsize,
    num_words: AtomicUsize,
    /// Calls of `add` that have begun and not succeeded.
    num_unfinished: AtomicUsize,
    closed: Mutex<Closed>,
}

impl IndexBuilder {
    /// `documents_of[u]` is how many documents of unit `u` will be added in all, which saves time and memory; `subset[u]` says
    /// whether it belongs to the subset. Both may be empty.
    pub fn new(
        max_n: usize,
        surface: Surface,
        documents_of: Vec<u32>,
        subset: Vec<bool>,
        limit: Option<Limit>,
    ) -> Result<Self> {
        if !(1..=MAX_N).contains(&max_n) {
            return Err(Error::Policy(format!("max_n: expected 1 to {MAX_N}, got {max_n}")));
        }
        let store = match &limit {
            None => Store::in_memory(),
            // The rest is for dictionaries while documents come, and for the tables of partitions afterwards.
            Some(limit) => Store::limited(limit.num_bytes / 2, &limit.folder)?,
        };
        Ok(Self {
            max_n,
            surface,
            documents_of: documents_of.into_iter().map(|all| (all, AtomicU32::new(0))).collect(),
            subset,
            limit,
            store,
            idle: Default::default(),
            num_workers: AtomicUsize::new(0),
            num_words: AtomicUsize::new(0),
            num_unfinished: AtomicUsize::new(0),
            closed: Mutex::default(),
        })
    }

    /// Add documents; `units[d]` owns document `d`, which is left out where that is [`LEFT_OUT`]. Returns the number of words
    /// added. Uses the calling thread alone;
    /// many may call at once. An error of the disk or a panic takes documents along that were added before: the builder
    /// cannot be finished then.
    pub fn add(&self, texts: &Texts, units: &[u32]) -> Result<usize> {
        if units.len() != texts.len() {
            return Err(Error::Corpus(format!("{} units were given for {} documents", units.len(), texts.len())));
        }
        let mut taken = (0..texts.len()).filter(|&row| units[row] != LEFT_OUT);
        taken.try_for_each(|row| check_length(texts.get(row), row))?;
        self.num_unfinished.fetch_add(1, Ordering::Relaxed);
        let mut workers = [None, None];
        let (mut num_words, mut first) = (0, 0);
        for unit in units.chunk_by(|a, b| a == b) {
            let rows = first..first + unit.len();
            first = rows.end;
            if unit[0] == LEFT_OUT {
                continue;
            }
            let only = self.note_arrival(unit) && rows.clone().all(|row| self.surface.keeps(texts.get(row)));
            let side = usize::from(!self.is_of_subset(unit[0]));
            let worker = workers[side].get_or_insert_with(|| self.worker(side));
            num_words += worker.add(texts, rows, unit[0], only, self.max_n == 1)?;
        }
        for (side, worker) in workers.into_iter().enumerate() {
            let Some(mut worker) = worker else { continue };
            if self.is_full(&worker.dictionary) {
                self.close(std::mem::replace(&mut worker, Worker::new(side == 0, &self.store)))?;
            }
            self.idle[side].lock().unwrap_or_else(PoisonError::into_inner).push(worker);
        }
        self.num_words.fetch_add(num_words, Ordering::Relaxed);
        self.num_unfinished.fetch_sub(1, Ordering::Relaxed);
        Ok(num_words)
    }

    fn is_of_subset(&self, unit: u32) -> bool {
        self.subset.get(unit as usize).copied().unwrap_or(false)
    }

    /// A worker of the subset (side 0) or of the other units.
    fn worker(&self, side: usize) -> Worker {
        let idle = self.idle[side].lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| {
            self.num_workers.fetch_add(1, Ordering::Relaxed);
            Worker::new(side == 0, &self.store)
        })
    }

    /// Note that these documents of one unit have come; returns whether they are all it has.
    fn note_arrival(&self, unit: &[u32]) -> bool {
        self.documents_of.get(unit[0] as usize).is_some_and(|(all, came)| {
            came.fetch_add(unit.len() as u32, Ordering::Relaxed);
            *all as usize == unit.len()
        })
    }

    /// Count every level; the builder is used up. Returns the index of the subset if there is one, and that of all units.
    pub fn finish(self, min_support: u32) -> Result<(Option<NgramIndex>, NgramIndex)> {
        check_min_support(min_support)?;
        if self.num_unfinished.load(Ordering::Relaxed) > 0 {
            return Err(Error::Policy(
                "add has failed on this IndexBuilder, and documents are lost; make a new one".into(),
            ));
        }
        if self.documents_of.iter().any(|(all, came)| *all != came.load(Ordering::Relaxed)) {
            return Err(Error::Policy("a unit has other numbers of documents than documents_per_unit says".into()));
        }
        let United { runs, mut numbers, mut counted, working } = self.unite(min_support)?;
        let documents = Documents::new(runs);
        // A share counts words in a table of its own, of 8 bytes a word.
        let affordable = working.num_bytes / 64 / counted.words.len().max(1);
        let at_once = rayon::current_num_threads().min(affordable.max(1));
        let (shares, num_of_subset) = documents.shares(at_once);
        self.count_rest(&documents, &shares, num_of_subset, at_once, &numbers, &mut counted)?;
        let Counted { words, whole, subset } = counted;
        let mut index = NgramIndex::new(self.max_n, self.surface, min_support, words);
        (index.support, index.occurrences) = (whole.support, whole.occurrences);
        (index.num_units, index.num_documents) = documents.size(false);
        let mut part = None;
        if !self.subset.is_empty() {
            let mut found = Subset::new(&index, subset);
            (found.index.num_units, found.index.num_documents) = documents.size(true);
            if found.index.num_documents == 0 {
                return Err(Error::Corpus("no document belongs to the subset".into()));
            }
            part = Some(found);
        }
        if self.max_n > 1 {
            self.release_memory();
            let (weights, names) = keep_words(&index, &mut numbers);
            let words = Words { streams: &documents.streams, numbers: &numbers, last: true };
            self.count_levels(&mut index, part.as_mut(), words, (&shares, num_of_subset), weights, names, &working)?;
        }
        drop(documents);
        self.store.release_idle();
        working.store.release_idle();
        let mut part = part.map(|subset| subset.index);
        for index in part.iter_mut().chain([&mut index]) {
            index.spilled_bytes = self.store.spilled_bytes();
            if !Arc::ptr_eq(&self.store, &working.store) {
                index.spilled_bytes += working.store.spilled_bytes();
            }
        }
        Ok((part, index))
    }

    /// Count the words of the documents that no support was counted of while they came, so many shares at once; the first
    /// `num_of_subset` are the subset's.
    fn count_rest(
        &self,
        documents: &Documents,
        shares: &[&[Placed]],
        num_of_subset: usize,
        at_once: usize,
        numbers: &[Vec<u32>],
        counted: &mut Counted,
    ) -> Result<()> {
        let num_words = counted.words.len();
        counted.whole.resize(num_words);
        if num_of_subset > 0 {
            counted.subset.resize(num_words);
        }
        for (number, some) in shares.chunks(at_once).enumerate() {
            let found = count_words(num_words, &documents.streams, some, numbers, self.max_n == 1)?;
            for (share, support) in (number * at_once..).zip(found) {
                add(&mut counted.whole.support, &support);
                if share < num_of_subset {
                    add(&mut counted.subset.support, &support);
                }
            }
        }
        Ok(())
    }

    /// Count the pairs of shares of documents, level by level; so many of the first shares are the subset's.
    #[allow(clippy::too_many_arguments)]
    fn count_levels(
        &self,
        index: &mut NgramIndex,
        mut subset: Option<&mut Subset>,
        words: Words,
        (shares, num_of_subset): (&[&[Placed]], usize),
        weights: Vec<u32>,
        mut names: Vec<u32>,
        working: &Working,
    ) -> Result<()> {
        let Working { num_bytes, store, room } = working;
        let max_partitions = max_partitions(*num_bytes, store.page_bytes(), shares.len());
        let mut weights = Spool::from_slice(&weights)?;
        let mut next: Vec<Spool<u32>> = Vec::new();
        for n in 2..=self.max_n {
            let plan = Plan::new(&weights, std::mem::take(&mut names), max_partitions)?;
            let settings = Settings { min_support: index.min_support, num_of_subset, next: n < self.max_n };
            let counted = if n == 2 {
                let shares = shares.iter().map(|share| Numbered { share, words });
                count_level(shares.collect(), &plan, settings, room, store)?
            } else {
                let shares = shares.iter().zip(next).map(|(share, stream)| Stream { share, ids: stream.into_reader() });
                count_level(shares.collect(), &plan, settings, room, store)?
            };
            if let Some(subset) = &mut subset {
                subset.add_level(&counted.level, &counted.support_of_subset, store)?;
            }
            index.levels.push(counted.level);
            (next, weights) = (counted.streams, counted.weights);
            self.release_memory();
        }
        Ok(())
    }
}
