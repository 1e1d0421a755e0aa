//! Places: postcodes behind a cue or beside a town, streets by their form.

use super::addresses::{
    ends_an_address, has_number_or_kind, has_street_before, is_behind_a_house, is_behind_a_name, is_behind_a_street,
    is_behind_a_town, is_beside_a_town, is_no_blood_pressure, is_no_form_text, is_postcode, is_town,
    is_town_before_zip,
};
use super::{Rank, Rule, always, rule};
use crate::word_lists::{alternatives, words};

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

/// `%COUNTRY%`: the countries of the word lists, and those that are cut short.
pub fn country() -> String {
    format!(r"(?:{}|EE\.? ?UU\.?|U\.?S\.?A\.?)", alternatives(words("countries")))
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
