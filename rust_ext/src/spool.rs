//! Spool: a sequence that grows in pages, in memory up to a limit and on disk beyond it.
//!
//! Everything the index builder writes down is a spool: the ids of words in the order they were read, the keys of each
//! partition, what became of them. All is written at the end and read in order (documents: at random, by range), so a
//! page that does not fit into memory costs one write and one read. Pages of one store have one size and are used again.
//!
//! The file is made in the folder given, readable by its owner alone, and loses its name at once: whatever ends the
//! process, the system gives its blocks back, and nobody finds it.

use std::fs::{File, OpenOptions};
use std::marker::PhantomData;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::buffer::Buffer;
use crate::error::{Error, Result};

/// Numbers a page can hold: any bit pattern is valid and 8 is a multiple of their alignment.
pub trait Number: Copy + Default + Send + Sync + 'static {}
impl Number for u8 {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for u64 {}

/// A page of memory. It lives as long as its store, which the spool that holds it keeps alive, and has one holder.
struct Block {
    start: NonNull<u64>,
    len: usize,
}

// SAFETY: a block has one holder at a time.
unsafe impl Send for Block {}
// SAFETY: it is written through `&mut` only.
unsafe impl Sync for Block {}

/// Blocks are cut from slabs of this size.
const SLAB_BYTES: usize = 2 << 20;

/// Where the pages of many spools live.
pub struct Store {
    page_words: usize,
    /// Pages in memory before full ones go to disk; the open page of each spool comes on top.
    max_pages: usize,
    folder: Option<PathBuf>,
    file: OnceLock<File>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    slabs: Vec<Buffer<u64>>,
    idle: Vec<Block>,
    /// Pages in use.
    num_pages: usize,
    free_places: Vec<u64>,
    end: u64,
}

impl Store {
    /// A store that keeps everything in memory.
    pub fn in_memory() -> Arc<Self> {
        Arc::new(Self::new(16 << 10, usize::MAX, None))
    }

    /// A store that keeps about `max_bytes` in memory and the rest in a nameless file of `folder`.
    pub fn limited(max_bytes: usize, folder: PathBuf) -> Arc<Self> {
        let page_bytes = (max_bytes >> 12).next_power_of_two().clamp(4 << 10, 256 << 10);
        Arc::new(Self::new(page_bytes, max_bytes / page_bytes, Some(folder)))
    }

    fn new(page_bytes: usize, max_pages: usize, folder: Option<PathBuf>) -> Self {
        Self { page_words: page_bytes / 8, max_pages, folder, file: OnceLock::new(), state: Mutex::default() }
    }

    pub fn page_bytes(&self) -> usize {
        self.page_words * 8
    }

    /// Bytes the file has come to hold.
    pub fn spilled_bytes(&self) -> u64 {
        self.state().end
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page, if the limit allows one more or `needed` says that it must.
    fn take(&self, needed: bool) -> Option<Block> {
        let mut state = self.state();
        if !needed && state.num_pages >= self.max_pages {
            return None;
        }
        state.num_pages += 1;
        if state.idle.is_empty() {
            let mut slab = Buffer::new((SLAB_BYTES / 8).max(self.page_words));
            let blocks = slab.chunks_exact_mut(self.page_words);
            let blocks = blocks.map(|words| Block { start: NonNull::from(&mut words[0]), len: words.len() });
            state.idle.extend(blocks);
            state.slabs.push(slab);
        }
        state.idle.pop()
    }

    fn give_back(&self, block: Block) {
        let mut state = self.state();
        state.num_pages -= 1;
        state.idle.push(block);
    }

    fn file(&self) -> Result<&File> {
        if self.file.get().is_none() {
            let folder = self.folder.as_ref().ok_or_else(|| Error::Artifact("a spool without a folder".into()))?;
            let path = folder.join(format!("spill-{}", std::process::id()));
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            std::fs::remove_file(&path)?;
            let _ = self.file.set(file);
        }
        self.file.get().ok_or_else(|| Error::Artifact("the file of a spool is gone".into()))
    }

    fn write(&self, block: &Block) -> Result<u64> {
        let place = {
            let mut state = self.state();
            self.file()?;
            state.free_places.pop().unwrap_or_else(|| {
                let place = state.end;
                state.end += self.page_bytes() as u64;
                place
            })
        };
        self.file()?.write_all_at(bytes_of(block), place)?;
        Ok(place)
    }

    fn read(&self, place: u64, offset: usize, bytes: &mut [u8]) -> Result<()> {
        Ok(self.file()?.read_exact_at(bytes, place + offset as u64)?)
    }

    fn free_place(&self, place: u64) {
        self.state().free_places.push(place);
    }
}

fn bytes_of(block: &Block) -> &[u8] {
    // SAFETY: the block's words, of which this is the holder.
    unsafe { std::slice::from_raw_parts(block.start.as_ptr().cast(), block.len * 8) }
}

fn bytes_of_block_mut(block: &mut Block) -> &mut [u8] {
    // SAFETY: as above, and borrowed mutably.
    unsafe { std::slice::from_raw_parts_mut(block.start.as_ptr().cast(), block.len * 8) }
}

fn bytes_of_mut<T: Number>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: any bytes are valid numbers (`Number`).
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

#[inline(always)]
fn numbers_of<T: Number>(block: &Block) -> &[T] {
    // SAFETY: u64 is aligned for every `Number`, and any bits are valid.
    unsafe { std::slice::from_raw_parts(block.start.as_ptr().cast(), block.len * 8 / size_of::<T>()) }
}

enum Page {
    Memory(Block),
    Disk(u64),
    Gone,
}

/// A page that is full, and how many of its numbers nobody has used up yet.
struct Sealed {
    page: Page,
    left: usize,
}

/// A growing sequence of numbers. Appending is for one owner; ranges can be read by many threads.
pub struct Spool<T: Number> {
    store: Arc<Store>,
    sealed: Vec<Mutex<Sealed>>,
    open: Option<Block>,
    /// Start of the open page as numbers, how many it holds and has room for.
    numbers: *mut T,
    filled: usize,
    room: usize,
    kind: PhantomData<T>,
}

// SAFETY: `numbers` points into `open`, which moves with the spool; it is written through `&mut self` only.
unsafe impl<T: Number> Send for Spool<T> {}
// SAFETY: as above; what `&self` reads of the open page is its initialised part.
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

