//! Places: free stretches of files, to be used again.
//!
//! Best fit: the shortest place that is long enough. The rest of a longer place stays free, and free neighbours become one place.
//! Lengths are those of packed pages in blocks, a few dozen different ones at most, so exact fits are common.

use std::collections::{BTreeMap, BTreeSet};

/// Both tables hold the same places, no two of which overlap or touch within a file.
#[derive(Default)]
pub struct Places {
    /// Length, start and file, to find the best fit. The start comes before the file, so that of equally long places those near
    /// the beginnings come first, of all files alike.
    by_length: BTreeSet<(u64, u64, usize)>,
    /// File and start to length, to find neighbours.
    by_start: BTreeMap<(usize, u64), u64>,
    /// The sum of the lengths.
    num_bytes: u64,
}

impl Places {
    pub fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    /// Add a place that is not empty, and no part of which is there.
    pub fn add(&mut self, file: usize, mut start: u64, mut length: u64) {
        let before = self.by_start.range(..(file, start)).next_back().map(|(&place, &length)| (place, length));
        if let Some(((_, first), old)) = before.filter(|&((of, first), old)| of == file && first + old == start) {
            self.remove(file, first, old);
            (start, length) = (first, length + old);
        }
        if let Some(&old) = self.by_start.get(&(file, start + length)) {
            self.remove(file, start + length, old);
            length += old;
        }
        self.insert(file, start, length);
    }

    /// File and start of so many bytes, from the shortest place that has them.
    pub fn take(&mut self, length: u64) -> Option<(usize, u64)> {
        let &(found, start, file) = self.by_length.range((length, 0, 0)..).next()?;
        self.remove(file, start, found);
        if found > length {
            self.insert(file, start + length, found - length);
        }
        Some((file, start))
    }

    /// File, start and length of each.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        self.by_start.iter().map(|(&(file, start), &length)| (file, start, length))
    }

    fn insert(&mut self, file: usize, start: u64, length: u64) {
        self.by_length.insert((length, start, file));
        self.by_start.insert((file, start), length);
        self.num_bytes += length;
    }

    fn remove(&mut self, file: usize, start: u64, length: u64) {
        self.by_length.remove(&(length, start, file));
        self.by_start.remove(&(file, start));
        self.num_bytes -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::packing::tests::draws;

    const FILES: usize = 3;
    const LEN: usize = 64;

    /// Length, start and file of the stretches that are free.
    fn stretches(is_free: &[[bool; LEN]; FILES]) -> Vec<(u64, u64, usize)> {
        let mut found = Vec::new();
        for (file, free) in is_free.iter().enumerate() {
            let mut start = 0;
            for same in free.chunk_by(|a, b| a == b) {
                if same[0] {
                    found.push((same.len() as u64, start, file));
                }
                start += same.len() as u64;
            }
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn places_are_the_stretches_of_a_map_of_bytes() {
        let mut places = Places::default();
        let mut is_free = [[false; LEN]; FILES];
        let mut used: Vec<(usize, u64, u64)> = Vec::new();
        let mut draw = draws(3);
        for file in 0..FILES {
            for start in (0..LEN as u64).step_by(4) {
                used.push((file, start, 4));
            }
        }
        for _ in 0..20_000 {
            let length = 1 + draw() % 9;
            if draw().is_multiple_of(2) && !used.is_empty() {
                let (file, start, length) = used.swap_remove(draw() as usize % used.len());
                is_free[file][start as usize..][..length as usize].fill(true);
                places.add(file, start, length);
            } else {
                let expected = stretches(&is_free).into_iter().find(|place| place.0 >= length);
                let found = places.take(length);
                assert_eq!(found, expected.map(|(_, start, file)| (file, start)));
                if let Some((file, start)) = found {
                    is_free[file][start as usize..][..length as usize].fill(false);
                    used.push((file, start, length));
                }
            }
            let expected = stretches(&is_free);
            assert_eq!(places.num_bytes(), expected.iter().map(|place| place.0).sum::<u64>());
            assert!(places.by_length.iter().copied().eq(expected));
            assert!(places.iter().all(|(file, start, length)| places.by_length.contains(&(length, start, file))));
            assert_eq!(places.by_start.len(), places.by_length.len());
        }
    }
}
