//! Features: what the tagger sees of each word of a document, as symbols under a key.
//!
//! A symbol (a word in small letters, a form, what stands between two words, the head of a field, a find of another detector) has
//! a row of weights for each place where it may stand, seen from the word that is labelled. Pairs of symbols have one row each,
//! and are asked for only where both symbols are known.

use std::hash::Hasher;

use super::WIDTH;
use crate::detect::common::{Class, CommonWords};
use crate::storage::buffer::prefetch;
use crate::storage::intern::Interner;
use crate::text::classes::InstructionSet;
use crate::text::fold::fold;
use crate::text::surface::Surface;
use crate::text::words::{Bounds, Scanner};

/// No row.
pub const NONE: u32 = u32::MAX;
/// Words before a colon that make the head of a field.
const MOST_HEAD: usize = 3;
/// Finds of other detectors in one word that are seen.
const MOST_HINTS: usize = 3;
/// Longer words are read by their first bytes.
const MOST_BYTES: usize = 64;

/// Kinds of symbols, and of pairs.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Kind {
    Word,
    Shape,
    Style,
    Prefix3,
    Suffix2,
    Suffix3,
    Corpus,
    Gap,
    Place,
    Field,
    Hint,
    Pair,
}

/// Rows of a symbol of each kind: of the word itself, the one before, the one after, two before, two after; of what stands
/// between words, before and after.
pub const SLOTS: [u8; 12] = [3, 3, 3, 1, 1, 1, 3, 2, 1, 1, 5, 1];

/// The key of all hashes. Words are hashed by SipHash-2-4; what is made of hashes is mixed under two further secret numbers.
#[derive(Clone)]
pub struct HashKey {
    sip: (u64, u64),
    mix: (u64, u64),
}

impl HashKey {
    pub fn new(bytes: &[u8; 16]) -> Self {
        let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let mut key = Self { sip: (half(0), half(8)), mix: (0, 0) };
        key.mix = (key.spell(Kind::Pair, b"first") | 1, key.spell(Kind::Pair, b"second") | 1);
        key
    }

    /// Never 0, which stands for nothing.
    #[inline]
    pub fn spell(&self, kind: Kind, bytes: &[u8]) -> u64 {
        #[allow(deprecated)] // of the standard library, the one hash under a key
        let mut hasher = std::hash::SipHasher::new_with_keys(self.sip.0 ^ kind as u64, self.sip.1);
        hasher.write(bytes);
        hasher.finish() | 1
    }

    #[inline(always)]
    pub fn join(&self, number: u64, one: u64, other: u64) -> u64 {
        let left = one ^ self.mix.0 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let product = u128::from(left) * u128::from(other.rotate_left(23) ^ self.mix.1);
        (product as u64 ^ (product >> 64) as u64) | 1
    }
}

/// A symbol: its hash (0: nothing), and its first row in the table of a tagger (`NONE`: not there).
#[derive(Clone, Copy)]
pub struct Symbol {
    pub key: u64,
    pub base: u32,
}

const NOTHING: Symbol = Symbol { key: 0, base: NONE };

/// Hash -> first row.
pub struct Table {
    keys: Vec<u64>,
    bases: Vec<u32>,
    slots: Vec<u8>,
    shift: u32,
}

impl Table {
    /// Of distinct keys with their numbers of rows, one at the least, and their first rows.
    pub fn new(entries: &[(u64, u8, u32)]) -> Self {
        let bits = (entries.len() * 2).next_power_of_two().max(16).trailing_zeros();
        let num = 1 << bits;
        let mut table = Self { keys: vec![0; num], bases: vec![NONE; num], slots: vec![0; num], shift: 64 - bits };
        for &(key, slots, base) in entries {
            let mut at = (key >> table.shift) as usize;
            while table.keys[at] != 0 {
                at = (at + 1) & (table.keys.len() - 1);
            }
            (table.keys[at], table.slots[at], table.bases[at]) = (key, slots, base);
        }
        table
    }

    #[inline(always)]
    fn place(&self, key: u64) -> Option<usize> {
        let mut at = (key >> self.shift) as usize;
        loop {
            let found = self.keys[at];
            if found == key {
                return Some(at);
            }
            if found == 0 {
                return None;
            }
            at = (at + 1) & (self.keys.len() - 1);
        }
    }

