//! Words: what support is counted on.
//!
//! A word is a segment of Unicode word segmentation (UAX #29) that holds a letter or a digit (Unicode's `Alphabetic` or a
//! number), less white space at its front. On top of it stands one rule of
//! our own: **a single `-`, `/`, `.` or `:` between two words that both hold a digit joins them**, so that a date, a time, a
//! phone number or a record number (`2021-03-04`, `12/05`, `555-123-4567`, `10:45`) is one word and not its pieces.
//!
//! Stretches of ASCII and Latin letters take a scanner of their own, about ten times as fast; what lies between two white
//! spaces and holds any other character takes the full rule. Tests hold both to the full rule's answer.

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
    scan(text, |start, end, has_digit| join.push(start, end, has_digit));
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

/// The words of the full rule, by the fast scanner wherever it knows every character.
///
/// No word reaches across an ASCII white space, and what stands before one changes nothing after it: a mark that hangs on a
/// space is cut off it either way.
fn scan(text: &str, mut emit: impl FnMut(usize, usize, bool)) {
    let bytes = text.as_bytes();
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    let mut done = 0;
    while done < bytes.len() {
        let strange = first_strange(bytes, done);
        let known = match strange {
            None => bytes.len(),
            Some(at) => bytes[done..at].iter().rposition(is_space).map_or(done, |space| done + space + 1),
        };
        scan_latin(&bytes[done..known], |start, end, has_digit| emit(done + start, done + end, has_digit));
        done = known;
        if let Some(at) = strange {
            let end = bytes[at..].iter().position(is_space).map_or(bytes.len(), |space| at + space);
            scan_unicode(&text[known..end], |start, end, has_digit| emit(known + start, known + end, has_digit));
            done = end;
        }
    }
}

/// Where the first character stands, from `at` on, that is neither ASCII nor a Latin letter of two bytes (U+00C0 to U+024F).
#[inline]
fn first_strange(bytes: &[u8], mut at: usize) -> Option<usize> {
    while at < bytes.len() {
        // Eight ASCII bytes at a time.
        while let Some(eight) = bytes.get(at..at + 8) {
            let eight =
                u64::from_ne_bytes([eight[0], eight[1], eight[2], eight[3], eight[4], eight[5], eight[6], eight[7]]);
            if eight & 0x8080_8080_8080_8080 != 0 {
                break;
            }
            at += 8;
        }
        match bytes.get(at..)? {
            [0..=127, ..] => at += 1,
            [0xc3, 0x97 | 0xb7, ..] => return Some(at), // × and ÷
            [0xc3..=0xc8, _, ..] | [0xc9, 0x80..=0x8f, ..] => at += 2,
            [_, ..] => return Some(at),
            [] => return None,
        }
    }
    None
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

/// Of bytes: where `first_strange` finds nothing, every byte beyond ASCII belongs to a letter.
const CLASSES: [Class; 256] = {
    let mut classes = [Class::Letter; 256];
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

/// UAX #29 words of ASCII and Latin letters: runs of letters, digits and `_`; `.` and `'` stay inside a word between two letters or two
/// digits, `:` between two letters, `,` and `;` between two digits.
fn scan_latin(bytes: &[u8], mut emit: impl FnMut(usize, usize, bool)) {
    let class = |at: usize| bytes.get(at).map_or(Class::Other, |&byte| CLASSES[byte as usize]);
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

    /// Texts of up to 15 characters of an alphabet, the same each time.
    fn texts(alphabet: &[char], number: usize) -> impl Iterator<Item = String> {
        let mut state = 1u64;
        let mut draw = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        let alphabet = alphabet.to_vec();
        (0..number).map(move |_| {
            let length = draw() % 16;
            (0..length).map(|_| alphabet[draw() % alphabet.len()]).collect()
        })
    }

    fn assert_full_rule(text: &str) {
        let (mut fast, mut full) = (Vec::new(), Vec::new());
        scan(text, |a, b, c| fast.push((a, b, c)));
        scan_unicode(text, |a, b, c| full.push((a, b, c)));
        assert_eq!(fast, full, "{text:?}");
    }

    #[test]
    fn fast_scanner_matches_the_full_rule() {
        let ascii: Vec<char> = "aZ09_.':,;-/ \n\0@".chars().collect();
        let mixed: Vec<char> =
            "aé9ßĀɏ.':,_- \n\t\r×÷’·²½\u{a0}\u{ad}\u{301}\u{e34}\u{200d}\u{5d0}\"田한😀Ⓜ\u{1f1eb}\u{250}ª"
                .chars()
                .collect();
        texts(&ascii, 200_000).chain(texts(&mixed, 400_000)).for_each(|text| assert_full_rule(&text));
    }

    #[test]
    fn fast_scanner_matches_the_full_rule_around_every_character() {
        for c in (0..0x3000).filter_map(char::from_u32) {
            for text in [format!("a{c}b"), format!("9{c}9"), format!("a {c}b"), format!("{c}"), format!("é{c} 1")] {
                assert_full_rule(&text);
            }
        }
    }
}
