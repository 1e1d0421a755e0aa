//! The folded text that detectors compare, with a map to the original text: offsets always refer to the original.
//!
//! There are two foldings. `fold` is for names: it folds case and accents by the surface, and turns white space of any kind and
//! length into one space, so a name that is broken over two lines is found. `fold_plain` is for patterns: a letter or digit of any
//! script that looks like an ASCII one becomes that one, case and lines stay (`\r\n` is `\n`), and every other non-ASCII character
//! becomes one control character, so every remaining byte beyond ASCII belongs to a letter.
//!
//! The map stores only the places where lengths differ, so a text with few accents costs little more than its copy.

use std::sync::LazyLock;

use memchr::memmem;
use unicode_normalization::char::{decompose_canonical, decompose_compatible, is_combining_mark};

use crate::text::characters::is_default_ignorable;
use crate::text::plain_spans::{Stops, push_ascii};
use crate::text::surface::{Surface, capital_look_alike, casefold, look_alike};

/// Text as it is compared, and where its bytes stood.
#[derive(Default)]
pub struct Folded {
    pub text: String,
    segments: Vec<Segment>,
}

/// Characters of the original (`origin`, bytes) whose folded bytes are not as many. Between segments a byte is a byte.
struct Segment {
    folded: u32,
    /// 0 for what was left out.
    folded_len: u32,
    origin: u32,
    origin_len: u32,
}

/// What a sign becomes that no form has a use for.
const OTHER: char = '\u{1f}';

pub fn fold(text: &str, surface: Surface) -> Folded {
    let mut folded = Folded::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut stops = Stops::at_others_and_white(text);
    let of_two_bytes = (surface == Surface::Fold).then(|| &*FOLD_OF_TWO_BYTES);
    let mut at = 0;
    while at < bytes.len() {
        // A space after one that was pushed is one too many.
        if bytes[at] != b' ' || !folded.text.ends_with(' ') {
            let stop = stops.next(at);
            push_ascii(&mut folded.text, text, at, stop, surface != Surface::Exact);
            at = stop;
        }
        match bytes.get(at) {
            None => break,
            Some(byte) if byte.is_ascii() => {
                match folded.text.ends_with(' ') {
                    true => folded.note(folded.text.len() as u32, 0, at as u32, 1),
                    false => folded.text.push(' '),
                }
                at += 1;
                continue;
            }
            Some(_) => {}
        }
        if let Some(plain) = of_two_bytes.and_then(|table| plain_of_two(table, bytes, at)) {
            folded.note(folded.text.len() as u32, 1, at as u32, 2);
            folded.text.push(plain);
            at += 2;
            continue;
        }
        let Some(c) = text[at..].chars().next() else { break };
        folded.push(at, c, |c, to| if c.is_whitespace() { push_space(to) } else { push_folded(to, c, surface) });
        at += c.len_utf8();
    }
    folded
}

/// What the character of two bytes at `at` folds to, if that is one byte.
#[inline]
fn plain_of_two(table: &[u8; 0x780], bytes: &[u8], at: usize) -> Option<char> {
    let (first, second) = (bytes[at], *bytes.get(at + 1)?);
    if !(0xc2..0xe0).contains(&first) {
        return None;
    }
    let plain = *table.get(((usize::from(first) & 0x1f) << 6 | usize::from(second) & 0x3f) - 0x80)?;
    (plain != SLOW).then_some(char::from(plain))
}

fn push_space(to: &mut String) {
    if !to.ends_with(' ') {
        to.push(' ');
    }
}

/// One character, so that composed and decomposed letters meet.
fn push_folded(to: &mut String, c: char, surface: Surface) {
    match surface {
        Surface::Exact => decompose_canonical(c, |part| to.push(part)),
        Surface::Casefold => decompose_canonical(c, |part| to.extend(casefold(part))),
        Surface::Fold if is_default_ignorable(c) => {}
        Surface::Fold => decompose_compatible(c, |part| match plain_sign(part) {
            _ if part.is_whitespace() => push_space(to),
            Some(sign) => to.push(sign),
            None => casefold(part).for_each(|c| {
                decompose_canonical(c, |part| to.extend((!is_combining_mark(part)).then(|| look_alike(part))))
            }),
        }),
    }
}

