//! People: names behind a title, before a credential or a marriage, and what no name is.

use std::sync::LazyLock;

use super::{Hit, Rank, Rule, behind_last, behind_last_row, rule};
use crate::detect::common::Class;
use crate::word_lists::{
    Language, WordSet, Words, alternatives, is_first_name, is_listed_name, marked, month_names, months, plain, words,
};

/// Particles and titles, from the word lists; those of doctors and professors have more forms than a list.
pub fn listed_parts() -> Vec<(&'static str, String)> {
    let titles = |mark| alternatives(marked("titles as written", mark));
    vec![
        ("%PARTICLES%", format!("(?:(?:{}) ?)", alternatives(marked("particles", "name")))),
        (
            "%DOTTED%",
            format!(
                r"(?:D?D[Rr](?:[Aa]|es|s)?|(?:[Uu]niv\.?-? ?)?Prof|Dipl\.-(?:Psych|Ing|Med|Biol)|{})",
                titles("point")
            ),
        ),
        ("%SPELLED%", format!("(?:{})", titles("spelled"))),
        ("%TITLE%", format!("(?:%SERIES%|{})", titles("field"))),
    ]
}

pub const PARTS: &[(&str, &str)] = &[
    // Titles that follow a title: Prof. Dr. med. dent., PD Dr., Univ.-Prof. DDr.
    (
        "%SERIES%",
        r"(?:D?D[Rr](?:[Aa]|es|s)?|(?:[Uu]niv\.? ?-? ?)?[Pp]rof(?:a|essor(?:in|a)?|esseure?)?|PROF|Dipl\.?-?(?:Med|Psych|Ing|Biol)|Mag|Ing|Lic|PD|Priv\.? ?-? ?Doz|Doz|OA|(?:Ober|Chef|Fach|Assistenz)arzt(?:in)?|med|dent|vet|rer|nat|phil|habil|univ|hum|biol|psych|h\. ?c|medic)",
    ),
    ("%NAME%", r"%NAMEWORD%(?:(?: {1,2}|-)%PARTICLES%{0,2}%NAMEWORD%){0,4}"),
    (
        "%NAMEWORD%",
        r"(?:(?:Th|Ph|Chr?|Fco|Ant|Jos)\. ?[A-Z][a-z\x80-\xff]+|[A-Z\x80-\xff](?:[A-Za-z\x80-\xff'-]|[015][a-z])*[A-Za-z\x80-\xff](?:-\r?\n[a-z\x80-\xff]{3,})?|M\.a|[A-Z]\.[A-Z\x80-\xff][a-z\x80-\xff]{2,}|[A-Z]\.(?:-?[A-Z]\.){0,3}(?:-?[A-Z]\b)?|[A-Z]\b)",
    ),
    ("%PART%", r"[A-Z\x80-\xff][A-Za-z\x80-\xff' .-]{0,40}"),
];

