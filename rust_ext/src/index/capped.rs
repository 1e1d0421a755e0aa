//! Capped supports: what an index says of the n-grams at each word of documents, four bits for each n >= 2.
//!
//! They are written where n-grams are looked up, and answer every k up to [`CAP`] in sequence: a look-up waits for memory, and these
//! lie one after the other. A support of `CAP` or more is `CAP`; of an n-gram that was not looked up, because a part of it has a
//! support under the k of that time, it is 0, which is as good for that k and larger ones. Those of n = 2 and 3 stand in the first
//! plane, of 4 and 5 in the second, and so on: the lower n in the lower bits of the byte of the word that the n-gram begins with.
//! Words have theirs by number.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::index::pairs::{CAP_BITS, Pairs};
use crate::index::protect::{Policy, Settings, apply};

/// The largest support that is told from those above it.
pub const CAP: u32 = (1 << CAP_BITS) - 1;

/// Planes of the n-grams of 2 to `n` words.
pub fn num_planes(n: usize) -> usize {
    n / 2
}

/// The plane of the n-grams of `n` words, n >= 2.
pub(super) fn plane_of(n: usize) -> usize {
    n / 2 - 1
}

fn shift_of(n: usize) -> u32 {
    if n.is_multiple_of(2) { 0 } else { CAP_BITS }
}

/// The support in what `Pairs::find` found, in its place in a byte of the plane.
#[inline(always)]
pub(super) fn capped(n: usize, found: u64) -> u8 {
    (found as u8 & CAP as u8) << shift_of(n)
}

/// The planes of some documents that count, one after the other.
#[derive(Clone)]
pub struct Planes<'a>(pub Vec<&'a [u8]>);

impl<'a> Planes<'a> {
    /// Check that they answer these settings for so many words.
    pub fn check(&self, settings: Settings, num_words: usize) -> Result<()> {
        let num_planes = num_planes(settings.n);
        let are_enough = num_planes == 0 || settings.k <= CAP && self.0.len() >= num_planes;
        if !are_enough || self.0.iter().any(|own| own.len() != num_words) {
            return Err(Error::Artifact(
                "capped supports do not fit their documents and settings; make them again".into(),
            ));
        }
        Ok(())
    }

    /// Those of the first words, which are taken away.
    pub fn split_off(&mut self, num_words: usize) -> Self {
        let split = self.0.iter_mut().map(|own| {
            let first;
            (first, *own) = own.split_at(num_words);
            first
        });
        Self(split.collect())
    }
}

/// Whether the table of n-grams has the supports of settings, and they are of use for another k.
pub fn are_found(pairs: &[Arc<Pairs>], settings: Settings) -> bool {
    let has_all = !pairs.is_empty() && pairs.iter().all(|pairs| pairs.cap_bits() == CAP_BITS);
    has_all && settings.k <= CAP && settings.max_word_support.is_none()
}

/// Bits of what is known of a word by its number: its support is k or more; it is rare enough to count in a longer n-gram.
pub(super) const KEPT: u8 = 1;
pub(super) const RARE: u8 = 2;

/// Finds where minimal identifying n-grams start, by capped supports; holds what lasts from document to document.
pub(super) struct Starts {
    settings: Settings,
    /// Of each word, whether the n-gram that starts there has a support of k or more: of the n before, and of this.
    shorter: Vec<u8>,
    own: Vec<u8>,
    /// Whether all words of the n-gram are rare.
    counts: Vec<u8>,
    rare: Vec<bool>,
}

