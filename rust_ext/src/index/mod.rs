//! Index: how many individuals use each word and each n-gram, and what follows from it for protection.
//!
//! DESIGN.md beside this file follows ten words through every table. `build` is the way in for documents, `update` for
//! indexes, `protect` the way out; `ngram_index` is what lies between.

pub mod build;
pub mod counts;
#[cfg(test)]
mod design;
pub mod dictionary;
pub mod joined;
pub mod level_file;
pub mod level_table;
pub mod levels;
pub mod limit;
pub mod lookup;
pub mod ngram_index;
pub mod numbers;
pub mod pairs;
pub mod parts;
pub mod protect;
pub mod subset;
pub mod update;
pub mod vocabulary;
pub mod word_flags;
