//! Verbatim: does a text hold a stretch of `length` characters that a training text holds too?
//!
//! Texts are compared folded: without case, diacritics, control and invisible characters, every run of white space as one space, and
//! typographic quotes and dashes as plain ones. The filter knows every stretch of `length - 7` characters of every training
//! text that is long enough, by a keyed hash in a blocked Bloom filter: no text, and one byte a byte of training text. A
//! stretch of `length` characters matches when all 8 shorter ones in it are known, so
//!
//! - **nothing is missed**: a Bloom filter forgets nothing;
//! - text that shares no stretch of `length - 7` is reported with the eighth power of the filter's error: 1e-12 where that
//!   is 3%; what falls one character short of a match is reported with about twice the error itself.
//!
//! A filter may know the stretches of letters and digits alone as well, under another key: signs, white space and the ends of
//! lines then hide nothing, nor do (`Reading::Bare`) tags and the numbers that lines begin with.
//!
//! Every character is folded, hashed and looked up once, in a stream as in a whole text: there is only the stream.

use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::storage::buffer::prefetch;
use crate::storage::key::mix;
use crate::text::surface::Surface;

/// Shorter stretches that make up a match.
pub const NUM_HITS: usize = 8;
pub const LENGTHS: std::ops::RangeInclusive<usize> = 16..=4096;
const WORDS_PER_BLOCK: usize = 8;
/// Stretches whose blocks are fetched into the cache before they are needed.
const AHEAD: usize = 16;
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// The set of stretches, which many threads may add to; their order leaves no trace.
pub struct Filter {
    bits: Vec<AtomicU64>,
    length: usize,
    key: u64,
    /// It knows stretches of letters and digits too.
    letters: bool,
}

impl Filter {
    /// An empty filter for texts of so many bytes together.
    pub fn new(num_bytes: usize, length: usize, key: u64, letters: bool) -> Result<Self> {
        let num_blocks = (num_bytes * if letters { 2 } else { 1 }).div_ceil(WORDS_PER_BLOCK * 8).max(1);
        let bits = std::iter::repeat_with(AtomicU64::default).take(num_blocks * WORDS_PER_BLOCK).collect();
        Self::from_bits(bits, length, key, letters)
    }

    pub fn from_bits(bits: Vec<AtomicU64>, length: usize, key: u64, letters: bool) -> Result<Self> {
        if !LENGTHS.contains(&length) {
            return Err(Error::Policy(format!(
                "length: expected {} to {} characters, got {length}",
                LENGTHS.start(),
                LENGTHS.end()
            )));
        }
        if bits.is_empty() || !bits.len().is_multiple_of(WORDS_PER_BLOCK) || bits.len() / WORDS_PER_BLOCK > 1 << 32 {
            return Err(Error::Artifact(format!("verbatim filter: {} words are no whole blocks", bits.len())));
        }
        Ok(Self { bits, length, key, letters })
    }

    pub fn letters(&self) -> bool {
        self.letters
    }

    fn roller(&self, reading: Reading) -> Roller {
        let key = if reading == Reading::Whole { self.key } else { mix(self.key ^ BASE) };
        Roller::new(self.length + 1 - NUM_HITS, key)
    }

    pub fn length(&self) -> usize {
        self.length
    }

    pub fn key(&self) -> u64 {
        self.key
    }

