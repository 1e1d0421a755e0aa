//! NgramIndex: how many individuals use each word and each n-gram.
//!
//! **Building.** Workers turn texts into streams of word ids and drop the text. At the end documents are put in the order of
//! their unit (individual or household), so that a count needs no set of owners: an entry is a key, a count and the last unit
//! that raised it. Level n works on the stream of compact ids of the (n-1)-grams with support >= `min_support` (0 where there is
//! none or the document ends); the key of an n-gram is the pair of ids at i and i + 1, exact by recursion. Keys are split among
//! threads by hash, so each key is written by one thread, in the order of units.
//!
//! **What is kept.** Words in byte order with their supports; level n as pairs sorted by (left, right). Both orders depend on
//! nothing but the documents: not on threads, batches or the order of documents. One index pruned at 2 answers every
//! k in 2..=255, since both (n-1)-subgrams of a minimal identifying n-gram have support >= k >= 2.
//!
//! Costs: 4 bytes a word and level while building; about 10-50 ns a word and level of processor time.

use std::sync::OnceLock;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use rayon::prelude::*;
use std::hash::BuildHasher;

use crate::error::{Error, Result};
use crate::intern::Interner;
use crate::surface::Surface;
use crate::text::Texts;
use crate::words::{check_length, for_each_word};

pub const MAX_N: usize = 8;
pub const MAX_K: u32 = 255;

/// A distinct n-gram (n >= 2) and how many units use it, saturating at 255.
#[derive(Clone, Default)]
pub struct Level {
    /// `left << 32 | right`, ascending.
    pub keys: Vec<u64>,
    pub support: Vec<u8>,
}

/// Where one document's words stand in a worker's stream.
struct Document {
    unit: u32,
    start: usize,
    len: usize,
}

/// One thread's share of the documents: its own words, its own ids.
struct Worker {
    interner: Interner,
    stream: Vec<u32>,
    documents: Vec<Document>,
}

pub struct IndexBuilder {
    max_n: usize,
    surface: Surface,
    workers: Vec<Worker>,
}

impl IndexBuilder {
    pub fn new(max_n: usize, surface: Surface, num_workers: usize) -> Result<Self> {
        if !(1..=MAX_N).contains(&max_n) {
            return Err(Error::Policy(format!("max_n: expected 1 to {MAX_N}, got {max_n}")));
        }
        let worker = || Worker { interner: Interner::new(), stream: Vec::new(), documents: Vec::new() };
        Ok(Self { max_n, surface, workers: (0..num_workers.max(1)).map(|_| worker()).collect() })
    }

    /// Add documents; `units[d]` owns document `d`. Returns the number of words added.
    pub fn add(&mut self, texts: &Texts, units: &[u32]) -> Result<usize> {
        if units.len() != texts.len() {
            return Err(Error::Corpus(format!("{} units were given for {} documents", units.len(), texts.len())));
        }
        let (num_workers, surface) = (self.workers.len(), self.surface);
        let share = texts.len().div_ceil(num_workers).max(1);
        let added: Vec<usize> = self
            .workers
            .par_iter_mut()
            .enumerate()
            .map(|(number, worker)| {
                let before = worker.stream.len();
                let rows = (number * share).min(texts.len())..((number + 1) * share).min(texts.len());
                for (row, &unit) in rows.clone().zip(&units[rows]) {
                    let text = texts.get(row);
                    check_length(text, row)?;
                    let start = worker.stream.len();
                    let Worker { interner, stream, .. } = worker;
                    for_each_word(text, |from, to| {
                        stream.push(interner.intern(&surface.apply(&text[from..to])));
                    });
                    let len = worker.stream.len() - start;
                    worker.documents.push(Document { unit, start, len });
                }
                Ok(worker.stream.len() - before)
            })
            .collect::<Result<_>>()?;
        Ok(added.iter().sum())
    }

