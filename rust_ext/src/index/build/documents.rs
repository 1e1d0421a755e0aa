//! Documents: those that were written down, in the order of their unit, as shares that threads walk.
//!
//! **Why in the order of units.** Support counts a unit once for an n-gram, however often its documents hold it. The obvious
//! way keeps a set of owners for each n-gram, which takes memory for every (n-gram, unit) pair. Where all documents of a unit
//! stand next to each other, one number for each n-gram is enough: the last unit that raised its count. That needs nothing
//! to be moved but this list of places; the streams stay where they are.
//!
//! **Why shares hold whole units.** Then no unit is counted by two threads, and supports of shares add up.
//!
//! **What bounds the memory.** 24 bytes a document in the list of its run, and as many in each of the two orders. Two of these
//! lists are whole at a time, beside them the room to grow of the first or 16 bytes a unit: 72 bytes a document at most, of
//! which `Held` makes 80.

use rayon::prelude::*;

use super::worker::{Document, Run};
use crate::error::Result;
use crate::index::levels::Share;
use crate::storage::spool::{Reader, Spool};

/// A document in the order of units: [`Document`] and the run that it stands in.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    /// Compared for being equal, and to sort; a unit's number has no other meaning here.
    pub(super) unit: u32,
    /// The run whose stream the words are in.
    pub(super) run: u32,
    /// In words from the beginning of the stream. `len` is the same on every level: the stream of level n has a place for each
    /// word, whether an n-gram begins there or not.
    pub(super) start: u64,
    pub(super) len: u32,
    /// Whether phase 1 has counted its words for support. The same for all documents of a unit.
    pub(super) counted: bool,
}

/// The table of a run: id in the run's stream -> number of the word. The runs of closed dictionaries, which are the last ones,
/// share the last table: `unite` has rewritten their streams, as a table for each could not be held.
///
/// With two runs in memory and three closed ones there are three tables: runs 0 and 1 have theirs, runs 2, 3 and 4 the last.
/// A run exists only where there is a table, so the list is not empty here.
pub(super) fn numbers_of(numbers: &[Vec<u32>], run: usize) -> &[u32] {
    &numbers[run.min(numbers.len() - 1)]
}

/// All documents that were written down.
pub(super) struct Documents {
    /// By run.
    pub(super) streams: Vec<Spool<u32>>,
    /// All documents of a unit are neighbours, and the units of the subset come before the others.
    /// Both are what `shares` cuts by. Never sorted again: on levels above 2 the streams lie in this order.
    /// 24 bytes each, for all phases that follow: the part of a document that no limit can send to disk.
    order: Vec<Placed>,
    /// How many of the first documents are the subset's.
    num_of_subset: usize,
    /// Units and documents of which nothing was written down: of the subset, and of the others.
    num_gone: [(u64, u64); 2],
}

impl Documents {
    pub(super) fn new(runs: Vec<Run>) -> Self {
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
        // Two sorts. The first brings the documents of a unit together. The second orders the units of each side, and any
        // order would do for the counts: that of their first documents reads the streams nearly from front to back, which a disk likes, and
        // the tables of partitions do not care.
        // Two documents with equal keys have no order among them. At most one of them has words, as the stream goes on behind
        // it, and an empty document adds nothing wherever it stands.
        order.par_sort_unstable_by_key(|document| (document.unit, document.run, document.start));
        let mut units: Vec<&[Placed]> = order.chunk_by(|a, b| a.unit == b.unit).collect();
        units.par_sort_unstable_by_key(|unit| (sides[unit[0].run as usize], unit[0].run, unit[0].start));
        let order = units.concat();
        let num_of_subset = order.partition_point(|document| sides[document.run as usize] == 0);
        Self { streams, order, num_of_subset, num_gone }
    }

    /// At most so many shares of either side, and how many of the first are the subset's.
    /// A share never holds documents of both sides, so what was counted after the first ones is the subset's count.
    pub(super) fn shares(&self, num_shares: usize) -> (Vec<&[Placed]>, usize) {
        let (subset, others) = self.order.split_at(self.num_of_subset);
        let mut shares = split_by_unit(subset, num_shares);
        let num_of_subset = shares.len();
        shares.extend(split_by_unit(others, num_shares));
        (shares, num_of_subset)
    }

    /// Units and documents, of the subset or of all.
    pub(super) fn size(&self, of_subset: bool) -> (u64, u64) {
        let (order, gone) = if of_subset {
            (&self.order[..self.num_of_subset], &self.num_gone[..1])
        } else {
            (&self.order[..], &self.num_gone[..])
        };
        // A unit is either written down or gone, never both: it is gone only where one visit had all of its documents.
        let num_units = order.chunk_by(|a, b| a.unit == b.unit).count() as u64;
        gone.iter().fold((num_units, order.len() as u64), |sum, gone| (sum.0 + gone.0, sum.1 + gone.1))
    }
}

