//! Rules: identifiers that have a form. Linear-time regular expressions, each with a check of its own.
//!
//! The `regex` crate has no look-around, so a match must also stand free, by a check: its first and last letter or digit touch no
//! other. A regular expression offers one match a place, its favourite; where that one is not free or fails its check
//! ("March 20" in "March 2020", "12/05-14" in "12/05-14/05/2020"), the shorter ones and those that begin inside it are tried.
//! Overlaps between rules are kept; spans are united later.

use std::sync::OnceLock;

use rayon::prelude::*;
use regex::Regex;

use crate::error::{Error, Result};
use crate::spans::Found;
use crate::text::Texts;

/// A form of identifier.
pub struct Rule {
    pub name: &'static str,
    pub label: &'static str,
    pattern: &'static str,
    /// Says whether a match is one.
    accepts: fn(&str) -> bool,
}

/// Between the groups of a number; typists and word processors also use unbreakable spaces and several hyphens.
const SEPARATOR: &str = r"[-. \u{a0}\u{202f}\u{2010}-\u{2013}]";
const SPACE: &str = r"[ \u{a0}\u{202f}]";
const HYPHEN: &str = r"[-\u{2010}-\u{2013}]";

/// English, French and Spanish, with composed or decomposed accents.
const MONTHS: &str = r"(?:jan(?:uary|v(?:ier)?)?|enero|feb(?:ruary|rero)?|f(?:é|e\u{301}?)v(?:r(?:ier)?)?|mar(?:ch|s|zo)?|apr(?:il)?|avr(?:il)?|abril|may(?:o)?|mai|june?|juin|junio|july?|juill?(?:et)?|julio|aug(?:ust)?|ao(?:û|u\u{302}?)t|agosto|sep(?:t(?:ember|embre|iembre)?)?|oct(?:ober|obre|ubre)?|nov(?:ember|embre|iembre)?|d(?:é|e\u{301}?)c(?:ember|embre)?|diciembre)";

/// Every rule; `SEP`, `SPC`, `HYP` and `MONTH` stand for the constants above. Reasons for the checks stand beside the functions.
pub static RULES: &[Rule] = &[
    Rule { name: "email", label: "EMAIL", pattern: r"[\w.%+\-]+@[\w\-]+(?:\.[\w\-]+)*\.\p{L}{2,}", accepts: always },
    Rule {
        name: "url",
        label: "URL",
        pattern: r#"(?i)(?:https?://|www\.)[^\s<>"'()\[\]]+[^\s<>"'()\[\].,;:!?]"#,
        accepts: always,
    },
    Rule { name: "ipv4", label: "IP", pattern: r"\d{1,3}(?:\.\d{1,3}){3}", accepts: is_ipv4 },
    Rule {
        name: "phone_us",
        label: "PHONE",
        pattern: r"(?i)(?:\+?1SEP)?(?:\(\d{3}\)SEP?|\d{3}SEP)\d{3}SEP\d{4}(?: ?(?:x|ext\.?) ?\d{1,6})?",
        accepts: always,
    },
    Rule {
        name: "phone_fr",
        label: "PHONE",
        // One sign between all pairs: with any, the date and hour 02/03/2020 10:30 would begin with a phone number.
        pattern: r"(?:(?:\+|00)33SEP?(?:\(0\)SEP?)?|0)[1-9](?:(?:SPC\d{2}){4}|(?:HYP\d{2}){4}|(?:\.\d{2}){4}|(?:/\d{2}){4}|\d{8})",
        accepts: always,
    },
    Rule {
        name: "phone_international",
        label: "PHONE",
        pattern: r"\+\d{1,3}(?:SEP?\(?\d{1,4}\)?){2,5}",
        accepts: is_phone,
    },
    Rule {
        name: "date_numeric",
        label: "DATE",
        pattern: r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?",
        accepts: is_date,
    },
    Rule { name: "date_month_year", label: "DATE", pattern: r"(?:0?[1-9]|1[0-2])/(?:19|20)\d{2}", accepts: always },
    Rule {
        name: "date_day_first",
        label: "DATE",
        pattern: r"(?i)\d{1,2}(?:st|nd|rd|th|er|º)?[\s/-](?:of |de )?MONTH\.?(?:,?[\s/-](?:de |del )?\d{4}|[/-]\d{2})?",
        accepts: always,
    },
    Rule {
        name: "date_month_first",
        label: "DATE",
        pattern: r"(?i)MONTH\.?[\s-](?:(?:de |del )?\d{4}|\d{1,2}(?:st|nd|rd|th)?(?:,?\s\d{4})?)",
        accepts: always,
    },
    Rule { name: "ssn", label: "SSN", pattern: r"\d{3}(?:HYP\d{2}HYP|SPC\d{2}SPC)\d{4}", accepts: is_ssn },
    Rule {
        name: "nir",
        label: "NIR",
        pattern: r"(?i)[12]SEP?\d{2}SEP?\d{2}SEP?(?:\d{2}|2[AB])SEP?\d{3}SEP?\d{3}SEP?/?SEP?(?:cl(?:é|e\u{301}?) ?:? ?)?\d{2}",
        accepts: is_nir,
    },
    Rule { name: "long_number", label: "ID", pattern: r"\d{6,}[A-Z]?(?:[-/]\d+)*", accepts: always },
    Rule { name: "letters_and_number", label: "ID", pattern: r"[A-Z]{1,4}[-/]?\d{4,}(?:[-/]\d+)*", accepts: always },
];

