//! What an expression cannot say of places: the words before and behind a postcode, a house's number, a country.

use std::sync::LazyLock;

use super::Hit;
use crate::word_lists::{WordSet, Words, marked, words};

/// The sign that ends a sentence or a field is no part of an address.
fn trim(hit: &mut Hit) {
    while hit.end > hit.start + 1 && matches!(hit.text[hit.end - 1], b'.' | b',' | b' ' | b'-') {
        hit.end -= 1;
    }
}

/// A house's number, a floor or a line before it, or the country's letter.
pub fn is_behind_a_house(hit: &mut Hit) -> bool {
    let lettered = hit.before().ends_with(b"-");
    let before = hit.before().trim_ascii_end();
    let comma = before.ends_with(b",") || hit.before().ends_with(b"\n");
    let bare = before.strip_suffix(b",").unwrap_or(before);
    let house = bare[bare.iter().rposition(|byte| matches!(byte, b' ' | b'\n')).map_or(0, |at| at + 1)..].to_vec();
    let street = &bare[..bare.len() - house.len()];
    let street = street.trim_ascii_end();
    let numbered = house.first().is_some_and(u8::is_ascii_digit)
        && house.len() <= 8
        && street
            .last()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii() || *byte == b'.' || *byte == b',')
        && street[street.iter().rposition(|byte| *byte == b' ').map_or(0, |at| at + 1)..].len() > 3;
    let year = matches!(hit.piece(), [b'1', b'8' | b'9', ..] | [b'2', b'0', ..]);
    lettered && hit.before().iter().rev().nth(1).is_some_and(u8::is_ascii_uppercase) || comma && numbered && !year
}

/// Words that stand where a town may, and are none.
static NO_TOWNS: Words = LazyLock::new(|| WordSet::of("no towns"));
/// Those that begin a way to reach somebody, as they are compared.
static REACHED: LazyLock<Vec<&'static [u8]>> =
    LazyLock::new(|| marked("no towns", "reach").map(str::as_bytes).collect());

/// A town behind its postcode; behind a town, what stands in brackets, ends the address, or is a country.
pub fn is_town(hit: &mut Hit) -> bool {
    let mut start = 0;
    for word in hit.piece().split(|&byte| byte == b' ') {
        if NO_TOWNS.has(word) && (start > 0 || word.len() > 3 || word == b"Tel" || word == b"Fax" || word == b"Tlf") {
            if start == 0 {
                return false;
            }
            hit.end = hit.start + start - 1;
            break;
        }
        start += word.len() + 1;
    }
    let before = hit.before();
    // "34800   Commune : Lyon": the name of the next field.
    if matches!(hit.after().trim_ascii_start(), [b':' | b'=' | b'|', ..]) {
        return false;
    }
    let signs = before.iter().rev().take_while(|byte| matches!(byte, b' ' | b',' | b'.' | b'(' | b')' | b'-')).count();
    let digits = before[..before.len() - signs].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 {
        let word = &hit.piece()[..hit.piece().iter().take_while(|byte| **byte != b' ').count()];
        let telling = word.len() > 2 && (word.len() > 3 || word[1..].iter().any(|byte| !byte.is_ascii_uppercase()));
        // "33274. It serves" goes on with a sentence.
        let sentence =
            before[before.len() - signs..].contains(&b'.') && matches!(hit.after(), [b' ', b'a'..=b'z', ..]) && {
                let rest = &hit.after()[1..];
                !rest[..rest.iter().take_while(|byte| **byte != b' ').count()].contains(&b'@')
            };
        if !telling || sentence {
            return false;
        }
        let end = hit.start - signs;
        let mut zip = Hit { text: hit.text, start: end - digits, end, apart: false };
        return if digits == 5 { is_beside_a_town(&mut zip) } else { digits == 4 && is_behind_a_house(&mut zip) };
    }
    // "EE. UU." or the next sentence?
    ends_an_address(hit)
}

