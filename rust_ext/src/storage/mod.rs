//! Storage: where counting keeps its numbers and strings, in memory and on disk.
//!
//! Nothing here knows what is stored: no word, no support, no individual. `key`, `key_table`, `strings`, `intern` and `memo` hold
//! short strings; `buffer` is memory of the system; `spool`, `spill`, `places` and `packing` are sequences that go to disk. DESIGN.md
//! follows a word and a page.

pub mod bits;
pub mod buffer;
pub mod intern;
pub mod key;
pub mod key_table;
pub mod memo;
pub mod packing;
pub mod places;
pub mod spill;
pub mod spool;
pub mod strings;
