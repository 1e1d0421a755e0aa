//! Vocabulary: the dictionaries of many workers as one list of words in byte order.
//!
//! A dictionary holds words as they were written; here each gets its surface, once a distinct word. Dictionaries are sorted
//! one by one and merged, so that one of them at a time is in memory when memory is short.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::dictionary::{Count, Counted, Dictionary};
use crate::storage::buffer::prefetch;
use crate::storage::spool::{Reader, Spool, Store};
use crate::storage::strings::Strings;
use crate::text::surface::Surface;

/// Bytes that say how long a spooled surface is.
const LENGTH_BYTES: usize = size_of::<u64>();
/// Whether there is room is asked each time so many words have come.
const ASK_EACH: usize = if cfg!(test) { 1 << 8 } else { 1 << 16 };
/// Words whose counts are fetched into the cache before they are needed.
const AHEAD: usize = 16;

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

/// A closed dictionary: its distinct surfaces in byte order, and where each of its words went.
pub struct Sorted {
    names: Names,
    /// Word id in the dictionary -> number of its surface here.
    places: Numbers,
}

enum Numbers {
    Memory(Vec<u32>),
    Spooled(Spool<u32>),
}

impl Numbers {
    fn push(&mut self, number: u32) -> Result<()> {
        match self {
            Self::Memory(numbers) => numbers.push(number),
            Self::Spooled(numbers) => numbers.push(number)?,
        }
        Ok(())
    }

    fn into_vec(self) -> Result<Vec<u32>> {
        match self {
            Self::Memory(numbers) => Ok(numbers),
            Self::Spooled(numbers) => numbers.to_vec(),
        }
    }
}

enum Names {
    Memory(Counted),
    /// Length and bytes of each surface, one after the other; how often each was seen; its support so far; and whether
    /// the subset, or else nothing of it, was counted.
    Spooled(Spool<u8>, Spool<u64>, Spool<u32>, bool),
}

impl Sorted {
    pub fn new(dictionary: Dictionary, surface: Surface) -> Self {
        let Counted { words, whole, subset } = dictionary.into_counted();
        let words = surfaces(words, surface);
        let mut order: Vec<Head> = words.iter().zip(0..).map(|(word, id)| Head::new(word, id)).collect();
        let compare = |a: &Head, b: &Head| a.compare(b, &words);
        // Outside a pool this would start rayon's own, which does not survive a `fork` (`pool`).
        match rayon::current_thread_index() {
            Some(_) => order.par_sort_unstable_by(compare),
            None => order.sort_unstable_by(compare),
        }
        let mut sorted = Counted::with_capacity(&words, !subset.support.is_empty());
        let mut places = vec![0u32; words.len()];
        for (at, head) in order.iter().enumerate() {
            if let Some(ahead) = order.get(at + AHEAD) {
                whole.fetch(ahead.id as usize);
                subset.fetch(ahead.id as usize);
                prefetch(&places[ahead.id as usize]);
            }
            let id = head.id as usize;
            places[id] = head.with_word(&words, |word| sorted.take(word, whole.get(id), subset.get(id))) as u32;
        }
        Self { names: Names::Memory(sorted), places: Numbers::Memory(places) }
    }

    /// Distinct surfaces, and their bytes.
    pub fn size(&self) -> Size {
        match &self.names {
            Names::Memory(counted) => Size::of(&counted.words),
            Names::Spooled(bytes, occurrences, ..) => {
                Size { num: occurrences.len(), num_bytes: bytes.len() - LENGTH_BYTES * occurrences.len() }
            }
        }
    }

    /// Move all to pages of a store. Nothing, or everything, was counted of the subset (`of_subset`).
    pub fn spool(self, of_subset: bool, store: &Arc<Store>) -> Result<Self> {
        let (Names::Memory(counted), Numbers::Memory(numbers)) = (&self.names, &self.places) else {
            return Ok(self);
        };
        let mut places = Spool::new(store);
        places.extend(numbers)?;
        let (mut bytes, mut occurrences, mut support) = (Spool::new(store), Spool::new(store), Spool::new(store));
        for word in counted.words.iter() {
            bytes.extend(&(word.len() as u64).to_le_bytes())?;
            bytes.extend(word.as_bytes())?;
        }
        occurrences.extend(&counted.whole.occurrences)?;
        support.extend(&counted.whole.support)?;
        Ok(Self { names: Names::Spooled(bytes, occurrences, support, of_subset), places: Numbers::Spooled(places) })
    }
}

/// Words by id, as their surfaces.
fn surfaces(words: Strings, surface: Surface) -> Strings {
    if surface.keeps(words.as_str()) {
        return words;
    }
    let mut changed = Strings::new();
    for word in words.iter() {
        changed.push(&surface.apply(word));
    }
    changed
}

/// A word as it is sorted: most are decided, and taken, without a look at where the words are.
struct Head {
    /// The first 16 bytes, zeros after a shorter word.
    first: u128,
    len: u32,
    id: u32,
}

impl Head {
    fn new(word: &str, id: u32) -> Self {
        let mut first = [0u8; 16];
        let len = word.len().min(16);
        first[..len].copy_from_slice(&word.as_bytes()[..len]);
        Self { first: u128::from_be_bytes(first), len: u32::try_from(word.len()).unwrap_or(u32::MAX), id }
    }

    #[inline(always)]
    fn compare(&self, other: &Self, words: &Strings) -> Ordering {
        self.first.cmp(&other.first).then_with(|| match self.len.min(other.len) {
            // One begins with the other.
            0..=16 => self.len.cmp(&other.len),
            _ => words.get(self.id as usize).cmp(words.get(other.id as usize)),
        })
    }

