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

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::dictionary::{Counted, Dictionary, Visit};
use crate::index::levels::{Plan, Settings, Share, count_level};
use crate::index::limit::{Held, Limit, Pairs, Room, bytes_of_open_pages, max_partitions};
use crate::index::ngram_index::{MAX_N, NgramIndex, check_min_support};
use crate::index::subset::Subset;
use crate::index::vocabulary::{Frequency, Merged, Size, Sorted, Vocabulary};
use crate::storage::spool::{Reader, Spool, Store};
use crate::text::classes::InstructionSet;
use crate::text::surface::Surface;
use crate::text::texts::Texts;
use crate::text::words::{Bounds, Scanner, check_length};

/// The unit of a document that is not to be counted.
pub const LEFT_OUT: u32 = u32::MAX;

/// Where one document's words stand in the stream of its run.
#[derive(Clone, Copy)]
struct Document {
    unit: u32,
    len: u32,
    start: u64,
    /// Whether its words have been counted for support.
    counted: bool,
}

/// What one dictionary holds the words of.
struct Run {
    of_subset: bool,
    stream: Spool<u32>,
    documents: Vec<Document>,
    /// Units and documents of which nothing had to be written down.
    num_gone: (u64, u64),
}

struct Worker {
    dictionary: Dictionary,
    run: Run,
    scanner: Scanner,
    bounds: Vec<Bounds>,
    ids: Vec<u32>,
    /// Number of the visit: neighbouring documents of one unit.
    visit: u32,
}

impl Worker {
    fn new(of_subset: bool, store: &Arc<Store>) -> Self {
        Self {
            dictionary: Dictionary::default(),
            run: Run { of_subset, stream: Spool::new(store), documents: Vec::new(), num_gone: (0, 0) },
            scanner: Scanner::new(InstructionSet::detect()),
            bounds: Vec::new(),
            ids: Vec::new(),
            visit: 0,
        }
    }

