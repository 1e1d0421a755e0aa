//! Limit: the memory of counting that cannot go to disk, whether it fits a limit, and the smallest limit that it fits.
//!
//! Pages go to disk. The vocabulary, the positions of documents and the tables of the partitions being counted stay in memory.
//! Their size is computed from the counts before the memory is used. So a limit is kept, or it is refused with the smallest limit
//! that is enough. That limit is an upper bound: a run with it is not refused for the same documents.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result};
use crate::index::levels::MAX_PARTITIONS;
use crate::storage::spool::Store;

/// How much memory to use, and where to write what does not fit.
#[derive(Clone)]
pub struct Limit {
    /// Bytes the builder may use beside what the process uses already.
    pub num_bytes: usize,
    pub folder: PathBuf,
    pub num_threads: usize,
    /// What the process uses already. None: what cannot be written to disk is taken, whatever the limit.
    pub used: Option<usize>,
}

/// The least that counting needs beside what it holds, and what of it a thread needs.
pub const LEAST_BYTES: usize = 32 << 20;
pub const LEAST_BYTES_PER_THREAD: usize = 8 << 20;
/// Where a document stands, in the order it came and in that of its unit.
pub const BYTES_PER_DOCUMENT: usize = 80;
/// What is known of a distinct pair while its partition is counted, at most: its slots in a table that grows, its counts, its
/// place in the order and what is handed on.
const BYTES_PER_PAIR: usize = 160;
/// The parts of what is left that open pages of partitions, and their tables, may take.
const PART_OF_PAGES: usize = 8;
const PART_OF_TABLES: usize = 2;
/// Pages of a closed dictionary that are open while it is merged.
const PAGES_PER_DICTIONARY: usize = 8;

/// What stays in memory once all documents have come.
#[derive(Clone, Copy, Default)]
pub struct Held {
    pub num_words: usize,
    pub bytes_of_words: usize,
    /// Documents whose words were written down.
    pub num_documents: usize,
    pub bytes_of_open_pages: usize,
    pub has_subset: bool,
}

impl Held {
    /// The most it takes at once.
    pub fn num_bytes(&self) -> usize {
        // Words, two counts of each, its number, and two counts of a share; for a subset its own words and counts beside.
        let (per_word, copies) = if self.has_subset { (52, 2) } else { (32, 1) };
        let bytes_of_documents = BYTES_PER_DOCUMENT * self.num_documents;
        per_word * self.num_words + copies * self.bytes_of_words + bytes_of_documents + self.bytes_of_open_pages
    }
}

/// What is counted when all documents have come.
#[derive(Clone, Copy)]
pub struct Pairs {
    /// At most so many, of one length; 0 where only words are counted.
    pub num: usize,
    /// At most so many distinct ones begin with one id.
    pub most_of_one: usize,
    pub num_shares: usize,
}

/// Bytes of the pages that are open at once for as many closed dictionaries.
pub fn bytes_of_open_pages(num_dictionaries: usize, store: &Store) -> usize {
    num_dictionaries * PAGES_PER_DICTIONARY * store.page_bytes()
}

impl Limit {
    /// What is left beside what is held.
    pub fn rest(&self, held: &Held) -> usize {
        self.used.map_or(self.num_bytes, |_| self.num_bytes.saturating_sub(held.num_bytes()))
    }

    /// Whether the least that counting needs is left.
    pub fn holds(&self, held: &Held) -> bool {
        self.used.is_none() || held.num_bytes() + least(self.num_threads) <= self.num_bytes
    }

    /// The error that names the least limit for so much. What the tables of pairs take is known once they are counted, so
    /// where there are any, it names the limit in which they fit in any case.
    pub fn refusal(&self, held: &Held, pairs: Pairs) -> Error {
        let used = self.used.unwrap_or_default();
        // What the process uses differs a little from run to run.
        let rounded = |bytes: usize| (bytes + bytes / 32).div_ceil(10_000_000) * 10;
        let (least, needed) = (least(self.num_threads), least_of_pairs(pairs, self.num_threads));
        let [least, sure] = [least, needed].map(|bytes| rounded(used + held.num_bytes() + bytes));
        let limit = (used + self.num_bytes) / 1_000_000;
        let advice = match () {
            () if least <= limit => format!("allow {sure}MB to be sure"),
            () if least < sure => format!("allow at least {least}MB, or {sure}MB to be sure"),
            () => format!("allow at least {least}MB"),
        };
        Error::Policy(format!(
            "memory limit of {limit}MB cannot be held: the process and its readers use {}MB, and to count {} distinct words \
             takes up to {}MB more that cannot be written to disk; {advice}",
            used.div_ceil(1_000_000),
            held.num_words,
            (held.num_bytes() + needed).div_ceil(1_000_000),
        ))
    }
}

fn least(num_threads: usize) -> usize {
    LEAST_BYTES.max(num_threads * LEAST_BYTES_PER_THREAD)
}