    /// The first row of a key of which no other row is read.
    #[inline(always)]
    pub fn base(&self, key: u64) -> u32 {
        self.place(key).map_or(NONE, |at| self.bases[at])
    }

    /// The first row of a symbol of this kind. A key with fewer or more rows is not its own: its rows would be others'.
    fn base_of(&self, kind: Kind, key: u64) -> u32 {
        let place = self.place(key).filter(|&at| self.slots[at] == SLOTS[kind as usize]);
        place.map_or(NONE, |at| self.bases[at])
    }

    /// Whether the symbols that are no secret, the styles of words and what single characters between them make, have as many
    /// rows as their kinds.
    pub fn is_whole(&self, key: &HashKey) -> bool {
        [Kind::Style, Kind::Gap].into_iter().all(|kind| {
            let mut keys = (0..=u8::MAX).map(|byte| key.spell(kind, &[byte]));
            keys.all(|key| self.base(key) == self.base_of(kind, key))
        })
    }
}

/// What is known of a written word, wherever it stands.
#[derive(Clone, Copy)]
pub struct Form {
    pub word: Symbol,
    pub shape: Symbol,
    pub style: Symbol,
    pub affixes: [Symbol; 3],
    pub corpus: Symbol,
    is_small: bool,
}

impl Form {
    fn symbols(&self) -> [(Symbol, Kind); 7] {
        let [prefix, short, long] = self.affixes;
        [
            (self.word, Kind::Word),
            (self.shape, Kind::Shape),
            (self.style, Kind::Style),
            (self.corpus, Kind::Corpus),
            (prefix, Kind::Prefix3),
            (short, Kind::Suffix2),
            (long, Kind::Suffix3),
        ]
    }

    /// The weights of its symbols together, by place.
    fn sums(&self, weights: &[f32]) -> [[f32; WIDTH]; 3] {
        let mut sums = [[0f32; WIDTH]; 3];
        for (symbol, kind) in self.symbols().into_iter().filter(|(symbol, _)| symbol.base != NONE) {
            for slot in 0..usize::from(SLOTS[kind as usize]) {
                let first = (symbol.base as usize + slot) * WIDTH;
                sums[slot].iter_mut().zip(&weights[first..first + WIDTH]).for_each(|(sum, weight)| *sum += weight);
            }
        }
        sums
    }
}

/// A word of a document.
#[derive(Clone, Copy)]
pub struct Unit {
    pub form: u32,
    /// What stands before it, and behind it.
    pub gap: Symbol,
    pub place: Symbol,
    pub field: Symbol,
    pub hints: [Symbol; MOST_HINTS],
}

/// A find of another detector: bytes of the text, and the numbers of its symbols where it begins and goes on.
pub type Hint = (usize, usize, u32);

/// Forms that a reader has met, for the next one of the same tagger.
#[derive(Default)]
pub struct Memo {
    words: Interner,
    /// By the number of the word.
    forms: Vec<Form>,
    /// The weights of all symbols of each form together, by place.
    sums: Vec<[[f32; WIDTH]; 3]>,
    /// State of the common words by which they were read, if any were.
    version: Option<u64>,
}

/// Reads documents one after another, and keeps what it knows of forms; `table` None knows every symbol. `add_forms` needs weights,
/// `WIDTH` a row.
pub struct Reader<'a> {
    key: &'a HashKey,
    table: Option<&'a Table>,
    weights: Option<&'a [f32]>,
    common: Option<&'a CommonWords>,
    affixes: bool,
    hints: Vec<[Symbol; 2]>,
    places: Vec<Symbol>,
    space: Symbol,
    scanner: Scanner,
    memo: Memo,
    /// As the index cuts them.
    whole: Vec<Bounds>,
    pub words: Vec<Bounds>,
    pub units: Vec<Unit>,
    /// What stands behind the last word.
    pub last_gap: Symbol,
    lowered: Vec<u8>,
    shape: Vec<u8>,
}

/// A reader forgets its forms where there are so many: 20 MB with their weights.
const MOST_FORMS: usize = 1 << 15;

