//! Pieces: the parts of a text by which names, numbers and list entries are compared.
//!
//! A piece is a longest run of letters, digits and combining marks of the folded text (`fold`), so `O'Brien` and `García-Márquez`
//! are two pieces each and `A12` is one. Words (`words`) keep dates and numbers whole, which suits supports. Here, in contrast,
//! a number must be found whatever joins its groups. A text is folded and cut once for all detectors.
//! Scripts without spaces between words (Chinese, Thai) give long runs, inside which records alone are looked for.

use std::cell::RefCell;

use unicode_normalization::char::is_combining_mark;

use crate::text::classes::{Block, InstructionSet, classify};
use crate::text::escapes::unescape;
use crate::text::fold::{Folded, fold};
use crate::text::surface::Surface;
use crate::text::words::Bounds;

enum Shape {
    /// Offsets are those of the original.
    Ascii(String),
    Folded(Folded),
}

/// A text, folded and cut.
pub struct View<'a> {
    pub original: &'a str,
    /// The text without the escapes of an export, where it has some: what is folded.
    unescaped: Option<Folded>,
    shape: Shape,
    /// Bounds in `text()`.
    pieces: Vec<Bounds>,
    /// Where each piece begins in the original; empty where it begins there as here.
    starts: Vec<u32>,
}

impl<'a> View<'a> {
    pub fn new(original: &'a str, surface: Surface) -> Self {
        let unescaped = unescape(original);
        let read = unescaped.as_ref().map_or(original, |unescaped| &unescaped.text);
        let shape = if !read.is_ascii() {
            Shape::Folded(fold(read, surface))
        } else if surface == Surface::Exact {
            Shape::Ascii(read.to_owned())
        } else {
            Shape::Ascii(read.to_ascii_lowercase())
        };
        let mut view = Self { original, unescaped, shape, pieces: Vec::new(), starts: Vec::new() };
        let pieces = cut(view.text());
        if let Shape::Folded(folded) = &view.shape {
            view.starts = folded.origins(view.read(), pieces.iter().map(|&(start, _)| start));
        }
        if let Some(unescaped) = &view.unescaped {
            let starts: Vec<u32> = match &view.shape {
                Shape::Ascii(_) => pieces.iter().map(|&(start, _)| start).collect(),
                Shape::Folded(_) => std::mem::take(&mut view.starts),
            };
            let known = starts.iter().copied().filter(|&start| start != u32::MAX);
            let mut known = unescaped.origins(original, known).into_iter();
            let origin = |start: u32| if start == u32::MAX { start } else { known.next().unwrap_or(start) };
            view.starts = starts.into_iter().map(origin).collect();
        }
        view.pieces = pieces;
        view
    }

    /// What is folded.
    fn read(&self) -> &str {
        self.unescaped.as_ref().map_or(self.original, |unescaped| &unescaped.text)
    }

    /// Whether escapes were undone: what stands in the original between two pieces may then have letters.
    #[inline]
    pub fn is_unescaped(&self) -> bool {
        self.unescaped.is_some()
    }

