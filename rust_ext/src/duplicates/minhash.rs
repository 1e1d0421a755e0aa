//! Near duplicates: documents whose sets of word shingles have a Jaccard similarity of at least the threshold.
//!
//! MinHash finds candidates, which are then compared by their whole sets. So every reported pair is true. A pair is missed by
//! chance only: at the threshold with a probability of less than 1 - `RECALL`, above it with far less. A document that shares
//! a band with no other document is never read again. Short notes made from one template share bands without end and are no near
//! duplicates: where many documents share a band, only those are compared that have a rare shingle in common (`prefixes`).

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;

use crate::duplicates::copies::Documents;
use crate::duplicates::prefixes::Prefixes;
use crate::error::{Error, Result};
use crate::storage::key::mix;

/// Chance that a pair exactly at the threshold becomes a candidate.
const RECALL: f64 = 0.995;
const NUM_HASHES: usize = 128;
/// The most documents that share a band and are all compared with each other.
const MAX_RUN: usize = 32;
/// No copy.
pub const NONE: u32 = u32::MAX;

pub struct Near {
    /// The first document of the cluster: what is linked by near duplicates, of whomever.
    pub cluster: Vec<u32>,
    /// The first kept document of the same owner that this one is a near duplicate of, or `NONE`: then it is kept.
    pub copy_of: Vec<u32>,
}

/// Clusters, and who repeats an earlier document of its owner. `first_equal` is of the same documents.
pub fn near_duplicates(
    documents: &Documents,
    first_equal: &[u32],
    owners: &[u32],
    threshold: f64,
    shingle: usize,
) -> Result<Near> {
    if !(threshold > 0.0 && threshold <= 1.0) {
        return Err(Error::Policy(format!("threshold: expected above 0 and up to 1, got {threshold}")));
    }
    if shingle == 0 {
        return Err(Error::Policy("shingle: expected at least 1 word".into()));
    }
    documents.check(owners.len(), "owners")?;
    let bands = Bands::new(documents, first_equal, threshold, shingle);
    let (runs, crowded) = bands.runs();
    let sets = bands.sets(documents, &runs, &crowded, shingle);
    let prefixes = Prefixes::new(crowded.keys().map(|document| &*sets[document]), threshold);
    let mut clusters = UnionFind((0..documents.len() as u32).collect());
    for (document, &first) in first_equal.iter().enumerate() {
        clusters.unite(first, document as u32);
    }
    let similar = |a: u32, b: u32| similar(&sets[&a], &sets[&b], threshold);
    let alike = |a: u32, b: u32| bands.share_one(a, b) && similar(a, b);
    for run in &runs {
        clusters.unite_similar(run, similar);
    }
    for run in prefixes.runs(crowded.keys().map(|&document| (document, &*sets[&document]))) {
        clusters.unite_similar(&run, alike);
    }
    let copy_of = bands.copies(first_equal, owners, &sets, &crowded, &prefixes, alike);
    let cluster = (0..documents.len() as u32).map(|document| clusters.root(document)).collect();
    Ok(Near { cluster, copy_of })
}

/// Shingle sets, sorted, of the documents that have a candidate.
type Sets = HashMap<u32, Vec<u64>>;

/// The bands, as bits, that a document shares with more than `MAX_RUN` others; in order of the documents.
type Crowded = BTreeMap<u32, u128>;

/// One hash for each band of each distinct text that has a word.
struct Bands {
    num: usize,
    documents: Vec<u32>,
    hashes: Vec<u64>,
}

impl Bands {
    fn new(documents: &Documents, first_equal: &[u32], threshold: f64, shingle: usize) -> Self {
        let num_rows = rows_of_a_band(threshold);
        let num = NUM_HASHES / num_rows;
        let distinct = |&d: &u32| first_equal[d as usize] == d && !documents.words_of(d as usize).is_empty();
        let distinct: Vec<u32> = (0..documents.len() as u32).filter(distinct).collect();
        let multipliers: Vec<u64> = (0..2 * NUM_HASHES as u64).map(|number| mix(number + 1) | 1).collect();
        let mut hashes = vec![0; distinct.len() * num];
        hashes.par_chunks_mut(num).zip(&distinct).for_each_init(Vec::new, |set, (hashes, &document)| {
            shingles(documents.words_of(document as usize), shingle, set);
            let mut least = [u32::MAX; NUM_HASHES];
            for &shingle in set.iter() {
                for (least, factors) in least.iter_mut().zip(multipliers.chunks_exact(2)) {
                    *least = (*least).min((shingle.wrapping_mul(factors[0]).wrapping_add(factors[1]) >> 32) as u32);
                }
            }
            for (hash, rows) in hashes.iter_mut().zip(least.chunks_exact(num_rows)) {
                *hash = rows.iter().fold(0, |hash, &row| mix(hash ^ u64::from(row)));
            }
        });
        Self { num, documents: distinct, hashes }
    }