    pub fn bits(&self) -> Vec<u64> {
        self.bits.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    pub fn num_bytes(&self) -> usize {
        self.bits.len() * 8
    }

    /// Add every stretch of a text that is long enough to hold a match; returns how many.
    pub fn add(&self, text: &str, scratch: &mut Scratch) -> usize {
        let added = self.add_read(text, Reading::Whole, scratch);
        added + if self.letters { self.add_read(text, Reading::Letters, scratch) } else { 0 }
    }

    fn add_read(&self, text: &str, reading: Reading, scratch: &mut Scratch) -> usize {
        let mut roller = self.roller(reading);
        let Scratch { folder, hashes } = scratch;
        folder.begin(reading);
        hashes.clear();
        for c in text.chars() {
            folder.fold(c, |c| hashes.extend(roller.push(c)));
        }
        if hashes.len() < NUM_HITS {
            return 0;
        }
        for (at, &hash) in hashes.iter().enumerate() {
            if let Some(&later) = hashes.get(at + AHEAD) {
                prefetch(&self.bits[self.block(later)]);
            }
            for (word, mask) in self.places(hash) {
                self.bits[word].fetch_or(mask, Ordering::Relaxed);
            }
        }
        hashes.len()
    }

    /// The first word of the block of a hash.
    #[inline]
    fn block(&self, hash: u64) -> usize {
        let num_blocks = (self.bits.len() / WORDS_PER_BLOCK) as u64;
        (((hash >> 32) * num_blocks) >> 32) as usize * WORDS_PER_BLOCK
    }

    /// Three bits in each of two words of its block.
    #[inline]
    fn places(&self, hash: u64) -> [(usize, u64); 2] {
        let (block, bits) = (self.block(hash), mix(hash ^ BASE));
        let first = (bits & 7) as usize;
        let second = (first + 1 + (bits >> 3) as usize % (WORDS_PER_BLOCK - 1)) % WORDS_PER_BLOCK;
        let mask = |from: u32| (0..3).fold(0, |mask, number| mask | 1u64 << (bits >> (from + 6 * number) & 63));
        [(block + first, mask(28)), (block + second, mask(46))]
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        self.places(hash).iter().all(|&(word, mask)| self.bits[word].load(Ordering::Relaxed) & mask == mask)
    }

    /// The share of stretches never added that the filter says it knows, over a million hashes.
    pub fn error(&self) -> f64 {
        let num = 1 << 20;
        (0..num).filter(|&number| self.contains(mix(mix(number) ^ self.key))).count() as f64 / num as f64
    }
}

/// What adding texts works with.
#[derive(Default)]
pub struct Scratch {
    folder: Folder,
    hashes: Vec<u64>,
}

/// What of a text is compared.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Reading {
    #[default]
    Whole,
    /// Letters and digits.
    Letters,
    /// The same without tags and without the numbers that lines begin with, which a training text may not have.
    Bare,
}

/// Characters of a tag at most: "<" may be a sign.
const TAG: u8 = 40;

/// Folds characters one by one; keeps what others than ASCII fold to.
#[derive(Default)]
struct Folder {
    memo: HashMap<char, Box<str>, FixedState>,
    /// Whether the character before was white space.
    space: bool,
    reading: Reading,
    /// Whether its line has had no letter yet.
    line_begins: bool,
    /// Characters that are left of a tag.
    tag: u8,
}

impl Folder {
    fn begin(&mut self, reading: Reading) {
        (self.space, self.reading, self.line_begins, self.tag) = (false, reading, true, 0);
    }

    /// Whether a character is a letter or digit that is compared.
    #[inline]
    fn is_read(&mut self, c: char) -> bool {
        if self.reading == Reading::Bare {
            self.line_begins |= c == '\n';
            if self.tag > 0 || c == '<' {
                self.tag = if c == '<' {
                    TAG
                } else if c == '>' || c == '\n' {
                    0
                } else {
                    self.tag - 1
                };
                return false;
            }
            self.line_begins &= !c.is_alphabetic();
            if self.line_begins && c.is_ascii_digit() {
                return false;
            }
        }
        c.is_alphanumeric()
    }

    #[inline]
    fn fold(&mut self, c: char, mut emit: impl FnMut(char)) {
        if self.reading != Reading::Whole {
            if self.is_read(c) {
                self.folded(c, |c| {
                    if c.is_alphanumeric() {
                        emit(c)
                    }
                });
            }
            return;
        }
        self.folded(c, emit);
    }

