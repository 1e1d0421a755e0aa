//! Records: what the hospital knows of an individual, looked up in that individual's documents and nowhere else.
//!
//! Each value has a field that says how it is written in texts: names (`names`), dates (`dates`), codes and phones (`codes`),
//! addresses and other text (here). The values of an individual are made ready once for all its documents of a batch, so
//! memory is the values themselves; each document is folded and cut once, and each of its pieces is offered to the
//! individual's few values behind filters of a byte.

use memchr::memmem;

use crate::detect::codes::Code;
use crate::detect::common::{Class, CommonWords};
use crate::detect::context::{is_capital, is_in_date, starts_sentence};
use crate::detect::dates::BirthDate;
use crate::detect::letter_case::has_case;
use crate::detect::misread::Misread;
use crate::detect::names::{Names, Setting};
use crate::detect::sequences::gap_form;
use crate::error::{Error, Result};
use crate::text::characters::is_unspaced;
use crate::text::pieces::View;
use crate::text::spans::Found;
use crate::text::surface::Surface;
use crate::text::texts::Texts;

/// How a value is written in texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Name,
    Date,
    Code,
    Phone,
    Address,
    Text,
}

impl Field {
    pub fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "name" => Self::Name,
            "date" => Self::Date,
            "code" => Self::Code,
            "phone" => Self::Phone,
            "address" => Self::Address,
            "text" => Self::Text,
            _ => {
                return Err(Error::Policy(format!(
                    "records: expected a field name, date, code, phone, address or text, got {name:?}"
                )));
            }
        })
    }
}

/// Pieces that follow each other, in the words of the value.
struct Phrase {
    pieces: Vec<Box<str>>,
    gaps: Vec<Box<str>>,
    /// One word with a capital that is a word of the language too: a town called Reading.
    class: Class,
    source: u32,
}

/// Pieces of values in scripts without spaces, and in Hangul, where particles follow a name: they are found within a run of
/// letters too, and with others of the individual beside them.
#[derive(Default)]
struct Unspaced(Vec<(Box<str>, u32)>);

impl Unspaced {
    fn add(&mut self, piece: &str, source: u32) {
        let is_own = |c: char| is_unspaced(c) || matches!(c, '\u{1100}'..='\u{11ff}');
        let ends = piece.starts_with(is_own) && piece.ends_with(is_own);
        if ends && piece.chars().all(|c| is_own(c) || c.is_ascii_digit()) {
            self.0.push((piece.into(), source));
        }
    }

    /// Give the bounds in the original and the source of each place with two letters or more.
    fn find(&self, view: &View, mut emit: impl FnMut((usize, usize), u32)) {
        let (text, mut found) = (view.text(), Vec::new());
        for (piece, source) in self.0.iter().filter(|_| !text.is_ascii()) {
            let others = || self.0.iter().map(|(other, _)| &**other).filter(|other| *other != &**piece);
            for start in memmem::find_iter(text.as_bytes(), piece.as_bytes()) {
                let end = start + piece.len();
                let before = others().filter(|other| text[..start].ends_with(other)).map(str::len).max().unwrap_or(0);
                let after = others().filter(|other| text[end..].starts_with(other)).map(str::len).max().unwrap_or(0);
                // A syllable of Hangul is several characters here, and none is cut.
                let bounds = [(start - before, end + after), (start - before, end), (start, end)];
                let long = |&(start, end): &(usize, usize)| num_letters(&text[start..end]) >= 2;
                if let Some(bounds) = bounds.into_iter().filter(long).find_map(|(start, end)| view.origin(start, end))
                    && !found.contains(&bounds)
                {
                    found.push(bounds);
                    emit(bounds, *source);
                }
            }
        }
    }
}

/// Letters of scripts without spaces, and syllables of Hangul by the character that begins each.
fn num_letters(folded: &str) -> usize {
    folded.chars().filter(|&c| is_unspaced(c) || matches!(c, '\u{1100}'..='\u{115f}')).count()
}

/// The values of one individual, ready to be looked for.
#[derive(Default)]
pub struct Profile {
    names: Names,
    phrases: Vec<Phrase>,
    dates: Vec<BirthDate>,
    codes: Vec<Code>,
    misread: Misread,
    unspaced: Unspaced,
    /// First bytes of the phrases, and of the codes.
    phrase_starts: [u64; 4],
    code_starts: [u64; 4],
}

pub fn set(bits: &mut [u64; 4], byte: u8) {
    bits[byte as usize / 64] |= 1 << (byte % 64);
}

#[inline(always)]
pub fn has(bits: &[u64; 4], byte: u8) -> bool {
    bits[byte as usize / 64] >> (byte % 64) & 1 == 1
}

