//! Numbers and names that only the words before them explain: records, insurance, licences, devices, vehicles, accounts.

use std::sync::LazyLock;

use super::checks::{is_nhs, is_npi, num_digits};
use super::dates::is_numeric_date;
use super::values::is_all_of_field;
use super::{Hit, Rank, Rule, rule};
use crate::word_lists::{WordSet, Words};

pub const PARTS: &[(&str, &str)] = &[
    // Between a cue and what it announces.
    (
        "%IS%",
        r"(?:\b{start-half}|\b{end-half})[ \t]{0,3}(?:%NO%[ \t]{0,2})?(?:[:=#.-]|[ \t](?:is|was|es|est|ist)[ \t]|[ \t]de[ \t])?[ \t\n]{0,3}",
    ),
    ("%NO%", r"(?i:(?:numbers?|numeros?|nummer|num|nbr|nro|nr|no|identifier|id|code)\b[.:]?|n\.o\b|n[*.]|#)"),
    // A cue that is too common a word to stand without "number".
    ("%ISNO%", r"[ \t]{0,3}%NO%[ \t]{0,2}(?:[:=#-]|[ \t](?:is|was|es|est|ist)[ \t])?[ \t]{0,3}"),
    (
        "%CODE%",
        r"(?:[A-Z]{0,4}[-/]?\d[A-Za-z0-9]*(?:[-/.:][A-Za-z0-9]+){1,5}|[A-Z]{0,4}\d{4,}[A-Za-z]?|\d{1,3} [A-Z][A-Za-z]{0,3} \d{1,5}/\d{2,4})",
    ),
    ("%TOKEN%", r"(?:[A-Za-z]{1,6}[-/.]?)?\d[A-Za-z0-9]*(?:[-/.][A-Za-z0-9]+){0,5}(?: {1,2}\d{2,}){0,6}"),
];

