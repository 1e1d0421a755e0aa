//! Surrogates of everything that is not a date: names, places, numbers, addresses of all sorts, ages.
//!
//! A value is normalised first (case, accents, invisible characters, punctuation between digits), and what is drawn
//! depends on that alone: `SMITH`, `Smith` and `smith` become one name in three spellings, `555-1234` and `555 1234` one
//! number in two. None means that this value has no surrogate; the caller puts a tag.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{decompose_canonical, is_combining_mark};

use super::key::{Key, cycle_of_letters, permute};
use super::names::{Kind, NamePool, first_name, invent, with_case_of};
use crate::text::characters::is_default_ignorable;
use crate::text::surface::Surface;
use crate::word_lists::{marked, words};

/// How often another name is drawn before one is taken that is real.
const ATTEMPTS: u32 = 8;

/// Real identifiers of the corpus: hashes in ascending order.
#[derive(Clone, Copy, Default)]
pub struct Avoid<'a>(pub &'a [u64]);

impl Avoid<'_> {
    fn has(&self, value: &str) -> bool {
        !self.0.is_empty() && self.has_hash(hash(value))
    }

    fn has_hash(&self, hash: u64) -> bool {
        self.0.binary_search(&hash).is_ok()
    }
}

pub fn hash(value: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(value.as_bytes())
}

/// One individual (or one occurrence, where surrogates rotate) and what may not be drawn for them.
pub struct Drawer<'a> {
    pub key: Key,
    avoid: Avoid<'a>,
    names: Option<&'a NamePool>,
    /// Whose first names, folded, titles of the document say.
    genders: &'a HashMap<String, Kind>,
    letters: OnceCell<[u8; 26]>,
    /// Set when a realistic name is one of the corpus, and when every attempt gave a real identifier of it.
    pub collided: bool,
}

impl<'a> Drawer<'a> {
    pub fn new(key: Key, avoid: Avoid<'a>, names: Option<&'a NamePool>, genders: &'a HashMap<String, Kind>) -> Self {
        Self { key, avoid, names, genders, letters: OnceCell::new(), collided: false }
    }

    /// An individual's name, whole or in part: each word by itself, initials in step with the names they stand for.
    pub fn name(&mut self, text: &str) -> Option<String> {
        self.words(text, Scope::Person)
    }

    /// An address, a city, a country: numbers digit for digit, words of every address ("street", "rue") stay.
    pub fn place(&mut self, text: &str) -> Option<String> {
        self.words(text, Scope::Place)
    }

    /// An organisation: as a place; short capitals letter by letter.
    pub fn organization(&mut self, text: &str) -> Option<String> {
        self.words(text, Scope::Organization)
    }

    fn words(&mut self, text: &str, scope: Scope) -> Option<String> {
        let mut words_left = pieces(text).filter(|(piece, _)| *piece == Piece::Letters).count();
        // A span of nothing but words that stay ("the Clinic") is replaced all the same.
        let all_kept = pieces(text).all(|(piece, word)| piece != Piece::Letters || is_kept(word, scope, false));
        let mut out = String::with_capacity(text.len() + 8);
        let mut end = 0;
        for (piece, word) in pieces(text) {
            words_left -= usize::from(piece == Piece::Letters);
            end += word.len();
            // A comma ends the family name that is put first ("Le, Anh").
            let last = words_left == 0 || text[end..].starts_with(',');
            match piece {
                Piece::Other => out.push_str(word),
                Piece::Digits => out.push_str(&self.symbols(word, b'd', false)?),
                Piece::Letters if is_possessive(word, &out) || (!all_kept && is_kept(word, scope, last)) => {
                    out.push_str(word);
                }
                Piece::Letters => self.push_word(&mut out, word, scope),
            }
        }
        (out != text).then_some(out)
    }

