//! Values of fields: what of the text behind a field's name is reported, one rule a label.
//!
//! The name says what the value is, so a form need not be telling: three digits are a record's number, a street may have
//! no kind. What has no form (towns, wards, professions) reaches to the end of the field, the sentence or the first way to
//! reach somebody; a value that says that there is none ("no consta", "unknown") is none.

use std::sync::LazyLock;

use super::checks::{as_digits, num_digits, num_value};
use super::dates::is_numeric_date;
use super::people::is_name;
use super::{Hit, Rank, Rule, field};
use crate::word_lists::{WordSet, Words};

pub const PARTS: &[(&str, &str)] = &[
    (
        "%VALUE%",
        r"(?:[a-z]{1,6}[-:])?(?:\d{1,3} [A-Z][A-Za-z]{0,3} \d{1,5}/\d{2,4}|(?:[A-Z]{1,3}-)?(?:[A-Z]{1,5} )?[A-Z]{0,6}[-/.]?[A-Za-z]{0,4}\d[A-Za-z0-9]*(?:[-/._:, ][A-Za-z0-9]*\d[A-Za-z0-9]*|[-/.][A-Za-z0-9]+){0,9})",
    ),
    ("%TEXT%", r"[^\n\t|;<>{}\x00]+"),
];

pub const RULES: &[Rule] = &[
    field(
        "field_name",
        "NAME",
        Rank::Form,
        "names in a form's field: Nombre:, Médico:, Remitido por:, Patient name:, Nom:, Vorname:, Hausarzt: …",
        r"(?:(?:[MD]\.|D\.a\.?|Da\.) {0,2})?(?:%TITLE%\b[.:]? {0,2}){0,6}(?:%PARTICLES%){0,2}%NAME%(?:,? (?:Jr|Sr|II|III)\b\.?|, ?%NAME%)?",
        is_field_name,
    ),
    field(
        "field_full_name",
        "NAME",
        Rank::Form,
        "two words and more, or spaced letters, behind Patient:, Mother:, Doctora: …, which say other things too",
        r"(?:(?:[MD]\.|D\.a\.?|Da\.) {0,2})?(?:%TITLE%\b[.:]? {0,2}){0,6}(?:%PARTICLES%){0,2}%NAME%(?:,? (?:Jr|Sr|II|III)\b\.?|, ?%NAME%)?",
        |hit| is_field_name(hit) && (hit.spaced || hit.piece().iter().any(|byte| matches!(byte, b' ' | b','))),
    ),
    field(
        "field_age",
        "AGE",
        Rank::Sure,
        "ages behind Age:, Edad:, Âge:, Alter:",
        r"\d{1,3}(?:(?i:yo|yrs?|[ymfwdja])(?: ?\d{1,2} ?m)?\b|(?:[.,]\d)? ?(?:(?i:anos?|mese?s?|dias?|semanas?|horas?)\b|(?i:a)\b\.?))?(?:(?:,| y| con){0,2} \d{1,2} ?(?i:meses|mes|dias?|semanas?)\b)?",
        is_age,
    ),
    field(
        "field_date",
        "DATE",
        Rank::Form,
        "dates in a form's field, mistyped ones too, and years",
        r"\d{1,5}(?:[./ -]{1,3}\d{1,5}){1,2}|[\dOolI]{1,2} {0,2}[./-] {0,2}[\dOolI]{1,2} {0,2}[./-] {0,2}[\dOolI]{4}|\d{8}|%YEAR%",
        is_some_date,
    ),
    field(
        "field_place",
        "CITY",
        Rank::Form,
        "towns and regions behind Localidad:, Ville:, Wohnort: …",
        "%TEXT%",
        |hit| has_words(hit, 6) && hit.piece().iter().all(|byte| !byte.is_ascii_digit()),
    ),
    field("field_country", "COUNTRY", Rank::Form, "countries behind País:, Pays:, Nationality: …", "%TEXT%", |hit| {
        has_words(hit, 5) && hit.piece().iter().all(|byte| !byte.is_ascii_digit())
    }),
    field(
        "field_address",
        "STREET",
        Rank::Form,
        "what follows Domicilio:, Dirección:, Address:, Adresse:, Anschrift: …",
        r"[^\t|;<>{}\x00]+",
        is_address,
    ),
    field(
        "field_postcode",
        "ZIP",
        Rank::Sure,
        "postcodes behind CP:, Código postal:, PLZ: …",
        r"(?:[A-Z]{1,3}-)?(?:[A-Z]{0,2}\d{1,2}[ .]?\d{1,6}(?:-\d{2,4})?(?: ?[A-Z]{2}\b)?|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|[A-Z]\d[A-Z][ -]?\d[A-Z]\d)",
        |hit| num_digits(hit.piece()) >= 3,
    ),
    field(
        "field_hospital",
        "HOSPITAL",
        Rank::Form,
        "hospitals behind Hospital:, Établissement:, Klinik: …",
        "%TEXT%",
        |hit| has_words(hit, 10),
    ),
    field(
        "field_ward",
        "DEPARTMENT",
        Rank::Form,
        "wards and rooms behind Servicio:, Station:, Chambre: …",
        "%TEXT%",
        |hit| has_words(hit, 8),
    ),
    field(
        "field_short_ward",
        "DEPARTMENT",
        Rank::Form,
        "wards behind names with other senses: Station:",
        "%TEXT%",
        |hit| has_words(hit, 4) && (hit.piece().iter().any(u8::is_ascii_digit) || !hit.piece().contains(&b' ')),
    ),
    field("field_profession", "PROFESSION", Rank::Form, "professions behind Profesión:, Beruf: …", "%TEXT%", |hit| {
        is_profession(hit)
    }),
    field(
        "field_organization",
        "ORGANIZATION",
        Rank::Form,
        "employers, schools and insurers behind Empresa:, Employeur:, Krankenkasse: …",
        "%TEXT%",
        |hit| has_words(hit, 8),
    ),
    field(
        "field_phone",
        "PHONE",
        Rank::Sure,
        "telephone numbers of any form behind Tel.:, Móvil: …",
        "%CALL%",
        is_call,
    ),
    field("field_fax", "FAX", Rank::Sure, "fax numbers of any form behind Fax:", "%CALL%", is_call),
    field(
        "field_email",
        "EMAIL",
        Rank::Form,
        "what has an @ behind E-mail:, Correo: …",
        r#"[^\s<>"'(),;:|@]{1,64}@[^\s<>"'(),;:|@]*[A-Za-z0-9\x80-\xff]"#,
        |_| true,
    ),
    field(
        "field_record",
        "MRN",
        Rank::Sure,
        "numbers of a record behind NHC:, IPP:, MRN:, Fallnummer: …",
        "%VALUE%",
        is_number,
    ),
    field("field_id", "ID", Rank::Sure, "numbers behind Episodio:, Ref.:, DNI:, Aktenzeichen: …", "%VALUE%", is_number),
    field("field_ssn", "SSN", Rank::Form, "numbers behind SSN:", "%VALUE%", is_number),
    field(
        "field_plan",
        "HEALTHPLAN",
        Rank::Sure,
        "numbers of insurance behind NASS:, Policy:, Versicherten-Nr.: …",
        "%VALUE%",
        is_number,
    ),
    field(
        "field_license",
        "LICENSE",
        Rank::Sure,
        "numbers of physicians and licences behind NºCol:, RPPS:, LANR: …",
        "%VALUE%",
        is_number,
    ),
    field(
        "field_account",
        "ACCOUNT",
        Rank::Form,
        "numbers of accounts behind Account:, Konto: …",
        "%VALUE%",
        is_number,
    ),
    field("field_device", "DEVICE", Rank::Sure, "numbers of devices behind Serial:, Lote: …", "%VALUE%", is_number),
    field(
        "field_vehicle",
        "VEHICLE",
        Rank::Form,
        "licence plates behind Matrícula:, Kennzeichen: …",
        "%VALUE%",
        is_number,
    ),
    field(
        "field_user",
        "USERNAME",
        Rank::Form,
        "user names behind Usuario:, Login: …",
        r"[A-Za-z0-9_\x80-\xff][A-Za-z0-9_.\-\x80-\xff]{2,31}",
        |hit| !says_nothing(hit.piece()) && is_all_of_field(hit),
    ),
];