/// Hyphens, apostrophes and slashes of all sorts.
pub fn plain_sign(c: char) -> Option<char> {
    match c {
        '\u{2018}' | '\u{2019}' | '\u{201b}' | '\u{2bc}' | '\u{2032}' => Some('\''),
        '\u{2010}'..='\u{2015}' | '\u{2043}' | '\u{2212}' => Some('-'),
        '\u{2044}' | '\u{2215}' => Some('/'),
        _ => None,
    }
}

/// The text as rules read it, lines of Windows (`\r\n`) as any others; None when it is ASCII and has none, for then nothing
/// changes.
pub fn fold_plain(text: &str) -> Option<Folded> {
    let bytes = text.as_bytes();
    let (mut stops, mut returns) = (Stops::at_others(text), memmem::find_iter(bytes, b"\r\n").peekable());
    let mut next = |from: usize| {
        while returns.next_if(|at| *at < from).is_some() {}
        stops.next(from).min(returns.peek().copied().unwrap_or(bytes.len()))
    };
    let mut at = next(0);
    if at == bytes.len() {
        return None;
    }
    let mut folded = Folded::with_capacity(text.len());
    let of_two_bytes = &*PLAIN_OF_TWO_BYTES;
    folded.text.push_str(&text[..at]);
    while at < bytes.len() {
        if bytes[at] == b'\r' {
            folded.note(folded.text.len() as u32, 0, at as u32, 1);
            at += 1;
        } else if let Some(plain) = plain_of_two(of_two_bytes, bytes, at) {
            folded.note(folded.text.len() as u32, 1, at as u32, 2);
            folded.text.push(plain);
            at += 2;
        } else {
            let Some(c) = text[at..].chars().next() else { break };
            folded.push(at, c, push_plain);
            at += c.len_utf8();
        }
        if at < bytes.len() {
            let stop = next(at);
            push_ascii(&mut folded.text, text, at, stop, false);
            at = stop;
        }
    }
    Some(folded)
}

/// No ASCII byte: the character is deleted, or folds to more than one.
const SLOW: u8 = 0x80;

/// The one ASCII byte that U+0080 to U+07FF fold to: most of what is not ASCII in European texts.
static PLAIN_OF_TWO_BYTES: LazyLock<[u8; 0x780]> = LazyLock::new(|| table_of(push_plain, |_| true));

/// The one letter or digit of ASCII that U+0080 to U+07FF fold to for names; what may be a space takes the long way.
static FOLD_OF_TWO_BYTES: LazyLock<[u8; 0x780]> =
    LazyLock::new(|| table_of(|c, to| push_folded(to, c, Surface::Fold), |one| one.is_ascii_alphanumeric()));

fn table_of(push: fn(char, &mut String), is_taken: fn(u8) -> bool) -> [u8; 0x780] {
    let mut table = [SLOW; 0x780];
    for (c, byte) in ('\u{80}'..='\u{7ff}').zip(&mut table) {
        let mut plain = String::new();
        push(c, &mut plain);
        if let [one] = *plain.as_bytes()
            && is_taken(one)
        {
            *byte = one;
        }
    }
    table
}

fn push_plain(c: char, to: &mut String) {
    match c {
        _ if is_default_ignorable(c) => {}
        '°' => to.push('*'), // as in n°; its compatible letter is º
        'ß' | 'ẞ' => to.push_str("ss"),
        'Æ' => to.push_str("AE"),
        'æ' => to.push_str("ae"),
        'Œ' => to.push_str("OE"),
        'œ' => to.push_str("oe"),
        'Ø' => to.push('O'),
        'ø' => to.push('o'),
        'Ł' => to.push('L'),
        'ł' => to.push('l'),
        '\u{85}' | '\u{2028}' | '\u{2029}' => to.push('\n'),
        _ => decompose_compatible(c, |part| match part {
            _ if is_combining_mark(part) => {}
            _ if part.is_ascii() => to.push(part),
            _ if part.is_whitespace() => to.push(' '),
            _ if part.is_alphanumeric() => {
                to.push(digit(part).unwrap_or_else(|| capital_look_alike(look_alike(part))));
            }
            _ => to.push(plain_sign(part).unwrap_or(OTHER)),
        }),
    }
}

