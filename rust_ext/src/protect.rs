//! Policies: from supports to the words that must never be a target.
//!
//! A *minimal* identifying n-gram has support < k while both its (n-1)-subgrams have support >= k (for n = 1: support < k).
//! Support is anti-monotone, so every occurrence of an identifying n-gram contains a minimal one; all four policies are
//! functions of the minimal occurrences, which are intervals of words.

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::{Lookup, MAX_K, NgramIndex};
use crate::text::Texts;
use crate::words::Words;

/// Flag bit of a word that support protects; bit 0 is for direct identifiers.
pub const INDIRECT: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Every word of every minimal identifying n-gram.
    All,
    /// The last word of each.
    Last,
    /// A minimum set of words that meets each.
    Cover,
    /// Every word of every identifying n-gram, minimal or not.
    Paper,
}

impl Policy {
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "all" => Ok(Self::All),
            "last" => Ok(Self::Last),
            "cover" => Ok(Self::Cover),
            "paper" => Ok(Self::Paper),
            _ => Err(Error::Policy(format!("policy: expected all, last, cover or paper, got {name:?}"))),
        }
    }
}

/// What to protect.
#[derive(Clone, Copy)]
pub struct Settings {
    pub k: u32,
    pub n: usize,
    pub policy: Policy,
    /// An n-gram (n >= 2) counts only if each of its words is used by fewer units than this.
    pub max_word_support: Option<u32>,
}

impl Settings {
    pub fn check(&self, index: &NgramIndex) -> Result<()> {
        if self.k < index.min_support.max(1) || self.k > MAX_K {
            return Err(Error::Policy(format!(
                "k: expected {} (the index's min_support) to {MAX_K}, got {}",
                index.min_support.max(1),
                self.k
            )));
        }
        if !(1..=index.max_n).contains(&self.n) {
            return Err(Error::Policy(format!("n: expected 1 to {} (the index's max_n), got {}", index.max_n, self.n)));
        }
        Ok(())
    }
}

/// Flags of each word, and for each word the lengths of the minimal identifying n-grams that start there (bit n - 1).
pub fn protect(index: &NgramIndex, texts: &Texts, words: &Words, settings: Settings) -> Result<(Vec<u8>, Vec<u8>)> {
    settings.check(index)?;
    words.check(texts.len())?;
    let lookup = index.lookup()?;
    let parts: Vec<(Vec<u8>, Vec<u8>)> = (0..texts.len())
        .into_par_iter()
        .map(|row| {
            let (starts, rare) = minimal_starts(index, lookup, texts.get(row), words.of(row), settings);
            (apply(settings.policy, settings.n, &starts, &rare), starts)
        })
        .collect();
    let mut flags = Vec::with_capacity(words.starts.len());
    let mut starts = Vec::with_capacity(words.starts.len());
    for (document_flags, document_starts) in parts {
        flags.extend(document_flags);
        starts.extend(document_starts);
    }
    Ok((flags, starts))
}

/// Bit n - 1 of entry i: a minimal identifying n-gram of n words starts at word i. Beside it, which words an n-gram (n >= 2)
/// that counts may hold.
fn minimal_starts(
    index: &NgramIndex,
    lookup: &Lookup,
    text: &str,
    bounds: (&[u32], &[u32]),
    settings: Settings,
) -> (Vec<u8>, Vec<bool>) {
    let (from, to) = bounds;
    let num_words = from.len();
    let mut starts = vec![0u8; num_words];
    let mut rare = vec![true; num_words];
    // Compact id + 1 of the n-gram at i if its support is >= k, else 0.
    let mut ids = vec![0u32; num_words];
    for i in 0..num_words {
        let word = index.surface.apply(&text[from[i] as usize..to[i] as usize]);
        let found = lookup.word(&word);
        let support = found.map_or(0, |id| index.support[id as usize]);
        if support < settings.k {
            starts[i] = 1;
        } else if let Some(id) = found {
            ids[i] = id + 1;
        }
        rare[i] = settings.max_word_support.is_none_or(|limit| support < limit);
    }
    for n in 2..=settings.n.min(num_words) {
        for i in 0..=num_words - n {
            let (left, right) = (ids[i], ids[i + 1]);
            ids[i] = 0;
            if left == 0 || right == 0 || !rare[i..i + n].iter().all(|&rare| rare) {
                continue;
            }
            match lookup.pair(n, left - 1, right - 1) {
                Some((rank, support)) if support >= settings.k => ids[i] = rank + 1,
                _ => starts[i] |= 1 << (n - 1),
            }
        }
        for id in &mut ids[num_words - n + 1..] {
            *id = 0;
        }
    }
    (starts, rare)
}

/// The words of one document that a policy protects, as flags; `rare` as from [`minimal_starts`].
pub fn apply(policy: Policy, max_n: usize, starts: &[u8], rare: &[bool]) -> Vec<u8> {
    let num_words = starts.len();
    let mut flags = vec![0u8; num_words];
    let intervals = || {
        (0..num_words)
            .flat_map(move |i| (1..=8usize).filter(move |n| starts[i] >> (n - 1) & 1 == 1).map(move |n| (i, i + n - 1)))
    };
    match policy {
        Policy::All => {
            for (first, last) in intervals() {
                flags[first..=last].fill(INDIRECT);
            }
        }
        Policy::Last => {
            for (_, last) in intervals() {
                flags[last] = INDIRECT;
            }
        }
        Policy::Cover => {
            // Stab the right end of the first interval (by right end) that no stab has hit yet.
            let mut by_end: Vec<(usize, usize)> = intervals().map(|(first, last)| (last, first)).collect();
            by_end.sort_unstable();
            let mut next_free = 0;
            for (last, first) in by_end {
                if first >= next_free {
                    flags[last] = INDIRECT;
                    next_free = last + 1;
                }
            }
        }
        Policy::Paper => {
            // An identifying window of at most N words that holds word i holds a minimal interval [a, b]: i is at most
            // N - 1 away from its far end, and no word between them is too common to count. (A word too common to count
            // can identify by itself; the rarer words beside it then do so too.)
            for (first, last) in intervals() {
                let from = (last + 1).saturating_sub(max_n);
                let from = rare[from..first].iter().rposition(|rare| !rare).map_or(from, |common| from + common + 1);
                let to = (first + max_n).min(num_words);
                let to = rare[last + 1..to].iter().position(|rare| !rare).map_or(to, |common| last + 1 + common);
                flags[from..to].fill(INDIRECT);
            }
        }
    }
    flags
}