/// A login is all that its field holds: after "User:" somebody may also speak.
pub fn is_all_of_field(hit: &Hit) -> bool {
    let after = hit.after();
    let rest = after.strip_prefix(b".").or_else(|| after.strip_prefix(b",")).unwrap_or(after);
    let Some(rest) = rest.strip_prefix(b" ") else { return !matches!(after, [b'\'' | b'?' | b'!', ..]) };
    let word = &rest[..rest.iter().position(|byte| matches!(byte, b' ' | b'\n')).unwrap_or(rest.len())];
    !word.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii()) || word.ends_with(b":")
}

// Whether the text behind a field's name is a value of its label, and where the value ends.

/// First words of a value that says that there is none, or of a sentence.
static NO_VALUES: Words = LazyLock::new(|| WordSet::of("no values"));

/// Words that begin a way to reach somebody, which is no part of a name or an address.
static REACHED: Words = LazyLock::new(|| WordSet::of("ways to reach"));

pub fn says_nothing(piece: &[u8]) -> bool {
    let word = &piece[..piece.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count()];
    NO_VALUES.has_any_case(word)
}

/// Cut a value of words where its field ends; whether it is one, of so many words at most.
pub fn has_words(hit: &mut Hit, most: usize) -> bool {
    cut_at_end(hit);
    trim(hit);
    let piece = hit.piece();
    let Some(&first) = piece.first() else { return false };
    let num_words = piece.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).count();
    let telling = first.is_ascii_uppercase() || !first.is_ascii() || first.is_ascii_digit();
    // In small letters only where it is all that a line holds.
    let alone = num_words <= 3
        && piece.iter().all(|byte| !byte.is_ascii_digit())
        && matches!(hit.after().first(), None | Some(b'\n' | b'\r' | b'|' | b'<' | b'\t'));
    let has_letters = piece.iter().filter(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii()).count() >= 2;
    num_words <= most && (telling || alone) && (has_letters || first.is_ascii_digit()) && !says_nothing(piece)
}