    /// Count every level; the builder is used up.
    pub fn finish(self, min_support: u32) -> Result<NgramIndex> {
        check_min_support(min_support)?;
        let (words, remaps) = unite(&self.workers);
        let num_documents: usize = self.workers.iter().map(|worker| worker.documents.len()).sum();
        let (stream, units) = order_by_unit(&self.workers, &remaps);
        drop(self.workers);
        let num_units = units.windows(2).filter(|pair| pair[0].1 != pair[1].1).count() + usize::from(!units.is_empty());
        let (support, occurrences) = count_words(words.len(), &stream, &units);
        let mut index = NgramIndex {
            max_n: self.max_n,
            surface: self.surface,
            min_support,
            num_units: num_units as u64,
            num_documents: num_documents as u64,
            words,
            support,
            occurrences,
            levels: Vec::new(),
            lookup: OnceLock::new(),
        };
        let mut stream = stream;
        for n in 2..=self.max_n {
            prune(&mut stream, n, &index);
            let level = count_pairs(&stream, &units);
            if n < self.max_n {
                stream = next_stream(&stream, &level, min_support);
            }
            index.levels.push(level);
        }
        Ok(index)
    }
}

pub fn check_min_support(min_support: u32) -> Result<()> {
    if !(1..=MAX_K).contains(&min_support) {
        return Err(Error::Policy(format!("min_support: expected 1 to {MAX_K}, got {min_support}")));
    }
    Ok(())
}

/// Distinct words of all workers in byte order, and each worker's local id -> global id.
fn unite(workers: &[Worker]) -> (Vec<String>, Vec<Vec<u32>>) {
    let mut all: Vec<&str> = workers
        .iter()
        .flat_map(|worker| (0..worker.interner.len() as u32).map(|id| worker.interner.word(id)))
        .collect();
    all.par_sort_unstable();
    all.dedup();
    let remaps = workers
        .par_iter()
        .map(|worker| {
            (0..worker.interner.len() as u32)
                .map(|id| all.partition_point(|&word| word < worker.interner.word(id)) as u32)
                .collect()
        })
        .collect();
    (all.into_iter().map(str::to_owned).collect(), remaps)
}

/// One stream of global ids + 1 in the order of units, a 0 after each document, and (end, unit) of each document in it.
fn order_by_unit(workers: &[Worker], remaps: &[Vec<u32>]) -> (Vec<u32>, Vec<(usize, u32)>) {
    let mut order: Vec<(u32, usize, usize)> = workers
        .iter()
        .enumerate()
        .flat_map(|(w, worker)| worker.documents.iter().enumerate().map(move |(d, document)| (document.unit, w, d)))
        .collect();
    order.par_sort_unstable();
    let num_words: usize = workers.iter().map(|worker| worker.stream.len()).sum();
    let mut stream = Vec::with_capacity(num_words + order.len());
    let mut bounds = Vec::with_capacity(order.len());
    for (unit, w, d) in order {
        let Document { start, len, .. } = workers[w].documents[d];
        stream.extend(workers[w].stream[start..start + len].iter().map(|&id| remaps[w][id as usize] + 1));
        stream.push(0);
        bounds.push((stream.len(), unit));
    }
    (stream, bounds)
}

/// Exact support and occurrences of each word; each thread owns a range of word ids and reads the whole stream.
fn count_words(num_words: usize, stream: &[u32], units: &[(usize, u32)]) -> (Vec<u32>, Vec<u64>) {
    let share = num_words.div_ceil(rayon::current_num_threads()).max(1);
    let mut support = vec![0u32; num_words];
    let mut occurrences = vec![0u64; num_words];
    support.par_chunks_mut(share).zip(occurrences.par_chunks_mut(share)).enumerate().for_each(
        |(part, (support, occurrences))| {
            let first = part * share;
            let mut last = vec![u32::MAX; support.len()];
            let mut seen_max_unit = vec![false; support.len()];
            let mut at = 0;
            for &(end, unit) in units {
                for &id in &stream[at..end] {
                    let slot = (id as usize).wrapping_sub(first + 1);
                    if slot < support.len() {
                        occurrences[slot] += 1;
                        // u32::MAX is a valid unit, so the first sighting is told by the count.
                        if last[slot] != unit || (unit == u32::MAX && !seen_max_unit[slot]) {
                            last[slot] = unit;
                            seen_max_unit[slot] |= unit == u32::MAX;
                            support[slot] += 1;
                        }
                    }
                }
                at = end;
            }
        },
    );
    (support, occurrences)
}

