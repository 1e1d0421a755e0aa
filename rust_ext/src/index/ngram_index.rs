//! NgramIndex: how many individuals use each word and each n-gram.
//!
//! Words stand in byte order with their supports. Level n stands as pairs sorted by (left, right): the two (n-1)-grams that the
//! n-gram begins and ends with. On level 2 they are numbers of words; above, they are ranks among the (n-1)-grams whose
//! support is `min_support` or more (the *kept* ones). So the key of an n-gram is exact by recursion, and level n lists just
//! the n-grams both of whose (n-1)-grams are kept. Both orders depend on nothing but the documents.
//!
//! **Why pruning loses nothing.** Support never grows from an n-gram to a longer one. A minimal identifying n-gram has support
//! under k, and both its (n-1)-grams have k or more. So it is listed wherever `min_support <= k`, and its own support is
//! stored, however small. One index pruned at 2 answers every k from 2 to 255.
//!
//! `build` makes an index from documents, `update` from another index.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::level_table::{LevelTable, Summary};
use crate::index::lookup::Lookup;
use crate::index::pairs::Pairs;
use crate::storage::spool::{Spool, Store};
use crate::storage::strings::Strings;
use crate::text::characters::is_word_by_itself;
use crate::text::surface::Surface;

pub const MAX_N: usize = 8;
pub const MAX_K: u32 = 255;

/// Units that use a word of an identifier at most, beside a share of all, if it is to be protected in the documents of all.
const FEW_UNITS: u64 = 5;

pub fn check_min_support(min_support: u32) -> Result<()> {
    if !(1..=MAX_K).contains(&min_support) {
        return Err(Error::Policy(format!("min_support: expected 1 to {MAX_K}, got {min_support}")));
    }
    Ok(())
}

/// The distinct n-grams of one n >= 2 and how many units use each, as they are counted.
pub struct Level {
    /// `left << 32 | right`, ascending.
    pub keys: Spool<u64>,
    pub support: Spool<u32>,
}

impl Level {
    pub fn new(store: &Arc<Store>) -> Self {
        Self { keys: Spool::new(store), support: Spool::new(store) }
    }

    pub fn extend(&mut self, keys: &[u64], support: &[u32]) -> Result<()> {
        self.keys.extend(keys)?;
        self.support.extend(support)
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Call `visit(keys, supports)` for stretches of `len` rows from `start` on, of those that there are, in order.
    pub fn for_each(
        &self,
        start: usize,
        len: usize,
        mut visit: impl FnMut(&[u64], &[u32]) -> Result<()>,
    ) -> Result<()> {
        let end = start.saturating_add(len).min(self.len());
        let (mut keys, mut support) = (Vec::new(), Vec::new());
        for first in (start..end).step_by(1 << 16) {
            let len = (end - first).min(1 << 16);
            keys.clear();
            support.clear();
            self.keys.read(first, len, &mut keys, false)?;
            self.support.read(first, len, &mut support, false)?;
            visit(&keys, &support)?;
        }
        Ok(())
    }
}

/// A k, and the table of the n-grams with that support or more.
type OfK = (u32, Arc<Pairs>);

/// The tables, and lookups made on first use.
pub struct NgramIndex {
    pub max_n: usize,
    pub surface: Surface,
    pub min_support: u32,
    pub num_units: u64,
    pub num_documents: u64,
    /// Distinct words in byte order.
    pub words: Strings,
    /// Individuals (units) that use each word; as long as `words`. 1 or more for every word that is listed.
    pub support: Vec<u32>,
    /// How often each word stands in the documents; as long as `words`.
    pub occurrences: Vec<u64>,
    /// `levels[n - 2]` holds the n-grams.
    pub levels: Vec<LevelTable>,
    /// The most bytes that building it had on disk at once.
    pub spilled_bytes: u64,
    lookup: OnceLock<Lookup>,
    /// `pairs[n - 2]` finds n-grams used by so many units or more; of the k that was asked for last.
    pairs: [Mutex<Option<OfK>>; MAX_N - 1],
}

impl NgramIndex {
    /// An index of these words without levels; the caller sets the rest.
    pub fn new(max_n: usize, surface: Surface, min_support: u32, words: Strings) -> Self {
        Self {
            max_n,
            surface,
            min_support,
            num_units: 0,
            num_documents: 0,
            words,
            support: Vec::new(),
            occurrences: Vec::new(),
            levels: Vec::new(),
            spilled_bytes: 0,
            lookup: OnceLock::new(),
            pairs: [const { Mutex::new(None) }; MAX_N - 1],
        }
    }

