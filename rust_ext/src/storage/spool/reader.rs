//! Reader: a spool that is read once, from the front.
//!
//! At any time one page is in memory for it. A page that was read is given back before the next one is needed, so a pass that
//! reads one spool and writes another needs little more memory than the larger of the two.
//!
//! A reader owns its pages, so it needs no lock and no count of readings. For pages on disk it uses one block of memory in
//! turn. That block may be one more than the limit of the store allows, as a pass that cannot read cannot end.
//!
//! After an error of the disk the page is still to come, and the call may be made again: no number is lost or read twice.

use std::marker::PhantomData;
use std::sync::Arc;

use super::store::{AHEAD, Block, Page, Store, numbers_of, numbers_of_mut};
use crate::error::{Error, Result};
use crate::storage::packing::Number;

/// A spool that is read once.
pub struct Reader<T: Number> {
    /// Keeps the memory of `block` and of all pages to come alive, after the spool is gone.
    pub(super) store: Arc<Store>,
    /// Pages to come, the next one last, so that taking it is a `pop`; and how many numbers each holds.
    /// Only the last page of a spool may hold fewer than it has room for, but the number stands beside each: the
    /// reader need not know which one it has.
    pub(super) pages: Vec<(Page, usize)>,
    /// The page at hand, of which `at` numbers of `len` have been read. After an error, and at the end, `at == len`.
    /// None before the first page, after the last one, and after an error of the disk.
    pub(super) block: Option<Block>,
    pub(super) at: usize,
    /// Not more than a block has room for: `take` reads without a test of that.
    pub(super) len: usize,
    pub(super) kind: PhantomData<T>,
}

impl<T: Number> Reader<T> {
    /// The next number, or None at the end.
    /// After an error, and at the end, the same call may be made again.
    #[inline(always)]
    pub fn take(&mut self) -> Result<Option<T>> {
        if self.at == self.len && !self.turn_page()? {
            return Ok(None);
        }
        // There is a block wherever `at < len`. A test and no `unwrap`, as nothing outside tests may panic.
        let Some(block) = &self.block else { return Ok(None) };
        // SAFETY: `at < len` by the test above, or by `turn_page`, which returns true only where `len > 0`; and `len` is at
        // most the numbers of the page, since it counts those that a spool wrote to it.
        let number = unsafe { *numbers_of(block).get_unchecked(self.at) };
        self.at += 1;
        Ok(Some(number))
    }

    /// The remaining numbers of this page, or else the next page, without a copy. None at the end.
    ///
    /// The slice borrows the reader, so the page cannot be given back, or read over, while a caller looks at it: that
    /// happens with the next call.
    pub fn next_page(&mut self) -> Result<Option<&[T]>> {
        if self.at == self.len && !self.turn_page()? {
            return Ok(None);
        }
        // All of it counts as read from here on. A caller that stops in the middle of a page cannot come back to the
        // rest.
        let at = std::mem::replace(&mut self.at, self.len);
        Ok(self.block.as_ref().map(|block| &numbers_of(block)[at..self.len]))
    }

    /// Append the next `len` numbers to `out`, or all that remain.
    ///
    /// Fewer than `len` are no error: `usize::MAX` asks for all. After an error `out` holds the numbers up to it, and
    /// these are not read again.
    pub fn read(&mut self, mut len: usize, out: &mut Vec<T>) -> Result<()> {
        while len > 0 && (self.at < self.len || self.turn_page()?) {
            let Some(block) = &self.block else { break };
            let count = len.min(self.len - self.at);
            out.extend_from_slice(&numbers_of(block)[self.at..self.at + count]);
            self.at += count;
            len -= count;
        }
        Ok(())
    }

    /// Go to the next page; false at the end. Called only where `at == len`: the page at hand has nothing left.
    ///
    /// The one page in memory is exchanged, not added to: `give_back` or the reuse of the block comes with each step.
    #[cold]
    fn turn_page(&mut self) -> Result<bool> {
        let Some((page, len)) = self.pages.pop() else {
            if let Some(block) = self.block.take() {
                self.store.give_back(block);
            }
            // The last block goes back at once and not with the reader: others may need it while this one still
            // lives. Both at 0, so a call after the end comes here again, and finds the end again.
            (self.at, self.len) = (0, 0);
            return Ok(false);
        };
        // The page at hand has been popped, so the last of `pages` is one later, and this one `AHEAD` later. Pages
        // before it were asked for by earlier turns. For a page in memory it does nothing.
        if let Some((next, _)) = self.pages.iter().nth_back(AHEAD - 1) {
            self.store.fetch(next);
        }
        match page {
            Page::Memory(block) => {
                if let Some(used) = self.block.replace(block) {
                    self.store.give_back(used);
                }
            }
            Page::Disk(place) => {
                // The block that was read is read over: a spool on disk of any length is read through one block.
                // `take(true)` is for the first page, and for the one after an error.
                let mut block = match self.block.take().or_else(|| self.store.take(true)) {
                    Some(block) => block,
                    None => return Err(Error::Artifact("no page of memory left".into())),
                };
                if let Err(error) = self.store.read(&place, 0, &mut numbers_of_mut::<T>(&mut block)[..len]) {
                    // `at == len` holds as before, so the next call turns to this page again.
                    self.store.give_back(block);
                    self.pages.push((Page::Disk(place), len));
                    return Err(error);
                }
                // In this order: once it is free, another thread may write to the place. A pass that writes while it
                // reads so uses the disk that it has just read.
                self.store.give_up(Page::Disk(place));
                self.block = Some(block);
            }
            // A spool some of whose pages `Spool::read` has used up is not for a reader. Numbers would be missing
            // without a trace.
            Page::Gone => return Err(Error::Artifact("a page of a spool was used up".into())),
        }
        (self.at, self.len) = (0, len);
        // Always true: a spool opens a page for a number that is at hand. Said by a test, as `take` relies on it.
        Ok(len > 0)
    }
}

/// A reader that is dropped early, after an error elsewhere, gives back the pages that it has not read.
impl<T: Number> Drop for Reader<T> {
    fn drop(&mut self) {
        for (page, _) in self.pages.drain(..) {
            self.store.give_up(page);
        }
        if let Some(block) = self.block.take() {
            self.store.give_back(block);
        }
    }
}