/// The ASCII digit of a decimal digit of another script.
pub fn digit(c: char) -> Option<char> {
    /// The zeros of scripts whose ten digits stand in a row.
    const ZEROS: [u32; 37] = [
        0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0, 0xf20,
        0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0,
        0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0x104a0, 0x11066,
    ];
    let zero = ZEROS[ZEROS.partition_point(|&zero| zero <= c as u32).checked_sub(1)?];
    char::from_digit(c as u32 - zero, 10)
}

impl Folded {
    fn with_capacity(num_bytes: usize) -> Self {
        Self { text: String::with_capacity(num_bytes), segments: Vec::new() }
    }

    /// A part of the original as it is.
    pub fn copy(&mut self, part: &str) {
        self.text.push_str(part);
    }

    /// A character, or nothing, for `start..end` of the original.
    pub fn replace(&mut self, start: usize, end: usize, by: Option<char>) {
        let folded = self.text.len() as u32;
        self.text.extend(by);
        let folded_len = self.text.len() as u32 - folded;
        self.segments.push(Segment { folded, folded_len, origin: start as u32, origin_len: (end - start) as u32 });
    }

    /// The character at `origin`, folded by `push`.
    fn push(&mut self, origin: usize, c: char, push: impl FnOnce(char, &mut String)) {
        let (folded, origin_len) = (self.text.len() as u32, c.len_utf8() as u32);
        push(c, &mut self.text);
        let folded_len = self.text.len() as u32 - folded;
        // A character of several bytes that keeps their number may still have become several characters.
        if folded_len == origin_len && (origin_len == 1 || !self.text.as_bytes()[folded as usize].is_ascii()) {
            return;
        }
        self.note(folded, folded_len, origin as u32, origin_len);
    }

    /// Bytes of the original whose folded ones are not as many.
    #[inline]
    fn note(&mut self, folded: u32, folded_len: u32, origin: u32, origin_len: u32) {
        match self.segments.last_mut() {
            Some(last) if folded_len == 0 && last.folded_len == 0 && last.origin + last.origin_len == origin => {
                last.origin_len += origin_len;
            }
            _ => self.segments.push(Segment { folded, folded_len, origin, origin_len }),
        }
    }

    /// The original byte of a folded one, given the last segment that begins before it; None inside of a character.
    fn origin(last: Option<&Segment>, at: usize) -> Option<usize> {
        let Some(last) = last else { return Some(at) };
        let beyond = (at as u32).checked_sub(last.folded + last.folded_len)?;
        Some((last.origin + last.origin_len + beyond) as usize)
    }

    /// The original bytes of ascending folded ones that begin something; `u32::MAX` within a character.
    pub fn origins(&self, text: &str, starts: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut before = 0;
        let origin = |start: u32| {
            while self.segments.get(before).is_some_and(|segment| segment.folded <= start) {
                before += 1;
            }
            let from = match self.segments[..before].last() {
                Some(last) if last.folded == start && last.folded_len > 0 => Some(last.origin as usize),
                last => Self::origin(last, start as usize),
            };
            from.filter(|&from| from < text.len() && text.is_char_boundary(from)).map_or(u32::MAX, |from| from as u32)
        };
        starts.map(origin).collect()
    }

