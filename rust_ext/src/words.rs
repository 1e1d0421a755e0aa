//! Words: what support is counted on.
//!
//! A word is a segment of Unicode word segmentation (UAX #29) that holds a letter or a digit (Unicode's `Alphabetic` or a
//! number), less white space at its front. On top of it stands one rule of
//! our own: **a single `-`, `/`, `.` or `:` between two words that both hold a digit joins them**, so that a date, a time, a
//! phone number or a record number (`2021-03-04`, `12/05`, `555-123-4567`, `10:45`) is one word and not its pieces.
//!
//! ASCII documents take a scanner of their own, about ten times as fast; a test holds it to the full rule's answer.

use rayon::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

use crate::error::{Error, Result};
use crate::text::Texts;

/// Words of a batch of documents: word `w` of document `d` is `w` in `doc_offsets[d]..doc_offsets[d + 1]`.
pub struct Words {
    pub doc_offsets: Vec<i64>,
    /// Byte offsets inside the word's own document.
    pub starts: Vec<u32>,
    pub ends: Vec<u32>,
}

impl Words {
    pub fn num_documents(&self) -> usize {
        self.doc_offsets.len() - 1
    }

    /// Bounds of the words of one document.
    #[inline]
    pub fn of(&self, document: usize) -> (&[u32], &[u32]) {
        let range = self.doc_offsets[document] as usize..self.doc_offsets[document + 1] as usize;
        (&self.starts[range.clone()], &self.ends[range])
    }

    /// Number of the first word of a document.
    #[inline]
    pub fn first(&self, document: usize) -> usize {
        self.doc_offsets[document] as usize
    }

    /// `Err` unless these are the words of a batch with that many documents.
    pub fn check(&self, num_documents: usize) -> Result<()> {
        if self.num_documents() != num_documents {
            return Err(Error::Corpus(format!(
                "words of {} documents were given with {num_documents} documents",
                self.num_documents()
            )));
        }
        Ok(())
    }
}

/// Segment every document, in parallel.
pub fn segment(texts: &Texts) -> Result<Words> {
    let parts: Vec<Vec<(u32, u32)>> = (0..texts.len())
        .into_par_iter()
        .map(|row| {
            let mut bounds = Vec::new();
            let text = texts.get(row);
            check_length(text, row)?;
            for_each_word(text, |start, end| bounds.push((start as u32, end as u32)));
            Ok(bounds)
        })
        .collect::<Result<_>>()?;
    let num_words = parts.iter().map(Vec::len).sum();
    let mut words = Words {
        doc_offsets: Vec::with_capacity(texts.len() + 1),
        starts: Vec::with_capacity(num_words),
        ends: Vec::with_capacity(num_words),
    };
    words.doc_offsets.push(0);
    for part in &parts {
        words.starts.extend(part.iter().map(|bounds| bounds.0));
        words.ends.extend(part.iter().map(|bounds| bounds.1));
        words.doc_offsets.push(words.starts.len() as i64);
    }
    Ok(words)
}

/// Offsets inside a document are 32-bit.
pub fn check_length(text: &str, row: usize) -> Result<()> {
    if text.len() > u32::MAX as usize {
        return Err(Error::Corpus(format!("column text: row {row} is longer than 4 GiB")));
    }
    Ok(())
}

/// Call `emit(start, end)` with the byte bounds of each word of `text`, in order.
pub fn for_each_word(text: &str, emit: impl FnMut(usize, usize)) {
    let mut join = NumberJoin { bytes: text.as_bytes(), pending: None, emit };
    if text.is_ascii() {
        scan_ascii(text.as_bytes(), |start, end, has_digit| {
            join.push(start, end, has_digit);
        });
    } else {
        scan_unicode(text, |start, end, has_digit| {
            join.push(start, end, has_digit);
        });
    }
    join.finish();
}

/// The rule that keeps number-like expressions whole, over the stream of UAX #29 words.
struct NumberJoin<'a, F: FnMut(usize, usize)> {
    bytes: &'a [u8],
    /// A word not emitted yet: start, end, and whether its last piece holds a digit.
    pending: Option<(usize, usize, bool)>,
    emit: F,
}

