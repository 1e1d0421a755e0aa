//! Dates: one date in whatever form it is written.
//!
//! Digits in the orders year-month-day, day-month-year and month-day-year, with years of four or two digits, joined or not, and
//! months in words of four languages. What is ambiguous is read in every way: two writings are of one date when a reading is
//! common to both. So 08/05/1975 is also 5 August: in the individual's own documents that costs less than a missed birth date.

use crate::detect::context::month;
use crate::text::pieces::View;

/// A reading of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    year: u32,
    /// Two digits: the century is not said.
    short: bool,
    month: u32,
    day: u32,
}

impl Date {
    fn new((year, digits): (u32, usize), month: u32, day: u32) -> Option<Self> {
        let whole = (digits == 4 && (1000..3000).contains(&year)) || digits == 2;
        (whole && (1..=12).contains(&month) && (1..=31).contains(&day)).then_some(Self {
            year,
            short: digits == 2,
            month,
            day,
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        let years =
            if self.short || other.short { self.year % 100 == other.year % 100 } else { self.year == other.year };
        years && self.month == other.month && self.day == other.day
    }

    /// Whether the date can be written with this number; most numbers of a text cannot.
    fn may_hold(&self, number: u32) -> bool {
        [self.day, self.month, self.year, self.year % 100].contains(&number)
    }
}

/// A record's date, in all its readings.
pub struct BirthDate {
    readings: Vec<Date>,
    pub source: u32,
}

impl BirthDate {
    /// None for what is no whole date.
    pub fn new(value: &View, source: u32) -> Option<Self> {
        let readings = (0..value.len().min(2)).find_map(|piece| {
            let (readings, ..) = read(value, piece)?;
            (!readings.is_empty()).then_some(readings)
        })?;
        Some(Self { readings, source })
    }

    /// First piece and last byte of this date where one of its numbers stands at a piece.
    #[inline]
    pub fn at(&self, view: &View, piece: usize) -> Option<(usize, usize)> {
        let (number, length) = leading_number(view.piece(piece))?;
        if length < 5 && !self.readings.iter().any(|date| date.may_hold(number)) {
            return None;
        }
        let from_month = piece > 0 && month(view.piece(piece - 1)).is_some();
        [piece, piece.wrapping_sub(1)].into_iter().take(1 + usize::from(from_month)).find_map(|first| {
            let (readings, end) = read(view, first)?;
            let same = readings.iter().any(|found| self.readings.iter().any(|date| date.is_same(found)));
            same.then_some((first, end))
        })
    }
}

/// The digits a piece begins with, as a number, and how many they are (at most 8).
fn leading_number(piece: &str) -> Option<(u32, usize)> {
    let length = piece.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=8).contains(&length) {
        return None;
    }
    Some((piece[..length].parse().ok()?, length))
}

/// A day: one or two digits, alone or as an ordinal.
fn day(piece: &str) -> Option<u32> {
    let (number, length) = leading_number(piece)?;
    (length <= 2 && matches!(&piece[length..], "" | "st" | "nd" | "rd" | "th" | "er" | "ere" | "e" | "o" | "º" | "ª"))
        .then_some(number)
}

fn year(piece: &str) -> Option<(u32, usize)> {
    let number = leading_number(piece)?;
    (number.1 == piece.len() && matches!(number.1, 2 | 4)).then_some(number)
}

/// Readings of the date that begins at a piece, and the byte where it ends.
fn read(view: &View, first: usize) -> Option<(Vec<Date>, usize)> {
    let piece = view.piece(first);
    let end_of = |piece: usize| view.pieces()[piece].1 as usize;
    if matches!(piece.len(), 6 | 8) && piece.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some((compact(piece), end_of(first)));
    }
    if let Some(readings) = glued(piece) {
        return Some((readings, end_of(first)));
    }
    numeric(view, first).or_else(|| in_words(view, first).map(|(date, last)| (vec![date], end_of(last))))
}

/// 19750508, 08051975, 080575.
fn compact(piece: &str) -> Vec<Date> {
    let part = |from: usize, to: usize| piece[from..to].parse().unwrap_or(0);
    let y = piece.len() - 4;
    let readings = [
        Date::new((part(0, y), y), part(y, y + 2), part(y + 2, y + 4)),
        Date::new((part(4, 4 + y), y), part(2, 4), part(0, 2)),
        Date::new((part(4, 4 + y), y), part(0, 2), part(2, 4)),
    ];
    readings.into_iter().flatten().collect()
}

/// 8may1975.
fn glued(piece: &str) -> Option<Vec<Date>> {
    let (number, length) = leading_number(piece).filter(|&(_, length)| length <= 2)?;
    let digits = piece.len() - piece.bytes().rev().take_while(u8::is_ascii_digit).count();
    let month = month(piece.get(length..digits)?)?;
    Date::new(year(&piece[digits..])?, month, number).map(|date| vec![date])
}