fn always(_: &str) -> bool {
    true
}

/// The digits of a match, if all are ASCII; of others (Arabic, Thai …) the form alone decides.
fn digits(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| c.is_numeric()).collect();
    digits.is_ascii().then_some(digits)
}

/// Four numbers of at most 255: a section number such as 3.14.15.926 is none.
fn is_ipv4(text: &str) -> bool {
    text.split('.').all(|part| part.parse::<u16>().is_ok_and(|n| n <= 255))
}

/// E.164 numbers have 8 to 15 digits.
fn is_phone(text: &str) -> bool {
    (8..=15).contains(&text.chars().filter(|c| c.is_numeric()).count())
}

/// Year, month and day in one of the usual orders, joined by one sign: 3.14.15 is a date, 3.45.99 and 12/05-14 are not.
fn is_date(text: &str) -> bool {
    let date = text.split('T').next().unwrap_or(text);
    let mut signs = date.chars().filter(|c| matches!(c, '-' | '/' | '.'));
    if signs.next() != signs.next() {
        return false;
    }
    let parts: Vec<&str> = date.split(['-', '/', '.']).collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.chars().count()).collect();
    let (year, rest) = match lengths[..] {
        [4, 1 | 2, 1 | 2] => (Some(parts[0]), [parts[1], parts[2]]),
        [1 | 2, 1 | 2, 4] => (Some(parts[2]), [parts[0], parts[1]]),
        [1 | 2, 1 | 2, 2] => (None, [parts[0], parts[1]]),
        _ => return false,
    };
    if digits(date).is_none() {
        return true;
    }
    let within = |part: &str, from: u32, to: u32| part.parse().is_ok_and(|number: u32| (from..=to).contains(&number));
    let day_month = |day, month| within(day, 1, 31) && within(month, 1, 12);
    year.is_none_or(|year| within(year, 1800, 2199)) && (day_month(rest[0], rest[1]) || day_month(rest[1], rest[0]))
}

/// Social security numbers never issued: area 000, 666 or 9xx, group 00, serial 0000.
fn is_ssn(text: &str) -> bool {
    let Some(digits) = digits(text) else {
        return true;
    };
    let (area, group, serial) = (&digits[0..3], &digits[3..5], &digits[5..9]);
    area != "000" && area != "666" && !area.starts_with('9') && group != "00" && serial != "0000"
}

/// French NIR: 13 characters and a key, 97 - (number mod 97); Corsica's 2A and 2B count as 19 and 18.
pub fn is_nir(text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    let compact: String = text.chars().filter(|c| c.is_ascii_digit() || matches!(c, 'A' | 'B')).collect();
    if compact.len() != 15 {
        return false;
    }
    let (body, key) = compact.split_at(13);
    let body = body.replacen("2A", "19", 1).replacen("2B", "18", 1);
    match (body.parse::<u64>(), key.parse::<u64>()) {
        (Ok(body), Ok(key)) => key == 97 - body % 97,
        _ => false,
    }
}

/// A rule's expression as it is searched, and as it is tried at one place: there, free at its end.
struct Compiled {
    anywhere: Regex,
    here: Regex,
}

fn compiled() -> &'static Vec<Compiled> {
    static COMPILED: OnceLock<Vec<Compiled>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let compile = |rule: &Rule| {
            let parts = [("SEP", SEPARATOR), ("SPC", SPACE), ("HYP", HYPHEN), ("MONTH", MONTHS)];
            let pattern = parts.iter().fold(rule.pattern.to_owned(), |text, (name, part)| text.replace(name, part));
            let here = format!(r"\A({pattern})(?:[^\p{{Alphabetic}}\p{{N}}]|\z)");
            Some(Compiled { anywhere: Regex::new(&pattern).ok()?, here: Regex::new(&here).ok()? })
        };
        RULES.iter().filter_map(compile).collect()
    })
}

/// No letter or digit on both sides of a position.
fn parts(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    !(before.is_some_and(char::is_alphanumeric) && text[at..].starts_with(char::is_alphanumeric))
}

/// It is not a part of a longer word or number.
pub fn stands_free(text: &str, start: usize, end: usize) -> bool {
    parts(text, start) && parts(text, end)
}

/// Places inside a rejected match where another is looked for; bounds the time on hostile text.
const MAX_TRIES: usize = 64;

