//! Codes: phone numbers and record numbers, whatever separates their groups.
//!
//! A code is its letters and digits. It is found where the pieces of a text, put together, are it: `555-12-3456`, `555 123456`.
//! Leading zeros do not count for a number, since tables lose them; letters before a number do not either (`MRN00123456`).

use crate::text::pieces::View;

pub struct Code {
    text: Box<str>,
    is_number: bool,
    pub source: u32,
}

/// Fewer characters are a number like any other.
const MIN_LENGTH: usize = 4;

/// Country codes whose numbers lose a zero behind them.
const COUNTRIES: &[&str] = &["33", "44", "49", "32", "41", "34", "39", "31", "351", "352", "43", "46", "47", "45"];

/// What stands between a phone number and the extension behind it, letters alone.
const EXTENSIONS: &[&str] = &["x", "ext", "extension", "poste", "int", "dw"];

impl Code {
    /// None for a code of fewer than four characters.
    pub fn new(value: &View, source: u32) -> Option<Self> {
        let text: String = (0..value.len()).map(|number| value.piece(number)).collect();
        Self::of(&text, source)
    }

    /// The 13 digits of a French NIR, whose key a text may leave out.
    pub fn without_key(value: &View, source: u32) -> Option<Self> {
        let text: String = (0..value.len()).map(|number| value.piece(number)).collect();
        let (number, key) = text.split_at_checked(13).filter(|(_, key)| key.len() == 2)?;
        (97 - number.parse::<u64>().ok()? % 97 == key.parse::<u64>().ok()?).then(|| Self::of(number, source))?
    }

    fn of(text: &str, source: u32) -> Option<Self> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let long = text.chars().count() >= MIN_LENGTH;
        let text = if is_number { text.trim_start_matches('0') } else { text };
        (long && text.len() >= 3).then(|| Self { text: text.into(), is_number, source })
    }

    /// A phone number with and without what is dialled before it, and without its extension.
    pub fn phones(value: &View, source: u32) -> Vec<Self> {
        let all: String = (0..value.len()).map(|number| value.piece(number)).collect();
        let before = all.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_phone = |number: &&str| number.len() >= 7 && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = EXTENSIONS.iter().find_map(|word| before.strip_suffix(word).filter(is_phone)).unwrap_or(&all);
        let digits = number.trim_start_matches('0');
        let mut forms = vec![all.trim_start_matches('0').to_owned(), digits.to_owned()];
        if number.bytes().all(|byte| byte.is_ascii_digit()) {
            let national = COUNTRIES.iter().find_map(|country| {
                digits
                    .strip_prefix(country)
                    .filter(|rest| digits.len() >= 11 && rest.len() >= 8)
                    .map(|rest| rest.trim_start_matches('0'))
            });
            let bare = national.or_else(|| digits.strip_prefix('1').filter(|rest| rest.len() == 10)).unwrap_or(digits);
            forms.push(bare.to_owned());
            if bare.len() >= 8 {
                forms.push(format!("1{bare}"));
                forms.extend(
                    COUNTRIES.iter().flat_map(|country| [format!("{country}{bare}"), format!("{country}0{bare}")]),
                );
            }
        }
        forms.sort_unstable();
        forms.dedup();
        forms.iter().filter_map(|form| Self::of(form, source)).collect()
    }

    /// The first character, for a filter.
    pub fn first(&self) -> u8 {
        self.text.as_bytes()[0]
    }

    pub fn is_number(&self) -> bool {
        self.is_number
    }

    /// First and last byte of the code where it begins in a piece.
    #[inline]
    pub fn at(&self, view: &View, piece: usize) -> Option<(usize, usize)> {
        let (start, _) = view.pieces()[piece];
        let skipped =
            if self.is_number { view.piece(piece).bytes().take_while(u8::is_ascii_alphabetic).count() } else { 0 };
        let begin = start as usize + skipped;
        let (mut wanted, mut at, mut leading) = (&*self.text, piece, self.is_number);
        loop {
            let (from, to) =
                (if at == piece { begin } else { view.pieces()[at].0 as usize }, view.pieces()[at].1 as usize);
            let whole = &view.text()[from..to];
            let rest = if leading { whole.trim_start_matches('0') } else { whole };
            if at == piece && rest.is_empty() {
                return None;
            }
            leading = false;
            if rest.len() < wanted.len() {
                wanted = wanted.strip_prefix(rest)?;
            } else {
                let over = rest.strip_prefix(wanted)?;
                // "555-123-4567x89", but no other number.
                let ends = over.is_empty() || self.is_number && !over.starts_with(|c: char| c.is_numeric());
                return ends.then_some((begin, to - over.len()));
            }
            if at + 1 == view.len() || !joins_groups(view.gap(at)) {
                return None;
            }
            at += 1;
        }
    }
}

