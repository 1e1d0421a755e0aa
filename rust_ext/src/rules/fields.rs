//! Fields of a form: which value a name announces, for every category and by one table (`rust_ext/words`, `fields.txt`).
//!
//! The scan goes from sign to sign (`:`, `=`, the edges of cells and tags), not from word to word: text without forms costs two
//! searches for bytes. The words before a sign are looked up, the longest name first ("Fecha de ingreso" before "ingreso");
//! the value reaches to the end of its field: the line, the cell, the next name on the line. What of it is reported, the
//! field's rule says (`values`). A name with nothing behind it takes the next line, unless that is another field.

use std::sync::LazyLock;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memchr::{memchr, memchr_iter, memchr3_iter};

use super::{RULES, behind_last, behind_last_row};
use crate::error::{Error, Result};
use crate::text::classes::Block;
use crate::text::fold::fold_plain;
use crate::word_lists::{WordSet, Words as WordList, sections};

/// Bytes of white space and quotes between a sign and its value.
const MAX_GAP: usize = 64;
/// The label of a name whose value is nobody's.
const NOTHING: &str = "-";
const NO_RULE: u8 = u8::MAX;

/// What stands behind a name: rules to try in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    rules: [u8; 2],
    /// A common word: it is a name only where a field begins.
    weak: bool,
}

/// A field of a text: the rules of its value, where that begins, where it ends on its line, and where the next field begins.
pub struct Value {
    pub rules: [u8; 2],
    pub start: usize,
    pub end: usize,
    pub next: usize,
}

/// Names of fields by their words.
#[derive(Clone)]
pub struct Fields {
    whole: HashMap<Vec<u8>, Row, FixedState>,
    /// Names that any words may follow, and whether a particle must stand between: "Fecha de alta", not "Hospital course".
    heads: HashMap<Vec<u8>, (Row, bool), FixedState>,
    /// Ends of compound words.
    tails: Vec<(Vec<u8>, Row)>,
    /// Lengths (bits) of the first words of names, by their first letters: most words begin no name.
    begins: [u64; 256],
}

/// The names of fields that are shipped, one file a language.
const FILES: [&str; 4] = [
    include_str!("../../words/english/fields.txt"),
    include_str!("../../words/french/fields.txt"),
    include_str!("../../words/spanish/fields.txt"),
    include_str!("../../words/german/fields.txt"),
];

/// The table that is shipped; the error is a mistake in it, which a test would show.
static SHIPPED: LazyLock<std::result::Result<Fields, String>> = LazyLock::new(|| {
    let mut fields = Fields::default();
    for (labels, names) in FILES.into_iter().flat_map(sections) {
        for name in names {
            fields.insert(name, labels).map_err(|problem| format!("fields.txt: {name:?}: {problem}"))?;
        }
    }
    Ok(fields)
});

/// Labels that a field may have.
fn labels() -> Vec<&'static str> {
    let mut labels: Vec<&str> = RULES.iter().filter(|rule| rule.of_field).map(|rule| rule.label).collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

impl Default for Fields {
    fn default() -> Self {
        Self { whole: HashMap::default(), heads: HashMap::default(), tails: Vec::new(), begins: [0; 256] }
    }
}

impl Fields {
    /// The shipped table and rows of a user, (name, label) each; a user's row is before the shipped one of its name.
    pub fn with(rows: &[(String, String)]) -> Result<Self> {
        let mut fields = SHIPPED.as_ref().map_err(|error| Error::Policy(error.clone()))?.clone();
        let mut own = Fields::default();
        for (number, (name, label)) in rows.iter().enumerate() {
            let problem = |problem: String| Error::Policy(format!("rules: fields, row {}: {problem}", number + 1));
            own.insert(name, label).map_err(problem)?;
        }
        fields.whole.extend(own.whole);
        fields.heads.extend(own.heads);
        fields.tails.splice(..0, own.tails);
        fields.begins.iter_mut().zip(own.begins).for_each(|(all, own)| *all |= own);
        Ok(fields)
    }