pub const RULES: &[Rule] = &[
    rule(
        "record_number",
        "MRN",
        Rank::Sure,
        "numbers behind MRN, NHC, IPP, NDA, historia clínica, dossier, Patientennummer …",
        r"(?i:mrn|m\.r\.n\.|mr ?#|mc ?#|medical ?rec(?:ord)?s?|med\.? rec\.?|health record|patient[ -]?(?:id(?:entifier)?|no\b|number|#|nr)|chart ?(?:no\b|number|id|#)|unit ?(?:no\b|number|#)|hospital ?(?:no\b|number|#|id)|nhc|n\.h\.c\.|n\.? ?(?:o|\*)?\.? ?(?:de )?(?:historia(?: clinica)?|h\.?c\.?)|h(?:istoria)?\.? ?c(?:linica)?\.?(?: n[o*.]{0,2})?|numero de historia(?: clinica)?|ipp|i\.p\.p\.|nip|nda|iep|(?:numero|n[o*]) (?:de |du )?(?:dossier|patient|sejour)|dossier(?: medical| patient)?|identifiant patient|patienten-?(?:nr|nummer|id)|pat\.?-?(?:nr|id)\.?|fall-?(?:nr|nummer)\.?|aufnahme-?(?:nr|nummer)\.?|pid|cipa)%IS%(?:(?i:nhc)-)?(%TOKEN%)",
        |hit| has_digits(hit, 4),
    ),
    rule(
        "contact_number",
        "ID",
        Rank::Sure,
        "numbers of an encounter, a case, a specimen, a file: episodio, accession, visit number …",
        r"(?i:episodio|expediente|folio|accession|csn|(?:encounter|visit|admission|case|specimen|lab|order|reference|ref|file|study|request|requisition|registro|protocolo|biopsia|peticion|solicitud|examen|prelevement|demande|registration|employee|badge|job) ?%NO%)%IS%(%TOKEN%)",
        |hit| has_digits(hit, 5),
    ),
    rule(
        "health_plan",
        "HEALTHPLAN",
        Rank::Sure,
        "numbers of insurance: NASS, TSI, póliza, policy, member id, Medicare, adhérent, Versichertennummer …",
        r"(?i:nass|nuss|n\.a\.s\.s\.|n[*o.]{0,2} ?s\.?s\.?|seguridad social|tarjeta sanitaria|cip|tsi|poliza|(?:policy|member|subscriber|insurance|group|plan|beneficiary|medicare|medicaid|hicn|mbi|claim)%NO%?|mutuelle|assure|securite sociale|(?:numero|n[o*]) (?:de )?(?:ss|secu)|adherent|versicherten-?(?:nr|nummer)|(?:kranken)?versicherungs-?(?:nr|nummer)|kvnr|versichertennummer)%IS%(%TOKEN%)",
        |hit| has_digits(hit, 5),
    ),
    rule(
        "ssn_cued",
        "SSN",
        Rank::Sure,
        "social security numbers behind SSN, also with hidden digits",
        r"(?i:ssn|ss#|social security)%IS%([0-9Xx*]{3}[-, ]?[0-9Xx*]{2}[-, ]?\d{4})",
        |hit| has_digits(hit, 4),
    ),
    rule(
        "nhs_cued",
        "NHS",
        Rank::Sure,
        "NHS numbers behind NHS, by their check digit",
        r"(?i:nhs)%IS%(\d{3}%OVER%?\d{3}%OVER%?\d{4})",
        |hit| is_nhs(hit.piece()),
    ),
    rule(
        "npi_cued",
        "NPI",
        Rank::Sure,
        "provider identifiers behind NPI, by Luhn with 80840",
        r"(?i:npi)%IS%(\d{10})",
        |hit| is_npi(hit.piece()),
    ),
    rule(
        "identity_cued",
        "ID",
        Rank::Form,
        "what stands behind NHS, NPI, DNI, NIE, NIR, passport and fails a check or has none",
        r"(?i:nhs|npi|dni|nie|nif|nir|ins|passports?|passeport|pasaporte|reisepass|ausweis|identity card|carte d'identite|cedula|steuer-?id)%IS%([A-Za-z]{0,3}-?\d[A-Za-z0-9]*(?:[-. ][A-Za-z0-9]*\d[A-Za-z0-9]*){0,7})",
        |hit| has_digits(hit, 6),
    ),
    rule(
        "license",
        "LICENSE",
        Rank::Sure,
        "numbers of physicians, drivers, certificates: NºCol, colegiado, RPPS, ADELI, LANR, GMC, license …",
        r"(?i:cpso|ced(?:ula)?\.? ?prof(?:esional)?\.?|n(?:o|\*)?\.? ?(?:de )?col(?:egiad[oa]s?)?\b\.?|(?:col(?:egiad[oa]s?)?\.?) ?n[*o]\.?|colegiad[oa]s?|rpps|adeli|finess|lanr|bsnr|gmc|nmc|dea|(?:(?:driver'?s?'?|driving|medical|state|nursing|pilot) )?licen[cs]e|permis(?: de conduire)?|permiso de conducir|fuhrerschein|certificate|upin|cnp)%IS%(%TOKEN%)",
        |hit| has_digits(hit, 4),
    ),
    rule(
        "device",
        "DEVICE",
        Rank::Sure,
        "serial and lot numbers of devices",
        r"(?:(?i:serial|serie|de serie|serien|seriennummer|lot|lote|charge|device id|udi|imei)%ISNO%|(?i:serial|numero de serie|n[o*]\.? (?:de )?serie|seriennummer|imei|udi)%IS%|(?:S/N|SN) ?[:#] ?)((?:[A-Za-z]{1,6}-)?[A-Za-z0-9]*\d[A-Za-z0-9]*(?:[-/.][A-Za-z0-9]+){0,5})",
        |hit| has_digits(hit, 3),
    ),
    rule(
        "vehicle",
        "VEHICLE",
        Rank::Sure,
        "licence plates behind plate, matrícula, immatriculation, Kennzeichen",
        r"(?i:(?:licen[cs]e|number|registration|vehicle) (?:plate|tag)s?|matricula|immatricul(?:ation|ee?)|kennzeichen|vin|chassis)%IS%([A-Z0-9]{1,8}(?:[- ][A-Z0-9]{1,4}){0,3})",
        |hit| has_digits(hit, 2) && hit.piece().iter().any(u8::is_ascii_alphabetic),
    ),
    rule(
        "account",
        "ACCOUNT",
        Rank::Sure,
        "numbers of accounts: account number, cuenta, compte, Konto",
        r"(?i:accounts?|acct|cuenta|compte|konto|bank|routing)%IS%([A-Z]{0,2}\d[A-Za-z0-9]*(?:[- ][0-9]{2,})*)",
        |hit| has_digits(hit, 5),
    ),
    rule(
        "introduced_number",
        "ID",
        Rank::General,
        "numbers that introduce themselves, whatever of: application no. 36244/06, dossier n° 123-A, Aktenzeichen 12 C 34/05, n.º 4567",
        r"(?i:nos?\.|n\*|n\.o|nr[so]?\.|num\.|number|numero|nummer|no|aktenzeichen|az|geschaftszeichen|gz|docket|dossier|expediente|affaire|actenumber)[.:]?[ \n]{0,2}(%CODE%)(?:(?:,|,? (?i:and|et|y|und|e)|/) (%CODE%))?(?:(?:,|,? (?i:and|et|y|und|e)) (%CODE%))?",
        is_code,
    ),
    rule(
        "user_name",
        "USERNAME",
        Rank::Sure,
        "user names and logins behind their cue",
        r"(?i:user[ -]?(?:name|id)?|login|log-?in|usuario|identifiant|utilisateur|benutzer(?:name)?|screen name|handle)(?: ?[:=] ?| is )([A-Za-z0-9_\x80-\xff][A-Za-z0-9_.\-\x80-\xff]{2,31})",
        |hit| {
            hit.piece().iter().any(|byte| byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-'))
                && (hit.piece().iter().any(u8::is_ascii_alphabetic) || is_all_of_field(hit))
        },
    ),
];

/// Four digits, or three with a stroke: not 2.5, not a year or an amount behind a bare "no", not a date.
fn is_code(hit: &mut Hit) -> bool {
    let piece = hit.piece();
    let digits = num_digits(piece);
    let stroke = piece.contains(&b'/');
    let bare = hit.before().trim_ascii_end().to_ascii_lowercase();
    let bare = bare.ends_with(b"no") && !hit.text[..hit.start].ends_with(b".");
    let year = digits == 4 && piece.len() == 4 && (piece.starts_with(b"19") || piece.starts_with(b"20"));
    let decimal = digits < 6 && piece.iter().any(|byte| matches!(byte, b'.' | b':')) && !stroke;
    let pressure = stroke && digits < 6 && bare;
    (digits >= 4 || digits == 3 && stroke)
        && !is_public(hit)
        && !decimal
        && !pressure
        && !(year || bare && digits < 5)
        && !is_numeric_date(piece)
        && !super::dates::has_unit(hit)
}

/// The number of a law is everybody's.
fn is_public(hit: &Hit) -> bool {
    static PUBLIC: Words = LazyLock::new(|| WordSet::of("public numbers"));
    let before = hit.before();
    let mut words = before.rsplit(|byte| !byte.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    words.by_ref().take(2).any(|word| PUBLIC.has_any_case(word))
}

/// So many digits at least, and not a date.
fn has_digits(hit: &mut Hit, least: usize) -> bool {
    num_digits(hit.piece()) >= least && !is_numeric_date(hit.piece())
}