    #[inline]
    fn folded(&mut self, c: char, mut emit: impl FnMut(char)) {
        if c.is_whitespace() {
            if !self.space {
                emit(' ');
            }
            self.space = true;
            return;
        }
        if c.is_control() || c == char::REPLACEMENT_CHARACTER {
            return; // prints nothing, and many a tokenizer drops it, so a model says the text without it
        }
        if c.is_ascii() {
            self.space = false;
            emit(c.to_ascii_lowercase());
            return;
        }
        let folded = self.memo.entry(c).or_insert_with(|| match c {
            '\u{b4}' | '\u{2bc}' | '\u{2018}'..='\u{201b}' | '\u{2032}' | '\u{2039}' | '\u{203a}' => "'".into(),
            '\u{ab}' | '\u{bb}' | '\u{201c}'..='\u{201f}' | '\u{2033}' => "\"".into(),
            '\u{2010}'..='\u{2015}' | '\u{2043}' | '\u{2212}' | '\u{fe58}' => "-".into(),
            _ => Surface::Fold.apply(c.encode_utf8(&mut [0; 4])).into(),
        });
        // What folds to nothing does not part two white spaces.
        for c in folded.chars() {
            match c {
                ' ' if self.space => {}
                _ => emit(c),
            }
            self.space = c == ' ';
        }
    }
}

/// Hash of the last `length` characters.
struct Roller {
    key: u64,
    /// What each of the last characters adds, the oldest at `at`.
    values: Vec<u64>,
    at: usize,
    power: u64,
    hash: u64,
    full: bool,
}

impl Roller {
    fn new(length: usize, key: u64) -> Self {
        let power = (0..length).fold(1u64, |power, _| power.wrapping_mul(BASE));
        Self { key, values: vec![0; length], at: 0, power, hash: 0, full: false }
    }

    #[inline]
    fn push(&mut self, c: char) -> Option<u64> {
        let value = mix(u64::from(c) ^ self.key);
        let leaves = std::mem::replace(&mut self.values[self.at], value);
        self.hash = self.hash.wrapping_mul(BASE).wrapping_add(value).wrapping_sub(leaves.wrapping_mul(self.power));
        self.at += 1;
        if self.at == self.values.len() {
            (self.at, self.full) = (0, true);
        }
        self.full.then(|| mix(self.hash))
    }
}

/// Characters from the first to before the second.
pub type Span = (usize, usize);

/// A text that comes piece by piece, in each reading. Offsets count its characters from the first piece on.
pub struct Stream {
    readings: Vec<ReadStream>,
}

impl Stream {
    pub fn new(filter: &Filter) -> Self {
        let readings: &[Reading] =
            if filter.letters { &[Reading::Whole, Reading::Letters, Reading::Bare] } else { &[Reading::Whole] };
        Self { readings: readings.iter().map(|&reading| ReadStream::new(filter, reading)).collect() }
    }

    /// Read on; what nothing that follows can lengthen is added to `closed`. Those of several readings may overlap.
    pub fn push(&mut self, text: &str, filter: &Filter, closed: &mut Vec<Span>) {
        self.readings.iter_mut().for_each(|reading| reading.push(text, filter, closed));
    }

    /// A match that is found, and that more text may lengthen; where readings have several, from the first to the last.
    pub fn open(&self) -> Option<Span> {
        let open = self.readings.iter().filter_map(|reading| reading.open);
        open.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// The first character that may come to lie in a match, or does in one that is open.
    pub fn pending(&self) -> usize {
        self.readings.iter().map(ReadStream::pending).min().unwrap_or(0)
    }
}

/// Matches of all readings, which do not overlap.
pub fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    spans.dedup_by(|next, last| {
        let overlaps = next.0 <= last.1;
        if overlaps {
            last.1 = last.1.max(next.1);
        }
        overlaps
    });
    spans
}

struct ReadStream {
    roller: Roller,
    folder: Folder,
    length: usize,
    num_chars: usize,
    num_folded: usize,
    /// Where the last `length` folded characters stood.
    origins: Vec<usize>,
    /// Known stretches in a row.
    run: usize,
    open: Option<Span>,
}

impl ReadStream {
    fn new(filter: &Filter, reading: Reading) -> Self {
        let mut folder = Folder::default();
        folder.begin(reading);
        Self {
            roller: filter.roller(reading),
            folder,
            length: filter.length,
            num_chars: 0,
            num_folded: 0,
            origins: vec![0; filter.length],
            run: 0,
            open: None,
        }
    }

