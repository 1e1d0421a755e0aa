//! Places: postcodes behind a cue or beside a town, streets by their form.

use super::{Hit, Rank, Rule, always, rule};

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
    ("%COUNTRY%", COUNTRIES),
    (
        "%TOWN%",
        r"(?:[A-Z\x80-\xff][A-Za-z\x80-\xff][A-Za-z\x80-\xff'-]*|L'[A-Z][a-z\x80-\xff]+)(?:[ -](?:(?i:de las?|de los|del?|la|el|los|las|am|an der|im|sur|sous|en|les?|y|i|ob der|in) |d')?[A-Z\x80-\xff][A-Za-z\x80-\xff'-]+){0,4}",
    ),
    (
        "%FLOOR%",
        r"(?:[,. -]{1,3}(?:\d{1,3}(?:[o*a]\.?(?: ?[A-Za-z]{1,3}\b)?|[A-Z]?\b)|[A-Z]\d?\b|(?i:bajo|izq?(?:da|uierda)?|dcha|derecha|piso|planta|puerta|esc(?:alera)?|portal|bloque|atico|bis|local|oficina)\b)){0,5}",
    ),
];

#[rustfmt::skip]
const COUNTRIES: &str = "(?:Espana|Francia|Portugal|Italia|Alemania|Reino Unido|Inglaterra|Marruecos|Mexico|Argentina|Chile|Colombia|Peru|Ecuador|Bolivia|Venezuela|Cuba|Uruguay|Paraguay|Brasil|Costa Rica|Guatemala|Honduras|Nicaragua|Panama|El Salvador|Republica Dominicana|Estados Unidos|EE\\.? ?UU\\.?|Rumania|Polonia|Suiza|Belgica|Holanda|China|Japon|India|Rusia|Ucrania|Bulgaria|Argelia|Senegal|Nigeria|Filipinas|Pakistan|France|Belgique|Suisse|Luxembourg|Maroc|Algerie|Tunisie|Espagne|Italie|Allemagne|Canada|Etats-Unis|Royaume-Uni|Pologne|Roumanie|Turquie|Deutschland|Osterreich|Schweiz|Frankreich|Italien|Spanien|Turkei|Polen|Niederlande|Belgien|Griechenland|Rumanien|Russland|Spain|Germany|Austria|Switzerland|Belgium|Netherlands|United Kingdom|UK|England|Scotland|Ireland|Italy|Greece|Poland|Romania|Turkey|Morocco|Brazil|United States|U\\.?S\\.?A\\.?|Denmark|Sweden|Norway|Finland|Japan|Korea|Australia|New Zealand|South Africa|Czech Republic|Hungary|Israel|Egypt|Russia|Ukraine|Philippines|Vietnam|Thailand)";

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
        is_beside_a_town,
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
        r"\d{1,5}[A-Z]?,? (?:[NSEW]{1,2}\.? |(?:North|South|East|West) )?(?:(?:\d{1,3}(?:st|nd|rd|th)|%CAPITAL%) ){1,3}(?:Street|St|Avenue|Ave|Av|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|Terrace|Ter|Way|Highway|Hwy|Parkway|Pkwy|Circle|Cir|Close|Crescent|Gardens|Grove|Mews|Row|Trail|Route)\b\.?(?:,? (?i:apt|apartment|suite|ste|unit|#)\.? ?#?[A-Za-z0-9-]{1,6})?",
        is_no_form_text,
    ),
    rule(
        "street_fr",
        "STREET",
        Rank::Form,
        "number, kind and name of street in French: 12 bis, rue des Lilas",
        r"(?:\d{1,4}(?: ?(?:bis|ter|quater|[A-D]))?,? ?)(?i:rue|avenue|av\.?|boulevard|bd\.?|blvd|place|pl\.|impasse|imp\.|allees?|chemin|ch\.|quai|route|rte|square|cours|passage|villa|faubourg|fbg|residence|lotissement|cite|esplanade|sentier|promenade|hameau|lieu-dit|mail) (?:(?i:de la|de l'|du|des|de|la|le|les|l'|d'|aux?|et|sur|en) ?){0,3}%CAPITAL%(?:[ -](?:(?i:de la|de l'|du|des|de|la|le|les|et|sur|en) )?%CAPITAL%){0,4}|(?:\d{1,4}(?: ?(?:bis|ter))?,? ?)(?i:rue|avenue|boulevard|impasse|allee|chemin|quai) (?:(?i:de la|de l'|du|des|de|la|le|les|l'|d') ?){1,2}[a-z]{3,}",
        always,
    ),
    rule(
        "street_es",
        "STREET",
        Rank::Form,
        "kind, name and number of street in Spanish: Calle Mayor 3, 2º B",
        r"(?:[cC] ?[/\\]\.? ?(?i:calle )?|(?:P\.?[o*]|Avd?a?/|(?i:calle|avda?|avenida|av|paseo|plaza|plza|pza|pl|ctra|carretera|camino|ronda|travesia|glorieta|urbanizacion|urb|rambla|alameda|poligono|pol|barrio|barriada|cuesta|pasaje|partida|callejon|(?:gran )?via))(?:\.? |\.)) ?(?:(?i:de las?|de los|del?|las?|los|el|y|i|d') ?){0,3}(?:%CAPITAL%|\d{1,2} de [A-Z][a-z]+)(?:,? (?:(?i:de las?|de los|del?|las?|los|el|y|i|en) ){0,2}%CAPITAL%){0,6}(?:,? {0,2}(?i:n[o*.]{1,2} ?|num\.? ?|numero |km\.? ?)?(?:[1-9]\d{0,3}(?:[.,-]\d{1,4})?(?: ?[A-Za-z])?\b|s/n)%FLOOR%)?",
        has_number_or_kind,
    ),
    rule(
        "street_de",
        "STREET",
        Rank::Form,
        "name and number of street in German: Hauptstraße 5a",
        r"\d{1,4} ?(?:[a-h]\b)?",
        is_behind_a_street,
    ),
    rule(
        "po_box",
        "STREET",
        Rank::Form,
        "post office boxes",
        r"(?i:p\. ?o\. ?box|po box|apartado(?: de correos)?|boite postale|bp|b\.p\.|postfach|apdo\.?)(?: n[o*]\.?)? ?\d{1,6}",
        is_no_blood_pressure,
    ),
];