/// The sign between two numbers of a date; None where they do not belong together.
fn sign(gap: &str) -> Option<&str> {
    let bare = gap.trim();
    (!gap.is_empty()
        && gap.chars().count() <= 3
        && matches!(bare, "" | "-" | "/" | "." | "," | "_" | "\u{2013}" | "\u{2212}"))
    .then_some(bare)
}

fn numeric(view: &View, first: usize) -> Option<(Vec<Date>, usize)> {
    let last = first + 2;
    if last >= view.len() || sign(view.gap(first))? != sign(view.gap(first + 1))? {
        return None;
    }
    let mut numbers = [(0, 0); 3];
    for (at, number) in numbers.iter_mut().enumerate() {
        let piece = view.piece(first + at);
        *number = leading_number(piece)?;
        // 1975-05-08T00:00:00
        if number.1 != piece.len() && !(at == 2 && piece[number.1..].starts_with('t')) {
            return None;
        }
    }
    let end = view.pieces()[last].0 as usize + numbers[2].1;
    let [a, b, c] = numbers;
    let orders: &[(_, _, _)] = match (a.1, b.1, c.1) {
        (4, 1 | 2, 1 | 2) => &[(a, b, c), (a, c, b)],
        (1 | 2, 1 | 2, 4) => &[(c, b, a), (c, a, b)],
        (1 | 2, 1 | 2, 1 | 2) => &[(c, b, a), (c, a, b), (a, b, c)],
        _ => return None,
    };
    Some((orders.iter().filter_map(|&(year, month, day)| Date::new(year, month.0, day.0)).collect(), end))
}

/// I to XII.
fn roman_month(piece: &str) -> Option<u32> {
    const MONTHS: [&str; 12] = ["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii"];
    MONTHS.iter().position(|month| *month == piece).map(|month| month as u32 + 1)
}

/// 8 May 1975, May 8th, 1975, 8 de mayo de 1975, 8-V-1975, 1975 May 8; and the last piece.
fn in_words(view: &View, first: usize) -> Option<(Date, usize)> {
    let close = |piece: usize| {
        let gap = view.gap(piece);
        gap.len() <= 4 && gap.chars().all(|c| c.is_whitespace() || matches!(c, '.' | ',' | '-' | '/' | '\''))
    };
    let mut last = first;
    let mut next = || {
        let mut to = last + 1;
        while to < view.len() && close(to - 1) && matches!(view.piece(to), "of" | "de" | "del" | "the" | "du") {
            to += 1;
        }
        last = to;
        (to < view.len() && close(to - 1)).then(|| view.piece(to))
    };
    let (a, b, c) = (view.piece(first), next()?, next()?);
    let date = match (month(a), month(b).or_else(|| roman_month(b))) {
        (Some(month), _) => Date::new(year(c)?, month, day(b)?),
        (_, Some(month)) if year(a).is_some_and(|year| year.1 == 4) => Date::new(year(a)?, month, day(c)?),
        (_, Some(month)) => Date::new(year(c)?, month, day(a)?),
        _ => None,
    }?;
    Some((date, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::surface::Surface;

    fn finds(value: &str, text: &str) -> Option<String> {
        let date = BirthDate::new(&View::new(value, Surface::Fold), 0).unwrap();
        let view = View::new(text, Surface::Fold);
        let (first, end) = (0..view.len()).find_map(|piece| date.at(&view, piece))?;
        let (start, end) = view.origin(view.pieces()[first].0 as usize, end)?;
        Some(text[start..end].to_owned())
    }

    #[test]
    fn the_same_date_in_every_form() {
        let forms = "1975-05-08|08/05/1975|5/8/1975|8.5.75|08. 05. 1975|19750508|08051975|080575|8 May 1975|May 8, 1975|May 8th 1975|8th of May, 1975|08-MAY-75|\
            8mai1975|le 8 mai 1975|8 de mayo de 1975|8. Mai 1975|1975 May 8|1975/05/08|1975-05-08T10:00:00|8 May '75|8-V-1975|8.V.75|08 / V / 1975|1975-V-08";
        for text in forms.split('|') {
            let bare = text.trim_start_matches("le ");
            let bare = bare.split('T').next().unwrap();
            assert_eq!(finds("1975-05-08", &format!("born {text}, here")).as_deref(), Some(bare), "{text}");
        }
    }

    #[test]
    fn other_dates_and_numbers_are_left() {
        let others =
            "1975-05-09|08/06/1975|8 June 1975|May 1975|8/5|1975|8 5 mg 75|12345678|5.8.76|8-VI-1975|8-VX-1975";
        for text in others.split('|') {
            assert_eq!(finds("1975-05-08", text), None, "{text}");
        }
    }

    #[test]
    fn values_in_many_forms_and_none() {
        for value in ["08/05/1975", "8 mai 1975", "75-05-08", "1975-05-08 00:00:00", "May 8, 1975"] {
            assert!(finds(value, "8 May 1975").is_some(), "{value}");
        }
        assert!(BirthDate::new(&View::new("May 1975", Surface::Fold), 0).is_none());
        assert!(BirthDate::new(&View::new("", Surface::Fold), 0).is_none());
    }
}
