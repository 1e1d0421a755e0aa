//! Duplicates: documents and passages that a corpus contains more than once.

pub mod copies;
pub mod minhash;
pub mod passages;
mod prefixes;
