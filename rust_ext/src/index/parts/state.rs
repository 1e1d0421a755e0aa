//! State: a part as bytes, which it is between two levels, and back.
//!
//! These bytes hold the words of documents. They are kept where the caller says, for the length of a run, and are written by
//! this version for this version: the first number says so. Every list is its length and its values, in little-endian order.

use super::Part;
use crate::error::{Error, Result};
use crate::index::ngram_index::MAX_N;
use crate::storage::strings::Strings;
use crate::text::surface::Surface;

const VERSION: u64 = 2;

impl Part {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let numbers = [self.max_n, self.min_support as usize, self.n, self.num_counted, self.levels.len()];
        let numbers = numbers.map(|number| number as u64);
        put(&mut out, [VERSION, self.num_units, self.num_documents].iter().chain(&numbers).map(|n| n.to_le_bytes()));
        put(&mut out, self.surface.name().bytes().map(|byte| [byte]));
        for list in [&self.lens, &self.units, &self.stream, &self.support] {
            put(&mut out, list.iter().map(|number| number.to_le_bytes()));
        }
        put(&mut out, self.words.as_str().bytes().map(|byte| [byte]));
        put(&mut out, self.words.iter().map(|word| (word.len() as u32).to_le_bytes()));
        put(&mut out, self.occurrences.iter().map(|number| number.to_le_bytes()));
        put(&mut out, self.globals.iter().map(|number| number.to_le_bytes()));
        for (keys, support) in self.levels.iter().chain([&self.open]) {
            put(&mut out, keys.iter().map(|key| key.to_le_bytes()));
            put(&mut out, support.iter().map(|number| number.to_le_bytes()));
        }
        out
    }

    /// The part of these bytes; `Artifact` where they are cut short, or hold a number that leads nowhere.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let rest = &mut &bytes[..];
        let header = take(rest, u64::from_le_bytes)?;
        let [VERSION, num_units, num_documents, max_n, min_support, n, num_counted, num_levels] = header[..] else {
            return Err(broken());
        };
        let (max_n, n, num_counted) = (max_n as usize, n as usize, num_counted as usize);
        if !(1..=MAX_N).contains(&max_n) || !(1..=max_n + 1).contains(&n) || num_levels as usize != n.saturating_sub(2)
        {
            return Err(broken());
        }
        let surface = String::from_utf8(take(rest, u8::from_le_bytes)?).map_err(|_| broken())?;
        let mut lists = [const { Vec::new() }; 4];
        for list in &mut lists {
            *list = take(rest, u32::from_le_bytes)?;
        }
        let [lens, units, stream, support] = lists;
        let text = String::from_utf8(take(rest, u8::from_le_bytes)?).map_err(|_| broken())?;
        let (mut words, mut at) = (Strings::new(), 0);
        for len in take(rest, u32::from_le_bytes)? {
            words.push(text.get(at..at + len as usize).ok_or_else(broken)?);
            at += len as usize;
        }
        let occurrences = take(rest, u64::from_le_bytes)?;
        let globals = take(rest, u64::from_le_bytes)?;
        let mut levels = Vec::new();
        for _ in 0..=num_levels {
            let (keys, support) = (take(rest, u64::from_le_bytes)?, take(rest, u32::from_le_bytes)?);
            if keys.len() != support.len() {
                return Err(broken());
            }
            levels.push((keys, support));
        }
        let open = levels.pop().ok_or_else(broken)?;
        let num_words: u64 = lens.iter().map(|&len| u64::from(len)).sum();
        // What is looked up by these numbers: rows of the table at hand, and numbers in all of its keys.
        let num_rows = if n == 1 { words.len() } else { open.0.len() };
        let fits = |&key: &u64| ((key >> 32).max(key & u64::from(u32::MAX)) as usize) < globals.len();
        let is_sound = rest.is_empty()
            && at == text.len()
            && [support.len(), occurrences.len()] == [words.len(); 2]
            && num_counted <= lens.len()
            && units.len() == lens.len()
            && (n >= max_n || num_words == stream.len() as u64) // the last level leaves no stream
            && stream.iter().all(|&position| position as usize <= num_rows)
            && open.0.iter().all(fits);
        if !is_sound {
            return Err(broken());
        }
        let min_support = u32::try_from(min_support).map_err(|_| broken())?;
        let surface = Surface::parse(&surface)?;
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

fn put<const N: usize>(out: &mut Vec<u8>, values: impl Iterator<Item = [u8; N]>) {
    let start = out.len();
    out.extend([0; 8]);
    out.extend(values.flatten());
    let len = (out.len() - start - 8) as u64;
    out[start..start + 8].copy_from_slice(&len.to_le_bytes());
}

fn take<const N: usize, T>(rest: &mut &[u8], read: fn([u8; N]) -> T) -> Result<Vec<T>> {
    let (len, later) = rest.split_first_chunk().ok_or_else(broken)?;
    let (values, later) = later.split_at_checked(u64::from_le_bytes(*len) as usize).ok_or_else(broken)?;
    *rest = later;
    let (values, []) = values.as_chunks() else { return Err(broken()) };
    Ok(values.iter().map(|&value| read(value)).collect())
}

fn broken() -> Error {
    Error::Artifact("bytes of a part are not whole".into())
}
