//! Detect: direct identifiers that are looked up, in the records of individuals and in lists of names.
//!
//! Identifiers that are known by their form alone are found by `crate::rules`.

pub mod bearers;
pub mod blacklist;
pub mod codes;
pub mod common;
pub mod context;
pub mod counts;
pub mod dates;
pub mod few;
pub mod firms;
pub mod gazetteer;
pub mod lines;
pub mod listed;
pub mod names;
pub mod own_line;
pub mod places;
pub mod records;
pub mod running;
pub mod running_words;
pub mod runs;
pub mod sequences;
pub mod surfaces;
pub mod together;
pub mod typed_small;
pub mod written;
