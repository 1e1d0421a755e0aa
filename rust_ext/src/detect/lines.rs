//! Lines: whether the line of a word has capitals and small letters.

use crate::text::pieces::View;

/// The lines of a text, from the first on: a line all in small letters (of a dialogue that was typed so) or all in capitals (a
/// heading) says nothing of its words, whatever the rest of the text is like.
pub struct Lines<'a> {
    text: &'a [u8],
    end: usize,
    has_case: bool,
}

impl<'a> Lines<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text: text.as_bytes(), end: 0, has_case: false }
    }

    /// Where the line ends that was asked for last.
    #[inline]
    pub fn end(&self) -> usize {
        self.end
    }

    /// Whether the line of a piece has capitals and small letters; pieces are asked for from left to right.
    #[inline]
    pub fn has_case(&mut self, view: &View, number: usize) -> bool {
        let Some(start) = view.origin_start(number) else { return false };
        while start >= self.end {
            let from = self.end;
            let length =
                self.text[from..].iter().position(|&byte| byte == b'\n').map_or(self.text.len() - from, |at| at + 1);
            self.end = from + length.max(1);
            let line = &self.text[from..from + length];
            let is = |ascii: fn(&u8) -> bool, any: fn(char) -> bool| {
                line.iter().any(ascii) || !line.is_ascii() && String::from_utf8_lossy(line).chars().any(any)
            };
            self.has_case =
                is(u8::is_ascii_uppercase, char::is_uppercase) && is(u8::is_ascii_lowercase, char::is_lowercase);
        }
        self.has_case
    }
}
