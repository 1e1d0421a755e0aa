//! People: names behind a title or in a form's field, and ages over 89.

use std::sync::LazyLock;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::{Hit, Rank, Rule, always, rule};

pub const PARTS: &[(&str, &str)] = &[
    (
        "%PARTICLES%",
        r"(?:(?:de la|de los|de las|de l'|del|de|di|da|dos|du|la|le|las|los|van der|van den|van|von|zu|y|i|e|d'|O'|el|al|bin|ben|ter|ten) ?)",
    ),
    ("%NAME%", r"%NAMEWORD%(?:(?: |-)%PARTICLES%{0,2}%NAMEWORD%){0,4}"),
    ("%NAMEWORD%", r"(?:[A-Z\x80-\xff][A-Za-z\x80-\xff'-]*[A-Za-z\x80-\xff]|M\.a|[A-Z]\.|[A-Z]\b)"),
    (
        "%YEARS_OLD%",
        r"(?i:[- ]?years?[- ]?old|[- ]?yrs?\.?[- ]?old|[- ]?years? of age|[- ]?y[./ ]?o\b\.?|[- ]?yr|[- ]anos?|[- ]ans?|[- ]?jahre?|[- ]?jahrige?[rns]?|-jahrig(?:e[rns]?)?)",
    ),
    ("%OLD%", r"(?:9\d|1[01]\d)"),
];

pub const RULES: &[Rule] = &[
    rule(
        "age_over_89",
        "AGE",
        Rank::Form,
        "ages over 89: 93-year-old, 93 y/o, 93 ans, 91 años, 95 Jahre",
        r"(%OLD%)%YEARS_OLD%",
        always,
    ),
    rule(
        "age_cued",
        "AGE",
        Rank::Form,
        "ages over 89 behind a cue: aged 93, age: 93, edad: 93, âgé de 93, Alter: 93",
        r"(?i:aged?|age of|edad|alter|agee? de|im alter von)(?:%IS%| )(%OLD%)",
        is_no_range,
    ),
    rule(
        "age_in_words",
        "AGE",
        Rank::Form,
        "ages from ninety to ninety-nine in words",
        r"(?i:ninety(?:[- ](?:one|two|three|four|five|six|seven|eight|nine))?)[- ](?i:years?[- ]?(?:old|of age))|(?i:quatre-vingt-(?:dix(?:-(?:sept|huit|neuf))?|onze|douze|treize|quatorze|quinze|seize)) ans|(?i:noventa(?: y (?:un|uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve))?) anos|(?i:(?:(?:ein|zwei|drei|vier|funf|sechs|sieben|acht|neun)und)?neunzig)(?: Jahre|jahrige?[rns]?)",
        always,
    ),
    rule(
        "name_titled",
        "NAME",
        Rank::Form,
        "names behind a title: Dr., Mrs, Mme, Sr., Frau …",
        r"(?:D[Rr](?:[Aa]|es|s)?|DRS|Mr|MR|Mrs|MRS|Ms|MS|Miss|Mme|MME|Mlle|MLLE|Prof|PROF|Pr|Sr[aA]?|SRA?|Srta|Dn|Mx)\. {0,2}(%NAME%)|M\. {1,2}(%NAME%)|(?:Dr|Dra|Doctor|Doctora|Docteur|Mr|Mrs|Ms|Miss|Mme|Mlle|Mademoiselle|Madame|Monsieur|Professeur|Professor|Prof|Herr|Herrn|Frau|Senor|Senora) {1,2}(%NAME%)",
        is_name,
    ),
    rule(
        "name_field",
        "NAME",
        Rank::Form,
        "names in a form's field: Nombre:, Apellidos:, Médico:, Remitido por:, Patient name:, Nom:, Prénom:, Vorname: …",
        r"(?:(?i:(?:patient|full|first|last|family|given|middle|maiden|pt|guardian|mother'?s?|father'?s?|spouse|contact|physician|doctor|provider|nurse|surgeon)?'?s? ?names?|nombre(?: y apellidos)?(?: del paciente)?|apellidos?(?: y nombre)?|nom(?: de naissance| de famille| d'usage| usuel)?|prenoms?|vorname|nachname|familienname|medico(?: responsable| de familia)?|facultativo|remitido por|responsable clinico|autor|firmado(?: por)?|attending(?: physician)?|(?:primary care|referring|admitting|consulting) (?:physician|provider)|surgeon|assistant(?: surgeon)?|anesthesiologist|dictated by|signed(?: by)?|electronically signed by|author|referred by|medecin(?: traitant)?|chirurgien|redige par|signe par)) {0,2}: {0,3}(?:(?:[Dd][Rr][Aa]?s?|Mr|Mrs|Ms|Mme|M|Prof|Pr|Sra?|D|Dn)[.:] {0,2})?(%NAME%(?:,? (?:Jr|Sr|II|III)\b\.?|, %NAME%)?)",
        is_name,
    ),
    rule(
        "name_credential",
        "NAME",
        Rank::Form,
        "names before a credential: Roger C Kelly, MD",
        r"M\.D\.?|MD|D\.O\.|R\.N\.|RN|Ph\.?D\.?|PA-C|FNP|DDS|DPM",
        is_behind_a_name,
    ),
];

