//! Vocabulary: the dictionaries of many workers as one list of words in byte order.
//!
//! A dictionary holds words as they were written; here each gets its surface, once a distinct word and not once an occurrence.
//! Several spellings may come to one surface; they become one word, and their counts are added.
//!
//! Each dictionary is sorted by itself (`sorted`), and the sorted ones are merged with a heap. Closed dictionaries are read from
//! disk a page at a time. So the memory of the merge is the result and a few pages for each dictionary: the inputs need not
//! fit. The order is that of bytes, as it depends on no locale and no order of arrival.
//!
//! A number goes two ways. A word's id in its dictionary gives its *place* among the sorted surfaces of that dictionary; the
//! place gives its *number* in the vocabulary ([`Merged`]). The second table is written in ascending order while merging, so
//! it can go to disk; the first one is known when a dictionary is closed.
//!
//! Example: a dictionary met `no` and then `cough`, as ids 0 and 1. Its surfaces in order are `cough` and `no`, so its places
//! are 1 0. In the vocabulary of all dictionaries `cough` is word 4 and `no` is word 8, so the second table is 4 8. Id 0
//! has place 1, and so number 8.

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

/// Bytes that say how long a spooled surface is, in front of it. Surfaces may hold any byte, so none can part them.
const LENGTH_BYTES: usize = size_of::<u64>();
/// `make_room` is called each time so many words have come: often enough that a limit is not left behind by more than a few
/// MB, and seldom enough that the call costs nothing beside the merge.
const ASK_EACH: usize = if cfg!(test) { 1 << 8 } else { 1 << 16 };

/// How many words, and how many bytes they have together.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Size {
    /// Both together say what the vocabulary takes in memory (`Held` in `limit`): words cannot go to disk.
    pub num: usize,
    pub num_bytes: usize,
}

impl Size {
    pub fn of(words: &Strings) -> Self {
        Self { num: words.len(), num_bytes: words.as_str().len() }
    }
}

/// How often words occur in the text. This bounds the number of pairs before any pair is counted.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Frequency {
    /// Words that stand there twice or more.
    /// A word that stands there once has support 1. Where such words are not kept, only these can be in a pair, so no
    /// word begins more different pairs than this.
    pub num_repeated: usize,
    /// Occurrences of the most frequent one.
    /// No word begins more pairs than it has occurrences. The smaller of the two bounds one left id's share of a
    /// partition, which no plan can cut.
    pub most: u64,
}

