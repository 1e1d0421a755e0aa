//! Vocabulary: the dictionaries of many workers as one list of words in byte order.
//!
//! A dictionary holds words as they were written; here each gets its surface, once a distinct word. Dictionaries are sorted
//! one by one and merged, so that one of them at a time is in memory when memory is short.

mod sorted;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

pub use sorted::Sorted;
use sorted::{Names, Numbers};

use crate::error::{Error, Result};
use crate::index::counts::{Count, Counted};
use crate::storage::spool::{Reader, Spool, Store};
use crate::storage::strings::Strings;

/// Bytes that say how long a spooled surface is.
const LENGTH_BYTES: usize = size_of::<u64>();
/// Whether there is room is asked each time so many words have come.
const ASK_EACH: usize = if cfg!(test) { 1 << 8 } else { 1 << 16 };

/// How many words, and how many bytes they have together.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Size {
    pub num: usize,
    pub num_bytes: usize,
}

impl Size {
    pub fn of(words: &Strings) -> Self {
        Self { num: words.len(), num_bytes: words.as_str().len() }
    }
}

/// How often words stand in the text.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Frequency {
    /// Words that stand there twice or more.
    pub num_repeated: usize,
    /// Occurrences of the most frequent one.
    pub most: u64,
}

impl Frequency {
    pub fn of(occurrences: &[u64]) -> Self {
        let mut frequency = Self::default();
        occurrences.iter().for_each(|&number| frequency.add(number));
        frequency
    }

    fn add(&mut self, occurrences: u64) {
        self.num_repeated += usize::from(occurrences > 1);
        self.most = self.most.max(occurrences);
    }
}

/// The first eight bytes, so that numbers compare as the words do.
fn prefix(word: &[u8]) -> u64 {
    let mut first = [0u8; 8];
    let len = word.len().min(8);
    first[..len].copy_from_slice(&word[..len]);
    u64::from_be_bytes(first)
}

/// All words in byte order with what was counted of each, and for each dictionary where its words went.
pub struct Vocabulary {
    pub counted: Counted,
    pub merged: Vec<Merged>,
}

/// What is left of a dictionary: how to find the numbers of its words.
pub struct Merged {
    places: Numbers,
    /// Number of a surface there -> number in the vocabulary.
    global: Numbers,
}

impl Merged {
    /// Word id in the dictionary -> number in the vocabulary.
    pub fn numbers(self) -> Result<Vec<u32>> {
        let (mut numbers, global) = (self.places.into_vec()?, self.global.into_vec()?);
        numbers.iter_mut().for_each(|number| *number = global[*number as usize]);
        Ok(numbers)
    }
}

impl Vocabulary {
    /// `make_room(size so far)` is called now and then, and says whether the words can be kept; where they cannot, the error
    /// is `refusal(size and frequency of all)`.
    pub fn merge(
        mut parts: Vec<Sorted>,
        store: &Arc<Store>,
        mut make_room: impl FnMut(Size) -> Result<bool>,
        refusal: impl FnOnce(Size, Frequency) -> Error,
    ) -> Result<Self> {
        match parts.pop() {
            Some(Sorted { names: Names::Memory(counted), places }) if parts.is_empty() => {
                let global = Numbers::Memory((0..counted.words.len() as u32).collect());
                return Ok(Self { counted, merged: vec![Merged { places, global }] });
            }
            last => parts.extend(last),
        }
        let (mut sources, mut merged): (Vec<Source>, Vec<Merged>) =
            parts.into_iter().map(|part| Source::of(part, store)).unzip();
        let mut cursors: Vec<Cursor> = sources.iter_mut().map(Cursor::new).collect();
        let mut heap = BinaryHeap::new();
        for (number, cursor) in cursors.iter_mut().enumerate() {
            heap.extend(cursor.next()?.map(|next| Reverse((next, number))));
        }
        let (mut counted, mut asked, mut has_room) = (Counted::default(), 0, true);
        while let Some(mut first) = heap.peek_mut() {
            let Reverse((Next { word, whole, subset, .. }, number)) = &*first;
            let number = *number;
            // The bytes were a `str` when they went in.
            let last = counted.take(&String::from_utf8_lossy(word), *whole, *subset);
            let last = u32::try_from(last).ok().filter(|&last| last < u32::MAX);
            let last = last.ok_or_else(|| Error::Corpus("more than 4 294 967 295 distinct words".into()))?;
            merged[number].global.push(last)?;
            if last as usize >= asked + ASK_EACH {
                asked = last as usize;
                has_room = make_room(Size::of(&counted.words))?;
                if !has_room {
                    break;
                }
            }
            match cursors[number].next()? {
                Some(next) => *first = Reverse((next, number)),
                None => drop(PeekMut::pop(first)),
            }
        }
        if !has_room {
            let (size, frequency) = size_of_all(counted, heap, cursors)?;
            return Err(refusal(size, frequency));
        }
        Ok(Self { counted, merged })
    }
}

