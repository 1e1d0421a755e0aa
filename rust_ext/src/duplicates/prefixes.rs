//! Prefixes: the rarest shingles of a document, one of which it shares with each that is like it (Bayardo, Ma and Srikant 2007).
//!
//! Two sets with a Jaccard similarity of t have t of the shingles of either in common, rounded up. So whatever the order of all
//! shingles, the first that they share is among the |set| - ceil(t |set|) + 1 first of both. From the rarest on, these are the words
//! that a note has beside its template.

use rayon::prelude::*;

/// Shingles are counted by this many bits of their hashes at most, so that memory is bounded: a shingle that is taken for a more
/// frequent one costs comparisons and changes nothing.
const MAX_BITS: u32 = 24;

pub struct Prefixes {
    threshold: f64,
    shift: u32,
    counts: Vec<u32>,
}

impl Prefixes {
    /// Count the shingles of sets, whose hashes are good in all their bits.
    pub fn new<'a>(sets: impl Iterator<Item = &'a [u64]> + Clone, threshold: f64) -> Self {
        let num: usize = sets.clone().map(<[u64]>::len).sum();
        let bits = num.next_power_of_two().trailing_zeros().clamp(1, MAX_BITS);
        let mut own = Self { threshold, shift: 64 - bits, counts: vec![0; 1 << bits] };
        for &shingle in sets.flatten() {
            let count = &mut own.counts[(shingle >> own.shift) as usize];
            *count = count.saturating_add(1);
        }
        own
    }

    /// The prefix of a set, in no order.
    pub fn of(&self, set: &[u64]) -> Vec<u64> {
        let shared = (self.threshold * set.len() as f64 * (1.0 - 1e-9)).ceil() as usize;
        let num = set.len() - shared.min(set.len()) + 1;
        let mut prefix = set.to_vec();
        if num < prefix.len() {
            prefix.select_nth_unstable_by_key(num, |&shingle| (self.counts[(shingle >> self.shift) as usize], shingle));
            prefix.truncate(num);
        }
        prefix
    }

    /// Documents that have a shingle of their prefixes in common; of documents in order with their sets.
    pub fn runs<'a>(&self, sets: impl Iterator<Item = (u32, &'a [u64])>) -> Vec<Vec<u32>> {
        // Half of a hash will do: who is compared by mistake is not alike.
        let halves = |(document, set)| self.of(set).into_iter().map(move |shingle| (shingle as u32, document));
        let mut entries: Vec<(u32, u32)> = sets.flat_map(halves).collect();
        entries.par_sort_unstable();
        entries.dedup();
        let runs = entries.chunk_by(|a, b| a.0 == b.0).filter(|run| run.len() > 1);
        let mut runs: Vec<Vec<u32>> = runs.map(|run| run.iter().map(|entry| entry.1).collect()).collect();
        runs.par_sort_unstable();
        runs.dedup();
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_that_are_alike_share_a_shingle_of_their_prefixes() {
        let mut state = 7u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let sets: Vec<Vec<u64>> = (0..400)
            .map(|_| {
                let size = 1 + draw(9);
                let mut set: Vec<u64> = (0..size).map(|_| (1 + draw(12)).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
                set.sort_unstable();
                set.dedup();
                set
            })
            .collect();
        for threshold in [0.01, 0.5, 0.8, 1.0] {
            let prefixes = Prefixes::new(sets.iter().map(Vec::as_slice), threshold);
            let mut num_alike = 0;
            for (a, b) in sets.iter().flat_map(|a| sets.iter().map(move |b| (a, b))) {
                let both = a.iter().filter(|shingle| b.contains(shingle)).count();
                if both as f64 >= threshold * (a.len() + b.len() - both) as f64 {
                    num_alike += 1;
                    assert!(prefixes.of(a).iter().any(|shingle| prefixes.of(b).contains(shingle)), "{a:?} {b:?}");
                }
            }
            assert!(num_alike >= sets.len());
        }
    }

    #[test]
    fn notes_of_a_template_meet_in_no_run() {
        let note = |number: u64| {
            let words = (1..7).chain([100 + 2 * number, 101 + 2 * number]);
            let mut set: Vec<u64> = words.map(|word: u64| word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
            set.sort_unstable();
            set
        };
        let sets: Vec<Vec<u64>> = (0..50).map(note).collect();
        let prefixes = Prefixes::new(sets.iter().map(Vec::as_slice), 0.8);
        assert_eq!(prefixes.of(&sets[3]).len(), 2);
        assert!(prefixes.runs((0..).zip(sets.iter().map(Vec::as_slice))).is_empty());
    }
}