/// Level 2 starts from words: those under `min_support` are blanked. Later levels come out pruned already.
fn prune(stream: &mut [u32], n: usize, index: &NgramIndex) {
    if n == 2 {
        stream.par_iter_mut().for_each(|id| {
            if *id > 0 && index.support[*id as usize - 1] < index.min_support {
                *id = 0;
            }
        });
    }
}

/// Count pairs of neighbouring non-zero ids; each thread owns the keys of its hash partition.
fn count_pairs(stream: &[u32], units: &[(usize, u32)]) -> Level {
    let partitions = rayon::current_num_threads();
    let hasher = FixedState::default();
    let mut entries: Vec<(u64, u8)> = (0..partitions)
        .into_par_iter()
        .flat_map_iter(|partition| {
            let mut table: HashMap<u64, (u32, u8), FixedState> = HashMap::default();
            let mut at = 0;
            for &(end, unit) in units {
                for pair in stream[at..end].windows(2) {
                    let Some(key) = pair_key(pair[0], pair[1]) else {
                        continue;
                    };
                    // The table hashes with the low bits too, so the partition takes the middle ones.
                    if partitions > 1 && (hasher.hash_one(key) >> 24) as usize % partitions != partition {
                        continue;
                    }
                    let entry = table.entry(key).or_insert((unit, 0));
                    if entry.1 == 0 || entry.0 != unit {
                        *entry = (unit, entry.1.saturating_add(1));
                    }
                }
                at = end;
            }
            table.into_iter().map(|(key, (_, count))| (key, count))
        })
        .collect();
    entries.par_sort_unstable();
    Level {
        keys: entries.iter().map(|entry| entry.0).collect(),
        support: entries.iter().map(|entry| entry.1).collect(),
    }
}

/// The key of two ids + 1, if neither is blank.
#[inline]
fn pair_key(left: u32, right: u32) -> Option<u64> {
    (left != 0 && right != 0).then(|| u64::from(left - 1) << 32 | u64::from(right - 1))
}

/// The stream of compact ids + 1 of this level's n-grams with support >= `min_support`.
fn next_stream(stream: &[u32], level: &Level, min_support: u32) -> Vec<u32> {
    let ranks = level.ranks(min_support);
    (0..stream.len())
        .into_par_iter()
        .with_min_len(1 << 14)
        .map(|at| {
            let right = stream.get(at + 1).copied().unwrap_or(0);
            pair_key(stream[at], right).and_then(|key| ranks.get(&key)).map_or(0, |&(rank, _)| rank + 1)
        })
        .collect()
}

/// Compact id and support of each n-gram that is kept.
pub type Ranks = HashMap<u64, (u32, u8), FixedState>;

impl Level {
    /// Key -> (rank among the n-grams with support >= `min_support`, support).
    pub fn ranks(&self, min_support: u32) -> Ranks {
        let kept = self.support.iter().filter(|&&s| u32::from(s) >= min_support).count();
        let mut ranks = Ranks::with_capacity_and_hasher(kept, FixedState::default());
        let pairs = self.keys.iter().zip(&self.support).filter(|&(_, &s)| u32::from(s) >= min_support);
        for (rank, (&key, &support)) in pairs.enumerate() {
            ranks.insert(key, (rank as u32, support));
        }
        ranks
    }
}

/// The tables, and lookups made on first use.
pub struct NgramIndex {
    pub max_n: usize,
    pub surface: Surface,
    pub min_support: u32,
    pub num_units: u64,
    pub num_documents: u64,
    /// Distinct words in byte order.
    pub words: Vec<String>,
    /// Individuals (units) that use each word: exact, not saturating.
    pub support: Vec<u32>,
    pub occurrences: Vec<u64>,
    /// `levels[n - 2]` holds the n-grams.
    pub levels: Vec<Level>,
    pub lookup: OnceLock<Lookup>,
}

/// Hash tables over the sorted tables.
pub struct Lookup {
    interner: Interner,
    levels: Vec<Ranks>,
}

impl Lookup {
    /// Id of a word in its index.
    #[inline]
    pub fn word(&self, surface: &str) -> Option<u32> {
        self.interner.find(surface)
    }

