//! Decoding of the escapes of exported texts: HTML entities, quoted-printable, URL, RTF and JSON escapes, and spaced letters.
//!
//! `M&uuml;ller`, `M=FCller`, `M%C3%BCller`, `M\'fcller`, `M\u00fcller` and `M Ü L L E R` are read as the name that they are. The
//! result is a text with a map back (`Folded`), on which rules, records and gazetteers work as on any other; spans lie on the text as
//! it is. A sequence is decoded only if it has no other meaning: `K=40` and `50%20` are values, `C:\users` is a path.
//!
//! A text without escapes costs two searches for bytes and one for spaces; nothing is copied.

use std::iter::once;

use memchr::{memchr, memchr_iter, memchr3};

use crate::text::classes::InstructionSet;
use crate::text::fold::Folded;

/// Letters that must stand apart, with one space between each and the next, to be a word.
const MIN_APART: usize = 4;
/// Bytes of a line before a soft break of quoted-printable.
const SOFT_LINES: std::ops::RangeInclusive<usize> = 60..=80;
/// Bytes before an escape in which a web address may begin.
const MAX_ADDRESS: usize = 512;

/// The text without escapes; None where there is none, for then nothing changes.
pub fn unescape(text: &str) -> Option<Folded> {
    unescape_seen(text, seen(text.as_bytes()))
}

/// The same, where it is known what the text has.
pub fn unescape_seen(text: &str, seen: Seen) -> Option<Folded> {
    let bytes = text.as_bytes();
    if !(seen.sign || seen.equals || seen.apart) {
        return None;
    }
    let runs = if seen.apart { runs_apart(bytes) } else { Vec::new() };
    let mut next = if seen.sign || seen.equals { next_escape(text, 0, seen) } else { None };
    if runs.is_empty() && next.is_none() {
        return None;
    }
    let mut runs = runs.into_iter().peekable();
    let mut plain = Folded::default();
    let mut at = 0;
    loop {
        // A run of letters apart holds no escape.
        let run = runs.peek().map_or(usize::MAX, |run| run.0);
        match &next {
            Some(escape) if escape.start < run => {
                plain.copy(&text[at..escape.start]);
                plain.replace(escape.start, escape.end, escape.char);
                at = escape.end;
                next = next_escape(text, at, seen);
            }
            _ => {
                let Some((start, end)) = runs.next() else { break };
                plain.copy(&text[at..start]);
                for space in (start + 1..end).step_by(2) {
                    plain.copy(&text[space - 1..space]);
                    plain.replace(space, space + 1, None);
                }
                at = end - 1;
            }
        }
    }
    plain.copy(&text[at..]);
    Some(plain)
}

/// An escape, and the character it stands for; None for a break that is no character.
struct Escape {
    start: usize,
    end: usize,
    char: Option<char>,
}

/// The first escape from a byte on.
fn next_escape(text: &str, from: usize, seen: Seen) -> Option<Escape> {
    let bytes = text.as_bytes();
    let (mut at, rest) = (from, &bytes[from..]);
    let mut equals = if seen.equals { memchr(b'=', rest).map(|found| from + found) } else { None };
    let mut others = if seen.sign { memchr3(b'&', b'%', b'\\', rest).map(|found| from + found) } else { None };
    loop {
        let start = [equals, others].into_iter().flatten().min()?;
        let found = match bytes[start] {
            b'&' => entity(text, start),
            b'=' => soft_break(bytes, start).or_else(|| pairs(bytes, start)),
            b'%' => pairs(bytes, start),
            _ => backslash(bytes, start),
        };
        if let Some((end, char)) = found {
            return Some(Escape { start, end, char });
        }
        at = at.max(start) + 1;
        if equals == Some(start) {
            equals = memchr(b'=', &bytes[at..]).map(|found| at + found);
        } else {
            others = memchr3(b'&', b'%', b'\\', &bytes[at..]).map(|found| at + found);
        }
    }
}

type Found = Option<(usize, Option<char>)>;

/// `&uuml;`, `&#252;`, `&#xfc;`, and the same behind `&amp;`.
fn entity(text: &str, start: usize) -> Found {
    let bytes = text.as_bytes();
    let mut from = start + 1;
    while bytes[from..].starts_with(b"amp;")
        && bytes.get(from + 4).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'#')
    {
        let nested = entity_at(bytes, from + 4);
        if nested.is_none() {
            break;
        }
        from += 4;
    }
    entity_at(bytes, from)
}

/// The body of an entity, to its semicolon.
fn entity_at(bytes: &[u8], from: usize) -> Found {
    let length = bytes[from..].iter().take(10).position(|&byte| byte == b';')?;
    let body = std::str::from_utf8(&bytes[from..from + length]).ok()?;
    let char = match body.strip_prefix('#') {
        Some(number) => {
            let (digits, radix) = match number.strip_prefix(['x', 'X']) {
                Some(digits) => (digits, 16),
                None => (number, 10),
            };
            if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return None;
            }
            windows(u32::from_str_radix(digits, radix).ok()?)?
        }
        None => named(body)?,
    };
    Some((from + length + 1, Some(char)))
}