pub const RULES: &[Rule] = &[
    rule(
        "name_titled",
        "NAME",
        Rank::Form,
        "names behind titles: Dr., Mrs, Mme, Sr., Frau, Prof. Dr. med. …",
        r"(?:%DOTTED% ?\.(?: {0,2}|\r?\n)(?:%SERIES%(?:\. ?| ) ?){0,5}|(?:M\.|D\.a?) {1,2}|%SPELLED%(?: {1,2}|\r?\n)(?:%SERIES%(?:\. ?| ) ?){0,5})((?:%PARTICLES%){0,2}%NAME%)",
        is_titled_name,
    ),
    rule(
        "name_maiden",
        "NAME",
        Rank::Form,
        "names before a marriage: née Martin, geb. Schmidt, geborene Schmidt",
        r"(?:[Nn]ee|NEE|[Gg]eb\.|GEB\.|[Gg]eborene?) {1,2}((?:%PARTICLES%){0,2}%NAME%)",
        |hit| is_name(hit) && !starts_with_month(hit.piece()),
    ),
    Rule {
        behind: may_be_born,
        ..rule(
            "name_born",
            "NAME",
            Rank::Form,
            "names before a date of birth: Anna Roy (DOB 2/29/2004), ROY Anna, né le 3/1/19",
            r"(?:(?i:geb\.?(?: am)?|geboren(?: am)?|born(?: on)?|nee? le|dob|d\.o\.b\.?|ddn|f\. ?nac\.?|fn|nacid[oa] el)[ :.]{0,3})\d{1,4}[./-]\d{1,2}[./-]\d{2,4}",
            is_before_a_birth,
        )
    },
    Rule {
        behind: |before| before.ends_with(b"*"),
        ..rule(
            "name_starred",
            "NAME",
            Rank::Form,
            "names before a star and a date of birth: Martens Josef *22.08.1955",
            r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}",
            is_before_a_birth,
        )
    },
    rule(
        "name_reversed",
        "NAME",
        Rank::Form,
        "a surname in capitals before a first name of the lists: LEFEBVRE Marie-Claude, EL AMRANI Karim, MILLER, John",
        r"(?:(?:LE|LA|DE|DU|EL|AL|BEN|VAN|VON|DA|DI|DOS|SAN) ){0,2}[A-Z](?:['-]?[A-Z]){3,24}(?: [A-Z](?:['-]?[A-Z]){2,24})?,? [A-Z][a-z]{2,}(?:-[A-Z][a-z]{2,})?",
        is_reversed_name,
    ),
    rule(
        "name_hl7",
        "NAME",
        Rank::Form,
        "names in a segment of HL7: MEEKERS^HARLAN^J",
        r"%PART%(?:\^%PART%){1,3}",
        is_of_segment,
    ),
    rule(
        "name_credential",
        "NAME",
        Rank::Form,
        "names before a credential: Roger C Kelly, MD",
        r"M\.D\.?|MD|D\.O\.|R\.N\.|RN|Ph\.?D\.?|PA-C|FNP|DDS|DPM|CRNA|CRNP|CPNP|APRN|DNP|LPN|LCSW|MSW|PharmD|MBBS|MRCP|FRCPC|FRCS|FACS|PGY-\d",
        is_behind_a_name,
    ),
];

/// Its line is a segment of HL7 that names people.
fn is_of_segment(hit: &mut Hit) -> bool {
    const SEGMENTS: [&[u8]; 9] = [b"PID", b"NK1", b"PV1", b"PD1", b"GT1", b"IN1", b"OBR", b"ORC", b"MRG"];
    let before = hit.before();
    let line = &before[behind_last(before, |byte| matches!(byte, b'\n' | b'\r'))..];
    SEGMENTS.iter().any(|name| line.starts_with(name)) && matches!(before, [.., b'|' | b'^'])
}

/// Words that a form or a sentence puts where a name might stand.
static NO_NAMES: Words = LazyLock::new(|| WordSet::of("no names"));

/// Behind "M." for Morbus: diseases.
static EPONYMS: Words = LazyLock::new(|| WordSet::of("diseases"));

/// Within the name before a birth.
static PARTICLES: Words = LazyLock::new(|| WordSet::marked("particles", "birth"));

/// A blank or a sign before the word for birth.
fn may_be_born(before: &[u8]) -> bool {
    matches!(before, [.., b' ' | b'(' | b',' | b'\t'])
}

