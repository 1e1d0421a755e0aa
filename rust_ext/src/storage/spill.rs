//! Spill: the pages of a store that do not fit into memory, in files, packed once there are many.
//!
//! The files hold words of confidential texts, and their ids. They are made in the folder given, readable by their owner alone, and
//! have no name: whatever ends the process, the system gives their blocks back, and no other program finds them.
//!
//! Pages are packed (`packing`) to write fewer bytes. Pages that the system's cache is likely to hold are not worth it: packing
//! them costs a third more time for half the bytes. So packing begins when the files have grown past that (`pack_from`).
//!
//! Packed pages differ in length. A place that was freed is used again, for any page that fits there (`places`). Free places
//! become holes of the files when a phase is over or room must be made (`release_free`). (To punch each at once would take
//! less of the disk for a while, but a disk may take its time to discard blocks: a third of the time of the last level of
//! ten million documents.)

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::storage::packing::{Number, Packing, bytes_of, bytes_of_mut};
use crate::storage::places::Places;

/// A system locks a file while it is written. With several files, as many threads write at once.
const NUM_FILES: usize = 8;

/// Places begin and end where blocks of the disk do: the system reads no part of one to write the rest.
const BLOCK_BYTES: usize = 4 << 10;

/// Where a page stands in which file, and how. Not `Clone`: it is freed once.
///
/// The only way to a page on disk: the files have no index, and a place that is lost is a page that is lost. So the
/// files are of no use to a later process, and nothing has to be flushed or repaired after a kill.
pub struct Place {
    /// Which of `Spill::files`.
    file: usize,
    /// `start` and `num_bytes` are multiples of `BLOCK_BYTES`.
    start: u64,
    /// What the page takes in the file, and not what its numbers take: a packed page ends somewhere in its last
    /// block. `free` hands back all of it.
    num_bytes: usize,
    /// None: as in memory.
    packing: Option<Packing>,
}

/// The files of one store. A page belongs to the holder of its `Place` from `write` to `free`, and two places never
/// overlap. So threads read and write pages at the same time without a lock: only the choice of places needs one.
pub struct Spill {
    /// Read and written at given places, so threads share them without a common position.
    files: Vec<File>,
    /// Pages are packed once so many bytes of the files have been in use.
    pack_from: u64,
    /// Locked while places are chosen, never while bytes are read or written.
    state: Mutex<State>,
}

/// Every byte of a file up to its end belongs to the place of one page or to one free place.
#[derive(Default)]
struct State {
    /// Where each file ends, and the one that is made longer next.
    ends: [u64; NUM_FILES],
    /// In turn, and not the shortest one: neighbouring writes then go to different files, whose locks do not wait for
    /// each other.
    next: usize,
    /// Looked at before any file is made longer: a file grows only where no free place is long enough.
    free: Places,
    /// Whether pages are packed. Once true it stays so, even if pages are freed: the files have grown past the cache.
    packs: bool,
}

impl State {
    /// Bytes from the beginnings of the files to their ends.
    fn num_bytes(&self) -> u64 {
        self.ends.iter().sum()
    }
}

