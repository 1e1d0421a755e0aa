//! People: names behind a title or in a form's field, and ages over 89.

use std::sync::LazyLock;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::checks::num_value;
use super::{Hit, Rank, Rule, always, rule};

pub const PARTS: &[(&str, &str)] = &[
    (
        "%PARTICLES%",
        r"(?:(?:de la|de los|de las|de l'|del|de|di|da|dos|du|la|le|las|los|[Vv]an de[nr]?|[Vv]on de[nr]?|van|von|zu|y|i|e|d'|O'|el|al|bin|ben|ter|ten) ?)",
    ),
    (
        "%DOTTED%",
        r"(?:D?D[Rr](?:[Aa]|es|s)?|DRS|Mr|MR|Mrs|MRS|Ms|MS|Miss|Mme|MME|Mlle|MLLE|(?:[Uu]niv\.?-? ?)?Prof|PROF|Pr|Sr[aA]?|SRA?|Srta|Dn|Dna|Da|Mx|Doz|Hr|Fr|Mag|Lic)",
    ),
    (
        "%SPELLED%",
        r"(?:Dr|Dra|Doctora?|Docteure?|Mr|Mrs|Ms|Miss|Mme|Mlle|Mademoiselle|Madame|Monsieur|Professeure?|Professor(?:in)?|Prof|Herrn?|Frau|Senora?|Don|Dona|Oberarzt|Oberarztin|Chefarzt|Chefarztin|PD|OA)",
    ),
    // Titles that follow a title: Prof. Dr. med. dent., PD Dr., Univ.-Prof. DDr.
    (
        "%SERIES%",
        r"(?:D?D[Rr](?:[Aa]|es|s)?|(?:[Uu]niv\.? ?-? ?)?[Pp]rof(?:a|essor(?:in|a)?|esseure?)?|PROF|Dipl\.?-?(?:Med|Psych|Ing|Biol)|Mag|Ing|Lic|PD|Priv\.? ?-? ?Doz|Doz|OA|(?:Ober|Chef|Fach|Assistenz)arzt(?:in)?|med|dent|vet|rer|nat|phil|habil|univ|hum|biol|psych|h\. ?c|medic)",
    ),
    (
        "%TITLE%",
        r"(?:%SERIES%|Mr|MR|Mrs|MRS|Ms|MS|Miss|Mme|MME|Mlle|MLLE|Mx|Pr|Sr[aA]?|SRA?|Srta|Dn|Dna|Don|Dona|Doctora?|Docteure?|Madame|Monsieur|Mademoiselle|Herrn?|Hr|Frau|Senora?|Maitre|Rev|Sir|Dame|Sister)",
    ),
    ("%NAME%", r"%NAMEWORD%(?:(?: |-)%PARTICLES%{0,2}%NAMEWORD%){0,4}"),
    ("%NAMEWORD%", r"(?:[A-Z\x80-\xff][A-Za-z\x80-\xff'-]*[A-Za-z\x80-\xff]|M\.a|[A-Z]\.|[A-Z]\b)"),
    (
        "%YEARS_OLD%",
        r"(?i:[- ]?years?[- ]?old|[- ]?yrs?\.?[- ]?old|[- ]?years? of age|[- ]?y[./ ]?o\b\.?|[- ]?yr|[- ]anos?|[- ]ans?|[- ]?jahre?|[- ]?jahrige?[rns]?|-jahrig(?:e[rns]?)?)",
    ),
    ("%ANOS%", r"(?: ?(?i:anos?|meses|mes|dias?|semanas?)\b)"),
    (
        "%NUMBER_ES%",
        r"(?i:un|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce|trece|catorce|quince|dieci(?:seis|siete|ocho|nueve)|veinte|veinti(?:un|uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve)|(?:treinta|cuarenta|cincuenta|sesenta|setenta|ochenta)(?: y (?:un|dos|tres|cuatro|cinco|seis|siete|ocho|nueve))?)",
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
        "ages behind a cue: aged 43, at the age of 43, a la edad de 43, âgé de 43, im Alter von 43",
        r"(?i:aged|at age|at the age of|(?:at )?(?:an )?age of|(?:her|his|patient) age (?:is|was)|a la edad de|con edad de|edad de|age[es]{0,2} de|a l'age de|im alter von|alter von)[: ] ?(\d{1,3}%ANOS%?)",
        is_no_range,
    ),
    rule(
        "age_old",
        "AGE",
        Rank::Form,
        "ages that say so: 43-year-old, 43 y/o, 18 months old, 43-jährig, 43 Jahre alt",
        r"\d{1,3}(?i:[- ]?years?[- ]?olds?|[- ]?yrs?\.?[- ]?old|[- ]?years? of age|[- ]?y[./ ]?o\b\.?|[- ]?months?[- ]old|[- ]?weeks?[- ]old|[- ]?days?[- ]old|[- ]?months? of age|-?jahrige?[rnsm]?|-jahrig|[- ]Jahre[ns]? alte?[rnsm]?|[- ]Monate alte?[rnsm]?|-monatige?[rnsm]?)",
        is_possible_age,
    ),
    rule(
        "age_of_someone",
        "AGE",
        Rank::Form,
        "ages of somebody: mujer de 43 años, patiente de 43 ans, Patient, 43 Jahre; 43 años de edad",
        r"\d{1,3}(?i: ?ans\b| jahre\b| mois\b)|(?:(?:\d{1,3}|%NUMBER_ES%)(?:[.,]\d)? ?%ANOS%(?: y (?:medio|\d{1,2} ?(?i:mese?s?|dias?|semanas?)))?)",
        is_of_someone,
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
        "names behind titles: Dr., Mrs, Mme, Sr., Frau, Prof. Dr. med. …",
        r"%DOTTED%\. {0,2}(?:%SERIES%(?:\. ?| ) ?){0,5}(%NAME%)|(?:M\.|D\.a?) {1,2}(%NAME%)|%SPELLED% {1,2}(?:%SERIES%(?:\. ?| ) ?){0,5}(%NAME%)",
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
    let digits = hit.piece().iter().take_while(|byte| byte.is_ascii_digit()).count();
    num_value(&hit.piece()[..digits]) <= 120
        && !matches!(hit.after(), [b'%' | b'-', ..] | [b'.' | b',', b'0'..=b'9', ..] | [b' ', b'm' | b'd' | b'h', ..])
}

/// In English, French and German the number is the age; in Spanish its unit belongs to it.
fn cut_unit(hit: &mut Hit) {
    hit.end = hit.start + hit.piece().iter().take_while(|byte| byte.is_ascii_digit()).count();
}

/// Nobody is older.
fn is_possible_age(hit: &mut Hit) -> bool {
    cut_unit(hit);
    num_value(hit.piece()) <= 120 && !matches!(hit.before(), [.., b'0'..=b'9', b'.' | b',' | b'-' | b'/'])
}

/// Somebody whose age a number of years may be.
static SOMEBODY: Words = LazyLock::new(|| {
    words(
        "\
    mujer varon hombre paciente pacientes nino nina ninos chico chica joven adolescente lactante neonato bebe recien nacido nacida enfermo \
    enferma gestante embarazada primigesta secundigesta senora senor caballero anciano anciana madre padre hijo hija hermano hermana esposo \
    esposa abuelo abuela tio tia primo prima puerpera femenina masculino femenino escolar preescolar individuo sujeto persona trabajador \
    trabajadora ama jubilado jubilada fumador fumadora exfumador exfumadora v m sexo edad raza hombres mujeres deportista estudiante \
    patient patiente patients femme homme enfant garcon fille nourrisson bebe monsieur madame mme mlle mere pere fils frere soeur \
    mari epouse sujet agee age dame jeune grand-mere grand-pere nouveau-ne gestante multipare primipare nullipare \
    patientin frau herr mann kind junge madchen saugling mutter vater sohn tochter bruder schwester dame neugeborenes jugendliche \
    jugendlicher alter rentner rentnerin",
    )
});
/// Words that make a number of years a duration.
static LASTING: Words = LazyLock::new(|| {
    words(
        "\
    hace hacia hacian fallece fallecio reingresa reingreso partir desde durante evolucion seguimiento tras despues antes ultimo ultimos ultimas ultima cada plazo proximos proximo aproximadamente \
    depuis pendant apres avant suivi dernieres derniers environ evoluant duree tous recul survie il \
    seit vor nach uber wahrend fur letzten circa ca zeitraum verlauf innerhalb duracion supervivencia historia control \
    controles diagnosticado diagnosticada tratado tratada tabaquismo periodo espacio lleva llevaba",
    )
});

/// A number of years is an age where the sentence before it has somebody, and nothing that makes it a duration.
fn is_of_someone(hit: &mut Hit) -> bool {
    let digits = hit.piece().iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = num_value(&hit.piece()[..digits]);
    let unit = hit.piece()[digits..].trim_ascii_start();
    if digits > 0
        && unit
            .get(..3)
            .is_some_and(|unit| [b"ans", b"moi", b"jah"].iter().any(|other| unit.eq_ignore_ascii_case(*other)))
    {
        cut_unit(hit);
    }
    let after = hit.after();
    let rest = after.trim_ascii_start();
    let rest =
        [&b"ans"[..], b"mois", b"Jahre", b"jahre"].iter().find_map(|unit| rest.strip_prefix(*unit)).unwrap_or(rest);
    let rest = rest.trim_ascii_start();
    if value > 120 || matches!(hit.before(), [.., b'0'..=b'9', b'.' | b',' | b'-' | b'/']) {
        return false;
    }
    if rest.starts_with(b"de edad") || rest.starts_with(b"alt ") || rest.starts_with(b"d'age") {
        return true;
    }
    let lasts = [
        &b"de evoluc"[..],
        b"de segui",
        b"de dura",
        b"despues",
        b"antes",
        b"mas tarde",
        b"de historia",
        b"de trata",
        b"plus tard",
        b"apres",
        b"de suivi",
        b"de recul",
        b"auparavant",
        b"d'evol",
        b"spater",
        b"lang",
        b"zuvor",
        b"atras",
        b"previ",
        b"de tabaq",
        b"de superv",
    ];
    if lasts.iter().any(|end| rest.starts_with(end)) {
        return false;
    }
    let years = !hit.text[hit.start..]
        .iter()
        .take(24)
        .take_while(|byte| !matches!(byte, b',' | b'.' | b'\n'))
        .copied()
        .collect::<Vec<_>>()
        .to_ascii_lowercase()
        .windows(3)
        .any(|unit| [&b"mes"[..], b"sem", b"dia", b"moi"].contains(&unit));
    if !years
        && (rest.starts_with(b"de gest")
            || rest.starts_with(b"de emb")
            || rest.starts_with(b"de la ")
            || rest.starts_with(b"del ")
            || rest.starts_with(b"de su ")
            || rest.starts_with(b"tras")
            || rest.starts_with(b"de post"))
    {
        return false;
    }
    // The sentence before it, its last word first.
    let before = hit.before();
    let from = before.iter().rposition(|byte| matches!(byte, b';' | b'\n')).map_or(0, |at| at + 1);
    let from = before.windows(2).rposition(|two| two == b". ").map_or(from, |at| from.max(at + 2));
    let comma = before.trim_ascii_end().ends_with(b",") || before.ends_with(b"(");
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii() || *byte == b'-';
    let sentence = before[from..].split(|byte| !is_letter(byte)).rev().filter(|word| !word.is_empty());
    for (distance, word) in sentence.take(8).enumerate() {
        let small = word.to_ascii_lowercase();
        if LASTING.contains(&small[..]) {
            return false;
        }
        if distance == 0 && (small == b"cumplir" || small == b"tenia" || small == b"tiene" || small == b"cumplio") {
            return true;
        }
        // "A los 38 anos" is an age where nobody is followed up for as long.
        if !years && [&b"gestante"[..], b"embarazada", b"gestacion", b"embarazo", b"gestacional"].contains(&&small[..])
        {
            return false;
        }
        if distance == 0
            && (small == b"con" && rest.starts_with(b"de ") || !years && matches!(&small[..], b"los" | b"las"))
        {
            return false;
        }
        if distance == 0
            && small == b"los"
            && (15..=110).contains(&value)
            && before.to_ascii_lowercase().ends_with(b"a los ")
        {
            return true;
        }
        // Mme Laurent, 46 ans
        if distance == 0 && comma && word[0].is_ascii_uppercase() && word.len() > 2 && (1..=110).contains(&value) {
            return true;
        }
        if SOMEBODY.contains(&small[..]) {
            return true;
        }
    }
    false
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
    Monsieur Doctor Dr Dra There We I If Chief Department Clinic Yes NA Phone Kollege Kollegen Kollegin Kolleginnen \
    Colleague Colleagues Colega Colegas Confrere Confreres Consoeur Collegue Collegues Oberarzt Chefarzt Doktor Professor Professeur Kolegin \
    Sir Madam Patientin Patiente His Her Mom Dad",
    )
});

