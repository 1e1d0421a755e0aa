//! Pairs: from two (n-1)-grams to the rank of the n-gram they make, for the n-grams that are used by k units or more.
//!
//! A table with open addressing that reads one line of memory for most keys. Keys are mixed by a function that loses nothing, and the
//! upper bits of the result say in which line a key belongs. So a slot need not hold the key: the lower bits tell it from all others
//! that belong to the same line, and how many lines away from it the entry lies is stored too. With the rank that makes a slot of eight
//! bytes, where ids are small enough (`Size::layout`); else a slot holds the key.
//!
//! What a look-up reads can be fetched ahead ([`Pairs::seek`]). The slots of a line are compared at once, without a branch that a
//! processor would have to guess; with AVX2 where it has it.

use crate::storage::buffer::{Buffer, prefetch};
use crate::text::classes::InstructionSet;

/// Ranks of n-grams, by the numbers of the two (n-1)-grams that each is made of.
pub struct Pairs {
    slots: Slots,
    /// Places where keys belong: lines of a narrow table, slots of a wide one.
    num_homes: u64,
    /// Bits of the number of an (n-1)-gram.
    id_bits: u32,
    /// n-grams with the support that gives them a rank, so far, and how many more there may be.
    num_ranked: u32,
    left: Size,
}

/// Zero is a free slot. What is found is rank + 1.
enum Slots {
    /// Lower bits of the mixed key, lines between it and where it belongs, what is found.
    Narrow(Buffer<Line>, Layout),
    /// The key, then what is found.
    Wide(Buffer<[u64; 2]>),
}

/// What is read from memory at once.
type Line = [u64; 8];

#[derive(Clone, Copy)]
struct Layout {
    low_bits: u32,
    /// Of what is found.
    found_bits: u32,
}

/// What a table is to hold.
#[derive(Clone, Copy, Default)]
pub struct Size {
    /// n-grams that it holds, and n-grams that have a rank.
    pub num_held: usize,
    pub num_ranked: usize,
    /// (n-1)-grams that have a number, whether an n-gram of the level names them or not: any of them may be asked for.
    pub num_ids: usize,
}

/// The least support of n-grams that have a rank, and of those that the table holds.
#[derive(Clone, Copy)]
pub struct Least {
    pub of_ranked: u32,
    pub of_held: u32,
}

/// A look-up under way.
#[derive(Clone, Copy, Default)]
pub struct Seek {
    home: usize,
    tag: u64,
}

/// A tag that no entry has, at whatever distance: ids that are known have at most 31 bits where another is not, and a narrow tag is
/// short by the bits of a rank.
const NO_TAG: u64 = u64::MAX - (1 << DISTANCE_BITS);
/// N-grams that are fetched, then added.
const AHEAD: usize = 32;
/// Bits of the lines between an entry and where it belongs: with a third of the slots free none is known to need more.
const DISTANCE_BITS: u32 = 7;
/// Lines in which an entry may lie.
const REACH: usize = 1 << DISTANCE_BITS;

impl Size {
    fn id_bits(self) -> u32 {
        (usize::BITS - self.num_ids.saturating_sub(1).leading_zeros()).clamp(1, u32::BITS)
    }

    /// Slots, of which a third stays free.
    fn num_slots(self) -> usize {
        self.num_held + self.num_held / 2 + 1
    }

    /// Lines where keys belong, without those behind them.
    fn num_lines(self) -> usize {
        self.num_slots().div_ceil(size_of::<Line>() / size_of::<u64>())
    }

    /// Memory of the table.
    pub fn num_bytes(self) -> u64 {
        match self.layout() {
            Some(_) => (size_of::<Line>() * (self.num_lines() + REACH)) as u64,
            None => 16 * self.num_slots() as u64,
        }
    }

    /// How a slot of eight bytes is laid out; None where one is too small.
    fn layout(self) -> Option<Layout> {
        let key_bits = 2 * self.id_bits();
        // Of keys that belong in one line the lowest of so many bits differ: they follow each other.
        let low_bits = (key_bits + 1).saturating_sub(self.num_lines().ilog2()).min(key_bits);
        let found_bits = usize::BITS - self.num_ranked.leading_zeros();
        (low_bits + DISTANCE_BITS + found_bits <= u64::BITS).then_some(Layout { low_bits, found_bits })
    }
}

impl Pairs {
    /// A table with slots of eight bytes; None where ids are too large for it.
    pub fn narrow(size: Size) -> Option<Self> {
        let lines = Buffer::table(size.num_lines() + REACH);
        Some(Self::new(size, size.num_lines(), Slots::Narrow(lines, size.layout()?)))
    }

    pub fn wide(size: Size) -> Self {
        Self::new(size, size.num_slots(), Slots::Wide(Buffer::table(size.num_slots())))
    }

    fn new(size: Size, num_homes: usize, slots: Slots) -> Self {
        Self { slots, num_homes: num_homes as u64, id_bits: size.id_bits(), num_ranked: 0, left: size }
    }

