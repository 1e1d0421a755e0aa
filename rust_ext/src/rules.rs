//! Rules: identifiers that have a form. Linear-time regular expressions, each with a check of its own.
//!
//! The `regex` crate has no look-around, so every match must also stand free: no letter or digit right before or after it.
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

const MONTHS: &str = "(?:jan(?:uary|vier)?|feb(?:ruary)?|f[ée]v(?:rier)?|febrero|enero|mar(?:ch|s|zo)?|apr(?:il)?|avr(?:il)?|\
    abril|may(?:o)?|mai|june?|juin|junio|july?|juil(?:let)?|julio|aug(?:ust)?|ao[ûu]t|agosto|sep(?:t(?:ember|embre|iembre)?)?|\
    oct(?:ober|obre|ubre)?|nov(?:ember|embre|iembre)?|d[ée]c(?:ember|embre)?|diciembre)";

/// Every rule. Reasons for the checks stand beside the functions.
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
        pattern: r"(?:\+?1[-. ])?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}",
        accepts: always,
    },
    Rule {
        name: "phone_fr",
        label: "PHONE",
        pattern: r"(?:(?:\+|00)33 ?(?:\(0\) ?)?|0)[1-9](?:[-. ]?\d{2}){4}",
        accepts: always,
    },
    Rule {
        name: "phone_international",
        label: "PHONE",
        pattern: r"\+\d{1,3}(?:[-. ]?\(?\d{1,4}\)?){2,5}",
        accepts: is_phone,
    },
    Rule { name: "date_numeric", label: "DATE", pattern: r"\d{1,4}([-/.])\d{1,2}[-/.]\d{1,4}", accepts: is_date },
    Rule { name: "date_month_year", label: "DATE", pattern: r"(?:0?[1-9]|1[0-2])/(?:19|20)\d{2}", accepts: always },
    Rule { name: "date_day_first", label: "DATE", pattern: "DAY_FIRST", accepts: always },
    Rule { name: "date_month_first", label: "DATE", pattern: "MONTH_FIRST", accepts: always },
    Rule { name: "ssn", label: "SSN", pattern: r"\d{3}-\d{2}-\d{4}", accepts: is_ssn },
    Rule {
        name: "nir",
        label: "NIR",
        pattern: r"[12][ .]?\d{2}[ .]?\d{2}[ .]?(?:\d{2}|2[AB])[ .]?\d{3}[ .]?\d{3}[ .]?\d{2}",
        accepts: is_nir,
    },
    Rule { name: "long_number", label: "ID", pattern: r"\d{6,}(?:[-/]\d+)*", accepts: always },
    Rule { name: "letters_and_number", label: "ID", pattern: r"[A-Z]{1,4}[-/]?\d{4,}(?:[-/]\d+)*", accepts: always },
];

fn always(_: &str) -> bool {
    true
}

fn digits(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

/// Four numbers of at most 255: a section number such as 3.14.15.926 is none.
fn is_ipv4(text: &str) -> bool {
    text.split('.').all(|part| part.parse::<u16>().is_ok_and(|n| n <= 255))
}

/// E.164 numbers have 8 to 15 digits.
fn is_phone(text: &str) -> bool {
    (8..=15).contains(&digits(text).len())
}

/// Year, month and day in one of the usual orders: 3.14.15 is a date, 3.45.99 is not.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split(['-', '/', '.']).collect();
    let numbers: Vec<u32> = parts.iter().filter_map(|part| part.parse().ok()).collect();
    if numbers.len() != 3
        || text.chars().filter(|c| "-/.".contains(*c)).any(|c| Some(c) != text.chars().find(|c| "-/.".contains(*c)))
    {
        return false;
    }
    let day_month = |a: u32, b: u32| {
        ((1..=31).contains(&a) && (1..=12).contains(&b)) || ((1..=12).contains(&a) && (1..=31).contains(&b))
    };
    match (parts[0].len(), parts[2].len()) {
        (4, 1 | 2) => (1800..2200).contains(&numbers[0]) && day_month(numbers[1], numbers[2]),
        (1 | 2, 4) => (1800..2200).contains(&numbers[2]) && day_month(numbers[0], numbers[1]),
        (1 | 2, 2) => day_month(numbers[0], numbers[1]),
        _ => false,
    }
}

/// Social security numbers never issued: area 000, 666 or 9xx, group 00, serial 0000.
fn is_ssn(text: &str) -> bool {
    let (area, group, serial) = (&text[0..3], &text[4..6], &text[7..11]);
    area != "000" && area != "666" && !area.starts_with('9') && group != "00" && serial != "0000"
}

/// French NIR: 13 characters and a key, 97 - (number mod 97); Corsica's 2A and 2B count as 19 and 18.
pub fn is_nir(text: &str) -> bool {
    let compact: String = text.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
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

fn compiled() -> &'static Vec<Regex> {
    static COMPILED: OnceLock<Vec<Regex>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let day_first =
            format!(r"(?i)\d{{1,2}}(?:st|nd|rd|th|er|º)?[ -](?:of |de )?{MONTHS}\.?(?:,?[ -](?:de |del )?\d{{4}})?");
        let month_first = format!(r"(?i){MONTHS}\.? (?:\d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|(?:de )?\d{{4}})");
        RULES
            .iter()
            .filter_map(|rule| {
                Regex::new(match rule.pattern {
                    "DAY_FIRST" => &day_first,
                    "MONTH_FIRST" => &month_first,
                    pattern => pattern,
                })
                .ok()
            })
            .collect()
    })
}

/// No letter or digit touches it.
pub fn stands_free(text: &str, start: usize, end: usize) -> bool {
    let before = text[..start].chars().next_back();
    let after = text[end..].chars().next();
    !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
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
    let rules: Vec<(u32, &Rule, &Regex)> = RULES
        .iter()
        .zip(compiled())
        .enumerate()
        .filter(|(_, (rule, _))| labels.is_none_or(|labels| labels.iter().any(|label| label == rule.label)))
        .map(|(number, (rule, regex))| (number as u32, rule, regex))
        .collect();
    Ok((0..texts.len())
        .into_par_iter()
        .flat_map_iter(|row| {
            let text = texts.get(row);
            let mut found = Vec::new();
            for &(source, rule, regex) in &rules {
                for hit in regex.find_iter(text) {
                    if stands_free(text, hit.start(), hit.end()) && (rule.accepts)(hit.as_str()) {
                        found.push(Found { document: row as u32, start: hit.start(), end: hit.end(), source });
                    }
                }
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
            ("DATE", "on 2021-03-04 and 12/05/2020", &["2021-03-04", "12/05/2020"]),
            ("DATE", "le 3 février 2021, March 4, 2020", &["3 février 2021", "March 4, 2020"]),
            ("DATE", "version 3.45.99", &[]),
            ("IP", "10.0.0.256 and 10.0.0.1", &["10.0.0.1"]),
            ("SSN", "123-45-6789 000-12-3456", &["123-45-6789"]),
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
