//! Who an individual is: the fields of the record.

use super::rng::Rng;
use super::{FIRST_NAMES, Language, PARTS, Settings, language_of, rng_of};

/// The record of one individual.
pub struct Person {
    pub individual: u64,
    pub household: u64,
    pub language: Language,
    /// 0 female, 1 male.
    pub sex: usize,
    pub first_name: String,
    pub last_name: String,
    /// Year, month, day.
    pub birth: (u32, u32, u32),
    pub phone: String,
    pub email: String,
    pub address: String,
    pub city: &'static str,
    pub zip: String,
    pub mrn: String,
    /// Social security number (NIR in French).
    pub ssn: String,
    pub rare: Vec<String>,
}

const PERSON: u64 = 1;
const HOUSEHOLD: u64 = 2;

impl Person {
    pub fn new(settings: &Settings, individual: u64) -> Self {
        // Every sixteenth individual shares the household of the one before: mother and newborn, twins.
        let household = if individual % 16 == 15 { individual - 1 } else { individual };
        let language = language_of(settings, household);
        let lexicon = language.lexicon();
        let mut home = rng_of(settings, HOUSEHOLD, household);
        let last_name = surname(&mut home, &lexicon.lists["last names"], household);
        let city = lexicon.lists["cities"][home.zipf(lexicon.lists["cities"].len())];
        let number = 1 + home.below(180);
        let street = home.pick(&lexicon.lists["streets"]);
        let (address, zip) = match language {
            Language::English => (format!("{number} {street}"), format!("{:05}", 10_000 + home.below(89_999))),
            Language::French => {
                (format!("{number} {street}"), format!("{:02}{:03}", 1 + home.below(95), home.below(999)))
            }
        };
        let mut rng = rng_of(settings, PERSON, individual);
        let sex = rng.below(2);
        let first_name = rng.pick(&lexicon.lists[FIRST_NAMES[sex]]).to_owned();
        // Before the first visit there can be (2012).
        let birth = (1925 + rng.below(87) as u32, 1 + rng.below(12) as u32, 1 + rng.below(28) as u32);
        let phone = phone(&mut rng, language);
        let email = format!(
            "{}.{}{}@{}",
            ascii(&first_name),
            ascii(&last_name),
            rng.below(90) + 10,
            rng.pick(&PARTS["domains of mail"])
        );
        let mrn = format!("{:08}", 10_000_000 + scramble(individual));
        let ssn = social_number(&mut rng, language, sex, birth);
        let num_rare = 2 + rng.below(3);
        let rare = (0..num_rare).map(|_| rare_fact(&mut rng, lexicon)).collect();
        Self {
            individual,
            household,
            language,
            sex,
            first_name,
            last_name,
            birth,
            phone,
            email,
            address,
            city,
            zip,
            mrn,
            ssn,
            rare,
        }
    }
}

/// A bijection on 0..2^26, so that two individuals never share a record number.
fn scramble(individual: u64) -> u64 {
    (individual.wrapping_mul(0x9E37_79B1) ^ 0x2A5_5A3C) & 0x3FF_FFFF
}

/// Half of the surnames are from the list (shared by many), half are composed (mostly one household's own).
fn surname(rng: &mut Rng, list: &[&str], household: u64) -> String {
    if rng.chance(0.5) {
        return list[rng.zipf(list.len())].to_owned();
    }
    let name = format!(
        "{}{}{}",
        rng.pick(&PARTS["beginnings of surnames"]),
        rng.pick(&PARTS["middles of surnames"]),
        rng.pick(&PARTS["ends of surnames"])
    );
    if rng.chance(0.1) { format!("{name}-{}", list[(household as usize) % list.len()]) } else { name }
}

fn phone(rng: &mut Rng, language: Language) -> String {
    match language {
        Language::English => {
            let (area, middle, last) = (201 + rng.below(700), 200 + rng.below(799), rng.below(10_000));
            if rng.chance(0.5) { format!("({area}) {middle}-{last:04}") } else { format!("{area}-{middle}-{last:04}") }
        }
        Language::French => {
            let mut pair = || rng.below(100);
            format!("06 {:02} {:02} {:02} {:02}", pair(), pair(), pair(), pair())
        }
    }
}

fn social_number(rng: &mut Rng, language: Language, sex: usize, birth: (u32, u32, u32)) -> String {
    match language {
        Language::English => {
            let area = 1 + rng.below(665);
            format!("{area:03}-{:02}-{:04}", 1 + rng.below(99), 1 + rng.below(9999))
        }
        Language::French => {
            let (year, department) = (birth.0 % 100, 1 + rng.below(95));
            let (commune, order) = (1 + rng.below(900), 1 + rng.below(990));
            let first = 2 - sex;
            let body: u64 =
                format!("{first}{year:02}{:02}{department:02}{commune:03}{order:03}", birth.1).parse().unwrap_or(0);
            let key = 97 - body % 97;
            format!("{first} {year:02} {:02} {department:02} {commune:03} {order:03} {key:02}", birth.1)
        }
    }
}

/// A fact that few share: "worked as a harpsichord tuner in Velmora".
fn rare_fact(rng: &mut Rng, lexicon: &super::Lexicon) -> String {
    let push_invented = |fact: &mut String, rng: &mut Rng| {
        fact.push_str(rng.pick(&lexicon.lists["beginnings of invented words"]));
        for _ in 0..rng.below(2) + 1 {
            fact.push_str(rng.pick(&PARTS["syllables"]));
        }
        fact.push_str(rng.pick(&lexicon.lists["ends of invented words"]));
    };
    let template = rng.pick(&lexicon.lists["rare facts"]);
    let mut fact = String::new();
    for piece in split_template(template) {
        match piece {
            Piece::Text(text) => fact.push_str(text),
            Piece::Slot("thing") => {
                fact.push_str(lexicon.lists["rare things"][rng.zipf(lexicon.lists["rare things"].len())])
            }
            Piece::Slot(_) => push_invented(&mut fact, rng),
        }
    }
    fact
}

/// Lower-case ASCII letters of a name, for an e-mail address.
fn ascii(name: &str) -> String {
    use unicode_normalization::UnicodeNormalization;
    name.nfd().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect()
}

pub enum Piece<'a> {
    Text(&'a str),
    Slot(&'a str),
}

/// Split `"a {slot} b"` into its pieces.
pub fn split_template(template: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some(inner) = rest.strip_prefix('{')
            && let Some(end) = inner.find('}')
        {
            rest = &inner[end + 1..];
            return Some(Piece::Slot(&inner[..end]));
        }
        let end = rest.find('{').unwrap_or(rest.len());
        let (text, after) = rest.split_at(end);
        rest = after;
        Some(Piece::Text(text))
    })
}
