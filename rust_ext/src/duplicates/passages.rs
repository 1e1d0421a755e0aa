//! Passages: sequences of at least a given number of words that occur in more than one document.
//!
//! All windows of that many words are hashed and sorted. Windows with equal hashes are then compared word for word. So every
//! counted passage is shared, and no shared passage is missed. Memory: 16 bytes for each window of one share of the hashes at a
//! time.

use rayon::prelude::*;

use crate::duplicates::copies::Documents;
use crate::error::{Error, Result};

/// Windows sorted at once: 1 GiB.
const WINDOWS_AT_ONCE: usize = 1 << 26;
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words of each document that lie in a passage that another document has too.
pub struct Shared {
    /// Another document of the same unit.
    pub within: Vec<u32>,
    /// A document of another unit.
    pub across: Vec<u32>,
}

pub fn shared_passages(documents: &Documents, units: &[u32], num_words: usize) -> Result<Shared> {
    if num_words == 0 {
        return Err(Error::Policy("passage: expected at least 1 word".into()));
    }
    documents.check(units.len(), "units")?;
    let num_windows: usize =
        (0..documents.len()).map(|document| (documents.words_of(document).len() + 1).saturating_sub(num_words)).sum();
    let num_parts = num_windows.div_ceil(WINDOWS_AT_ONCE).max(1) as u64;
    // Whether a shared passage begins at a word.
    let mut within = vec![false; documents.words.len()];
    let mut across = within.clone();
    for part in 0..num_parts {
        let mut windows: Vec<(u64, usize)> = (0..documents.len())
            .into_par_iter()
            .fold(Vec::new, |mut windows, document| {
                roll(documents, document, num_words, |hash, at| {
                    if num_parts == 1 || (hash >> 32) % num_parts == part {
                        windows.push((hash, at));
                    }
                });
                windows
            })
            .reduce(Vec::new, |mut all, mut some| {
                all.append(&mut some);
                all
            });
        windows.par_sort_unstable();
        for run in windows.chunk_by(|a, b| a.0 == b.0).filter(|run| run.len() > 1) {
            mark_run(documents, units, num_words, run, &mut within, &mut across);
        }
    }
    let covered = |starts: &[bool]| {
        let count = |document: usize| {
            let (first, end) = (documents.offsets[document], documents.offsets[document + 1]);
            let (mut num, mut until) = (0, first);
            for at in (first..end).filter(|&at| starts[at]) {
                num += at + num_words - until.max(at);
                until = at + num_words;
            }
            num as u32
        };
        (0..documents.len()).into_par_iter().map(count).collect()
    };
    Ok(Shared { within: covered(&within), across: covered(&across) })
}

/// The hash of each window of a document, and the word it begins at.
fn roll(documents: &Documents, document: usize, num_words: usize, mut emit: impl FnMut(u64, usize)) {
    let words = documents.words_of(document);
    if words.len() < num_words {
        return;
    }
    let power = (1..num_words).fold(1u64, |power, _| power.wrapping_mul(BASE));
    let mut hash = words[..num_words].iter().fold(0u64, |hash, &word| hash.wrapping_mul(BASE).wrapping_add(word));
    let first = documents.offsets[document];
    // The multiplication brings the low bits, which are good, up to the high ones.
    emit(hash.wrapping_mul(BASE), first);
    for (at, (&leaves, &enters)) in words.iter().zip(&words[num_words..]).enumerate() {
        hash = hash.wrapping_sub(leaves.wrapping_mul(power)).wrapping_mul(BASE).wrapping_add(enters);
        emit(hash.wrapping_mul(BASE), first + at + 1);
    }
}

/// Mark the windows of equal hash that hold the same words in two documents.
fn mark_run(
    documents: &Documents,
    units: &[u32],
    num_words: usize,
    run: &[(u64, usize)],
    within: &mut [bool],
    across: &mut [bool],
) {
    let words = |at: usize| &documents.words[at..at + num_words];
    let mut left: Vec<usize> = run.iter().map(|window| window.1).collect();
    // Once, unless different words have the same hash.
    while left.len() > 1 {
        let (same, others) = left.iter().partition::<Vec<usize>, _>(|&&at| words(at) == words(left[0]));
        let mut places: Vec<(u32, usize, usize)> = same
            .into_iter()
            .map(|at| {
                let document = documents.offsets.partition_point(|&offset| offset <= at) - 1;
                (units[document], document, at)
            })
            .collect();
        places.sort_unstable();
        let crosses = places[0].0 != places[places.len() - 1].0;
        for of_unit in places.chunk_by(|a, b| a.0 == b.0) {
            let repeats = of_unit[0].1 != of_unit[of_unit.len() - 1].1;
            for &(_, _, at) in of_unit {
                within[at] |= repeats;
                across[at] |= crosses;
            }
        }
        left = others;
    }
}
