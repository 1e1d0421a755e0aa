//! Symbols: characters as numbers of their alphabet, and the runs of letters and digits of a value.

use unicode_normalization::char::{decompose_canonical, is_combining_mark};

use crate::text::characters::is_default_ignorable;

/// A character as a number among those of its alphabet and case.
pub(super) struct Symbol {
    pub(super) base: u32,
    pub(super) radix: u32,
    pub(super) value: u32,
}

/// First character and number of the alphabets that stay themselves; every other letter becomes a Latin one.
const ALPHABETS: &[(u32, u32)] = &[
    (0x3b1, 17),
    (0x3c2, 1),
    (0x3c3, 7),
    (0x391, 17),
    (0x3a3, 7),
    (0x430, 32),
    (0x410, 32),
    (0x5d0, 27),
    (0x628, 19),
    (0x660, 10),
    (0x6f0, 10),
    (0x905, 53),
    (0x966, 10),
    (0xe01, 46),
    (0x3042, 77),
    (0x30a2, 81),
    (0x4e00, 20_900),
    (0xac00, 11_172),
    (0xff10, 10),
    (0xff21, 26),
    (0xff41, 26),
];

pub(super) fn symbol(c: char) -> Option<Symbol> {
    let code = c as u32;
    if c.is_ascii() {
        let (base, radix) = match c {
            '0'..='9' => ('0', 10),
            'a'..='z' => ('a', 26),
            'A'..='Z' => ('A', 26),
            _ => return None,
        };
        return Some(Symbol { base: base as u32, radix, value: code - base as u32 });
    }
    for &(base, radix) in ALPHABETS {
        if (base..base + radix).contains(&code) {
            return Some(Symbol { base, radix, value: code - base });
        }
    }
    if !c.is_alphanumeric() {
        return None;
    }
    // An accented letter counts as the letter.
    let mut bare = c;
    decompose_canonical(c, |part| {
        if !is_combining_mark(part) {
            bare = part
        }
    });
    if bare != c {
        return symbol(bare);
    }
    let base = match c {
        _ if c.is_numeric() => '0',
        _ if c.is_uppercase() => 'A',
        _ => 'a',
    } as u32;
    let radix = if c.is_numeric() { 10 } else { 26 };
    Some(Symbol { base, radix, value: code % radix })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    Letters,
    Digits,
    Other,
}

/// Runs of letters (with the marks and invisible characters among them), of digits, and what is between.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = (Piece, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let kind = kind_of(rest.chars().next()?);
        let length = rest
            .char_indices()
            .find(|&(_, c)| {
                kind_of(c) != kind && !(kind == Piece::Letters && (is_combining_mark(c) || is_default_ignorable(c)))
            })
            .map_or(rest.len(), |(end, _)| end);
        at += length;
        Some((kind, &rest[..length]))
    })
}

fn kind_of(c: char) -> Piece {
    if c.is_numeric() {
        Piece::Digits
    } else if c.is_alphabetic() {
        Piece::Letters
    } else {
        Piece::Other
    }
}