    #[inline(always)]
    fn with_word<T>(&self, words: &Strings, take: impl FnOnce(&str) -> T) -> T {
        let bytes = self.first.to_be_bytes();
        match bytes.get(..self.len as usize).map(std::str::from_utf8) {
            Some(Ok(word)) => take(word),
            _ => take(words.get(self.id as usize)),
        }
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
        let (mut sources, mut merged) = (Vec::new(), Vec::new());
        for part in parts {
            let global = match part.places {
                Numbers::Memory(_) => Numbers::Memory(Vec::new()),
                Numbers::Spooled(_) => Numbers::Spooled(Spool::new(store)),
            };
            sources.push(match part.names {
                Names::Memory(counted) => Source::Memory(counted),
                Names::Spooled(bytes, occurrences, support, of_subset) => {
                    Source::Spooled(bytes.into_reader(), occurrences.into_reader(), support.into_reader(), of_subset)
                }
            });
            merged.push(Merged { places: part.places, global });
        }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::index::dictionary::Visit;

    fn no_refusal(_: Size, _: Frequency) -> Error {
        unreachable!("there is room")
    }

    #[test]
    fn what_has_no_room_is_refused_with_the_size_of_all() {
        let store = Store::limited(8 << 10, &std::env::temp_dir()).unwrap();
        let part = |first: usize, spools: bool| {
            let mut dictionary = Dictionary::default();
            for number in first..first + 1_000 {
                let word = format!("w{number:04}");
                dictionary.intern(&word, &[(0, 5)], Visit::default(), &mut Vec::new());
            }
            let sorted = Sorted::new(dictionary, Surface::Exact);
            assert_eq!(sorted.size(), Size { num: 1_000, num_bytes: 5_000 });
            let sorted = if spools { sorted.spool(false, &store).unwrap() } else { sorted };
            assert_eq!(sorted.size(), Size { num: 1_000, num_bytes: 5_000 });
            sorted
        };
        let parts = vec![part(0, false), part(500, true), part(3_000, true)];
        let mut asked = Vec::new();
        let make_room = |size: Size| {
            asked.push(size.num);
            Ok(size.num < 600)
        };
        let refusal = |size: Size, frequency: Frequency| Error::Policy(format!("{size:?} {frequency:?}"));
        let merged = Vocabulary::merge(parts, &store, make_room, refusal);
        let (size, frequency) = (Size { num: 2_500, num_bytes: 12_500 }, Frequency { num_repeated: 500, most: 2 });
        assert!(merged.is_err_and(|error| error.to_string() == format!("{size:?} {frequency:?}")));
        assert_eq!(asked, [257, 513, 769]);
    }

    #[test]
    fn merged_dictionaries_match_a_map_in_memory_and_on_disk() {
        let long = "electroencephalography".repeat(2_000);
        let words = |d: usize| -> Vec<String> {
            let numbered = (0..3_000).map(|i| format!("{}w{}", "é".repeat(i % 5), i * (d + 1) % 2_500));
            numbered.chain([long.clone(), "e\u{301}te".into(), "éte".into(), "\0".into(), "a\0".into()]).collect()
        };
        let store = Store::limited(8 << 10, &std::env::temp_dir()).unwrap();
        for num_spooled in 0..=4 {
            let mut expected: BTreeMap<String, [Count; 2]> = BTreeMap::new();
            let (mut parts, mut named) = (vec![Sorted::new(Dictionary::default(), Surface::Exact)], vec![Vec::new()]);
            for d in 0..4 {
                let (mut dictionary, mut ids) = (Dictionary::default(), Vec::new());
                let mut names = BTreeMap::new();
                for word in words(d) {
                    ids.clear();
                    dictionary.intern(&word, &[(0, word.len() as u32)], Visit { number: 0, only: true }, &mut ids);
                    let surface = Surface::Exact.apply(&word).into_owned();
                    // All of a dictionary is one visit, which counts a spelling once.
                    let is_new = names.insert(ids[0], surface.clone()).is_none();
                    let entry = expected.entry(surface).or_default();
                    // The first two dictionaries are the subset's.
                    for count in &mut entry[..if d < 2 { 2 } else { 1 }] {
                        count.occurrences += 1;
                        count.support += u32::from(is_new);
                    }
                }
                if d < 2 {
                    dictionary.end_subset();
                }
                named.push(names.into_values().collect());
                let sorted = Sorted::new(dictionary, Surface::Exact);
                parts.push(if d < num_spooled { sorted.spool(d < 2, &store).unwrap() } else { sorted });
            }
            let merged = Vocabulary::merge(parts, &store, |_| Ok(true), no_refusal).unwrap();
            let Counted { words, whole, subset } = &merged.counted;
            assert!(words.iter().eq(expected.keys().map(String::as_str)));
            assert!((0..words.len()).map(|id| [whole.get(id), subset.get(id)]).eq(expected.values().copied()));
            assert_eq!(merged.merged.len(), named.len());
            for (part, names) in merged.merged.into_iter().zip(&named) {
                assert!(part.numbers().unwrap().iter().map(|&number| words.get(number as usize)).eq(names));
            }
            assert_eq!(store.spilled_bytes() > 0, num_spooled > 0);
        }
    }

    #[test]
    fn nothing_merges_to_nothing() {
        let merged = Vocabulary::merge(Vec::new(), &Store::in_memory(), |_| Ok(true), no_refusal).unwrap();
        assert!(merged.counted.words.is_empty() && merged.merged.is_empty());
    }
}