    /// Add n-grams (`left << 32 | right`, ascending, from call to call too) with their supports. Returns whether all that are to be
    /// held found a place; a wide table has one for each, and no table for more than its size says.
    pub fn extend(&mut self, keys: &[u64], support: &[u32], least: Least) -> bool {
        let mut ranked = keys.iter().zip(support).filter(|pair| *pair.1 >= least.of_ranked);
        loop {
            let mut taken = [(Seek::default(), 0u64); AHEAD];
            let (mut num_taken, mut num_seen) = (0, 0);
            for (&key, &support) in ranked.by_ref().take(AHEAD) {
                let is_held = support >= least.of_held;
                if self.left.num_ranked == 0 || is_held && self.left.num_held == 0 {
                    return false;
                }
                self.left.num_ranked -= 1;
                self.left.num_held -= usize::from(is_held);
                num_seen += 1;
                self.num_ranked += 1;
                if is_held {
                    taken[num_taken] = (self.seek((key >> 32) as u32, key as u32), self.num_ranked.into());
                    num_taken += 1;
                }
            }
            if !taken[..num_taken].iter().all(|&(seek, found)| self.insert(seek, found)) {
                return false;
            }
            if num_seen < AHEAD {
                return true;
            }
        }
    }

    fn insert(&mut self, Seek { home, tag }: Seek, found: u64) -> bool {
        match &mut self.slots {
            Slots::Narrow(lines, layout) => {
                let mut near = lines[home..home + REACH].iter_mut().zip(tag..);
                let free = near.find_map(|(line, tag)| Some((line.iter_mut().find(|slot| **slot == 0)?, tag)));
                let Some((slot, tag)) = free else {
                    return false;
                };
                *slot = tag << layout.found_bits | found;
            }
            Slots::Wide(slots) => {
                let mut place = home;
                while slots[place][1] != 0 {
                    place = next(place, slots.len());
                }
                slots[place] = [tag, found];
            }
        }
        true
    }

    /// Begin to look for an n-gram, whose slot is in the cache soon. One of numbers that no (n-1)-gram has is not found.
    #[inline(always)]
    pub fn seek(&self, left: u32, right: u32) -> Seek {
        let key_bits = 2 * self.id_bits;
        let is_known = u64::from(left | right) >> self.id_bits == 0;
        let key = u64::from(left) << self.id_bits | u64::from(right);
        // One to one: a shift by half of the bits can be undone, and so can an odd factor.
        let mixed = (key ^ (key >> self.id_bits)).wrapping_mul(0x9e37_79b9_7f4a_7c15) << (u64::BITS - key_bits);
        let home = ((u128::from(mixed) * u128::from(self.num_homes)) >> 64) as usize;
        let tag = match &self.slots {
            Slots::Narrow(lines, layout) => {
                prefetch(&lines[home]);
                let low = mixed >> (u64::BITS - key_bits) & ((1u128 << layout.low_bits) - 1) as u64;
                low << DISTANCE_BITS
            }
            Slots::Wide(slots) => {
                prefetch(&slots[home]);
                key
            }
        };
        Seek { home, tag: if is_known { tag } else { NO_TAG } }
    }

    /// Of each n-gram that is looked for its rank + 1; or 0 where the table has it not.
    pub fn find(&self, seeks: &[Seek], found: &mut [u64]) {
        self.find_with(seeks, found, InstructionSet::detect());
    }