impl Starts {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, shorter: Vec::new(), own: Vec::new(), counts: Vec::new(), rare: Vec::new() }
    }

    /// Find the starts of a document and flag its words (both are all zeros) as [`super::protect::Finder`] does.
    pub(super) fn flag(&mut self, words: &[u8], planes: &Planes<'_>, starts: &mut [u8], flags: &mut [u8]) {
        let Settings { k, n: max_n, policy, .. } = self.settings;
        let num_words = words.len();
        refill(&mut self.shorter, words.iter().map(|word| word & KEPT));
        refill(&mut self.counts, words.iter().map(|word| (word & RARE) / RARE));
        starts.iter_mut().zip(&self.shorter).for_each(|(start, kept)| *start = kept ^ 1);
        for n in 2..=max_n.min(num_words) {
            let (num_starts, shift) = (num_words - n + 1, shift_of(n));
            let plane = &planes.0[plane_of(n)][..num_starts];
            refill(&mut self.own, plane.iter().map(|both| u8::from(both >> shift & CAP as u8 >= k as u8)));
            for values in [&mut self.counts, &mut self.shorter] {
                for first in 0..num_starts {
                    values[first] &= values[first + 1];
                }
            }
            let parts = self.shorter.iter().zip(&self.counts).zip(&self.own);
            let places = starts[..num_starts].iter_mut().zip(parts);
            places.for_each(|(start, ((parts, counts), own))| *start |= (parts & counts & (own ^ 1)) << (n - 1));
            std::mem::swap(&mut self.shorter, &mut self.own);
        }
        match policy {
            Policy::Paper => refill(&mut self.rare, words.iter().map(|word| word & RARE != 0)),
            _ => self.rare.clear(),
        }
        // An interval of one word: every policy protects that word.
        apply(if max_n == 1 { Policy::All } else { policy }, max_n, starts, &self.rare, flags);
    }
}

fn refill<T>(values: &mut Vec<T>, with: impl Iterator<Item = T>) {
    values.clear();
    values.extend(with);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::protect::INDIRECT;

    #[test]
    fn starts_are_those_of_minimal_ngrams_of_rare_words() {
        let (mut state, max_n) = (3u64, 5);
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for num_words in [0, 1, 2, 4, 5, 40, 300] {
            let words: Vec<u8> =
                (0..num_words).map(|_| u8::from(draw(6) > 0) * KEPT + u8::from(draw(9) > 0) * RARE).collect();
            // Most supports are large: few n-grams have a part with a small one.
            let supports: Vec<Vec<u32>> =
                (2..=max_n).map(|_| (0..num_words).map(|_| 15 - (draw(40) as u32).min(15)).collect()).collect();
            let mut planes = vec![vec![0u8; num_words]; num_planes(max_n)];
            for (n, supports) in (2..).zip(&supports) {
                let plane = planes[plane_of(n)].iter_mut().zip(supports);
                plane.for_each(|(place, &support)| *place |= capped(n, support.into()));
            }
            for (k, n) in [(1, 1), (2, 2), (3, 3), (7, 4), (15, 5), (9, 5)] {
                let is_kept = |n: usize, i: usize| match n {
                    1 => words[i] & KEPT != 0,
                    n => supports[n - 2][i] >= k,
                };
                let expected: Vec<u8> = (0..num_words)
                    .map(|i| {
                        let counts = |n: usize| {
                            i + n <= num_words && (i..i + n).all(|i| n == 1 || words[i] & RARE != 0) && !is_kept(n, i)
                        };
                        let is_minimal = |n: usize| counts(n) && (n == 1 || is_kept(n - 1, i) && is_kept(n - 1, i + 1));
                        (1..=n).map(|n| u8::from(is_minimal(n)) << (n - 1)).sum()
                    })
                    .collect();
                let settings = Settings { k, n, policy: Policy::Last, max_word_support: Some(7) };
                let (mut starts, mut flags) = (vec![0; num_words], vec![0; num_words]);
                let given = Planes(planes.iter().map(|plane| &plane[..]).collect());
                given.check(settings, num_words).unwrap();
                Starts::new(settings).flag(&words, &given, &mut starts, &mut flags);
                assert_eq!(starts, expected);
                let is_last = |i: usize| (1..=n.min(i + 1)).any(|n| starts[i + 1 - n] >> (n - 1) & 1 == 1);
                assert!(flags.iter().enumerate().all(|(i, &flag)| flag == u8::from(is_last(i)) * INDIRECT));
            }
        }
    }

    #[test]
    fn planes_that_do_not_fit_are_refused() {
        let settings = |k, n| Settings { k, n, policy: Policy::All, max_word_support: None };
        let planes = Planes(vec![&[0, 0][..]]);
        assert!(planes.check(settings(CAP, 3), 2).is_ok());
        assert!(planes.check(settings(CAP + 1, 1), 2).is_ok()); // words have theirs by number
        for (settings, num_words) in [(settings(CAP + 1, 2), 2), (settings(2, 4), 2), (settings(2, 3), 3)] {
            assert!(planes.check(settings, num_words).is_err());
        }
    }
}