    /// Documents that share a band, in order, up to `MAX_RUN` of them; and those that share one with more.
    fn runs(&self) -> (Vec<Vec<u32>>, Crowded) {
        let runs_of = |band: usize| {
            let hash = |at: usize| self.hashes[at * self.num + band];
            let mut order: Vec<(u64, u32)> =
                self.documents.iter().enumerate().map(|(at, &document)| (hash(at), document)).collect();
            order.sort_unstable();
            let runs = order.chunk_by(|a, b| a.0 == b.0).filter(|run| run.len() > 1);
            runs.map(|run| run.iter().map(|entry| entry.1).collect()).collect::<Vec<Vec<u32>>>()
        };
        let of_bands: Vec<_> = (0..self.num).into_par_iter().map(runs_of).collect();
        let (mut runs, mut crowded) = (Vec::new(), Crowded::new());
        for (band, of_band) in of_bands.into_iter().enumerate() {
            let (few, many): (Vec<_>, Vec<_>) = of_band.into_iter().partition(|run| run.len() <= MAX_RUN);
            runs.extend(few);
            for document in many.into_iter().flatten() {
                *crowded.entry(document).or_default() |= 1 << band;
            }
        }
        runs.par_sort_unstable();
        runs.dedup();
        (runs, crowded)
    }

    /// Hashes of a document that has a word.
    fn of(&self, document: u32) -> &[u64] {
        let at = self.documents.binary_search(&document).unwrap_or_default();
        &self.hashes[at * self.num..(at + 1) * self.num]
    }

    fn share_one(&self, a: u32, b: u32) -> bool {
        self.of(a).iter().zip(self.of(b)).any(|(a, b)| a == b)
    }

    fn sets(&self, documents: &Documents, runs: &[Vec<u32>], crowded: &Crowded, shingle: usize) -> Sets {
        let mut wanted: Vec<u32> = runs.iter().flatten().chain(crowded.keys()).copied().collect();
        wanted.par_sort_unstable();
        wanted.dedup();
        let set_of = |&document: &u32| {
            let mut set = Vec::new();
            shingles(documents.words_of(document as usize), shingle, &mut set);
            (document, set)
        };
        wanted.par_iter().map(set_of).collect()
    }

    /// In order of the documents: a copy of an earlier one of its owner that is no copy itself, or `NONE`.
    fn copies(
        &self,
        first_equal: &[u32],
        owners: &[u32],
        sets: &Sets,
        crowded: &Crowded,
        prefixes: &Prefixes,
        alike: impl Fn(u32, u32) -> bool,
    ) -> Vec<u32> {
        let mut copy_of = vec![NONE; owners.len()];
        // The first document of an owner with a text, and what the owner keeps by band, and by rare shingle where many share one.
        let mut texts: HashMap<(u32, u32), u32> = HashMap::new();
        let mut kept: HashMap<(u32, Key), Vec<u32>> = HashMap::new();
        for (document, (&owner, &text)) in owners.iter().zip(first_equal).enumerate() {
            let document = document as u32;
            let first = *texts.entry((owner, text)).or_insert(document);
            if first != document {
                // The one it equals may be a copy itself.
                copy_of[document as usize] =
                    if copy_of[first as usize] == NONE { first } else { copy_of[first as usize] };
                continue;
            }
            let Some(set) = sets.get(&text) else { continue };
            let many = crowded.get(&text).copied().unwrap_or(0);
            let bands = self.of(text).iter().enumerate().filter(|&(band, _)| many >> band & 1 == 0);
            let mut keys: Vec<_> = bands.map(|(band, &hash)| (owner, Key::Band(band as u32, hash))).collect();
            if many != 0 {
                keys.extend(prefixes.of(set).into_iter().map(|shingle| (owner, Key::Shingle(shingle))));
            }
            let mut candidates: Vec<u32> = keys.iter().filter_map(|key| kept.get(key)).flatten().copied().collect();
            candidates.sort_unstable();
            candidates.dedup();
            let near = |&&earlier: &&u32| alike(first_equal[earlier as usize], text);
            match candidates.iter().find(near) {
                Some(&earlier) => copy_of[document as usize] = earlier,
                None => keys.into_iter().for_each(|key| kept.entry(key).or_default().push(document)),
            }
        }
        copy_of
    }
}

