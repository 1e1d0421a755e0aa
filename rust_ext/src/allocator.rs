//! Allocator: the system's, but for a request that cannot be met: one line on stderr and exit status 1.
//!
//! Rust would abort, with a signal and a message that says no reason. Nothing can be unwound there, as an allocation may fail
//! anywhere; but nothing is lost either, since results are written whole or not at all and what spills has no name.
//! What asks for memory so that it may be refused (`try_reserve`) ends in the same way: nothing here goes on without.

use std::alloc::{GlobalAlloc, Layout, System};

/// As in `reticent.core.memory`.
const MESSAGE: &str = "reticent: out of memory; allow more, use fewer threads (num_threads), \
                       and let counting write to disk (memory_limit)\n";

struct OrExit;

#[global_allocator]
static ALLOCATOR: OrExit = OrExit;

// SAFETY: every method hands its arguments to `System` unchanged and returns the pointer that `System` returned, so `System`'s
// own keeping of the contract is ours. The one addition, `met`, either returns its argument or ends the process: it does not
// unwind, and it allocates nothing, so it cannot enter the allocator again.
unsafe impl GlobalAlloc for OrExit {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises a layout of non-zero size, which is all that `System` asks for.
        met(unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises a layout of non-zero size, which is all that `System` asks for.
        met(unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, num_bytes: usize) -> *mut u8 {
        // SAFETY: the caller promises that `old` came from this allocator with this layout. All memory of this allocator comes
        // from `System`, so the promise holds for `System` too.
        met(unsafe { System.realloc(old, layout, num_bytes) })
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as for `realloc`: the memory came from `System` with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// What there is no room for when a library aborted for want of memory, and no other process needs.
const PROBE_BYTES: usize = 64 << 20;

/// Have the process end in the same way where a library of it aborts (C++ does, for want of memory) and there is no room.
pub fn explain_abort() {
    extern "C" fn explain(_: libc::c_int) {
        // SAFETY: a new private mapping at an address that the system chooses overlaps no memory in use, and it is
        // never read or written. It is a bare system call: no lock and no allocation, so it may run in a signal handler. The
        // mapping is not undone, because the process aborts next.
        let probe = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), PROBE_BYTES, access, libc::MAP_PRIVATE | libc::MAP_ANON, -1, 0)
        };
        if probe == libc::MAP_FAILED {
            exit();
        }
    }
    // SAFETY: all-zero bytes are a valid `sigaction` (numbers, an empty mask, no restorer), and the pointer to it lives for the
    // call. The handler has the signature that the system calls without `SA_SIGINFO`, lives as long as the program, and makes
    // system calls alone. `SA_RESETHAND` restores the default action, so the signal then ends the process as it would have.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = explain as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESETHAND;
        libc::sigaction(libc::SIGABRT, &action, std::ptr::null_mut());
    }
}

#[inline(always)]
fn met(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        exit();
    }
    memory
}

/// Say it once, whichever threads come here, and end the process without running anything of it.
#[cold]
#[inline(never)]
fn exit() -> ! {
    use std::sync::atomic::{AtomicBool, Ordering};
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        loop {
            // SAFETY: takes no argument and touches no memory of ours; the thread that came first ends the process.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: the message is a constant of the given length, which `write` reads and does not keep; `_exit` does not return,
    // and runs no destructor that could meet a state that is half changed.
    unsafe {
        libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::_exit(1)
    }
}