    /// The original bounds of a match, or None when it cuts a character: one that folds to several, or one and its accent.
    ///
    /// What was left out at either end stays out, but for the accents of the last letter.
    pub fn original(&self, text: &str, start: usize, end: usize) -> Option<(usize, usize)> {
        let before = self.segments.partition_point(|segment| segment.folded as usize <= start);
        let from = match self.segments[..before].last() {
            Some(last) if last.folded as usize == start && last.folded_len > 0 => last.origin as usize,
            last => Self::origin(last, start)?,
        };
        let before = self.segments.partition_point(|segment| (segment.folded as usize) < end);
        let mut to = Self::origin(self.segments[..before].last(), end)?;
        if self.text[end..].starts_with(is_combining_mark) || !text.is_char_boundary(from) {
            return None;
        }
        to += text.get(to..)?.chars().take_while(|&c| is_combining_mark(c)).map(char::len_utf8).sum::<usize>();
        Some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The original text of the first occurrence of `part`.
    fn found<'a>(folded: &Folded, text: &'a str, part: &str) -> Option<&'a str> {
        let at = folded.text.find(part)?;
        folded.original(text, at, at + part.len()).map(|(start, end)| &text[start..end])
    }

    #[test]
    fn plain_text_has_ascii_forms_and_leads_back() {
        let table = [
            ("n° １２３４", "n* 1234", "1234", Some("１２３４")),
            ("12\u{200b}\u{ad}34.", "1234.", "1234", Some("12\u{200b}\u{ad}34")),
            ("\u{200b}12\u{200b}", "12", "12", Some("12")),
            ("٣٣–٤", "33-4", "33-4", Some("٣٣–٤")),
            ("e\u{301}t é", "et e", "e", Some("e\u{301}")),
            ("АВС Ωδ €5", "ABC Ωδ \u{1f}5", "ABC", Some("АВС")),
            ("Straße", "Strasse", "Strasse", Some("Straße")),
            ("Straße", "Strasse", "Stras", None), // cuts a letter
            ("a\u{a0}b\nc", "a b\nc", "b\nc", Some("b\nc")),
            ("😀1", "\u{1f}1", "1", Some("1")),
            ("½ 1º", "1/2 1o", "1o", Some("1º")),
            ("1\r\n2\r\r\n\r\n", "1\n2\r\n\n", "1\n2", Some("1\r\n2")),
            ("é\r\n", "e\n", "e", Some("é")),
        ];
        for (text, plain, part, expected) in table {
            let folded = fold_plain(text).unwrap();
            assert_eq!(folded.text, plain, "{text:?}");
            assert_eq!(found(&folded, text, part), expected, "{text:?}");
        }
        assert!(fold_plain("plain ASCII, long enough").is_none());
    }

    #[test]
    fn names_fold_and_lead_back() {
        let table = [
            ("M. JEAN \n  Dupont", "m. jean dupont", "jean dupont", Some("JEAN \n  Dupont")),
            ("\u{200b}Ｄｕ\u{ad}ｐｏｎｔ\u{200b}", "dupont", "dupont", Some("Ｄｕ\u{ad}ｐｏｎｔ")),
            ("Zoe\u{301} Zoé", "zoe zoe", "zoe", Some("Zoe\u{301}")),
            ("Saint–Élie", "saint-elie", "elie", Some("Élie")),
            ("Weiß", "weiss", "weis", None),
            ("ﬁn ", "fin ", "in", None),
            ("Іvаnоv", "ivanov", "ivanov", Some("Іvаnоv")),
        ];
        for (text, plain, part, expected) in table {
            let folded = fold(text, Surface::Fold);
            assert_eq!(folded.text, plain, "{text:?}");
            assert_eq!(found(&folded, text, part), expected, "{text:?}");
        }
    }

    #[test]
    fn every_letter_leads_back_to_itself() {
        for c in '\u{80}'..='\u{ffff}' {
            let text = format!("a{c}b");
            for folded in [fold(&text, Surface::Fold), fold(&text, Surface::Exact), fold_plain(&text).unwrap()] {
                let end = folded.text.len();
                assert_eq!(folded.original(&text, 0, end), Some((0, text.len())), "{c:?}");
                assert_eq!(folded.original(&text, end - 1, end), Some((text.len() - 1, text.len())), "{c:?}");
            }
            assert!(fold_plain(&text).unwrap().text.chars().all(|c| c.is_ascii() || c.is_alphanumeric()), "{c:?}");
        }
    }
}