    #[inline]
    pub fn text(&self) -> &str {
        match &self.shape {
            Shape::Ascii(text) => text,
            Shape::Folded(folded) => &folded.text,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bounds of the pieces in `text()`.
    #[inline]
    pub fn pieces(&self) -> &[Bounds] {
        &self.pieces
    }

    #[inline]
    pub fn piece(&self, number: usize) -> &str {
        let (start, end) = self.pieces[number];
        // SAFETY: `new` cut this very text into pieces, of whole characters and in order, and nothing changes either after.
        unsafe { self.text().get_unchecked(start as usize..end as usize) }
    }

    /// What stands between a piece and the next.
    #[inline]
    pub fn gap(&self, number: usize) -> &str {
        let end = self.pieces.get(number + 1).map_or(self.text().len(), |next| next.0 as usize);
        // SAFETY: as for `piece`: it stands between two of them, or behind the last one.
        unsafe { self.text().get_unchecked(self.pieces[number].1 as usize..end) }
    }

    /// Bounds in the original of `start..end` of `text()`; None where they would cut a character.
    pub fn origin(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let (start, end) = match &self.shape {
            Shape::Ascii(_) => (start, end),
            Shape::Folded(folded) => folded.original(self.read(), start, end)?,
        };
        match &self.unescaped {
            Some(unescaped) => unescaped.original(self.original, start, end),
            None => Some((start, end)),
        }
    }

    /// Where a piece begins in the original; None where that is within a character.
    #[inline]
    pub fn origin_start(&self, number: usize) -> Option<usize> {
        match self.starts.get(number) {
            None => Some(self.pieces[number].0 as usize),
            Some(&start) => (start != u32::MAX).then_some(start as usize),
        }
    }

    /// Bounds in the original of the pieces `first..=last`.
    pub fn origin_of(&self, first: usize, last: usize) -> Option<(usize, usize)> {
        self.origin(self.pieces[first].0 as usize, self.pieces[last].1 as usize)
    }
}

thread_local! {
    static SCRATCH: RefCell<(Vec<Block>, Vec<u32>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Runs of letters, digits and marks, by masks of 64 bytes.
fn cut(text: &str) -> Vec<Bounds> {
    SCRATCH.with_borrow_mut(|(blocks, edges)| {
        let bytes = text.as_bytes();
        if !classify(bytes, blocks, InstructionSet::detect()) {
            mark_letters(text, blocks);
        }
        // Where runs begin and end, in turn.
        edges.clear();
        let mut before = 0;
        for (number, block) in blocks.iter().enumerate() {
            let inside = block.letter | block.digit;
            let mut left = inside ^ (inside << 1 | before);
            before = inside >> 63;
            while left != 0 {
                edges.push((number * 64) as u32 + left.trailing_zeros());
                left &= left - 1;
            }
        }
        if before != 0 {
            edges.push(bytes.len() as u32);
        }
        edges.as_chunks::<2>().0.iter().map(|&[start, end]| (start, end)).collect()
    })
}

/// The bytes of letters, digits and marks beyond ASCII join the letters.
fn mark_letters(text: &str, blocks: &mut [Block]) {
    for number in 0..blocks.len() {
        let mut left = blocks[number].not_ascii;
        while left != 0 {
            let at = number * 64 + left.trailing_zeros() as usize;
            left &= left - 1;
            // Within a character: its first byte has spoken for it.
            let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) else { continue };
            if is_inside(c) {
                for byte in at..at + c.len_utf8() {
                    blocks[byte / 64].letter |= 1 << (byte % 64);
                }
            }
        }
    }
}

fn is_inside(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_hand_worked_texts() {
        let table: &[(&str, &[&str])] = &[
            ("", &[]),
            (" -.", &[]),
            ("O'Brien, J.", &["o", "brien", "j"]),
            ("García\u{a0}-  Márquez", &["garcia", "marquez"]),
            ("555-123.4567x8", &["555", "123", "4567x8"]),
            ("Du\u{ad}pont😀A12_b", &["dupont", "a12", "b"]),
            ("a\0b", &["a", "b"]),
            ("שרה E\u{301}lodie", &["שרה", "elodie"]),
        ];
        for (text, expected) in table {
            let view = View::new(text, Surface::Fold);
            let found: Vec<&str> = (0..view.len()).map(|number| view.piece(number)).collect();
            assert_eq!(&found, expected, "{text:?}");
        }
    }

    #[test]
    fn bounds_lead_back_to_the_original() {
        let view = View::new("vu Élo\u{ad}die  Weiß.", Surface::Fold);
        let (start, end) = view.origin_of(1, 2).unwrap();
        assert_eq!(&view.original[start..end], "Élo\u{ad}die  Weiß");
        assert_eq!(view.gap(2), ".");
    }
}
