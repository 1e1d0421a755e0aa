//! Compiled core of Reticent: everything that touches strings, and nothing that knows Python outside `py`.
//!
//! `text` borrows documents from Arrow; the other modules have one subject each and can be tested with `cargo test`
//! without an interpreter. `py` holds all of PyO3.

pub mod bearers;
pub mod blacklist;
pub mod buffer;
pub mod build;
pub mod characters;
pub mod classes;
pub mod codes;
pub mod common;
pub mod context;
pub mod copies;
pub mod dates;
pub mod dictionary;
pub mod error;
pub mod fold;
pub mod gazetteer;
pub mod identity;
pub mod ids;
pub mod index;
pub mod intern;
pub mod joined;
pub mod key;
pub mod levels;
pub mod lookup;
pub mod memo;
pub mod minhash;
pub mod names;
pub mod packing;
pub mod parquet;
pub mod passages;
pub mod pieces;
pub mod places;
pub mod pool;
pub mod pretokens;
pub mod protect;
pub mod py;
pub mod records;
pub mod rules;
pub mod scrub;
pub mod spans;
pub mod spill;
pub mod spool;
pub mod strings;
pub mod subset;
pub mod subwords;
pub mod surface;
pub mod surfaces;
pub mod synth;
pub mod text;
pub mod tokens;
pub mod update;
pub mod verbatim;
pub mod vocabulary;
pub mod words;
