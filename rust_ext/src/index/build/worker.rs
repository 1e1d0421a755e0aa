//! Worker: one dictionary, and the documents whose words it has turned into ids.
//!
//! A call of `add` takes a worker, uses it alone and gives it back. So nothing here is shared or locked, and there are as many
//! workers as calls ran at once. The price: a word that several workers meet is in several dictionaries, and has another id
//! in each. `unite` pays it once, for each distinct word and not for each occurrence.
//!
//! A worker whose call fails is dropped, and not repaired: its dictionary may have counted words of a document that the list
//! does not name. `IndexBuilder::num_unfinished` remembers that, and `finish` refuses.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::index::dictionary::{Dictionary, Visit};
use crate::storage::spool::{Spool, Store};
use crate::text::classes::InstructionSet;
use crate::text::texts::Texts;
use crate::text::words::{Bounds, Scanner};

/// Where one document's words stand in the stream of its run. 24 bytes a document stay in memory, whatever the limit.
#[derive(Clone, Copy)]
pub(super) struct Document {
    pub(super) unit: u32,
    /// Number of its words in the stream. Where only words are counted, these are the words that its visit had not seen.
    /// 32 bits are enough: a text is shorter than 4 GiB (`check_length`), and a word takes a byte or more.
    pub(super) len: u32,
    /// Place of its first word in the stream. 64 bits, as a stream holds the documents of many calls.
    pub(super) start: u64,
    /// Whether the dictionary has counted its words for support; if so, phase 4 must not.
    pub(super) counted: bool,
}

/// The documents whose words one dictionary holds.
pub(super) struct Run {
    /// Holds for all of its documents, so one bit says it for the run and none need be kept for each document.
    pub(super) of_subset: bool,
    /// Ids of the words of all documents, one document after the other. The ids are the dictionary's until `unite`.
    pub(super) stream: Spool<u32>,
    /// In the order they came: `start` ascends.
    /// Documents without words are here too: the index says how many documents and units it was made from.
    pub(super) documents: Vec<Document>,
    /// Units and documents that left nothing in the stream, as all there was to count of them has been counted.
    pub(super) num_gone: (u64, u64),
}

pub(super) struct Worker {
    /// Of spellings, in the order in which they came. Its ids are what the stream of `run` holds.
    pub(super) dictionary: Dictionary,
    pub(super) run: Run,
    pub(super) scanner: Scanner,
    /// Room for the words of the document at hand, and for their ids.
    pub(super) bounds: Vec<Bounds>,
    pub(super) ids: Vec<u32>,
    /// Number of the last visit (a stretch of neighbouring documents of one unit), from 1 on. 0 is the visit of a slot that
    /// no visit has seen.
    /// It never goes back: a number that came again would take the words of another unit for seen, and lose support.
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

    /// Add the neighbouring documents `rows`, all of one unit; `only`: it has no others, so its support can be counted here.
    /// `words_alone`: no pairs will be asked for, so the order of words is not needed. Returns the number of words.
    pub(super) fn add(
        &mut self,
        texts: &Texts,
        rows: Range<usize>,
        unit: u32,
        only: bool,
        words_alone: bool,
    ) -> Result<usize> {
        // One number for the whole stretch and not one a document: a word in two documents of the unit counts once.
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
            // Pairs need every word in its place. For words alone, the visit's distinct words are enough, and not even
            // those where the dictionary counts the support itself.
            match words_alone {
                // No other document of the unit will come, so neither words nor the document need be remembered.
                true if only => {
                    self.dictionary.count(text, &self.bounds, visit);
                    continue;
                }
                // A word that repeats in the visit stands with the first document that holds it. Phase 4 walks the documents
                // of a unit together, so it does not matter with which one.
                true => self.dictionary.intern_new(text, &self.bounds, visit, &mut self.ids),
                false => self.dictionary.intern(text, &self.bounds, visit, &mut self.ids),
            }
            // A document is noted after its words are written. If the disk fails between, the stream is longer than
            // its documents say, and `add` gives the worker up.
            let start = self.run.stream.len() as u64;
            self.run.stream.extend(&self.ids)?;
            self.run.documents.push(Document { unit, len: self.ids.len() as u32, start, counted: only });
        }
        // One unit, as `only` says that the stretch is all of it: so units that are gone can be counted without a set.
        if words_alone && only {
            self.run.num_gone.0 += 1;
            self.run.num_gone.1 += rows.len() as u64;
        }
        Ok(num_words)
    }
}
