//! Policies: from supports to the words that must never be a target.
//!
//! A *minimal* identifying n-gram has support < k while both its (n-1)-subgrams have support >= k (for n = 1: support < k).
//! Support is anti-monotone, so every occurrence of an identifying n-gram contains a minimal one; all four policies are
//! functions of the minimal occurrences, which are intervals of words.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::lookup::{AHEAD, Found};
use crate::index::ngram_index::{MAX_K, NgramIndex};
use crate::index::pairs::{Pairs, Seek};
use crate::storage::memo::Memo;
use crate::text::texts::Texts;
use crate::text::words::Words;

/// Flag bit of a word or token of a direct identifier.
pub const DIRECT: u8 = 1;
/// Flag bit of a word that support protects.
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
    /// Whether it matters which words are rare.
    fn tells_rare(&self) -> bool {
        self.max_word_support.is_some() || self.policy == Policy::Paper
    }

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
///
/// Cost: about 10 ns a word at n = 1; a lookup more a word for each further n.
pub fn protect(index: &NgramIndex, texts: &Texts, words: &Words, settings: Settings) -> Result<(Vec<u8>, Vec<u8>)> {
    settings.check(index)?;
    words.check(texts.len())?;
    let (lookup, pairs) = (index.lookup(), index.pairs(settings.n, settings.k)?);
    let (mut flags, mut starts) = (vec![0u8; words.starts.len()], vec![0u8; words.starts.len()]);
    // One memo a thread, not one a share: rows are shared out finely, so that a slow thread delays no other.
    let scratch = Mutex::new(Vec::new());
    let offsets = &words.doc_offsets;
    shares(offsets, &mut flags, &mut starts).into_par_iter().with_max_len(1).for_each(|share| {
        let spare = scratch.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (mut finder, mut memo) = spare.unwrap_or_else(|| (Finder::new(&pairs, settings), lookup.memo()));
        share.for_each(offsets, |row, flags, starts| {
            finder.minimal_starts(index, &mut memo, texts.get(row), words.of(row), starts);
            finder.apply(starts, flags);
        });
        scratch.lock().unwrap_or_else(PoisonError::into_inner).push((finder, memo));
    });
    let finders = scratch.into_inner().unwrap_or_else(PoisonError::into_inner);
    finders.into_iter().for_each(|(_, memo)| lookup.put_back(memo));
    Ok((flags, starts))
}

/// Documents that one thread takes, and where their words' flags and starts go.
pub(super) struct Share<'a> {
    rows: Range<usize>,
    flags: &'a mut [u8],
    starts: &'a mut [u8],
}

/// Words of a share: enough that taking one costs nothing beside it.
const SHARE: usize = 1 << 14;

/// Words of document d are `offsets[d]..offsets[d + 1]`.
pub(super) fn shares<'a>(offsets: &[i64], mut flags: &'a mut [u8], mut starts: &'a mut [u8]) -> Vec<Share<'a>> {
    let mut shares = Vec::new();
    let (mut first, num_documents) = (0, offsets.len() - 1);
    for row in 0..num_documents {
        let num_words = (offsets[row + 1] - offsets[first]) as usize;
        if num_words >= SHARE || row + 1 == num_documents {
            let (own_flags, own_starts);
            (own_flags, flags) = flags.split_at_mut(num_words);
            (own_starts, starts) = starts.split_at_mut(num_words);
            shares.push(Share { rows: first..row + 1, flags: own_flags, starts: own_starts });
            first = row + 1;
        }
    }
    shares
}

impl Share<'_> {
    /// Call `visit` with each document, and with the flags and starts of its words.
    pub(super) fn for_each(self, offsets: &[i64], mut visit: impl FnMut(usize, &mut [u8], &mut [u8])) {
        let base = offsets[self.rows.start];
        for row in self.rows {
            let own = (offsets[row] - base) as usize..(offsets[row + 1] - base) as usize;
            visit(row, &mut self.flags[own.clone()], &mut self.starts[own]);
        }
    }
}