type Waiting<'a> = BinaryHeap<Reverse<(Next<'a>, usize)>>;

/// What the vocabulary would be of which these words have been merged; the last one, which comes again, not to its end.
fn size_of_all<'a>(
    mut counted: Counted,
    mut heap: Waiting<'a>,
    mut cursors: Vec<Cursor<'a>>,
) -> Result<(Size, Frequency)> {
    let mut size = Size::of(&counted.words);
    let mut known = counted.words.get(size.num - 1).as_bytes().to_vec();
    // The count of the word at the top of the heap was taken, and comes again.
    let again = heap.peek().map_or(0, |Reverse((next, _))| next.whole.occurrences);
    let mut occurrences = counted.whole.occurrences.pop().unwrap_or_default().saturating_sub(again);
    let mut frequency = Frequency::of(&counted.whole.occurrences);
    drop(counted);
    while let Some(mut first) = heap.peek_mut() {
        let Reverse((Next { word, whole, .. }, number)) = &*first;
        if **word != known[..] {
            size.num += 1;
            size.num_bytes += word.len();
            known.clear();
            known.extend_from_slice(word);
            frequency.add(std::mem::take(&mut occurrences));
        }
        occurrences += whole.occurrences;
        match cursors[*number].next()? {
            Some(next) => *first = Reverse((next, *number)),
            None => drop(PeekMut::pop(first)),
        }
    }
    frequency.add(occurrences);
    Ok((size, frequency))
}

/// A word that is yet to be merged.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Next<'a> {
    /// Decides most comparisons without a look at the word.
    prefix: u64,
    word: Cow<'a, [u8]>,
    whole: Count,
    subset: Count,
}

/// The words of one dictionary.
enum Source {
    Memory(Counted),
    Spooled(Reader<u8>, Reader<u64>, Reader<u32>, bool),
}

impl Source {
    /// A dictionary to be read, and where the numbers that its words get are to go: on disk if they come from there.
    fn of(part: Sorted, store: &Arc<Store>) -> (Self, Merged) {
        let global = match part.places {
            Numbers::Memory(_) => Numbers::Memory(Vec::new()),
            Numbers::Spooled(_) => Numbers::Spooled(Spool::new(store)),
        };
        let source = match part.names {
            Names::Memory(counted) => Self::Memory(counted),
            Names::Spooled(bytes, occurrences, support, of_subset) => {
                Self::Spooled(bytes.into_reader(), occurrences.into_reader(), support.into_reader(), of_subset)
            }
        };
        (source, Merged { places: part.places, global })
    }
}

/// The words of one dictionary, one after the other.
enum Cursor<'a> {
    Memory(&'a Counted, usize),
    Spooled(&'a mut Reader<u8>, &'a mut Reader<u64>, &'a mut Reader<u32>, bool),
}

impl<'a> Cursor<'a> {
    fn new(source: &'a mut Source) -> Self {
        match source {
            Source::Memory(counted) => Self::Memory(counted, 0),
            Source::Spooled(bytes, occurrences, support, of_subset) => {
                Self::Spooled(bytes, occurrences, support, *of_subset)
            }
        }
    }

    fn next(&mut self) -> Result<Option<Next<'a>>> {
        let (word, whole, subset) = match self {
            Self::Memory(counted, at) => {
                if *at == counted.words.len() {
                    return Ok(None);
                }
                *at += 1;
                let at = *at - 1;
                (Cow::Borrowed(counted.words.get(at).as_bytes()), counted.whole.get(at), counted.subset.get(at))
            }
            Self::Spooled(bytes, occurrences, support, of_subset) => {
                let (Some(occurrences), Some(support)) = (occurrences.take()?, support.take()?) else {
                    return Ok(None);
                };
                let (mut length, mut word) = (Vec::new(), Vec::new());
                bytes.read(LENGTH_BYTES, &mut length)?;
                let length = length.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte));
                bytes.read(length, &mut word)?;
                let whole = Count { occurrences, support };
                (Cow::Owned(word), whole, if *of_subset { whole } else { Count::default() })
            }
        };
        Ok(Some(Next { prefix: prefix(&word), word, whole, subset }))
    }
}
