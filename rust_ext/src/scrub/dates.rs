//! Dates: read in the form they are written in, moved by days, written in the same form.
//!
//! Numbers with `/ . -` or spaces between them, months in words (English, French, Spanish, German), years of two digits,
//! ISO dates with a time, weekdays. What a date does not say is taken from the middle (the 15th, July); a date without
//! its year, from the first full date of the document. A time of day stays where there is a date.

use std::ops::Range;
use std::sync::LazyLock;

use super::calendar::{Named, exists, from_days, language_of, month, to_days, weekday};
use super::key::{Key, Stream};
use super::values::folded;
use crate::word_lists::{LANGUAGES, Language, WordSet, Words, words};

/// Which of the first two numbers of 03/04/2019 is the day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    DayFirst,
    MonthFirst,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Day,
    Month,
    MonthWord(Named),
    Year,
    ShortYear,
    /// Eight digits: year, month, day.
    Compact,
    Weekday(Named),
    /// st, nd, rd, th.
    Ordinal,
    /// The "er" of "1er".
    Premier,
    Hour,
    Minute,
}

/// A date as it stands in its text.
pub struct Date {
    parts: Vec<(Range<usize>, Role)>,
    pub year: Option<i64>,
    month: Option<u32>,
    day: Option<u32>,
    /// The order of day and month decides what it means, and it does not say it.
    pub ambiguous: bool,
}

impl Date {
    fn has_date(&self) -> bool {
        self.year.is_some() || self.month.is_some() || self.day.is_some()
    }

    /// What is drawn for a date depends on what it means, not on how it is written.
    pub fn draws(&self, key: &Key, text: &str) -> Stream {
        let mut value = Vec::with_capacity(16);
        if self.has_date() {
            let parts = [self.year, self.month.map(i64::from), self.day.map(i64::from)];
            value.extend(parts.iter().flat_map(|part| part.unwrap_or(-1).to_le_bytes()));
        } else {
            value.extend(text.to_lowercase().bytes());
        }
        key.stream(b't', &value, 0)
    }

    /// The date `delta` days later in the same form; `delta` is not 0. A time of day alone is moved by `draws`.
    pub fn moved(&self, text: &str, delta: i64, context: &Context, draws: &mut Stream) -> Option<String> {
        if !self.has_date() && !self.parts.iter().any(|(_, role)| matches!(role, Role::Weekday(_))) {
            return self.clock_moved(text, draws);
        }
        let (month, day) = (self.month.unwrap_or(7), self.day.unwrap_or(if self.month.is_some() { 15 } else { 1 }));
        let mut year = self.year.or(context.year).unwrap_or(2001);
        if !exists(year, month, day) {
            year = 2000; // 29 February of a year that is not said
        }
        let from = to_days(year, month, day);
        let said = |(y, m, d): (i64, u32, u32)| (self.year.map(|_| y), self.month.map(|_| m), self.day.map(|_| d));
        let mut delta = delta;
        let step = match (self.day, self.month) {
            (Some(_), _) => 1,
            (None, Some(_)) => 30,
            _ if self.has_date() => 365,
            _ => 1,
        };
        if self.has_date() {
            // A month or a year may still be the same one after some days; it then moves on to the next.
            while said(from_days(from + delta)) == said((year, month, day)) {
                delta += step * delta.signum();
            }
        } else if delta % 7 == 0 {
            delta += delta.signum();
        }
        let (year, month, day) = from_days(from + delta);
        if !(1000..10_000).contains(&year) {
            return None;
        }
        Some(self.write(text, year, month, day, delta))
    }

    fn write(&self, text: &str, year: i64, month: u32, day: u32, delta: i64) -> String {
        let two_digits = self.pads(text);
        let pad = |number: u32, at: &Range<usize>| {
            let written = &text[at.clone()];
            let pads = written.starts_with('0') || (written.len() == 2 && two_digits);
            if pads { format!("{number:02}") } else { number.to_string() }
        };
        let mut out = String::with_capacity(text.len() + 8);
        let mut end = 0;
        for (at, role) in &self.parts {
            out.push_str(&text[end..at.start]);
            end = at.end;
            let written = &text[at.clone()];
            let cased = |word: &str| super::names::with_case_of(written, word);
            out.push_str(&match role {
                Role::Day => pad(day, at),
                Role::Month => pad(month, at),
                Role::Year => year.to_string(),
                Role::ShortYear => format!("{:02}", year % 100),
                Role::Compact => format!("{year:04}{month:02}{day:02}"),
                Role::MonthWord(named) => cased(named.month_word(month as usize - 1)),
                Role::Weekday(named) => cased(named.weekday_word((named.number as i64 + delta).rem_euclid(7) as usize)),
                Role::Ordinal => cased(match (day % 10, day) {
                    (_, 11..=13) => "th",
                    (1, _) => "st",
                    (2, _) => "nd",
                    (3, _) => "rd",
                    _ => "th",
                }),
                Role::Premier => String::from(if day == 1 { written } else { "" }),
                Role::Hour | Role::Minute => written.to_owned(),
            });
        }
        out.push_str(&text[end..]);
        out
    }