    /// The shipped table.
    pub fn shipped() -> Result<&'static Self> {
        SHIPPED.as_ref().map_err(|error| Error::Policy(error.clone()))
    }

    fn insert(&mut self, name: &str, label: &str) -> std::result::Result<(), String> {
        let row = Row { rules: rules_of(label)?, weak: name.starts_with('~') };
        let (is_head, is_tail) = (name.ends_with(" *"), name.starts_with('*'));
        let bare = name.trim_start_matches(['~', '*']).trim_end_matches(" *");
        let plain = fold_plain(bare).map_or_else(|| bare.to_owned(), |folded| folded.text);
        let words = Words::before(plain.as_bytes(), plain.len());
        if words.len == 0 || plain.len() > MAX_NAME || bare.contains([':', '=', '\t', '\n', '|', '*', '>']) {
            return Err(format!(
                "a name of 1 to {MAX_WORDS} words and at most {MAX_NAME} bytes is expected, without : = * | > and line breaks"
            ));
        }
        let key = words.key_of(0, words.len).to_vec();
        if words.len > MAX_WORDS {
            return Err(format!("the name has more than {MAX_WORDS} words"));
        }
        if !is_tail {
            let (place, length) = first_word(words.key_of(0, 1));
            self.begins[place] |= length;
        }
        let other = match (is_head, is_tail) {
            (true, _) => {
                let last = plain.rsplit([' ', '\'']).find(|word| !word.is_empty()).unwrap_or_default();
                let particle = is_particle(last.as_bytes());
                self.heads.insert(key, (row, particle)).map(|(row, _)| row)
            }
            (_, true) => {
                self.tails.push((plain.to_ascii_lowercase().into_bytes(), row));
                None
            }
            _ => {
                // Scanned texts have "rn" for "m": "Narne", "Vornarne".
                let name = String::from_utf8_lossy(&key).into_owned();
                if name.contains('m') {
                    let scanned = name.replace('m', "rn");
                    let (place, length) = first_word(scanned.split(' ').next().unwrap_or_default().as_bytes());
                    self.begins[place] |= length;
                    self.whole.entry(scanned.into_bytes()).or_insert(row);
                }
                self.whole.insert(key, row)
            }
        };
        match other {
            Some(other) if other.rules != row.rules => Err("the same name has two labels".to_owned()),
            _ => Ok(()),
        }
    }

    /// The name that ends at a sign: where it begins, and its row.
    fn name_before(&self, text: &[u8], sign: usize, words: &Words) -> Option<(usize, Row)> {
        let found = self.row_of(text, words);
        if found.is_some() || text[..sign].trim_ascii_end().last() != Some(&b')') {
            return found;
        }
        // "Teléfono (móvil):", "Age (years):": the words before the bracket.
        let from = sign.saturating_sub(MAX_NAME / 2);
        let bracket = from + text[from..sign].iter().rposition(|&byte| byte == b'(')?;
        self.row_of(text, &Words::before(text, bracket))
    }

    /// The rules of the value below a cell that is a field's name.
    pub fn of_cell(&self, text: &[u8], start: usize, end: usize) -> Option<[u8; 2]> {
        let words = Words::before(text, end);
        if start == end || words.len == 0 || words.starts[0] > start + 1 {
            return None;
        }
        self.whole.get(words.key_of(0, words.len)).map(|row| row.rules)
    }

    fn row_of(&self, text: &[u8], words: &Words) -> Option<(usize, Row)> {
        for first in 0..words.len {
            let start = words.starts[first];
            let (place, length) = first_word(words.key_of(first, first + 1));
            if self.begins[place] & length == 0 {
                continue;
            }
            let begins = || {
                let before = text[..start].trim_ascii_end();
                let line = text[..start].len() > before.len() && text[before.len()..start].contains(&b'\n');
                let column = text[before.len()..start].starts_with(b"  ");
                let glued = start == before.len()
                    && before.last().is_some_and(u8::is_ascii_lowercase)
                    && text[start].is_ascii_uppercase();
                line || column
                    || glued
                    || !before.last().is_some_and(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii())
            };
            let found = self.whole.get(words.key_of(first, words.len)).filter(|row| !row.weak || begins());
            let found = found.or_else(|| {
                let lengths = (1..words.len - first).rev();
                let head = lengths.filter_map(|len| {
                    let (row, particle) = self.heads.get(words.key_of(first, first + len))?;
                    // "F. alta" is a date; "Sexo: F Edad" ends with another name.
                    let own = words.key_of(first, first + len).len() == 1
                        && self
                            .whole
                            .get(words.key_of(first + len, words.len))
                            .is_some_and(|other| other.rules != row.rules);
                    (!own && (!particle || words.after_particle[first + len])).then_some(row)
                });
                head.into_iter().next().filter(|_| begins())
            });
            if let Some(&row) = found {
                return Some((start, row));
            }
        }
        let last = words.len.checked_sub(1)?;
        let word = words.key_of(last, words.len);
        let tail = self.tails.iter().find(|(tail, _)| word.ends_with(tail));
        tail.map(|&(_, row)| (words.starts[last], row))
    }

    /// Every field of a plain text, in order; `signs` are the places of [`is_sign`] in it.
    pub fn of_text(&self, text: &[u8], signs: impl Iterator<Item = usize>, mut emit: impl FnMut(Value)) {
        let mut open: Option<(Row, usize, bool)> = None;
        let mut close = |open: Option<(Row, usize, bool)>, next: usize| {
            if let Some((row, sign, is_cell)) = open
                && let Some((start, end)) = value(text, sign, next, is_cell)
            {
                emit(Value { rules: row.rules, start, end, next });
            }
        };
        for sign in signs {
            let before = text[..sign].last().copied().unwrap_or(b'\n');
            if before.is_ascii_digit() || matches!(before, b'\n' | b'\t' | b'|') {
                continue;
            }
            let is_cell = matches!(text[sign], b'\t' | b'|' | b'>');
            let words = Words::before(text, sign);
            match self
                .name_before(text, sign, &words)
                .filter(|&(start, row)| !is_cell || fills_cell(text, start, sign, row))
            {
                Some((start, row)) => close(open.replace((row, sign, is_cell)), start),
                // A name that is not known ends the field before it too.
                None if matches!(text[sign], b':') => {
                    let start = words.last_capital(text);
                    // Not a title that the value begins with ("Remitido por: Dra: ...").
                    let is_next = |start: &usize| {
                        open.is_some_and(|(_, sign, _)| !text[sign + 1..*start].trim_ascii().is_empty())
                    };
                    if let Some(start) = start.filter(is_next) {
                        close(open.take(), start);
                    }
                }
                None => {}
            }
        }
        close(open, text.len());
    }
}

