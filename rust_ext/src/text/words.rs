//! Words: what support is counted on.
//!
//! A word is a segment of Unicode word segmentation (UAX #29) that holds a letter or a digit (Unicode's `Alphabetic` or a
//! number), less white space at its front. On top of it stand four rules of our own:
//!
//! - **A single `-`, `/`, `.` or `:` between two words that both hold a digit joins them**, so that a date, a time, a phone
//!   number or a record number (`2021-03-04`, `12/05`, `555-123-4567`, `10:45`) is one word and not its pieces.
//! - **A run of counted symbols outside such words is a word** (`characters::is_counted_symbol`): a name of private-use
//!   characters, or an emoji sequence, is as much one person's own as a rare word.
//! - **No white space is in a word**: the narrow no-break space of French typography (U+202F) joins letters by UAX #29.
//! - **No default-ignorable character ends a word** (UAX #29 ends words at the zero-width space), except beside a letter of a
//!   script without spaces, where it is what parts words.
//!
//! Stretches of ASCII and Latin letters are cut by bit masks of 64 bytes (`classes`), many times as fast; what lies between
//! two white spaces and holds any other character takes the full rule. Tests hold both to the full rule's answer.

use std::ops::Range;

use rayon::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

use crate::error::{Error, Result};
use crate::pool::rows;
use crate::text::characters::{is_counted_symbol, is_default_ignorable, is_unspaced, splits_unseen};
use crate::text::classes::{Block, InstructionSet, classify};
use crate::text::texts::Texts;

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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1")]
fn scan_bmi(bytes: &[u8], blocks: &[Block], from: usize, to: usize, inside: &mut Vec<u64>, words: &mut Vec<Bounds>) {
    scan_masks(bytes, blocks, from, to, inside, words);
}

/// UAX #29 words of ASCII and Latin letters: runs of letters, digits and `_`; `.` and `'` stay inside a word between two
/// letters or two digits, `:` between two letters, `,` and `;` between two digits. Runs of `_` alone are none, and words with
/// digits are joined.
#[inline(always)]
fn scan_masks(bytes: &[u8], blocks: &[Block], from: usize, to: usize, inside: &mut Vec<u64>, words: &mut Vec<Bounds>) {
    let first = from / 64;
    let blocks = &blocks[first..to.div_ceil(64)];
    mark_inside(blocks, inside);
    inside[0] &= !0 << (from % 64);
    if let left @ 1.. = to % 64 {
        inside[blocks.len() - 1] &= !(!0 << left);
    }
    let run = Run { bytes, inside, base: first * 64 };
    // Bounds are two numbers, so the places where runs begin and end are bounds one after the other.
    let mut edge_before = 0;
    // Where a run of `_` that is no word ends.
    let mut dropped = 0;
    let mut open: Option<u32> = None;
    for (number, block) in blocks.iter().enumerate() {
        let here = run.inside[number];
        let starts_after = here << 1 | if number > 0 { run.inside[number - 1] >> 63 } else { 0 };
        let ends_before = here >> 1 | run.inside.get(number + 1).map_or(0, |next| next << 63);
        let base = run.base + number * 64;
        let mut shown = here;
        let joining = block.joiner & !here & starts_after & ends_before;
        if joining != 0 {
            shown |= run.joined(joining, base);
        }
        let blank = block.underscore & here & !starts_after;
        if blank != 0 || dropped > base {
            shown &= !run.blank(blank, base, &mut dropped);
        }
        let mut edges = shown ^ (shown << 1 | edge_before);
        edge_before = shown >> 63;
        if edges == 0 {
            continue;
        }
        let at = |edges: u64| base as u32 + edges.trailing_zeros();
        if let Some(start) = open.take() {
            words.push((start, at(edges)));
            edges &= edges - 1;
        }
        push_pairs(edges, base as u32, words, &mut open);
    }
    if let Some(start) = open {
        words.push((start, to as u32));
    }
}

/// Bounds from the places of the bits of `edges`, in pairs; `open` is the place of the last one where their number is odd.
#[inline(always)]
fn push_pairs(mut edges: u64, base: u32, words: &mut Vec<Bounds>, open: &mut Option<u32>) {
    let num_edges = edges.count_ones() as usize;
    // The compiler would check the length at each push; up to 32 words are in a block.
    words.reserve(33);
    let length = words.len();
    let room = words.spare_capacity_mut();
    let mut done = 0;
    let mut next = || {
        let place = base.wrapping_add(edges.trailing_zeros());
        edges &= edges.wrapping_sub(1);
        place
    };
    // Four at a time without a look at how many are left: which of them count is said at the end.
    for four in room[..32].as_chunks_mut::<4>().0 {
        for pair in four {
            pair.write((next(), next()));
        }
        done += 8;
        if done >= num_edges {
            break;
        }
    }
    if num_edges % 2 == 1 {
        // SAFETY: the loop above wrote pairs until it had written at least as many places as there are edges, so pair
        // `num_edges / 2`, whose first half is the last edge, is written. The index is below 32, as 64 is even.
        *open = Some(unsafe { room[num_edges / 2].assume_init() }.0);
    }
    // SAFETY: the pairs before `num_edges / 2 <= 32` were written by the loop above, and `reserve` made room for 33.
    unsafe { words.set_len(length + num_edges / 2) };
}