/// "age 90-100" and "age 90%" speak of groups.
fn is_no_range(hit: &mut Hit) -> bool {
    !matches!(hit.after(), [b'%' | b'-', ..] | [b'.' | b',', b'0'..=b'9', ..] | [b' ', b'm' | b'd' | b'h', ..])
}

type Words = LazyLock<HashSet<&'static [u8], FixedState>>;

fn words(list: &'static str) -> HashSet<&'static [u8], FixedState> {
    list.split_ascii_whitespace().map(str::as_bytes).collect()
}

/// Words that a form or a sentence puts where a name might stand.
static NO_NAMES: Words = LazyLock::new(|| {
    words(
        "\
    No NoCol Nombre The This He She Was And Or In On None Not Unknown Same As At Date Patient Paciente Servicio \
    Hospital Mujer Varon Male Female Sexo Age Is To It N DOB MRN Medico Medical El La Los Las Un Una Le Les Madame \
    Monsieur Doctor Dr Dra There We I If Chief Department Clinic Yes NA Phone",
    )
});

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

fn is_name(hit: &mut Hit) -> bool {
    cut_after_name(hit);
    let piece = hit.piece();
    let first = &piece[..piece.iter().take_while(|byte| !matches!(byte, b' ' | b',' | b'.')).count()];
    let several = piece.len() > first.len() + 1;
    !NO_NAMES.contains(first) && (first.len() > 1 || several) && piece.iter().any(u8::is_ascii_alphabetic)
}

/// Words with which the next field begins on the line of a name.
static NEXT_FIELDS: Words = LazyLock::new(|| {
    words(
        "\
    NoCol Servicio Service Hospital Hopital Complejo Calle Paseo Plaza Avda Avenida Av Centro Clinica Clinic Unidad \
    Departamento Department Dept Urbanizacion Apartado Correo Facultad Instituto Universidad Oncologia Urologia Ctra \
    Carretera Email E-mail Tel Tfno Phone DOB MRN Date Age Sex MD On At In The Edad Sexo Fecha Ne Nee Geboren Room \
    Unit An I A He She This We It His Her As If Patient There You Of To And For After Before When Seccion SECCION \
    Departament Fundacion Grupo Jefe Correos Area Equipo SERVICIO",
    )
});

fn cut_after_name(hit: &mut Hit) {
    // "C/" begins a street.
    if hit.piece().ends_with(b" C") && matches!(hit.after().first(), Some(b'/' | b'\\')) {
        hit.end -= 2;
    }
    let mut end = 0;
    for word in hit.piece().split(|&byte| byte == b' ') {
        let bare = word.trim_ascii_end().strip_suffix(b".").unwrap_or(word);
        if end > 0 && NEXT_FIELDS.contains(bare) && !is_initial(word, end + word.len() == hit.piece().len()) {
            let name = hit.piece()[..end - 1].trim_ascii_end();
            hit.end = hit.start + name.strip_suffix(b",").unwrap_or(name).len();
            return;
        }
        end += word.len() + 1;
    }
}

/// "I." and "C." within a name are initials, at its end they may be anything.
fn is_initial(word: &[u8], last: bool) -> bool {
    !last && word.len() == 2 && word[1] == b'.'
}
