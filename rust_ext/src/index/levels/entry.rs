//! Entry: a pair of one position, as a partition holds it.
//!
//! One is written and read for each position of the text, so it is 4 bytes wide wherever a key of 31 bits will do (`plan`).
//!
//! For example: in DESIGN.md `cough and` has the key 11. As the first entry of its unit it is 11 * 2 + 1 = 23, and as a later
//! one 22.

use crate::storage::packing::Number;

/// An entry of a partition: a key, and whether it is the first of its unit there.
///
/// The mark is the lowest bit. As the highest bit it would make the numbers of every page as wide as the type, and packing
/// (`storage::packing`) would save nothing on disk.
///
/// Tables sort by the key, hence `Ord`. It goes through the pages of a store, hence `Number`.
pub(super) trait Entry: Number + Ord {
    /// Keys are below `1 << KEY_BITS`: one bit is the mark's.
    const KEY_BITS: u32;
    /// Nothing checks the key here, as this runs for each position. A key that is too wide would lose its highest bits, and two
    /// pairs would become one with a higher support: too little would be protected. `Plan` sees to it that all fit.
    fn new(key: u64, first: bool) -> Self;
    /// 1 for the first of a unit, else 0; and the key, still in the narrow type, in which tables hold it.
    fn split(self) -> (u32, Self);
    /// A key that `split` gave, as a number.
    fn key(self) -> u64;
}

impl Entry for u32 {
    const KEY_BITS: u32 = 31;
    #[inline(always)]
    fn new(key: u64, first: bool) -> Self {
        (key as u32) << 1 | u32::from(first)
    }
    #[inline(always)]
    fn split(self) -> (u32, Self) {
        (self & 1, self >> 1)
    }
    #[inline(always)]
    fn key(self) -> u64 {
        u64::from(self)
    }
}

impl Entry for u64 {
    /// Always enough: a bin spans at most 2^17 left ids, each with fewer than 2^32 right ones, which is 2^49 keys. So a plan
    /// that finds no narrow ranges finds wide ones.
    const KEY_BITS: u32 = 63;
    #[inline(always)]
    fn new(key: u64, first: bool) -> Self {
        key << 1 | u64::from(first)
    }
    #[inline(always)]
    fn split(self) -> (u32, Self) {
        ((self & 1) as u32, self >> 1)
    }
    #[inline(always)]
    fn key(self) -> u64 {
        self
    }
}
