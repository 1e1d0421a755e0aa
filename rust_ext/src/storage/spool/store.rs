//! Store: the memory and the files that the pages of many spools live in.
//!
//! A page moves between four states: *idle* (in `State::idle`), *held* by one spool or reader, *on disk*, and gone. The store counts
//! the held ones against its limit. Memory is taken from the system in slabs and never returned to the allocator before the
//! store is dropped; `release_idle` gives the memory behind idle pages back, and keeps their addresses.
//!
//! The lock on `State` is never held while the disk is read or written: for that a thread has its own block and place.

use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::storage::buffer::{Buffer, forget};
use crate::storage::packing::Number;
use crate::storage::spill::{Place, Spill};

/// A page of memory. It lives as long as its store, which the spool that holds it keeps alive, and has one holder: a block is
/// neither `Clone` nor `Copy`. Not a borrow of the slab, as it outlives every lock on the store.
pub(super) struct Block {
    pub(super) start: NonNull<u64>,
    /// Words of 64 bits: the length of a page of its store.
    len: usize,
}

// SAFETY: `Store::take` moves a block out of `idle`, and blocks are neither copied nor cloned, so the words of a block are
// reached through one value alone, which may move to another thread.
unsafe impl Send for Block {}
// SAFETY: `&Block` gives out shared slices of integers alone (`numbers_of`); to write takes `&mut Block`, or a `Spool` that
// holds the block and is itself borrowed mutably.
unsafe impl Sync for Block {}

/// Blocks are cut from slabs of this size.
/// A multiple of every size of a page that `page_bytes_of` gives: 512 blocks of 4 KiB, or 8 of 256 KiB, and nothing
/// left over.
const SLAB_BYTES: usize = 2 << 20;
/// While a page is read from the disk, the one so many pages later is asked for: enough that a disk has time to answer.
pub(super) const AHEAD: usize = 3;

/// Where the pages of many spools live.
pub struct Store {
    /// In words of 64 bits, so that a page is aligned for numbers of every width. The same for all pages, for good: a
    /// block that one spool gives back fits any other.
    page_words: usize,
    /// None: everything stays in memory. `in_memory` sets no limit, so no page is to be written.
    pub(super) spill: Option<Spill>,
    /// Never locked by who holds the lock of `spill`; that one is never taken under it.
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// All memory. Only ever grows, so that blocks stay valid.
    slabs: Vec<Buffer<u64>>,
    /// Blocks without a holder. Their words have no meaning, and the system may have taken them back.
    idle: Vec<Block>,
    /// Blocks with a holder.
    pub(super) num_pages: usize,
    /// Pages in memory before full ones go to disk. No bound of `num_pages`: the first page of each spool, and the page that a
    /// reader needs, are handed out in any case.
    max_pages: usize,
}

impl Store {
    /// A store that keeps everything in memory.
    pub fn in_memory() -> Arc<Self> {
        Arc::new(Self::new(16 << 10, usize::MAX, None))
    }

    /// A store that keeps about `max_bytes` in memory and the rest in nameless files of `folder`, packed where that would
    /// be more than twice as much: the system's cache has room for about that.
    ///
    /// Example: 512 MiB in memory are 4,096 pages of 128 KiB, and packing begins at 1 GiB on disk.
    pub fn limited(max_bytes: usize, folder: &Path) -> Result<Arc<Self>> {
        Self::with_pages(max_bytes, Self::page_bytes_of(max_bytes), folder)
    }

