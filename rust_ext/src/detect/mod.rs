//! Detect: direct identifiers that are looked up, in the records of individuals and in lists of names.
//!
//! Identifiers that are known by their form alone are found by `crate::rules`.

pub mod blacklist;
pub mod codes;
pub mod common;
pub mod context;
pub mod dates;
pub mod fused_pass;
pub mod gazetteer;
pub mod learned;
pub mod letter_case;
pub mod misread;
pub mod names;
pub mod no_names;
pub mod places;
pub mod records;
pub mod sequences;
pub mod surfaces;
