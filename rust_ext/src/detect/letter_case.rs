//! Letter case: whether a text, and the line of a word, has capitals and small letters, and how a piece is written.

use memchr::memchr;

use crate::text::pieces::View;

/// Whether case says anything here: a text all in small letters or all in capitals has none.
pub fn has_case(text: &str) -> bool {
    let (mut capitals, mut small) = (0, 0);
    // Sums of a byte each, which a processor makes 16 at a time.
    for chunk in text.as_bytes().chunks(128) {
        let (mut of_capitals, mut of_small) = (0u8, 0u8);
        for byte in chunk {
            of_capitals += u8::from(byte.is_ascii_uppercase());
            of_small += u8::from(byte.is_ascii_lowercase());
        }
        (capitals, small) = (capitals + usize::from(of_capitals), small + usize::from(of_small));
    }
    capitals > 0 && capitals * 200 >= capitals + small && small >= capitals
}

/// The lines of a text, from the first on: a line all in small letters (of a dialogue that was typed so) or all in capitals (a
/// heading) says nothing of its words, whatever the rest of the text is like.
pub struct Lines<'a> {
    text: &'a str,
    end: usize,
    has_case: bool,
}

impl<'a> Lines<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, end: 0, has_case: false }
    }

    /// Whether the line of a piece has capitals and small letters; pieces are asked for from left to right.
    #[inline]
    pub fn has_case(&mut self, view: &View, number: usize) -> bool {
        let Some(start) = view.origin_start(number) else { return false };
        while start >= self.end {
            let from = self.end;
            let rest = &self.text[from..];
            let length = memchr(b'\n', rest.as_bytes()).map_or(rest.len(), |at| at + 1);
            self.end = from + length.max(1);
            let line = &rest[..length];
            let is = |ascii: fn(&u8) -> bool, any: fn(char) -> bool| {
                line.as_bytes().iter().any(ascii) || !line.is_ascii() && line.chars().any(any)
            };
            self.has_case =
                is(u8::is_ascii_uppercase, char::is_uppercase) && is(u8::is_ascii_lowercase, char::is_lowercase);
        }
        self.has_case
    }
}

// How a piece is written: in capitals alone, or within an address of mail or the web.

/// Whether the piece is written in capitals alone, as headings and abbreviations are: no sign of a name.
#[inline]
pub fn is_all_capitals(view: &View, number: usize) -> bool {
    // Mostly the second letter tells it.
    let second = view.origin_start(number).and_then(|start| view.original.as_bytes().get(start + 1));
    if !second.is_some_and(u8::is_ascii_uppercase) {
        return false;
    }
    let bounds = view.origin_of(number, number);
    let original = bounds.and_then(|(start, end)| view.original.as_bytes().get(start..end));
    original.is_some_and(|original| original.len() > 1 && original.iter().all(|byte| byte.is_ascii_uppercase()))
}

/// Whether a piece is a part of an address of mail or the web, which has names in small letters.
#[inline]
pub fn is_in_address(text: &str, start: usize, end: usize) -> bool {
    let bytes = text.as_bytes();
    let joins = |sign: Option<&u8>, beyond: Option<&u8>| match sign {
        Some(b'@') => true,
        Some(b'.') => beyond.is_some_and(u8::is_ascii_alphanumeric),
        _ => false,
    };
    let before = |by: usize| start.checked_sub(by).and_then(|at| bytes.get(at));
    joins(bytes.get(end), bytes.get(end + 1)) || joins(before(1), before(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::surface::Surface;

    #[test]
    fn case_of_a_text() {
        assert!(has_case("Seen by Dr. Young"));
        assert!(!has_case("seen by dr. young"));
        assert!(!has_case("SEEN BY DR. YOUNG"));
        assert!(!has_case(""));
    }

    #[test]
    fn names_within_addresses() {
        let text = "write to ana.roy@mail.example or {max_name}; see roy. then roy, e.g. roy";
        let words = ["write", "ana", "roy", "mail", "max", "then"];
        let found = words.map(|word| {
            let start = text.find(word).unwrap();
            is_in_address(text, start, start + word.len())
        });
        assert_eq!(found, [false, true, true, true, false, false]);
        let last = text.len() - 3;
        assert!(!is_in_address(text, last, text.len()));
    }
    #[test]
    fn pieces_in_capitals_alone() {
        let view = View::new("MRI Mri ÉTÉ É X M&Uuml;LLER X\u{301}Y OK", Surface::Fold);
        let found: Vec<bool> = (0..view.len()).map(|piece| is_all_capitals(&view, piece)).collect();
        assert_eq!(found, [true, false, false, false, false, false, false, true]);
    }
}