impl<'a> Reader<'a> {
    pub fn new(
        key: &'a HashKey,
        table: Option<&'a Table>,
        weights: Option<&'a [f32]>,
        common: Option<&'a CommonWords>,
        affixes: bool,
        hints: &[String],
        mut memo: Memo,
    ) -> Self {
        let version = common.map(CommonWords::version);
        if memo.version != version {
            memo = Memo { version, ..Memo::default() };
        }
        let mut reader = Self {
            key,
            table,
            weights,
            common,
            affixes,
            hints: Vec::new(),
            places: Vec::new(),
            space: NOTHING,
            scanner: Scanner::new(InstructionSet::detect()),
            memo,
            whole: Vec::new(),
            words: Vec::new(),
            units: Vec::new(),
            last_gap: NOTHING,
            lowered: Vec::new(),
            shape: Vec::new(),
        };
        reader.hints = hints
            .iter()
            .map(|name| ["B", "I"].map(|part| reader.symbol(Kind::Hint, format!("{part}-{name}").as_bytes())))
            .collect();
        reader.places = (0..=u8::MAX).map(|number| reader.symbol(Kind::Place, &[number])).collect();
        reader.space = reader.symbol(Kind::Gap, b" ");
        reader
    }

    /// What it has met.
    pub fn into_memo(mut self) -> Memo {
        self.forget_many();
        self.memo
    }

    /// Give the memory of its forms back where there are too many, as of a long text.
    fn forget_many(&mut self) {
        if self.memo.words.len() > MOST_FORMS {
            self.memo = Memo { version: self.memo.version, ..Memo::default() };
        }
    }

    fn symbol(&self, kind: Kind, bytes: &[u8]) -> Symbol {
        let key = self.key.spell(kind, bytes);
        Symbol { key, base: self.table.map_or(0, |table| table.base_of(kind, key)) }
    }

    /// Read a document: `words` and `units` are its own from here on. The hints ascend.
    pub fn read(&mut self, text: &str, hints: &[Hint]) {
        self.whole.clear();
        self.scanner.words(text, &mut self.whole);
        self.words.clear();
        part(text, &self.whole, &mut self.words);
        self.units.clear();
        self.forget_many();
        let (mut at, mut head, mut since, mut place) = (0, 0u64, 0usize, 0u64);
        let (mut line, mut next_hint) = (0, 0);
        let mut inside: Vec<Hint> = Vec::new();
        let bytes = text.as_bytes();
        for number in 0..self.words.len() {
            let (start, end) = (self.words[number].0 as usize, self.words[number].1 as usize);
            let between = &bytes[at..start];
            let (gap, has_line, has_colon, parts) = if between == b" " {
                (self.space, false, false, false)
            } else {
                let first = number == 0;
                (self.gap(between, first), between.contains(&b'\n'), between.contains(&b':'), parts(between))
            };
            // A colon ends the head of a field; what stands behind it is its value, to the end of the line or on the next.
            if has_colon {
                let from = number - (number - since).min(MOST_HEAD);
                head = (from..number).fold(self.key.mix.0, |head, word| {
                    self.key.join(0, head, self.memo.forms[self.units[word].form as usize].word.key)
                });
                head = if from == number { 0 } else { head };
                (since, place) = (number, 0);
            } else if has_line {
                (head, since) = (0, number);
            } else if parts {
                since = number;
            }
            if has_line || number == 0 {
                self.finish_line(line, number);
                line = number;
            }
            let field = if head == 0 {
                NOTHING
            } else {
                let key = self.key.join(Kind::Field as u64, head, place.min(3) + 1);
                let field = Symbol { key, base: self.table.map_or(0, |table| table.base_of(Kind::Field, key)) };
                place += 1;
                field
            };
            let form = self.form(&text[start..end]);
            // The first hints over this word. Those behind them wait for room, so that each hint is looked at once, however many lie
            // over one another.
            inside.retain(|hint| hint.1 > start);
            while inside.len() < MOST_HINTS
                && let Some(&hint) = hints.get(next_hint)
                && hint.0 < end
            {
                if hint.1 > start {
                    inside.push(hint);
                }
                next_hint += 1;
            }
            let mut own = [NOTHING; MOST_HINTS];
            for (symbol, hint) in own.iter_mut().zip(&inside) {
                let begins = number == 0 || hint.0 >= at;
                *symbol = self.hints[hint.2 as usize][usize::from(!begins)];
            }
            self.units.push(Unit { form, gap, place: NOTHING, field, hints: own });
            at = end;
        }
        self.finish_line(line, self.words.len());
        self.last_gap = self.gap(&bytes[at..], false);
    }

