//! Spool: a sequence that grows in pages, in memory up to a limit and on disk beyond it.
//!
//! Everything the index builder writes down is a spool: the ids of words in the order they were read, the keys of each
//! partition, what became of them. All is written at the end and read in order (documents: at random, by range), so a
//! page that does not fit into memory costs one write and one read. Pages of one store have one size in memory and are used
//! again; on disk they are packed (`spill`).

use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::storage::buffer::{Buffer, forget};
use crate::storage::packing::Number;
use crate::storage::spill::{Place, Spill};

/// A page of memory. It lives as long as its store, which the spool that holds it keeps alive, and has one holder.
struct Block {
    start: NonNull<u64>,
    len: usize,
}

// SAFETY: `Store::take` moves a block out of `idle`, and blocks are neither copied nor cloned, so the words of a block are
// reached through one value alone, which may move to another thread.
unsafe impl Send for Block {}
// SAFETY: `&Block` gives out shared slices of integers alone (`numbers_of`); to write takes `&mut Block`, or a `Spool` that
// holds the block and is itself borrowed mutably.
unsafe impl Sync for Block {}

/// Blocks are cut from slabs of this size.
const SLAB_BYTES: usize = 2 << 20;
/// While a page is read from the disk, the one so many pages later is asked for.
const AHEAD: usize = 3;

/// Where the pages of many spools live.
pub struct Store {
    page_words: usize,
    spill: Option<Spill>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    slabs: Vec<Buffer<u64>>,
    idle: Vec<Block>,
    /// Pages in use.
    num_pages: usize,
    /// Pages in memory before full ones go to disk; the open page of each spool comes on top.
    max_pages: usize,
}

impl Store {
    /// A store that keeps everything in memory.
    pub fn in_memory() -> Arc<Self> {
        Arc::new(Self::new(16 << 10, usize::MAX, None))
    }

    /// A store that keeps about `max_bytes` in memory and the rest in nameless files of `folder`, packed where that would
    /// be more than twice as much: the system's cache has room for about that.
    pub fn limited(max_bytes: usize, folder: &Path) -> Result<Arc<Self>> {
        Self::with_pages(max_bytes, Self::page_bytes_of(max_bytes), folder)
    }

    /// The same with pages of these bytes, a power of two.
    pub fn with_pages(max_bytes: usize, page_bytes: usize, folder: &Path) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::new(page_bytes, max_bytes / page_bytes, Some(Spill::new(folder, 2 * max_bytes as u64)?))))
    }

    fn new(page_bytes: usize, max_pages: usize, spill: Option<Spill>) -> Self {
        let state = State { max_pages, ..State::default() };
        Self { page_words: page_bytes / 8, spill, state: Mutex::new(state) }
    }

    pub const LEAST_PAGE_BYTES: usize = 4 << 10;

    /// Bytes of a page of a store that keeps so much in memory.
    pub fn page_bytes_of(max_bytes: usize) -> usize {
        (max_bytes >> 12).next_power_of_two().clamp(Self::LEAST_PAGE_BYTES, 256 << 10)
    }

    /// Keep at most so much in memory from here on; `Spool::evict` makes room at once.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page, if the limit allows one more or `needed` says that it must.
    fn take(&self, needed: bool) -> Option<Block> {
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
            state.slabs.push(slab);
        }
        state.idle.pop()
    }

    /// Whether it holds more than it may.
    fn is_over(&self) -> bool {
        let state = self.state();
        state.num_pages > state.max_pages
    }

    fn give_back(&self, block: Block) {
        let mut state = self.state();
        state.num_pages -= 1;
        state.idle.push(block);
    }

    /// Give the memory and the disk of pages that nobody uses back to the system; they stay as addresses.
    pub fn release_idle(&self) {
        self.spill.iter().for_each(Spill::release_free);
        let mut state = self.state();
        state.idle.sort_unstable_by_key(|block| block.start);
        for run in state.idle.chunk_by(|a, b| numbers_of::<u8>(a).as_ptr_range().end == b.start.as_ptr().cast()) {
            // SAFETY: the run is one stretch of one slab: its blocks touch, and two slabs never do, as each allocation has bytes
            // beside its values. The blocks are idle, so nobody borrows them, and the lock on the state keeps it so. What
            // they hold may go: a taken page is written before it is read, as `filled` and `len` begin at 0.
            unsafe { forget(run[0].start.as_ptr().cast(), run.len() * self.page_bytes()) };
        }
    }

    fn spill(&self) -> Result<&Spill> {
        self.spill.as_ref().ok_or_else(|| Error::Artifact("a spool without a file".into()))
    }

    fn write<T: Number>(&self, block: &Block) -> Result<Place> {
        Ok(self.spill()?.write(numbers_of::<T>(block))?)
    }

    fn read<T: Number>(&self, place: &Place, from: usize, numbers: &mut [T]) -> Result<()> {
        Ok(self.spill()?.read(place, from, numbers)?)
    }

    /// Have a page in memory soon, if it is on disk; a hint.
    fn fetch(&self, page: &Page) {
        if let (Page::Disk(place), Some(spill)) = (page, &self.spill) {
            spill.fetch(place);
        }
    }

    fn give_up(&self, page: Page) {
        match (page, &self.spill) {
            (Page::Memory(block), _) => self.give_back(block),
            (Page::Disk(place), Some(spill)) => spill.free(place),
            (Page::Disk(_), None) | (Page::Gone, _) => {}
        }
    }
}

