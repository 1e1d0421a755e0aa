//! Shared names: which names of a table of individuals are words of the language too, by who uses them without having them.
//!
//! How a corpus writes names says little: lower-cased dialogues write every name small. But a name is written by those who
//! have it, and now and then for a relative; a word of the language is written by everybody. So a name is a word where
//! at least as many individuals who do not have it write it in small letters as have it; and at least three, and one in
//! a thousand.
//!
//! Counting stops at that number, so memory is bounded by the names, and the answer does not depend on the order.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::detect::context::is_particle;
use crate::detect::sequences::Places;
use crate::storage::intern::Interner;
use crate::storage::key::Hashed;
use crate::text::pieces::View;
use crate::text::surface::Surface;
use crate::text::texts::Texts;

/// Fewer individuals may all have slipped, or know the same person.
const MIN_USERS: u32 = 3;
/// One individual in so many.
const FEW: u32 = 1000;

pub struct SharedNames {
    words: Interner,
    /// The short words: most words of a text are no name, and are told so from the cache.
    places: Places,
    /// (word, individual) of those who have it.
    pairs: HashSet<(u32, u64), FixedState>,
    num_bearers: Vec<u32>,
    individuals: HashSet<u64, FixedState>,
    /// (word, individual) of those who write it without having it, and how many they are, up to `enough`.
    users: Mutex<HashSet<(u32, u64), FixedState>>,
    num_users: Vec<AtomicU32>,
}

impl Default for SharedNames {
    fn default() -> Self {
        Self {
            words: Interner::new(),
            places: Places::for_pieces(0),
            pairs: HashSet::default(),
            num_bearers: Vec::new(),
            individuals: HashSet::default(),
            users: Mutex::default(),
            num_users: Vec::new(),
        }
    }
}

/// An individual's id as a number.
pub fn number_of(individual: &str) -> u64 {
    FixedState::default().hash_one(individual)
}

impl SharedNames {
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Add names, each of an individual.
    pub fn add(&mut self, individuals: &Texts, names: &Texts) {
        for row in 0..names.len() {
            let individual = number_of(individuals.get(row));
            self.individuals.insert(individual);
            let view = View::new(names.get(row), Surface::Fold);
            for piece in (0..view.len()).map(|number| view.piece(number)) {
                if piece.len() < 2 || is_particle(piece) {
                    continue;
                }
                let word = self.words.intern(piece);
                if word as usize == self.num_bearers.len() {
                    self.num_bearers.push(0);
                    self.num_users.push(AtomicU32::new(0));
                }
                self.num_bearers[word as usize] += u32::from(self.pairs.insert((word, individual)));
            }
        }
        self.places = Places::for_pieces(self.words.len());
        let words = (0..self.words.len() as u32).map(|word| self.words.word(word).as_bytes());
        words.filter_map(|word| Hashed::of(word, 0, word.len())).for_each(|key| self.places.set(key));
    }

    fn enough(&self, word: u32) -> u32 {
        self.num_bearers[word as usize].max(MIN_USERS).max(self.individuals.len() as u32 / FEW)
    }

    /// A word, with its key, stands in small letters in a document of an individual; what is announced as a name is not used as a word.
    #[inline]
    pub fn saw(&self, key: Option<Hashed>, word: &str, individual: u64, is_announced: impl FnOnce() -> bool) {
        if key.is_some_and(|key| !self.places.has(key)) {
            return;
        }
        let Some(word) = self.words.find(word) else { return };
        let num_users = &self.num_users[word as usize];
        // The number is only written under the lock; one that is read late costs a look into the table.
        if num_users.load(Ordering::Relaxed) >= self.enough(word)
            || self.pairs.contains(&(word, individual))
            || is_announced()
        {
            return;
        }
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if num_users.load(Ordering::Relaxed) < self.enough(word) && users.insert((word, individual)) {
            num_users.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether enough individuals write a folded word that is not their name.
    pub fn is_word(&self, word: &str) -> bool {
        self.words
            .find(word)
            .is_some_and(|word| self.num_users[word as usize].load(Ordering::Relaxed) >= self.enough(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_that_many_write_without_having_it() {
        let mut bearers = SharedNames::default();
        bearers.add(
            &Texts::of(&["a", "b", "c", "d", "e", "a"]),
            &Texts::of(&["Will", "Ann", "Ann", "Ann", "Ann", "Will de Roy"]),
        );
        let saw = |word: &str, by: &[&str]| {
            by.iter()
                .for_each(|one| bearers.saw(Hashed::of(word.as_bytes(), 0, word.len()), word, number_of(one), || false))
        };
        saw("will", &["a", "b", "b", "c"]); // its bearer does not count, and no individual twice
        saw("ann", &["a", "x", "y"]); // four have it
        assert!(!bearers.is_word("will") && !bearers.is_word("ann"));
        saw("will", &["z"]);
        saw("ann", &["z"]);
        assert!(bearers.is_word("will") && bearers.is_word("ann"));
        saw("de", &["u", "v", "w", "x"]);
        assert!(!bearers.is_word("de") && !bearers.is_word("unknown")); // particles are no individual's
    }
}