    fn find_with(&self, seeks: &[Seek], found: &mut [u64], set: InstructionSet) {
        match (&self.slots, set) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the function asks for a processor with AVX2, and only `detect` makes this value, after asking it.
            (Slots::Narrow(lines, layout), InstructionSet::Avx2) => unsafe {
                find_with_avx2(lines, layout.found_bits, seeks, found);
            },
            (Slots::Narrow(lines, layout), _) => find_in_lines(lines, layout.found_bits, seeks, found),
            (Slots::Wide(slots), _) => {
                seeks.iter().zip(found).for_each(|(&seek, found)| *found = find_in_slots(slots, seek));
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn find_with_avx2(lines: &[Line], found_bits: u32, seeks: &[Seek], found: &mut [u64]) {
    find_in_lines(lines, found_bits, seeks, found);
}

#[inline(always)]
fn find_in_lines(lines: &[Line], found_bits: u32, seeks: &[Seek], found: &mut [u64]) {
    let mask = (1u64 << found_bits) - 1;
    for (&Seek { home, tag }, found) in seeks.iter().zip(found) {
        *found = 0;
        for (line, tag) in lines[home..home + REACH].iter().zip(tag..) {
            let (mut entry, mut is_full) = (0, true);
            for &slot in line {
                // Zero, and so no entry, where a free slot has the tag.
                entry |= if slot >> found_bits == tag { slot } else { 0 };
                is_full &= slot != 0;
            }
            if entry != 0 || !is_full {
                *found = entry & mask;
                break;
            }
        }
    }
}

fn find_in_slots(slots: &[[u64; 2]], Seek { home, tag }: Seek) -> u64 {
    let mut place = home;
    loop {
        match slots[place] {
            [_, 0] => return 0,
            [key, found] if key == tag => return found,
            _ => place = next(place, slots.len()),
        }
    }
}

#[inline(always)]
pub fn next(place: usize, num_slots: usize) -> usize {
    if place + 1 == num_slots { 0 } else { place + 1 }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn check(mut pairs: Pairs, keys: &[u64], support: &[u32], least: Least) {
        let half = keys.len() / 2;
        assert!(pairs.extend(&keys[..half], &support[..half], least));
        assert!(pairs.extend(&keys[half..], &support[half..], least));
        let find = |key: u64| {
            let seeks = [pairs.seek((key >> 32) as u32, key as u32)];
            let found = [InstructionSet::Table, InstructionSet::detect()].map(|set| {
                let mut found = [7];
                pairs.find_with(&seeks, &mut found, set);
                found[0]
            });
            assert_eq!(found[0], found[1]);
            found[0].checked_sub(1).map(|rank| rank as u32)
        };
        let ranked = || keys.iter().zip(support).filter(|pair| *pair.1 >= least.of_ranked);
        let held: HashMap<u64, u32> = (0..)
            .zip(ranked())
            .filter(|(_, pair)| *pair.1 >= least.of_held)
            .map(|(rank, (&key, _))| (key, rank))
            .collect();
        for &key in keys {
            assert_eq!(find(key), held.get(&key).copied());
            // Also ids that no key names, and some beyond those that the table is for.
            let beyond = [1, 2, 1 << 7, 1 << 20, 1 << 31].map(|more| [key + (more << 32), key ^ more]);
            for other in [key ^ 1, key ^ (1 << 32), key.rotate_left(32)].into_iter().chain(beyond.concat()) {
                assert_eq!(find(other), held.get(&other).copied());
            }
        }
    }

    fn size_of(keys: &[u64], support: &[u32], least: Least) -> Size {
        let num_with = |least: u32| support.iter().filter(|&&support| support >= least).count();
        let last_id = keys.iter().map(|key| ((key >> 32) as u32).max(*key as u32)).max().unwrap_or(0);
        Size { num_held: num_with(least.of_held), num_ranked: num_with(least.of_ranked), num_ids: last_id as usize + 1 }
    }

    #[test]
    fn pairs_are_found_with_their_rank_and_no_others() {
        for num in [0u64, 1, 2, 5, 31, 32, 33, 1000, 40_000] {
            for step in [1, 3, 1 << 10, 90_000] {
                // Few right halves: many keys belong near each other.
                let mut keys: Vec<u64> = (0..num).map(|i| ((i / 7 * step) << 32) | ((i * i) % 101)).collect();
                keys.retain(|key| key >> 32 <= u64::from(u32::MAX));
                keys.sort_unstable();
                keys.dedup();
                let support: Vec<u32> = (0..keys.len() as u32).map(|number| number % 400 + 1).collect();
                for least in [(1, 1), (2, 2), (2, 5), (1, 255)] {
                    let least = Least { of_ranked: least.0, of_held: least.1 };
                    let size = size_of(&keys, &support, least);
                    check(Pairs::wide(size), &keys, &support, least);
                    if let Some(narrow) = Pairs::narrow(size) {
                        check(narrow, &keys, &support, least);
                    }
                }
            }
        }
    }

    #[test]
    fn slots_are_narrow_while_ids_are_small() {
        let of = |num_ids, num| Size { num_held: num, num_ranked: num, num_ids }.layout().is_some();
        assert!(of(1, 1) && of(1 << 24, 1 << 25) && of(1 << 25, 1 << 26));
        assert!(!of(u32::MAX as usize, 1 << 20));
        // Two ids of 26 bits and a rank of 27 still fit, whatever share of them is held.
        let few = Size { num_held: 10, num_ranked: 1 << 26, num_ids: 1 << 26 };
        assert!(few.layout().is_none() && Pairs::narrow(few).is_none());
    }

    #[test]
    fn a_narrow_table_without_a_place_says_so() {
        let num = 40_000u32;
        let keys: Vec<u64> = (0..num).map(|i| u64::from(i) << 32 | 7).collect();
        let support = vec![1; keys.len()];
        let least = Least { of_ranked: 1, of_held: 1 };
        // Room for far fewer than come.
        let few = Size { num_held: 10, num_ranked: keys.len(), num_ids: keys.len() };
        assert!(!Pairs::narrow(few).unwrap().extend(&keys, &support, least));
        assert!(!Pairs::wide(few).extend(&keys, &support, least));
        let mut pairs = Pairs::narrow(few).unwrap();
        pairs.left.num_held = keys.len(); // more than there is room for
        assert!(!pairs.extend(&keys, &support, least));
    }
}