/// Cut documents into at most `num_shares` stretches of about as many words, each with whole units. (An empty document counts
/// as a word, so that a stretch of them ends too.)
///
/// In DESIGN.md the units have 7 (c1), 12 (a2 and a1) and 6 words (b1), counted so. For two shares the target is 13: the
/// first share ends with unit 0, at 19, and b1 is the second. A share may pass the target by one unit less a word: where
/// one unit has most of the text, one thread has most of the work.
pub(super) fn split_by_unit(order: &[Placed], num_shares: usize) -> Vec<&[Placed]> {
    let words = |documents: &[Placed]| documents.iter().map(|document| document.len as usize + 1).sum::<usize>();
    let target = words(order).div_ceil(num_shares.max(1));
    let mut shares = Vec::new();
    let (mut first, mut at, mut held) = (0, 0, 0);
    for unit in order.chunk_by(|a, b| a.unit == b.unit) {
        (at, held) = (at + unit.len(), held + words(unit));
        // Each share but the last has `target` words or more, so there are no more shares than were asked for.
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

/// Nothing overflows: a sum is at most the number of units, which are distinct `u32`. An empty list adds nothing.
pub(super) fn add(support: &mut [u32], more: &[u32]) {
    support.iter_mut().zip(more).for_each(|(support, more)| *support += more);
}

/// For each share, how many of its units use each word, of the units whose documents have not been counted. An empty list
/// stands for none. `last`: the streams are not needed afterwards.
///
/// A unit is counted as a whole or not at all: `counted` is the same for all its documents, as it is set only where they come
/// in one stretch and are all it has.
pub(super) fn count_words(
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
        // Last unit that raised the count, plus 1, and the count. Both in one place: a word costs one access to memory.
        let mut counts = vec![(0u32, 0u32); num_words];
        Numbered { share: &share, words: Words { streams, numbers, last } }.documents(|unit, ids| {
            // 0 is left for "no unit yet". There are fewer than 2^32 units, since `LEFT_OUT` is none.
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
    // One share a task. A share at work has a table of all words, so a thread must not begin a second one beside the
    // first.
    shares.par_iter().with_max_len(1).map(count).collect()
}

/// How the words of documents become numbers. With `last` the streams are not read again, and give their pages back.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) streams: &'a [Spool<u32>],
    pub(super) numbers: &'a [Vec<u32>],
    /// True for one reader of each document at most: afterwards the pages are gone, and to read them is an error.
    pub(super) last: bool,
}

/// One share's documents as numbers of words: read at random from the streams of all runs, but nearly in order.
pub(super) struct Numbered<'a> {
    pub(super) share: &'a [Placed],
    pub(super) words: Words<'a>,
}

impl Share for Numbered<'_> {
    fn documents(self, mut visit: impl FnMut(u32, &[u32]) -> Result<()>) -> Result<()> {
        let Words { streams, numbers, last } = self.words;
        // Grows to the longest document of the share and is used for all: no allocation a document.
        let mut ids = Vec::new();
        for (unit, documents) in self.share.chunk_by(|a, b| a.unit == b.unit).enumerate() {
            for document in documents {
                ids.clear();
                let run = document.run as usize;
                // With `last`, every document is read once over all shares, so a page goes back after its last
                // document, whichever thread reads that.
                streams[run].read(document.start as usize, document.len as usize, &mut ids, last)?;
                let numbers = numbers_of(numbers, run);
                ids.iter_mut().for_each(|id| *id = numbers[*id as usize]);
                visit(unit as u32, &ids)?;
            }
        }
        Ok(())
    }
}

/// One share's documents as ids of (n-1)-grams, for level n > 2. `gather` has written them in the order of `share`, so they
/// are read once, from the front.
pub(super) struct Stream<'a> {
    pub(super) share: &'a [Placed],
    /// As many numbers as the documents of `share` have words. It holds the share's numbers alone, so no other thread waits for it.
    pub(super) ids: Reader<u32>,
}

impl Share for Stream<'_> {
    fn documents(mut self, mut visit: impl FnMut(u32, &[u32]) -> Result<()>) -> Result<()> {
        let mut ids = Vec::new();
        for (unit, documents) in self.share.chunk_by(|a, b| a.unit == b.unit).enumerate() {
            for document in documents {
                ids.clear();
                // No place is given: the order and the lengths are those with which `scatter` wrote the level before.
                self.ids.read(document.len as usize, &mut ids)?;
                visit(unit as u32, &ids)?;
            }
        }
        Ok(())
    }
}
