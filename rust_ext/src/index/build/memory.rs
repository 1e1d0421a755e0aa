//! Memory: how much the builder holds, and whether its limit allows that.
//!
//! Streams and closed dictionaries can go to disk; the vocabulary, the list of documents and the tables of the partitions at
//! work cannot. Their size is not known before the documents have come. So the limit is asked at four points: a dictionary is
//! full (`close`), the vocabulary grows (`make_room`), the vocabulary is complete (`working`), a partition is counted
//! (`Room`). A limit that cannot be held is refused at the first point that can tell, with the limit that would do.
//!
//! After a refusal the builder cannot be finished: documents are lost, or it is used up already. Its spools give their pages
//! back as they are dropped, and its files have no name, so nothing is left on disk.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use super::IndexBuilder;
use super::worker::{Run, Worker};
use crate::error::Result;
use crate::index::dictionary::Dictionary;
use crate::index::limit::{Held, Limit, Pairs, Room, bytes_of_open_pages};
use crate::index::vocabulary::{Frequency, Size, Sorted};
use crate::storage::spool::Store;

impl IndexBuilder {
    /// Whether a dictionary takes more than its share of an eighth of the limit. An eighth, because a table that has no room
    /// to grow is in memory twice for a moment, and a dictionary that is closed is sorted beside itself.
    ///
    /// It is asked after a call and not within one, so a dictionary may be larger by the words of one call. A new worker makes
    /// the share of all smaller; an older dictionary is held to it when its next call ends.
    pub(super) fn is_full(&self, dictionary: &Dictionary) -> bool {
        let num_workers = self.num_workers.load(Ordering::Relaxed).max(2);
        self.limit.as_ref().is_some_and(|limit| dictionary.num_bytes() > limit.num_bytes / 8 / num_workers)
    }