/// The characters of HTML's names: Latin-1, and what word processors write.
fn named(name: &str) -> Option<char> {
    /// U+00A0 to U+00FF, in order.
    const LATIN: &str = "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro \
        para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc \
        Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml Yacute THORN szlig \
        agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml eth ntilde ograve oacute ocirc \
        otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml";
    const OTHERS: &[(&str, char)] = &[
        ("amp", '&'),
        ("lt", '<'),
        ("gt", '>'),
        ("quot", '"'),
        ("apos", '\''),
        ("OElig", 'Œ'),
        ("oelig", 'œ'),
        ("Scaron", 'Š'),
        ("scaron", 'š'),
        ("Yuml", 'Ÿ'),
        ("ndash", '–'),
        ("mdash", '—'),
        ("lsquo", '‘'),
        ("rsquo", '’'),
        ("ldquo", '“'),
        ("rdquo", '”'),
        ("sbquo", '‚'),
        ("bdquo", '„'),
        ("hellip", '…'),
        ("euro", '€'),
        ("bull", '•'),
        ("Zcaron", 'Ž'),
        ("zcaron", 'ž'),
        ("Ccaron", 'Č'),
        ("ccaron", 'č'),
    ];
    if let Some(&(_, char)) = OTHERS.iter().find(|(other, _)| *other == name) {
        return Some(char);
    }
    let place = LATIN.split_ascii_whitespace().position(|other| other == name)?;
    char::from_u32(0xa0 + place as u32)
}

/// A number as HTML and Windows mean it; control characters but tab and line end are none.
fn windows(number: u32) -> Option<char> {
    /// 0x80 to 0x9f of Windows-1252; a space where nothing is.
    const HIGH: &str = "€ ‚ƒ„…†‡ˆ‰Š‹Œ Ž  ‘’“”•–—˜™š›œ žŸ";
    match number {
        9 | 10 | 13 | 0x20..=0x7e => char::from_u32(number),
        0x80..=0x9f => HIGH.chars().nth(number as usize - 0x80).filter(|&char| char != ' '),
        0xa0.. => char::from_u32(number),
        _ => None,
    }
}

/// `=` at the end of a full line.
fn soft_break(bytes: &[u8], start: usize) -> Found {
    let rest = &bytes[start + 1..];
    let length = if rest.starts_with(b"\r\n") { 2 } else { usize::from(rest.starts_with(b"\n")) };
    if length == 0 {
        return None;
    }
    let from = start.saturating_sub(*SOFT_LINES.end() + 1);
    let line = start - bytes[from..start].iter().rposition(|&byte| byte == b'\n').map_or(from, |at| from + at + 1);
    SOFT_LINES.contains(&line).then_some((start + 1 + length, None))
}

/// `=C3=BC`, `=FC`, `%C3%BC`, `%FC`, `%20`: bytes in UTF-8, else one of Windows-1252.
fn pairs(bytes: &[u8], start: usize) -> Found {
    let sign = bytes[start];
    let pair = |at: usize| {
        let [first, high, low] = *bytes.get(at..at + 3)? else { return None };
        // Quoted-printable is written in capitals.
        let small = [high, low].iter().any(u8::is_ascii_lowercase);
        if first != sign || sign == b'=' && small {
            return None;
        }
        Some((hex(high)? << 4 | hex(low)?) as u8)
    };
    let first = pair(start)?;
    let width = match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if width > 1 {
        let more: Vec<u8> = once(first).chain((1..width).map_while(|number| pair(start + 3 * number))).collect();
        let char = std::str::from_utf8(&more).ok().and_then(|text| text.chars().next());
        if more.len() == width && char.is_some() {
            return Some((start + 3 * width, char));
        }
    }
    let before = bytes[..start].last().copied().unwrap_or(b' ');
    let after = bytes.get(start + 3).copied().unwrap_or(b' ');
    let word = before.is_ascii_alphabetic() || start >= 3 && pair(start - 3).is_some();
    let reads = if first >= 0xc0 {
        // A letter: within a word, or at its end. "name=FABIEN" and "SEX=FEMALE" hold none.
        word && (after.is_ascii_lowercase() || before.is_ascii_lowercase() && !after.is_ascii_alphanumeric())
    } else {
        // A sign of ASCII between letters, as in Jean%20Dupont; "50%20" is none, and a web address keeps its own.
        sign == b'%'
            && (0x20..0x7f).contains(&first)
            && word
            && (after.is_ascii_alphanumeric() || after == b'%')
            && !is_in_address(&bytes[..start])
    };
    reads.then(|| windows(u32::from(first)).map(|char| (start + 3, Some(char)))).flatten()
}

fn hex(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(16)
}

/// Whether a web address has begun and not ended.
fn is_in_address(before: &[u8]) -> bool {
    let from = before.len().saturating_sub(MAX_ADDRESS);
    let token = &before[from + before[from..].iter().rposition(u8::is_ascii_whitespace).map_or(0, |at| at + 1)..];
    token.windows(3).any(|three| three == b"://")
        || token.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"www."))
}