    fn page_len(&self) -> usize {
        self.store.page_bytes() / size_of::<T>()
    }

    #[inline(always)]
    pub fn push(&mut self, number: T) -> Result<()> {
        if self.filled == self.room {
            self.turn_page()?;
        }
        // SAFETY: `filled < room`, the numbers of the open page.
        unsafe { *self.numbers.add(self.filled) = number };
        self.filled += 1;
        Ok(())
    }

    pub fn extend(&mut self, mut numbers: &[T]) -> Result<()> {
        while !numbers.is_empty() {
            if self.filled == self.room {
                self.turn_page()?;
            }
            let (now, later) = numbers.split_at(numbers.len().min(self.room - self.filled));
            // SAFETY: the open page has room for `now`, and no borrow of it is alive.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), self.numbers.add(self.filled), now.len()) };
            self.filled += now.len();
            numbers = later;
        }
        Ok(())
    }

    /// Seal the full page, in memory if the limit allows a next one, else on disk.
    #[cold]
    fn turn_page(&mut self) -> Result<()> {
        let next = match self.open.take() {
            None => self.store.take(true),
            Some(full) => {
                let next = self.store.take(false);
                let (page, next) = match next {
                    Some(next) => (Page::Memory(full), next),
                    None => match self.store.write(&full) {
                        Ok(place) => (Page::Disk(place), full),
                        Err(error) => {
                            self.open = Some(full);
                            return Err(error);
                        }
                    },
                };
                self.sealed.push(Mutex::new(Sealed { page, left: self.page_len() }));
                Some(next)
            }
        };
        let next = next.ok_or_else(|| Error::Artifact("no page of memory left".into()))?;
        self.numbers = next.start.as_ptr().cast();
        self.open = Some(next);
        (self.filled, self.room) = (0, self.page_len());
        Ok(())
    }