/// In brackets, or before the end of the line or a way to reach somebody.
pub fn ends_an_address(hit: &mut Hit) -> bool {
    let before = hit.before();
    let named = before.trim_ascii_end();
    let named = named.trim_ascii_end();
    let sign = named.last().copied().unwrap_or(b'\n');
    let capital = {
        let bare = named.strip_suffix(b"(").unwrap_or(named).trim_ascii_end();
        let bare = bare
            .strip_suffix(b".")
            .or_else(|| bare.strip_suffix(b","))
            .or_else(|| bare.strip_suffix(b")"))
            .or_else(|| bare.strip_suffix(b"-"))
            .unwrap_or(bare)
            .trim_ascii_end();
        let word = &bare
            [bare.iter().rposition(|byte| matches!(byte, b' ' | b'\n' | b'(' | b'.' | b',')).map_or(0, |at| at + 1)..];
        word.first().is_some_and(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || !byte.is_ascii())
    };
    let after = hit.after();
    let bracketed = sign == b'(' && after.starts_with(b")");
    let rest =
        &after[after.iter().take_while(|byte| matches!(byte, b' ' | b'.' | b',' | b')' | b';' | b'-')).count()..];
    let word = &rest[..rest.iter().take_while(|byte| !matches!(byte, b' ' | b'\n' | b':')).count()];
    let reached = word.contains(&b'@')
        || REACHED.iter().any(|other| word.get(..other.len()).is_some_and(|start| start.eq_ignore_ascii_case(other)));
    let ends = rest.is_empty() || rest.starts_with(b"\n") || reached;
    capital && (bracketed || ends && !matches!(sign, b'\n' | b':'))
}

/// One to three capitalised words stand before the state or the postcode, behind a sign or a kind of street; they are what is found.
pub fn is_town_before_zip(hit: &mut Hit) -> bool {
    static KINDS: Words = LazyLock::new(|| WordSet::of("kinds of street"));
    static NO_TOWN: Words = LazyLock::new(|| WordSet::of("no towns before a postcode"));
    let lettered = hit.piece().iter().take_while(|byte| byte.is_ascii_alphabetic()).count() == 2;
    let state = lettered && matches!(hit.piece()[2], b' ' | b',' | b'.');
    let before = hit.before();
    let signs = before.iter().rev().take_while(|byte| matches!(byte, b' ' | b',' | b'.' | b'\n')).count();
    let bare = &before[..before.len() - signs];
    if signs == 0 || signs > 3 || before[bare.len()..].iter().filter(|byte| **byte == b'\n').count() > 1 {
        return false;
    }
    let (mut start, mut words) = (bare.len(), 0);
    for word in bare.rsplit(|byte| *byte == b' ').take(3) {
        let from = word
            .iter()
            .rposition(|byte| matches!(byte, b'\n' | b',' | b'*' | b'(' | b'|' | b'\t'))
            .map_or(0, |at| at + 1);
        let (sign, word) = (from > 0, &word[from..]);
        let bare_word = word.strip_suffix(b".").unwrap_or(word);
        let is_part = word.len() > 1
            && (word[0].is_ascii_uppercase() || !word[0].is_ascii())
            && bare_word
                .iter()
                .all(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii() || matches!(byte, b'-' | b'\''));
        // "12 Main St Boston" ends the street; "St. Paul" begins a town.
        if !is_part || NO_TOWN.has(bare_word) || KINDS.has(bare_word) && (words == 0 || word != b"St.") {
            break;
        }
        start = word.as_ptr() as usize - bare.as_ptr() as usize;
        words += 1;
        if sign {
            break;
        }
    }
    let long = bare.len() - start >= 3;
    let behind = bare[..start].trim_ascii_end();
    let delimited = behind.is_empty()
        || bare[..start].ends_with(b"\n")
        || matches!(behind.last(), Some(b',' | b'.' | b'*' | b'(' | b'|' | b';' | b'0'..=b'9'))
        || KINDS.has(behind.rsplit(|byte| *byte == b' ').next().unwrap_or_default());
    if words == 0 || !long || !(state || delimited) {
        return false;
    }
    let from = hit.start - (before.len() - start);
    // The state or the province is a part of what is found.
    hit.end = if state { hit.start + 2 } else { from + (bare.len() - start) };
    hit.start = from;
    true
}

