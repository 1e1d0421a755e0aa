//! Read: the parts of a date and their roles.

use std::ops::Range;
use std::sync::LazyLock;

use super::{Date, Order, Role};
use crate::scrub::calendar::{exists, language_of, month, weekday};
use crate::scrub::context::Context;
use crate::scrub::values::folded;
use crate::word_lists::{WordSet, Words, words};

#[derive(Clone)]
pub struct Token {
    pub at: Range<usize>,
    pub number: bool,
}

pub fn tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::with_capacity(8);
    for (at, c) in text.char_indices() {
        let number = c.is_ascii_digit();
        let letter = c.is_alphabetic() || unicode_normalization::char::is_combining_mark(c);
        if !number && !letter {
            continue;
        }
        let end = at + c.len_utf8();
        match tokens.last_mut() {
            Some(last) if last.at.end == at && last.number == number => last.at.end = end,
            _ => tokens.push(Token { at: at..end, number }),
        }
    }
    tokens
}

static CONNECTORS: Words = LazyLock::new(|| WordSet::of("words of dates"));

/// Read a date; None when it is not one, or not one day or month. `order` counts where nothing else decides.
pub fn parse(text: &str, context: &Context, order: Order) -> Option<Date> {
    // A digit that is not read (full-width, Arabic, ½) would stay as it is.
    if text.chars().any(|c| c.is_numeric() && !c.is_ascii()) {
        return None;
    }
    let mut date = Date { parts: Vec::with_capacity(4), year: None, month: None, day: None, ambiguous: false };
    let (numbers, month_at) = date.take_words(text, context)?;
    date.take_numbers(text, &numbers, month_at, context.order.unwrap_or(order))?;
    if date.ambiguous && context.order.is_some() {
        date.ambiguous = false;
    }
    date.parts.sort_by_key(|(at, _)| at.start);
    let day = date.day.unwrap_or(1);
    let valid =
        (1..=12).contains(&date.month.unwrap_or(1)) && exists(date.year.unwrap_or(2000), date.month.unwrap_or(1), day);
    (valid && !date.parts.is_empty()).then_some(date)
}

/// What stands between the two dates of a period.
static BETWEEN: LazyLock<Vec<String>> = LazyLock::new(|| {
    let signs = [" - ", " – ", "–"].map(str::to_owned);
    signs.into_iter().chain(words("between dates").map(|word| format!(" {word} "))).collect()
});

/// Read "3 May 2006 to 24 October 2008": the first date, what stands between, the second in its text.
pub fn period<'a>(text: &'a str, context: &Context, order: Order) -> Option<(Date, &'a str, &'a str)> {
    BETWEEN.iter().find_map(|between| {
        let at = text.find(&**between)?;
        let second = &text[at + between.len()..];
        let (first, last) = (parse(&text[..at], context, order)?, parse(second, context, order)?);
        // "May 3 - 5, 2019", "3.5. - 7. 2019": the number after the sign is a day, although alone it reads as a month.
        let is_day = last.day.is_none() && first.day.is_some() && !last.in_words();
        (!(is_day && last.month.is_some())).then_some((first, &text[at..at + between.len()], second))
    })
}

/// Take `14:30:05.250`, `14h30`, `2 pm`, a time zone after them; returns the token after.
fn read_clock(text: &str, found: &[Token], mut i: usize, parts: &mut Vec<(Range<usize>, Role)>) -> usize {
    parts.push((found[i].at.clone(), Role::Hour));
    i += 1;
    while let Some(next) = found.get(i) {
        let gap = &text[found[i - 1].at.end..next.at.start];
        let letters = &text[next.at.clone()];
        if next.number && matches!(gap, ":" | "." | "" | "+" | "-") {
            parts.push((next.at.clone(), Role::Minute));
        } else if next.number || !matches!(letters, "h" | "H" | "Z") || !gap.is_empty() {
            break;
        }
        i += 1;
    }
    i
}

/// What makes a time of the four digits before it ("1430h"), given what stands between.
fn says_hours(word: &str, between: &str) -> bool {
    match word {
        "h" | "hs" | "hr" | "hrs" | "hours" | "uhr" => between.trim().is_empty(),
        "z" => between.is_empty(),
        _ => false,
    }
}

