//! A text as detectors compare it, with a map back: offsets always mean the original text.
//!
//! White space of any kind and length is one space, so a name broken over two lines is found.

use unicode_normalization::char::{decompose_canonical, is_combining_mark};

use crate::surface::{Surface, is_invisible};

/// Text as it is compared, and where each of its bytes stood.
pub struct Folded {
    pub text: String,
    /// Byte in the original of each folded byte, and of the end; empty when they are the same.
    origin: Vec<u32>,
}

pub fn fold(text: &str, surface: Surface) -> Folded {
    let only_single_spaces = !text.bytes().any(|byte| matches!(byte, b'\t'..=b'\r')) && !text.contains("  ");
    if text.is_ascii() && only_single_spaces {
        let text = if surface == Surface::Exact { text.to_owned() } else { text.to_ascii_lowercase() };
        return Folded { text, origin: Vec::new() };
    }
    let mut folded = Folded { text: String::with_capacity(text.len()), origin: Vec::with_capacity(text.len() + 1) };
    for (at, c) in text.char_indices() {
        if c.is_whitespace() {
            if !folded.text.ends_with(' ') {
                folded.text.push(' ');
            }
        } else if c.is_ascii() {
            folded.text.push(if surface == Surface::Exact { c } else { c.to_ascii_lowercase() });
        } else {
            decompose_canonical(c, |part| push_folded(&mut folded.text, part, surface));
        }
        folded.origin.resize(folded.text.len(), at as u32);
    }
    folded.origin.push(text.len() as u32);
    folded
}

/// One character of a canonical decomposition, so that composed and decomposed letters meet.
fn push_folded(to: &mut String, c: char, surface: Surface) {
    match (surface, c) {
        (Surface::Exact, _) => to.push(c),
        (Surface::Fold, _) if is_combining_mark(c) || is_invisible(c) => {}
        (Surface::Fold, '\u{2018}' | '\u{2019}' | '\u{2bc}') => to.push('\''),
        (Surface::Fold, '\u{2010}' | '\u{2011}') => to.push('-'),
        _ => to.extend(c.to_uppercase().flat_map(char::to_lowercase)),
    }
}

impl Folded {
    /// The original bounds of a match, or None when it cuts a character: one that folds to several, or one and its accent.
    pub fn original(&self, text: &str, start: usize, end: usize) -> Option<(usize, usize)> {
        if self.origin.is_empty() {
            return Some((start, end));
        }
        let cuts = |at: usize| {
            at > 0 && at < self.text.len() && self.origin[at] == self.origin[at - 1] && self.text.is_char_boundary(at)
        };
        if cuts(start) || cuts(end) || self.text[end..].starts_with(is_combining_mark) {
            return None;
        }
        let (start, end) = (self.origin[start] as usize, self.origin[end] as usize);
        (text.is_char_boundary(start) && text.is_char_boundary(end)).then_some((start, end))
    }
}