thread_local! {
    /// Room for one packed page, a thread. Not a page of the store: pages are written when its limit is reached.
    /// It grows to the longest page that the thread packs or reads, 256 KiB and a few bytes at most, and stays: an
    /// allocation for each page would cost more than the memory.
    static PACKED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Call `work` with room for so many bytes.
/// The room still holds an earlier page. `pack` writes over what it needs, and `read` takes no number from beyond
/// what it read: so old words may come to stand in the last block of a place, but never in a page.
///
/// `work` must not ask for room again: the one of its thread is borrowed until it returns.
fn with_room<R>(num_bytes: usize, work: impl FnOnce(&mut [u64]) -> R) -> R {
    PACKED.with_borrow_mut(|room| {
        let len = num_bytes.div_ceil(8);
        if room.len() < len {
            room.resize(len, 0);
        }
        work(&mut room[..len])
    })
}

impl Spill {
    /// All files are made at once, before any document is read: a folder that cannot be written to is an error when
    /// the store is made, and not when memory is full, which may be hours later.
    pub fn new(folder: &Path, pack_from: u64) -> io::Result<Self> {
        let files = (0..NUM_FILES).map(|_| nameless_file(folder)).collect::<io::Result<Vec<_>>>()?;
        // The neighbours of a page in the file are pages of other spools: the system should read ahead no more than it is told.
        #[cfg(target_os = "linux")]
        files.iter().for_each(|file| advise(file, 0, 0, libc::POSIX_FADV_RANDOM));
        Ok(Self { files, pack_from, state: Mutex::default() })
    }

    /// Have a page in the system's cache soon; a hint.
    pub fn fetch(&self, place: &Place) {
        #[cfg(target_os = "linux")]
        advise(&self.files[place.file], place.start, place.num_bytes, libc::POSIX_FADV_WILLNEED);
        #[cfg(not(target_os = "linux"))]
        let _ = place;
    }

    /// The most bytes that the files held at once: they never become shorter.
    pub fn num_bytes(&self) -> u64 {
        self.state().num_bytes()
    }

    /// A poisoned lock is used as it is: no caller's code runs under it, so a panic in a thread elsewhere leaves it
    /// whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Write a page, packed if that saves a block of the disk or more.
    ///
    /// Example: a page of 32 KiB holds 8,192 numbers of four bytes. If they differ by less than 2^20, they take 20
    /// bits each, which is 20 KiB: 5 blocks in place of 8. At 31 bits they would take 31 KiB, all 8 blocks: such a
    /// page is written as it is.
    ///
    /// After an error no place is taken, and the numbers are still the caller's.
    pub fn write<T: Number>(&self, numbers: &[T]) -> io::Result<Place> {
        let num_bytes = size_of_val(numbers);
        // The lock ends with this block: threads pack their pages at the same time. Another one may begin to pack in
        // between; then this page is written as it is, which costs bytes and nothing else.
        let packs = {
            let mut state = self.state();
            state.packs |= state.num_bytes() - state.free.num_bytes() >= self.pack_from;
            state.packs
        };
        let packing = packs.then(|| Packing::of(numbers)).flatten().map(|packing| {
            let num_bytes = packing.num_bytes(numbers.len()).next_multiple_of(BLOCK_BYTES);
            (packing, num_bytes)
        });
        match packing.filter(|packing| packing.1 < num_bytes) {
            None => self.write_bytes(bytes_of(numbers), None),
            // To the end of the last block: to write a part of a block, the system would have to read it first.
            Some((packing, num_bytes)) => with_room(num_bytes, |packed| {
                packing.pack(numbers, packed);
                self.write_bytes(bytes_of(packed), Some(packing))
            }),
        }
    }

    /// A page in memory has a power of two of bytes, a block at least (`Store::page_bytes_of`), so one that is not
    /// packed fills its place.
    fn write_bytes(&self, bytes: &[u8], packing: Option<Packing>) -> io::Result<Place> {
        let num_bytes = bytes.len().next_multiple_of(BLOCK_BYTES);
        let (file, start) = self.take(num_bytes as u64);
        let place = Place { file, start, num_bytes, packing };
        match self.files[file].write_all_at(bytes, start) {
            Ok(()) => Ok(place),
            // A full disk. The place is kept for a page that can be written, once others are freed.
            Err(error) => {
                self.free(place);
                Err(error)
            }
        }
    }

    /// File and start of a place of so many bytes: a free one, else at the end of the files in turn.
    fn take(&self, num_bytes: u64) -> (usize, u64) {
        let mut state = self.state();
        state.free.take(num_bytes).unwrap_or_else(|| {
            let file = state.next;
            state.next = (file + 1) % NUM_FILES;
            state.ends[file] += num_bytes;
            (file, state.ends[file] - num_bytes)
        })
    }

    /// Read a page's numbers from `from` on, as many as there is room for. Of a packed page just the bytes that hold them: all
    /// numbers of a page have one width, so their place is known.
    ///
    /// Example: with 20 bits a number, numbers 3 and 4 are the bits 60 to 100, so the bytes 7 to 13 are read, and the
    /// first number begins with bit 4 of them.
    ///
    /// After an error `numbers` may hold a part of the page. The page can be read again: reading changes nothing in
    /// the files.
    pub fn read<T: Number>(&self, place: &Place, from: usize, numbers: &mut [T]) -> io::Result<()> {
        let Some(packing) = place.packing else {
            let start = place.start + (from * size_of::<T>()) as u64;
            return self.files[place.file].read_exact_at(bytes_of_mut(numbers), start);
        };
        // `unpack` loads eight bytes at a time, so it needs room past the last one; what lies there is masked out.
        let (first, num_bytes) = packing.bytes_of(from, numbers.len());
        with_room(Packing::room(num_bytes), |packed| {
            let packed = bytes_of_mut(packed);
            self.files[place.file].read_exact_at(&mut packed[..num_bytes], place.start + first as u64)?;
            packing.unpack(packed, from, numbers);
            Ok(())
        })
    }

    /// The page is not read again.
    pub fn free(&self, place: Place) {
        self.state().free.add(place.file, place.start, place.num_bytes as u64);
    }

    /// Give the blocks of what is free back to the system, where it can take them (Linux); they stay as places.
    /// The lock is held for all of it. Else a free place could be taken and written between the look at it and its
    /// hole, and the hole would wipe the new page. Threads that need a place wait meanwhile: so it is called seldom.
    pub fn release_free(&self) {
        #[cfg(target_os = "linux")]
        for (file, start, num_bytes) in self.state().free.iter() {
            use std::os::fd::AsRawFd;
            // The size stays, or `ends` would be wrong. That a file system refuses is no error: the run takes more of
            // the disk, and its result is the same.
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: a system call that takes numbers alone, on a file that `self` keeps open; it touches no memory of ours. The
            // stretch is free, so no page is read from it before it is written again. A file system without holes refuses it.
            unsafe { libc::fallocate(self.files[file].as_raw_fd(), mode, start as _, num_bytes as _) };
        }
    }
}

#[cfg(target_os = "linux")]
fn advise(file: &File, start: u64, num_bytes: usize, advice: libc::c_int) {
    use std::os::fd::AsRawFd;
    // SAFETY: a system call that takes numbers alone, on a file that the borrow keeps open; advice changes no byte of it.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), start as _, num_bytes as _, advice) };
}

/// A file that has no name in the folder it is made in, from the first moment where the system can do that.
///
/// `O_EXCL` here means that the file cannot be given a name later, through `/proc` or otherwise.
fn nameless_file(folder: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE | libc::O_EXCL);
        match options.open(folder) {
            // A kernel without `O_TMPFILE` takes it for an attempt to write to a folder: EISDIR, or ENOENT. ENOENT
            // also stands for a folder that is missing, which the attempt with a name then reports.
            // A file system that does not have them.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {}
            done => return done,
        }
    }
    file_without_its_name(folder)
}

