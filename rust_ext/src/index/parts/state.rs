//! State: a part as bytes, which it is between two levels, and back.
//!
//! These bytes hold the words of documents. They are kept where the caller says, for the length of a run, and are written by
//! this version for this version: the first byte says so.

use super::Part;
use super::run::{Kind, Row, RunReader, broken, put, take, write_runs};
use crate::error::Result;
use crate::index::ngram_index::MAX_N;
use crate::storage::strings::Strings;
use crate::text::surface::Surface;

const VERSION: u8 = 1;

impl Part {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for number in [
            self.max_n as u64,
            u64::from(self.min_support),
            self.num_units,
            self.num_documents,
            self.n as u64,
            self.num_counted as u64,
        ] {
            put(&mut out, number);
        }
        put_bytes(&mut out, self.surface.name().as_bytes());
        put_numbers(&mut out, &self.lens);
        put_numbers(&mut out, &self.units);
        put_fixed(&mut out, &self.stream);
        let rows = (0..self.words.len()).map(|number| Row {
            key: super::Key::Word(self.words.get(number).as_bytes()),
            support: self.support[number],
            occurrences: self.occurrences[number],
        });
        put_bytes(&mut out, &write_runs(Kind::Words, rows, &[])[0]);
        put(&mut out, self.levels.len() as u64);
        for level in self.levels.iter().chain([&self.open]) {
            put_level(&mut out, level);
        }
        put(&mut out, self.globals.len() as u64);
        let mut before = 0;
        for &number in &self.globals {
            put(&mut out, number - before);
            before = number;
        }
        out
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let rest = &mut &bytes[..];
        match rest.split_first() {
            Some((&VERSION, later)) => *rest = later,
            _ => return Err(broken()),
        }
        let max_n = take(rest)? as usize;
        let min_support = u32::try_from(take(rest)?).map_err(|_| broken())?;
        let (num_units, num_documents, n) = (take(rest)?, take(rest)?, take(rest)? as usize);
        let num_counted = take(rest)? as usize;
        let surface = std::str::from_utf8(take_bytes(rest)?).map_err(|_| broken())?;
        let surface = Surface::parse(surface)?;
        let (lens, units, stream) = (take_numbers(rest)?, take_numbers(rest)?, take_fixed(rest)?);
        let num_words: u64 = lens.iter().map(|&len| u64::from(len)).sum();
        // The last level leaves no stream.
        let is_whole = n >= max_n || num_words == stream.len() as u64;
        let is_known = (1..=MAX_N).contains(&max_n) && (1..=max_n + 1).contains(&n);
        if num_counted > lens.len() || units.len() != lens.len() || !is_whole || !is_known {
            return Err(broken());
        }
        let mut reader = RunReader::new(Kind::Words, take_bytes(rest)?);
        let (mut words, mut occurrences, mut support) = (Strings::new(), Vec::new(), Vec::new());
        while reader.step()? {
            if let super::Key::Word(word) = reader.key() {
                words.push(std::str::from_utf8(word).map_err(|_| broken())?);
            }
            occurrences.push(reader.occurrences);
            support.push(reader.support);
        }
        let num_levels = take(rest)?;
        let mut levels = Vec::new();
        for _ in 0..num_levels {
            levels.push(take_level(rest)?);
        }
        let open = take_level(rest)?;
        let (num_globals, mut globals, mut before) = (take(rest)? as usize, Vec::new(), 0u64);
        for _ in 0..num_globals {
            before = before.checked_add(take(rest)?).ok_or_else(broken)?;
            globals.push(before);
        }
        if !rest.is_empty() {
            return Err(broken());
        }
        // What is looked up by these numbers: rows of the table at hand, and numbers in all of its keys.
        let num_rows = if n == 1 { words.len() } else { open.0.len() };
        let ids = |key: u64| ((key >> 32) as usize, (key & u64::from(u32::MAX)) as usize);
        let fits = |&key: &u64| ids(key).0.max(ids(key).1) < globals.len();
        let is_sound = levels.len() == n.saturating_sub(2)
            && (n >= max_n || stream.iter().all(|&position| position as usize <= num_rows))
            && open.0.iter().all(fits)
            && open.0.is_sorted_by_key(|&key| (globals[ids(key).0], globals[ids(key).1]));
        if !is_sound {
            return Err(broken());
        }
        Ok(Self {
            max_n,
            surface,
            min_support,
            num_units,
            num_documents,
            n,
            num_counted,
            lens,
            units,
            stream,
            words,
            occurrences,
            support,
            levels,
            open,
            globals,
        })
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let len = take(rest)? as usize;
    let (bytes, later) = rest.split_at_checked(len).ok_or_else(broken)?;
    *rest = later;
    Ok(bytes)
}

/// Small numbers: 7 bits a byte.
fn put_numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    put(out, numbers.len() as u64);
    numbers.iter().for_each(|&number| put(out, u64::from(number)));
}

fn take_numbers(rest: &mut &[u8]) -> Result<Vec<u32>> {
    let len = take(rest)?;
    (0..len).map(|_| u32::try_from(take(rest)?).map_err(|_| broken())).collect()
}

/// Numbers of any size, as the least number of whole bytes that holds each.
fn put_fixed(out: &mut Vec<u8>, numbers: &[u32]) {
    let width = 4 - numbers.iter().fold(1, |all, &number| all | number).leading_zeros() as usize / 8;
    put(out, numbers.len() as u64);
    put(out, width as u64);
    out.reserve(numbers.len() * width);
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()[..width]));
}

fn take_fixed(rest: &mut &[u8]) -> Result<Vec<u32>> {
    let (len, width) = (take(rest)? as usize, take(rest)? as usize);
    let num_bytes = len.checked_mul(width).filter(|_| (1..=4).contains(&width)).ok_or_else(broken)?;
    let (bytes, later) = rest.split_at_checked(num_bytes).ok_or_else(broken)?;
    *rest = later;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u32, |number, &byte| number << 8 | u32::from(byte));
    Ok(bytes.chunks_exact(width).map(number).collect())
}

/// Keys as steps from one to the next, as in a run.
fn put_level(out: &mut Vec<u8>, (keys, support): &(Vec<u64>, Vec<u32>)) {
    let rows = keys.iter().zip(support).map(|(&key, &support)| Row {
        key: super::Key::Pair(key >> 32, key & u64::from(u32::MAX)),
        support,
        occurrences: 0,
    });
    put_bytes(out, &write_runs(Kind::Pairs, rows, &[])[0]);
}

fn take_level(rest: &mut &[u8]) -> Result<(Vec<u64>, Vec<u32>)> {
    let mut reader = RunReader::new(Kind::Pairs, take_bytes(rest)?);
    let (mut keys, mut supports) = (Vec::new(), Vec::new());
    while reader.step()? {
        if let super::Key::Pair(left, right) = reader.key() {
            let (left, right) = (u32::try_from(left), u32::try_from(right));
            let (Ok(left), Ok(right)) = (left, right) else { return Err(broken()) };
            keys.push(u64::from(left) << 32 | u64::from(right));
        }
        supports.push(reader.support);
    }
    Ok((keys, supports))
}