/// Hours and minutes in four digits.
fn is_time(digits: &str) -> bool {
    digits.parse::<u32>().is_ok_and(|number| number <= 2400 && number % 100 < 60)
}

/// Whether two digits behind a day and a month in numbers are the year: in "5/3-17" they are another day.
fn is_year_of_numbers(text: &str, numbers: &[Range<usize>]) -> bool {
    let [between, before] = [1, 2].map(|i| text[numbers[i - 1].end..numbers[i].start].trim());
    before == between || before.ends_with(['\'', '\u{2019}'])
}

/// Whether what stands before two digits says that they are a year: "until" and " - " say that they are another day.
fn leads_to_year(text: &str) -> bool {
    text.split(|c: char| !c.is_alphabetic())
        .all(|word| matches!(folded(word).as_ref(), "" | "de" | "del" | "of" | "st" | "nd" | "rd" | "th" | "er" | "o"))
        && text.chars().all(|c| c.is_alphabetic() || c.is_whitespace() || ",./'\u{2019}".contains(c))
}

impl Date {
    /// Whether the number behind a day and a month in words is their year.
    fn ends_in_year(&self, text: &str, day: &Range<usize>, year: &Range<usize>, month_at: usize) -> bool {
        let Some((month, _)) = self.parts.iter().find(|(at, _)| at.start == month_at) else { return false };
        if year.start < month_at {
            return false;
        }
        let (first, second) = if day.start < month_at { (day, month) } else { (month, day) };
        let (between, before) = (&text[first.end..second.start], &text[second.end..year.start]);
        year.len() == 4 || before == "-" && between == "-" || leads_to_year(before)
    }

    /// Give words and times of day their roles; the other numbers, and where the month's name stands. None where a word is of
    /// no date.
    fn take_words(&mut self, text: &str, context: &Context) -> Option<(Vec<Range<usize>>, Option<usize>)> {
        let mut numbers: Vec<Range<usize>> = Vec::with_capacity(3);
        let mut month_at = None;
        let found = tokens(text);
        let between = |i: usize| if i + 1 < found.len() { &text[found[i].at.end..found[i + 1].at.start] } else { "" };
        let word = |token: &Token| folded(&text[token.at.clone()]);
        let language = found.iter().filter(|t| !t.number).find_map(|t| language_of(&word(t))).or(context.language);
        let mut i = 0;
        while i < found.len() {
            let token = &found[i];
            let at = token.at.clone();
            if token.number {
                let clock = match found.get(i + 1) {
                    Some(next) if next.number => between(i) == ":",
                    Some(next) => {
                        between(i).trim().is_empty() && matches!(word(next).as_ref(), "h" | "hs" | "uhr" | "am" | "pm")
                    }
                    None => false,
                };
                if clock && at.len() <= 2 {
                    i = read_clock(text, &found, i, &mut self.parts);
                    continue;
                }
                if let Some(next) = found.get(i + 1).filter(|next| !next.number)
                    && at.len() == 4
                    && says_hours(&word(next), between(i))
                    && is_time(&text[at.clone()])
                {
                    self.parts.push((at.start..at.start + 2, Role::Hour));
                    self.parts.push((at.start + 2..at.end, Role::Minute));
                } else {
                    numbers.push(at);
                }
            } else {
                let folded = word(token);
                if month_at.is_none()
                    && let Some(named) = month(&folded, language)
                {
                    self.month = Some(named.number as u32 + 1);
                    month_at = Some(at.start);
                    self.parts.push((at, Role::MonthWord(named)));
                } else if let Some(named) = weekday(&folded, language) {
                    self.parts.push((at, Role::Weekday(named)));
                } else if i > 0 && found[i - 1].number && found[i - 1].at.end == at.start && folded.len() == 2 {
                    match folded.as_ref() {
                        "st" | "nd" | "rd" | "th" => self.parts.push((at, Role::Ordinal)),
                        "er" => self.parts.push((at, Role::Premier)),
                        _ => return None,
                    }
                } else if !(CONNECTORS.has(folded.as_ref()) || matches!(folded.as_ref(), "º" | "o")) {
                    return None;
                }
            }
            i += 1;
        }
        Some((numbers, month_at))
    }

