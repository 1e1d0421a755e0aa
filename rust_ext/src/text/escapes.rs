//! Decoding of the escapes of exported texts: HTML entities, quoted-printable, URL, RTF, JSON and HL7 escapes, UTF-8 that was read
//! as Windows-1252, comments within words, and what `layout` undoes.
//!
//! `M&uuml;ller`, `M=FCller`, `M%C3%BCller`, `M\'fcller`, `M\u00fcller`, `M\XFC\ller`, `MÃ¼ller` and `M Ü L L E R` are read as the name that they are. The
//! result is a text with a map back (`Folded`), on which rules, records and gazetteers work as on any other; spans lie on the text as
//! it is. A sequence is decoded only if it has no other meaning: `K=40` and `50%20` are values, `C:\users` is a path.
//!
//! A text without escapes costs one search for all that an escape may begin with; nothing is copied.

use memchr::{memchr, memchr3, memmem};

use crate::text::byte_features::{ByteFeatures, byte_features};
use crate::text::fold::Folded;
use crate::text::layout::edits;

/// Bytes of a line before a soft break of quoted-printable.
const SOFT_LINES: std::ops::RangeInclusive<usize> = 60..=80;
/// Bytes before an escape in which a web address may begin.
const MAX_ADDRESS: usize = 512;
/// Bytes of a comment within a word.
const MAX_COMMENT: usize = 512;

/// The text without escapes; None where there is none, for then nothing changes.
pub fn unescape(text: &str) -> Option<Folded> {
    unescape_with(text, byte_features(text.as_bytes()))
}

/// The same, where it is known what the text has.
pub fn unescape_with(text: &str, features: ByteFeatures) -> Option<Folded> {
    let edits = edits(text, features);
    let wide = !text.is_ascii();
    let any = features.sign || features.equals || features.edge || wide;
    let mut next = if any { next_escape(text, 0, features, wide) } else { None };
    if edits.is_empty() && next.is_none() {
        return None;
    }
    let mut edits = edits.into_iter().peekable();
    let mut plain = Folded::default();
    let mut at = 0;
    loop {
        let edit = edits.peek().map_or(usize::MAX, |edit| edit.start);
        let (start, end, char) = match &next {
            Some(escape) if escape.start <= edit => (escape.start, escape.end, escape.char),
            _ => {
                let Some(edit) = edits.next() else { break };
                (edit.start, edit.end, edit.char)
            }
        };
        plain.copy(&text[at..start]);
        plain.replace(start, end, char);
        at = end;
        while edits.next_if(|edit| edit.start < at).is_some() {}
        if next.as_ref().is_some_and(|escape| escape.start < at) {
            next = next_escape(text, at, features, wide);
        }
    }
    plain.copy(&text[at..]);
    Some(plain)
}

/// What is written otherwise, and the character it stands for; None for a break that is no character.
pub struct Escape {
    pub start: usize,
    pub end: usize,
    pub char: Option<char>,
}

/// The first escape from a byte on.
fn next_escape(text: &str, from: usize, features: ByteFeatures, wide: bool) -> Option<Escape> {
    let bytes = text.as_bytes();
    let (mut at, rest) = (from, &bytes[from..]);
    let mut equals = if features.equals { memchr(b'=', rest).map(|found| from + found) } else { None };
    let mut others = if features.sign { memchr3(b'&', b'%', b'\\', rest).map(|found| from + found) } else { None };
    let mut tags = if features.edge { memchr(b'<', rest).map(|found| from + found) } else { None };
    let mut leads = if wide { next_lead(bytes, from) } else { None };
    loop {
        let start = [equals, others, tags, leads].into_iter().flatten().min()?;
        let found = match bytes[start] {
            LEAD => garbled(text, start).map(|(end, char)| (end, Some(char))),
            b'&' => entity(text, start),
            b'<' => tags_within(text, start),
            b'=' => soft_break(bytes, start).or_else(|| pairs(bytes, start)),
            b'%' => pairs(bytes, start),
            _ => backslash(bytes, start),
        };
        if let Some((end, char)) = found {
            return Some(Escape { start, end, char });
        }
        at = at.max(start) + 1;
        if leads == Some(start) {
            leads = next_lead(bytes, at);
        } else if tags == Some(start) {
            tags = memchr(b'<', &bytes[at..]).map(|found| at + found);
        } else if equals == Some(start) {
            equals = memchr(b'=', &bytes[at..]).map(|found| at + found);
        } else {
            others = memchr3(b'&', b'%', b'\\', &bytes[at..]).map(|found| at + found);
        }
    }
}

type Found = Option<(usize, Option<char>)>;

/// Comments of HTML, `<!-- x -->`, and `<wbr>` between two letters: neither is shown.
fn tags_within(text: &str, start: usize) -> Found {
    let mut end = start;
    while let Some(length) = tag(&text.as_bytes()[end..]) {
        end += length;
    }
    let is_letter = |char: Option<char>| char.is_some_and(char::is_alphabetic);
    (end > start && is_letter(text[..start].chars().next_back()) && is_letter(text[end..].chars().next()))
        .then_some((end, None))
}

