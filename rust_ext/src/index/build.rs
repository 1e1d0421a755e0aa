//! IndexBuilder: from documents to the tables of an index.
//!
//! The *unit* of support is the individual, or the household where one is given. DESIGN.md in this folder follows ten words
//! through every phase and shows each table:
//!
//! 1. `add` (many threads): texts become words, and words become ids of the worker's own dictionary (`worker`).
//! 2. `unite` (once): the dictionaries become one vocabulary in byte order.
//! 3. `Documents` (once): the documents are put in the order of their unit and cut into shares, one a thread.
//! 4. `count_rest`: support of words, for the units that phase 1 could not count.
//! 5. `count_levels`: for n = 2 to `max_n`, support of pairs of neighbouring (n-1)-grams (`levels`).
//!
//! **The result depends on the documents alone**: not on threads, batches, their order, or the memory limit. Ids of a worker
//! depend on all of these, so no such id reaches a table: words get their number from the byte order of their surface, and
//! n-grams from the order of their keys.
//!
//! **Support is counted early where a unit is complete.** A unit whose documents all come in one call, next to each
//! other, is counted in phase 1, while its words are looked up anyway. The others may come back in any later call, so their
//! words are counted in phase 4, when all documents of a unit stand next to each other. So for words alone (`max_n` 1) only
//! the documents of these others are written down, and each word once for each stretch of neighbours.
//!
//! Units may form a *subset*, whose own index is then made in the same pass (`subset`): its documents have workers of
//! their own, and come first in every pass over the units.
//!
//! Time: linear in the words of the text, except for the sorting of distinct words, of documents, and of the distinct pairs of
//! each partition. Memory: 4 bytes for each word of text, 6 more while a level is counted (10 if its keys are wide), and the
//! tables. With a limit, pages of the streams go to disk, and dictionaries that have grown too large are closed and merged at the
//! end. The memory that cannot go to disk is computed in advance; if it exceeds the limit, the build is refused (`limit`).
//!
//! **After an error or a kill** no clean-up is needed. `finish` takes the builder by value, so an error drops all of it. The
//! files of a store have no name, so the system frees them with the process. No half-made index is left behind.

mod documents;
mod memory;
mod part;
#[cfg(test)]
mod tests;
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

/// The unit of a document that is not to be counted. It keeps its row, so that callers need not copy a column of texts to
/// leave some of them out.
pub const LEFT_OUT: u32 = u32::MAX;

/// Dictionaries that had grown too large, and how many words they have together. A word that several of them hold counts
/// several times: an upper bound of the vocabulary, which is all that the check in `close` needs.
#[derive(Default)]
struct Closed {
    /// In the order in which they were closed, which differs from run to run. The merge does not depend on it.
    parts: Vec<(Sorted, Run)>,
    /// Of `parts`. Kept as a sum, so that `close` need not read what it has just written to disk.
    size: Size,
}

