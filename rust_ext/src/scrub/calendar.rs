//! The calendar: days as one number, and the words for months and days of the week, which the word lists have.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::word_lists::{Entry, LANGUAGES, Language, entries, plain};

/// Days since 1970-01-01 of a date of the Gregorian calendar, the old dates too (Hinnant's algorithm).
pub fn to_days(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (i64::from(month) + if month > 2 { -3 } else { 9 }) + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day.
pub fn from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = (if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 }) as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

pub fn exists(year: i64, month: u32, day: u32) -> bool {
    (1..=12).contains(&month) && (1..=31).contains(&day) && from_days(to_days(year, month, day)) == (year, month, day)
}

/// A word of the calendar: its language, whether it is a short form, and its number from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    pub language: Language,
    short: bool,
    pub number: usize,
}

/// Folded words with all that they may name, the long forms first.
type Known = HashMap<String, Vec<Named>>;

static KNOWN_MONTHS: LazyLock<Known> = LazyLock::new(|| known("months", |entry| entry.has("moved")));
static KNOWN_WEEKDAYS: LazyLock<Known> = LazyLock::new(|| known("weekdays", |_| true));
/// The words that are written, by language, short or not, and number.
static MONTHS: LazyLock<Written> = LazyLock::new(|| written("months", |entry| entry.has("moved")));
static WEEKDAYS: LazyLock<Written> = LazyLock::new(|| written("weekdays", |_| true));

type Written = HashMap<(u8, bool, usize), &'static str>;

/// Entries of a list with whether they are short forms: of each language the full names and then the short forms.
fn forms(list: &str, is_read: fn(&Entry) -> bool) -> impl Iterator<Item = (Named, &'static str)> {
    let all = LANGUAGES.into_iter().flat_map(|language| [false, true].map(|short| (language, short)));
    all.flat_map(move |(language, short)| {
        let mark = if short { "short" } else { "full" };
        let of_form = entries(list).iter().filter(move |entry| entry.language == Some(language) && entry.has(mark));
        let read = of_form.filter(move |entry| is_read(entry));
        read.map(move |entry| (Named { language, short, number: entry.number() as usize - 1 }, entry.word))
    })
}

fn known(list: &str, is_read: fn(&Entry) -> bool) -> Known {
    let mut known = Known::new();
    for (named, word) in forms(list, is_read) {
        known.entry(plain(word).to_owned()).or_default().push(named);
    }
    known
}

fn written(list: &str, is_read: fn(&Entry) -> bool) -> Written {
    let mut written = Written::new();
    for (named, word) in forms(list, is_read) {
        written.entry((named.language as u8, named.short, named.number)).or_insert(word);
    }
    written
}

/// What a folded word names, in the wished language where it has it, else in the first that has it.
fn named(known: &Known, folded: &str, wished: Option<Language>) -> Option<Named> {
    let all = known.get(folded)?;
    all.iter().find(|named| Some(named.language) == wished).or(all.first()).copied()
}

pub fn month(folded: &str, wished: Option<Language>) -> Option<Named> {
    named(&KNOWN_MONTHS, folded, wished)
}

pub fn weekday(folded: &str, wished: Option<Language>) -> Option<Named> {
    named(&KNOWN_WEEKDAYS, folded, wished)
}

/// The language that alone has this word; None where none or several have it.
pub fn language_of(folded: &str) -> Option<Language> {
    let mut named = [&KNOWN_MONTHS, &KNOWN_WEEKDAYS].into_iter().filter_map(|known| known.get(folded)).flatten();
    let first = named.next()?.language;
    named.all(|named| named.language == first).then_some(first)
}

impl Named {
    /// The word for another month, in the same language and length.
    pub fn month_word(&self, number: usize) -> &'static str {
        MONTHS.get(&(self.language as u8, self.short, number % 12)).copied().unwrap_or("")
    }

    pub fn weekday_word(&self, number: usize) -> &'static str {
        WEEKDAYS.get(&(self.language as u8, self.short, number % 7)).copied().unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_go_forth_and_back() {
        assert_eq!(to_days(1970, 1, 1), 0);
        assert_eq!(to_days(2000, 3, 1), 11_017);
        for days in -300_000..300_000 {
            let (year, month, day) = from_days(days);
            assert_eq!(to_days(year, month, day), days);
        }
        assert!(exists(2024, 2, 29) && !exists(2023, 2, 29) && !exists(2023, 4, 31) && exists(1900, 2, 28));
    }

    #[test]
    fn words_are_known_in_their_language() {
        assert_eq!(month("aout", None).map(|m| (m.language, m.number)), Some((Language::French, 7)));
        assert_eq!(month("mai", Some(Language::German)).map(|m| m.month_word(5)), Some("juni"));
        assert_eq!(month("mai", None).map(|m| m.month_word(5)), Some("juin"));
        assert_eq!(month("sept", Some(Language::English)).map(|m| m.month_word(8)), Some("sep"));
        assert_eq!(weekday("dienstag", None).map(|d| d.weekday_word(2)), Some("mittwoch"));
        assert_eq!(language_of("enero"), Some(Language::Spanish));
        assert_eq!(language_of("april"), None);
    }
}
