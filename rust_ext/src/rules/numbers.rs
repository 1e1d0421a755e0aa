//! Numbers with check digits or a telling form, and long numbers that nothing else explains.

use std::sync::LazyLock;

use super::checks::{
    digits, iban_len, is_card, is_dea, is_dni, is_kvnr, is_luhn, is_nhs, is_nir, is_npi, is_vin, num_digits, num_value,
};
use super::{Hit, Rank, Rule, always, behind_last, rule};
use crate::word_lists::{WordSet, Words};

pub const RULES: &[Rule] = &[
    rule(
        "ssn",
        "SSN",
        Rank::Form,
        "US social security numbers in groups, of areas that were issued",
        r"\d{3}(?:-\d{2}-| \d{2} )\d{4}",
        is_ssn,
    ),
    rule(
        "nir",
        "NIR",
        Rank::Sure,
        "French social security numbers (NIR, INS), Corsica and overseas too, by their key",
        r"[1278]%OVER%?\d{2}%OVER%?\d{2}%OVER%?(?:\d{2}|2[ABab])%OVER%?\d{3}%OVER%?\d{3}%OVER%?/?%OVER%?(?i:cle ?:? ?)?\d{2}",
        |hit| is_nir(hit.piece()),
    ),
    rule(
        "iban",
        "IBAN",
        Rank::Sure,
        "bank accounts (IBAN), by country's length and mod 97",
        r"[A-Za-z]{2}\d{2}(?:%OVER%?[A-Za-z0-9]){11,30}",
        is_iban,
    ),
    rule(
        "card",
        "CREDIT_CARD",
        Rank::Form,
        "payment cards, by the Luhn check",
        r"[2-6]\d{3}(?:\d{9,15}|(?: \d{4}){3}(?: \d{1,3})?|(?:-\d{4}){3}|[ -]\d{6}[ -]\d{4,5})",
        |hit| is_card(hit.piece()),
    ),
    rule(
        "card_cued",
        "CREDIT_CARD",
        Rank::Sure,
        "12 to 19 digits behind the word card, by the Luhn check",
        r"(?i:credit|debit|visa|mastercard|card|carte|tarjeta|karte)[^\d\n]{1,24}(\d(?:%OVER%?\d){11,18})",
        |hit| is_luhn(digits(hit.piece())),
    ),
    rule(
        "nhs",
        "NHS",
        Rank::Form,
        "UK NHS numbers, by their check digit (mod 11)",
        r"\d{3}(?: \d{3} |-\d{3}-|\d{3})\d{4}",
        |hit| is_nhs(hit.piece()),
    ),
    rule("npi", "NPI", Rank::Form, "US National Provider Identifiers, by Luhn with 80840", r"[12]\d{9}", |hit| {
        is_npi(hit.piece())
    }),
    rule(
        "dni",
        "DNI",
        Rank::Sure,
        "Spanish identity numbers, by their letter",
        r"(?:\d{7,8}|\d{1,2}\.\d{3}\.\d{3})[- ]?[A-Za-z]",
        |hit| is_dni(hit.piece()),
    ),
    rule(
        "nie",
        "NIE",
        Rank::Sure,
        "Spanish numbers of foreigners, by their letter",
        r"[XYZxyz][- ]?\d{7}[- ]?[A-Za-z]",
        |hit| is_dni(hit.piece()),
    ),
    rule(
        "kvnr",
        "HEALTHPLAN",
        Rank::Sure,
        "German numbers of insured persons, by their check digit",
        r"[A-Z]\d{9}",
        |hit| is_kvnr(hit.piece()),
    ),
    rule(
        "mbi",
        "HEALTHPLAN",
        Rank::Form,
        "US Medicare numbers (MBI), by form",
        r"[1-9][AC-HJKMNP-RT-Y][0-9AC-HJKMNP-RT-Y]\d-?[AC-HJKMNP-RT-Y][0-9AC-HJKMNP-RT-Y]\d-?[AC-HJKMNP-RT-Y]{2}\d{2}",
        always,
    ),
    rule(
        "dea",
        "LICENSE",
        Rank::Form,
        "US prescribers' numbers (DEA), by their check digit",
        r"[A-HJ-NP-UX][A-Z9]\d{7}",
        |hit| is_dea(hit.piece()),
    ),
    rule(
        "vin",
        "VEHICLE",
        Rank::Sure,
        "vehicle identification numbers, by their check digit",
        r"[A-HJ-NPR-Z0-9]{17}",
        |hit| is_vin(hit.piece()) && hit.piece().iter().any(u8::is_ascii_alphabetic),
    ),
    rule(
        "plate_fr",
        "VEHICLE",
        Rank::Form,
        "French licence plates since 2009",
        r"[A-HJ-NP-TV-Z]{2}-\d{3}-[A-HJ-NP-TV-Z]{2}",
        always,
    ),
    rule(
        "digits_apart",
        "ID",
        Rank::Form,
        "eight digits and more that stand one by one, as some templates have dates and numbers: 1 4 / 0 6 / 1 9 3 1",
        r"\d(?: \d| ?[-/.] ?\d){7,}",
        is_written_apart,
    ),
    rule("long_number", "ID", Rank::General, "six digits and more", r"\d{6,}[A-Z]?(?:[-/]\d+)*", is_no_amount),
    rule(
        "letters_and_number",
        "ID",
        Rank::General,
        "one to four capitals with four digits and more",
        r"[A-Z]{1,4}[-/]?\d{4,}(?:[-/]\d+)*",
        is_no_postcode,
    ),
];