/// `\'fc`, `\u252?`, `\u00fc`.
fn backslash(bytes: &[u8], start: usize) -> Found {
    let number = |digits: &[u8], radix: u32| {
        digits.iter().try_fold(0, |number, &byte| char::from(byte).to_digit(radix).map(|digit| number * radix + digit))
    };
    match *bytes.get(start + 1)? {
        b'\'' => {
            let byte = number(bytes.get(start + 2..start + 4)?, 16)?;
            (byte >= 0x80).then(|| windows(byte)).flatten().map(|char| (start + 4, Some(char)))
        }
        b'u' => {
            let digits = &bytes[start + 2..];
            let decimal = digits.iter().take(6).take_while(|byte| byte.is_ascii_digit()).count();
            // RTF: a decimal number and what older readers show.
            if (2..=5).contains(&decimal) && digits[0] != b'0' && digits.get(decimal) == Some(&b'?') {
                return Some((
                    start + 3 + decimal,
                    Some(windows(number(&digits[..decimal], 10)?).filter(|&char| char >= '\u{a0}')?),
                ));
            }
            let (end, unit) = (start + 6, number(bytes.get(start + 2..start + 6)?, 16)?);
            if (0xd800..0xdc00).contains(&unit) && bytes.get(end..end + 2) == Some(b"\\u") {
                let low = number(bytes.get(end + 2..end + 6)?, 16).filter(|low| (0xdc00..0xe000).contains(low))?;
                return Some((end + 6, char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))));
            }
            char::from_u32(unit).filter(|&char| char >= '\u{a0}').map(|char| (end, Some(char)))
        }
        _ => None,
    }
}

/// What a text has anywhere: bytes with which an escape may begin, three spaces with one letter between each and the next.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// `&`, `%` or a backslash.
    sign: bool,
    pub equals: bool,
    apart: bool,
    /// A tab, `|` or `>`: what ends a cell or a tag.
    pub edge: bool,
}

pub fn seen(bytes: &[u8]) -> Seen {
    #[cfg(target_arch = "x86_64")]
    if InstructionSet::detect() == InstructionSet::Avx2 {
        // SAFETY: the processor has AVX2; it was asked.
        return unsafe { seen_avx2(bytes) };
    }
    seen_in_chunks(bytes)
}

/// The same code, compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn seen_avx2(bytes: &[u8]) -> Seen {
    seen_in_chunks(bytes)
}

#[inline(always)]
fn seen_in_chunks(bytes: &[u8]) -> Seen {
    const CHUNK: usize = 64;
    let (mut sign, mut equals, mut apart, mut edge) = (0u8, 0u8, 0u8, 0u8);
    let mut look = |window: &[u8], length: usize| {
        let is_letter = |byte: u8| u8::from((byte | 0x20).wrapping_sub(b'a') < 26);
        let is_space = |byte: u8| u8::from(byte == b' ');
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|offset| &window[offset..offset + length]);
        for at in 0..length {
            sign |= u8::from(a[at] == b'&') | u8::from(a[at] == b'%') | u8::from(a[at] == b'\\');
            equals |= u8::from(a[at] == b'=');
            edge |= u8::from(a[at] == b'\t') | u8::from(a[at] == b'|') | u8::from(a[at] == b'>');
            apart |= is_space(a[at]) & is_letter(b[at]) & is_space(c[at]) & is_letter(d[at]) & is_space(e[at]);
        }
    };
    let mut at = 0;
    // Slices of one length, so that a processor compares many bytes at a time.
    while let Some(window) = bytes.get(at..at + CHUNK + 4) {
        look(window, CHUNK);
        at += CHUNK;
    }
    let mut last = [0; CHUNK + 8];
    let rest = &bytes[at..];
    last[..rest.len()].copy_from_slice(rest);
    look(&last, CHUNK + 4);
    Seen { sign: sign != 0, equals: equals != 0, apart: apart != 0, edge: edge != 0 }
}

/// Runs of letters apart: bounds of each, from its first letter to the end of its last.
fn runs_apart(bytes: &[u8]) -> Vec<(usize, usize)> {
    let is_word = |at: usize| bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii());
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for space in memchr_iter(b' ', bytes) {
        let Some(at) = space.checked_sub(1).filter(|&at| runs.last().is_none_or(|last| last.1 <= at)) else { continue };
        if !bytes[at].is_ascii_uppercase() || at > 0 && is_word(at - 1) {
            continue;
        }
        // One case behind the first letter: "I am a b" is no word.
        let mut end = at + 1;
        let small = bytes.get(at + 2).is_some_and(u8::is_ascii_lowercase);
        let goes_on = |end: usize| {
            let letter =
                bytes.get(end + 1).is_some_and(|byte| byte.is_ascii_alphabetic() && byte.is_ascii_lowercase() == small);
            bytes.get(end) == Some(&b' ') && letter && !is_word(end + 2)
        };
        while goes_on(end) {
            end += 2;
        }
        if (end - at).div_ceil(2) >= MIN_APART && !is_word(end) {
            runs.push((at, end));
        }
    }
    runs
}
