//! Compiled core of Reticent: everything that touches strings, and nothing that knows Python outside `py`.
//!
//! One folder a subject, each of which can be tested with `cargo test` without an interpreter. `text` and `storage` are the
//! floor; `index`, `detect`, `rules`, `duplicates` and `scrub` stand on it, `tokenize` on `index` too; `synth` stands alone;
//! `py` holds all of PyO3. At the root is what belongs to no folder: files (`parquet`, `csv_check`, `json_depth`), ids of
//! individuals (`ids`, `identity`), the guard's index (`verbatim`), and `error`, `panic`, `pool` and `allocator`, which all use.

pub mod allocator;
pub mod csv_check;
pub mod detect;
pub mod duplicates;
pub mod error;
pub mod identity;
pub mod ids;
pub mod index;
pub mod json_depth;
pub mod panic;
pub mod parquet;
pub mod pool;
pub mod py;
pub mod rules;
pub mod scrub;
pub mod storage;
pub mod synth;
pub mod text;
pub mod tokenize;
pub mod verbatim;