impl Frequency {
    /// Of occurrences that are complete: a word that comes in two parts would count as two.
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

/// The first eight bytes, so that numbers compare as the words do. (Zeros fill up a shorter word: words that differ in zeros
/// alone have equal prefixes, and are compared as words.)
///
/// Example: `ab` is 0x6162 and six zero bytes, `abc` is 0x616263 and five. `a` and `a\0` are the same number.
fn prefix(word: &[u8]) -> u64 {
    let mut first = [0u8; 8];
    let len = word.len().min(8);
    first[..len].copy_from_slice(&word[..len]);
    u64::from_be_bytes(first)
}

/// All words in byte order with their counts, and for each dictionary the numbers of its words.
pub struct Vocabulary {
    /// Each word once. Its place here is its number in the whole index.
    /// In memory as a whole, whatever the limit. So the merge calls `make_room`.
    pub counted: Counted,
    /// In the order in which the dictionaries were given, by which callers know whose table is whose.
    pub merged: Vec<Merged>,
}

/// A dictionary after the merge: how to find the numbers of its words. Its words and counts are in the vocabulary.
pub struct Merged {
    /// Word id in the dictionary -> place among its sorted surfaces.
    /// In memory or on disk, as its dictionary was: closed ones may be many, and their tables would not fit together.
    places: Numbers,
    /// Place -> number in the vocabulary, ascending.
    /// One entry for each distinct surface of the dictionary, so never longer than `places`.
    global: Numbers,
}

impl Merged {
    /// Word id in the dictionary -> number in the vocabulary.
    ///
    /// The first table becomes the result, so two tables are in memory at most. The caller does this for a closed
    /// dictionary when its turn has come, and not for all at once.
    pub fn numbers(self) -> Result<Vec<u32>> {
        let (mut numbers, global) = (self.places.into_vec()?, self.global.into_vec()?);
        numbers.iter_mut().for_each(|number| *number = global[*number as usize]);
        Ok(numbers)
    }
}

impl Vocabulary {
    /// Merge sorted dictionaries; `merged` has one entry for each, in their order.
    ///
    /// `make_room(size so far)` is called now and then, and says whether the words can be kept. Where they cannot, the words
    /// are dropped and the rest is only counted, so that the error can name a limit that would do: it is
    /// `refusal(size and frequency of all)`.
    ///
    /// After an error there is no vocabulary: the dictionaries are used up, and their pages are back in the store.
    ///
    /// Cost: w log p comparisons for w words in p dictionaries, most of which are decided by the first eight bytes.
    pub fn merge(
        mut parts: Vec<Sorted>,
        store: &Arc<Store>,
        mut make_room: impl FnMut(Size) -> Result<bool>,
        refusal: impl FnOnce(Size, Frequency) -> Error,
    ) -> Result<Self> {
        // The usual case, without a limit: one dictionary is the vocabulary already. `make_room` is not asked: nothing
        // grows, as the words are moved. The caller tests a limit against the complete vocabulary in any case.
        match parts.pop() {
            Some(Sorted { names: Names::Memory(counted), places }) if parts.is_empty() => {
                let global = Numbers::Memory((0..counted.words.len() as u32).collect());
                return Ok(Self { counted, merged: vec![Merged { places, global }] });
            }
            // Back to where it was: `merged` must have the order of the parts.
            last => parts.extend(last),
        }
        let (mut sources, mut merged): (Vec<Source>, Vec<Merged>) =
            parts.into_iter().map(|part| Source::of(part, store)).unzip();
        let mut cursors: Vec<Cursor> = sources.iter_mut().map(Cursor::new).collect();
        // One word of each dictionary: the next word of the result is always among these.
        let mut heap = BinaryHeap::new();
        for (number, cursor) in cursors.iter_mut().enumerate() {
            heap.extend(cursor.next()?.map(|next| Reverse((next, number))));
        }
        // `asked` is the number of the word at which room was asked for last; the first words need no question.
        let (mut counted, mut asked, mut has_room) = (Counted::default(), 0, true);
        // The top of the heap is replaced by the next word of the same dictionary: one sift instead of a pop and a push.
        while let Some(mut first) = heap.peek_mut() {
            // Read through `&`: an entry that is not written stays the top. On `break` below it is still there, and
            // `size_of_all` relies on that.
            let Reverse((Next { word, whole, subset, .. }, number)) = &*first;
            let number = *number;
            // The bytes were a `str` when they went in.
            // Equal words of several dictionaries follow each other, so the last word of the result is the only one
            // that can be the same.
            let last = counted.take(&String::from_utf8_lossy(word), *whole, *subset);
            // The greatest u32 is no number: streams hold ids + 1, and 0 for none.
            let last = u32::try_from(last).ok().filter(|&last| last < u32::MAX);
            let last = last.ok_or_else(|| Error::Corpus("more than 4 294 967 295 distinct words".into()))?;
            // Numbers ascend within a dictionary, since its words do: written in order, as a spool needs it.
            merged[number].global.push(last)?;
            // By the words of the result, which are what takes memory. Occurrences in many dictionaries take none.
            if last as usize >= asked + ASK_EACH {
                asked = last as usize;
                has_room = make_room(Size::of(&counted.words))?;
                if !has_room {
                    // The word at the top has been added, but its cursor has not moved on. Memory is not freed here:
                    // the heap and the cursors are needed to count the rest.
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

/// The least word is at the top. Equal words are added up, so it does not matter which of them comes first.
type Waiting<'a> = BinaryHeap<Reverse<(Next<'a>, usize)>>;

/// Size and frequency of the whole vocabulary, of which `counted` has been merged; the words are not kept. The last word of
/// `counted` is not complete: the dictionary at the top of the heap gave it, and still stands there.
///
/// It takes as long as the merge that it stands for. That is the price of an error that names a limit which will do:
/// to name one that is too small would cost another run over all documents.
fn size_of_all<'a>(
    mut counted: Counted,
    mut heap: Waiting<'a>,
    mut cursors: Vec<Cursor<'a>>,
) -> Result<(Size, Frequency)> {
    // Not empty: the merge stops after it has added a word, never before.
    let mut size = Size::of(&counted.words);
    // The last word stays: what comes next may be the same word, of another dictionary.
    let mut known = counted.words.get(size.num - 1).as_bytes().to_vec();
    // The count of the word at the top of the heap was taken, and comes again.
    let again = heap.peek().map_or(0, |Reverse((next, _))| next.whole.occurrences);
    let mut occurrences = counted.whole.occurrences.pop().unwrap_or_default().saturating_sub(again);
    let mut frequency = Frequency::of(&counted.whole.occurrences);
    // The words cannot be kept: their memory goes first. From here on only numbers grow.
    drop(counted);
    while let Some(mut first) = heap.peek_mut() {
        let Reverse((Next { word, whole, .. }, number)) = &*first;
        // Only a word that differs from the one before it is new, as in the merge. Its count is complete when the
        // next one comes.
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
    // The last word has no next one that would complete it.
    frequency.add(occurrences);
    Ok((size, frequency))
}

/// The next word of a dictionary. Ordered by its fields from the first on: by the word, in effect. Counts break no tie that
/// matters, as equal words are added up.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Next<'a> {
    /// The first bytes of the word. Decides most comparisons without a look at the word.
    prefix: u64,
    /// Borrowed from a dictionary in memory; owned where it was read from disk.
    word: Cow<'a, [u8]>,
    whole: Count,
    subset: Count,
}

/// The words of one dictionary: what a cursor borrows from.
/// Apart from the cursors because a word in memory is borrowed from here: source and cursor in one value would borrow
/// from itself.
enum Source {
    Memory(Counted),
    /// As `Names::Spooled`. Reading gives pages back, so the disk that the inputs take shrinks while the result
    /// grows.
    Spooled(Reader<u8>, Reader<u64>, Reader<u32>, bool),
}

impl Source {
    /// A dictionary to be read, and where the numbers that its words get are to go: on disk if they come from there.
    fn of(part: Sorted, store: &Arc<Store>) -> (Self, Merged) {
        // What was closed had no room in memory once. Its second table must not take that room back.
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
    /// And the place of the next word.
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

    /// The next word, or None at the end, also if asked again. The word of a dictionary on disk is an allocation of
    /// its own, but it lives in the heap alone: there is one for each such dictionary.
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
                // Both columns have a number for each word, so they end together; and the bytes end with them.
                let (Some(occurrences), Some(support)) = (occurrences.take()?, support.take()?) else {
                    return Ok(None);
                };
                let (mut length, mut word) = (Vec::new(), Vec::new());
                bytes.read(LENGTH_BYTES, &mut length)?;
                // Little-endian, as `Sorted::spool` writes it.
                let length = length.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte));
                bytes.read(length, &mut word)?;
                // A closed dictionary has documents of one side alone, so its counts belong to the subset entirely or
                // not at all.
                let whole = Count { occurrences, support };
                (Cow::Owned(word), whole, if *of_subset { whole } else { Count::default() })
            }
        };
        Ok(Some(Next { prefix: prefix(&word), word, whole, subset }))
    }
}