    fn push_word(&mut self, out: &mut String, word: &str, scope: Scope) {
        let num_letters = word.chars().filter(|c| c.is_alphabetic()).count();
        let latin = word.chars().any(|c| c.is_alphabetic() && (c as u32) < 0x250);
        let longest = if scope == Scope::Organization { 5 } else { 2 };
        if !latin {
            match self.symbols(word, b'w', true) {
                Some(permuted) => out.push_str(&permuted),
                None => out.push_str(&self.invented(word, scope)),
            }
        } else if num_letters == 1 || (num_letters <= longest && !word.chars().any(char::is_lowercase)) {
            for c in word.chars().filter(|c| c.is_alphabetic()) {
                let to = char::from(b'a' + self.letter(c));
                out.push(if c.is_uppercase() { to.to_ascii_uppercase() } else { to });
            }
        } else {
            out.push_str(&self.invented(word, scope));
        }
    }

    /// What a first letter becomes.
    fn letter(&self, c: char) -> u8 {
        let base = folded(c.encode_utf8(&mut [0; 4])).chars().next().unwrap_or('x');
        let number = if base.is_ascii_lowercase() { base as u32 - 'a' as u32 } else { base as u32 % 26 } as u8;
        match self.names {
            Some(pool) => pool.letter(number, &mut self.key.stream(b'L', &[number], 0)),
            None => self.letters.get_or_init(|| cycle_of_letters(&self.key))[usize::from(number)],
        }
    }

    fn invented(&mut self, word: &str, scope: Scope) -> String {
        let folded = folded(word);
        let kind = match scope {
            Scope::Person => {
                self.genders.get(&*folded).copied().or_else(|| first_name(&folded)).unwrap_or(Kind::Surname)
            }
            _ => Kind::Place,
        };
        let letter = self.letter(folded.chars().next().unwrap_or('x'));
        let purpose = if kind == Kind::Place { b'p' } else { b'n' };
        if let Some(pool) = self.names {
            let name = pool.name(letter, kind, &mut self.key.stream(purpose, folded.as_bytes(), 0));
            self.collided |= self.avoid.has_hash(name.hash);
            return with_case_of(word, &name.text);
        }
        let mut name = String::new();
        for attempt in 0..ATTEMPTS {
            name = invent(letter, kind, &mut self.key.stream(purpose, folded.as_bytes(), attempt));
            if !self.avoid.has(&name) {
                return with_case_of(word, &name);
            }
        }
        self.collided = true;
        with_case_of(word, &name)
    }

    /// A number of an account, a record, a licence: the same form, digit for digit and letter for letter.
    pub fn id(&mut self, text: &str) -> Option<String> {
        for attempt in 0..ATTEMPTS {
            let drawn = self.permuted(text, b'i', attempt, |_, c| symbol(c).is_some())?;
            if drawn != text && !self.avoid.has(&normal_id(&drawn)) {
                return Some(drawn);
            }
        }
        self.collided = true;
        let drawn = self.permuted(text, b'i', 0, |_, c| symbol(c).is_some())?;
        (drawn != text).then_some(drawn)
    }

    /// A telephone number: what says "abroad" or "trunk" stays (`+33`, a leading 0, the 1 before ten digits), and words
    /// such as "ext"; with any other word in it (1-800-FLOWERS) its letters are drawn too.
    pub fn phone(&mut self, text: &str) -> Option<String> {
        if has_others(text, Scope::Phone) {
            return self.id(text);
        }
        let num_digits = text.chars().filter(|c| c.is_numeric()).count();
        let first = text.find(char::is_numeric)?;
        let prefix = match &text[first..] {
            _ if num_digits < 7 => 0,
            rest if text[..first].ends_with('+') => {
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                length_of_country(rest.as_bytes()).min(digits)
            }
            rest if rest.starts_with("00") => 2,
            rest if rest.starts_with('0') || (rest.starts_with('1') && num_digits == 11) => 1,
            _ => 0,
        };
        let from = first + prefix;
        for attempt in 0..ATTEMPTS {
            let drawn = self.permuted(text, b'i', attempt, |at, c| at >= from && c.is_numeric())?;
            if drawn != text && !self.avoid.has(&normal_id(&drawn)) {
                return Some(drawn);
            }
        }
        self.collided = true;
        None
    }