/// Behind "M." for Morbus: diseases.
static EPONYMS: Words = LazyLock::new(|| {
    words(
        "\
    Crohn Parkinson Alzheimer Basedow Hodgkin Bechterew Addison Cushing Meniere Paget Wilson Whipple Behcet Scheuermann Dupuytren \
    Huntington Werlhof Boeck Perthes Gaucher Fabry Waldenstrom Kahler Raynaud Still Hirschsprung Pompe Sudeck Ledderhose Forestier Meulengracht \
    Biermer Kohler Schlatter Recklinghausen Bourneville Pick Osler Binswanger Niemann Bowen Sjogren Haglund Winiwarter Buerger Graves Horton \
    Friedreich Hansen Pott Moschcowitz Hirschprung Castleman Menetrier Grover Darier Dercum Ormond Peyronie Caisson Kawasaki Weil Wegener",
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

/// "geb. Mai 1950" is no name.
fn starts_with_month(piece: &[u8]) -> bool {
    const MONTHS: [&[u8]; 12] = [
        b"januar",
        b"februar",
        b"marz",
        b"april",
        b"mai",
        b"juni",
        b"juli",
        b"august",
        b"september",
        b"oktober",
        b"november",
        b"dezember",
    ];
    let word = piece.split(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    MONTHS.iter().any(|month| word.eq_ignore_ascii_case(month))
}

/// A name behind a title; "D." may be an initial, a vitamin or an item of a list too.
fn is_titled_name(hit: &mut Hit) -> bool {
    let before = hit.before().trim_ascii_end().strip_suffix(b"D.");
    let is_letter = before.is_some_and(|before| !before.last().is_some_and(u8::is_ascii_alphanumeric));
    is_name(hit) && (!is_letter || is_don(hit))
}

/// Whether "D." before a name is the Spanish title: words of a sentence in Spanish stand before or behind it.
fn is_don(hit: &Hit) -> bool {
    const BEFORE: [&[u8]; 15] = [
        b"el",
        b"a",
        b"al",
        b"de",
        b"del",
        b"por",
        b"con",
        b"y",
        b"e",
        b"que",
        b"para",
        b"paciente",
        b"sr",
        b"hijo",
        b"esposo",
    ];
    const BEHIND: [&[u8]; 17] = [
        b"acude",
        b"presenta",
        b"refiere",
        b"ingresa",
        b"ingreso",
        b"es",
        b"fue",
        b"ha",
        b"vive",
        b"solicita",
        b"nacido",
        b"de",
        b"con",
        b"que",
        b"y",
        b"consulta",
        b"niega",
    ];
    let is_one_of = |words: &[&[u8]], word: &[u8]| words.iter().any(|other| word.eq_ignore_ascii_case(other));
    let before = hit.before().trim_ascii_end();
    let before = before.strip_suffix(b"D.").unwrap_or(before).trim_ascii_end();
    let last = before.rsplit(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    let behind = hit.after().strip_prefix(b",").unwrap_or(hit.after()).trim_ascii_start();
    let next = behind.split(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    let several = hit.piece().contains(&b' ');
    several
        && (before.ends_with(b":") || before.ends_with(b"(") || is_one_of(&BEFORE, last) || is_one_of(&BEHIND, next))
}

pub fn is_name(hit: &mut Hit) -> bool {
    cut_after_name(hit);
    let piece = hit.piece();
    let first = &piece[..piece.iter().take_while(|byte| !matches!(byte, b' ' | b',' | b'.')).count()];
    let several = piece.len() > first.len() + 1;
    let disease = hit.before().ends_with(b"M. ") && EPONYMS.contains(first);
    // "1 M. Then": moles, metres, millions.
    let unit = hit
        .before()
        .strip_suffix(b"M. ")
        .is_some_and(|before| before.strip_suffix(b" ").unwrap_or(before).last().is_some_and(u8::is_ascii_digit));
    !disease
        && !unit
        && !NO_NAMES.contains(first)
        && (first.len() > 1 || several)
        && piece.iter().any(u8::is_ascii_alphabetic)
}

/// Words with which the next field begins on the line of a name.
static NEXT_FIELDS: Words = LazyLock::new(|| {
    words(
        "\
    NoCol Servicio Service Hospital Hopital Complejo Calle Paseo Plaza Avda Avenida Av Centro Clinica Clinic Unidad \
    Departamento Department Dept Urbanizacion Apartado Correo Facultad Instituto Universidad Oncologia Urologia Ctra \
    Carretera Email E-mail Tel Tfno Phone DOB MRN Date Age Sex MD On At In The Edad Sexo Fecha Ne Nee Geboren Room \
    Unit An I A He She This We It His Her As If Patient There You Of To And For After Before When Seccion SECCION \
    Departament Fundacion Grupo Jefe Correos Area Equipo SERVICIO Suite Apt Apartment Floor Building Box Appartement Batiment Etage \
    Zimmer Piso Habitacion",
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
