//! Buffer: zeroed memory, on huge pages if the system has them; its tables can grow in place.
//!
//! Tables are accessed at random. With small pages, each access would also have to look up its page.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const HUGE_PAGE: usize = 2 << 20;

/// Types of which zero bytes are a value.
///
/// # Safety
/// All bytes zero must be a valid value, and the type must need no drop.
pub unsafe trait Zero: Copy {}
// SAFETY: zero is a value of an integer, which needs no drop.
unsafe impl Zero for u64 {}
// SAFETY: zero is a value of an integer, which needs no drop.
unsafe impl Zero for u8 {}
// SAFETY: an array is its elements without anything between them, and zero is a value of each.
unsafe impl<T: Zero, const N: usize> Zero for [T; N] {}

pub struct Buffer<T: Zero> {
    /// What was allocated, and the first address in it that begins a line of the cache.
    memory: NonNull<u8>,
    start: NonNull<T>,
    len: usize,
    /// How many values there is memory for; those past the end are zero.
    room: usize,
}

const LINE: usize = 64;

// SAFETY: a buffer is the only holder of its memory, as a `Vec` is, so it moves between threads where its values may.
unsafe impl<T: Zero + Send> Send for Buffer<T> {}
// SAFETY: `&Buffer` gives out `&[T]` and nothing else: there is no way to write through it.
unsafe impl<T: Zero + Sync> Sync for Buffer<T> {}

impl<T: Zero> Buffer<T> {
    pub fn new(len: usize) -> Self {
        const { assert!(align_of::<T>() <= LINE) };
        let layout = Self::layout(len);
        // SAFETY: the layout has at least LINE bytes, so it is not empty. (Zeroed rather than filled: large fresh memory comes
        // from the system as zeros that take no room until they are touched. It comes with the alignment that every
        // allocation has; asking for more would make the allocator fill it.)
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        advise_huge(memory.as_ptr(), layout.size());
        // SAFETY: a step to the next line is shorter than LINE bytes, and the layout has LINE bytes beside the values, so
        // the start and all values after it stay inside the allocation.
        let start = unsafe { memory.add(memory.align_offset(LINE)) };
        Self { memory, start: start.cast(), len, room: len }
    }

    /// For a table that is reached at random: all its pages are the process's own at once. A page that is first read is one
    /// of zeros that all processes share, and giving the process its own when it is written stops every thread.
    pub fn table(len: usize) -> Self {
        let buffer = Self::new(len);
        #[cfg(target_os = "linux")]
        // SAFETY: the whole pages inside our own allocation. The advice maps them without a change of what they hold; a
        // system that does not know it refuses it, which is ignored.
        unsafe {
            advise(buffer.memory.as_ptr(), Self::layout(len).size(), 4 << 10, libc::MADV_POPULATE_WRITE);
        }
        buffer
    }

    /// A table that `grow` makes longer where it stands, up to `room` values: memory that was never touched takes no room.
    pub fn growing_table(len: usize, room: usize) -> Self {
        let mut buffer = Self::new(room);
        buffer.len = 0;
        buffer.grow(len, room);
        buffer
    }

    /// Make a growing table longer; what is new is zeros. Where there is no room, the values move to where there is `room`,
    /// and are there twice for a moment.
    pub fn grow(&mut self, len: usize, room: usize) {
        assert!(self.len <= len && len <= room);
        if len > self.room {
            let mut larger = Self::growing_table(self.len, room);
            larger.copy_from_slice(self);
            *self = larger;
        }
        #[cfg(target_os = "linux")]
        // SAFETY: `len <= room` holds here, so the stretch from the old end to the new one is inside our allocation. The
        // advice changes nothing of what it holds, as in `table`.
        unsafe {
            let end = self.start.add(self.len).cast().as_ptr();
            advise(end, (len - self.len) * size_of::<T>(), 4 << 10, libc::MADV_POPULATE_WRITE);
        }
        self.len = len;
    }

    fn layout(len: usize) -> Layout {
        let num_bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(LINE));
        match num_bytes.map(|bytes| Layout::from_size_align(bytes, 8)) {
            Some(Ok(layout)) => layout,
            _ => handle_alloc_error(Layout::new::<T>()),
        }
    }
}

impl<T: Zero> Deref for Buffer<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned to LINE, which is at least the alignment of T, and `len` values follow it in our
        // allocation. Each is zero, which `Zero` makes a value, or was written through `deref_mut`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zero> DerefMut for Buffer<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; and `&mut self` means that no other reference to the values is alive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Zero> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: `memory` was allocated in `new` with `layout(room)`: `new` sets `room` to the length it allocated for, and
        // nothing changes it afterwards. Values need no drop (`Zero`).
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.room)) };
    }
}

/// Have the line of the cache that a value begins in there soon; a hint.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads no value and cannot fault; every x86-64 processor has the instruction (SSE).
    unsafe {
        std::arch::x86_64::_mm_prefetch(std::ptr::from_ref(value).cast(), std::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Ask for huge pages inside this memory (Linux); a hint.
fn advise_huge(start: *mut u8, num_bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the caller passes an allocation of its own (`new`, which is private to this file's types). The advice changes
    // the size of pages and no value.
    unsafe {
        advise(start, num_bytes, HUGE_PAGE, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, num_bytes);
}

/// Give the memory of whole pages in this stretch back to the system until it is written again (Linux); a hint.
///
/// # Safety
/// The stretch lies in one buffer, nothing borrows it, and what it holds is not read before it is written.
pub unsafe fn forget(start: *mut u8, num_bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: by the contract above the stretch may lose its values: its whole pages read as zeros afterwards. Where the
    // system's pages are larger than 4 KiB it refuses a stretch that does not begin at one, and nothing happens.
    unsafe {
        advise(start, num_bytes, 4 << 10, libc::MADV_DONTNEED);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, num_bytes);
}

/// Advise the system on the whole pages of this size in a stretch, if there are any.
///
/// # Safety
/// The stretch is the caller's, and may be treated as the advice says.
#[cfg(target_os = "linux")]
unsafe fn advise(start: *mut u8, num_bytes: usize, page: usize, advice: libc::c_int) {
    let skip = start.align_offset(page);
    if num_bytes >= skip + page {
        let length = (num_bytes - skip) & !(page - 1);
        // SAFETY: `skip + length <= num_bytes`, so the pages lie inside the stretch, which the caller owns and on which it
        // allows this advice.
        unsafe { libc::madvise(start.add(skip).cast(), length, advice) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_keeps_its_values_and_gets_zeros() {
        let mut buffer: Buffer<u64> = Buffer::growing_table(3, 1000);
        buffer.copy_from_slice(&[1, 2, 3]);
        for len in [3, 5, 1000, 1 << 20, 3 << 20] {
            buffer.grow(len, len.max(2 << 20));
            assert_eq!(buffer[..3], [1, 2, 3]);
            assert!(buffer.len() == len && buffer[3..].iter().all(|&value| value == 0));
            assert_eq!(buffer.as_ptr().align_offset(LINE), 0);
        }
    }
}
