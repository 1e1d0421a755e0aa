//! What a panic says: where it happened. Its message may quote a document, and stderr is a log.

use std::io::Write;
use std::panic::{self, Location};

/// Replace the standard hook, which prints the message.
///
/// This library has a standard library of its own, so hooks of other extensions, and theirs of ours, know nothing of
/// each other.
pub fn install_hook() {
    panic::set_hook(Box::new(|info| write_place(&mut std::io::stderr().lock(), info.location())));
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
        assert!(said.starts_with("reticent: the core panicked at rust_ext/src/py/panic.rs:"), "{said}");
        assert_eq!(said.lines().count(), 1);
    }

    #[test]
    fn panic_without_a_place_says_so_much() {
        let mut said = Vec::new();
        write_place(&mut said, None);
        assert_eq!(said, b"reticent: the core panicked; its message is withheld\n");
    }
}
