//! Unite: from the dictionaries of all workers to one vocabulary.
//!
//! Before: each run's stream holds ids of its own dictionary. After: one vocabulary in byte order, and for each run a table
//! from the ids in its stream to the numbers in that vocabulary. The streams of dictionaries in memory are not rewritten: a
//! table of 4 bytes a distinct word is much smaller than a stream of 4 bytes a word of text.
//!
//! Dictionaries in memory are united first, by looking the words of one up in another, and sorted once: sorting costs more
//! than looking up. Closed dictionaries were sorted when they were closed, and are merged with the result (`vocabulary`).
//!
//! Nothing runs beside this: `finish` has taken the builder by value, so no call of `add` is running. The locks are taken for
//! form, and a poisoned one does not occur, as `finish` refuses a builder in which a call has failed.
//!
//! Memory: the open dictionaries, each of which goes when it has been absorbed; then the vocabulary beside the united one.
//! An error leaves nothing behind: the builder is gone, and with it its spools and their nameless files.

use std::cmp::Reverse;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rayon::prelude::*;

use super::IndexBuilder;
use super::memory::Working;
use super::worker::{Run, Worker};
use crate::error::{Error, Result};
use crate::index::counts::Counted;
use crate::index::dictionary::Dictionary;
use crate::index::ngram_index::NgramIndex;
use crate::index::vocabulary::{Frequency, Merged, Size, Sorted, Vocabulary};
use crate::storage::spool::Spool;

impl IndexBuilder {
    /// One vocabulary from all dictionaries; `min_support` tells how many pairs a limit must be able to hold afterwards.
    pub(super) fn unite(&self, min_support: u32) -> Result<United> {
        let (united, mut runs, mut numbers) = self.unite_workers();
        self.release_memory();
        // First, even where it is empty: the first of `merged` is its table in any case.
        let mut sorted = vec![Sorted::new(united, self.surface)];
        let closed = std::mem::take(&mut *self.closed.lock().unwrap_or_else(PoisonError::into_inner));
        let (num_in_memory, num_closed) = (runs.len(), closed.parts.len());
        // Two lists in one order, runs and sorted dictionaries: below, tables find their runs by place alone.
        for (dictionary, run) in closed.parts {
            sorted.push(dictionary);
            runs.push(run);
        }
        let num_documents = runs.iter().map(|run| run.documents.len()).sum();
        let held = |size: Size| self.held(size, num_documents, num_closed);
        // Asked while the words come. The merge may find that they do not fit long before it has seen them all.
        let make_room = |size: Size| match &self.limit {
            Some(limit) => self.make_room(limit, &held(size), &runs),
            None => Ok(true),
        };
        // A word that stands in the text once has support 1: it is in no pair, unless words of support 1 are kept too.
        let kept = |size: Size, frequency: Frequency| match min_support {
            0..=1 => Frequency { num_repeated: size.num, ..frequency },
            _ => frequency,
        };
        let refusal = |size: Size, frequency: Frequency| match &self.limit {
            Some(limit) => {
                let num_words = self.num_words.load(Ordering::Relaxed);
                limit.refusal(&held(size), self.pairs(limit, num_words, kept(size, frequency)))
            }
            // Never asked for: without a limit there is always room.
            None => Error::Policy("no limit is too small".into()),
        };
        let Vocabulary { counted, mut merged } = Vocabulary::merge(sorted, &self.store, make_room, refusal)?;
        let size = Size::of(&counted.words);
        // Before the tables are read and streams rewritten: a limit that cannot be held is refused without that work.
        let working = self.working(&held(size), &runs, kept(size, Frequency::of(&counted.whole.occurrences)))?;
        // `sorted` began with the united dictionary, and the merge keeps the order of its parts.
        let spooled = merged.split_off(1);
        let numbers_of_united = merged.into_iter().map(Merged::numbers).next().unwrap_or_else(|| Ok(Vec::new()))?;
        // Two tables become one (id of the run, id in the united dictionary, number), so that later each word of the text costs
        // one look-up and not two.
        numbers.par_iter_mut().flatten().for_each(|id| *id = numbers_of_united[*id as usize]);
        if !spooled.is_empty() {
            // Closed dictionaries may be many, and a table for each would not fit into memory. One at a time is read (one for
            // each thread), and the run's stream is rewritten with it; after that the runs share the identity as their table.
            numbers.push((0..counted.words.len() as u32).collect());
            // One run a task: runs are few and large, so a thread that took two would leave another one idle at the end.
            let runs = runs[num_in_memory..].par_iter_mut();
            runs.zip(spooled).with_max_len(1).try_for_each(|(run, merged)| self.renumber(run, &merged.numbers()?))?;
        }
        Ok(United { runs, numbers, counted, working })
    }

