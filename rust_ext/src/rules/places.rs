//! Places: postcodes behind a cue or next to a town, streets by their form.

use std::sync::LazyLock;

use super::{Hit, Rank, Rule, always, behind_last, rule};
use crate::word_lists::{Language, WordSet, Words, alternatives, entries, marked, words};

pub const PARTS: &[(&str, &str)] = &[
    (
        "%STATE%",
        r"(?:A[KLRZ]|C[AOT]|D[CE]|FL|GA|HI|I[ADLN]|K[SY]|LA|M[ADEINOST]|N[CDEHJMVY]|O[HKR]|P[AR]|RI|S[CD]|T[NX]|UT|V[AIT]|W[AIVY])",
    ),
    (
        "%STATE_NAME%",
        r"(?:Alabama|Alaska|Arizona|Arkansas|California|Colorado|Connecticut|Delaware|Florida|Georgia|Hawaii|Idaho|Illinois|Indiana|Iowa|Kansas|Kentucky|Louisiana|Maine|Maryland|Massachusetts|Michigan|Minnesota|Mississippi|Missouri|Montana|Nebraska|Nevada|New (?:Hampshire|Jersey|Mexico|York)|(?:North|South) (?:Carolina|Dakota)|Ohio|Oklahoma|Oregon|Pennsylvania|Rhode Island|Tennessee|Texas|Utah|Vermont|Virginia|Washington|Wisconsin|Wyoming)",
    ),
    (
        "%UK_AREA%",
        r"(?:AB|AL|B|BA|BB|BD|BH|BL|BN|BR|BS|BT|CA|CB|CF|CH|CM|CO|CR|CT|CV|CW|DA|DD|DE|DG|DH|DL|DN|DT|DY|E|EC|EH|EN|EX|FK|FY|G|GL|GU|HA|HD|HG|HP|HR|HS|HU|HX|IG|IP|IV|KA|KT|KW|KY|L|LA|LD|LE|LL|LN|LS|LU|M|ME|MK|ML|N|NE|NG|NN|NP|NR|NW|OL|OX|PA|PE|PH|PL|PO|PR|RG|RH|RM|S|SA|SE|SG|SK|SL|SM|SN|SO|SP|SR|SS|ST|SW|SY|TA|TD|TF|TN|TQ|TR|TS|TW|UB|W|WA|WC|WD|WF|WN|WR|WS|WV|YO|ZE)",
    ),
    ("%WORD%", r"[A-Za-z0-9\x80-\xff'.*-]+"),
    ("%CAPITAL%", r"[A-Z\x80-\xff][A-Za-z\x80-\xff'.-]*"),
    (
        "%TOWN%",
        r"(?:[A-Z\x80-\xff][A-Za-z\x80-\xff][A-Za-z\x80-\xff'-]*|L'[A-Z][a-z\x80-\xff]+)(?:[ -](?:(?i:de las?|de los|del?|la|el|los|las|am|an der|im|sur|sous|en|les?|y|i|ob der|in) |d')?[A-Z\x80-\xff][A-Za-z\x80-\xff'-]+){0,4}",
    ),
    (
        "%FLOOR%",
        r"(?:[,. -]{1,3}(?:\d{1,3}(?:[o*a]\.?(?: ?[A-Za-z]{1,3}\b)?|[A-Z]?\b)|[A-Z]\d?\b|(?i:bajo|izq?(?:da|uierda)?|dcha|derecha|piso|planta|puerta|esc(?:alera)?|portal|bloque|atico|bis|local|oficina)\b)){0,5}",
    ),
];

/// Countries and kinds of street, from the word lists; countries that are cut short too.
pub fn listed_parts() -> Vec<(&'static str, String)> {
    let before = |language| {
        alternatives(
            entries("streets before").iter().filter(move |kind| kind.language == Some(language)).map(|kind| kind.word),
        )
    };
    vec![
        ("%COUNTRY%", format!(r"(?:{}|EE\.? ?UU\.?|U\.?S\.?A\.?)", alternatives(words("countries")))),
        ("%STREET_EN%", alternatives(words("streets behind"))),
        ("%STREET_FR%", before(Language::French)),
        ("%STREET_SMALL%", alternatives(marked("streets before", "small"))),
        ("%STREET_ES%", before(Language::Spanish)),
    ]
}