/// Two to four words with capitals, parted by blanks or one comma, stand before the word for a birth or a star, where their line,
/// their cell or a column begins; they are what is found.
fn is_before_a_birth(hit: &mut Hit) -> bool {
    let announced = hit.piece()[0].is_ascii_alphabetic();
    let before = hit.before();
    let bare = before.trim_ascii_end();
    let star = bare.ends_with(b"*") || bare.ends_with(b"(*");
    if !(announced || star) {
        return false;
    }
    let signs = before.iter().rev().take_while(|byte| matches!(byte, b' ' | b'(' | b'*' | b',' | b'\t' | b'|')).count();
    let bare = &before[..before.len() - signs];
    let line = behind_last(bare, |byte| matches!(byte, b'\n' | b'\t' | b'|' | b':' | b';'));
    let column = behind_last_row(bare, b"  ");
    let from = line.max(column);
    let start = from + (bare[from..].len() - bare[from..].trim_ascii_start().len());
    // "Name Anna Roy   DOB"
    let key = bare[start..].split(|byte| *byte == b' ').next().unwrap_or_default();
    let start = start + if super::columns::is_key_word(key) { key.len() + 1 } else { 0 };
    let name = bare.get(start..).unwrap_or_default();
    let part = |word: &[u8]| {
        let word = word.strip_suffix(b",").unwrap_or(word);
        let letters = |byte: &u8| byte.is_ascii_alphabetic() || !byte.is_ascii() || matches!(byte, b'-' | b'\'' | b'.');
        word.first().is_some_and(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) && word.iter().all(letters)
    };
    let num_words = name.split(|byte| *byte == b' ').filter(|word| part(word)).count();
    let is_plain = name.split(|byte| *byte == b' ').all(|word| part(word) || PARTICLES.has(word));
    let commas = name.iter().filter(|byte| **byte == b',').count();
    if !(2..=5).contains(&num_words) || !is_plain || commas > 1 || name.len() > 60 {
        return false;
    }
    (hit.start, hit.end) = (hit.start - (before.len() - start), hit.start - signs);
    super::values::is_field_name(hit)
}

/// The last word is a first name, the others are neither words of the corpus, nor of forms or places, nor names of fields.
fn is_reversed_name(hit: &mut Hit) -> bool {
    static NO_SURNAMES: LazyLock<WordSet> = LazyLock::new(|| {
        let lists =
            ["no names", "next fields", "nobody", "heads before", "titles as written"].into_iter().flat_map(words);
        let small =
            lists.chain(months("text").map(|(_, month)| month)).map(|word| &*plain(word).to_ascii_lowercase().leak());
        small.collect()
    });
    let piece = hit.piece();
    let Some(space) = piece.iter().rposition(|byte| *byte == b' ') else { return false };
    let surname = piece[..space].strip_suffix(b",").unwrap_or(&piece[..space]);
    let is_word = |word: &[u8]| {
        let small = String::from_utf8_lossy(word).to_ascii_lowercase();
        NO_SURNAMES.has(small.as_bytes())
            || is_medical(word)
            || hit.common.is_some_and(|common| common.class(&small) == Class::Common)
    };
    let first = piece[space + 1..].split(|byte| *byte == b'-').next().unwrap_or_default();
    let is_field = || super::Fields::shipped().is_ok_and(|fields| fields.of_cell(surname, 0, surname.len()).is_some());
    is_first_name(&String::from_utf8_lossy(first).to_ascii_lowercase())
        && !is_word(first)
        && !surname.split(|byte| *byte == b' ').any(|word| word.len() > 3 && is_word(word))
        && !is_field()
}

/// Two to four capitalised words stand before it; they are what is found, not the credential.
fn is_behind_a_name(hit: &mut Hit) -> bool {
    let before = hit.before().strip_suffix(b" ").unwrap_or(hit.before());
    let before = before.strip_suffix(b",").unwrap_or(before);
    let end = hit.start - (hit.before().len() - before.len());
    let (mut start, mut words) = (end, 0);
    for word in before.rsplit(|&byte| matches!(byte, b' ' | b'\n' | b':')).take(4) {
        let letters = |byte: &u8| byte.is_ascii_alphabetic() || !byte.is_ascii() || matches!(byte, b'.' | b'-' | b'\'');
        if !word.first().is_some_and(u8::is_ascii_uppercase) || !word.iter().all(letters) {
            break;
        }
        start = end - (before.len() - (word.as_ptr() as usize - before.as_ptr() as usize));
        words += 1;
        let gap = (start > 0).then(|| hit.text[start - 1]);
        if gap != Some(b' ') {
            break;
        }
    }
    (hit.start, hit.end) = (start, end);
    words >= 2 && is_name(hit)
}