    /// Append the numbers `start..start + len` to `out`. With `last` they are not read again, and a page that is read to
    /// its end is given back.
    pub fn read(&self, start: usize, len: usize, out: &mut Vec<T>, last: bool) -> Result<()> {
        let page_len = self.page_len();
        let (mut at, end) = (start, start + len);
        while at < end {
            let (number, from) = (at / page_len, at % page_len);
            let count = (page_len - from).min(end - at);
            match self.sealed.get(number) {
                Some(sealed) => {
                    let mut sealed = sealed.lock().unwrap_or_else(PoisonError::into_inner);
                    match &sealed.page {
                        Page::Memory(block) => out.extend_from_slice(&numbers_of(block)[from..from + count]),
                        Page::Disk(place) => {
                            let old = out.len();
                            out.resize(old + count, T::default());
                            self.store.read(*place, from * size_of::<T>(), bytes_of_mut(&mut out[old..]))?;
                        }
                        Page::Gone => return Err(Error::Artifact("a page of a spool was used up".into())),
                    }
                    if last {
                        sealed.left -= count;
                        if sealed.left == 0 {
                            match std::mem::replace(&mut sealed.page, Page::Gone) {
                                Page::Memory(block) => self.store.give_back(block),
                                Page::Disk(place) => self.store.free_place(place),
                                Page::Gone => {}
                            }
                        }
                    }
                }
                None => {
                    let open = self.open.as_ref().ok_or_else(|| Error::Artifact("past the end of a spool".into()))?;
                    out.extend_from_slice(&numbers_of(open)[from..from + count]);
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

    /// Read it once, from the front, giving its pages back on the way.
    pub fn into_reader(mut self) -> Reader<T> {
        let mut pages: Vec<(Page, usize)> = std::mem::take(&mut self.sealed)
            .into_iter()
            .map(|sealed| sealed.into_inner().unwrap_or_else(PoisonError::into_inner))
            .map(|sealed| (sealed.page, self.page_len()))
            .collect();
        if let Some(open) = self.open.take() {
            pages.push((Page::Memory(open), self.filled));
        }
        pages.reverse();
        Reader { store: self.store.clone(), pages, block: None, at: 0, len: 0, kind: PhantomData }
    }
}

impl<T: Number> Drop for Spool<T> {
    fn drop(&mut self) {
        for sealed in self.sealed.drain(..) {
            match sealed.into_inner().unwrap_or_else(PoisonError::into_inner).page {
                Page::Memory(block) => self.store.give_back(block),
                Page::Disk(place) => self.store.free_place(place),
                Page::Gone => {}
            }
        }
        if let Some(open) = self.open.take() {
            self.store.give_back(open);
        }
    }
}

/// A spool that is read once.
pub struct Reader<T: Number> {
    store: Arc<Store>,
    /// Pages to come, the next one last, and how many numbers each holds.
    pages: Vec<(Page, usize)>,
    block: Option<Block>,
    at: usize,
    len: usize,
    kind: PhantomData<T>,
}

impl<T: Number> Reader<T> {
    /// The next number, or None at the end.
    #[inline(always)]
    pub fn take(&mut self) -> Result<Option<T>> {
        if self.at == self.len && !self.turn_page()? {
            return Ok(None);
        }
        let Some(block) = &self.block else { return Ok(None) };
        // SAFETY: `at < len`, the numbers of this page.
        let number = unsafe { *numbers_of(block).get_unchecked(self.at) };
        self.at += 1;
        Ok(Some(number))
    }

    /// What is left of this page, or the next one.
    pub fn next_page(&mut self) -> Result<Option<&[T]>> {
        if self.at == self.len && !self.turn_page()? {
            return Ok(None);
        }
        let at = std::mem::replace(&mut self.at, self.len);
        Ok(self.block.as_ref().map(|block| &numbers_of(block)[at..self.len]))
    }

    /// Append the next `len` numbers, or what is left of them, to `out`.
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
                self.store.read(place, 0, bytes_of_block_mut(&mut block))?;
                self.store.free_place(place);
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
            match page {
                Page::Memory(block) => self.store.give_back(block),
                Page::Disk(place) => self.store.free_place(place),
                Page::Gone => {}
            }
        }
        if let Some(block) = self.block.take() {
            self.store.give_back(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(store: &Arc<Store>) {
        let numbers: Vec<u32> = (0..100_000).collect();
        let mut spool = Spool::new(store);
        for &number in &numbers[..1000] {
            spool.push(number).unwrap();
        }
        spool.extend(&numbers[1000..]).unwrap();
        assert_eq!(spool.len(), numbers.len());
        assert_eq!(spool.to_vec().unwrap(), numbers);
        let mut part = Vec::new();
        spool.read(4_000, 5_000, &mut part, true).unwrap();
        assert_eq!(part, &numbers[4_000..9_000]);
        let mut other = Spool::new(store);
        other.extend(&numbers).unwrap();
        let mut reader = other.into_reader();
        let (mut found, mut next) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            next.extend(reader.take().unwrap());
        }
        reader.read(usize::MAX, &mut found).unwrap();
        assert_eq!([next, found].concat(), numbers);
        assert_eq!(reader.take().unwrap(), None);
    }

    #[test]
    fn spools_give_back_what_they_were_given() {
        check(&Store::in_memory());
        let folder = std::env::temp_dir();
        let store = Store::limited(32 << 10, folder);
        check(&store);
        assert!(store.spilled_bytes() > 0);
    }
}