/// Bits of the bytes that are inside a run, with what stands between two of its letters or digits.
#[inline(always)]
fn mark_inside(blocks: &[Block], inside: &mut Vec<u64>) {
    inside.clear();
    let mut before = Block::default();
    inside.extend(blocks.iter().enumerate().map(|(number, block)| {
        let mut bits = block.letter | block.digit | block.underscore;
        if block.stop | block.colon | block.comma != 0 {
            let after = blocks.get(number + 1).copied().unwrap_or_default();
            let between = |mask: u64, before: u64, after: u64| (mask << 1 | before >> 63) & (mask >> 1 | after << 63);
            let letters = between(block.letter, before.letter, after.letter);
            let digits = between(block.digit, before.digit, after.digit);
            bits |= block.stop & (letters | digits) | block.colon & letters | block.comma & digits;
        }
        before = *block;
        bits
    }));
}

/// A stretch and which of its bytes are inside a word.
struct Run<'a> {
    bytes: &'a [u8],
    inside: &'a [u64],
    /// Place of the first bit in the text.
    base: usize,
}

impl Run<'_> {
    fn is_inside(&self, at: usize) -> bool {
        at >= self.base && self.inside.get((at - self.base) / 64).is_some_and(|bits| bits >> (at % 64) & 1 == 1)
    }

    /// Of these single characters between two words those that join them, as both hold a digit.
    #[cold]
    fn joined(&self, mut joining: u64, base: usize) -> u64 {
        let mut joined = 0;
        while joining != 0 {
            let bit = joining.trailing_zeros();
            let at = base + bit as usize;
            let mut left = (self.base..at).rev().take_while(|&at| self.is_inside(at));
            let mut right = (at + 1..).take_while(|&at| self.is_inside(at));
            let is_digit = |at: usize| self.bytes[at].is_ascii_digit();
            if left.any(is_digit) && right.any(is_digit) {
                joined |= 1 << bit;
            }
            joining &= joining - 1;
        }
        joined
    }

    /// The bits of runs of `_` alone, which begin at `blank` or reach here from a block before.
    #[cold]
    fn blank(&self, mut blank: u64, base: usize, dropped: &mut usize) -> u64 {
        let up_to = |end: usize| if end >= base + 64 { !0 } else { !(!0 << (end.max(base) - base)) };
        let mut bits = up_to(*dropped);
        while blank != 0 {
            let start = base + blank.trailing_zeros() as usize;
            let length = (start..).take_while(|&at| self.is_inside(at)).count();
            if self.bytes[start..start + length].iter().all(|&byte| byte == b'_') {
                *dropped = start + length;
                bits |= up_to(*dropped) & (!0 << (start - base));
            }
            blank &= blank - 1;
        }
        bits
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        let mut scanner = Scanner::new(InstructionSet::detect());
        let mut bounds = Vec::new();
        scanner.words(text, &mut bounds);
        found.extend(bounds.into_iter().map(|(start, end)| &text[start as usize..end as usize]));
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
            ("Z\u{e123}\u{e124}q", &["Z", "\u{e123}\u{e124}", "q"]),
            ("👩\u{200d}⚕\u{fe0f} ok 👍🏽👍", &["👩\u{200d}⚕\u{fe0f}", "ok", "👍🏽👍"]),
            ("🇫🇷🇨🇭 ⠓⠊ \u{378}", &["🇫🇷🇨🇭", "⠓⠊", "\u{378}"]),
            ("© € → + × ■ 𝄞", &[]),
            ("Du\u{200b}pont\u{200b}", &["Du\u{200b}pont\u{200b}"]),
            ("1\u{2060}2-\u{200b}0\u{ad}5", &["1\u{2060}2-\u{200b}0\u{ad}5"]),
            ("ก\u{200b}ข 田\u{200b}中", &["ก", "ข", "田", "中"]),
            ("カナ\u{200b}カナ", &["カナ", "カナ"]),
            ("Dupont\u{202f}! 10\u{202f}000 a\u{202f}\u{200b}b", &["Dupont", "10", "000", "a", "b"]),
        ];
        for (text, expected) in table {
            assert_eq!(&words(text), expected, "{text:?}");
        }
    }

    /// Texts of up to 15 characters (one in eight: 299) of an alphabet, the same each time.
    fn texts(alphabet: &[char], number: usize) -> impl Iterator<Item = String> {
        let mut state = 1u64;
        let mut draw = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        let alphabet = alphabet.to_vec();
        (0..number).map(move |_| {
            let length = if draw() % 8 == 0 { draw() % 300 } else { draw() % 16 };
            (0..length).map(|_| alphabet[draw() % alphabet.len()]).collect()
        })
    }

    fn assert_full_rule(text: &str) {
        let mut full = Vec::new();
        let mut join = NumberJoin::new(text, &mut full);
        scan_unicode(text, &mut String::new(), |start, end, digit| join.push(start, end, digit));
        for set in [InstructionSet::Table, InstructionSet::detect()] {
            let mut fast = Vec::new();
            Scanner::new(set).words(text, &mut fast);
            assert_eq!(fast, full, "{text:?}");
        }
    }

    #[test]
    fn fast_scanner_matches_the_full_rule() {
        let ascii: Vec<char> = "aZ09_.':,;-/ \n\0@".chars().collect();
        let mixed: Vec<char> =
            "aé9ßĀɏ.':,_- \n\t\r×÷’·²½\u{a0}\u{ad}\u{301}\u{e34}\u{200b}\u{200d}\u{5d0}\"田한😀Ⓜ\u{1f1eb}\u{250}ª\u{e000}\u{378}⠓€\u{202f}"
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