/// "geb. Mai 1950" is no name.
fn starts_with_month(piece: &[u8]) -> bool {
    static MONTHS: Words = LazyLock::new(|| month_names(Language::German, "moved").collect());
    let word = piece.split(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    MONTHS.has_any_case(word)
}

/// A name behind a title; "D." may be an initial, a vitamin or an item of a list too.
fn is_titled_name(hit: &mut Hit) -> bool {
    let before = hit.before().trim_ascii_end().strip_suffix(b"D.");
    let is_letter = before.is_some_and(|before| !before.last().is_some_and(u8::is_ascii_alphanumeric));
    let found = is_name(hit) && (!is_letter || is_don(hit));
    if found {
        cut_words(hit);
    }
    found && !is_dosed(hit)
}

/// "Mrs. Tolbert Tylenol given": a word behind the first ends the name where the corpus writes it small, unless it is a name
/// on a list or a first name stands before it.
fn cut_words(hit: &mut Hit) {
    let Some(common) = hit.common else { return };
    let folded = |word: &[u8]| {
        let head = word.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        String::from_utf8_lossy(&word[..head]).to_ascii_lowercase()
    };
    let piece = hit.piece();
    let mut words = piece.split(|byte| *byte == b' ');
    let Some(first) = words.next().filter(|first| !is_first_name(&folded(first))) else { return };
    let mut end = first.len();
    for word in words {
        let (written, small) = (word.first(), folded(word));
        let is_word = small.len() > 1 && common.class(&small) == Class::Common && !is_listed_name(&small);
        if is_word && written.is_some_and(u8::is_ascii_uppercase) {
            break;
        }
        end += 1 + word.len();
    }
    hit.end = hit.start + piece[..end].trim_ascii_end().len();
}

/// "MS Contin 15 mg", "14 Fr. Foley": a drug behind what is no title there, a number of its size before it.
fn is_dosed(hit: &Hit) -> bool {
    let before = hit.before().trim_ascii_end();
    let sized = before.strip_suffix(b"Fr.").or(before.strip_suffix(b"Fr"));
    let dose = hit.after().strip_prefix(b" ").unwrap_or_default();
    let digits = dose.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let dosed =
        || [&b"mg"[..], b"mcg", b"ml", b"g "].iter().any(|unit| dose[digits..].trim_ascii_start().starts_with(unit));
    sized.is_some_and(|before| before.trim_ascii_end().last().is_some_and(u8::is_ascii_digit))
        || digits > 0 && !hit.piece().contains(&b' ') && before.ends_with(b"MS") && dosed()
}

/// Whether "D." before a name is the Spanish title: words of a sentence in Spanish stand before or behind it.
fn is_don(hit: &Hit) -> bool {
    static BEFORE: Words = LazyLock::new(|| WordSet::of("before don"));
    static BEHIND: Words = LazyLock::new(|| WordSet::of("behind don"));
    let before = hit.before().trim_ascii_end();
    let before = before.strip_suffix(b"D.").unwrap_or(before).trim_ascii_end();
    let last = before.rsplit(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    let behind = hit.after().strip_prefix(b",").unwrap_or(hit.after()).trim_ascii_start();
    let next = behind.split(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    let several = hit.piece().contains(&b' ');
    several
        && (before.ends_with(b":") || before.ends_with(b"(") || BEFORE.has_any_case(last) || BEHIND.has_any_case(next))
}

pub fn is_name(hit: &mut Hit) -> bool {
    cut_after_name(hit);
    let piece = hit.piece();
    let word = |piece: &[u8]| piece.iter().take_while(|byte| !matches!(byte, b' ' | b',' | b'.')).count();
    let mut first = &piece[..word(piece)];
    // "Mme Le Goffinec", "Dr. de la Torre": the word behind particles says whether it is a name.
    let mut rest = piece;
    while LEADING.has_any_case(first) && word(rest) + 1 < rest.len() {
        rest = &rest[word(rest) + 1..];
        first = &rest[..word(rest)];
    }
    let led = rest.len() < piece.len();
    let several = piece.len() > first.len() + 1;
    let disease = hit.before().ends_with(b"M. ") && EPONYMS.has(first);
    // "1 M. Then": moles, metres, millions.
    let unit = hit
        .before()
        .strip_suffix(b"M. ")
        .is_some_and(|before| before.strip_suffix(b" ").unwrap_or(before).last().is_some_and(u8::is_ascii_digit));
    !disease
        && !unit
        && (!NO_NAMES.has(first) || first.len() == 1 && piece.get(1) == Some(&b'.'))
        && !(led && NEXT_FIELDS.has(first))
        && !(first.first().is_some_and(u8::is_ascii_lowercase) && LEADING.has(first))
        && !is_medical(first)
        && (first.len() > 1 || several || is_lone_initial(hit))
        && std::str::from_utf8(piece).is_ok_and(|piece| piece.chars().any(char::is_alphabetic))
}

/// Words with which the next field begins on the line of a name.
static NEXT_FIELDS: Words = LazyLock::new(|| WordSet::of("next fields"));

/// "Frau K. ist stabil": an initial that its sentence goes on behind.
fn is_lone_initial(hit: &Hit) -> bool {
    matches!(hit.piece(), [_, b'.']) && matches!(hit.after(), [b' ', b'a'..=b'z', ..])
}

/// Particles that a name may begin with.
static LEADING: Words = LazyLock::new(|| WordSet::marked("particles", "name"));

/// What a disease, an operation or a measurement ends with.
fn is_medical(word: &[u8]) -> bool {
    static ENDINGS: Words = LazyLock::new(|| WordSet::of("endings of medicine"));
    let small = word.to_ascii_lowercase();
    small.len() > 7 && ENDINGS.iter().any(|ending| small.ends_with(ending))
}

/// The name ends before the "'s" of a genitive: "Mr. Sefton's Lasix".
fn cut_genitive(hit: &mut Hit) {
    let piece = hit.piece();
    let genitive = |at: &usize| {
        matches!(piece[at + 1..], [b's' | b'S'] | [b's' | b'S', b' ' | b'-', ..]) && *at > 1 && piece[*at] == b'\''
    };
    if let Some(at) = (0..piece.len()).find(genitive) {
        hit.end = hit.start + at;
    }
}

fn cut_after_name(hit: &mut Hit) {
    cut_genitive(hit);
    cut_abbreviation(hit);
    // "C/" begins a street.
    if hit.piece().ends_with(b" C") && matches!(hit.after().first(), Some(b'/' | b'\\')) {
        hit.end -= 2;
    }
    let mut end = 0;
    for word in hit.piece().split(|&byte| byte == b' ') {
        let bare = word.trim_ascii_end().strip_suffix(b".").unwrap_or(word);
        if end > 0 && NEXT_FIELDS.has(bare) && !is_initial(word, end + word.len() == hit.piece().len()) {
            let name = hit.piece()[..end - 1].trim_ascii_end();
            hit.end = hit.start + name.strip_suffix(b",").unwrap_or(name).len();
            return;
        }
        end += word.len() + 1;
    }
}

/// "Mr. Tolliver BP": capitals without a vowel behind a name with small letters.
fn cut_abbreviation(hit: &mut Hit) {
    let piece = hit.piece();
    let Some(at) = piece.iter().rposition(|byte| *byte == b' ') else { return };
    let last = &piece[at + 1..];
    let vowel = |byte: &u8| matches!(byte, b'A' | b'E' | b'I' | b'O' | b'U' | b'Y');
    let is_short = (2..=4).contains(&last.len()) && last.iter().all(u8::is_ascii_uppercase) && !last.iter().any(vowel);
    if is_short && last != b"NG" && piece[..at].iter().any(u8::is_ascii_lowercase) {
        hit.end = hit.start + at;
    }
}

/// "I." and "C." within a name are initials, at its end they may be anything.
fn is_initial(word: &[u8], last: bool) -> bool {
    !last && word.len() == 2 && word[1] == b'.'
}