    /// One dictionary from those that are in memory; the runs of their workers, and by run its ids in that dictionary.
    fn unite_workers(&self) -> (Dictionary, Vec<Run>, Vec<Vec<u32>>) {
        // The subset's dictionaries come first, so that at `end_subset` the counts are those of the subset alone. On each
        // side the largest comes first: the words of the smaller ones are looked up in it, and not the other way round.
        let (mut united, mut runs) = (Dictionary::default(), Vec::new());
        let mut numbers: Vec<Vec<u32>> = Vec::new();
        for (side, idle) in self.idle.iter().enumerate() {
            let mut workers = std::mem::take(&mut *idle.lock().unwrap_or_else(PoisonError::into_inner));
            // Which of two equal ones comes first differs from run to run. It decides ids alone, and these end here.
            workers.sort_by_key(|worker| Reverse(worker.dictionary.len()));
            for Worker { dictionary, run, .. } in workers {
                // The first one is taken as it is: its ids are those of the union, and none of its words is looked up.
                if runs.is_empty() {
                    numbers.push((0..dictionary.len() as u32).collect());
                    united = dictionary;
                } else {
                    numbers.push(united.absorb(dictionary));
                }
                runs.push(run);
            }
            // Without workers of the subset in memory its counts stay empty here; its closed dictionaries add theirs.
            if side == 0 && !runs.is_empty() {
                united.end_subset();
            }
        }
        (united, runs, numbers)
    }

    /// Replace the ids of a run's stream by the numbers of the words; pages of the old stream are used for the new one.
    ///
    /// A page of the old stream goes back when the next one is read, so the text is in memory, or on disk, about once. Places
    /// and lengths stay as they are, which is why `Run::documents` still holds. After an error the stream is lost.
    pub(super) fn renumber(&self, run: &mut Run, numbers: &[u32]) -> Result<()> {
        let mut stream = std::mem::replace(&mut run.stream, Spool::new(&self.store)).into_reader();
        let mut ids = Vec::new();
        while let Some(page) = stream.next_page()? {
            ids.clear();
            ids.extend(page.iter().map(|&id| numbers[id as usize]));
            run.stream.extend(&ids)?;
        }
        Ok(())
    }
}

/// The result of phase 2.
pub(super) struct United {
    /// Those of dictionaries in memory first, then those of closed ones.
    pub(super) runs: Vec<Run>,
    /// By run, but one table for all closed ones: id in the stream -> number in the vocabulary.
    pub(super) numbers: Vec<Vec<u32>>,
    /// The words, their occurrences, and their support as far as dictionaries have counted it.
    pub(super) counted: Counted,
    /// Reckoned with the vocabulary at its full size.
    pub(super) working: Working,
}

/// Turn numbers of the vocabulary into ids + 1 of the kept words, and 0 for words under `min_support`. Returns, by id, how often
/// the word stands in the text and its number in the vocabulary.
///
/// This is the Apriori step: support never grows from an n-gram to a longer one, so a pair with a rare part is identifying
/// through that part already, and need not be counted. Dense ids make the keys of pairs short.
///
/// In DESIGN.md numbers 1, 2, 4, 5 and 9 are kept, so `names` is 1 2 4 5 9 and `kept` is 0 1 2 0 3 4 0 0 0 5. The table of
/// run 0, which was 8 4 2 5 9 1 6 0, becomes 0 3 2 4 5 1 0 0. From here on one look-up leads from a stream to ids + 1.
///
/// `names` ascends with the ids, so keys of ids and keys of numbers have the same order.
pub(super) fn keep_words(index: &NgramIndex, numbers: &mut [Vec<u32>]) -> (Vec<u32>, Vec<u32>) {
    let mut kept = vec![0u32; index.words.len()];
    let (mut weights, mut names) = (Vec::new(), Vec::new());
    for (id, kept) in kept.iter_mut().enumerate() {
        if index.support[id] >= index.min_support {
            // A weight only tells the plan where to cut, so a greatest value is as good as the true one.
            weights.push(u32::try_from(index.occurrences[id]).unwrap_or(u32::MAX));
            names.push(id as u32);
            *kept = weights.len() as u32;
        }
    }
    numbers.par_iter_mut().flatten().for_each(|number| *number = kept[*number as usize]);
    (weights, names)
}