    fn push(&mut self, text: &str, filter: &Filter, closed: &mut Vec<Span>) {
        let mut folder = std::mem::take(&mut self.folder);
        for c in text.chars() {
            folder.fold(c, |c| self.push_folded(c, filter, closed));
            self.num_chars += 1;
        }
        self.folder = folder;
    }

    #[inline]
    fn push_folded(&mut self, c: char, filter: &Filter, closed: &mut Vec<Span>) {
        let place = self.num_folded % self.length;
        self.origins[place] = self.num_chars;
        self.num_folded += 1;
        let Some(hash) = self.roller.push(c) else { return };
        self.run = if filter.contains(hash) { self.run + 1 } else { 0 };
        if self.run >= NUM_HITS {
            let start = self.origins[self.num_folded % self.length];
            self.open = match self.open {
                Some((first, end)) if start <= end => Some((first, self.num_chars + 1)),
                earlier => {
                    closed.extend(earlier);
                    Some((start, self.num_chars + 1))
                }
            };
        } else if let Some(span) = self.open
            && self.begins() > span.1
        {
            closed.push(span);
            self.open = None;
        }
    }

    fn pending(&self) -> usize {
        let begins = self.begins();
        self.open.map_or(begins, |open| open.0.min(begins))
    }

    /// Where the longest stretch begins that ends here and may become a match.
    fn begins(&self) -> usize {
        let known = (self.length - NUM_HITS + self.run.min(NUM_HITS)).min(self.num_folded);
        if known == 0 { self.num_chars } else { self.origins[(self.num_folded - known) % self.length] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(filter: &Filter, text: &str) -> Vec<Span> {
        let (mut stream, mut spans) = (Stream::new(filter), Vec::new());
        stream.push(text, filter, &mut spans);
        spans.extend(stream.open());
        joined(spans)
    }

    #[test]
    fn letters_alone_are_compared_where_that_is_asked_for() {
        let training =
            "Admitted with fever and cough, treated with amoxicillin; discharged on day four in good condition.";
        let forms = [
            training.to_owned(),
            training.replace(' ', "_"),
            training.split(' ').map(|word| format!("**{word}** ")).collect(),
            training.split(' ').enumerate().map(|(number, word)| format!("\n{number}. {word}")).collect(),
            training.split(' ').map(|word| format!("<b>{word}</b> ")).collect(),
            training.split(' ').map(|word| format!("> {word}-\n")).collect(),
        ];
        for letters in [false, true] {
            let filter = Filter::new(10_000, 50, 1, letters).unwrap();
            filter.add(training, &mut Scratch::default());
            let matched: Vec<bool> = forms.iter().map(|form| !found(&filter, form).is_empty()).collect();
            assert_eq!(matched, [true, letters, letters, letters, letters, letters]);
            assert_eq!(found(&filter, "Admitted without fever and cough, treated with ibuprofen, discharged"), []);
        }
    }

    #[test]
    fn matches_of_hand_worked_texts() {
        let training = "Seen by Dr. Ásgeir\n\ton the 4th: stable, afebrile, eating.";
        let filter = Filter::new(10_000, 20, 1, false).unwrap();
        assert_eq!(filter.add("too short to matter", &mut Scratch::default()), 0);
        assert!(filter.add(training, &mut Scratch::default()) > 0);
        let table: &[(&str, &[Span])] = &[
            ("", &[]),
            ("Ásgeir on the 4th: s", &[(0, 20)]),
            ("sgeir on the 4th: s", &[]),
            ("ASGEIR   on the 4th: s", &[(0, 22)]),
            ("xA\u{301}s\u{ad}geir on the 4th: sx", &[(1, 23)]),
            ("stable, afebrile, eating.#stable, afebrile, eating.", &[(0, 25), (26, 51)]),
        ];
        for (text, expected) in table {
            assert_eq!(found(&filter, text), *expected, "{text:?}");
        }
    }
}