    /// The table that finds words, made on first use.
    pub fn lookup(&self) -> &Lookup {
        self.lookup.get_or_init(|| Lookup::new(self.surface, &self.words, &self.support))
    }

    /// The tables that find the n-grams of 2 to `n` words with support >= `k`, made on first use: they take far more memory than that
    /// of words.
    pub fn pairs(&self, n: usize, k: u32) -> Result<Vec<Arc<Pairs>>> {
        (2..n + 1)
            .into_par_iter()
            .map(|n| {
                let mut known = self.pairs[n - 2].lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((_, pairs)) = known.as_ref().filter(|(of, _)| *of == k) {
                    return Ok(pairs.clone());
                }
                *known = None; // before there are two
                let made = Arc::new(self.levels[n - 2].pairs(self.num_ids(n)?, self.min_support, k)?);
                *known = Some((k, made.clone()));
                Ok(made)
            })
            .collect()
    }

    /// Numbers of what an n-gram of level n is made of: of words, then of kept (n-1)-grams.
    fn num_ids(&self, n: usize) -> Result<usize> {
        match n {
            2 => Ok(self.words.len()),
            _ => Ok(self.levels[n - 3].summary()?.num_from(self.min_support)),
        }
    }

    /// Memory of [`NgramIndex::pairs`].
    pub fn num_bytes_of_pairs(&self, n: usize, k: u32) -> Result<u64> {
        (2..=n).map(|n| Ok(self.levels[n - 2].summary()?.size(self.num_ids(n)?, self.min_support, k).num_bytes())).sum()
    }

    /// Give the memory of [`NgramIndex::pairs`] back; they are made again where they are asked for.
    pub fn forget_pairs(&self) {
        self.pairs.iter().for_each(|known| *known.lock().unwrap_or_else(PoisonError::into_inner) = None);
    }

    /// Whether a word of so many units is too common to identify anybody: of more than five, and of more than a fifth of all, or a
    /// twentieth where it is typed in small letters alone, as the words of grammar are.
    pub fn is_widespread(&self, word: &str, support: u32) -> bool {
        let is_small = self.surface == Surface::Exact
            && word.chars().any(char::is_lowercase)
            && !word.chars().any(char::is_uppercase);
        u64::from(support) > FEW_UNITS.max(self.num_units / if is_small { 20 } else { 5 })
    }

    /// [`NgramIndex::is_widespread`] of a surface; one that is not listed is not.
    pub fn has_widespread(&self, surface: &str) -> bool {
        self.words.find_sorted(surface).is_some_and(|number| self.is_widespread(surface, self.support[number]))
    }

    pub fn num_occurrences(&self) -> u64 {
        self.occurrences.iter().sum()
    }

    /// Occurrences of words that are one letter of a script without spaces, as UAX #29 has it: counting words one by one
    /// protects next to nothing there.
    pub fn num_unspaced(&self) -> u64 {
        let is_unspaced = |id: usize| self.words.get(id).chars().next().is_some_and(is_word_by_itself);
        self.occurrences.iter().enumerate().filter(|&(id, _)| is_unspaced(id)).map(|(_, occurrences)| occurrences).sum()
    }

    /// Check tables that come from a file.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str| Err(Error::Artifact(format!("index tables: {what}")));
        if self.min_support > MAX_K {
            return bad("min_support is beyond 255");
        }
        if self.max_n > MAX_N {
            return bad("max_n is beyond 8");
        }
        if self.support.len() != self.words.len() || self.occurrences.len() != self.words.len() {
            return bad("the word columns differ in length");
        }
        if (1..self.words.len()).any(|id| self.words.get(id - 1) >= self.words.get(id)) {
            return bad("the words are not in byte order, or not distinct");
        }
        if self.levels.len() + 1 != self.max_n {
            return bad("the number of levels is not max_n - 1");
        }
        let summaries: Vec<&Summary> = self.levels.par_iter().map(LevelTable::summary).collect::<Result<_>>()?;
        // Numbers of what an n-gram is made of: words, then those of its kept (n-1)-grams.
        let mut num_ids = self.words.len();
        for (level, summary) in self.levels.iter().zip(summaries) {
            if !summary.is_sorted {
                return bad("a level is not sorted, or not distinct");
            }
            if !level.is_empty() && summary.last_id as usize >= num_ids {
                return bad("a level names a word or an n-gram that is not there");
            }
            num_ids = summary.num_from(self.min_support);
        }
        Ok(())
    }
}
