//! The full rule: UAX #29 with our own four rules, on any text. The oracle of `masks`, and its way out.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use super::Bounds;
use crate::text::characters::{is_counted_symbol, is_default_ignorable, is_unspaced, splits_unseen};

/// The rule that keeps number-like expressions whole, over the stream of UAX #29 words of a stretch without white space.
pub(super) struct NumberJoin<'a> {
    text: &'a str,
    words: &'a mut Vec<Bounds>,
    /// Where the last piece of the last word ends, and whether it holds a digit.
    last: usize,
    digit: bool,
}

impl<'a> NumberJoin<'a> {
    pub(super) fn new(text: &'a str, words: &'a mut Vec<Bounds>) -> Self {
        Self { text, words, last: 0, digit: false }
    }

    pub(super) fn push(&mut self, start: usize, end: usize, has_digit: bool) {
        let joined = has_digit && self.digit && is_joiner(&self.text[self.last..start]);
        match self.words.last_mut() {
            Some(word) if joined => word.1 = end as u32,
            _ => self.words.push((start as u32, end as u32)),
        }
        (self.last, self.digit) = (end, has_digit);
    }
}

const NARROW_SPACE: char = '\u{202f}';

/// Whether a single `-`, `/`, `.` or `:` is all that is seen of what stands between two words.
fn is_joiner(between: &str) -> bool {
    match between.strip_prefix(['-', '/', '.', ':']) {
        Some(rest) => rest.is_empty() || rest.chars().all(is_default_ignorable),
        None => false,
    }
}

/// The full rule: UAX #29 segments that hold a letter or a digit, and runs of counted symbols between them.
pub(super) fn scan_unicode(text: &str, room: &mut String, mut emit: impl FnMut(usize, usize, bool)) {
    let mut symbols: Option<Range<usize>> = None;
    for (start, segment) in as_seen(text, room).split_word_bound_indices() {
        let end = start + segment.len();
        let has_digit = segment.chars().any(char::is_numeric);
        let is_word = has_digit || segment.chars().any(char::is_alphabetic);
        if !is_word && segment.starts_with(is_counted_symbol) {
            match &mut symbols {
                Some(run) if run.end == start => run.end = end,
                _ => flush(symbols.replace(start..end), &mut emit),
            }
        } else if is_word {
            flush(symbols.take(), &mut emit);
            // UAX #29 hangs a combining mark on whatever stands before it. Some marks count as letters (Thai vowels), so
            // a segment can be a space with a "letter" on it; words hold no white space, which token alignment rests on.
            emit(end - segment.trim_start().len(), end, has_digit);
        }
    }
    flush(symbols, &mut emit);
}

fn flush(symbols: Option<Range<usize>>, emit: &mut impl FnMut(usize, usize, bool)) {
    if let Some(run) = symbols {
        emit(run.start, run.end, false);
    }
}

/// The text as UAX #29 shall see it, byte for byte as long. Each character that [`splits_unseen`] is replaced by one that does
/// not, but where one stands beside a letter of a script without spaces: there it parts words. The narrow no-break space
/// is replaced by white space that joins nothing.
fn as_seen<'a>(text: &'a str, room: &'a mut String) -> &'a str {
    if !text.contains(|c| c == NARROW_SPACE || splits_unseen(c)) {
        return text;
    }
    room.clear();
    // Of the characters that are seen, the last one before a run of ignorable ones, and the first one after it.
    let (mut before, mut after) = (None, None);
    let mut after_at = 0;
    for (at, c) in text.char_indices() {
        if !is_default_ignorable(c) {
            before = Some(c);
            room.push(if c == NARROW_SPACE { '\u{2003}' } else { c });
            continue;
        }
        if after_at <= at {
            let seen = text[at..].char_indices().find(|&(_, c)| !is_default_ignorable(c));
            (after_at, after) = seen.map_or((text.len(), None), |(ahead, c)| (at + ahead, Some(c)));
        }
        let parts_words = [before, after].into_iter().flatten().any(is_unspaced);
        room.push(match c.len_utf8() {
            _ if parts_words || !splits_unseen(c) => c,
            3 => '\u{2060}',
            _ => '\u{e0001}',
        });
    }
    room
}