    /// The places of the words of a line: which word of how many, and whether the line has a small letter.
    fn finish_line(&mut self, from: usize, to: usize) {
        let has_small = (from..to).any(|word| self.memo.forms[self.units[word].form as usize].is_small);
        for word in from..to {
            let number = (word - from).min(3) * 8 + (to - word - 1).min(3) * 2 + usize::from(has_small);
            self.units[word].place = self.places[number];
        }
    }

    /// What stands between two words, in eight bytes at most; white space is one blank, line end or empty line.
    fn gap(&mut self, between: &[u8], is_first: bool) -> Symbol {
        let mut room = [0u8; 8];
        let mut length = 0;
        if is_first {
            (room[0], length) = (b'^', 1);
        }
        let mut at = 0;
        while at < between.len() && length < room.len() {
            let run = between[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            if run == 0 {
                room[length] = between[at];
                at += 1;
            } else {
                room[length] = match between[at..at + run].iter().filter(|&&byte| byte == b'\n').count() {
                    0 if run > 1 => b'\t',
                    0 => b' ',
                    1 => b'\n',
                    _ => 0x0c,
                };
                at += run;
            }
            length += 1;
        }
        self.symbol(Kind::Gap, &room[..length])
    }

    fn form(&mut self, word: &str) -> u32 {
        let most = word.len().min(MOST_BYTES);
        let word = &word[..(0..=most).rev().find(|&at| word.is_char_boundary(at)).unwrap_or(0)];
        let next = self.memo.words.len() as u32;
        let number = self.memo.words.intern(word);
        if number == next {
            let form = self.new_form(word);
            self.memo.forms.push(form);
            if let Some(weights) = self.weights {
                self.memo.sums.push(form.sums(weights));
            }
        }
        number
    }

    fn new_form(&mut self, text: &str) -> Form {
        self.lowered.clear();
        self.shape.clear();
        let (mut run, mut last) = (0, 0u8);
        let (mut upper, mut small, mut digits, mut others, mut first_is_upper) = (0, 0, 0, 0, false);
        let mut lowered = std::mem::take(&mut self.lowered);
        for (number, c) in text.chars().enumerate() {
            let mut room = [0; 4];
            c.to_lowercase().for_each(|c| lowered.extend_from_slice(c.encode_utf8(&mut room).as_bytes()));
            let class = if c.is_uppercase() {
                upper += 1;
                first_is_upper |= number == 0;
                b'X'
            } else if c.is_numeric() {
                digits += 1;
                b'd'
            } else if c.is_alphabetic() {
                small += 1;
                b'x'
            } else {
                others += 1;
                if c.is_ascii() { c as u8 } else { b'?' }
            };
            run = if class == last { run + 1 } else { 1 };
            last = class;
            if run <= if class == b'd' { 9 } else { 3 } {
                self.shape.push(class);
            }
        }
        let style = match (upper, small, digits) {
            (0, 0, 0) => 0,
            (0, 0, _) => 1 + u8::from(others > 0),
            (_, _, 1..) => 3 + u8::from(upper > 0),
            (0, _, _) => 5 + u8::from(small < 3),
            (1, 0, _) => 7,
            (_, 0, _) => 8,
            (1, _, _) if first_is_upper => 9,
            _ if first_is_upper => 10,
            _ => 11,
        };
        let mut affixes = [NOTHING; 3];
        if self.affixes && digits == 0 {
            let starts: Vec<usize> = String::from_utf8_lossy(&lowered).char_indices().map(|(at, _)| at).collect();
            let num = starts.len();
            if num > 3 {
                affixes[0] = self.symbol(Kind::Prefix3, &lowered[..starts[3]]);
                affixes[1] = self.symbol(Kind::Suffix2, &lowered[starts[num - 2]..]);
                affixes[2] = self.symbol(Kind::Suffix3, &lowered[starts[num - 3]..]);
            }
        }
        let corpus = match self.common {
            Some(common) if upper + small > 1 => {
                let folded = fold(text, Surface::Fold).text;
                let class = match common.class(&folded) {
                    Class::Name => 0,
                    Class::Mixed => 1,
                    Class::Common => 2,
                };
                let log = (64 - common.num_occurrences(&folded).leading_zeros()).min(20) as u8 / 2;
                self.symbol(Kind::Corpus, &[class, log])
            }
            _ => NOTHING,
        };
        let form = Form {
            word: self.symbol(Kind::Word, &lowered),
            shape: self.symbol(Kind::Shape, &self.shape),
            style: self.symbol(Kind::Style, &[style]),
            affixes,
            corpus,
            is_small: small > 0,
        };
        self.lowered = lowered;
        form
    }

    /// Call `emit` with each symbol that is seen from a word, its kind and its place.
    #[inline(always)]
    pub fn each_symbol(&self, at: usize, mut emit: impl FnMut(Symbol, Kind, u32)) {
        self.each_form(at, |form, slot| {
            let form = &self.memo.forms[form];
            form.symbols()
                .into_iter()
                .filter(|&(_, kind)| slot < u32::from(SLOTS[kind as usize]))
                .for_each(|(symbol, kind)| emit(symbol, kind, slot));
        });
        self.each_beside(at, emit);
    }

    /// Call `emit` with the forms of a word, the one before and the one after, and their places.
    #[inline(always)]
    fn each_form(&self, at: usize, mut emit: impl FnMut(usize, u32)) {
        for (slot, other) in around(at) {
            if let Some(unit) = self.units.get(other) {
                emit(unit.form as usize, slot);
            }
        }
    }

    /// Call `emit` with what is seen from a word beside forms.
    #[inline(always)]
    pub fn each_beside(&self, at: usize, mut emit: impl FnMut(Symbol, Kind, u32)) {
        let unit = &self.units[at];
        emit(unit.gap, Kind::Gap, 0);
        emit(unit.place, Kind::Place, 0);
        emit(unit.field, Kind::Field, 0);
        unit.hints.iter().for_each(|&hint| emit(hint, Kind::Hint, 0));
        emit(self.units.get(at + 1).map_or(self.last_gap, |next| next.gap), Kind::Gap, 1);
        for (slot, other) in [(1, at.wrapping_sub(1)), (2, at + 1), (3, at.wrapping_sub(2)), (4, at + 2)] {
            if let Some(unit) = self.units.get(other) {
                emit(unit.hints[0], Kind::Hint, slot);
            }
        }
    }

    /// Have the weights of the form of a word in the cache soon.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        if let Some(unit) = self.units.get(at) {
            // A line of the cache each.
            self.memo.sums[unit.form as usize].as_flattened().iter().step_by(16).for_each(prefetch);
        }
    }

    /// Add the weights of the forms that are seen from a word. No closure, so that this is compiled for the caller's processor.
    #[inline(always)]
    pub fn add_forms(&self, at: usize, scores: &mut [f32; WIDTH]) {
        for (slot, other) in around(at) {
            if let Some(unit) = self.units.get(other) {
                let sum = &self.memo.sums[unit.form as usize][slot as usize];
                for lane in 0..WIDTH {
                    scores[lane] += sum[lane];
                }
            }
        }
    }

    /// Call `emit` with the hash of each pair of known symbols, and of each three styles in turn, that is seen from a word.
    #[inline(always)]
    pub fn each_pair(&self, at: usize, mut emit: impl FnMut(u64)) {
        let style = |at: usize| self.units.get(at).map_or(NOTHING, |unit| self.memo.forms[unit.form as usize].style);
        let unit = &self.units[at];
        let shape = self.memo.forms[unit.form as usize].shape;
        let gap_after = self.units.get(at + 1).map_or(self.last_gap, |next| next.gap);
        if shape.base != NONE {
            for (number, other) in [(32, unit.gap), (33, gap_after), (34, unit.hints[0]), (35, unit.field)] {
                if other.base != NONE && other.key != 0 {
                    emit(self.key.join(number, other.key, shape.key));
                }
            }
        }
        let (before, own, after) = (style(at.wrapping_sub(1)), style(at), style(at + 1));
        if before.base != NONE && own.base != NONE && after.base != NONE {
            emit(self.key.join(37, self.key.join(36, before.key, own.key), after.key));
        }
    }
}

