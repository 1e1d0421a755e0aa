//! Compiled core of Reticent: everything that touches strings, and nothing that knows Python outside `py`.
//!
//! `text` borrows documents from Arrow; the other modules have one subject each and can be tested with `cargo test`
//! without an interpreter. `py` holds all of PyO3.

pub mod error;
pub mod index;
pub mod intern;
pub mod pool;
pub mod protect;
pub mod py;
pub mod surface;
pub mod text;
pub mod words;
