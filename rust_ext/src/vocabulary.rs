//! Vocabulary: the dictionaries of many workers as one list of words in byte order.
//!
//! A dictionary holds words as they were written; here each gets its surface, once a distinct word. Dictionaries are sorted
//! one by one and merged, so that one of them at a time is in memory when memory is short.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

use rayon::prelude::*;

use crate::dictionary::Dictionary;
use crate::error::{Error, Result};
use crate::spool::{Reader, Spool, Store};
use crate::strings::Strings;
use crate::surface::Surface;

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
    Memory(Strings, Vec<u64>),
    /// Length and bytes of each surface, one after the other; and how often each was seen.
    Spooled(Spool<u8>, Spool<u64>),
}

impl Sorted {
    pub fn new(dictionary: Dictionary, surface: Surface) -> Self {
        let (words, counts) = dictionary.into_words();
        let words = surfaces(words, surface);
        let mut order: Vec<(u64, u32)> =
            (0..words.len()).map(|id| (prefix(words.get(id).as_bytes()), id as u32)).collect();
        let compare = |a: &(u64, u32), b: &(u64, u32)| {
            a.0.cmp(&b.0).then_with(|| words.get(a.1 as usize).cmp(words.get(b.1 as usize)))
        };
        // Outside a pool this would start rayon's own, which does not survive a `fork` (`pool`).
        match rayon::current_thread_index() {
            Some(_) => order.par_sort_unstable_by(compare),
            None => order.sort_unstable_by(compare),
        }
        let mut sorted = Strings::new();
        let mut seen: Vec<u64> = Vec::new();
        let mut places = vec![0u32; words.len()];
        for (_, id) in order {
            let word = words.get(id as usize);
            if sorted.is_empty() || sorted.get(sorted.len() - 1) != word {
                sorted.push(word);
                seen.push(0);
            }
            let last = sorted.len() - 1;
            seen[last] += counts[id as usize];
            places[id as usize] = last as u32;
        }
        Self { names: Names::Memory(sorted, seen), places: Numbers::Memory(places) }
    }

    /// Move all to pages of a store.
    pub fn spool(self, store: &Arc<Store>) -> Result<Self> {
        let (Names::Memory(words, counts), Numbers::Memory(numbers)) = (&self.names, &self.places) else {
            return Ok(self);
        };
        let mut places = Spool::new(store);
        places.extend(numbers)?;
        let (mut bytes, mut seen) = (Spool::new(store), Spool::new(store));
        for word in words.iter() {
            bytes.extend(&(word.len() as u64).to_le_bytes())?;
            bytes.extend(word.as_bytes())?;
        }
        seen.extend(counts)?;
        Ok(Self { names: Names::Spooled(bytes, seen), places: Numbers::Spooled(places) })
    }
}

/// Words by id, as their surfaces.
fn surfaces(words: Strings, surface: Surface) -> Strings {
    if surface == Surface::Exact && words.as_str().is_ascii() {
        return words;
    }
    let mut changed = Strings::new();
    for word in words.iter() {
        changed.push(&surface.apply(word));
    }
    changed
}

/// The first eight bytes, so that numbers compare as the words do.
fn prefix(word: &[u8]) -> u64 {
    let mut first = [0u8; 8];
    let len = word.len().min(8);
    first[..len].copy_from_slice(&word[..len]);
    u64::from_be_bytes(first)
}

/// All words in byte order with how often each was seen, and for each dictionary where its words went.
pub struct Vocabulary {
    pub words: Strings,
    pub occurrences: Vec<u64>,
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
    pub fn merge(mut parts: Vec<Sorted>, store: &Arc<Store>) -> Result<Self> {
        match parts.pop() {
            Some(Sorted { names: Names::Memory(words, occurrences), places }) if parts.is_empty() => {
                let global = Numbers::Memory((0..words.len() as u32).collect());
                return Ok(Self { words, occurrences, merged: vec![Merged { places, global }] });
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
                Names::Memory(words, counts) => Source::Memory(words, counts),
                Names::Spooled(bytes, counts) => Source::Spooled(bytes.into_reader(), counts.into_reader()),
            });
            merged.push(Merged { places: part.places, global });
        }
        let mut cursors: Vec<Cursor> = sources.iter_mut().map(Cursor::new).collect();
        let mut heap = BinaryHeap::new();
        for (number, cursor) in cursors.iter_mut().enumerate() {
            heap.extend(cursor.next()?.map(|next| Reverse((next, number))));
        }
        let mut words = Strings::new();
        let mut occurrences: Vec<u64> = Vec::new();
        while let Some(mut first) = heap.peek_mut() {
            let Reverse((Next { word, count, .. }, number)) = &*first;
            let number = *number;
            if words.is_empty() || words.get(words.len() - 1).as_bytes() != &**word {
                if words.len() == u32::MAX as usize {
                    return Err(Error::Corpus("more than 4 294 967 295 distinct words".into()));
                }
                // The bytes were a `str` when they went in.
                words.push(&String::from_utf8_lossy(word));
                occurrences.push(0);
            }
            let last = words.len() - 1;
            occurrences[last] += count;
            merged[number].global.push(last as u32)?;
            match cursors[number].next()? {
                Some(next) => *first = Reverse((next, number)),
                None => drop(PeekMut::pop(first)),
            }
        }
        Ok(Self { words, occurrences, merged })
    }
}