/// The sign that ends a sentence or a field is no part of an address.
fn trim(hit: &mut Hit) {
    while hit.end > hit.start + 1 && matches!(hit.text[hit.end - 1], b'.' | b',' | b' ' | b'-') {
        hit.end -= 1;
    }
}

/// A house's number, a floor or a line before it, or the country's letter.
fn is_behind_a_house(hit: &mut Hit) -> bool {
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
const NO_TOWNS: [&[u8]; 30] = [
    b"Tel",
    b"Tfno",
    b"Tlf",
    b"Telf",
    b"Telef",
    b"Telefono",
    b"Fax",
    b"E-mail",
    b"Email",
    b"E-Mail",
    b"EMAIL",
    b"Mail",
    b"Correo",
    b"Phone",
    b"Telefon",
    b"Correos",
    b"El",
    b"La",
    b"Los",
    b"Las",
    b"En",
    b"Se",
    b"Dr",
    b"Dra",
    b"Hospital",
    b"Servicio",
    b"Leukozyten",
    b"Thrombozyten",
    b"Telephone",
    b"Email:",
];

/// A town behind its postcode; behind a town, what stands in brackets, ends the address, or is a country.
fn is_town(hit: &mut Hit) -> bool {
    let mut start = 0;
    for word in hit.piece().split(|&byte| byte == b' ') {
        if NO_TOWNS.contains(&word)
            && (start > 0 || word.len() > 3 || word == b"Tel" || word == b"Fax" || word == b"Tlf")
        {
            if start == 0 {
                return false;
            }
            hit.end = hit.start + start - 1;
            break;
        }
        start += word.len() + 1;
    }
    let before = hit.before();
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
        let mut zip = Hit { text: hit.text, start: end - digits, end };
        return if digits == 5 { is_beside_a_town(&mut zip) } else { digits == 4 && is_behind_a_house(&mut zip) };
    }
    // "EE. UU." or the next sentence?
    ends_an_address(hit)
}

/// In brackets, or before the end of the line or a way to reach somebody.
fn ends_an_address(hit: &mut Hit) -> bool {
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
        || NO_TOWNS[..15]
            .iter()
            .any(|other| word.get(..other.len()).is_some_and(|start| start.eq_ignore_ascii_case(other)));
    let ends = rest.is_empty() || rest.starts_with(b"\n") || reached;
    capital && (bracketed || ends && !matches!(sign, b'\n' | b':'))
}