/// The length of a comment or a `<wbr>` that begins here.
fn tag(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(b"<!--") {
        let bytes = &bytes[..bytes.len().min(MAX_COMMENT)];
        return memmem::find(&bytes[4..], b"-->").map(|at| 4 + at + 3);
    }
    let name = bytes.get(..4).filter(|name| name.eq_ignore_ascii_case(b"<wbr"))?;
    let rest = &bytes[name.len()..bytes.len().min(8)];
    let close = memchr(b'>', rest)?;
    rest[..close].iter().all(|byte| matches!(byte, b' ' | b'/')).then_some(name.len() + close + 1)
}

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
    const OTHERS: &str = "amp=& lt=< gt=> quot=\" apos=' OElig=Œ oelig=œ Scaron=Š scaron=š Yuml=Ÿ ndash=– mdash=— lsquo=‘ rsquo=’ \
        ldquo=“ rdquo=” sbquo=‚ bdquo=„ hellip=… euro=€ bull=• Zcaron=Ž zcaron=ž Ccaron=Č ccaron=č";
    let of_name = |entry: &'static str| entry.strip_prefix(name)?.strip_prefix('=')?.chars().next();
    if let Some(char) = OTHERS.split(' ').find_map(of_name) {
        return Some(char);
    }
    let place = LATIN.split_ascii_whitespace().position(|other| other == name)?;
    char::from_u32(0xa0 + place as u32)
}

/// 0x80 to 0x9f of Windows-1252; a space where nothing is.
pub const HIGH: &str = "€ ‚ƒ„…†‡ˆ‰Š‹Œ Ž  ‘’“”•–—˜™š›œ žŸ";

/// A number as HTML and Windows mean it; control characters but tab and line end are none.
fn windows(number: u32) -> Option<char> {
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

/// Where a line goes on that is softly broken here.
fn after_break(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(b'=') => soft_break(bytes, at).map_or(at, |(end, _)| end),
        _ => at,
    }
}

/// Where the line before was softly broken that goes on here.
fn before_break(bytes: &[u8], at: usize) -> usize {
    let breaks = [b"=\n".as_slice(), b"=\r\n"];
    let start = breaks.into_iter().find_map(|ending| bytes[..at].ends_with(ending).then(|| at - ending.len()));
    start.filter(|&start| soft_break(bytes, start).is_some()).unwrap_or(at)
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
        let (mut more, mut end) = (vec![first], start + 3);
        while let Some((at, byte)) =
            (more.len() < width).then(|| after_break(bytes, end)).and_then(|at| Some((at, pair(at)?)))
        {
            more.push(byte);
            end = at + 3;
        }
        let char = std::str::from_utf8(&more).ok().and_then(|text| text.chars().next());
        if more.len() == width && char.is_some() {
            return Some((end, char));
        }
    }
    let from = before_break(bytes, start);
    let before = bytes[..from].last().copied().unwrap_or(b' ');
    let after = bytes.get(after_break(bytes, start + 3)).copied().unwrap_or(b' ');
    let word = before.is_ascii_alphabetic() || from >= 3 && pair(from - 3).is_some();
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

/// First byte of what begins UTF-8 that was read as Windows-1252: `Ã` and its neighbours.
const LEAD: u8 = 0xc3;

/// Where a letter from `Â` to `é` stands before a character that Windows-1252 has beyond ASCII.
fn next_lead(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr(LEAD, &bytes[at..])?;
        if let [_, 0x82..=0xa9, 0xc2 | 0xc5 | 0xc6 | 0xcb | 0xe2, ..] = bytes[at..] {
            return Some(at);
        }
        at += 1;
    }
}

/// `Ã¼`, and `ÃƒÂ¼` where it happened twice.
fn garbled(text: &str, start: usize) -> Option<(usize, char)> {
    let (end, first) = garbled_once(text, start)?;
    let twice = byte_of(first).filter(|byte| *byte >= 0xc2).and_then(|lead| {
        let (end, second) = garbled_once(text, end)?;
        let two = [lead, byte_of(second)?];
        std::str::from_utf8(&two).ok()?.chars().next().map(|char| (end, char))
    });
    twice.or(Some((end, first)).filter(|(_, char)| *char >= '\u{a0}'))
}