    /// Add the neighbouring documents `rows`, all of one unit; `only`: it has no others. Returns the number of words.
    fn add(&mut self, texts: &Texts, rows: Range<usize>, unit: u32, only: bool, words_alone: bool) -> Result<usize> {
        let number = self.visit.checked_add(1);
        self.visit = number.ok_or_else(|| Error::Corpus("more than 4 294 967 295 documents".into()))?;
        let visit = Visit { number: self.visit, only };
        let mut num_words = 0;
        for row in rows.clone() {
            let text = texts.get(row);
            self.bounds.clear();
            self.scanner.words(text, &mut self.bounds);
            num_words += self.bounds.len();
            self.ids.clear();
            match words_alone {
                true if only => {
                    self.dictionary.count(text, &self.bounds, visit);
                    continue;
                }
                true => self.dictionary.intern_new(text, &self.bounds, visit, &mut self.ids),
                false => self.dictionary.intern(text, &self.bounds, visit, &mut self.ids),
            }
            let start = self.run.stream.len() as u64;
            self.run.stream.extend(&self.ids)?;
            self.run.documents.push(Document { unit, len: self.ids.len() as u32, start, counted: only });
        }
        if words_alone && only {
            self.run.num_gone.0 += 1;
            self.run.num_gone.1 += rows.len() as u64;
        }
        Ok(num_words)
    }
}

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

    /// Whether a dictionary takes more than its share of an eighth of the limit: a table that has no room
    /// to grow is there twice for a moment, and a closing one is sorted.
    fn is_full(&self, dictionary: &Dictionary) -> bool {
        let num_workers = self.num_workers.load(Ordering::Relaxed).max(2);
        self.limit.as_ref().is_some_and(|limit| dictionary.num_bytes() > limit.num_bytes / 8 / num_workers)
    }

    /// Note that these documents of one unit have come; returns whether they are all it has.
    fn note_arrival(&self, unit: &[u32]) -> bool {
        self.documents_of.get(unit[0] as usize).is_some_and(|(all, came)| {
            came.fetch_add(unit.len() as u32, Ordering::Relaxed);
            *all as usize == unit.len()
        })
    }

    /// Make room: a dictionary that has grown too large is sorted, and goes to the pages of the store.
    fn close(&self, worker: Worker) -> Result<()> {
        let of_subset = worker.run.of_subset;
        let sorted = Sorted::new(worker.dictionary, self.surface).spool(of_subset, &self.store)?;
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let Size { num, num_bytes } = sorted.size();
        closed.size.num += num;
        closed.size.num_bytes += num_bytes;
        closed.parts.push((sorted, worker.run));
        let bytes_of_open_pages = bytes_of_open_pages(closed.parts.len(), &self.store);
        match &self.limit {
            Some(limit @ Limit { used: Some(_), .. }) if bytes_of_open_pages > limit.num_bytes / 4 => {
                // The rest of the documents has as many words as these at most.
                let (came, all) = self.num_documents();
                let scale = |number: usize| (number as f64 * (all as f64 / came.max(1) as f64).max(1.0)) as usize;
                let Size { num, num_bytes } = closed.size;
                let mut held = self.held(Size { num: scale(num), num_bytes: scale(num_bytes) }, all, 0);
                held.bytes_of_open_pages = scale(bytes_of_open_pages);
                let num_words = scale(self.num_words.load(Ordering::Relaxed));
                let frequency = Frequency { num_repeated: held.num_words, most: num_words as u64 };
                Err(limit.refusal(&held, self.pairs(limit, num_words, frequency)))
            }
            _ => Ok(()),
        }
    }

    /// The pairs of so many words, at most.
    fn pairs(&self, limit: &Limit, num_words: usize, frequency: Frequency) -> Pairs {
        let num = if self.max_n > 1 { num_words } else { 0 };
        let num_sides = if self.subset.is_empty() { 1 } else { 2 };
        let num_shares = num_sides * limit.num_threads;
        let most_of_one = frequency.num_repeated.min(usize::try_from(frequency.most).unwrap_or(usize::MAX));
        Pairs { num, most_of_one, num_shares }
    }

    /// Documents that came, and those that will have come.
    fn num_documents(&self) -> (usize, usize) {
        let sum = |sum: (usize, usize), (all, came): &(u32, AtomicU32)| {
            (sum.0 + came.load(Ordering::Relaxed) as usize, sum.1 + *all as usize)
        };
        self.documents_of.iter().fold((0, 0), sum)
    }

    fn held(&self, size: Size, num_documents: usize, num_closed: usize) -> Held {
        Held {
            num_words: size.num,
            bytes_of_words: size.num_bytes,
            num_documents,
            bytes_of_open_pages: bytes_of_open_pages(num_closed, &self.store),
            has_subset: !self.subset.is_empty(),
        }
    }

    /// Write more of the runs to disk, the more words the vocabulary has; returns whether the limit holds them.
    fn make_room(&self, limit: &Limit, held: &Held, runs: &[Run]) -> Result<bool> {
        let rest = limit.rest(held);
        if rest < limit.num_bytes / 8 * 7 {
            self.store.hold_at_most(rest / 2);
            runs.iter().try_for_each(|run| run.stream.evict())?;
            self.store.release_idle();
        }
        Ok(limit.holds(held))
    }

    /// Where levels are counted, with what the vocabulary leaves of the limit.
    fn working(&self, held: &Held, runs: &[Run], frequency: Frequency) -> Result<Working> {
        let Some(limit) = &self.limit else {
            return Ok(Working { num_bytes: usize::MAX, store: self.store.clone(), room: Room::unlimited() });
        };
        let pairs = self.pairs(limit, self.num_words.load(Ordering::Relaxed), frequency);
        let refusal = limit.refusal(held, pairs);
        if !limit.holds(held) {
            return Err(refusal);
        }
        let num_bytes = limit.rest(held);
        let room = if limit.used.is_some() { Room::within(num_bytes, &refusal) } else { Room::unlimited() };
        let mut store = self.store.clone();
        let at_most = Store::page_bytes_of(num_bytes / 2).min(store.page_bytes());
        let page_bytes = pairs.page_bytes(num_bytes, at_most, limit.num_threads);
        if limit.used.is_some() && page_bytes < store.page_bytes() {
            // Pages as large as before would be too few.
            store.hold_at_most(0);
            runs.iter().try_for_each(|run| run.stream.evict())?;
            store.release_idle();
            store = Store::with_pages(num_bytes / 2, page_bytes, &limit.folder)?;
        }
        Ok(Working { num_bytes, store, room })
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

    /// One vocabulary from all dictionaries.
    fn unite(&self, min_support: u32) -> Result<United> {
        // One dictionary takes the words of the others in: sorting is what costs most, and is done once.
        let (mut united, mut runs) = (Dictionary::default(), Vec::new());
        // What a run's ids are in the united dictionary, then in the vocabulary.
        let mut numbers: Vec<Vec<u32>> = Vec::new();
        for (side, idle) in self.idle.iter().enumerate() {
            let mut workers = std::mem::take(&mut *idle.lock().unwrap_or_else(PoisonError::into_inner));
            workers.sort_by_key(|worker| Reverse(worker.dictionary.len()));
            for Worker { dictionary, run, .. } in workers {
                if runs.is_empty() {
                    numbers.push((0..dictionary.len() as u32).collect());
                    united = dictionary;
                } else {
                    numbers.push(united.absorb(dictionary));
                }
                runs.push(run);
            }
            if side == 0 && !runs.is_empty() {
                united.end_subset();
            }
        }
        self.release_memory();
        let mut sorted = vec![Sorted::new(united, self.surface)];
        let closed = std::mem::take(&mut *self.closed.lock().unwrap_or_else(PoisonError::into_inner));
        let (num_in_memory, num_closed) = (runs.len(), closed.parts.len());
        for (dictionary, run) in closed.parts {
            sorted.push(dictionary);
            runs.push(run);
        }
        let num_documents = runs.iter().map(|run| run.documents.len()).sum();
        let held = |size: Size| self.held(size, num_documents, num_closed);
        let make_room = |size: Size| match &self.limit {
            Some(limit) => self.make_room(limit, &held(size), &runs),
            None => Ok(true),
        };
        // Words that are not kept are in no pair, and one individual's word may be kept where every one is.
        let kept = |size: Size, frequency: Frequency| match min_support {
            0..=1 => Frequency { num_repeated: size.num, ..frequency },
            _ => frequency,
        };
        let refusal = |size: Size, frequency: Frequency| match &self.limit {
            Some(limit) => {
                let num_words = self.num_words.load(Ordering::Relaxed);
                limit.refusal(&held(size), self.pairs(limit, num_words, kept(size, frequency)))
            }
            None => Error::Policy("no limit is too small".into()),
        };
        let Vocabulary { counted, mut merged } = Vocabulary::merge(sorted, &self.store, make_room, refusal)?;
        let size = Size::of(&counted.words);
        let working = self.working(&held(size), &runs, kept(size, Frequency::of(&counted.whole.occurrences)))?;
        let spooled = merged.split_off(1);
        let numbers_of_united = merged.into_iter().map(Merged::numbers).next().unwrap_or_else(|| Ok(Vec::new()))?;
        numbers.par_iter_mut().flatten().for_each(|id| *id = numbers_of_united[*id as usize]);
        if !spooled.is_empty() {
            // Many dictionaries: their words get their numbers now, and have one table together.
            numbers.push((0..counted.words.len() as u32).collect());
            let runs = runs[num_in_memory..].par_iter_mut();
            runs.zip(spooled).with_max_len(1).try_for_each(|(run, merged)| self.renumber(run, &merged.numbers()?))?;
        }
        Ok(United { runs, numbers, counted, working })
    }

    /// What was freed on the way stands in the way of a limit.
    fn release_memory(&self) {
        if self.limit.is_some() {
            crate::pool::release_memory();
        }
    }

    fn renumber(&self, run: &mut Run, numbers: &[u32]) -> Result<()> {
        let mut stream = std::mem::replace(&mut run.stream, Spool::new(&self.store)).into_reader();
        let mut ids = Vec::new();
        while let Some(page) = stream.next_page()? {
            ids.clear();
            ids.extend(page.iter().map(|&id| numbers[id as usize]));
            run.stream.extend(&ids)?;
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

/// What all dictionaries came to.
struct United {
    runs: Vec<Run>,
    /// What the ids of runs are in the vocabulary.
    numbers: Vec<Vec<u32>>,
    /// The words, and what was counted of them so far.
    counted: Counted,
    working: Working,
}

/// What levels are counted with.
struct Working {
    /// Bytes that a limit leaves.
    num_bytes: usize,
    store: Arc<Store>,
    /// For the tables of partitions.
    room: Room,
}

/// Blank the words under the least support, and give the others the number they have among themselves, plus 1. Returns how
/// often each of these stands there, and which word it is.
fn keep_words(index: &NgramIndex, numbers: &mut [Vec<u32>]) -> (Vec<u32>, Vec<u32>) {
    let mut kept = vec![0u32; index.words.len()];
    let (mut weights, mut names) = (Vec::new(), Vec::new());
    for (id, kept) in kept.iter_mut().enumerate() {
        if index.support[id] >= index.min_support {
            weights.push(u32::try_from(index.occurrences[id]).unwrap_or(u32::MAX));
            names.push(id as u32);
            *kept = weights.len() as u32;
        }
    }
    numbers.par_iter_mut().flatten().for_each(|number| *number = kept[*number as usize]);
    (weights, names)
}

/// A document in the order of units.
#[derive(Clone, Copy)]
struct Placed {
    unit: u32,
    run: u32,
    start: u64,
    len: u32,
    counted: bool,
}

/// The table of a run; the last runs have one together.
fn numbers_of(numbers: &[Vec<u32>], run: usize) -> &[u32] {
    &numbers[run.min(numbers.len() - 1)]
}

/// All documents that were written down, in the order of their unit; those of the subset are the first.
struct Documents {
    streams: Vec<Spool<u32>>,
    order: Vec<Placed>,
    num_of_subset: usize,
    /// Units and documents of which nothing was written down: of the subset, and of the others.
    num_gone: [(u64, u64); 2],
}

impl Documents {
    fn new(runs: Vec<Run>) -> Self {
        let mut order: Vec<Placed> = Vec::with_capacity(runs.iter().map(|run| run.documents.len()).sum());
        let (mut streams, mut sides, mut num_gone) = (Vec::new(), Vec::new(), [(0, 0); 2]);
        for (number, run) in runs.into_iter().enumerate() {
            let place = |document: &Document| {
                let &Document { unit, len, start, counted } = document;
                Placed { unit, run: number as u32, start, len, counted }
            };
            order.extend(run.documents.iter().map(place));
            streams.push(run.stream);
            let side = usize::from(!run.of_subset);
            sides.push(side);
            num_gone[side].0 += run.num_gone.0;
            num_gone[side].1 += run.num_gone.1;
        }
        // Units may come in any order; that of their first documents reads the streams nearly from front to back.
        order.par_sort_unstable_by_key(|document| (document.unit, document.run, document.start));
        let mut units: Vec<&[Placed]> = order.chunk_by(|a, b| a.unit == b.unit).collect();
        units.par_sort_unstable_by_key(|unit| (sides[unit[0].run as usize], unit[0].run, unit[0].start));
        let order = units.concat();
        let num_of_subset = order.partition_point(|document| sides[document.run as usize] == 0);
        Self { streams, order, num_of_subset, num_gone }
    }

    /// At most so many shares of either side, and how many of the first are the subset's.
    fn shares(&self, num_shares: usize) -> (Vec<&[Placed]>, usize) {
        let (subset, others) = self.order.split_at(self.num_of_subset);
        let mut shares = split_by_unit(subset, num_shares);
        let num_of_subset = shares.len();
        shares.extend(split_by_unit(others, num_shares));
        (shares, num_of_subset)
    }

    /// Units and documents, of the subset or of all.
    fn size(&self, of_subset: bool) -> (u64, u64) {
        let (order, gone) = if of_subset {
            (&self.order[..self.num_of_subset], &self.num_gone[..1])
        } else {
            (&self.order[..], &self.num_gone[..])
        };
        let num_units = order.chunk_by(|a, b| a.unit == b.unit).count() as u64;
        gone.iter().fold((num_units, order.len() as u64), |sum, gone| (sum.0 + gone.0, sum.1 + gone.1))
    }
}

/// Cut documents into at most `num_shares` stretches of about as many words, each with whole units.
fn split_by_unit(order: &[Placed], num_shares: usize) -> Vec<&[Placed]> {
    let words = |documents: &[Placed]| documents.iter().map(|document| document.len as usize + 1).sum::<usize>();
    let target = words(order).div_ceil(num_shares.max(1));
    let mut shares = Vec::new();
    let (mut first, mut at, mut held) = (0, 0, 0);
    for unit in order.chunk_by(|a, b| a.unit == b.unit) {
        (at, held) = (at + unit.len(), held + words(unit));
        if held >= target {
            shares.push(&order[first..at]);
            (first, held) = (at, 0);
        }
    }
    if first < at {
        shares.push(&order[first..at]);
    }
    shares
}

fn add(support: &mut [u32], more: &[u32]) {
    support.iter_mut().zip(more).for_each(|(support, more)| *support += more);
}

/// For each share, how many of its units use each word, of those whose documents have not been counted (empty: none); no
/// unit is in two shares.
fn count_words(
    num_words: usize,
    streams: &[Spool<u32>],
    shares: &[&[Placed]],
    numbers: &[Vec<u32>],
    last: bool,
) -> Result<Vec<Vec<u32>>> {
    let count = |share: &&[Placed]| {
        let share: Vec<Placed> = share.iter().filter(|document| !document.counted).copied().collect();
        if share.is_empty() {
            return Ok(Vec::new());
        }
        // Last unit that raised the count, and the count.
        let mut counts = vec![(0u32, 0u32); num_words];
        Numbered { share: &share, words: Words { streams, numbers, last } }.documents(|unit, ids| {
            let unit = unit + 1;
            for &id in ids {
                let entry = &mut counts[id as usize];
                if entry.0 != unit {
                    *entry = (unit, entry.1 + 1);
                }
            }
            Ok(())
        })?;
        Ok(counts.into_iter().map(|entry| entry.1).collect())
    };
    shares.par_iter().with_max_len(1).map(count).collect()
}

/// The words of documents as numbers; with `last` they are not read again.
#[derive(Clone, Copy)]
struct Words<'a> {
    streams: &'a [Spool<u32>],
    numbers: &'a [Vec<u32>],
    last: bool,
}

/// Documents as numbers of words.
struct Numbered<'a> {
    share: &'a [Placed],
    words: Words<'a>,
}

impl Share for Numbered<'_> {
    fn documents(self, mut visit: impl FnMut(u32, &[u32]) -> Result<()>) -> Result<()> {
        let Words { streams, numbers, last } = self.words;
        let mut ids = Vec::new();
        for (unit, documents) in self.share.chunk_by(|a, b| a.unit == b.unit).enumerate() {
            for document in documents {
                ids.clear();
                let run = document.run as usize;
                streams[run].read(document.start as usize, document.len as usize, &mut ids, last)?;
                let numbers = numbers_of(numbers, run);
                ids.iter_mut().for_each(|id| *id = numbers[*id as usize]);
                visit(unit as u32, &ids)?;
            }
        }
        Ok(())
    }
}

/// Documents as ids of (n-1)-grams, for level n.
struct Stream<'a> {
    share: &'a [Placed],
    ids: Reader<u32>,
}

impl Share for Stream<'_> {
    fn documents(mut self, mut visit: impl FnMut(u32, &[u32]) -> Result<()>) -> Result<()> {
        let mut ids = Vec::new();
        for (unit, documents) in self.share.chunk_by(|a, b| a.unit == b.unit).enumerate() {
            for document in documents {
                ids.clear();
                self.ids.read(document.len as usize, &mut ids)?;
                visit(unit as u32, &ids)?;
            }
        }
        Ok(())
    }
}
