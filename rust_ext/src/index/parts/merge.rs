//! Merge: the runs that parts sent to one range, as one stretch of the table of all, and an answer to each.
//!
//! A heap holds the row at hand of each run. Equal rows leave it together; their counts are summed, and every run that had the
//! row is told the sum and the number. One pass, and memory for one row of each run beside what comes out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::run::{AnswerWriter, Key, Kind, RunReader};
use crate::error::{Error, Result};
use crate::storage::strings::Strings;

/// A stretch of the table of all documents. Of its columns, those of its kind are filled.
#[derive(Default)]
pub struct Merged {
    pub words: Strings,
    pub occurrences: Vec<u64>,
    pub left: Vec<u64>,
    pub right: Vec<u64>,
    pub support: Vec<u32>,
    /// Rows that have a number: all words, and the pairs of at least `min_support` units.
    pub num_ranked: u64,
    /// Rows that more than one run held.
    pub num_shared: u64,
    /// By run.
    pub answers: Vec<Vec<u8>>,
}

/// A key that outlives its reader.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Owned {
    Word(Vec<u8>),
    Pair(u64, u64),
}

impl Owned {
    fn of(key: Key) -> Self {
        match key {
            Key::Word(word) => Self::Word(word.to_vec()),
            Key::Pair(left, right) => Self::Pair(left, right),
        }
    }
}

pub fn merge(kind: Kind, runs: &[&[u8]], min_support: u32) -> Result<Merged> {
    let mut readers: Vec<RunReader> = runs.iter().map(|run| RunReader::new(kind, run)).collect();
    let mut answers: Vec<AnswerWriter> = runs.iter().map(|_| AnswerWriter::default()).collect();
    let mut heap = BinaryHeap::new();
    for (number, reader) in readers.iter_mut().enumerate() {
        if reader.step()? {
            heap.push(Reverse((Owned::of(reader.key()), number)));
        }
    }
    let mut merged = Merged::default();
    let mut here = Vec::new();
    while let Some(Reverse((key, number))) = heap.pop() {
        here.clear();
        here.push(number);
        while heap.peek().is_some_and(|Reverse((other, _))| *other == key) {
            here.extend(heap.pop().map(|Reverse((_, number))| number));
        }
        let support: u64 = here.iter().map(|&number| u64::from(readers[number].support)).sum();
        let support = u32::try_from(support)
            .map_err(|_| Error::Corpus("more than 4 294 967 295 individuals use one word".into()))?;
        // What no counted unit uses is asked for, and is in no table; strings that are no words may have sums of 0.
        let is_listed = support > 0 || min_support == 0;
        let is_ranked = is_listed && (kind == Kind::Words || support >= min_support);
        let rank = is_ranked.then_some(merged.num_ranked);
        if is_listed {
            merged.num_ranked += u64::from(is_ranked);
            merged.num_shared += u64::from(here.len() > 1);
            merged.support.push(support);
            match &key {
                Owned::Word(word) => {
                    let word = std::str::from_utf8(word).map_err(|_| super::run::broken())?;
                    merged.words.push(word);
                    merged.occurrences.push(here.iter().map(|&number| readers[number].occurrences).sum());
                }
                Owned::Pair(left, right) => {
                    merged.left.push(*left);
                    merged.right.push(*right);
                }
            }
        }
        for &number in &here {
            answers[number].push(support, rank);
            if readers[number].step()? {
                let next = Owned::of(readers[number].key());
                if next <= key {
                    return Err(Error::Artifact("a run of a part is not sorted".into()));
                }
                heap.push(Reverse((next, number)));
            }
        }
    }
    merged.answers = answers.into_iter().map(|answer| answer.bytes).collect();
    Ok(merged)
}
