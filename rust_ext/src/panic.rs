//! What a panic says: where it happened. Its message may quote a document, and stderr is a log.
//!
//! The libraries that read tokenizers and Parquet panic on some files they are given, which is no bug of ours: around them,
//! [`survive`] makes an error of such a panic. One of our own code stays a panic.

use std::io::Write;
use std::panic::{self, AssertUnwindSafe, Location};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result};

/// Calls that survive a panic of a library, at this moment.
static GUARDS: AtomicUsize = AtomicUsize::new(0);
/// Panics of our own code, so far.
static OURS: AtomicUsize = AtomicUsize::new(0);

/// Replace the standard hook, which prints the message.
///
/// This library has a standard library of its own, so hooks of other extensions, and theirs of ours, know nothing of
/// each other.
pub fn install_hook() {
    panic::set_hook(Box::new(|info| {
        let ours = info.location().is_none_or(|place| place.file().starts_with("rust_ext"));
        if ours {
            OURS.fetch_add(1, Ordering::SeqCst);
        }
        if ours || GUARDS.load(Ordering::SeqCst) == 0 {
            write_place(&mut std::io::stderr().lock(), info.location());
        }
    }));
}

/// What `call` returns, or `refusal` in place of a panic of a library, in whatever thread it came; then nothing is printed.
pub fn survive<T>(refusal: impl FnOnce() -> Error, call: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = OURS.load(Ordering::SeqCst);
    GUARDS.fetch_add(1, Ordering::SeqCst);
    let done = panic::catch_unwind(AssertUnwindSafe(call));
    GUARDS.fetch_sub(1, Ordering::SeqCst);
    match done {
        Ok(result) => result,
        Err(payload) if OURS.load(Ordering::SeqCst) > before => panic::resume_unwind(payload),
        Err(_) => Err(refusal()),
    }
}

/// One line with file, line and column; a stderr that is gone is no reason for a second panic.
fn write_place(out: &mut impl Write, place: Option<&Location<'_>>) {
    let _ = match place {
        Some(place) => writeln!(out, "reticent: the core panicked at {place}; its message is withheld"),
        None => writeln!(out, "reticent: the core panicked; its message is withheld"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_file_line_and_column_in_one_line() {
        let mut said = Vec::new();
        write_place(&mut said, Some(Location::caller()));
        let said = String::from_utf8(said).unwrap();
        assert!(said.starts_with("reticent: the core panicked at rust_ext/src/panic.rs:"), "{said}");
        assert_eq!(said.lines().count(), 1);
    }

    #[test]
    fn panic_without_a_place_says_so_much() {
        let mut said = Vec::new();
        write_place(&mut said, None);
        assert_eq!(said, b"reticent: the core panicked; its message is withheld\n");
    }
}