/// Every match of one rule, from left to right.
fn find(rule: &Rule, compiled: &Compiled, text: &str, mut emit: impl FnMut(usize, usize)) {
    let mut at = 0;
    while let Some(hit) = compiled.anywhere.find_at(text, at) {
        let (start, mut end) = (hit.start(), hit.end());
        if stands_free(text, start, end) && (rule.accepts)(hit.as_str()) {
            emit(start, end);
        } else {
            let places = text[start..end].char_indices().map(|(offset, _)| start + offset);
            let another = places.filter(|&place| parts(text, place)).take(MAX_TRIES).find_map(|place| {
                let found = compiled.here.captures(&text[place..])?.get(1)?;
                (rule.accepts)(found.as_str()).then_some((place, place + found.end()))
            });
            if let Some((from, to)) = another {
                emit(from, to);
                end = to;
            }
        }
        at = end;
    }
}

/// Matches of the rules with these labels (every rule for None), by document, then start.
pub fn scan(texts: &Texts, labels: Option<&[String]>) -> Result<Vec<Found>> {
    if let Some(labels) = labels {
        for label in labels {
            if !RULES.iter().any(|rule| rule.label == label) {
                return Err(Error::Policy(format!("rules: unknown label {label:?}")));
            }
        }
    }
    let rules: Vec<(u32, &Rule, &Compiled)> = RULES
        .iter()
        .zip(compiled())
        .enumerate()
        .filter(|(_, (rule, _))| labels.is_none_or(|labels| labels.iter().any(|label| label == rule.label)))
        .map(|(number, (rule, compiled))| (number as u32, rule, compiled))
        .collect();
    Ok((0..texts.len())
        .into_par_iter()
        .flat_map_iter(|row| {
            let text = texts.get(row);
            let mut found = Vec::new();
            for &(source, rule, compiled) in &rules {
                find(rule, compiled, text, |start, end| found.push(Found { document: row as u32, start, end, source }));
            }
            found.sort_unstable_by_key(|found| (found.start, found.end, found.source));
            found
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, StringArray};
    use std::sync::Arc;

    fn found(text: &str, label: &str) -> Vec<String> {
        let array: ArrayRef = Arc::new(StringArray::from(vec![text]));
        let texts = Texts::new(&array, "text").unwrap();
        scan(&texts, Some(&[label.to_owned()])).unwrap().iter().map(|hit| text[hit.start..hit.end].to_owned()).collect()
    }

    #[test]
    fn every_rule_compiles() {
        assert_eq!(compiled().len(), RULES.len());
    }

    #[test]
    fn rules_on_hand_worked_texts() {
        let table: &[(&str, &str, &[&str])] = &[
            ("EMAIL", "write to j.doe@chu-lyon.fr.", &["j.doe@chu-lyon.fr"]),
            ("EMAIL", "a@b", &[]),
            ("PHONE", "call (555) 123-4567 or 555-123-4567", &["(555) 123-4567", "555-123-4567"]),
            ("PHONE", "tél. 06 12 34 56 78, +33 6 12 34 56 78", &["06 12 34 56 78", "+33 6 12 34 56 78"]),
            ("PHONE", "BP 120/80", &[]),
            ("PHONE", "02/03/2020 10:30", &[]),
            ("DATE", "on 2021-03-04 and 12/05/2020", &["2021-03-04", "12/05/2020"]),
            ("DATE", "le 3 février 2021, March 4, 2020", &["3 février 2021", "March 4, 2020"]),
            ("DATE", "version 3.45.99", &[]),
            ("DATE", "in March 2020", &["March 2020"]),
            ("DATE", "du 12/05-14/05/2020", &["14/05/2020"]),
            ("DATE", "2021-03-04T10:45:00Z", &["2021-03-04T10:45:00Z"]),
            ("PHONE", "call +44 20 7946 0958 2nd floor", &["+44 20 7946 0958"]),
            ("IP", "10.0.0.256 and 10.0.0.1", &["10.0.0.1"]),
            ("SSN", "123-45-6789 000-12-3456", &["123-45-6789"]),
            ("SSN", "٣٣٣-٣٣-٣٣٣٣", &["٣٣٣-٣٣-٣٣٣٣"]),
            ("NIR", "NIR 1 84 12 76 451 089 46", &["1 84 12 76 451 089 46"]),
            ("NIR", "NIR 1 84 12 76 451 089 47", &[]),
            ("ID", "MRN 00123456, A1234567", &["00123456", "A1234567"]),
            ("URL", "see https://x.org/a, now", &["https://x.org/a"]),
        ];
        for (label, text, expected) in table {
            let hits = found(text, label);
            for hit in *expected {
                assert!(hits.contains(&(*hit).to_owned()), "{label} {text:?}: {hits:?}");
            }
            assert_eq!(hits.is_empty(), expected.is_empty(), "{label} {text:?}: {hits:?}");
        }
    }
}