/// One to four capitalised words stand before a house's number; they are a part of what is found.
pub fn is_behind_a_name(hit: &mut Hit) -> bool {
    static PARTICLES: Words = LazyLock::new(|| WordSet::marked("particles", "street"));
    static NO_STREETS: Words = LazyLock::new(|| WordSet::of("no streets"));
    trim(hit);
    let before = hit.before().trim_ascii_end();
    let before = before.strip_suffix(b",").unwrap_or(before).trim_ascii_end();
    let end = hit.start - (hit.before().len() - before.len());
    let (mut at, mut start, mut words) = (before.len(), before.len(), 0);
    for word in before.rsplit(|&byte| byte == b' ').take(5) {
        let from = at - word.len();
        let capital = word.first().is_some_and(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
        let plain = word
            .iter()
            .all(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii() || matches!(byte, b'-' | b'\'' | b'.'));
        if word.is_empty()
            || !plain && !PARTICLES.has(word)
            || !(PARTICLES.has(word) || capital)
            || NO_STREETS.has(word)
            || word.ends_with(b".") && word.len() > 4
        {
            break;
        }
        if capital {
            (start, words) = (from, words + 1);
        }
        at = from.saturating_sub(1);
    }
    let found = (1..=4).contains(&words);
    if found {
        hit.start = end - (before.len() - start);
    }
    found
}

/// Four digits at least; the postcode of another country may have letters.
pub fn is_postcode(hit: &mut Hit) -> bool {
    super::checks::num_digits(hit.piece()) >= 4 || hit.piece().iter().any(u8::is_ascii_alphabetic)
}

/// Before a postcode stands a sign, a number, a line or a name, not a word of a sentence ("con 25000 Leukozyten").
pub fn is_beside_a_town(hit: &mut Hit) -> bool {
    let before = hit.before().trim_ascii_end();
    let letters = before.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'/').count();
    let word = &before[before.len() - letters..];
    static COUNTED: Words = LazyLock::new(|| WordSet::of("counted behind"));
    static FLOORS: Words = LazyLock::new(|| WordSet::of("floors"));
    let unit = hit.text[hit.end..].trim_ascii_start();
    let count = COUNTED.iter().any(|word| unit.starts_with(word));
    let acronym = (3..=5).contains(&word.len()) && word.iter().all(u8::is_ascii_uppercase);
    let item = hit.before().ends_with(
        b"
",
    ) && unit.starts_with(b",");
    let number = matches!(hit.before(), [.., b'0'..=b'9', b'-' | b'/' | b'.']);
    !count
        && !number
        && !super::numbers::is_counted(hit)
        && !acronym
        && !item
        && !hit.piece().starts_with(b"00")
        && (word.len() < 2 || !word[0].is_ascii_lowercase() || FLOORS.has(word))
}

/// A town of at least three letters or "s/n" before it; provinces and departments go from 01 to 98, counts end in zeros.
pub fn is_behind_a_town(hit: &mut Hit) -> bool {
    let before = hit.before().trim_ascii_end();
    let signs = before.iter().rev().take_while(|byte| matches!(byte, b',' | b'.' | b'(' | b')' | b'-' | b' ')).count();
    let before = &before[..before.len() - signs.min(3)];
    let letters = before.iter().rev().take_while(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii()).count();
    let town = &before[before.len() - letters..];
    let named =
        town.len() >= 3 && town[0].is_ascii_uppercase() && town[1..].iter().all(|byte| !byte.is_ascii_uppercase());
    let digits = &hit.piece()[hit.piece().len() - 5..];
    (named || before.ends_with(b"s/n") || before.ends_with(b"S/N"))
        && !matches!(digits, [b'0', b'0', ..] | [b'9', b'9', ..] | [.., b'0', b'0', b'0'])
}