    /// An e-mail address: the name before the @ as names are, the domain an invented one under `.example`.
    pub fn email(&mut self, text: &str) -> Option<String> {
        let (local, domain) = text.rsplit_once('@')?;
        let drawn = self.name(local).or_else(|| self.id(local))?;
        // The accents of a realistic name do not belong into an address.
        let plain = if local.is_ascii() { without_accents(&drawn) } else { Cow::Borrowed(drawn.as_str()) };
        Some(format!("{plain}@{}", self.domain(domain)))
    }

    /// A web address: a scheme that all know and `www.` stay, the host is an invented one, the rest letter for letter.
    pub fn url(&mut self, text: &str) -> Option<String> {
        let is_known = |&at: &usize| matches!(text[..at].to_lowercase().as_str(), "http" | "https" | "ftp");
        let after_scheme = text.find("://").filter(is_known).map_or(0, |at| at + 3);
        let from = if text[after_scheme..].starts_with("www.") { after_scheme + 4 } else { after_scheme };
        let to = text[from..].find(['/', '?', '#', ':']).map_or(text.len(), |at| from + at);
        if !text[from..to].chars().any(char::is_alphanumeric) {
            return None;
        }
        let path = self.id(&text[to..]).unwrap_or_else(|| text[to..].to_owned());
        Some(format!("{}{}{path}", &text[..from], self.domain(&text[from..to])))
    }

    fn domain(&mut self, domain: &str) -> String {
        format!("{}.example", without_accents(&self.invented(&domain.to_lowercase(), Scope::Place)))
    }

    /// An address of a machine: decimal numbers 1 to 254, or hexadecimal digits where there is a colon.
    pub fn ip(&mut self, text: &str) -> Option<String> {
        let hexadecimal = text.contains(':');
        if !hexadecimal && text.chars().any(char::is_alphabetic) {
            return self.id(text);
        }
        let mut stream = self.key.stream(b'a', text.to_lowercase().as_bytes(), 0);
        let mut out = String::with_capacity(text.len());
        for (piece, word) in pieces(text) {
            if hexadecimal && piece != Piece::Other {
                for c in word.chars() {
                    let digit = char::from_digit(stream.below(16) as u32, 16).unwrap_or('0');
                    out.push(if c.is_uppercase() { digit.to_ascii_uppercase() } else { digit });
                }
            } else if piece == Piece::Digits {
                out.push_str(&(1 + stream.below(254)).to_string());
            } else {
                out.push_str(word);
            }
        }
        (out != text).then_some(out)
    }

    /// An age: one to three years from it, all ages of an individual by the same number as long as they stay from 0 to
    /// 89; from 90 on another from 90 to 99. None with a word in it that is none of ages ("93 (ninety-three)").
    pub fn age(&mut self, text: &str) -> Option<String> {
        if has_others(text, Scope::Age) {
            return None;
        }
        let mut out = String::with_capacity(text.len());
        for (piece, word) in pieces(text) {
            if piece != Piece::Digits {
                out.push_str(word);
                continue;
            }
            let age: i64 = word.parse().ok()?;
            let mut stream = self.key.stream(b'y', b"", 0);
            let drawn = if age >= 90 {
                90 + (age + 1 + stream.below(9) as i64) % 10
            } else {
                let years = [-3, -2, -1, 1, 2, 3][stream.below(6)];
                if (0..90).contains(&(age + years)) { age + years } else { age - years }
            };
            out.push_str(&drawn.to_string());
        }
        (out != text).then_some(out)
    }

    /// A quantity: its digits.
    pub fn quantity(&mut self, text: &str) -> Option<String> {
        let drawn = self.permuted(text, b'q', 0, |_, c| c.is_numeric())?;
        (drawn != text).then_some(drawn)
    }

    /// Another word of the same characters' classes, not the same one.
    fn symbols(&self, word: &str, purpose: u8, letters: bool) -> Option<String> {
        (0..ATTEMPTS)
            .filter_map(|attempt| self.permuted(word, purpose, attempt, |_, c| letters || c.is_numeric()))
            .find(|drawn| drawn != word)
    }

