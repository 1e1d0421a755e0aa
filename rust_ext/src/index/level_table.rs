//! Level table: the n-grams of one n, in memory or where they stand on disk, and what is known of all of them.

use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::index::level_file::LevelFile;
use crate::index::ngram_index::{Level, MAX_K};
use crate::index::pairs::{Least, Pairs, Size};

enum Rows {
    Held(Level),
    File(LevelFile),
}

/// The distinct n-grams of one n >= 2 and how many units use each: `left << 32 | right`, ascending.
pub struct LevelTable {
    rows: Rows,
    summary: OnceLock<Summary>,
}

/// What one pass over a level says of it.
pub struct Summary {
    /// Whether its keys ascend, and none is there twice.
    pub is_sorted: bool,
    /// The largest number of an (n-1)-gram that it names.
    pub last_id: u32,
    /// By support, `MAX_K` where it is more: how many n-grams have it.
    num_with: [usize; MAX_K as usize + 1],
}

impl Summary {
    /// N-grams with so large a support or a larger one, of at most `MAX_K`.
    pub fn num_from(&self, support: u32) -> usize {
        self.num_with.get(support as usize..).unwrap_or_default().iter().sum()
    }

    pub fn size(&self, num_ids: usize, min_support: u32, k: u32) -> Size {
        Size { num_held: self.num_from(k), num_ranked: self.num_from(min_support), num_ids }
    }
}

impl From<Level> for LevelTable {
    fn from(level: Level) -> Self {
        Self { rows: Rows::Held(level), summary: OnceLock::new() }
    }
}

impl From<LevelFile> for LevelTable {
    fn from(file: LevelFile) -> Self {
        Self { rows: Rows::File(file), summary: OnceLock::new() }
    }
}

impl LevelTable {
    pub fn len(&self) -> usize {
        match &self.rows {
            Rows::Held(level) => level.len(),
            Rows::File(file) => file.num_rows(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Call `visit(keys, supports)` for stretches of the level, in order.
    pub fn for_each(&self, visit: impl FnMut(&[u64], &[u32]) -> Result<()>) -> Result<()> {
        self.for_each_of(0, self.len(), visit)
    }

    /// The keys and supports of `len` rows from `start` on, of those that there are.
    pub fn read(&self, start: usize, len: usize) -> Result<(Vec<u64>, Vec<u32>)> {
        let (mut keys, mut support) = (Vec::new(), Vec::new());
        self.for_each_of(start, len, |some_keys, some_support| {
            keys.extend_from_slice(some_keys);
            support.extend_from_slice(some_support);
            Ok(())
        })?;
        Ok((keys, support))
    }

    fn for_each_of(&self, start: usize, len: usize, visit: impl FnMut(&[u64], &[u32]) -> Result<()>) -> Result<()> {
        match &self.rows {
            Rows::Held(level) => level.for_each(start, len, visit),
            Rows::File(file) => file.for_each(start, len, visit),
        }
    }

    /// What the level is like; one pass over it when it is first asked for.
    pub fn summary(&self) -> Result<&Summary> {
        if let Some(summary) = self.summary.get() {
            return Ok(summary);
        }
        let mut found = Summary { is_sorted: true, last_id: 0, num_with: [0; MAX_K as usize + 1] };
        let mut last = None;
        self.for_each(|keys, support| {
            found.is_sorted &= last.is_none_or(|last| last < keys[0]) && keys.is_sorted_by(|a, b| a < b);
            last = keys.last().copied();
            for (&key, &support) in keys.iter().zip(support) {
                found.last_id = found.last_id.max((key >> 32) as u32).max(key as u32);
                found.num_with[support.min(MAX_K) as usize] += 1;
            }
            Ok(())
        })?;
        Ok(self.summary.get_or_init(|| found))
    }

    /// The n-grams with support >= `k`, with their ranks among those with support >= `min_support`; both at most `MAX_K`. So many
    /// (n-1)-grams have numbers.
    pub fn pairs(&self, num_ids: usize, min_support: u32, k: u32) -> Result<Pairs> {
        let size = self.summary()?.size(num_ids, min_support, k);
        let least = Least { of_ranked: min_support, of_held: k };
        let fill = |mut pairs: Pairs| -> Result<Option<Pairs>> {
            let mut fits = true;
            self.for_each(|keys, support| {
                fits = fits && pairs.extend(keys, support, least);
                Ok(())
            })?;
            Ok(fits.then_some(pairs))
        };
        if let Some(pairs) = Pairs::narrow(size)
            && let Some(pairs) = fill(pairs)?
        {
            return Ok(pairs);
        }
        fill(Pairs::wide(size))?.ok_or_else(|| Error::Artifact("index tables: more n-grams than were counted".into()))
    }
}