impl Profile {
    fn add(&mut self, value: &str, field: Field, source: u32, common: Option<&CommonWords>) {
        let view = View::new(value, Surface::Fold);
        let (num_codes, num_phrases) = (self.codes.len(), self.phrases.len());
        match field {
            _ if view.is_empty() => {}
            Field::Name => {
                self.names.add(&view, source, common);
                (0..view.len()).for_each(|piece| self.unspaced.add(view.piece(piece), source));
            }
            Field::Date => match BirthDate::new(&view, source) {
                Some(date) => self.dates.push(date),
                None => self.add_phrase(&view, 0, view.len() - 1, source, common),
            },
            Field::Phone => self.codes.extend(Code::phones(&view, source)),
            Field::Code => {
                self.codes.extend(Code::new(&view, source));
                self.codes.extend(Code::without_key(&view, source));
            }
            Field::Address => self.add_address(&view, source, common),
            Field::Text => self.add_phrase(&view, 0, view.len() - 1, source, common),
        }
        self.misread.add(value, field, source);
        for code in &self.codes[num_codes..] {
            set(&mut self.code_starts, code.first());
        }
        for phrase in &self.phrases[num_phrases..] {
            set(&mut self.phrase_starts, phrase.pieces[0].as_bytes()[0]);
        }
    }

    /// Street, town and postcode separately: they stand together on an envelope only.
    fn add_address(&mut self, view: &View, source: u32, common: Option<&CommonWords>) {
        let mut first = 0;
        let is_postcode =
            |piece: usize| view.piece(piece).len() >= 4 && view.piece(piece).bytes().all(|byte| byte.is_ascii_digit());
        for piece in 0..view.len() {
            let ends = piece + 1 == view.len() || view.gap(piece).contains([',', ';', '\n']);
            // A number of a house may be as long as a postcode, but stands first and before a street.
            let separate = is_postcode(piece)
                && (piece > first || view.piece(piece).len() >= 5 && !ends && view.len() - piece <= 3);
            if separate {
                if piece > first {
                    self.add_phrase(view, first, piece - 1, source, common);
                }
                self.add_phrase(view, piece, piece, source, common);
                first = piece + 1;
            } else if ends {
                self.add_phrase(view, first, piece, source, common);
                first = piece + 1;
            }
        }
    }

    fn add_phrase(&mut self, view: &View, first: usize, last: usize, source: u32, common: Option<&CommonWords>) {
        let length: usize = (first..=last).map(|piece| view.piece(piece).chars().count()).sum();
        let is_number = (first..=last).all(|piece| view.piece(piece).bytes().all(|byte| byte.is_ascii_digit()));
        if length < 2 || is_number && length < 4 {
            return; // A house number alone is no address.
        }
        if first == last {
            self.unspaced.add(view.piece(first), source);
        }
        let one_word = first == last && is_capital(view, first) == Some(true);
        let class = common.filter(|_| one_word).map_or(Class::Name, |common| common.class(view.piece(first)));
        self.phrases.push(Phrase {
            pieces: (first..=last).map(|piece| view.piece(piece).into()).collect(),
            gaps: (first..last).map(|piece| gap_form(view.gap(piece)).into()).collect(),
            class,
            source,
        });
    }

    /// What stands in a document, by start; `source` is twice the value's number, plus one where letters differ.
    pub fn found(&self, row: u32, view: &View, common: Option<&CommonWords>, initials: bool) -> Vec<Found> {
        let mut found = Vec::new();
        self.find(row, view, common, initials, &mut found);
        found.sort_unstable_by_key(|found| (found.start, std::cmp::Reverse(found.end), found.source));
        found.dedup_by(|next, before| is_within(next, before));
        found
    }

    fn find(&self, row: u32, view: &View, common: Option<&CommonWords>, initials: bool, found: &mut Vec<Found>) {
        let mut emit = |bounds: Option<(usize, usize)>, source: u32, edited: bool| {
            if let Some((start, end)) = bounds {
                found.push(Found { document: row, start, end, source: source * 2 + u32::from(edited) });
            }
        };
        self.misread.find(view.original, |start, end, source| emit(Some((start, end)), source, false));
        self.unspaced.find(view, |bounds, source| emit(Some(bounds), source, false));
        let cased = has_case(view.original);
        if !self.names.is_empty() {
            let setting = Setting { common, cased, initials };
            self.names
                .find(view, setting, |first, last, source, edited| emit(view.origin_of(first, last), source, edited));
        }
        if self.phrases.is_empty() && self.dates.is_empty() && self.codes.is_empty() {
            return;
        }
        for (piece, &(start, _)) in view.pieces().iter().enumerate() {
            let byte = view.text().as_bytes()[start as usize];
            if byte.is_ascii_digit() {
                for date in &self.dates {
                    if let Some((first, end)) = date.at(view, piece) {
                        emit(view.origin(view.pieces()[first].0 as usize, end), date.source, false);
                    }
                }
            }
            // Before the number of a code may stand zeros or letters.
            if has(&self.code_starts, byte)
                || byte == b'0'
                || byte.is_ascii_lowercase() && ends_in_digit(view.piece(piece))
            {
                let digit = leading_digit(view.piece(piece));
                // A phone has some thirty forms: most are told by their first digit.
                let begins =
                    |code: &&Code| if code.is_number() { digit == Some(code.first()) } else { byte == code.first() };
                for code in self.codes.iter().filter(begins) {
                    if let Some((start, end)) = code.at(view, piece) {
                        emit(view.origin(start, end), code.source, false);
                    }
                }
            }
            if has(&self.phrase_starts, byte) {
                for phrase in self.phrases.iter().filter(|phrase| phrase.stands_at(view, piece, cased)) {
                    emit(view.origin_of(piece, piece + phrase.pieces.len() - 1), phrase.source, false);
                }
            }
        }
    }
}