pub struct IndexBuilder {
    /// 1 to `MAX_N`. At 1, only words are counted and their order is not needed, so `add` writes less to the streams.
    max_n: usize,
    /// How a spelling becomes the word that is counted. Applied to the distinct spellings when they are united, and
    /// not to each occurrence: `add` works with spellings alone.
    surface: Surface,
    /// By unit: how many documents it has in all, and how many were added. Empty if the caller does not know; then no unit is
    /// known to be complete, and phase 4 counts all of them. `finish` refuses numbers that turned out wrong, because a
    /// unit taken for complete by mistake would count twice.
    documents_of: Vec<(u32, AtomicU32)>,
    /// By unit: whether it belongs to the subset. Empty where there is none.
    subset: Vec<bool>,
    /// None: everything stays in memory, and no memory is counted.
    limit: Option<Limit>,
    /// Pages of the streams, and of closed dictionaries.
    /// Shared with the spools, which keep it alive: levels may outlive the builder.
    store: Arc<Store>,
    /// Workers that no call of `add` holds, by side: of the subset (0) and of the other units (1). A worker has documents of
    /// one side alone, so that a count for the whole can be split at one point (`Dictionary::end_subset`).
    idle: [Mutex<Vec<Worker>>; 2],
    /// Number of existing workers: on each side at most as many as calls of `add` ran at once. A closed one is replaced.
    num_workers: AtomicUsize,
    /// Words of all calls so far. Bounds the pairs, so a limit can be refused before the first pair is counted.
    num_words: AtomicUsize,
    /// Calls of `add` that have begun and not succeeded. After an error or a panic it stays above 0 for ever: the worker of
    /// that call is lost, with documents of earlier calls, and an index without them would show too low supports.
    num_unfinished: AtomicUsize,
    /// Locked when a dictionary is closed. That is rare, so counting threads do not contend for it.
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
            // Half for pages. The rest is for dictionaries while documents come, and for the tables of partitions afterwards.
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
    /// added. Uses the calling thread alone; many may call at once. An error of the disk or a panic loses documents that were
    /// added before, too: the builder cannot be finished then.
    pub fn add(&self, texts: &Texts, units: &[u32]) -> Result<usize> {
        if units.len() != texts.len() {
            return Err(Error::Corpus(format!("{} units were given for {} documents", units.len(), texts.len())));
        }
        // Before anything is counted: an error here leaves the builder as it was.
        let mut taken = (0..texts.len()).filter(|&row| units[row] != LEFT_OUT);
        taken.try_for_each(|row| check_length(texts.get(row), row))?;
        self.num_unfinished.fetch_add(1, Ordering::Relaxed);
        // One worker of each side for the whole call, taken when the first document of that side comes: a call of
        // members alone leaves the other side without a worker, and without a dictionary to unite.
        let mut workers = [None, None];
        let (mut num_words, mut first) = (0, 0);
        // By stretches of one unit and not by documents: a word counts once for its unit, so the dictionary needs to
        // know where the unit changes, and nothing more.
        for unit in units.chunk_by(|a, b| a == b) {
            let rows = first..first + unit.len();
            first = rows.end;
            if unit[0] == LEFT_OUT {
                continue;
            }
            // Support is counted by spelling here and by surface later. Two spellings of one surface in one unit would count
            // twice, so a unit is counted here only where its texts are spelled as their surface.
            let only = self.note_arrival(unit) && rows.clone().all(|row| self.surface.keeps(texts.get(row)));
            let side = usize::from(!self.is_of_subset(unit[0]));
            let worker = workers[side].get_or_insert_with(|| self.worker(side));
            num_words += worker.add(texts, rows, unit[0], only, self.max_n == 1)?;
        }
        // An error above drops the workers of this call, and `num_unfinished` stays up. To hand back a worker that
        // stopped in the middle of a document would leave words in its stream that no document owns.
        for (side, worker) in workers.into_iter().enumerate() {
            let Some(mut worker) = worker else { continue };
            // After the last document, never between two: the run goes with the dictionary that gave its ids.
            if self.is_full(&worker.dictionary) {
                self.close(std::mem::replace(&mut worker, Worker::new(side == 0, &self.store)))?;
            }
            self.idle[side].lock().unwrap_or_else(PoisonError::into_inner).push(worker);
        }
        // Relaxed: sums that order nothing. `finish` takes the builder by value, so every call has ended by then.
        self.num_words.fetch_add(num_words, Ordering::Relaxed);
        self.num_unfinished.fetch_sub(1, Ordering::Relaxed);
        Ok(num_words)
    }

    fn is_of_subset(&self, unit: u32) -> bool {
        self.subset.get(unit as usize).copied().unwrap_or(false)
    }

