//! Spool: a sequence that grows in pages, in memory up to a limit and on disk beyond it.
//!
//! All sequences of the index builder are spools: the ids of words in the order in which they were read, the entries of each
//! partition, the ranks that replace them. A spool is written at its end and read in order (documents: at random, by range,
//! but nearly in order), so a page that does not fit into memory costs one write and one read.
//!
//! **Why not a `Vec`.** A growing `Vec` is in memory twice while it moves, and there are thousands of these sequences, whose
//! lengths are not known before. Pages waste half a page for each, and a page that was read can be used by the next spool.
//! **Why not a memory-mapped file.** The system would decide what stays in memory, and the process could not hold a limit.
//!
//! A spool holds one *open* page, which it fills, and *sealed* pages. When the open page is full, the store is asked for
//! another one. If its limit allows that, the full page stays in memory; else it is written to disk, and its memory is the next
//! open page. So a spool always has a page to write to, and the limit of a store is passed by the open pages alone, whose
//! number the builder plans for (`index::limit`).
//!
//! The limit is checked once for each page, and not for each number: `push` is in the innermost loops of the builder, and
//! its usual path is a comparison, a write and an addition.
//!
//! Example: a store with room for 2 pages, and two spools. Each has its first page, open. When the first spool has
//! filled its page, no third page is allowed: the page goes to disk, and the spool fills the same memory again. When
//! the second spool is read to its end, its page goes back, and the first one keeps its next full page in memory.
//!
//! Pages of one store have one size in memory, so that any free one will do. On disk they are packed (`spill`).

mod reader;
mod store;
#[cfg(test)]
pub mod tests;

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

pub use reader::Reader;
pub use store::Store;
use store::{AHEAD, Block, Page, numbers_of};

use crate::error::{Error, Result};
use crate::storage::packing::Number;

/// A page that is full, and how many of its numbers no last reading (`read` with `last`) has used up yet. Shares read the
/// documents of a page in stretches, at different times and by different threads, each number once: at 0 the page is
/// needed no more, and is given back.
struct Sealed {
    page: Page,
    /// Begins at the length of a page, as no page is sealed before it is full. If callers broke the rule and read a
    /// number last twice, the page would go too early, and a later reading would find `Gone`: an error, never other
    /// numbers.
    left: usize,
}

/// A growing sequence of numbers. Appending is for one owner; ranges can be read by many threads.
///
/// A lock of a page is held by one thread for one page at a time, and the locks of the store are taken under it,
/// never the other way round. So no two threads can wait for each other.
pub struct Spool<T: Number> {
    /// Keeps the memory of all pages alive.
    store: Arc<Store>,
    /// Number `i` is in page `i / page_len`. A lock for each page: threads that read different pages do not wait.
    /// The place follows from `i` alone, as every sealed page is full: with pages of 4 KiB, number 2,500 of a
    /// `Spool<u32>` is number 452 of page 2. Pages that were used up keep their entry, so that the places of the
    /// others stay as they are.
    sealed: Vec<Mutex<Sealed>>,
    /// None until the first number comes.
    open: Option<Block>,
    /// Start of the open page as numbers (null where there is none). A copy of what `open` says, so that `push` costs a
    /// comparison and a write.
    numbers: *mut T,
    /// How many numbers the open page holds, and how many it has room for: `filled <= room`, and both are 0 without a page.
    filled: usize,
    room: usize,
    /// Pages are words of 64 bits to the store; only the spool knows what it keeps in them.
    kind: PhantomData<T>,
}

// SAFETY: `numbers` points into the block `open`, which the spool holds alone and which stays where it is when the spool moves
// (it is memory of a slab). It is written through `&mut self` only, so it may go where the spool goes.
unsafe impl<T: Number> Send for Spool<T> {}
// SAFETY: `&self` reads sealed pages under their locks and the open page as a shared slice; nothing writes to either through
// `&self` but `evict`, which replaces a sealed page under its lock.
unsafe impl<T: Number> Sync for Spool<T> {}