/// The rules of labels in turn, as "HEALTHPLAN, ORGANIZATION".
fn rules_of(labels: &str) -> std::result::Result<[u8; 2], String> {
    let mut rules = [NO_RULE; 2];
    if labels == NOTHING {
        return Ok(rules);
    }
    for (label, place) in labels.split(", ").zip(&mut rules) {
        // The second rule of a label is the stricter one.
        let (name, strict) = label.strip_suffix('+').map_or((label, false), |name| (name, true));
        let strictly = |rule: &super::Rule| matches!(rule.name, "field_full_name" | "field_short_ward");
        let is_it = |rule: &&super::Rule| rule.of_field && rule.label == name && strictly(rule) == strict;
        match RULES.iter().position(is_it) {
            Some(rule) => *place = rule as u8,
            None => {
                return Err(format!("unknown label {label:?}; expected {} or {NOTHING}", self::labels().join(", ")));
            }
        }
    }
    Ok(rules)
}

/// A place by the first two letters of a word, and a bit by its length.
fn first_word(word: &[u8]) -> (usize, u64) {
    let second = word.get(1).copied().unwrap_or(0);
    (usize::from(word[0].wrapping_mul(31) ^ second), 1 << word.len().min(63))
}

/// In a table or between tags the name is all that its cell holds.
fn fills_cell(text: &[u8], start: usize, sign: usize, row: Row) -> bool {
    // "2. Name |": forms number their fields.
    let bare = text[..start].trim_ascii_end();
    let bare = bare.strip_suffix(b".").map_or(text[..start].as_ref(), |bare| {
        let length = bare.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        let is_number = (1..=3).contains(&length) && bare[bare.len() - length].is_ascii_digit();
        if is_number { &bare[..bare.len() - length] } else { &text[..start] }
    });
    let before = bare.iter().rev().find(|byte| **byte != b' ');
    let column = text[..start].ends_with(b"  ");
    let is_edge = match text[sign] {
        b'>' => before == Some(&b'<'),
        _ => before.is_none_or(|byte| matches!(byte, b'\n' | b'\t' | b'|')),
    };
    (is_edge || column) && !row.weak
}

/// The end of a line, within the stretch that a rule looks at.
fn line_end(text: &[u8], from: usize) -> usize {
    let far = text.len().min(from + super::scan::LIMIT - 2);
    memchr(b'\n', &text[from.min(far)..far]).map_or(far, |length| from + length)
}