    /// A worker of the subset (side 0) or of the other units: the one returned last, as its dictionary is still in the cache.
    fn worker(&self, side: usize) -> Worker {
        let idle = self.idle[side].lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| {
            self.num_workers.fetch_add(1, Ordering::Relaxed);
            Worker::new(side == 0, &self.store)
        })
    }

    /// Record the arrival of these documents of one unit; returns whether they are all its documents, in one call. It is false
    /// for a unit that comes in several calls, even for the last of them, because several workers may hold parts of it.
    fn note_arrival(&self, unit: &[u32]) -> bool {
        self.documents_of.get(unit[0] as usize).is_some_and(|(all, came)| {
            // A wrong number is not detected here but in `finish`, which compares the sums: two calls that each bring as
            // many documents as the unit should have would both count it.
            came.fetch_add(unit.len() as u32, Ordering::Relaxed);
            *all as usize == unit.len()
        })
    }

    /// Refuse to finish without documents that were promised, or whose words were lost.
    fn check_complete(&self) -> Result<()> {
        if self.num_unfinished.load(Ordering::Relaxed) > 0 {
            return Err(Error::Policy(
                "add has failed on this IndexBuilder, and documents are lost; make a new one".into(),
            ));
        }
        if self.documents_of.iter().any(|(all, came)| *all != came.load(Ordering::Relaxed)) {
            return Err(Error::Policy("a unit has other numbers of documents than documents_per_unit says".into()));
        }
        Ok(())
    }

    /// Phases 2 to 5; the builder is used up. Returns the index of the subset if there is one, and that of all units.
    pub fn finish(self, min_support: u32) -> Result<(Option<NgramIndex>, NgramIndex)> {
        check_min_support(min_support)?;
        self.check_complete()?;
        let United { runs, mut numbers, mut counted, working } = self.unite(min_support)?;
        let documents = Documents::new(runs);
        // A share counts words in a table of its own, of 8 bytes a word: an eighth of the memory for all of them.
        let affordable = working.num_bytes / 64 / counted.words.len().max(1);
        let at_once = rayon::current_num_threads().min(affordable.max(1));
        let (shares, num_of_subset) = documents.shares(at_once);
        self.count_rest(&documents, &shares, num_of_subset, at_once, &numbers, &mut counted)?;
        let Counted { words, whole, subset } = counted;
        let mut index = NgramIndex::new(self.max_n, self.surface, min_support, words);
        (index.support, index.occurrences) = (whole.support, whole.occurrences);
        // From the list in the order of units, where a unit is one stretch. Workers see stretches of a unit, and
        // there may be several.
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
            // `last`: after level 2 nothing reads the streams of words. Their pages go back while it scatters, and
            // its entries take them: so the text is in memory, or on disk, about once.
            let words = Words { streams: &documents.streams, numbers: &numbers, last: true };
            self.count_levels(&mut index, part.as_mut(), words, (&shares, num_of_subset), weights, names, &working)?;
        }
        // What is idle now was used on the way. The levels of the index are pages of the store too, and stay with the
        // index.
        drop(documents);
        self.store.release_idle();
        working.store.release_idle();
        let mut part = part.map(|subset| subset.index);
        // `working` has a store of its own where pages had to become smaller; where it is the same one, its bytes
        // count once.
        for index in part.iter_mut().chain([&mut index]) {
            index.spilled_bytes = self.store.spilled_bytes();
            if !Arc::ptr_eq(&self.store, &working.store) {
                index.spilled_bytes += working.store.spilled_bytes();
            }
        }
        Ok((part, index))
    }

    /// Phase 4: add the support of words in the documents that were not counted while they came, `at_once` shares at a time.
    /// The first `num_of_subset` shares are the subset's. Shares hold whole units, so their supports add up.
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
        // Words that no dictionary counted have no entry so far.
        counted.whole.resize(num_words);
        if num_of_subset > 0 {
            counted.subset.resize(num_words);
        }
        // As many shares at a time as there is memory for their tables, each of which has an entry for every word. Shares
        // hold whole units, so their order does not matter.
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

    /// Phase 5: count the pairs of shares of documents, level by level; the first `num_of_subset` shares are the subset's.
    ///
    /// Level n reads streams of ids of (n-1)-grams and writes streams of ids of n-grams. The first streams are those of the
    /// words. The first level uses them up, so there are never more than two generations of streams.
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
        // A page is open for each partition of each share, all of them at once. So the memory for pages bounds how
        // finely a level can be cut.
        let max_partitions = max_partitions(*num_bytes, store.page_bytes(), shares.len());
        let mut weights = Spool::from_slice(&weights)?;
        let mut next: Vec<Spool<u32>> = Vec::new();
        for n in 2..=self.max_n {
            // Only words have names: their numbers among the kept ones are not their numbers in the vocabulary, which the
            // index lists whole. Levels list just n-grams whose parts are kept, and name these parts by their rank.
            let plan = Plan::new(&weights, std::mem::take(&mut names), max_partitions)?;
            let settings = Settings { min_support: index.min_support, num_of_subset, next: n < self.max_n };
            let counted = if n == 2 {
                let shares = shares.iter().map(|share| Numbered { share, words });
                count_level(shares.collect(), &plan, settings, room, store)?
            } else {
                let shares = shares.iter().zip(next).map(|(share, stream)| Stream { share, ids: stream.into_reader() });
                count_level(shares.collect(), &plan, settings, room, store)?
            };
            // Before the next level is counted: `add_level` uses the subset's support up, and its pages serve that level.
            if let Some(subset) = &mut subset {
                subset.add_level(&counted.level, &counted.support_of_subset, store)?;
            }
            index.levels.push(counted.level.into());
            (next, weights) = (counted.streams, counted.weights);
            self.release_memory();
        }
        Ok(())
    }
}
