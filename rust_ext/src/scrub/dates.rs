//! Dates: read in the form they are written in, moved by days, written in the same form.
//!
//! Numbers with `/ . -` or spaces between them, months in words (English, French, Spanish, German), years of two digits,
//! ISO dates with a time, weekdays. What a date does not say is taken from the middle (the 15th, July); a date without
//! its year, from the first full date of the document. A time of day stays where there is a date.

mod read;

use std::ops::Range;

pub use read::{Token, parse, period, tokens};

use super::calendar::{Named, exists, from_days, to_days};
use super::context::Context;
use super::key::{Key, Stream};

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
