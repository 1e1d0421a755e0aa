//! Duplicates: documents, and passages of documents, that a corpus holds more than once.

pub mod copies;
pub mod minhash;
pub mod passages;