    /// The month is a word.
    fn in_words(&self) -> bool {
        self.parts.iter().any(|(_, role)| matches!(role, Role::MonthWord(_)))
    }

    /// Days and months of this date have two digits always: 12/25/2019 does not say, 5/12/2019 says no. Beside a month in
    /// words only a leading 0 says so.
    fn pads(&self, text: &str) -> bool {
        let mut numbers = self.parts.iter().filter(|(_, role)| matches!(role, Role::Day | Role::Month));
        !self.in_words() && numbers.all(|(at, _)| text[at.clone()].len() == 2)
    }

    /// Another time of day in the same form.
    fn clock_moved(&self, text: &str, draws: &mut Stream) -> Option<String> {
        for _ in 0..8 {
            let mut out = String::with_capacity(text.len());
            let mut end = 0;
            for (at, role) in &self.parts {
                out.push_str(&text[end..at.start]);
                end = at.end;
                let width = at.len();
                let drawn = match role {
                    Role::Hour if width == 1 => 1 + draws.below(9),
                    Role::Hour => 1 + draws.below(12) + if text[at.clone()].parse::<u32>().ok()? > 12 { 11 } else { 0 },
                    _ => draws.below(if width >= 3 { 100 } else { 60 }),
                };
                out.push_str(&format!("{drawn:0width$}"));
            }
            out.push_str(&text[end..]);
            if out != text {
                return Some(out);
            }
        }
        None
    }
}

// Read: the parts of a date and their roles.

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
    let signs = [" - ", " – ", "–", " à "].map(str::to_owned);
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

// What the dates of a document say about each other: the order of day and month, the language, a year.

/// What the other dates of a document say about how to read one.
#[derive(Clone, Copy, Default)]
pub struct Context {
    pub order: Option<Order>,
    pub language: Option<Language>,
    pub year: Option<i64>,
}

/// What dates of a document tell about each other: numbers over 12, words of one language, a year.
pub fn context_of<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Context {
    let mut context = Context::default();
    let (mut day_first, mut month_first) = (0, 0);
    let mut languages = [0; 4];
    for text in texts.clone() {
        let found = tokens(text);
        for token in found.iter().filter(|token| !token.number) {
            if let Some(language) = language_of(&folded(&text[token.at.clone()])) {
                languages[language as usize] += 1;
            }
        }
        match evident_order(text, &found) {
            Some(Order::DayFirst) => day_first += 1,
            Some(Order::MonthFirst) => month_first += 1,
            None => {}
        }
    }
    context.order = match day_first.cmp(&month_first) {
        std::cmp::Ordering::Greater => Some(Order::DayFirst),
        std::cmp::Ordering::Less => Some(Order::MonthFirst),
        std::cmp::Ordering::Equal => None,
    };
    let most = languages.iter().max().copied().unwrap_or(0);
    if most > 0 {
        let at = languages.iter().position(|&votes| votes == most).unwrap_or(0);
        context.language = Some(LANGUAGES[at]);
        if context.order.is_none() && context.language != Some(Language::English) {
            context.order = Some(Order::DayFirst);
        }
    }
    context.year = texts.filter_map(|text| parse(text, &context, Order::DayFirst)?.year).next();
    context
}

/// The order that a date of three numbers can only have.
fn evident_order(text: &str, tokens: &[Token]) -> Option<Order> {
    let numbers: Vec<&str> = tokens.iter().filter(|t| t.number).map(|t| &text[t.at.clone()]).take(3).collect();
    let [first, second, year] = numbers[..] else { return None };
    if first.len() > 2 || second.len() > 2 || !matches!(year.len(), 2 | 4) || tokens.iter().take(3).any(|t| !t.number) {
        return None;
    }
    match (first.parse::<u32>().ok()?, second.parse::<u32>().ok()?) {
        (13..=31, 1..=12) => Some(Order::DayFirst),
        (1..=12, 13..=31) => Some(Order::MonthFirst),
        _ => None,
    }
}

/// Counts of dates that can only be read day first, and month first.
pub fn evident_orders<'a>(texts: impl Iterator<Item = &'a str>) -> (u64, u64) {
    let mut counts = (0, 0);
    for text in texts {
        match evident_order(text, &tokens(text)) {
            Some(Order::DayFirst) => counts.0 += 1,
            Some(Order::MonthFirst) => counts.1 += 1,
            None => {}
        }
    }
    counts
}