/// The first digit of a number, behind letters and zeros.
fn leading_digit(piece: &str) -> Option<u8> {
    let digits = piece.trim_start_matches(|c: char| c.is_ascii_alphabetic()).trim_start_matches('0');
    digits.bytes().next()
}

fn ends_in_digit(piece: &str) -> bool {
    piece.as_bytes().last().is_some_and(u8::is_ascii_digit)
}

/// What streets are cut to.
fn short_form(piece: &str) -> &str {
    match piece {
        "street" | "saint" => "st",
        "avenue" | "av" => "ave",
        "road" => "rd",
        "lane" => "ln",
        "drive" => "dr",
        "boulevard" | "bd" | "bld" => "blvd",
        "place" => "pl",
        "apartment" | "appartement" => "apt",
        "sainte" => "ste",
        "calle" => "c",
        "strasse" => "str",
        _ => piece,
    }
}

impl Phrase {
    fn stands_at(&self, view: &View, piece: usize, cased: bool) -> bool {
        let same = |at: usize| {
            let (own, found) = (&*self.pieces[at], view.piece(piece + at));
            // No word is cut to another first letter.
            own.as_bytes()[0] == found.as_bytes()[0]
                && (own == found || self.pieces.len() > 1 && short_form(own) == short_form(found))
        };
        if piece + self.pieces.len() > view.len() || !(0..self.pieces.len()).all(same) {
            return false;
        }
        let joined = |(at, gap): (usize, &str)| *gap == *gap_form(view.gap(piece + at));
        let capital = || is_capital(view, piece) != Some(false);
        self.gaps.iter().map(|gap| &**gap).enumerate().all(joined)
            && match self.class {
                Class::Name => true,
                _ if !cased => !is_in_date(view, piece),
                Class::Mixed => capital(),
                Class::Common => capital() && !starts_sentence(view, piece) && !is_in_date(view, piece),
            }
    }
}

/// The values of everybody, by individual.
pub struct Records {
    /// Unit of each group of values, ascending, and where its values stand in `values`.
    units: Vec<u32>,
    offsets: Vec<usize>,
    /// Row numbers of values, grouped.
    rows: Vec<u32>,
    values: Texts,
    fields: Vec<Field>,
}

impl Records {
    pub fn new(units: &[u32], values: Texts, fields: Vec<Field>) -> Result<Self> {
        if units.len() != values.len() || fields.len() != values.len() {
            return Err(Error::Corpus("records: one individual and one field are needed for each value".into()));
        }
        let mut rows: Vec<u32> = (0..values.len() as u32).collect();
        rows.sort_by_key(|&row| units[row as usize]);
        let mut own = Self { units: Vec::new(), offsets: Vec::new(), rows, values, fields };
        for (at, &row) in own.rows.iter().enumerate() {
            let unit = units[row as usize];
            if own.units.last() != Some(&unit) {
                own.units.push(unit);
                own.offsets.push(at);
            }
        }
        own.offsets.push(own.rows.len());
        Ok(own)
    }

    /// The values of an individual, ready to be looked for; None where there are none.
    pub fn profile(&self, unit: u32, common: Option<&CommonWords>) -> Option<Profile> {
        let at = self.units.binary_search(&unit).ok()?;
        let mut profile = Profile::default();
        for &row in &self.rows[self.offsets[at]..self.offsets[at + 1]] {
            profile.add(self.values.get(row as usize), self.fields[row as usize], row, common);
        }
        Some(profile)
    }
}

/// The same value, or its end only ("06 …" in "+33 6 …"): one span.
fn is_within(next: &Found, before: &Found) -> bool {
    next.document == before.document && next.end <= before.end && next.source / 2 == before.source / 2
}
