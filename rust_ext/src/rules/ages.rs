//! Ages: in years, months and days, in numbers and words, with the word that says so before or behind them.

use std::sync::LazyLock;

use super::checks::num_value;
use super::{Hit, Rank, Rule, always, behind_last, behind_last_row, rule};
use crate::word_lists::{WordSet, Words};

pub const PARTS: &[(&str, &str)] = &[
    (
        "%YEARS_OLD%",
        r"(?i:[- ]?years?[- ]?old|[- ]?yrs?\.?[- ]?old|[- ]?years? of age|[- ]?y[./ ]?o\b\.?|[- ]?yrs?|[- ]?anos?|[- ]?ans?|[- ]?jahre?|[- ]?jahrig(?:e[rnsm]?)?)",
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
        "age_over_89_short",
        "AGE",
        Rank::Form,
        "ages over 89 with a unit or a sex cut short: 97 y.o., 95yr, 94j., 93/F, 93F with",
        r"(%OLD%(?:[- ]?(?i:y[./ ]?o\b\.?|yrs?\b\.?|j\.)|/ ?[MFW]|(?i:ans|anos|jahre|jahrige?[rnsm]?)))|(%OLD%-?[MFW])(?: (?i:with|who|w/|c/o|h/o|s/p|presenting|presents|admitted|pt|patient)|,)",
        always,
    ),
    rule(
        "age_over_89_said",
        "AGE",
        Rank::Form,
        "ages over 89 without a unit, of somebody: she is 93, died at 101, turned 95, in her 90s, starb mit 93, falleció con 93",
        r"(?i:(?:he|she|wife|husband|mother|father|brother|sister|aunt|uncle|grandmother|grandfather|patient|pt)(?:'s| is| was| now| is now)|turned|turns|turning|age|aged|(?:died|dead|deceased|passed|passed away) at|(?:starb|verstarb|verstorben) mit|(?:fallecio|murio|fallecida|fallecido) (?:con|a los)|(?:decede|decedee|mort|morte) a) (%OLD%)|(?i:her|his|their|a) ((?i:early |mid-? ?|late )?(?:90'?s|(?i:nineties)))",
        is_said_age,
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
        r"\d{1,3}(?i:[- ]?years?[- ]?olds?|[- ]?yrs?\.?[- ]?old|[- ]?years? of age|[- ]?y[./ ]?o\b\.?|[- ]?months?[- ]old|[- ]?weeks?[- ]old|[- ]?days?[- ]old|[- ]?months? of age|-?jahrige?[rnsm]?|-jahrig|-?j\.|[- ]Jahre[ns]? alte?[rnsm]?|[- ]Monate alte?[rnsm]?|-monatige?[rnsm]?)",
        is_possible_age,
    ),
    rule(
        "age_of_someone",
        "AGE",
        Rank::Form,
        "ages of somebody: mujer de 43 años, patiente de 43 ans, Patient, 43 Jahre; 43 años de edad",
        r"\d{1,3}(?: ?(?i:ans|jahre|mois)\b| J\.)|(?:(?:\d{1,3}|%NUMBER_ES%)(?:[.,]\d)? ?%ANOS%(?: y (?:medio|\d{1,2} ?(?i:mese?s?|dias?|semanas?)))?)",
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
];

/// "age 90-100" and "age 90%" speak of groups.
fn is_no_range(hit: &mut Hit) -> bool {
    num_value(hit.leading_digits()) <= 120
        && !matches!(hit.after(), [b'%' | b'-', ..] | [b'.' | b',', b'0'..=b'9', ..] | [b' ', b'm' | b'd' | b'h', ..])
}

/// The sentence, or a part of it, ends behind the number: "he is 93% better" and "died at 93 Elm Street" do not.
fn is_said_age(hit: &mut Hit) -> bool {
    let years = hit.piece().iter().any(|byte| matches!(byte, b's' | b'S'));
    let after = hit.after();
    let rest = after.trim_ascii_start();
    years
        || matches!(after, [] | [b'.' | b',' | b';' | b')' | b'\n' | b'\r' | b'!' | b'?', ..])
            && !matches!(after, [b'.' | b',', b'0'..=b'9', ..])
        || after.starts_with(b" ")
            && [&b"and "[..], b"years", b"yrs", b"y/o", b"but ", b"now", b"und ", b"et ", b"y ", b"of ", b"from "]
                .iter()
                .any(|word| rest.starts_with(word))
}

/// In English, French and German the number is the age; in Spanish its unit belongs to it.
fn cut_unit(hit: &mut Hit) {
    hit.end = hit.start + hit.leading_digits().len();
}

/// As many years as somebody may have, of whatever unit.
pub fn is_possible(hit: &Hit) -> bool {
    (1..=120).contains(&num_value(hit.leading_digits()))
}

/// Nobody is older.
fn is_possible_age(hit: &mut Hit) -> bool {
    cut_unit(hit);
    num_value(hit.piece()) <= 120 && !matches!(hit.before(), [.., b'0'..=b'9', b'.' | b',' | b'-' | b'/'])
}

/// Somebody whose age a number of years may be.
static SOMEBODY: Words = LazyLock::new(|| WordSet::of("somebody"));
/// Words that make a number of years a duration.
static LASTING: Words = LazyLock::new(|| WordSet::of("lasting before"));
/// The same of a number of years before them.
static LASTING_BEHIND: Words = LazyLock::new(|| WordSet::of("lasting behind"));

/// A number of years is an age where the sentence before it has somebody, and nothing that makes it a duration.
fn is_of_someone(hit: &mut Hit) -> bool {
    let digits = hit.leading_digits();
    let value = num_value(digits);
    let unit = hit.piece()[digits.len()..].trim_ascii_start();
    if !digits.is_empty()
        && unit
            .get(..3)
            .is_some_and(|unit| [b"ans", b"moi", b"jah"].iter().any(|other| unit.eq_ignore_ascii_case(*other)))
    {
        cut_unit(hit);
    }
    // "(27 J.)" behind a date of birth.
    let cut_short = unit == b"J.";
    if cut_short {
        cut_unit(hit);
        let dated = hit
            .before()
            .strip_suffix(b"(")
            .is_some_and(|before| before.trim_ascii_end().last().is_some_and(u8::is_ascii_digit));
        if dated && hit.after().starts_with(b" J.)") {
            return value <= 120;
        }
    }
    let after = hit.after();
    let rest = after.trim_ascii_start();
    let rest = [&b"ans"[..], b"mois", b"Jahre", b"jahre", b"J."]
        .iter()
        .find_map(|unit| rest.strip_prefix(*unit))
        .unwrap_or(rest);
    let rest = rest.trim_ascii_start();
    if value > 120 || matches!(hit.before(), [.., b'0'..=b'9', b'.' | b',' | b'-' | b'/']) {
        return false;
    }
    if rest.starts_with(b"de edad") || rest.starts_with(b"alt ") || rest.starts_with(b"d'age") {
        return true;
    }
    if LASTING_BEHIND.iter().any(|end| rest.starts_with(end)) {
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
    let from = behind_last(before, |byte| matches!(byte, b';' | b'\n')).max(behind_last_row(before, b". "));
    let comma = before.trim_ascii_end().ends_with(b",") || before.ends_with(b"(");
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii() || *byte == b'-';
    let sentence = before[from..].split(|byte| !is_letter(byte)).rev().filter(|word| !word.is_empty());
    for (distance, word) in sentence.take(8).enumerate() {
        let small = word.to_ascii_lowercase();
        if LASTING.has(&small) {
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
        let initial = word.len() == 1 && before.trim_ascii_end().ends_with(b".,");
        let named = word[0].is_ascii_uppercase() && (word.len() > 2 || initial);
        if distance == 0 && comma && named && (1..=110).contains(&value) {
            return true;
        }
        if SOMEBODY.has(&small) {
            return true;
        }
    }
    false
}
