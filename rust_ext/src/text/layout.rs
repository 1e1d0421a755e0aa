//! What a layout does to words and numbers, undone: letters with spaces between, numbers broken over a line.
//!
//! `D U P O N T` is read as DUPONT and `J E A N  D U P O N T` as two words: letters with one gap between each and the next, and wider
//! gaps between words. `123-45-` above `6789` is read as one number, for a number does not end in its sign; a number without a sign at
//! the end of a line is one with the digits below where the line is wrapped there: it is as long as lines of this text get, so that
//! the next word did not fit.

use memchr::{memchr, memchr_iter};

use crate::text::byte_features::ByteFeatures;
use crate::text::escapes::Escape;
use crate::text::plain_spans::spaces_behind_letters;

/// Letters that must stand alone, with one gap between each and the next, to be a word.
const MIN_APART: usize = 4;
/// Letters of a word next to such a word.
const MIN_BESIDE: usize = 2;
/// Spaces between two letters, and between two words of spaced letters.
const MAX_GAP: usize = 2;
const MAX_WORD_GAP: usize = 8;
/// Bytes of the longest line of a text that is wrapped.
const WRAPPED: std::ops::RangeInclusive<usize> = 60..=160;
/// Spaces with which the lower part of a broken number may be indented.
const MAX_INDENT: usize = 8;

/// What the layout put between letters and digits, in order.
pub fn edits(text: &str, features: ByteFeatures) -> Vec<Escape> {
    let mut edits = if features.spaced { close_up(text) } else { Vec::new() };
    if features.broken {
        let num_spaced = edits.len();
        breaks(text.as_bytes(), &mut edits);
        if num_spaced > 0 {
            edits.sort_unstable_by_key(|edit| edit.start);
        }
    }
    edits
}

/// A letter or digit of ASCII, or any byte beyond.
fn is_word(byte: Option<&u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii())
}

/// The gaps of spaced letters: those between letters are left out, those between words are one space.
fn close_up(text: &str) -> Vec<Escape> {
    let bytes = text.as_bytes();
    let (mut edits, mut from) = (Vec::new(), 0);
    for space in spaces_behind_letters(bytes) {
        if space < from {
            continue;
        }
        let Some(first) = text[..space].chars().next_back().filter(|c| c.is_uppercase()) else { continue };
        let start = space - first.len_utf8();
        if start < from || start > 0 && is_word(bytes.get(start - 1)) {
            continue;
        }
        let words = spaced_words(text, start);
        let Some(end) = words.last().map(|word| word.end) else { continue };
        if words.iter().all(|word| word.num_letters < MIN_APART) {
            // Nor are words long enough that begin further in: they are the ends of these. The last letter may begin others.
            from = text[..end].char_indices().next_back().map_or(end, |(last, _)| last);
            continue;
        }
        let mut before: Option<usize> = None;
        for word in &words {
            if let Some(before) = before {
                edits.push(Escape { start: before, end: word.start, char: Some(' ') });
            }
            let mut at = word.start;
            while let Some(letter) = text[at..word.end].chars().next() {
                at += letter.len_utf8();
                if at < word.end {
                    edits.push(Escape { start: at, end: at + word.gap, char: None });
                    at += word.gap;
                }
            }
            before = Some(word.end);
        }
        from = end;
    }
    edits
}

/// Letters with one gap between each and the next.
struct SpacedWord {
    start: usize,
    end: usize,
    gap: usize,
    num_letters: usize,
}

/// The words of spaced letters that begin at a capital: one, and those behind wider gaps.
fn spaced_words(text: &str, start: usize) -> Vec<SpacedWord> {
    let mut words: Vec<SpacedWord> = Vec::new();
    let mut at = start;
    while let Some(word) = spaced_word(text, at) {
        if words.last().is_some_and(|last| last.gap != word.gap) {
            break;
        }
        let (end, gap) = (word.end, word.gap);
        words.push(word);
        let wider = num_spaces(text, end);
        let next = text[end + wider..].chars().next();
        if wider <= gap || wider > MAX_WORD_GAP || !next.is_some_and(char::is_uppercase) {
            break;
        }
        at = end + wider;
    }
    words
}

fn num_spaces(text: &str, at: usize) -> usize {
    text.as_bytes()[at..].iter().take(MAX_WORD_GAP + 1).take_while(|byte| **byte == b' ').count()
}

fn spaced_word(text: &str, start: usize) -> Option<SpacedWord> {
    let first = text[start..].chars().next().filter(|c| c.is_uppercase())?;
    let mut end = start + first.len_utf8();
    let gap = num_spaces(text, end);
    if !(1..=MAX_GAP).contains(&gap) {
        return None;
    }
    // One case behind the first letter: "I am a b" is no word.
    let (mut small, mut num_letters) = (None, 1);
    while num_spaces(text, end) == gap {
        let from = end + gap;
        let Some(letter) = text[from..].chars().next().filter(|c| c.is_uppercase() || c.is_lowercase()) else { break };
        let to = from + letter.len_utf8();
        if is_word(text.as_bytes().get(to)) || small.is_some_and(|small| small != letter.is_lowercase()) {
            break;
        }
        small = Some(letter.is_lowercase());
        (end, num_letters) = (to, num_letters + 1);
    }
    (num_letters >= MIN_BESIDE).then_some(SpacedWord { start, end, gap, num_letters })
}

/// The ends of lines within a number: behind its sign they are left out, in a wrapped line they are a space.
fn breaks(bytes: &[u8], edits: &mut Vec<Escape>) {
    let mut longest = None;
    let mut line = 0;
    for newline in memchr_iter(b'\n', bytes) {
        let (start, end) = (line, newline - usize::from(bytes[line..newline].ends_with(b"\r")));
        line = newline + 1;
        let indent = bytes[line..].iter().take(MAX_INDENT + 1).take_while(|byte| **byte == b' ').count();
        let below = line + indent;
        if indent > MAX_INDENT || !bytes.get(below).is_some_and(u8::is_ascii_digit) {
            continue;
        }
        let char = match bytes[start..end] {
            [.., b'0'..=b'9', b'-' | b'/'] => None,
            [.., b'0'..=b'9'] if is_wrapped(bytes, end - start, below, &mut longest) => Some(' '),
            _ => continue,
        };
        edits.push(Escape { start: end, end: below, char });
    }
}

/// Whether the word at `below` had no room in the line of `length` bytes before it.
fn is_wrapped(bytes: &[u8], length: usize, below: usize, longest: &mut Option<usize>) -> bool {
    let longest = *longest.get_or_insert_with(|| longest_line(bytes));
    let word = bytes[below..].iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
    WRAPPED.contains(&longest) && length + 1 + word > longest
}

fn longest_line(bytes: &[u8]) -> usize {
    let (mut from, mut longest) = (0, 0);
    while from < bytes.len() {
        let length = memchr(b'\n', &bytes[from..]).unwrap_or(bytes.len() - from);
        longest = longest.max(length - usize::from(bytes[from..from + length].ends_with(b"\r")));
        from += length + 1;
    }
    longest
}