/// Signs between the groups of a number. A comma alone parts thousands, with a space behind it the items of a list; `=` breaks
/// a line.
fn joins_groups(gap: &str) -> bool {
    let gap = gap.strip_prefix('=').filter(|rest| rest.starts_with([' ', '\n', '\r'])).unwrap_or(gap);
    let joins = |c: char| {
        c.is_ascii_whitespace()
            || matches!(
                c,
                '-' | '.' | '/' | '(' | ')' | '_' | '\u{a0}' | '\u{202f}' | '\u{2010}'..='\u{2013}' | '\u{2212}'
            )
    };
    gap == "," || gap.chars().count() <= 3 && gap.chars().all(joins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::surface::Surface;

    fn finds(codes: &[Code], text: &str) -> Option<String> {
        let view = View::new(text, Surface::Fold);
        let hit = |piece| codes.iter().find_map(|code| code.at(&view, piece));
        let (start, end) = (0..view.len()).find_map(hit)?;
        let (start, end) = view.origin(start, end)?;
        Some(text[start..end].to_owned())
    }

    #[test]
    fn codes_whatever_separates_them() {
        let table: &[(&str, &str, Option<&str>)] = &[
            ("538-26-7065", "SSN 538267065.", Some("538267065")),
            ("538267065", "SSN 538-26-7065.", Some("538-26-7065")),
            ("12345678", "MRN 12,345,678.", Some("12,345,678")),
            ("12345678", "MRN 1234\n5678", Some("1234\n5678")),
            ("12345678", "MRN 1234-\r\n5678", Some("1234-\r\n5678")),
            ("12345678", "MRN 1234=\n5678", Some("1234=\n5678")),
            ("12345678", "1234; 5678", None),
            ("00123456", "MRN 123456", Some("123456")),
            ("123456", "MRN00123456", Some("00123456")),
            ("A1234567", "a-1234567", Some("a-1234567")),
            ("123456", "1234567", None),
            ("123456", "9123456", None),
            ("123456", "12 34 567", None),
            ("123", "123", None),
            ("1234", "12, 34", None),
        ];
        for (value, text, expected) in table {
            let codes: Vec<Code> = Code::new(&View::new(value, Surface::Fold), 0).into_iter().collect();
            assert_eq!(finds(&codes, text).as_deref(), *expected, "{value} in {text}");
        }
    }

    #[test]
    fn a_nir_without_its_key() {
        for (value, expected) in [("1 84 12 76 451 089 46", Some("1 84 12 76 451 089")), ("184127645108947", None)] {
            let codes: Vec<Code> = Code::without_key(&View::new(value, Surface::Fold), 0).into_iter().collect();
            assert_eq!(finds(&codes, "NIR 1 84 12 76 451 089, vu").as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn phones_with_and_without_their_country() {
        for (value, text, expected) in [
            ("06 05 74 50 39", "+33 6 05 74 50 39", "33 6 05 74 50 39"),
            ("06 05 74 50 39", "0033605745039", "0033605745039"),
            ("06 05 74 50 39", "+33 (0)6 05 74 50 39", "33 (0)6 05 74 50 39"),
            ("+33605745039", "06.05.74.50.39", "06.05.74.50.39"),
            ("(236) 792-5090", "236.792.5090 x12", "236.792.5090"),
            ("236-792-5090", "1-236-792-5090", "1-236-792-5090"),
            ("+1 236 792 5090", "(236)792-5090x1", "236)792-5090"),
            ("(236) 792-5090 x12", "236.792.5090", "236.792.5090"),
            ("236-792-5090 ext. 12", "+1 236 792 5090", "1 236 792 5090"),
            ("+33 6 05 74 50 39 poste 4", "06 05 74 50 39", "06 05 74 50 39"),
        ] {
            let codes = Code::phones(&View::new(value, Surface::Fold), 0);
            assert_eq!(finds(&codes, text).as_deref(), Some(expected), "{value} in {text}");
        }
    }
}
