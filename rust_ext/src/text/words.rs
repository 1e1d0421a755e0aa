//! Words: the units of text whose support is counted.
//!
//! A word is a segment of Unicode word segmentation (UAX #29) that contains a letter or a digit (Unicode's `Alphabetic` or a
//! number), without leading white space. Four additional rules apply:
//!
//! - **A single `-`, `/`, `.` or `:` between two words that both hold a digit joins them**, so that a date, a time, a phone
//!   number or a record number (`2021-03-04`, `12/05`, `555-123-4567`, `10:45`) is one word and not its pieces.
//! - **A run of counted symbols outside such words is a word** (`characters::is_counted_symbol`): a name of private-use
//!   characters, or an emoji sequence, is as much one person's own as a rare word.
//! - **No white space is in a word**: the narrow no-break space of French typography (U+202F) joins letters by UAX #29.
//! - **No default-ignorable character ends a word** (UAX #29 ends words at the zero-width space), except next to a letter of a
//!   script without spaces, where it separates words.
//!
//! Stretches of ASCII and Latin letters are cut with bit masks of 64 bytes (`classes`), which is many times as fast. A stretch
//! between two white spaces with any other character takes the full rule. Tests compare both with the full rule.

mod masks;
#[cfg(test)]
mod tests;

use std::ops::Range;

use rayon::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

use crate::error::{Error, Result};
use crate::pool::rows;
use crate::text::characters::{is_counted_symbol, is_default_ignorable, is_unspaced, splits_unseen};
use crate::text::classes::{Block, InstructionSet, classify};
use crate::text::texts::Texts;
#[cfg(target_arch = "x86_64")]
use masks::scan_bmi;
use masks::scan_masks;

/// Words (or other stretches of bytes) of a batch of documents: word `w` of document `d` is `w` in `doc_offsets[d]..doc_offsets[d + 1]`.
pub struct Words {
    pub doc_offsets: Vec<i64>,
    /// Byte offsets inside the word's own document.
    pub starts: Vec<u32>,
    pub ends: Vec<u32>,
}

impl Words {
    /// From the bounds of each document's words.
    pub fn from_parts(parts: &[Vec<Bounds>]) -> Self {
        let (mut num_words, mut doc_offsets) = (0, Vec::with_capacity(parts.len() + 1));
        doc_offsets.push(0);
        for part in parts {
            num_words += part.len();
            doc_offsets.push(num_words as i64);
        }
        let mut words = Words { doc_offsets, starts: vec![0; num_words], ends: vec![0; num_words] };
        let (mut starts, mut ends) = (&mut words.starts[..], &mut words.ends[..]);
        let mut jobs = Vec::with_capacity(parts.len() / PARTS_AT_ONCE + 1);
        for parts in parts.chunks(PARTS_AT_ONCE) {
            let (own_starts, own_ends);
            let len = parts.iter().map(Vec::len).sum();
            (own_starts, starts) = starts.split_at_mut(len);
            (own_ends, ends) = ends.split_at_mut(len);
            jobs.push((parts, own_starts, own_ends));
        }
        jobs.into_par_iter().with_max_len(1).for_each(|(parts, starts, ends)| {
            for ((start, end), bounds) in starts.iter_mut().zip(ends).zip(parts.iter().flatten()) {
                (*start, *end) = *bounds;
            }
        });
        words
    }

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

/// Documents whose words one thread puts in their place.
const PARTS_AT_ONCE: usize = 32;

/// Segment every document, in parallel.
pub fn segment(texts: &Texts, set: InstructionSet) -> Result<Words> {
    let parts: Vec<Vec<Bounds>> = rows(texts.len())
        .map_init(
            || Scanner::new(set),
            |scanner, row| {
                let mut bounds = Vec::new();
                let text = texts.get(row);
                check_length(text, row)?;
                scanner.words(text, &mut bounds);
                Ok(bounds)
            },
        )
        .collect::<Result<_>>()?;
    Ok(Words::from_parts(&parts))
}

/// Offsets inside a document are 32-bit.
pub fn check_length(text: &str, row: usize) -> Result<()> {
    if text.len() > u32::MAX as usize {
        return Err(Error::Corpus(format!("column text: row {row} is longer than 4 GiB")));
    }
    Ok(())
}

/// First byte of a word, and the byte after its last.
pub type Bounds = (u32, u32);

/// Cuts texts into words; keeps its scratch memory from text to text.
pub struct Scanner {
    set: InstructionSet,
    blocks: Vec<Block>,
    /// Bits of the bytes inside a word, by block.
    inside: Vec<u64>,
    /// Where characters stand that the masks do not know, one at least for each stretch between white spaces that has any.
    strange: Vec<usize>,
    /// Room for `as_seen`.
    seen: String,
}

impl Scanner {
    pub fn new(set: InstructionSet) -> Self {
        Self { set, blocks: Vec::new(), inside: Vec::new(), strange: Vec::new(), seen: String::new() }
    }

