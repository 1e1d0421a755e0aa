//! Reader: a spool that is read once, from the front.
//!
//! At any time one page is in memory for it. A page that was read is given back before the next one is needed, so a pass that
//! reads one spool and writes another needs little more memory than the larger of the two.

use std::marker::PhantomData;
use std::sync::Arc;

use super::store::{AHEAD, Block, Page, Store, numbers_of, numbers_of_mut};
use crate::error::{Error, Result};
use crate::storage::packing::Number;

/// A spool that is read once.
pub struct Reader<T: Number> {
    pub(super) store: Arc<Store>,
    /// Pages to come, the next one last, so that taking it is a `pop`; and how many numbers each holds.
    pub(super) pages: Vec<(Page, usize)>,
    /// The page at hand, of which `at` numbers of `len` have been read. After an error, and at the end, `at == len`.
    pub(super) block: Option<Block>,
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) kind: PhantomData<T>,
}

impl<T: Number> Reader<T> {
    /// The next number, or None at the end.
    #[inline(always)]
    pub fn take(&mut self) -> Result<Option<T>> {
        if self.at == self.len && !self.turn_page()? {
            return Ok(None);
        }
        let Some(block) = &self.block else { return Ok(None) };
        // SAFETY: `at < len` by the test above, or by `turn_page`, which returns true only where `len > 0`; and `len` is at
        // most the numbers of the page, since it counts those that a spool wrote to it.
        let number = unsafe { *numbers_of(block).get_unchecked(self.at) };
        self.at += 1;
        Ok(Some(number))
    }

    /// The remaining numbers of this page, or else the next page, without a copy. None at the end.
    pub fn next_page(&mut self) -> Result<Option<&[T]>> {
        if self.at == self.len && !self.turn_page()? {
            return Ok(None);
        }
        let at = std::mem::replace(&mut self.at, self.len);
        Ok(self.block.as_ref().map(|block| &numbers_of(block)[at..self.len]))
    }

    /// Append the next `len` numbers to `out`, or all that remain.
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

    #[cold]
    fn turn_page(&mut self) -> Result<bool> {
        let Some((page, len)) = self.pages.pop() else {
            if let Some(block) = self.block.take() {
                self.store.give_back(block);
            }
            (self.at, self.len) = (0, 0);
            return Ok(false);
        };
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
                let mut block = match self.block.take().or_else(|| self.store.take(true)) {
                    Some(block) => block,
                    None => return Err(Error::Artifact("no page of memory left".into())),
                };
                if let Err(error) = self.store.read(&place, 0, &mut numbers_of_mut::<T>(&mut block)[..len]) {
                    self.store.give_back(block);
                    self.pages.push((Page::Disk(place), len));
                    return Err(error);
                }
                self.store.give_up(Page::Disk(place));
                self.block = Some(block);
            }
            Page::Gone => return Err(Error::Artifact("a page of a spool was used up".into())),
        }
        (self.at, self.len) = (0, len);
        Ok(len > 0)
    }
}

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