    /// Rank and support of the n-gram (n >= 2) made of two (n-1)-grams.
    #[inline]
    pub fn pair(&self, n: usize, left: u32, right: u32) -> Option<(u32, u8)> {
        self.levels[n - 2].get(&(u64::from(left) << 32 | u64::from(right))).copied()
    }
}

impl NgramIndex {
    pub fn lookup(&self) -> &Lookup {
        self.lookup.get_or_init(|| {
            let mut interner = Interner::new();
            for word in &self.words {
                interner.intern(word);
            }
            Lookup { interner, levels: self.levels.par_iter().map(|level| level.ranks(self.min_support)).collect() }
        })
    }

    pub fn num_occurrences(&self) -> u64 {
        self.occurrences.iter().sum()
    }

    /// Check tables that come from a file.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str| Err(Error::Artifact(format!("index tables: {what}")));
        if self.support.len() != self.words.len() || self.occurrences.len() != self.words.len() {
            return bad("the word columns differ in length");
        }
        if !self.words.is_sorted_by(|a, b| a < b) {
            return bad("the words are not in byte order, or not distinct");
        }
        if self.levels.len() + 1 != self.max_n {
            return bad("the number of levels is not max_n - 1");
        }
        if self.levels.iter().any(|level| !level.keys.is_sorted_by(|a, b| a < b)) {
            return bad("a level is not sorted, or not distinct");
        }
        Ok(())
    }

    /// The index of the union of two sets of documents that share no unit: supports add up, saturating.
    ///
    /// Only unpruned tables (`min_support` 1) can be added: a pruned one has forgotten counts that a sum needs.
    pub fn merge(&self, other: &Self) -> Result<Self> {
        if self.min_support != 1 || other.min_support != 1 {
            return Err(Error::Policy("merge: both indexes must be built with min_support = 1".into()));
        }
        if self.max_n != other.max_n || self.surface != other.surface {
            return Err(Error::Policy("merge: the indexes differ in max_n or surface".into()));
        }
        let mut words: Vec<&String> = self.words.iter().chain(&other.words).collect();
        words.par_sort_unstable();
        words.dedup();
        let mut support = vec![0u32; words.len()];
        let mut occurrences = vec![0u64; words.len()];
        let mut remaps = Vec::new();
        for part in [self, other] {
            let mut remap = Vec::with_capacity(part.words.len());
            for (id, word) in part.words.iter().enumerate() {
                let new = words.partition_point(|&known| known < word);
                support[new] = support[new].saturating_add(part.support[id]);
                occurrences[new] += part.occurrences[id];
                remap.push(new as u32);
            }
            remaps.push(remap);
        }
        let mut levels = Vec::new();
        for n in 0..self.levels.len() {
            let mut entries: Vec<(u64, u8)> = Vec::new();
            for (part, remap) in [self, other].into_iter().zip(&remaps) {
                let level = &part.levels[n];
                entries.extend(level.keys.iter().zip(&level.support).map(|(&key, &count)| {
                    let (left, right) = (remap[(key >> 32) as usize], remap[key as u32 as usize]);
                    (u64::from(left) << 32 | u64::from(right), count)
                }));
            }
            entries.par_sort_unstable();
            let mut level = Level::default();
            for (key, count) in entries {
                if level.keys.last() == Some(&key) {
                    if let Some(last) = level.support.last_mut() {
                        *last = last.saturating_add(count);
                    }
                } else {
                    level.keys.push(key);
                    level.support.push(count);
                }
            }
            // Ids of the next level are ranks in this one.
            let next = [self, other].into_iter().zip(&remaps).map(|(part, remap)| {
                let rank = |&key: &u64| {
                    let (left, right) = (remap[(key >> 32) as usize], remap[key as u32 as usize]);
                    let key = u64::from(left) << 32 | u64::from(right);
                    level.keys.partition_point(|&known| known < key) as u32
                };
                part.levels[n].keys.iter().map(rank).collect()
            });
            remaps = next.collect();
            levels.push(level);
        }
        Ok(Self {
            max_n: self.max_n,
            surface: self.surface,
            min_support: 1,
            num_units: self.num_units + other.num_units,
            num_documents: self.num_documents + other.num_documents,
            words: words.into_iter().cloned().collect(),
            support,
            occurrences,
            levels,
            lookup: OnceLock::new(),
        })
    }
}