impl<F: FnMut(usize, usize)> NumberJoin<'_, F> {
    fn push(&mut self, start: usize, end: usize, has_digit: bool) {
        if let Some((first, last, digit)) = self.pending {
            let joined =
                digit && has_digit && start == last + 1 && matches!(self.bytes[last], b'-' | b'/' | b'.' | b':');
            if joined {
                self.pending = Some((first, end, true));
                return;
            }
            (self.emit)(first, last);
        }
        self.pending = Some((start, end, has_digit));
    }

    fn finish(&mut self) {
        if let Some((first, last, _)) = self.pending.take() {
            (self.emit)(first, last);
        }
    }
}

/// The full rule: UAX #29 segments that hold a letter or a digit.
pub fn scan_unicode(text: &str, mut emit: impl FnMut(usize, usize, bool)) {
    for (start, segment) in text.split_word_bound_indices() {
        let has_digit = segment.chars().any(char::is_numeric);
        if has_digit || segment.chars().any(char::is_alphabetic) {
            // UAX #29 hangs a combining mark on whatever stands before it. Some marks count as letters (Thai vowels), so
            // a segment can be a space with a "letter" on it; words hold no white space, which token alignment rests on.
            let word = segment.trim_start();
            let end = start + segment.len();
            emit(end - word.len(), end, has_digit);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Other,
    Letter,
    Digit,
    Underscore,
}

const CLASSES: [Class; 128] = {
    let mut classes = [Class::Other; 128];
    let mut byte = 0u8;
    while byte < 128 {
        classes[byte as usize] = match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            b'_' => Class::Underscore,
            _ => Class::Other,
        };
        byte += 1;
    }
    classes
};

/// UAX #29 words of ASCII text: runs of letters, digits and `_`; `.` and `'` stay inside a word between two letters or two
/// digits, `:` between two letters, `,` and `;` between two digits.
pub fn scan_ascii(bytes: &[u8], mut emit: impl FnMut(usize, usize, bool)) {
    let class = |at: usize| bytes.get(at).map_or(Class::Other, |&byte| CLASSES[(byte & 127) as usize]);
    let mut at = 0;
    while at < bytes.len() {
        if class(at) == Class::Other {
            at += 1;
            continue;
        }
        let start = at;
        let (mut has_digit, mut has_letter) = (false, false);
        loop {
            let here = class(at);
            match here {
                Class::Letter => has_letter = true,
                Class::Digit => has_digit = true,
                Class::Underscore => {}
                Class::Other => {
                    let (before, after) = (class(at - 1), class(at + 1));
                    let inside = before == after
                        && match bytes.get(at) {
                            Some(b'.' | b'\'') => before == Class::Letter || before == Class::Digit,
                            Some(b':') => before == Class::Letter,
                            Some(b',' | b';') => before == Class::Digit,
                            _ => false,
                        };
                    if !inside {
                        break;
                    }
                }
            }
            at += 1;
        }
        if has_digit || has_letter {
            emit(start, at, has_digit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        for_each_word(text, |start, end| found.push(&text[start..end]));
        found
    }

    #[test]
    fn words_of_hand_worked_texts() {
        let table: &[(&str, &[&str])] = &[
            ("", &[]),
            (" .,; ", &[]),
            ("Mr. Smith's BP 120/80", &["Mr", "Smith's", "BP", "120/80"]),
            ("2021-03-04 at 10:45", &["2021-03-04", "at", "10:45"]),
            ("555-123-4567.", &["555-123-4567"]),
            ("post-op COVID-19", &["post", "op", "COVID", "19"]),
            ("1,234.5 mg", &["1,234.5", "mg"]),
            ("A1-B2/C3", &["A1-B2/C3"]),
            ("12--30", &["12", "30"]),
            ("été œdème", &["été", "œdème"]),
            ("___", &[]),
            ("a \u{e34}", &["a", "\u{e34}"]),
        ];
        for (text, expected) in table {
            assert_eq!(&words(text), expected, "{text:?}");
        }
    }

    #[test]
    fn ascii_scanner_matches_the_full_rule() {
        let alphabet = b"aZ09_.':,;-/ \n\0@";
        let mut state = 1u64;
        for _ in 0..200_000 {
            let mut text = String::new();
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let length = (state >> 60) as usize;
            for _ in 0..length {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                text.push(alphabet[(state >> 33) as usize % alphabet.len()] as char);
            }
            let (mut fast, mut full) = (Vec::new(), Vec::new());
            scan_ascii(text.as_bytes(), |a, b, c| fast.push((a, b, c)));
            scan_unicode(&text, |a, b, c| full.push((a, b, c)));
            assert_eq!(fast, full, "{text:?}");
        }
    }
}