impl<T: Number> Spool<T> {
    pub fn new(store: &Arc<Store>) -> Self {
        Self {
            store: store.clone(),
            sealed: Vec::new(),
            open: None,
            numbers: std::ptr::null_mut(),
            filled: 0,
            room: 0,
            kind: PhantomData,
        }
    }

    /// A spool in a store of its own.
    pub fn from_slice(numbers: &[T]) -> Result<Self> {
        let mut spool = Self::new(&Store::in_memory());
        spool.extend(numbers)?;
        Ok(spool)
    }

    pub fn len(&self) -> usize {
        self.sealed.len() * self.page_len() + self.filled
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Without remainder: a page has a power of two of bytes, and so has a number (`Number`). Spools of one store
    /// have different ones where their numbers are of different width.
    fn page_len(&self) -> usize {
        self.store.page_bytes() / size_of::<T>()
    }

    /// Append a number. After an error it is not in the spool; those before it are.
    #[inline(always)]
    pub fn push(&mut self, number: T) -> Result<()> {
        if self.filled == self.room {
            self.turn_page()?;
        }
        // SAFETY: `numbers` is the start of the open page and `room` its length wherever `room > 0`; `turn_page` leaves
        // `filled < room` or an error, and then nothing is written.
        unsafe { *self.numbers.add(self.filled) = number };
        self.filled += 1;
        Ok(())
    }

    /// Append numbers, a page at a time. After an error (a full disk) those that fitted into the open page are in the
    /// spool: a caller notes the end of a document after this has succeeded, and never before.
    pub fn extend(&mut self, mut numbers: &[T]) -> Result<()> {
        while !numbers.is_empty() {
            if self.filled == self.room {
                self.turn_page()?;
            }
            let (now, later) = numbers.split_at(numbers.len().min(self.room - self.filled));
            // SAFETY: `now` has at most `room - filled` numbers, which the open page has room for. `now` borrows from elsewhere:
            // a borrow of the open page would need `&self`, and this is `&mut self`.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), self.numbers.add(self.filled), now.len()) };
            self.filled += now.len();
            numbers = later;
        }
        Ok(())
    }

    /// Seal the full page, in memory if the limit allows a next one, else on disk. Afterwards the open page is empty. After an
    /// error (a full disk) the spool is as it was, and the number that was to come is not in it.
    ///
    /// The pages that came first stay in memory, and those that are sealed while the limit is reached go to disk. To
    /// write an older one instead would gain nothing: all are still to be read.
    #[cold]
    fn turn_page(&mut self) -> Result<()> {
        let next = match self.open.take() {
            // The first page is given in any case: else a spool could not begin while others hold all pages. That is
            // why the limit is passed by open pages.
            None => self.store.take(true),
            Some(full) => {
                // Asked, and not awaited: no thread ever waits for a page that another one holds, so there is no
                // deadlock here.
                let next = self.store.take(false);
                let (page, next) = match next {
                    Some(next) => (Page::Memory(full), next),
                    None => match self.store.write::<T>(&full) {
                        Ok(place) => (Page::Disk(place), full),
                        Err(error) => {
                            // `filled == room` and `numbers` were not touched. So the next `push` comes here again,
                            // and drop gives the page back.
                            self.open = Some(full);
                            return Err(error);
                        }
                    },
                };
                self.sealed.push(Mutex::new(Sealed { page, left: self.page_len() }));
                Some(next)
            }
        };
        // No store says no to a page that is needed. An error all the same, as nothing outside tests may panic.
        let next = next.ok_or_else(|| Error::Artifact("no page of memory left".into()))?;
        self.numbers = next.start.as_ptr().cast();
        self.open = Some(next);
        (self.filled, self.room) = (0, self.page_len());
        Ok(())
    }

    /// Write full pages to disk until the store holds no more than it may. Through `&self`: others may hold the spool while room
    /// is made. Pages that were used up, or are on disk, stay as they are.
    ///
    /// The open page stays, as `numbers` points into it: a store that is to hold nothing still holds one page for
    /// each spool. After an error the page that could not be written is in memory as before, and readable.
    pub fn evict(&self) -> Result<()> {
        for sealed in &self.sealed {
            let mut sealed = sealed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Page::Memory(block) = &sealed.page {
                // Asked for each page: what other spools give back meanwhile counts too. Two threads may both see one
                // page too many and write one each; that costs a write, and no number.
                if !self.store.is_over() {
                    break;
                }
                let place = self.store.write::<T>(block)?;
                self.store.give_up(std::mem::replace(&mut sealed.page, Page::Disk(place)));
            }
        }
        Ok(())
    }

    /// Append the numbers `start..start + len` to `out`. With `last` no thread reads these numbers again, and a page all of whose
    /// numbers were so read is given back. (The open page stays: it counts no readings.)
    ///
    /// Threads may read at the same time, but for one page each waits for the one before it, also while that one
    /// reads the disk. After an error `out` may hold a part of the range, or zeros for it, and callers drop it.
    pub fn read(&self, start: usize, len: usize, out: &mut Vec<T>, last: bool) -> Result<()> {
        let page_len = self.page_len();
        let (mut at, end) = (start, start.saturating_add(len));
        // Tested before anything is read: `out` is as it was. An overflow of `start + len` is past the end too.
        if end > self.len() {
            return Err(Error::Artifact("past the end of a spool".into()));
        }
        while at < end {
            let (number, from) = (at / page_len, at % page_len);
            let count = (page_len - from).min(end - at);
            if let (0, Some(next)) = (from, self.sealed.get(number + AHEAD)) {
                // Who reads a page from its beginning will want the next ones, and reads them in small pieces. A walk
                // from front to back comes to number 0 of each page once, be it with a new document or within one, so
                // no page is asked for twice. The first `AHEAD` pages of a spool are not asked for, and are waited for.
                self.store.fetch(&next.lock().unwrap_or_else(PoisonError::into_inner).page);
            }
            match self.sealed.get(number) {
                Some(sealed) => {
                    let mut sealed = sealed.lock().unwrap_or_else(PoisonError::into_inner);
                    match &sealed.page {
                        Page::Memory(block) => out.extend_from_slice(&numbers_of(block)[from..from + count]),
                        Page::Disk(place) => {
                            let old = out.len();
                            out.resize(old + count, T::default());
                            self.store.read(place, from, &mut out[old..])?;
                        }
                        Page::Gone => return Err(Error::Artifact("a page of a spool was used up".into())),
                    }
                    if last {
                        sealed.left -= count;
                        if sealed.left == 0 {
                            self.store.give_up(std::mem::replace(&mut sealed.page, Page::Gone));
                        }
                    }
                }
                None => {
                    let open = self.open.as_ref().map_or(&[][..], numbers_of);
                    out.extend_from_slice(&open[from..from + count]);
                }
            }
            at += count;
        }
        Ok(())
    }

    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut all = Vec::with_capacity(self.len());
        self.read(0, self.len(), &mut all, false)?;
        Ok(all)
    }