/// Social security numbers never issued: area 000, 666 or 9xx, group 00, serial 0000.
fn is_ssn(hit: &mut Hit) -> bool {
    let piece = hit.piece();
    let (area, group, serial) = (num_value(&piece[0..3]), num_value(&piece[4..6]), num_value(&piece[7..11]));
    area > 0 && area != 666 && area < 900 && group > 0 && serial > 0
}

/// Most digits have a blank between them, and they are no scale (0 1 2 3 …).
fn is_written_apart(hit: &mut Hit) -> bool {
    let piece = hit.piece();
    let digits: Vec<u8> = piece.iter().copied().filter(u8::is_ascii_digit).collect();
    let num_apart = piece.windows(3).filter(|part| matches!(part, [b'0'..=b'9', b' ', b'0'..=b'9'])).count();
    let is_scale = digits.windows(2).all(|two| two[1] == two[0] + 1) || digits.windows(2).all(|two| two[1] == two[0]);
    let goes_on = matches!(hit.after(), [b' ', b'0'..=b'9', b'0'..=b'9', ..]);
    2 * num_apart >= digits.len() && !is_scale && !goes_on
}

/// What follows the account is given up.
fn is_iban(hit: &mut Hit) -> bool {
    match iban_len(hit.piece()) {
        Some(length) => {
            hit.end = hit.start + length;
            true
        }
        None => false,
    }
}

/// Not a count with its unit (platelets 251000/ul), not a gene's number, not an accession of a paper.
fn is_no_amount(hit: &mut Hit) -> bool {
    static UNITS: Words = LazyLock::new(|| WordSet::of("units of long numbers"));
    let after = hit.after().trim_ascii_start();
    let piece = hit.piece();
    let amount = num_digits(piece) <= 7
        && piece.iter().all(u8::is_ascii_digit)
        && UNITS.begin(after)
        && !matches!(after, [b'/', b'0'..=b'9', ..]);
    let known = [&b"OMIM"[..], b"MIM", b"PMID", b"SNOMED", b"SCTID", b"RxCUI"].iter().any(|cue| {
        let before = hit.before();
        before[before.len().saturating_sub(cue.len() + 10)..].windows(cue.len()).any(|window| window == *cue)
    });
    !amount && !known && !is_counted(hit)
}

/// "Platelets 251000": a count names what it counts before it too.
pub fn is_counted(hit: &Hit) -> bool {
    static COUNTED: Words = LazyLock::new(|| WordSet::of("counted"));
    let before = &hit.before()[hit.before().len().saturating_sub(28)..].to_ascii_lowercase();
    let before = &before[behind_last(before, |byte| matches!(byte, b'.' | b';' | b'\n'))..];
    num_digits(hit.piece()) <= 8 && COUNTED.iter().any(|word| before.windows(word.len()).any(|part| part == word))
}

/// E-28046 Madrid is a postcode with its country.
fn is_no_postcode(hit: &mut Hit) -> bool {
    let piece = hit.piece();
    let country = matches!(piece, [b'A'..=b'Z', b'-', digits @ ..] | [b'A'..=b'Z', b'A'..=b'Z', b'-', digits @ ..]
        if matches!(digits.len(), 4 | 5));
    let postcode = country && matches!(hit.after(), [b' ', b'A'..=b'Z', ..]);
    !(postcode || is_icd(hit))
}

/// A code of the ICD without its point, E1165 or S72001: a letter and four or five digits, behind a word for codes or diagnoses
/// on its line or in brackets behind a word in small letters.
fn is_icd(hit: &Hit) -> bool {
    static CUES: Words = LazyLock::new(|| WordSet::of("codes of diagnoses"));
    let [b'A'..=b'Z', digits @ ..] = hit.piece() else { return false };
    if !(4..=5).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let before = hit.before();
    let line = &before[behind_last(before, |byte| matches!(byte, b'\n'))..];
    let cued = line.split(|byte| !byte.is_ascii_alphabetic()).any(|word| CUES.has_any_case(word));
    let bracketed = before.strip_suffix(b"(").map(|before| before.trim_ascii_end());
    let word = bracketed.map(|before| &before[behind_last(before, |byte| !byte.is_ascii_alphabetic())..]);
    let described = word.is_some_and(|word| word.len() > 3 && word.iter().all(u8::is_ascii_lowercase));
    cued || described && hit.after().starts_with(b")")
}