/// The sentence, two spaces, or the first way to reach somebody.
fn cut_at_end(hit: &mut Hit) {
    let piece = hit.piece();
    let mut start = 0;
    for at in 0..=piece.len() {
        if at < piece.len() && piece[at] != b' ' {
            continue;
        }
        let word = &piece[start..at];
        let bare = word.split(|byte| matches!(byte, b'.' | b':' | b'/' | b'(' | b',')).find(|part| !part.is_empty());
        let reached = bare.is_some_and(|bare| REACHED.has_any_case(bare));
        if start > 0 && (reached || word.contains(&b'@')) {
            hit.end = hit.start + start;
            return;
        }
        let sentence = word.ends_with(b".")
            && (word.len() > 5 || word[0].is_ascii_digit())
            && piece.get(at + 1).is_none_or(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
        let columns = (start > 0 || word.len() > 2) && !word.is_empty() && piece[at..].starts_with(b"  ");
        if sentence || columns {
            hit.end = hit.start + at;
            return;
        }
        start = at + 1;
    }
}

/// Signs at the end are the field's.
fn trim(hit: &mut Hit) {
    while let Some(&last) = hit.piece().last() {
        let open = last == b')' && !hit.piece().contains(&b'(');
        if !open && !b" .,;:-*_\"'/\r(\n=&\x1f".contains(&last) {
            break;
        }
        hit.end -= 1;
    }
}

/// A name without the titles before it.
pub fn is_field_name(hit: &mut Hit) -> bool {
    static TITLES: Words = LazyLock::new(|| WordSet::marked("titles", "form"));
    // "M. Dupont", "D. Juan": one letter is a title only where it stands first.
    let mut first = true;
    loop {
        let piece = hit.piece();
        // "D.ª Ana", which reads "D.a Ana" here.
        if let Some(title) = [&b"D.a"[..], b"Da."].iter().find(|title| first && piece.starts_with(title)) {
            let signs = piece[title.len()..].iter().take_while(|byte| matches!(byte, b'.' | b' ')).count();
            hit.start += title.len() + signs;
            first = false;
            continue;
        }
        let length = piece.iter().take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'-').count();
        let word = piece[..length].to_ascii_lowercase();
        let rest = &piece[length..];
        let signs = rest.iter().take_while(|byte| matches!(byte, b'.' | b':' | b' ' | b'-')).count();
        let letter = first && matches!(&piece[..length], b"M" | b"D") && rest.starts_with(b". ");
        if !(letter || TITLES.has(&word)) || signs == 0 || length + signs >= piece.len() {
            break;
        }
        hit.start += length + signs;
        first = false;
    }
    is_name(hit) && is_no_phrase(hit) && !is_specialty(hit.piece())
}