    /// Read it once, from the front, giving its pages back on the way. Without locks: a reader has the pages alone.
    /// `self` by value says that no other thread holds the spool. What `read` with `last` has used up already is an
    /// error there.
    pub fn into_reader(mut self) -> Reader<T> {
        let mut pages: Vec<(Page, usize)> = std::mem::take(&mut self.sealed)
            .into_iter()
            .map(|sealed| sealed.into_inner().unwrap_or_else(PoisonError::into_inner))
            .map(|sealed| (sealed.page, self.page_len()))
            .collect();
        if let Some(open) = self.open.take() {
            pages.push((Page::Memory(open), self.filled));
        }
        // The next one last, as `Reader::pages` says.
        pages.reverse();
        Reader { store: self.store.clone(), pages, block: None, at: 0, len: 0, kind: PhantomData }
    }
}

/// Whatever ends a spool, its end or an error, its pages go back, in memory and on disk: a store has no other way to
/// learn that they are free.
impl<T: Number> Drop for Spool<T> {
    fn drop(&mut self) {
        for sealed in self.sealed.drain(..) {
            self.store.give_up(sealed.into_inner().unwrap_or_else(PoisonError::into_inner).page);
        }
        if let Some(open) = self.open.take() {
            self.store.give_back(open);
        }
    }
}
