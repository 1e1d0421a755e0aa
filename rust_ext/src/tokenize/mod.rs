//! Tokenize: texts to the ids of a `tokenizer.json`, aligned with words by offsets.
//!
//! `tokens` does it for a corpus; `pretokens`, `patterns` and `subwords` are its fast paths, which equal the tokenizers library token
//! for token; `charsmap` and `tokenizer_check` guard against files that move or multiply characters. DESIGN.md follows one document.

pub mod charsmap;
pub mod packed;
pub mod patterns;
pub mod planes;
pub mod pretokens;
pub mod read_words;
pub mod subwords;
pub mod tokenizer_check;
pub mod tokens;
pub mod whole;