/// What a form has for who treats may be a ward: "Médico: Cirugía Oral".
fn is_specialty(piece: &[u8]) -> bool {
    static ENDINGS: Words = LazyLock::new(|| WordSet::of("specialties"));
    let word = piece.split(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default().to_ascii_lowercase();
    ENDINGS.iter().any(|ending| word.ends_with(ending))
}

/// A single capitalised word before one in small letters begins a phrase ("Left heart catheterization").
fn is_no_phrase(hit: &Hit) -> bool {
    static JOINTS: Words = LazyLock::new(|| WordSet::of("joints"));
    let rest = hit.after().strip_prefix(b" ").unwrap_or_default();
    let word =
        &rest[..rest.iter().position(|byte| matches!(byte, b' ' | b'.' | b':' | b',' | b'\n')).unwrap_or(rest.len())];
    let goes_on = word.first().is_some_and(u8::is_ascii_lowercase) && !JOINTS.has(word) && !word.contains(&b'@');
    let single = !hit.piece().iter().any(|byte| matches!(byte, b' ' | b','));
    let phrase = single && goes_on;
    !phrase && !says_nothing(hit.piece())
}

/// Not 45 %, not 20 to 30, not 1/2.
pub fn is_age(hit: &mut Hit) -> bool {
    num_value(hit.leading_digits()) <= 125
        && !matches!(
            hit.after(),
            [b'%' | b'-', ..] | [b'/', b'0'..=b'9', ..] | [b' ', b'%', ..] | [b'.' | b',', b'0'..=b'9', ..]
        )
}

/// Two signs between numbers, or one stroke and a year, or a year.
pub fn is_some_date(hit: &mut Hit) -> bool {
    // A scanned text has letters for digits: "1O/06/1949".
    let digits = as_digits(hit.piece());
    let piece = &digits[..];
    let groups = piece.split(|byte| !byte.is_ascii_digit()).filter(|group| !group.is_empty()).count();
    let (digits, stroke) = (num_digits(piece), piece.contains(&b'/'));
    let dated = match groups {
        1 => digits == 4 || digits == 8,
        2 => stroke && (5..=10).contains(&digits),
        _ => (4..=10).contains(&digits),
    };
    dated && !matches!(hit.after(), [b'/' | b'.' | b'-' | b':' | b',', b'0'..=b'9', ..])
}

/// To the end of the line, and over the lines that go on with it.
pub fn is_address(hit: &mut Hit) -> bool {
    let full = hit.end;
    let first_line = hit.piece().iter().position(|&byte| byte == b'\n').unwrap_or(hit.end - hit.start);
    hit.end = hit.start + first_line;
    if !has_words(hit, 16) {
        return false;
    }
    let mut at = hit.start + first_line;
    for _ in 0..3 {
        let Some(rest) = hit.text[at..full].strip_prefix(b"\n") else { break };
        let goes_on = rest.starts_with(b"  ")
            || hit.text[..at].trim_ascii_end().ends_with(b",")
            || rest
                .iter()
                .take(12)
                .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-')
                .filter(|byte| byte.is_ascii_digit())
                .count()
                >= 4;
        let line = &rest[..rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())];
        if !goes_on || line.trim_ascii().is_empty() || line.len() > 60 {
            break;
        }
        let kept = (hit.start, hit.end);
        let start = at + 1 + (line.len() - line.trim_ascii_start().len());
        (hit.start, hit.end) = (start, at + 1 + line.len());
        let is_part = has_words(hit, 8);
        (hit.start, hit.end) = (kept.0, if is_part { hit.end } else { kept.1 });
        if !is_part {
            break;
        }
        at += 1 + line.len();
    }
    true
}

/// Five words at most, in letters of any case.
pub fn is_profession(hit: &mut Hit) -> bool {
    cut_at_end(hit);
    trim(hit);
    let piece = hit.piece();
    let num_words = piece.split(|byte| *byte == b' ').count();
    let letters = piece.iter().filter(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii()).count();
    num_words <= 5 && letters >= 3 && !piece.iter().any(u8::is_ascii_digit) && !says_nothing(piece)
}

/// Five digits and more that are no date.
pub fn is_call(hit: &mut Hit) -> bool {
    (5..=17).contains(&num_digits(hit.piece())) && !is_numeric_date(hit.piece())
}

/// Three digits and more; a date behind the number is none of it.
pub fn is_number(hit: &mut Hit) -> bool {
    // "NHC: nhc-150679"
    let small = hit.piece().iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    if small > 0 && matches!(hit.piece().get(small), Some(b'-' | b':')) {
        hit.start += small + 1;
    }
    let piece = hit.piece();
    if let Some(space) = piece.iter().position(|&byte| byte == b' ')
        && piece[space + 1..].split(|byte| *byte == b' ').any(|part| is_numeric_date(part) || part.contains(&b':'))
    {
        hit.end = hit.start + space;
    }
    trim(hit);
    let piece = hit.piece();
    let digits = num_digits(piece);
    // 12.5, 3,5-7,5 and 30cm are measured.
    let measured = digits < 6
        && (piece
            .windows(3)
            .any(|three| three[0].is_ascii_digit() && matches!(three[1], b'.' | b',') && three[2].is_ascii_digit())
            || piece.last().is_some_and(u8::is_ascii_lowercase));
    digits >= 3 && !measured && !is_numeric_date(piece)
}
