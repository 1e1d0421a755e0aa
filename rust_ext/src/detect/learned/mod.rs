//! A learned tagger: a linear-chain conditional random field over hashed features of words, learned from marked documents.
//!
//! It reads the words of `text::words`, the very ones that supports are counted of, cut where a sign stands between two letters,
//! and gives each one label of `O`, `B-c`, `I-c` for 15 categories `c`; `I-c` follows `B-c` or `I-c` alone. `features` says what it sees of a word, `model` scores and decodes,
//! `train` learns. Nothing here depends on the number of threads.
//!
//! Kept libraries were looked at first. crfsuite (C, by python-crfsuite) learns well and served to choose the features; it takes
//! strings of features (a Python loop of some 0.1 MB/s before it), writes them into its model as they are, and knows no keys and
//! no individuals. crfs, its port to Rust, tags and learns from such strings too: 0.6 microseconds for one item of a few labels
//! by its own record, where 15 MB/s leave 0.8 for a whole word with its features. rucrf (that of vibrato) is for lattices of
//! morphological analysis. What is left after features, keys and the rule of k is the two hundred lines of `train` and `model`.
//!
//! **No word is in a tagger.** A feature is a 64-bit hash under a secret key, and is kept only where at least `k` individuals of
//! those who taught have it; a word that fewer have outside of marks needs 2k - 1. A word of fewer is read by its form alone.

// A lane is a number in several arrays at once.
#![allow(clippy::needless_range_loop)]

pub mod features;
pub mod model;
pub mod train;

#[cfg(test)]
mod tests;

/// `O`, and one lane a category.
pub const LANES: usize = 16;
/// Weights of a feature: of each lane, where a span begins (lane 0: no span) and where it goes on.
pub const WIDTH: usize = 2 * LANES;
