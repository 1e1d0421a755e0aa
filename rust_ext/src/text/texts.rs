//! Texts: a column of documents borrowed from Arrow, whichever of its three string layouts it has.
//!
//! Arrow's C interface does not check UTF-8, and Parquet readers hand over whatever the file holds; reading such
//! bytes as `str` is undefined behaviour. So every column is checked once, on the way in, and the error names the row.

use arrow_array::{Array, ArrayRef, LargeStringArray, StringArray, StringViewArray, cast::AsArray};
use arrow_schema::DataType;

use crate::error::{Error, Result};

/// A checked column of strings without nulls.
#[derive(Clone)]
pub enum Texts {
    Small(StringArray),
    Large(LargeStringArray),
    View(StringViewArray),
}

impl Texts {
    /// Borrow an Arrow array; `column` names it in errors.
    pub fn new(array: &ArrayRef, column: &str) -> Result<Self> {
        if let Some(row) = array.nulls().and_then(|nulls| nulls.iter().position(|is_there| !is_there)) {
            return Err(Error::Corpus(format!("column {column}: row {row} is null")));
        }
        let Some(texts) = Self::unchecked(array) else {
            return Err(Error::Corpus(format!("column {column}: expected strings, got {}", array.data_type())));
        };
        match texts.first_invalid() {
            Some(row) => Err(Error::Corpus(format!("column {column}: row {row} is not valid UTF-8"))),
            None => Ok(texts),
        }
    }

    /// None for what is not strings.
    fn unchecked(array: &ArrayRef) -> Option<Self> {
        match array.data_type() {
            DataType::Utf8 => Some(Texts::Small(array.as_string::<i32>().clone())),
            DataType::LargeUtf8 => Some(Texts::Large(array.as_string::<i64>().clone())),
            DataType::Utf8View => Some(Texts::View(array.as_string_view().clone())),
            _ => None,
        }
    }

    /// Whether an array is this very column: the same memory, which stays as it is while this is kept.
    pub fn is_same(&self, array: &ArrayRef) -> bool {
        let at = |offsets: *const u8, values: *const u8| (offsets as usize, values as usize);
        let place = match (self, array.data_type()) {
            (Texts::Small(own), DataType::Utf8) => {
                let other = array.as_string::<i32>();
                [own, other].map(|a| at(a.value_offsets().as_ptr().cast(), a.value_data().as_ptr()))
            }
            (Texts::Large(own), DataType::LargeUtf8) => {
                let other = array.as_string::<i64>();
                [own, other].map(|a| at(a.value_offsets().as_ptr().cast(), a.value_data().as_ptr()))
            }
            _ => return false,
        };
        place[0] == place[1] && self.len() == array.len() && array.null_count() == 0
    }

    #[cfg(test)]
    pub fn of(rows: &[&str]) -> Self {
        Texts::Small(StringArray::from(rows.to_vec()))
    }

    pub fn len(&self) -> usize {
        match self {
            Texts::Small(a) => a.len(),
            Texts::Large(a) => a.len(),
            Texts::View(a) => a.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of one row; `value_unchecked` would build a `str` before the check, so go through offsets.
    fn bytes(&self, row: usize) -> &[u8] {
        match self {
            Texts::Small(a) => {
                let o = a.value_offsets();
                &a.value_data()[o[row] as usize..o[row + 1] as usize]
            }
            Texts::Large(a) => {
                let o = a.value_offsets();
                &a.value_data()[o[row] as usize..o[row + 1] as usize]
            }
            // A view array is rebuilt as bytes so that nothing is read as `str` unchecked.
            Texts::View(a) => a.value(row).as_bytes(),
        }
    }

    /// Document `row` as text. The constructor has checked that it is UTF-8.
    #[inline]
    pub fn get(&self, row: usize) -> &str {
        match self {
            Texts::Small(a) => a.value(row),
            Texts::Large(a) => a.value(row),
            Texts::View(a) => a.value(row),
        }
    }

    fn first_invalid(&self) -> Option<usize> {
        (0..self.len()).find(|&row| simdutf8::basic::from_utf8(self.bytes(row)).is_err())
    }

    /// Bytes of all texts together.
    pub fn num_bytes(&self) -> usize {
        (0..self.len()).map(|row| self.bytes(row).len()).sum()
    }
}

/// The first row of a column of strings (nulls allowed) that is not valid UTF-8; None for any other type.
pub fn first_invalid(array: &ArrayRef) -> Option<usize> {
    Texts::unchecked(array)?.first_invalid()
}