/// The least in which so many pairs can be counted.
fn least_of_pairs(pairs: Pairs, num_threads: usize) -> usize {
    let mut bytes = least(num_threads);
    while pairs.num > 0 && !pairs.fit(bytes, Store::LEAST_PAGE_BYTES, num_threads) {
        bytes += bytes / 16;
    }
    bytes
}

impl Pairs {
    /// Whether the tables of the partitions that are counted at once fit into their part, if all pairs are distinct.
    fn fit(&self, bytes: usize, page_bytes: usize, num_threads: usize) -> bool {
        let num_partitions = max_partitions(bytes, page_bytes, self.num_shares).min(MAX_PARTITIONS);
        let of_partition = self.num.div_ceil(num_partitions);
        // A partition is at most half as large again as it should be, but for one whose pairs begin alike.
        let of_threads = (of_partition + of_partition / 2) * num_threads;
        let most = of_threads.max(self.most_of_one + of_partition).min(self.num);
        most * BYTES_PER_PAIR <= bytes / PART_OF_TABLES
    }

    /// Bytes of the largest pages, no larger than these, with which partitions are many and small enough for their tables.
    pub fn page_bytes(&self, bytes: usize, at_most: usize, num_threads: usize) -> usize {
        let mut page_bytes = at_most;
        while page_bytes > Store::LEAST_PAGE_BYTES && !self.fit(bytes, page_bytes, num_threads) {
            page_bytes /= 2;
        }
        page_bytes
    }
}

/// How many partitions of each share may have an open page.
pub fn max_partitions(num_bytes: usize, page_bytes: usize, num_shares: usize) -> usize {
    (num_bytes / PART_OF_PAGES / page_bytes / num_shares.max(1)).max(1)
}

/// Room for the tables of all partitions that are counted at once.
pub struct Room {
    most: usize,
    taken: AtomicUsize,
    refusal: String,
}

impl Room {
    pub fn unlimited() -> Self {
        Self { most: usize::MAX, taken: AtomicUsize::new(0), refusal: String::new() }
    }

    /// A part of what is left; `refusal` says what to do where it is too little.
    pub fn within(rest: usize, refusal: &Error) -> Self {
        Self { most: rest / PART_OF_TABLES, taken: AtomicUsize::new(0), refusal: refusal.to_string() }
    }

    pub fn take(&self, num_bytes: usize) -> Result<()> {
        let taken = self.taken.fetch_add(num_bytes, Ordering::Relaxed) + num_bytes;
        if taken > self.most {
            self.give_back(num_bytes);
            return Err(Error::Policy(self.refusal.clone()));
        }
        Ok(())
    }

    pub fn give_back(&self, num_bytes: usize) {
        self.taken.fetch_sub(num_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Room {
    pub fn num_bytes_taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_for_pairs_grows_with_them_and_is_the_least_for_none() {
        let pairs = |num, most_of_one| Pairs { num, most_of_one, num_shares: 4 };
        assert_eq!(least_of_pairs(pairs(0, 0), 2), LEAST_BYTES);
        assert_eq!(least_of_pairs(pairs(1_000, 100), 2), LEAST_BYTES);
        assert_eq!(least_of_pairs(pairs(0, 0), 16), 16 * LEAST_BYTES_PER_THREAD);
        let found: Vec<usize> =
            [1, 10, 100].iter().map(|times| least_of_pairs(pairs(times * 10_000_000, 100_000), 2)).collect();
        assert!(found.is_sorted() && found[0] > LEAST_BYTES && found[2] < 20 * found[0], "{found:?}");
        assert!(least_of_pairs(pairs(100_000_000, 10_000_000), 2) > found[1] * 2);
        // Smaller pages are taken where larger ones would be too few.
        let (some, at_most) = (pairs(100_000_000, 100_000), 64 << 10);
        assert_eq!(some.page_bytes(found[1], at_most, 2), Store::LEAST_PAGE_BYTES);
        assert_eq!(some.page_bytes(10 * found[1], at_most, 2), at_most);
    }

    #[test]
    fn a_refusal_names_the_least_and_what_is_enough() {
        let limit = |num_bytes| Limit { num_bytes, folder: PathBuf::new(), num_threads: 2, used: Some(100_000_000) };
        let held = Held { num_words: 1_000_000, ..Held::default() };
        let pairs = Pairs { num: 100_000_000, most_of_one: 1_000, num_shares: 2 };
        let none = Pairs { num: 0, ..pairs };
        for (num_bytes, pairs, advice) in [
            (10_000_000, none, "; allow at least 180MB"),
            (10_000_000, pairs, "; allow at least 180MB, or 230MB to be sure"),
            (85_000_000, pairs, "; allow 230MB to be sure"),
        ] {
            let said = limit(num_bytes).refusal(&held, pairs).to_string();
            assert!(said.ends_with(advice), "{said}");
        }
    }

    #[test]
    fn room_is_refused_beyond_its_part_and_comes_back() {
        let room = Room::within(PART_OF_TABLES * 100, &Error::Policy("too little".into()));
        room.take(60).unwrap();
        assert!(room.take(41).is_err_and(|error| error.to_string() == "too little"));
        room.take(40).unwrap();
        room.give_back(100);
        room.take(100).unwrap();
    }
}