/// One to four capitalised words stand before a house's number; they are a part of what is found.
fn is_behind_a_name(hit: &mut Hit) -> bool {
    const NO_STREETS: [&[u8]; 16] = [
        b"Hospital",
        b"Servicio",
        b"Centro",
        b"Clinica",
        b"Clinico",
        b"Universitario",
        b"Urologia",
        b"Salud",
        b"Correos",
        b"Universidad",
        b"Facultad",
        b"General",
        b"Complejo",
        b"Unidad",
        b"Instituto",
        b"Medica",
    ];
    trim(hit);
    let before = hit.before().trim_ascii_end();
    let before = before.strip_suffix(b",").unwrap_or(before).trim_ascii_end();
    let end = hit.start - (hit.before().len() - before.len());
    let (mut at, mut start, mut words) = (before.len(), before.len(), 0);
    for word in before.rsplit(|&byte| byte == b' ').take(5) {
        let from = at - word.len();
        let particle =
            [&b"de"[..], b"del", b"la", b"las", b"los", b"el", b"y", b"i", b"d'", b"n*", b"no"].contains(&word);
        let capital = word.first().is_some_and(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
        let plain = word
            .iter()
            .all(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii() || matches!(byte, b'-' | b'\'' | b'.'));
        if word.is_empty()
            || !plain && !particle
            || !(particle || capital)
            || NO_STREETS.contains(&word)
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
fn is_postcode(hit: &mut Hit) -> bool {
    super::checks::num_digits(hit.piece()) >= 4 || hit.piece().iter().any(u8::is_ascii_alphabetic)
}

/// Before a postcode stands a sign, a number, a line or a name, not a word of a sentence ("con 25000 Leukozyten").
fn is_beside_a_town(hit: &mut Hit) -> bool {
    let before = hit.before().trim_ascii_end();
    let letters = before.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'/').count();
    let word = &before[before.len() - letters..];
    let floor =
        [&b"s/n"[..], b"izq", b"izqda", b"izquierda", b"dcha", b"derecha", b"bis", b"bajo", b"puerta", b"oficina"];
    let unit = hit.text[hit.end..].trim_ascii_start();
    let count = [&b"Leu"[..], b"Pla", b"Thr", b"Ery", b"Cel", b"Neu", b"Pac", b"Uni", b"Ein"]
        .iter()
        .any(|word| unit.starts_with(word));
    let acronym = (3..=5).contains(&word.len()) && word.iter().all(u8::is_ascii_uppercase);
    let item = hit.before().ends_with(
        b"
",
    ) && unit.starts_with(b",");
    !count
        && !acronym
        && !item
        && !hit.piece().starts_with(b"00")
        && (word.len() < 2 || !word[0].is_ascii_lowercase() || floor.contains(&word))
}

/// A town of at least three letters or "s/n" before it; provinces and departments go from 01 to 98, counts end in zeros.
fn is_behind_a_town(hit: &mut Hit) -> bool {
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

/// A capitalised word that ends as German streets do stands before the number; it is a part of what is found.
fn is_behind_a_street(hit: &mut Hit) -> bool {
    const KINDS: [&[u8]; 8] = [b"strasse", b"str.", b"weg", b"platz", b"allee", b"gasse", b"damm", b"ufer"];
    while hit.text[hit.end - 1] == b' ' {
        hit.end -= 1;
    }
    let before = hit.before().trim_ascii_end();
    let Some(kind) = KINDS
        .iter()
        .find(|kind| before.len() > kind.len() && before[before.len() - kind.len()..].eq_ignore_ascii_case(kind))
    else {
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
fn is_no_form_text(hit: &mut Hit) -> bool {
    !hit.piece().windows(4).any(|word| matches!(word, b" PM " | b" AM "))
}

/// A kind that is a word of its own in other senses needs a number behind the name.
fn has_number_or_kind(hit: &mut Hit) -> bool {
    trim(hit);
    let piece = hit.piece();
    let first = piece[0].is_ascii_uppercase() || piece.starts_with(b"c/") || piece.starts_with(b"c\\");
    let numbered = piece.iter().any(u8::is_ascii_digit) || piece.ends_with(b"s/n") || piece.ends_with(b"S/N");
    let common = [
        &b"Via"[..],
        b"via",
        b"Pol",
        b"pol",
        b"P",
        b"p",
        b"Av",
        b"av",
        b"AV",
        b"PL",
        b"Camino",
        b"Partida",
        b"Pl",
        b"pl",
    ];
    let kind = &piece[..piece.iter().take_while(|byte| byte.is_ascii_alphabetic()).count()];
    first && (numbered || !common.contains(&kind) && kind.len() > 1)
}

/// BP stands for blood pressure too.
fn is_no_blood_pressure(hit: &mut Hit) -> bool {
    let blood = hit.piece()[..2].eq_ignore_ascii_case(b"bp") || hit.piece()[..2].eq_ignore_ascii_case(b"b.");
    let after = hit.after();
    !blood
        || matches!(after, [b',' | b'\n' | b' ', ..])
            && after.get(1..6).is_some_and(|zip| zip.iter().all(u8::is_ascii_digit))
}