/// What documents that are compared share.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Band(u32, u64),
    Shingle(u64),
}

/// The most rows a band can have so that a pair at the threshold is found with the chance `RECALL`.
fn rows_of_a_band(threshold: f64) -> usize {
    let found = |rows: &usize| {
        let missed = (1.0 - threshold.powi(*rows as i32)).powi((NUM_HASHES / rows) as i32);
        1.0 - missed >= RECALL
    };
    (1..=32).rev().find(found).unwrap_or(1)
}

/// Hashes of all runs of so many words, sorted, each once; of all words where they are fewer.
fn shingles(words: &[u64], size: usize, set: &mut Vec<u64>) {
    set.clear();
    let hash = |words: &[u64]| words.iter().fold(0, |hash: u64, &word| mix(hash.rotate_left(5) ^ word));
    if !words.is_empty() {
        set.extend(words.windows(size.min(words.len())).map(hash));
    }
    set.sort_unstable();
    set.dedup();
}

/// Whether |a ∩ b| / |a ∪ b| is at least the threshold.
fn similar(a: &[u64], b: &[u64], threshold: f64) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    if (short.len() as f64) < threshold * long.len() as f64 {
        return false;
    }
    // So many in one set alone are too many.
    let least = threshold / (1.0 + threshold) * (a.len() + b.len()) as f64;
    let mut spare = (a.len() + b.len()) as i64 - 2 * (least * (1.0 - 1e-9)) as i64;
    let (mut i, mut j, mut both) = (0, 0, 0usize);
    while i < a.len() && j < b.len() && spare >= 0 {
        both += usize::from(a[i] == b[j]);
        spare -= i64::from(a[i] != b[j]);
        (i, j) = (i + usize::from(a[i] <= b[j]), j + usize::from(b[j] <= a[i]));
    }
    both as f64 >= threshold * (a.len() + b.len() - both) as f64
}

/// Sets whose root is their least member.
struct UnionFind(Vec<u32>);

impl UnionFind {
    fn root(&mut self, mut member: u32) -> u32 {
        while self.0[member as usize] != member {
            let above = self.0[self.0[member as usize] as usize];
            self.0[member as usize] = above;
            member = above;
        }
        member
    }

    fn unite(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b) as usize] = a.min(b);
    }

    /// Unite all that are alike. What is in one set already is not compared: a thousand notes made from one template cost
    /// a thousand comparisons, where they are alike, and not half a million.
    fn unite_similar(&mut self, members: &[u32], alike: impl Fn(u32, u32) -> bool) {
        let mut sets: Vec<Vec<u32>> = Vec::new();
        for &later in members {
            let mut own: Option<usize> = None;
            let mut at = 0;
            while at < sets.len() {
                let first = sets[at][0];
                if self.root(first) != self.root(later) && sets[at].iter().any(|&earlier| alike(earlier, later)) {
                    self.unite(first, later);
                }
                match own {
                    _ if self.root(first) != self.root(later) => at += 1,
                    None => {
                        own = Some(at);
                        at += 1;
                    }
                    Some(own) => {
                        let mut joined = sets.swap_remove(at);
                        sets[own].append(&mut joined);
                    }
                }
            }
            match own {
                Some(own) => sets[own].push(later),
                None => sets.push(vec![later]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_find_pairs_at_the_threshold() {
        for (threshold, rows) in [(1.0, 32), (0.8, 6), (0.5, 3), (0.01, 1)] {
            assert_eq!(rows_of_a_band(threshold), rows, "{threshold}");
        }
    }

    #[test]
    fn similarity_of_hand_worked_sets() {
        assert!(similar(&[1, 2, 3, 4], &[1, 2, 3, 4, 5], 0.8));
        assert!(!similar(&[1, 2, 3, 4], &[1, 2, 3, 4, 5], 0.81));
        assert!(!similar(&[1, 2], &[3, 4], 0.1));
        assert!(similar(&[7], &[7], 1.0));
    }
}