pub const RULES: &[Rule] = &[
    rule(
        "zip_cued",
        "ZIP",
        Rank::Sure,
        "postcodes behind CP, código postal, code postal, ZIP, postcode, PLZ",
        r"(?i:c\. ?p\.?|cp|codigo postal|code postal|zip(?: ?code)?|post ?code|postal code|plz|postleitzahl)(?: (?i:is|es))?[ :.,=-]{1,4}([A-Z]{0,2}-?\d{1,2} ?\d{2,6}(?:-\d{3,4})?[A-Z]{0,3}|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|[A-Z]\d[A-Z] ?\d[A-Z]\d)",
        is_postcode,
    ),
    rule(
        "zip_us",
        "ZIP",
        Rank::Sure,
        "US ZIP codes behind a state",
        r"(?:%STATE%|%STATE_NAME%)[ ,.]{1,3}(\d{5}(?:-\d{4})?)",
        always,
    ),
    rule(
        "zip_uk",
        "ZIP",
        Rank::Form,
        "UK postcodes of existing areas",
        r"%UK_AREA%\d[A-Z\d]? \d[ABD-HJLNP-UW-Z]{2}",
        always,
    ),
    rule(
        "zip_town",
        "ZIP",
        Rank::Sure,
        "five digits before a town (28041 Madrid, 75013 PARIS, D-80331 München) where an address may stand",
        r"(?:(?:E|ES|F|FR|D|DE|I|IT|L|A|CH|B|P|PT)[- ])?(\d{5})(?:[ ,.()-]|\. |, ){1,3}(?:[A-Z][a-z\x80-\xff]{2}|[A-Z]{4}|(?:L[aeo]s?|El|San|St\.?|A|O) [A-Z][a-z]{2}|L'[A-Z]|alcal|[Ee]-?mail|[Cc]orreo)[A-Za-z\x80-\xff]*",
        is_next_to_a_town,
    ),
    rule(
        "zip_last",
        "ZIP",
        Rank::Form,
        "five digits behind a town, at the end of an address",
        r"((?:E-)?\d{5})(?:\.?\)?[ .]?\n|\.?\z| ?[(-])",
        is_behind_a_town,
    ),
    rule(
        "zip_short",
        "ZIP",
        Rank::Sure,
        "four digits before a town: A-1090 Wien, CH-8001 Zürich, 1000 Bruxelles behind a house number",
        r"(?:(?:A|AT|CH|B|BE|L|LU|FL|DK|NO|NL)[- ])?(\d{4})(?: [A-Z]{2})?[ ](?:[A-Z][a-z\x80-\xff]{2}|(?:St|Bad|La|Le)\.? [A-Z][a-z])[A-Za-z\x80-\xff.-]*",
        is_behind_a_house,
    ),
    rule(
        "zip_ca",
        "ZIP",
        Rank::Form,
        "Canadian postcodes: K1A 0B1",
        r"[ABCEGHJ-NPRSTVXY]\d[ABCEGHJ-NPRSTV-Z][ -]\d[ABCEGHJ-NPRSTV-Z]\d",
        always,
    ),
    rule(
        "town_behind_zip",
        "CITY",
        Rank::Form,
        "the town behind a postcode, with the province and the country behind it",
        r"(?:(?:E|ES|F|FR|D|DE|I|IT|L|A|AT|CH|B|BE|P|PT)[- ])?(?:\d{5}[ ,.()-]{1,3}|\d{4} )(%TOWN%)(?:[ ,.-]{1,3}\(?(%TOWN%)\)?)?(?:[ ,.-]{1,3}\(?(%TOWN%)\)?)?",
        is_town,
    ),
    rule(
        "town_before_zip",
        "CITY",
        Rank::Form,
        "the town before a state, a province or a postcode with letters: Okemos, MI 48864; Thrapford, NM9 6RA",
        r"(?:%STATE%[ ,.]{1,3}\d{5}|(?:[A-Z]{2},? )?[ABCEGHJ-NPRSTVXY]\d[ABCEGHJ-NPRSTV-Z][ -]\d[ABCEGHJ-NPRSTV-Z]\d|%UK_AREA%\d[A-Z\d]? \d[ABD-HJLNP-UW-Z]{2})",
        is_town_before_zip,
    ),
    rule(
        "street_before_zip",
        "STREET",
        Rank::Form,
        "a street without its kind, known by the number and the postcode behind it: Villarroel, 170, 08036",
        r"((?:\d{1,4}(?:-\d{1,4})?[A-Za-z]?|s/n|S/N)%FLOOR%)[. ,-]{1,4}(?:[A-Z]{1,2}-)?\d{5}(?:[ ,.()-]{1,3}[A-Z][A-Za-z\x80-\xff'-]*| [^ @]{1,40}@[a-z.]+)",
        is_behind_a_name,
    ),
    rule(
        "country",
        "COUNTRY",
        Rank::Form,
        "countries at the end of an address: (España), France, Deutschland",
        r"%COUNTRY%",
        ends_an_address,
    ),
    rule(
        "street_en",
        "STREET",
        Rank::Form,
        "number, name and kind of street: 123 Main St, Apt 4",
        r"\d{1,5}[A-Z]?,? (?:[NSEW]{1,2}\.? |(?:North|South|East|West) )?(?:(?:\d{1,3}(?:st|nd|rd|th)|%CAPITAL%) ){1,3}(?:%STREET_EN%)\b\.?(?:,? (?i:apt|apartment|suite|ste|unit|#)\.? ?#?[A-Za-z0-9-]{1,6})?",
        is_no_form_text,
    ),
    rule(
        "street_fr",
        "STREET",
        Rank::Form,
        "number, kind and name of street in French: 12 bis, rue des Lilas",
        r"(?:\d{1,4}(?: ?(?:bis|ter|quater|[A-D]))?,? ?)(?i:%STREET_FR%) (?:(?i:de la|de l'|du|des|de|la|le|les|l'|d'|aux?|et|sur|en) ?){0,3}%CAPITAL%(?:[ -](?:(?i:de la|de l'|du|des|de|la|le|les|et|sur|en) )?%CAPITAL%){0,4}|(?:\d{1,4}(?: ?(?:bis|ter))?,? ?)(?i:%STREET_SMALL%) (?:(?i:de la|de l'|du|des|de|la|le|les|l'|d') ?){1,2}[a-z]{3,}",
        always,
    ),
    rule(
        "street_es",
        "STREET",
        Rank::Form,
        "kind, name and number of street in Spanish: Calle Mayor 3, 2º B",
        r"(?:[cC] ?[/\\]\.? ?(?i:calle )?|(?:P\.?[o*]|Avd?a?/|(?i:%STREET_ES%))(?:\.? |\.)) ?(?:(?i:de las?|de los|del?|las?|los|el|y|i|d') ?){0,3}(?:%CAPITAL%|\d{1,2} de [A-Z][a-z]+)(?:,? (?:(?i:de las?|de los|del?|las?|los|el|y|i|en) ){0,2}%CAPITAL%){0,6}(?:,? {0,2}(?i:n[o*.]{1,2} ?|num\.? ?|numero |km\.? ?)?(?:[1-9]\d{0,3}(?:[.,-]\d{1,4})?(?: ?[A-Za-z])?\b|s/n)%FLOOR%)?",
        has_number_or_kind,
    ),
    Rule {
        behind: has_street_before,
        ..rule(
            "street_de",
            "STREET",
            Rank::Form,
            "name and number of street in German: Hauptstraße 5a",
            r"\d{1,4} ?(?:[a-h]\b)?",
            is_behind_a_street,
        )
    },
    rule(
        "po_box",
        "STREET",
        Rank::Form,
        "post office boxes",
        r"(?i:p\. ?o\. ?box|po box|apartado(?: de correos)?|boite postale|bp|b\.p\.|postfach|apdo\.?)(?: n[o*]\.?)? ?\d{1,6}",
        is_no_blood_pressure,
    ),
];