    /// Append the bounds of each word of `text` (under 4 GiB), in order.
    ///
    /// These are the words of the full rule, by masks wherever they know every character. No word reaches across an ASCII
    /// white space, and what stands before one changes nothing after it: a mark that hangs on a space is cut off it either way.
    pub fn words(&mut self, text: &str, words: &mut Vec<Bounds>) {
        let bytes = text.as_bytes();
        self.strange.clear();
        if !classify(bytes, &mut self.blocks, self.set) {
            self.mark_latin(bytes);
        }
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        let mut done = 0;
        let strange = std::mem::take(&mut self.strange);
        for &at in &strange {
            if at < done {
                continue;
            }
            let known = bytes[done..at].iter().rposition(is_space).map_or(done, |space| done + space + 1);
            let end = bytes[at..].iter().position(is_space).map_or(bytes.len(), |space| at + space);
            self.scan_masks(bytes, done, known, words);
            let mut join = NumberJoin::new(text, words);
            scan_unicode(&text[known..end], &mut self.seen, |start, end, digit| {
                join.push(known + start, known + end, digit);
            });
            done = end;
        }
        self.strange = strange;
        self.scan_masks(bytes, done, bytes.len(), words);
    }

    /// Letters of two bytes (U+00C0 to U+024F, less × and ÷) join the letters; every other character is strange.
    fn mark_latin(&mut self, bytes: &[u8]) {
        let mut at = 0;
        for number in 0..self.blocks.len() {
            loop {
                at = at.max(number * 64);
                let skip = (at - number * 64) as u32;
                let left = self.blocks[number].not_ascii.checked_shr(skip).unwrap_or(0);
                if left == 0 {
                    break;
                }
                at += left.trailing_zeros() as usize;
                match (bytes[at], bytes.get(at + 1)) {
                    (0xc3, Some(0x97 | 0xb7)) => {
                        self.strange.push(at);
                        at += 2;
                    }
                    (0xc3..=0xc8, _) | (0xc9, Some(0x80..=0x8f)) => {
                        for byte in [at, at + 1] {
                            self.blocks[byte / 64].letter |= 1 << (byte % 64);
                        }
                        at += 2;
                    }
                    _ => {
                        self.strange.push(at);
                        // The rest of this stretch is not looked at by masks.
                        at += 1;
                    }
                }
            }
        }
    }

    /// The words of a stretch that begins and ends at the text's ends or at white space.
    fn scan_masks(&mut self, bytes: &[u8], from: usize, to: usize, words: &mut Vec<Bounds>) {
        if from < to {
            match self.set {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the function asks for a processor with AVX2 and BMI1. Only `InstructionSet::detect` makes this value
                // (`parse` chooses among its answers), and it does so after asking the processor for both.
                InstructionSet::Avx2 => unsafe { scan_bmi(bytes, &self.blocks, from, to, &mut self.inside, words) },
                _ => scan_masks(bytes, &self.blocks, from, to, &mut self.inside, words),
            }
        }
    }
}

// The full rule: UAX #29 with our own four rules, on any text. The oracle of `masks`, and its way out.

/// The rule that keeps number-like expressions whole, over the stream of UAX #29 words of a stretch without white space.
struct NumberJoin<'a> {
    text: &'a str,
    words: &'a mut Vec<Bounds>,
    /// Where the last piece of the last word ends, and whether it holds a digit.
    last: usize,
    digit: bool,
}

impl<'a> NumberJoin<'a> {
    fn new(text: &'a str, words: &'a mut Vec<Bounds>) -> Self {
        Self { text, words, last: 0, digit: false }
    }

    fn push(&mut self, start: usize, end: usize, has_digit: bool) {
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
fn scan_unicode(text: &str, room: &mut String, mut emit: impl FnMut(usize, usize, bool)) {
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
/// not, but where one stands next to a letter of a script without spaces: there it separates words. The narrow no-break space
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