    /// The text with the chosen symbols permuted; None when there is none to choose.
    fn permuted(&self, text: &str, purpose: u8, attempt: u32, chosen: impl Fn(usize, char) -> bool) -> Option<String> {
        let (mut values, mut radices) = (Vec::with_capacity(text.len()), Vec::with_capacity(text.len()));
        let symbol_at = |at: usize, c: char| if chosen(at, c) { symbol(c) } else { None };
        for (at, c) in text.char_indices() {
            if let Some(symbol) = symbol_at(at, c) {
                values.push(symbol.value);
                radices.push(symbol.radix);
            }
        }
        if values.is_empty() {
            return None;
        }
        permute(&self.key, purpose, attempt, &mut values, &radices);
        let mut drawn = values.into_iter();
        let mut out = String::with_capacity(text.len());
        for (at, c) in text.char_indices() {
            let to = symbol_at(at, c).and_then(|symbol| char::from_u32(symbol.base + drawn.next()?));
            out.push(to.unwrap_or(c));
        }
        Some(out)
    }
}

/// How many digits of an international number are the country's (ITU-T E.164), whether or not a space ends them.
fn length_of_country(number: &[u8]) -> usize {
    match number {
        [b'1' | b'7', ..] => 1,
        [b'2', b'0' | b'7', ..]
        | [b'3', b'0'..=b'4' | b'6' | b'9', ..]
        | [b'4', b'0' | b'1' | b'3'..=b'9', ..]
        | [b'5', b'1'..=b'8', ..]
        | [b'6', b'0'..=b'6', ..]
        | [b'8', b'1' | b'2' | b'4' | b'6', ..]
        | [b'9', b'0'..=b'5' | b'8', ..] => 2,
        _ => 3,
    }
}

/// Whether there is a word that does not stay.
fn has_others(text: &str, scope: Scope) -> bool {
    pieces(text).any(|(piece, word)| piece == Piece::Letters && !is_kept(word, scope, false))
}

/// The `s` of "Smith's".
fn is_possessive(word: &str, before: &str) -> bool {
    word.eq_ignore_ascii_case("s") && before.ends_with(['\'', '\u{2019}'])
}

/// A word as it is compared: without case, accents and invisible characters.
pub fn folded(word: &str) -> Cow<'_, str> {
    if !word.is_ascii() {
        return Surface::Fold.apply(word);
    }
    if word.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Owned(word.to_ascii_lowercase());
    }
    Cow::Borrowed(word)
}

/// A word without its accents, in its case.
fn without_accents(word: &str) -> Cow<'_, str> {
    if word.is_ascii() {
        return Cow::Borrowed(word);
    }
    Cow::Owned(word.nfd().filter(|&c| !is_combining_mark(c)).collect())
}

/// What identifies an id in any spelling: its letters and digits, in lower case.
pub fn normal_id(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Hashes of what is real in a span: its names of three letters and more, and, for an id, all of it.
pub fn real_parts(text: &str, is_id: bool, mut emit: impl FnMut(u64)) {
    if is_id {
        let id = normal_id(text);
        if id.len() >= 4 {
            emit(hash(&id));
        }
        return;
    }
    for (piece, word) in pieces(text) {
        if piece == Piece::Letters && word.len() >= 3 {
            let folded = folded(word);
            if folded.len() >= 3 {
                emit(hash(&folded));
            }
        }
    }
}

// Words of names, addresses, numbers and ages that stay where the rest is replaced: shared by all, they identify no individual.

/// What kind of name a span holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Person,
    Place,
    Organization,
    Phone,
    Age,
}

/// They stay unless they end the name: there they are the name.
const IN_PARTICLES: u8 = 1;
/// Particles and titles that are a name when they have a capital.
const IN_SMALL_PARTICLES: u8 = 2;
const IN_TITLES: u8 = 4;
const IN_PLACES: u8 = 8;
const IN_ORGANIZATIONS: u8 = 16;
const IN_PHONES: u8 = 32;
const IN_AGES: u8 = 64;