/// Where the value behind a sign stands; None where nothing stands there.
fn value(text: &[u8], sign: usize, next: usize, is_cell: bool) -> Option<(usize, usize)> {
    let skipped = |from: usize| {
        let gap = text[from..].iter().take(MAX_GAP);
        from + gap
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'*' | b'_' | b'"' | b'\'' | b'|' | b'\r' | 0x1f))
            .count()
    };
    let mut start = skipped(sign + 1);
    if text.get(start) == Some(&b'\n') && !(is_cell && text[sign] != b'>') {
        // On the next line, where that is no field: the fields in it would have ended this one.
        start = skipped(start + 1);
        let end = line_end(text, start);
        if end > next || end - start > MAX_NAME {
            return None;
        }
    }
    let start = start + text[start.min(text.len())..].iter().take_while(|&&byte| byte == b'(').count();
    let end = line_end(text, start).min(next);
    (start < end).then_some((start, end))
}

// The signs behind a field's name, and its words as the table has them: in lower case, one spelling of "number", no particles.

/// Bytes before a sign in which its name may stand.
pub const MAX_NAME: usize = 72;
/// Bytes of the words of a name with a space behind each: "#" becomes "no".
const MAX_JOINED: usize = MAX_NAME + 3 * (MAX_WORDS + 1);
/// Words of the longest name.
pub const MAX_WORDS: usize = 7;
/// Words that name nothing: they are left out of names.
static PARTICLES: WordList = LazyLock::new(|| WordSet::marked("particles", "field"));
/// Spellings of "number", but for `#`.
static NUMBER: WordList = LazyLock::new(|| WordSet::of("number"));

/// The last words before a place, in lower case, without particles and with one spelling of "number".
pub struct Words {
    pub len: usize,
    pub starts: [usize; MAX_WORDS + 1],
    /// Whether a particle was left out before the word.
    pub after_particle: [bool; MAX_WORDS + 1],
    /// The words with a space behind each, and where each begins in that.
    joined: [u8; MAX_JOINED],
    bounds: [usize; MAX_WORDS + 2],
}

impl Words {
    pub fn before(text: &[u8], end: usize) -> Self {
        let from = end.saturating_sub(MAX_NAME);
        let is_edge = |byte: &u8| {
            matches!(byte, b'\n' | b'\t' | b'|' | b';' | b'<' | b'>' | b'{' | b'[' | b'"' | b'=' | b':' | 0)
        };
        let end = end
            - text[from..end]
                .iter()
                .rev()
                .take_while(|byte| matches!(byte, b' ' | b'"' | b'\'' | b'*' | b'_' | b']' | b'\t'))
                .count();
        let from = from + behind_last(&text[from..end], is_edge);
        // Three spaces part columns: "Sex F    Age: 29".
        let from = from + behind_last_row(&text[from..end], b"   ");
        let mut words = Self {
            len: 0,
            starts: [0; MAX_WORDS + 1],
            after_particle: [false; MAX_WORDS + 1],
            joined: [0; MAX_JOINED],
            bounds: [0; MAX_WORDS + 2],
        };
        let mut found: [(usize, usize); MAX_WORDS + 1] = [(0, 0); MAX_WORDS + 1];
        // Bit n: a particle stands before the word that is n-th from the end.
        let (mut count, mut at, mut particles) = (0, end, 0u32);
        // From the end, for only the last words count.
        while at > from && count <= MAX_WORDS {
            let byte = text[at - 1];
            if !is_letter(byte) && byte != b'#' {
                at -= 1;
                continue;
            }
            let stop = at;
            at -= 1;
            if byte != b'#' {
                while at > from && is_letter(text[at - 1]) && !is_hump(text, at) {
                    at -= 1;
                }
                // The window cuts it.
                if at == from && from > 0 && is_letter(text[from - 1]) {
                    break;
                }
            }
            let word = &text[at..stop];
            // "n.º" is "n.o" here.
            if word == b"o" && text[..at].ends_with(b"n.") {
                continue;
            }
            if is_particle(word) {
                particles |= 1 << count;
            } else {
                found[count] = (at, stop);
                count += 1;
            }
        }
        let mut filled = 0;
        for number in (0..count).rev() {
            let (start, stop) = found[number];
            let word = &text[start..stop];
            words.after_particle[words.len] = particles >> (number + 1) & 1 != 0;
            words.starts[words.len] = start;
            words.bounds[words.len] = filled;
            let word = if is_number(word) { &b"no"[..] } else { word };
            for (to, from) in words.joined[filled..].iter_mut().zip(word) {
                *to = from.to_ascii_lowercase();
            }
            filled += word.len();
            words.joined[filled] = b' ';
            filled += 1;
            words.len += 1;
        }
        words.bounds[words.len] = filled;
        words
    }