/// Whether a German kind of street ends before a place.
pub fn has_street_before(before: &[u8]) -> bool {
    street_at_end(before.trim_ascii_end()).is_some()
}

fn street_at_end(before: &[u8]) -> Option<&'static [u8]> {
    static KINDS: LazyLock<Vec<&'static [u8]>> =
        LazyLock::new(|| words("ends of streets").map(str::as_bytes).collect());
    if !matches!(before.last(), Some(b'e' | b'E' | b'.' | b'g' | b'G' | b'z' | b'Z' | b'm' | b'M' | b'r' | b'R')) {
        return None;
    }
    KINDS
        .iter()
        .copied()
        .find(|kind| before.len() > kind.len() && before[before.len() - kind.len()..].eq_ignore_ascii_case(kind))
}

/// A capitalised word that ends as German streets do stands before the number; it is a part of what is found.
pub fn is_behind_a_street(hit: &mut Hit) -> bool {
    while hit.text[hit.end - 1] == b' ' {
        hit.end -= 1;
    }
    let before = hit.before().trim_ascii_end();
    let Some(kind) = street_at_end(before) else {
        return false;
    };
    let word = |byte: &u8| byte.is_ascii_alphabetic() || !byte.is_ascii() || *byte == b'-';
    let mut length =
        kind.len() + before[..before.len() - kind.len()].iter().rev().take_while(|&byte| word(byte)).count();
    if length == kind.len() && before[..before.len() - length].ends_with(b" ") {
        length += 1 + before[..before.len() - length - 1].iter().rev().take_while(|&byte| word(byte)).count();
    }
    let street = &before[before.len() - length..];
    let named = street.len() > kind.len() + 1 && street[0].is_ascii_uppercase();
    hit.start -= if named { hit.before().len() - before.len() + length } else { 0 };
    named
}

/// 10:20 PM Dr. Who is no street.
pub fn is_no_form_text(hit: &mut Hit) -> bool {
    static CUT_SHORT: Words = LazyLock::new(|| WordSet::of("kinds cut short"));
    // "2 Btl. Hz. St.": words cut short, but for those of streets.
    let cut_short = hit.piece().split(|byte| *byte == b' ').skip(1).any(|word| {
        word.len() >= 4 && word.ends_with(b".") && !CUT_SHORT.has(word) && !word[1..].iter().any(u8::is_ascii_uppercase)
    });
    !cut_short && !hit.piece().windows(4).any(|word| matches!(word, b" PM " | b" AM "))
}

/// A kind that is a word of its own in other senses needs a number behind the name.
pub fn has_number_or_kind(hit: &mut Hit) -> bool {
    trim(hit);
    let piece = hit.piece();
    let first = piece[0].is_ascii_uppercase() || piece.starts_with(b"c/") || piece.starts_with(b"c\\");
    let numbered = piece.iter().any(u8::is_ascii_digit) || piece.ends_with(b"s/n") || piece.ends_with(b"S/N");
    static COMMON: Words = LazyLock::new(|| WordSet::of("kinds in other senses"));
    let kind = &piece[..piece.iter().take_while(|byte| byte.is_ascii_alphabetic()).count()];
    first && (numbered || !COMMON.has(kind) && kind.len() > 1)
}

/// BP stands for blood pressure too.
pub fn is_no_blood_pressure(hit: &mut Hit) -> bool {
    let blood = hit.piece()[..2].eq_ignore_ascii_case(b"bp") || hit.piece()[..2].eq_ignore_ascii_case(b"b.");
    let after = hit.after();
    !blood
        || matches!(after, [b',' | b'\n' | b' ', ..])
            && after.get(1..6).is_some_and(|zip| zip.iter().all(u8::is_ascii_digit))
}
