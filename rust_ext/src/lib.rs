//! Compiled core of Reticent: everything that touches strings, and nothing that knows Python outside `py`.
//!
//! One folder a subject, each of which can be tested with `cargo test` without an interpreter. `text` and `storage` are the
//! floor; `index`, `detect`, `rules`, `duplicates` and `scrub` stand on it, `tokenize` on `index` too; `synth` stands alone;
//! `py` holds all of PyO3. At the root is what belongs to no folder: files (`parquet`, `csv_check`, `json_depth`), ids of
//! individuals (`ids`, `identity`), the guard's index (`verbatim`), the words of languages (`word_lists`), and `error`, `panic`, `pool` and `allocator`, which all use.
//!
//! Modules are private, as Python alone uses the core: so the compiler names what nothing calls any more.

mod allocator;
mod csv_check;
mod detect;
mod duplicates;
mod error;
mod identity;
mod ids;
mod index;
mod json_depth;
mod panic;
mod parquet;
mod pool;
mod py;
mod rules;
mod scrub;
mod storage;
mod synth;
mod text;
mod tokenize;
mod verbatim;
mod word_lists;