    /// The words `first..last`, joined.
    pub fn key_of(&self, first: usize, last: usize) -> &[u8] {
        &self.joined[self.bounds[first]..self.bounds[last] - 1]
    }

    /// Where the last capitalised word begins.
    pub fn last_capital(&self, text: &[u8]) -> Option<usize> {
        self.starts[..self.len].iter().rev().copied().find(|&start| text[start].is_ascii_uppercase())
    }
}

/// Signs behind a field's name: between it and its value, or at the edge of its cell or tag.
pub fn is_sign(byte: u8) -> bool {
    matches!(byte, b':' | b'=' | b'\t' | b'|' | b'>')
}

/// The places of signs, of colons by the masks of a text; `others` false says that there are no other signs.
pub fn signs(text: &[u8], blocks: &[Block], others: bool) -> Vec<usize> {
    let mut signs = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        let mut colons = block.colon;
        while colons != 0 {
            signs.push(number * 64 + colons.trailing_zeros() as usize);
            colons &= colons - 1;
        }
    }
    if !others {
        return signs;
    }
    let num_colons = signs.len();
    signs.extend(memchr3_iter(b'=', b'\t', b'|', text));
    signs.extend(memchr_iter(b'>', text));
    if signs.len() > num_colons {
        signs.sort_unstable();
    }
    signs
}

/// A word that names nothing.
pub fn is_particle(word: &[u8]) -> bool {
    word.len() <= 3 && PARTICLES.has_any_case(word)
}

fn is_number(word: &[u8]) -> bool {
    matches!(word[0], b'n' | b'N') && NUMBER.has_any_case(word) || word == b"#"
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// A capital within a word begins another: PatientName, and MartínezNoCol where a space is missing.
fn is_hump(text: &[u8], at: usize) -> bool {
    text[at].is_ascii_uppercase() && text[at - 1].is_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fields::is_sign;

    fn found(fields: &Fields, text: &str) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let signs = (0..text.len()).filter(|&at| is_sign(text.as_bytes()[at]));
        fields.of_text(text.as_bytes(), signs, |value| {
            let label = RULES.get(value.rules[0] as usize).map_or(NOTHING, |rule| rule.label);
            found.push((label, text[value.start..value.end].to_owned()));
        });
        found
    }

    #[test]
    fn fields_of_hand_worked_texts() {
        let table: &[(&str, &[(&str, &str)])] = &[
            ("Age: 45", &[("AGE", "45")]),
            ("Edad: 16 anos Sexo: H", &[("AGE", "16 anos "), ("-", "H")]),
            ("Fecha de Ingreso: 1", &[("DATE", "1")]),
            ("N* de dossier : 12", &[("MRN", "12")]),
            ("Drug name: Aspirin", &[("-", "Aspirin")]),
            ("Name:\nJohn\nx", &[("NAME", "John")]),
            ("Name:\nAge: 4", &[("AGE", "4")]),
            ("Name:", &[]),
            ("10:30 a:b", &[]),
            ("| Name | John | Age | 4 |", &[("NAME", "John | "), ("AGE", "4 |")]),
            ("<Name>John</Name>", &[("NAME", "John</Name>")]),
            ("Telefono (movil): 6", &[("PHONE", "6")]),
            ("\"PatientName\": \"Ann\"", &[("NAME", "Ann\"")]),
        ];
        let fields = Fields::shipped().unwrap();
        for (text, expected) in table {
            let expected: Vec<_> = expected.iter().map(|&(label, value)| (label, value.to_owned())).collect();
            assert_eq!(found(fields, text), expected, "{text:?}");
        }
    }

    #[test]
    fn rows_of_a_user_are_checked() {
        let with = |name: &str, label: &str| Fields::with(&[(name.to_owned(), label.to_owned())]);
        assert_eq!(found(&with("Taquilla n.º", "ID").unwrap(), "Taquilla No: 12"), [("ID", "12".to_owned())]);
        assert_eq!(found(&with("Age", "-").unwrap(), "Age: 12"), [("-", "12".to_owned())]);
        for (name, label) in [("", "ID"), ("a:b", "ID"), ("locker", "COLOUR"), ("...", "ID"), ("a b c e f g h i", "ID")]
        {
            assert!(with(name, label).is_err(), "{name:?}");
        }
        let twice = [("Locker", "ID"), ("LOCKER", "NAME")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert!(Fields::with(&twice).is_err());
    }
}
