//! Values of fields: what of the text behind a field's name is reported, one rule a label.
//!
//! The name says what the value is, so a form need not be telling: three digits are a record's number, a street may have
//! no kind. What has no form (towns, wards, professions) reaches to the end of the field, the sentence or the first way to
//! reach somebody; a value that says that there is none ("no consta", "unknown") is none.

use super::checks::num_digits;
use super::fits::{
    has_words, is_address, is_age, is_call, is_field_name, is_number, is_profession, is_some_date, says_nothing,
};
use super::{Hit, Rank, Rule, field};

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
        r"(?:(?:[MD]\.|D\.a\.?|Da\.) {0,2})?(?:%TITLE%\b[.:]? {0,2}){0,6}%NAME%(?:,? (?:Jr|Sr|II|III)\b\.?|, ?%NAME%)?",
        is_field_name,
    ),
    field(
        "field_full_name",
        "NAME",
        Rank::Form,
        "two words and more, or letters apart, behind Patient:, Mother:, Doctora: …, which say other things too",
        r"(?:(?:[MD]\.|D\.a\.?|Da\.) {0,2})?(?:%TITLE%\b[.:]? {0,2}){0,6}%NAME%(?:,? (?:Jr|Sr|II|III)\b\.?|, ?%NAME%)?",
        |hit| is_field_name(hit) && (hit.apart || hit.piece().iter().any(|byte| matches!(byte, b' ' | b','))),
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