#[inline(always)]
fn numbers_of<T: Number>(block: &Block) -> &[T] {
    // SAFETY: a block is `len` words of a slab that its store keeps until the store is dropped, and the holder of the block
    // keeps the store. Words of a slab are always initialised (zero at first). The alignment of u64 is enough for every
    // `Number`, any bits are one, and `len * 8 / size_of::<T>()` numbers do not reach past the block.
    unsafe { std::slice::from_raw_parts(block.start.as_ptr().cast(), block.len * 8 / size_of::<T>()) }
}

fn numbers_of_mut<T: Number>(block: &mut Block) -> &mut [T] {
    // SAFETY: as in `numbers_of`; and `&mut` to the only holder means that no other reference to the words is alive.
    unsafe { std::slice::from_raw_parts_mut(block.start.as_ptr().cast(), block.len * 8 / size_of::<T>()) }
}

enum Page {
    Memory(Block),
    Disk(Place),
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
        // SAFETY: `numbers` is the start of the open page and `room` its length wherever `room > 0`; `turn_page` leaves
        // `filled < room` or an error, and then nothing is written.
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
            // SAFETY: `now` has at most `room - filled` numbers, which the open page has room for. `now` borrows from elsewhere:
            // a borrow of the open page would need `&self`, and this is `&mut self`.
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
                    None => match self.store.write::<T>(&full) {
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

    /// Write full pages to disk until the store holds no more than it may.
    pub fn evict(&self) -> Result<()> {
        for sealed in &self.sealed {
            let mut sealed = sealed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Page::Memory(block) = &sealed.page {
                if !self.store.is_over() {
                    break;
                }
                let place = self.store.write::<T>(block)?;
                self.store.give_up(std::mem::replace(&mut sealed.page, Page::Disk(place)));
            }
        }
        Ok(())
    }

    /// Append the numbers `start..start + len` to `out`. With `last` they are not read again, and a page that is read to
    /// its end is given back.
    pub fn read(&self, start: usize, len: usize, out: &mut Vec<T>, last: bool) -> Result<()> {
        let page_len = self.page_len();
        let (mut at, end) = (start, start.saturating_add(len));
        if end > self.len() {
            return Err(Error::Artifact("past the end of a spool".into()));
        }
        while at < end {
            let (number, from) = (at / page_len, at % page_len);
            let count = (page_len - from).min(end - at);
            if let (0, Some(next)) = (from, self.sealed.get(number + AHEAD)) {
                // Who reads a page from its beginning will want the next ones, and reads them in small pieces.
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
            self.store.give_up(sealed.into_inner().unwrap_or_else(PoisonError::into_inner).page);
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
        // SAFETY: `at < len` by the test above, or by `turn_page`, which returns true only where `len > 0`; and `len` is at
        // most the numbers of the page, since it counts those that a spool wrote to it.
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

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A store with pages so large that packing them saves blocks of the disk, few of them in memory.
    pub fn packing_store() -> Arc<Store> {
        Arc::new(Store::new(32 << 10, 2, Some(Spill::new(&std::env::temp_dir(), 0).unwrap())))
    }

    /// Whether no page of a store is in use.
    pub fn holds_nothing(store: &Store) -> bool {
        let spilled = store.spill.as_ref().map_or(0, |spill| spill.num_bytes() - spill.free_bytes());
        store.state().num_pages == 0 && spilled == 0
    }

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
        let small = Store::limited(32 << 10, &std::env::temp_dir()).unwrap();
        for store in [small, packing_store()] {
            check(&store);
            assert!(store.spilled_bytes() > 0);
            assert!(holds_nothing(&store));
            store.release_idle();
            check(&store);
        }
    }

    #[test]
    fn a_store_that_may_hold_less_writes_what_it_holds() {
        let store = Store::limited(1 << 20, &std::env::temp_dir()).unwrap();
        let numbers: Vec<u32> = (0..100_000).collect();
        let mut spool = Spool::new(&store);
        spool.extend(&numbers).unwrap();
        assert_eq!(store.spilled_bytes(), 0);
        store.hold_at_most(20 << 10);
        spool.evict().unwrap();
        assert!(store.state().num_pages == 5 && store.spilled_bytes() > 0);
        spool.extend(&numbers).unwrap();
        assert_eq!(store.state().num_pages, 5);
        assert_eq!(spool.to_vec().unwrap(), [&numbers[..], &numbers].concat());
        drop(spool);
        assert!(holds_nothing(&store));
        Store::in_memory().hold_at_most(usize::MAX);
    }

    #[test]
    fn idle_pages_are_released_around_those_in_use() {
        let store = Store::in_memory();
        let numbers: Vec<u64> = (0..1_000_000).collect();
        let mut spools: Vec<Spool<u64>> = (0..4).map(|_| Spool::new(&store)).collect();
        for part in numbers.chunks(1_000) {
            spools.iter_mut().for_each(|spool| spool.extend(part).unwrap());
        }
        spools.remove(2);
        spools.remove(0);
        store.release_idle();
        assert!(spools.iter().all(|spool| spool.to_vec().unwrap() == numbers));
        check(&store);
    }

    #[test]
    fn a_read_past_the_end_is_an_error() {
        let spool = Spool::from_slice(&[1u32, 2, 3]).unwrap();
        let mut out = Vec::new();
        for (start, len) in [(0, 4), (3, 1), (2, usize::MAX), (1 << 20, 1)] {
            assert!(spool.read(start, len, &mut out, false).is_err());
        }
        assert!(out.is_empty());
        assert!(Spool::<u32>::from_slice(&[]).unwrap().read(0, 1, &mut out, false).is_err());
    }
}