/// A word, the one before and the one after, by place.
#[inline(always)]
fn around(at: usize) -> [(u32, usize); 3] {
    [(0, at), (1, at.wrapping_sub(1)), (2, at + 1)]
}

/// Words, cut where a sign stands between two letters: `Name:Smith`, `l'hôpital` and `seen.Mr` are two each, as no field ends
/// within a word and nothing is known of the two together.
fn part(text: &str, words: &[Bounds], parted: &mut Vec<Bounds>) {
    let is_sign = |c: char| matches!(c, ':' | '.' | '_' | '\'' | '\u{2019}');
    for &(mut start, end) in words {
        let word = &text[start as usize..end as usize];
        if word.bytes().any(|byte| byte == 0xe2 || is_sign(char::from(byte))) {
            let (first, mut before) = (start, None);
            let mut characters = word.char_indices().peekable();
            while let Some((at, c)) = characters.next() {
                let is_letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
                if is_sign(c) && is_letter(before) && is_letter(characters.peek().map(|next| next.1)) {
                    parted.push((start, first + at as u32));
                    start = first + (at + c.len_utf8()) as u32;
                }
                before = Some(c);
            }
        }
        parted.push((start, end));
    }
}

/// Whether the head of a field cannot reach over this.
fn parts(between: &[u8]) -> bool {
    between.iter().any(|byte| matches!(byte, b'.' | b',' | b';' | b'|' | b'\t'))
        || between.windows(2).any(|two| two == b"  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::packing::tests::draws_below;

    fn reader<'a>(key: &'a HashKey, common: Option<&'a CommonWords>, memo: Memo) -> Reader<'a> {
        Reader::new(key, None, None, common, false, &[], memo)
    }

    #[test]
    fn a_word_has_the_first_hints_that_lie_over_it() {
        let key = HashKey::new(&[7; 16]);
        let names: Vec<String> = (0..4).map(|number| format!("rules:{number}")).collect();
        let mut read = Reader::new(&key, None, None, None, false, &names, Memo::default());
        let mut draw = draws_below(1);
        for num in 0..200 {
            let text = "zuvxo ".repeat(12);
            let mut hints: Vec<Hint> = (0..num % 20)
                .map(|_| {
                    let start = draw(70);
                    (start, start + 1 + draw(72 - start), draw(4) as u32)
                })
                .collect();
            hints.sort_unstable();
            read.read(&text, &hints);
            for (number, unit) in read.units.iter().enumerate() {
                let (start, end) = (6 * number, 6 * number + 5);
                let before = if number == 0 { 0 } else { start - 1 };
                let over = hints.iter().filter(|hint| hint.0 < end && hint.1 > start).take(MOST_HINTS);
                let expected = over.map(|hint| read.hints[hint.2 as usize][usize::from(hint.0 < before)].key);
                let found = unit.hints.iter().map(|hint| hint.key).filter(|&key| key != 0);
                assert!(found.eq(expected), "document {num}, word {number}");
            }
        }
    }

    #[test]
    fn the_forms_of_a_long_text_take_no_memory_after_it() {
        let key = HashKey::new(&[7; 16]);
        let mut read = reader(&key, None, Memo::default());
        read.read(&(0..=MOST_FORMS).map(|number| format!("w{number} ")).collect::<String>(), &[]);
        assert_eq!(read.into_memo().forms.capacity(), 0);
    }

    #[test]
    fn forms_that_were_read_without_common_words_are_read_again_with_some() {
        let (key, common) = (HashKey::new(&[7; 16]), CommonWords::new());
        let mut without = reader(&key, None, Memo::default());
        without.read("Roselstone", &[]);
        let mut with = reader(&key, Some(&common), without.into_memo());
        with.read("Roselstone", &[]);
        assert_ne!(with.memo.forms[0].corpus.key, 0);
    }
}
