//! Text: from a column of strings to words, pieces and spans.
//!
//! Everything here is a function of one text. It knows no corpus, no individual and no file.

pub mod byte_features;
pub mod characters;
pub mod classes;
pub mod escapes;
pub mod fold;
pub mod hl7;
pub mod html;
pub mod languages;
pub mod layout;
pub mod pieces;
pub mod plain_spans;
pub mod spans;
pub mod surface;
pub mod texts;
pub mod words;