    /// Make room: a dictionary that has grown too large is sorted, and goes to the pages of the store.
    ///
    /// Each closed dictionary needs open pages when all are merged. Where these alone take a quarter of the limit, more
    /// dictionaries would make the merge impossible: the limit is refused now, and not after all documents were read.
    pub(super) fn close(&self, worker: Worker) -> Result<()> {
        let of_subset = worker.run.of_subset;
        // Sorted and written before the lock is taken, so that several threads can do it at once.
        let sorted = Sorted::new(worker.dictionary, self.surface).spool(of_subset, &self.store)?;
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let Size { num, num_bytes } = sorted.size();
        closed.size.num += num;
        closed.size.num_bytes += num_bytes;
        closed.parts.push((sorted, worker.run));
        let bytes_of_open_pages = bytes_of_open_pages(closed.parts.len(), &self.store);
        match &self.limit {
            // Without `used` the memory of the rest of the process is unknown, so nothing is refused.
            Some(limit @ Limit { used: Some(_), .. }) if bytes_of_open_pages > limit.num_bytes / 4 => {
                // The rest of the documents has as many words as these at most, in proportion: distinct words come ever more
                // slowly. So this reckons with more than is needed, and the limit that it names will do.
                let (came, all) = self.num_documents();
                // A caller that gave no `documents_of` has 0 of 0: the factor is 1, and the error names what is needed so far.
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

    /// The pairs of so many words, at most: each word begins one. The most frequent word bounds the pairs that begin alike,
    /// and so do the words that can stand second.
    ///
    /// The bound holds for every level. An (n-1)-gram stands in the text no more often than a word of it, and those that may
    /// follow it differ in their last word alone.
    pub(super) fn pairs(&self, limit: &Limit, num_words: usize, frequency: Frequency) -> Pairs {
        let num = if self.max_n > 1 { num_words } else { 0 };
        let num_sides = if self.subset.is_empty() { 1 } else { 2 };
        // At most a share for each thread on each side (`Documents::shares`), and each has an open page for each partition.
        let num_shares = num_sides * limit.num_threads;
        let most_of_one = frequency.num_repeated.min(usize::try_from(frequency.most).unwrap_or(usize::MAX));
        Pairs { num, most_of_one, num_shares }
    }

    /// Documents that came, and those that will have come in all.
    /// An estimate while calls of `add` are running: the two sums are read unit by unit, without a lock.
    pub(super) fn num_documents(&self) -> (usize, usize) {
        let sum = |sum: (usize, usize), (all, came): &(u32, AtomicU32)| {
            (sum.0 + came.load(Ordering::Relaxed) as usize, sum.1 + *all as usize)
        };
        self.documents_of.iter().fold((0, 0), sum)
    }

    /// What cannot go to disk for a vocabulary of this size. In one place, so that all points of asking reckon alike.
    pub(super) fn held(&self, size: Size, num_documents: usize, num_closed: usize) -> Held {
        Held {
            num_words: size.num,
            bytes_of_words: size.num_bytes,
            num_documents,
            bytes_of_open_pages: bytes_of_open_pages(num_closed, &self.store),
            has_subset: !self.subset.is_empty(),
        }
    }

    /// Write more of the runs to disk, the more words the vocabulary has; returns whether the limit still holds. The vocabulary
    /// and the pages share the memory: as one grows, the other must shrink.
    pub(super) fn make_room(&self, limit: &Limit, held: &Held, runs: &[Run]) -> Result<bool> {
        // Half of what is left, as at the beginning: the other half is for the tables of partitions.
        let rest = limit.rest(held);
        // Pages have half of the limit (`IndexBuilder::new`). While less than an eighth is held otherwise, both fit.
        if rest < limit.num_bytes / 8 * 7 {
            self.store.hold_at_most(rest / 2);
            runs.iter().try_for_each(|run| run.stream.evict())?;
            self.store.release_idle();
        }
        Ok(limit.holds(held))
    }

    /// Where levels are counted, with the memory that the vocabulary leaves of the limit.
    ///
    /// Scatter keeps a page open for each partition of each share. Large pages are faster, but allow few partitions, whose
    /// tables are then large. So pages are made smaller until the tables of the partitions that are counted at once fit.
    pub(super) fn working(&self, held: &Held, runs: &[Run], frequency: Frequency) -> Result<Working> {
        let Some(limit) = &self.limit else {
            return Ok(Working { num_bytes: usize::MAX, store: self.store.clone(), room: Room::unlimited() });
        };
        let pairs = self.pairs(limit, self.num_words.load(Ordering::Relaxed), frequency);
        // Made now, as it names sizes that only this point knows. `Room` hands it on where a partition proves too large.
        let refusal = limit.refusal(held, pairs);
        if !limit.holds(held) {
            return Err(refusal);
        }
        let num_bytes = limit.rest(held);
        let room = if limit.used.is_some() { Room::within(num_bytes, &refusal) } else { Room::unlimited() };
        let mut store = self.store.clone();
        // A store that keeps less should have smaller pages. Never larger ones than now: only too large ones are a reason to
        // change the store.
        let at_most = Store::page_bytes_of(num_bytes / 2).min(store.page_bytes());
        let page_bytes = pairs.page_bytes(num_bytes, at_most, limit.num_threads);
        if limit.used.is_some() && page_bytes < store.page_bytes() {
            // Pages of two sizes cannot share a store: the streams go to disk, and a new store holds the levels.
            store.hold_at_most(0);
            runs.iter().try_for_each(|run| run.stream.evict())?;
            store.release_idle();
            // What is written to the old store from here on (`renumber`) goes to disk page by page.
            store = Store::with_pages(num_bytes / 2, page_bytes, &limit.folder)?;
        }
        Ok(Working { num_bytes, store, room })
    }

    /// What was freed on the way stands in the way of a limit.
    pub(super) fn release_memory(&self) {
        if self.limit.is_some() {
            crate::pool::release_memory();
        }
    }
}

/// The memory that levels are counted with.
pub(super) struct Working {
    /// Bytes that a limit leaves.
    /// The greatest number without a limit. It bounds how many shares count words at once, and how many partitions there are.
    pub(super) num_bytes: usize,
    /// That of the builder, or one of smaller pages. Levels keep it alive, and so outlive the builder.
    pub(super) store: Arc<Store>,
    /// For the tables of partitions.
    pub(super) room: Room,
}
