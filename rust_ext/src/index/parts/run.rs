//! Run: sorted rows of a table as bytes, and the answers to them.
//!
//! Rows ascend, so each is written as its difference to the one before: a word as the bytes beyond the prefix that both
//! share, a pair as the step of its left number and, where that is 0, of its right one. Numbers have 7 bits a byte. That is
//! 5 to 6 bytes a pair, where two numbers of 64 bits would be 16.
//!
//! An answer has for each row the support in all, and for a row that has a number in all the step to it from the one before.
//! Which rows have one follows from the supports, but the reader of an answer need not know the rule: a bit says it.

use std::cmp::Ordering;

use crate::error::{Error, Result};

/// What rows are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Words,
    Pairs,
}

/// What rows are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key<'a> {
    Word(&'a [u8]),
    Pair(u64, u64),
}

/// Bytes of a word that bounds of ranges go by. Words that begin alike come to one range.
const BOUND_BYTES: usize = 8;

impl Key<'_> {
    /// Bytes that ascend with the keys.
    pub fn bound(&self) -> Vec<u8> {
        match self {
            Key::Word(word) => word[..word.len().min(BOUND_BYTES)].to_vec(),
            Key::Pair(left, right) => [left.to_be_bytes(), right.to_be_bytes()].concat(),
        }
    }

    /// How the key stands to a bound.
    fn compare(&self, bound: &[u8]) -> Ordering {
        match self {
            Key::Word(word) => (*word).cmp(bound),
            Key::Pair(left, right) => {
                left.to_be_bytes().iter().chain(&right.to_be_bytes()).copied().cmp(bound.iter().copied())
            }
        }
    }
}

/// A row of a table. Only words have occurrences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    pub key: Key<'a>,
    pub support: u32,
    pub occurrences: u64,
}

/// Rows in runs, one more than there are bounds: a row that is not under a bound comes after it.
pub fn write_runs<'a>(kind: Kind, rows: impl Iterator<Item = Row<'a>>, bounds: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut runs = vec![Vec::new(); bounds.len() + 1];
    let (mut at, mut before) = (0, Before::default());
    for row in rows {
        while at < bounds.len() && row.key.compare(&bounds[at]) != Ordering::Less {
            (at, before) = (at + 1, Before::default());
        }
        let out = &mut runs[at];
        match row.key {
            Key::Word(word) => {
                let shared = word.iter().zip(&before.word).take_while(|(a, b)| a == b).count();
                put(out, shared as u64);
                put(out, (word.len() - shared) as u64);
                out.extend_from_slice(&word[shared..]);
                put(out, row.occurrences);
                before.word.truncate(shared);
                before.word.extend_from_slice(&word[shared..]);
            }
            Key::Pair(left, right) => {
                put(out, left - before.left);
                put(out, if left == before.left { right - before.right } else { right });
                (before.left, before.right) = (left, right);
            }
        }
        debug_assert_eq!(kind == Kind::Words, matches!(row.key, Key::Word(_)));
        put(out, u64::from(row.support));
    }
    runs
}

/// The key of the row before, which the next one is a difference to.
#[derive(Default)]
struct Before {
    word: Vec<u8>,
    left: u64,
    right: u64,
}

/// Reads a run, row by row.
pub struct RunReader<'a> {
    rest: &'a [u8],
    kind: Kind,
    before: Before,
    pub support: u32,
    pub occurrences: u64,
}

impl<'a> RunReader<'a> {
    pub fn new(kind: Kind, run: &'a [u8]) -> Self {
        Self { rest: run, kind, before: Before::default(), support: 0, occurrences: 0 }
    }

    /// Go to the next row; false where there is none.
    pub fn step(&mut self) -> Result<bool> {
        if self.rest.is_empty() {
            return Ok(false);
        }
        match self.kind {
            Kind::Words => {
                let (shared, more) = (take(&mut self.rest)? as usize, take(&mut self.rest)? as usize);
                if shared > self.before.word.len() || more > self.rest.len() {
                    return Err(broken());
                }
                let (bytes, rest) = self.rest.split_at(more);
                self.before.word.truncate(shared);
                self.before.word.extend_from_slice(bytes);
                self.rest = rest;
                self.occurrences = take(&mut self.rest)?;
            }
            Kind::Pairs => {
                let (step, right) = (take(&mut self.rest)?, take(&mut self.rest)?);
                let right = if step == 0 { self.before.right.checked_add(right) } else { Some(right) };
                self.before.left = self.before.left.checked_add(step).ok_or_else(broken)?;
                self.before.right = right.ok_or_else(broken)?;
            }
        }
        self.support = u32::try_from(take(&mut self.rest)?).map_err(|_| broken())?;
        Ok(true)
    }

    /// The key of the row at hand.
    pub fn key(&self) -> Key<'_> {
        match self.kind {
            Kind::Words => Key::Word(&self.before.word),
            Kind::Pairs => Key::Pair(self.before.left, self.before.right),
        }
    }
}

/// Writes the answer to a run.
#[derive(Default)]
pub struct AnswerWriter {
    pub bytes: Vec<u8>,
    before: u64,
}

impl AnswerWriter {
    /// The next row: its support in all, and its number in the range if it has one.
    pub fn push(&mut self, support: u32, rank: Option<u64>) {
        put(&mut self.bytes, u64::from(support) << 1 | u64::from(rank.is_some()));
        if let Some(rank) = rank {
            put(&mut self.bytes, rank - self.before);
            self.before = rank;
        }
    }
}

/// Supports of the rows of several runs, one after the other, and the numbers in all of those that have one; each answer comes
/// with the number of the first row of its range.
pub fn read_answers(answers: &[(u64, &[u8])]) -> Result<(Vec<u32>, Vec<u64>)> {
    let (mut supports, mut ranks) = (Vec::new(), Vec::new());
    for &(first, answer) in answers {
        let (mut rest, mut rank) = (answer, first);
        while !rest.is_empty() {
            let support = take(&mut rest)?;
            supports.push(u32::try_from(support >> 1).map_err(|_| broken())?);
            if support & 1 == 1 {
                rank = rank.checked_add(take(&mut rest)?).ok_or_else(broken)?;
                ranks.push(rank);
            }
        }
    }
    Ok((supports, ranks))
}

pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub fn take(rest: &mut &[u8]) -> Result<u64> {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let (&byte, later) = rest.split_first().ok_or_else(broken)?;
        *rest = later;
        if shift > 63 {
            return Err(broken());
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
        shift += 7;
    }
}

pub fn broken() -> Error {
    Error::Artifact("bytes of a part, a run or an answer are not whole".into())
}