/// A word that is yet to be merged.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Next<'a> {
    /// Decides most comparisons without a look at the word.
    prefix: u64,
    word: Cow<'a, [u8]>,
    count: u64,
}

/// The words of one dictionary.
enum Source {
    Memory(Strings, Vec<u64>),
    Spooled(Reader<u8>, Reader<u64>),
}

/// The words of one dictionary, one after the other.
enum Cursor<'a> {
    Memory(&'a Strings, &'a [u64], usize),
    Spooled(&'a mut Reader<u8>, &'a mut Reader<u64>),
}

impl<'a> Cursor<'a> {
    fn new(source: &'a mut Source) -> Self {
        match source {
            Source::Memory(words, counts) => Self::Memory(words, counts, 0),
            Source::Spooled(bytes, counts) => Self::Spooled(bytes, counts),
        }
    }

    fn next(&mut self) -> Result<Option<Next<'a>>> {
        let (word, count) = match self {
            Self::Memory(words, counts, at) => {
                if *at == words.len() {
                    return Ok(None);
                }
                *at += 1;
                (Cow::Borrowed(words.get(*at - 1).as_bytes()), counts[*at - 1])
            }
            Self::Spooled(bytes, counts) => {
                let Some(count) = counts.take()? else { return Ok(None) };
                let (mut length, mut word) = (Vec::new(), Vec::new());
                bytes.read(8, &mut length)?;
                let length = length.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte));
                bytes.read(length, &mut word)?;
                (Cow::Owned(word), count)
            }
        };
        Ok(Some(Next { prefix: prefix(&word), word, count }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn merged_dictionaries_match_a_map_in_memory_and_on_disk() {
        let long = "electroencephalography".repeat(2_000);
        let words = |d: usize| -> Vec<String> {
            let numbered = (0..3_000).map(|i| format!("{}w{}", "é".repeat(i % 5), i * (d + 1) % 2_500));
            numbered.chain([long.clone(), "e\u{301}te".into(), "éte".into(), "\0".into(), "a\0".into()]).collect()
        };
        let store = Store::limited(8 << 10, &std::env::temp_dir()).unwrap();
        for num_spooled in 0..=4 {
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            let (mut parts, mut named) = (vec![Sorted::new(Dictionary::default(), Surface::Exact)], vec![Vec::new()]);
            for d in 0..4 {
                let (mut dictionary, mut ids) = (Dictionary::default(), Vec::new());
                let mut names = BTreeMap::new();
                for word in words(d) {
                    ids.clear();
                    dictionary.intern(&word, &[(0, word.len() as u32)], 0, false, &mut ids);
                    let surface = Surface::Exact.apply(&word).into_owned();
                    *expected.entry(surface.clone()).or_default() += 1;
                    names.insert(ids[0], surface);
                }
                named.push(names.into_values().collect());
                let sorted = Sorted::new(dictionary, Surface::Exact);
                parts.push(if d < num_spooled { sorted.spool(&store).unwrap() } else { sorted });
            }
            let merged = Vocabulary::merge(parts, &store).unwrap();
            assert!(merged.words.iter().eq(expected.keys().map(String::as_str)));
            assert!(merged.occurrences.iter().eq(expected.values()));
            assert_eq!(merged.merged.len(), named.len());
            for (part, names) in merged.merged.into_iter().zip(&named) {
                assert!(part.numbers().unwrap().iter().map(|&number| merged.words.get(number as usize)).eq(names));
            }
            assert_eq!(store.spilled_bytes() > 0, num_spooled > 0);
        }
    }

    #[test]
    fn nothing_merges_to_nothing() {
        let merged = Vocabulary::merge(Vec::new(), &Store::in_memory()).unwrap();
        assert!(merged.words.is_empty() && merged.occurrences.is_empty() && merged.merged.is_empty());
    }
}