// What an expression cannot say of places: the words before and behind a postcode, a house's number, a country.

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
    let house = bare[behind_last(bare, |byte| matches!(byte, b' ' | b'\n'))..].to_vec();
    let street = &bare[..bare.len() - house.len()];
    let street = street.trim_ascii_end();
    let numbered = house.first().is_some_and(u8::is_ascii_digit)
        && house.len() <= 8
        && street
            .last()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii() || *byte == b'.' || *byte == b',')
        && street[behind_last(street, |byte| *byte == b' ')..].len() > 3;
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
        let mut zip = Hit { start: end - digits, end, spaced: false, ..*hit };
        return if digits == 5 { is_next_to_a_town(&mut zip) } else { digits == 4 && is_behind_a_house(&mut zip) };
    }
    // "EE. UU." or the next sentence?
    ends_an_address(hit)
}

/// In brackets, or before the end of the line or a way to reach somebody.
pub fn ends_an_address(hit: &mut Hit) -> bool {
    let before = hit.before();
    let named = before.trim_ascii_end();
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
        let word = &bare[behind_last(bare, |byte| matches!(byte, b' ' | b'\n' | b'(' | b'.' | b','))..];
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
        let from = behind_last(word, |byte| matches!(byte, b'\n' | b',' | b'*' | b'(' | b'|' | b'\t'));
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
pub fn is_next_to_a_town(hit: &mut Hit) -> bool {
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

/// A kind that is also a word in other senses needs a number behind the name.
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