/// Which of these lists a word is on.
static LISTS_OF: LazyLock<HashMap<&'static str, u8>> = LazyLock::new(|| {
    let mut lists_of = HashMap::new();
    let mut add = |list: u8, word| *lists_of.entry(word).or_insert(0) |= list;
    for (list, name, mark) in [
        (IN_PARTICLES, "particles", "kept"),
        (IN_SMALL_PARTICLES, "particles", "kept small"),
        (IN_TITLES, "titles", "kept"),
    ] {
        marked(name, mark).for_each(|word| add(list, word));
    }
    for (list, name) in [
        (IN_PLACES, "kept in places"),
        (IN_ORGANIZATIONS, "kept in organizations"),
        (IN_PHONES, "kept in phones"),
        (IN_AGES, "kept in ages"),
    ] {
        words(name).for_each(|word| add(list, word));
    }
    lists_of
});

/// `last`: no word of the name comes after it.
pub fn is_kept(word: &str, scope: Scope, last: bool) -> bool {
    let kept = match scope {
        Scope::Person if last => IN_TITLES,
        Scope::Person if word.starts_with(char::is_uppercase) => IN_TITLES | IN_PARTICLES,
        Scope::Person => IN_TITLES | IN_PARTICLES | IN_SMALL_PARTICLES,
        Scope::Place => IN_PLACES,
        Scope::Organization => IN_ORGANIZATIONS | IN_PLACES,
        Scope::Phone => IN_PHONES,
        Scope::Age => IN_AGES,
    };
    // A single letter of a person is an initial.
    let lists = LISTS_OF.get(folded(word).as_ref()).copied().unwrap_or(0);
    lists & kept != 0 && (word.len() > 1 || scope != Scope::Person)
}

// Symbols: characters as numbers of their alphabet, and the runs of letters and digits of a value.

/// A character as a number among those of its alphabet and case.
struct Symbol {
    base: u32,
    radix: u32,
    value: u32,
}

/// First character and number of the alphabets that stay themselves; every other letter becomes a Latin one.
const ALPHABETS: &[(u32, u32)] = &[
    (0x3b1, 17),
    (0x3c2, 1),
    (0x3c3, 7),
    (0x391, 17),
    (0x3a3, 7),
    (0x430, 32),
    (0x410, 32),
    (0x5d0, 27),
    (0x628, 19),
    (0x660, 10),
    (0x6f0, 10),
    (0x905, 53),
    (0x966, 10),
    (0xe01, 46),
    (0x3042, 77),
    (0x30a2, 81),
    (0x4e00, 20_900),
    (0xac00, 11_172),
    (0xff10, 10),
    (0xff21, 26),
    (0xff41, 26),
];

fn symbol(c: char) -> Option<Symbol> {
    let code = c as u32;
    if c.is_ascii() {
        let (base, radix) = match c {
            '0'..='9' => ('0', 10),
            'a'..='z' => ('a', 26),
            'A'..='Z' => ('A', 26),
            _ => return None,
        };
        return Some(Symbol { base: base as u32, radix, value: code - base as u32 });
    }
    for &(base, radix) in ALPHABETS {
        if (base..base + radix).contains(&code) {
            return Some(Symbol { base, radix, value: code - base });
        }
    }
    if !c.is_alphanumeric() {
        return None;
    }
    // An accented letter counts as the letter.
    let mut bare = c;
    decompose_canonical(c, |part| {
        if !is_combining_mark(part) {
            bare = part
        }
    });
    if bare != c {
        return symbol(bare);
    }
    let base = match c {
        _ if c.is_numeric() => '0',
        _ if c.is_uppercase() => 'A',
        _ => 'a',
    } as u32;
    let radix = if c.is_numeric() { 10 } else { 26 };
    Some(Symbol { base, radix, value: code % radix })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Piece {
    Letters,
    Digits,
    Other,
}

/// Runs of letters (with the marks and invisible characters among them), of digits, and what is between.
fn pieces(text: &str) -> impl Iterator<Item = (Piece, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let kind = kind_of(rest.chars().next()?);
        let length = rest
            .char_indices()
            .find(|&(_, c)| {
                kind_of(c) != kind && !(kind == Piece::Letters && (is_combining_mark(c) || is_default_ignorable(c)))
            })
            .map_or(rest.len(), |(end, _)| end);
        at += length;
        Some((kind, &rest[..length]))
    })
}

fn kind_of(c: char) -> Piece {
    if c.is_numeric() {
        Piece::Digits
    } else if c.is_alphabetic() {
        Piece::Letters
    } else {
        Piece::Other
    }
}
