//! Ids: which are blank, how many are distinct, and what number each has among the distinct ones in byte order.

use arrow_array::{ArrayRef, cast::AsArray};
use arrow_schema::DataType;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use crate::error::{Error, Result};
use crate::storage::intern::Interner;
use crate::text::characters::is_default_ignorable;
use crate::text::texts::Texts;

/// What [`IdRows::rows`] says of an id that is not there.
pub const MISSING: u32 = u32::MAX;

/// Rows without a letter, digit or sign: empty, or of characters alone that print nothing. Nulls are not blank.
pub fn blank_rows(array: &ArrayRef) -> Vec<i64> {
    let is_blank = |id: &str| id.chars().all(prints_nothing);
    (0..).zip(strings(array)).filter(|(_, id)| id.is_some_and(is_blank)).map(|(row, _)| row).collect()
}

/// The strings of an array (checked to be UTF-8) whichever layout it has; of what is not strings, none.
pub fn strings<'a>(array: &'a ArrayRef) -> Box<dyn Iterator<Item = Option<&'a str>> + 'a> {
    match array.data_type() {
        DataType::Utf8 => Box::new(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => Box::new(array.as_string::<i64>().iter()),
        DataType::Utf8View => Box::new(array.as_string_view().iter()),
        _ => Box::new(std::iter::empty()),
    }
}

/// White space, controls, and characters without a glyph: fillers of Hangul and the empty pattern of Braille among them.
pub fn prints_nothing(c: char) -> bool {
    c.is_whitespace() || c.is_control() || c == '\u{2800}' || is_default_ignorable(c)
}

pub fn count_distinct(ids: &Texts) -> usize {
    let mut seen = HashSet::with_hasher(FixedState::default());
    seen.extend((0..ids.len()).map(|row| ids.get(row)));
    seen.len()
}

/// The distinct ids in byte order, and which of them each row holds.
pub fn sorted_codes(ids: &Texts) -> (Vec<&str>, Vec<u32>) {
    let mut numbers = HashMap::with_hasher(FixedState::default());
    let (mut names, mut codes) = (Vec::new(), Vec::with_capacity(ids.len()));
    for id in (0..ids.len()).map(|row| ids.get(row)) {
        codes.push(*numbers.entry(id).or_insert_with(|| {
            names.push(id);
            names.len() as u32 - 1
        }));
    }
    let mut order: Vec<u32> = (0..names.len() as u32).collect();
    order.sort_unstable_by_key(|&number| names[number as usize]);
    let mut ranks = vec![0; names.len()];
    (0..).zip(&order).for_each(|(rank, &number)| ranks[number as usize] = rank);
    codes.iter_mut().for_each(|code| *code = ranks[*code as usize]);
    (order.iter().map(|&number| names[number as usize]).collect(), codes)
}

/// Distinct ids, each with its row, for look-ups batch after batch: making the table takes longer than a batch.
pub struct IdRows(Interner);

impl IdRows {
    pub fn new(names: &Texts) -> Result<Self> {
        let mut known = Interner::default();
        for row in 0..names.len() {
            known.intern(names.get(row));
        }
        if known.len() != names.len() {
            return Err(Error::Corpus("an id is twice among those that shall be distinct".into()));
        }
        Ok(Self(known))
    }

    /// The row that holds each id; [`MISSING`] where there is none.
    pub fn rows(&self, ids: &Texts) -> Vec<u32> {
        (0..ids.len()).map(|row| self.0.find(ids.get(row)).unwrap_or(MISSING)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_ranks_among_the_distinct_ids() {
        let ids = Texts::of(&["b", "a", "ä", "b", "aa"]);
        assert_eq!(sorted_codes(&ids), (vec!["a", "aa", "b", "ä"], vec![2, 0, 3, 2, 1]));
        assert_eq!(count_distinct(&ids), 4);
        let names = Texts::of(&["b", "ä"]);
        assert_eq!(IdRows::new(&names).unwrap().rows(&ids), [0, MISSING, 1, 0, MISSING]);
        assert!(IdRows::new(&ids).is_err());
    }
}