    /// Give the numbers that are not of the clock their roles.
    pub(super) fn take_numbers(
        &mut self,
        text: &str,
        numbers: &[Range<usize>],
        month_at: Option<usize>,
        order: Order,
    ) -> Option<()> {
        let value = |i: usize| text[numbers[i].clone()].parse::<u32>().ok();
        let digits = |i: usize| numbers[i].len();
        match (numbers.len(), month_at) {
            (0, _) => {}
            (1, Some(_)) if digits(0) == 4 => self.set_year(text, &numbers[0])?,
            (1, Some(at)) => {
                let apostrophe = text[..numbers[0].start].ends_with(['\'', '\u{2019}']);
                if apostrophe && numbers[0].start > at {
                    self.set_year(text, &numbers[0])?;
                } else {
                    self.set_day(text, &numbers[0])?;
                }
            }
            (2, Some(at)) => {
                let year_first = digits(0) == 4;
                let (day, year) = if year_first { (1, 0) } else { (0, 1) };
                if !year_first && !self.ends_in_year(text, &numbers[day], &numbers[year], at) {
                    return None;
                }
                self.set_day(text, &numbers[day])?;
                self.set_year(text, &numbers[year])?;
            }
            (3, None) if digits(0) == 4 => {
                self.set_year(text, &numbers[0])?;
                self.set_month(text, &numbers[1])?;
                self.set_day(text, &numbers[2])?;
            }
            (3, None) if digits(2) == 4 || digits(2) == 2 && is_year_of_numbers(text, numbers) => {
                self.set_day_and_month(text, [&numbers[0], &numbers[1]], order)?;
                self.set_year(text, &numbers[2])?;
            }
            (2, None) if digits(0) == 4 => {
                self.set_year(text, &numbers[0])?;
                self.set_month(text, &numbers[1])?;
            }
            (2, None) if digits(1) == 4 => {
                self.set_month(text, &numbers[0])?;
                self.set_year(text, &numbers[1])?;
            }
            (2, None) => self.set_day_and_month(text, [&numbers[0], &numbers[1]], order)?,
            (1, None) if digits(0) == 4 => self.set_year(text, &numbers[0])?,
            (1, None) if digits(0) == 8 => {
                let number = value(0)?;
                self.year = Some(i64::from(number / 10_000)).filter(|year| (1800..2200).contains(year));
                (self.month, self.day) = (Some(number / 100 % 100), Some(number % 100));
                self.year?;
                self.parts.push((numbers[0].clone(), Role::Compact));
            }
            _ => return None,
        }
        Some(())
    }

    fn set_year(&mut self, text: &str, at: &Range<usize>) -> Option<()> {
        let number: i64 = text[at.clone()].parse().ok()?;
        let (year, role) = match at.len() {
            4 => (number, Role::Year),
            2 => (if number < 50 { 2000 + number } else { 1900 + number }, Role::ShortYear),
            _ => return None,
        };
        self.year = Some(year).filter(|year| (1000..2500).contains(year));
        self.parts.push((at.clone(), role));
        self.year.map(|_| ())
    }

    fn set_month(&mut self, text: &str, at: &Range<usize>) -> Option<()> {
        self.month = text[at.clone()].parse().ok().filter(|month| (1..=12).contains(month) && at.len() <= 2);
        self.parts.push((at.clone(), Role::Month));
        self.month.map(|_| ())
    }

    fn set_day(&mut self, text: &str, at: &Range<usize>) -> Option<()> {
        self.day = text[at.clone()].parse().ok().filter(|day| (1..=31).contains(day) && at.len() <= 2);
        self.parts.push((at.clone(), Role::Day));
        self.day.map(|_| ())
    }

    fn set_day_and_month(&mut self, text: &str, at: [&Range<usize>; 2], order: Order) -> Option<()> {
        let first: u32 = text[at[0].clone()].parse().ok()?;
        let second: u32 = text[at[1].clone()].parse().ok()?;
        let day_first = match (first > 12, second > 12) {
            (true, _) => true,
            (_, true) => false,
            _ => {
                self.ambiguous = first != second;
                order == Order::DayFirst
            }
        };
        let (day, month) = if day_first { (at[0], at[1]) } else { (at[1], at[0]) };
        self.set_day(text, day)?;
        self.set_month(text, month)
    }
}