/// Finds where minimal identifying n-grams start; holds what lasts from document to document.
pub(super) struct Finder<'a> {
    /// By n - 2, up to the n of the settings.
    pairs: &'a [Arc<Pairs>],
    settings: Settings,
    /// Compact id + 1 of the n-gram at each word if its support is >= k, else 0.
    ids: Vec<u32>,
    /// Of the last document: which words an n-gram (n >= 2) that counts may hold.
    rare: Vec<bool>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(pairs: &'a [Arc<Pairs>], settings: Settings) -> Self {
        Self { pairs, settings, ids: Vec::new(), rare: Vec::new() }
    }

    /// Bit n - 1 of entry i: a minimal identifying n-gram of n words starts at word i.
    fn minimal_starts(
        &mut self,
        index: &NgramIndex,
        memo: &mut Memo<Found>,
        text: &str,
        words: (&[u32], &[u32]),
        starts: &mut [u8],
    ) {
        let mut take = self.begin();
        let known = (&index.words, &*index.support);
        index.lookup().find_all(known, text, words, memo, |word, found| take.word(&mut starts[word], found));
        self.extend(take, starts);
    }

    /// The same of words that were looked up before.
    pub(super) fn minimal_starts_of(&mut self, found: impl Iterator<Item = Found>, starts: &mut [u8]) {
        let mut take = self.begin();
        found.zip(&mut *starts).for_each(|(found, start)| take.word(start, found));
        self.extend(take, starts);
    }

    /// Flag the words of the document whose starts were just found (`flags` is all zeros).
    pub(super) fn apply(&self, starts: &[u8], flags: &mut [u8]) {
        if self.settings.n == 1 {
            // An interval of one word: every policy protects that word.
            flags.iter_mut().zip(starts).for_each(|(flag, &start)| *flag = start * INDIRECT);
        } else {
            apply(self.settings.policy, self.settings.n, starts, &self.rare, flags);
        }
    }

    fn begin(&mut self) -> Take {
        let (mut ids, mut rare) = (std::mem::take(&mut self.ids), std::mem::take(&mut self.rare));
        ids.clear();
        rare.clear();
        Take { settings: self.settings, ids, rare }
    }

    /// From the words of a document to its longer n-grams.
    fn extend(&mut self, Take { mut ids, rare, .. }: Take, starts: &mut [u8]) {
        let num_words = ids.len();
        let is_limited = self.settings.max_word_support.is_some();
        for n in 2..=self.settings.n.min(num_words) {
            let (pairs, num_starts) = (&*self.pairs[n - 2], num_words - n + 1);
            let (mut seeks, mut asked, mut found) = ([Seek::default(); AHEAD], [0; AHEAD], [0u64; AHEAD]);
            for first in (0..num_starts).step_by(AHEAD) {
                let places = first..num_starts.min(first + AHEAD);
                let mut num_asked = 0;
                for i in places.clone() {
                    let (left, right) = (ids[i], ids[i + 1]);
                    let counts = left > 0 && right > 0 && (!is_limited || rare[i..i + n].iter().all(|&rare| rare));
                    // Without a branch: whether one counts is hard to guess. What does not is overwritten by the next.
                    let (left, right) = if counts { (left - 1, right - 1) } else { (0, 0) };
                    (seeks[num_asked], asked[num_asked]) = (pairs.seek(left, right), i);
                    num_asked += usize::from(counts);
                }
                // The next places have read them.
                ids[places].fill(0);
                pairs.find(&seeks[..num_asked], &mut found);
                for (&i, &found) in asked[..num_asked].iter().zip(&found) {
                    ids[i] = found as u32;
                    starts[i] |= u8::from(found == 0) << (n - 1);
                }
            }
            ids[num_starts..].fill(0);
        }
        (self.ids, self.rare) = (ids, rare);
    }
}

/// Takes the words of a document, one after the other.
struct Take {
    settings: Settings,
    ids: Vec<u32>,
    rare: Vec<bool>,
}

impl Take {
    #[inline(always)]
    fn word(&mut self, start: &mut u8, found: Found) {
        let Settings { n, k, max_word_support, .. } = self.settings;
        let is_kept = found.support >= k;
        *start = u8::from(!is_kept);
        if n > 1 {
            self.ids.push(if is_kept { found.id + 1 } else { 0 });
            if self.settings.tells_rare() {
                self.rare.push(max_word_support.is_none_or(|limit| found.support < limit));
            }
        }
    }
}

/// Flag the words of one document that a policy protects (`flags` is all zeros); `rare` as in [`Finder`].
pub(super) fn apply(policy: Policy, max_n: usize, starts: &[u8], rare: &[bool], flags: &mut [u8]) {
    let num_words = starts.len();
    // Most words start none, and eight of those are passed over with one comparison.
    let intervals = || {
        let begun = starts.chunks(8).enumerate().filter(|(_, eight)| eight.iter().any(|&start| start != 0));
        let words = begun.flat_map(|(chunk, eight)| (chunk * 8..).zip(eight)).filter(|&(_, &start)| start != 0);
        words.flat_map(|(i, &start)| (1..=8).filter(move |n| start >> (n - 1) & 1 == 1).map(move |n| (i, i + n - 1)))
    };
    match policy {
        // Without a branch: many intervals overlap. Each ends in the document, so its words are those of `flags`.
        Policy::All => {
            for ahead in 0..max_n.min(num_words) {
                let reaches = u8::MAX << ahead;
                let words = flags[ahead..].iter_mut().zip(starts);
                words.for_each(|(flag, &start)| *flag |= u8::from(start & reaches != 0) * INDIRECT);
            }
        }
        Policy::Last => {
            for ahead in 0..max_n.min(num_words) {
                let words = flags[ahead..].iter_mut().zip(starts);
                words.for_each(|(flag, &start)| *flag |= (start >> ahead & 1) * INDIRECT);
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
}
