//! Vocabulary: the dictionaries of many workers as one list of words in byte order.
//!
//! A dictionary holds words as they were written; here each gets its surface, once a distinct word. Dictionaries are sorted
//! one by one and merged, so that one of them at a time is in memory when memory is short.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::dictionary::Dictionary;
use crate::error::Result;
use crate::spool::{Reader, Spool, Store};
use crate::strings::Strings;
use crate::surface::Surface;

/// A closed dictionary: its distinct surfaces in byte order, and where each of its words went.
pub struct Sorted {
    names: Names,
    /// Word id in the dictionary -> number of its surface here.
    places: Vec<u32>,
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
        let mut order: Vec<(u64, u32)> = (0..words.len()).map(|id| (prefix(words.get(id)), id as u32)).collect();
        order.par_sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| words.get(a.1 as usize).cmp(words.get(b.1 as usize)))
        });
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
        Self { names: Names::Memory(sorted, seen), places }
    }

    /// Move the words to pages of a store.
    pub fn spool(self, store: &Arc<Store>) -> Result<Self> {
        let Names::Memory(words, counts) = &self.names else { return Ok(self) };
        let (mut bytes, mut seen) = (Spool::new(store), Spool::new(store));
        for word in words.iter() {
            bytes.extend(&(word.len() as u32).to_le_bytes())?;
            bytes.extend(word.as_bytes())?;
        }
        seen.extend(counts)?;
        Ok(Self { names: Names::Spooled(bytes, seen), places: self.places })
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
fn prefix(word: &str) -> u64 {
    let mut first = [0u8; 8];
    let len = word.len().min(8);
    first[..len].copy_from_slice(&word.as_bytes()[..len]);
    u64::from_be_bytes(first)
}

/// All words in byte order with how often each was seen, and for each dictionary word id -> number in that order.
pub struct Vocabulary {
    pub words: Strings,
    pub occurrences: Vec<u64>,
    pub numbers: Vec<Vec<u32>>,
}

impl Vocabulary {
    pub fn merge(parts: Vec<Sorted>) -> Result<Self> {
        let mut cursors = Vec::new();
        let mut places = Vec::new();
        for part in parts {
            cursors.push(Cursor::new(part.names));
            places.push(part.places);
        }
        let mut heap = BinaryHeap::new();
        for (number, cursor) in cursors.iter_mut().enumerate() {
            if let Some((word, count)) = cursor.next()? {
                heap.push(Reverse((word, number, count)));
            }
        }
        let mut words = Strings::new();
        let mut occurrences: Vec<u64> = Vec::new();
        let mut global: Vec<Vec<u32>> = vec![Vec::new(); cursors.len()];
        while let Some(Reverse((word, number, count))) = heap.pop() {
            if words.is_empty() || words.get(words.len() - 1).as_bytes() != word {
                // The bytes were a `str` when they went in.
                words.push(&String::from_utf8_lossy(&word));
                occurrences.push(0);
            }
            let last = words.len() - 1;
            occurrences[last] += count;
            global[number].push(last as u32);
            if let Some((word, count)) = cursors[number].next()? {
                heap.push(Reverse((word, number, count)));
            }
        }
        let numbers = places
            .into_par_iter()
            .zip(global)
            .map(|(mut places, global)| {
                places.iter_mut().for_each(|place| *place = global[*place as usize]);
                places
            })
            .collect();
        Ok(Self { words, occurrences, numbers })
    }
}

/// The words of one dictionary, one after the other.
enum Cursor {
    Memory(Strings, Vec<u64>, usize),
    Spooled(Reader<u8>, Reader<u64>),
}

impl Cursor {
    fn new(names: Names) -> Self {
        match names {
            Names::Memory(words, counts) => Self::Memory(words, counts, 0),
            Names::Spooled(bytes, counts) => Self::Spooled(bytes.into_reader(), counts.into_reader()),
        }
    }

    fn next(&mut self) -> Result<Option<(Vec<u8>, u64)>> {
        match self {
            Self::Memory(words, counts, at) => {
                let found = (*at < words.len()).then(|| (words.get(*at).as_bytes().to_vec(), counts[*at]));
                *at += 1;
                Ok(found)
            }
            Self::Spooled(bytes, counts) => {
                let Some(count) = counts.take()? else { return Ok(None) };
                let (mut length, mut word) = (Vec::new(), Vec::new());
                bytes.read(4, &mut length)?;
                let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
                bytes.read(length as usize, &mut word)?;
                Ok(Some((word, count)))
            }
        }
    }
}