/// The character whose bytes in UTF-8 stand here as characters of Windows-1252 or Latin-1.
fn garbled_once(text: &str, start: usize) -> Option<(usize, char)> {
    let mut chars = text[start..].char_indices();
    let lead = byte_of(chars.next()?.1)?;
    let width = match lead {
        0xc2..=0xc5 | 0xce..=0xd1 | 0xd8..=0xd9 => 2,
        0xe1..=0xe9 => 3,
        _ => return None,
    };
    let (mut bytes, mut weak) = (vec![lead], true);
    for (_, char) in chars.by_ref().take(width - 1) {
        bytes.push(byte_of(char)?);
        weak &= follows_words(char);
    }
    let char = std::str::from_utf8(&bytes).ok()?.chars().next()?;
    let next = chars.next();
    let end = start + next.map_or(text.len() - start, |(at, _)| at);
    let small = |char: Option<char>| char.is_some_and(char::is_lowercase);
    let mut before = text[..start].chars().rev();
    let (last, first) = (before.next(), before.next());
    // Signs that may follow a word in capitals ("PÅ»") say it only within one, for no capital stands behind a small letter,
    // and beside others of the kind.
    let within = width == 2 && small(last)
        || !text[..end].ends_with('\u{a0}') && small(next.map(|(_, char)| char))
        || first.zip(last).is_some_and(is_pair)
        || next.zip(chars.next()).is_some_and(|((_, first), (_, second))| is_pair((first, second)));
    (bytes.len() == width && (!weak || within)).then_some((end, char))
}

/// Whether two characters are a letter of two bytes in UTF-8, read otherwise.
fn is_pair((first, second): (char, char)) -> bool {
    matches!(byte_of(first), Some(0xc2..=0xc5 | 0xce..=0xd1 | 0xd8..=0xd9))
        && matches!(byte_of(second), Some(0x80..=0xbf))
}

/// The byte of a character beyond ASCII in Windows-1252, or else in Latin-1.
fn byte_of(char: char) -> Option<u8> {
    match char {
        '\u{80}'..='\u{ff}' => Some(char as u8),
        _ => HIGH.chars().position(|other| other == char).filter(|_| char != ' ').map(|at| 0x80 + at as u8),
    }
}

/// Signs that stand right behind a word.
fn follows_words(char: char) -> bool {
    "«»’‘“”„‚…–—•›‹™®°²³¹ºª\u{a0}\u{ad}´·".contains(char)
}

/// `\XFC\`, `\XC3BC\`, `\.br\`: HL7.
fn hl7(bytes: &[u8], start: usize) -> Found {
    let rest = &bytes[start + 1..];
    if rest.get(..4).is_some_and(|tag| tag.eq_ignore_ascii_case(b".br\\") || tag.eq_ignore_ascii_case(b".sp\\")) {
        return Some((start + 5, Some('\n')));
    }
    let length = rest.iter().take(10).position(|&byte| byte == b'\\')?;
    let digits = rest.get(1..length).filter(|digits| !digits.is_empty() && digits.len().is_multiple_of(2))?;
    let read =
        digits.chunks(2).map(|pair| Some((hex(pair[0])? << 4 | hex(pair[1])?) as u8)).collect::<Option<Vec<u8>>>()?;
    let char = match &read[..] {
        [13] | [10] | [13, 10] => '\n',
        [one] if *one < 0x80 => return None,
        [one] => windows(u32::from(*one))?,
        several => {
            let mut chars = std::str::from_utf8(several).ok()?.chars();
            chars.next().filter(|_| chars.as_str().is_empty())?
        }
    };
    Some((start + length + 2, Some(char)))
}

/// `\'fc`, `\u252?`, `\u252\'fc`, `\u00fc`, `\\u00fc`; and HL7's.
fn backslash(bytes: &[u8], start: usize) -> Found {
    let number = |digits: &[u8], radix: u32| {
        digits.iter().try_fold(0, |number, &byte| char::from(byte).to_digit(radix).map(|digit| number * radix + digit))
    };
    match *bytes.get(start + 1)? {
        b'X' | b'.' => hl7(bytes, start),
        // JSON within JSON.
        b'\\' if bytes.get(start + 2) == Some(&b'u') => backslash(bytes, start + 1),
        b'\'' => {
            let byte = number(bytes.get(start + 2..start + 4)?, 16)?;
            (byte >= 0x80).then(|| windows(byte)).flatten().map(|char| (start + 4, Some(char)))
        }
        b'u' => {
            let digits = &bytes[start + 2..];
            let decimal = digits.iter().take(6).take_while(|byte| byte.is_ascii_digit()).count();
            // RTF: a decimal number and what older readers show.
            let shown = match digits.get(decimal..) {
                Some([b'?', ..]) => 1,
                Some([b'\\', b'\'', high, low, ..]) if hex(*high).and(hex(*low)).is_some() => 4,
                _ => 0,
            };
            if (2..=5).contains(&decimal) && digits[0] != b'0' && shown > 0 {
                return Some((
                    start + 2 + decimal + shown,
                    Some(windows(number(&digits[..decimal], 10)?).filter(|&char| char >= '\u{a0}')?),
                ));
            }
            let (end, unit) = (start + 6, number(bytes.get(start + 2..start + 6)?, 16)?);
            if (0xd800..0xdc00).contains(&unit) && bytes.get(end..end + 2) == Some(b"\\u") {
                let low = number(bytes.get(end + 2..end + 6)?, 16).filter(|low| (0xdc00..0xe000).contains(low))?;
                return Some((end + 6, char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))));
            }
            char::from_u32(unit).filter(|char| matches!(char, ' '..='~' | '\u{a0}'..)).map(|char| (end, Some(char)))
        }
        _ => None,
    }
}