/// A file that is named for a moment. Another process may have this one's number, in a container of its own, and die in
/// that moment: a name that is taken is not waited for.
///
/// A kill in that moment leaves an empty file behind: the name is removed before the first byte is written.
fn file_without_its_name(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // `create_new`: a file or a link that another process has put there is never opened. It is one step for the system
    // too, so two threads of this process never get the same file.
    options.read(true).write(true).mode(0o600).create_new(true);
    let mut number = 0u64;
    loop {
        let path = folder.join(format!("spill-{}-{number}", std::process::id()));
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
            Ok(file) => return std::fs::remove_file(&path).map(|()| file),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::storage::packing::tests::{draws, numbers};

    impl Spill {
        /// Bytes of the files that no page needs.
        pub fn free_bytes(&self) -> u64 {
            self.state().free.num_bytes()
        }
    }

    const PAGE_BYTES: usize = 32 << 10;

    /// Pages of every width come back by ranges while others are freed and written.
    fn check<T: Number + std::fmt::Debug>(spill: &Spill) {
        let (width, len) = (8 * size_of::<T>() as u32, PAGE_BYTES / size_of::<T>());
        let mut draw = draws(7);
        let mut kept: Vec<(Vec<T>, Place)> = Vec::new();
        for bits in (0..=width).chain((0..=width).rev()) {
            let page: Vec<T> = numbers(bits, 0, len);
            let place = spill.write(&page).unwrap();
            assert_eq!(place.start % BLOCK_BYTES as u64 + (place.num_bytes % BLOCK_BYTES) as u64, 0);
            let needed = (len * bits.max(1) as usize).div_ceil(8).next_multiple_of(BLOCK_BYTES);
            assert_eq!(place.num_bytes, if bits > 57 { PAGE_BYTES } else { needed });
            kept.push((page, place));
            for (page, place) in &kept {
                for _ in 0..4 {
                    let from = draw() as usize % len;
                    let mut found = vec![T::default(); draw() as usize % (len - from + 1)];
                    spill.read(place, from, &mut found).unwrap();
                    assert_eq!(found, page[from..from + found.len()]);
                }
            }
            if kept.len() > 5 {
                spill.free(kept.swap_remove(draw() as usize % kept.len()).1);
            }
            let used: u64 = kept.iter().map(|page| page.1.num_bytes as u64).sum();
            assert_eq!(spill.num_bytes(), used + spill.free_bytes());
        }
        kept.into_iter().for_each(|page| spill.free(page.1));
        assert_eq!(spill.num_bytes(), spill.free_bytes());
        assert!(spill.num_bytes() <= 12 * PAGE_BYTES as u64);
    }

    #[test]
    fn pages_of_every_width_come_back() {
        let spill = Spill::new(&std::env::temp_dir(), 0).unwrap();
        check::<u8>(&spill);
        check::<u16>(&spill);
        check::<u32>(&spill);
        check::<u64>(&spill);
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::fs::MetadataExt;
            let blocks = || spill.files.iter().map(|file| file.metadata().unwrap().blocks()).sum::<u64>();
            assert!(blocks() > 0);
            spill.release_free();
            assert_eq!(blocks(), 0);
            check::<u32>(&spill);
        }
    }

    #[test]
    fn a_page_that_cannot_be_written_takes_no_place() {
        let path = std::env::temp_dir().join(format!("reticent-spill-test-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let files = (0..NUM_FILES).map(|_| File::open(&path).unwrap()).collect(); // to read only
        std::fs::remove_file(&path).unwrap();
        let spill = Spill { files, pack_from: 0, state: Mutex::default() };
        for bits in [20, 32] {
            assert!(spill.write::<u32>(&numbers(bits, 0, 8 << 10)).is_err());
            assert_eq!(spill.num_bytes(), spill.free_bytes());
        }
    }

    #[test]
    fn a_file_has_no_name_once_it_is_made() {
        let folder = std::env::temp_dir().join(format!("reticent-spool-test-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let taken = folder.join(format!("spill-{}-0", std::process::id()));
        std::fs::write(&taken, "").unwrap();
        let files = [nameless_file(&folder).unwrap(), file_without_its_name(&folder).unwrap()];
        files.iter().for_each(|file| file.write_all_at(b"x", 0).unwrap());
        let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(names, [taken]);
        assert!(nameless_file(&folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
    }
}