    /// The same with pages of these bytes, a power of two.
    pub fn with_pages(max_bytes: usize, page_bytes: usize, folder: &Path) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::new(page_bytes, max_bytes / page_bytes, Some(Spill::new(folder, 2 * max_bytes as u64)?))))
    }

    pub(super) fn new(page_bytes: usize, max_pages: usize, spill: Option<Spill>) -> Self {
        let state = State { max_pages, ..State::default() };
        Self { page_words: page_bytes / 8, spill, state: Mutex::new(state) }
    }

    /// A block of a disk, and on most machines a page of the system's memory: `spill` writes whole blocks, and
    /// `release_idle` gives back whole pages.
    pub const LEAST_PAGE_BYTES: usize = 4 << 10;

    /// Bytes of a page of a store that keeps so much in memory: about 4,096 pages, of 4 to 256 KiB. Smaller ones cost a system call
    /// for too few bytes; with larger ones the open pages of many spools would be most of the memory.
    ///
    /// A power of two, so that blocks fill slabs and numbers fill pages; rounded up, so there are 2,048 to 4,096
    /// pages in between.
    pub fn page_bytes_of(max_bytes: usize) -> usize {
        (max_bytes >> 12).next_power_of_two().clamp(Self::LEAST_PAGE_BYTES, 256 << 10)
    }

    /// Keep at most so much in memory from here on. That holds for pages to come; `Spool::evict` makes room at once.
    pub fn hold_at_most(&self, max_bytes: usize) {
        self.state().max_pages = max_bytes / self.page_bytes();
    }

    pub fn page_bytes(&self) -> usize {
        self.page_words * 8
    }

    /// The most bytes that were on disk at once.
    pub fn spilled_bytes(&self) -> u64 {
        self.spill.as_ref().map_or(0, Spill::num_bytes)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page, if the limit allows one more or `needed` says that it must.
    pub(super) fn take(&self, needed: bool) -> Option<Block> {
        let mut state = self.state();
        if !needed && state.num_pages >= state.max_pages {
            return None;
        }
        state.num_pages += 1;
        if state.idle.is_empty() {
            let mut slab = Buffer::new((SLAB_BYTES / 8).max(self.page_words));
            let blocks = slab.chunks_exact_mut(self.page_words);
            let blocks = blocks.map(|words| Block { len: words.len(), start: NonNull::from(words).cast() });
            state.idle.extend(blocks);
            // The list of slabs may move when it grows; the memory that a slab points to does not.
            state.slabs.push(slab);
        }
        state.idle.pop()
    }

    /// Whether it holds more than it may.
    pub(super) fn is_over(&self) -> bool {
        let state = self.state();
        state.num_pages > state.max_pages
    }

    /// Its numbers are not wiped; the next holder writes before it reads. It takes the block by value, so no thread can
    /// give it back twice.
    pub(super) fn give_back(&self, block: Block) {
        let mut state = self.state();
        state.num_pages -= 1;
        state.idle.push(block);
    }

    /// Give the memory and the disk of pages without a holder back to the system; they stay as addresses. A phase that is over
    /// leaves idle pages behind, and the next one may need the memory for tables instead.
    pub fn release_idle(&self) {
        self.spill.iter().for_each(Spill::release_free);
        let mut state = self.state();
        state.idle.sort_unstable_by_key(|block| block.start);
        for run in state.idle.chunk_by(|a, b| numbers_of::<u8>(a).as_ptr_range().end == b.start.as_ptr().cast()) {
            // SAFETY: the run is one stretch of one slab: its blocks touch, and two slabs never do, as each allocation has bytes
            // beside its values. The blocks are idle, so nothing borrows them, and the lock on the state keeps it so. What
            // they hold may go: a taken page is written before it is read, as `filled` and `len` begin at 0.
            unsafe { forget(run[0].start.as_ptr().cast(), run.len() * self.page_bytes()) };
        }
    }

    /// An error only for a store in memory that was told to hold less (`hold_at_most`): it has nowhere to write to.
    fn spill(&self) -> Result<&Spill> {
        self.spill.as_ref().ok_or_else(|| Error::Artifact("a spool without a file".into()))
    }

    /// The block stays with the caller, who uses it again: after a success as memory without a meaning, after an
    /// error as the full page that it still is.
    pub(super) fn write<T: Number>(&self, block: &Block) -> Result<Place> {
        Ok(self.spill()?.write(numbers_of::<T>(block))?)
    }

    pub(super) fn read<T: Number>(&self, place: &Place, from: usize, numbers: &mut [T]) -> Result<()> {
        Ok(self.spill()?.read(place, from, numbers)?)
    }

    /// Have a page in memory soon, if it is on disk; a hint.
    pub(super) fn fetch(&self, page: &Page) {
        if let (Page::Disk(place), Some(spill)) = (page, &self.spill) {
            spill.fetch(place);
        }
    }

    /// The page is not needed any more, wherever it is: its memory, or its place on disk, is for the next one.
    pub(super) fn give_up(&self, page: Page) {
        match (page, &self.spill) {
            (Page::Memory(block), _) => self.give_back(block),
            (Page::Disk(place), Some(spill)) => spill.free(place),
            // A store without files has made no place; a page that is gone was given back when it went.
            (Page::Disk(_), None) | (Page::Gone, _) => {}
        }
    }
}

#[inline(always)]
pub(super) fn numbers_of<T: Number>(block: &Block) -> &[T] {
    // SAFETY: a block is `len` words of a slab that its store keeps until the store is dropped, and the holder of the block
    // keeps the store. Words of a slab are always initialised (zero at first). The alignment of u64 is enough for every
    // `Number`, any bits are one, and `len * 8 / size_of::<T>()` numbers do not reach past the block.
    unsafe { std::slice::from_raw_parts(block.start.as_ptr().cast(), block.len * 8 / size_of::<T>()) }
}

pub(super) fn numbers_of_mut<T: Number>(block: &mut Block) -> &mut [T] {
    // SAFETY: as in `numbers_of`; and `&mut` to the only holder means that no other reference to the words is alive.
    unsafe { std::slice::from_raw_parts_mut(block.start.as_ptr().cast(), block.len * 8 / size_of::<T>()) }
}

/// Where the numbers of a full page are. `Gone`: they were used up.
pub(super) enum Page {
    Memory(Block),
    Disk(Place),
    Gone,
}
