//! Worker: one thread's dictionary, and the documents it has written down.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::index::dictionary::{Dictionary, Visit};
use crate::storage::spool::{Spool, Store};
use crate::text::classes::InstructionSet;
use crate::text::texts::Texts;
use crate::text::words::{Bounds, Scanner};

/// Where one document's words stand in the stream of its run.
#[derive(Clone, Copy)]
pub(super) struct Document {
    pub(super) unit: u32,
    pub(super) len: u32,
    pub(super) start: u64,
    /// Whether its words have been counted for support.
    pub(super) counted: bool,
}

/// What one dictionary holds the words of.
pub(super) struct Run {
    pub(super) of_subset: bool,
    pub(super) stream: Spool<u32>,
    pub(super) documents: Vec<Document>,
    /// Units and documents of which nothing had to be written down.
    pub(super) num_gone: (u64, u64),
}

pub(super) struct Worker {
    pub(super) dictionary: Dictionary,
    pub(super) run: Run,
    pub(super) scanner: Scanner,
    pub(super) bounds: Vec<Bounds>,
    pub(super) ids: Vec<u32>,
    /// Number of the visit: neighbouring documents of one unit.
    pub(super) visit: u32,
}

impl Worker {
    pub(super) fn new(of_subset: bool, store: &Arc<Store>) -> Self {
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
    pub(super) fn add(
        &mut self,
        texts: &Texts,
        rows: Range<usize>,
        unit: u32,
        only: bool,
        words_alone: bool,
    ) -> Result<usize> {
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
