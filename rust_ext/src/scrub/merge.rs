//! Spans of a document brought in order: checked, trimmed, merged.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::text::spans::{self, CharCounter, Places};

/// Spans of a batch of documents.
pub struct Spans<'a> {
    pub bounds: spans::Spans<'a>,
    /// Number of each span's category.
    pub categories: &'a [u32],
}

/// A stretch to replace: characters, then the same in bytes.
#[derive(Clone)]
pub struct Stretch {
    pub chars: Range<usize>,
    pub bytes: Range<usize>,
    pub span: usize,
    /// Spans of several categories lie in it, so it holds more than what its category's form tells.
    pub mixed: bool,
    /// A span of a name is among them.
    pub named: bool,
}

impl Spans<'_> {
    pub fn check(&self, num_documents: usize, num_categories: usize) -> Result<()> {
        self.bounds.check(num_documents)?;
        if self.bounds.starts.len() != self.categories.len() {
            return Err(Error::Corpus("span offsets do not match the documents and spans".into()));
        }
        if self.categories.iter().any(|&category| category as usize >= num_categories) {
            return Err(Error::Corpus("a span of a category that was not given".into()));
        }
        Ok(())
    }

    /// The spans of a document, checked against its length, trimmed and merged, in order.
    /// `names` says of each category whether its spans are names.
    pub fn stretches(&self, row: usize, text: &str, merge_touching: bool, names: &[bool]) -> Result<Vec<Stretch>> {
        let (own, spans::Spans { starts, ends, .. }) = (self.bounds.of(row), self.bounds);
        let mut rows: Vec<usize> = own.clone().collect();
        rows.sort_by_key(|&span| (starts[span], ends[span], self.categories[span], span));
        let mut counter = CharCounter::new(text);
        let ascii = text.is_ascii();
        let places = Places::new(text, &starts[own.clone()], &ends[own.clone()]);
        let mut merged = Vec::<Stretch>::with_capacity(rows.len());
        for span in rows {
            let bytes = self.trimmed(span, text, &places).ok_or_else(|| {
                Error::Corpus(format!(
                    "document {row} of the batch: span {} is {}..{}, which does not fit its text",
                    span - own.start,
                    starts[span],
                    ends[span]
                ))
            })?;
            if bytes.is_empty() {
                continue;
            }
            let named = names[self.categories[span] as usize];
            match merged.last_mut() {
                Some(last)
                    if bytes.start < last.bytes.end
                        || (bytes.start == last.bytes.end
                            && merge_touching
                            && self.categories[last.span] == self.categories[span]) =>
                {
                    last.mixed |= self.categories[span] != self.categories[last.span];
                    last.named |= named;
                    if self.is_stronger(span, last.span) {
                        last.span = span;
                    }
                    last.bytes.end = last.bytes.end.max(bytes.end);
                }
                _ => merged.push(Stretch { chars: 0..0, bytes, span, mixed: false, named }),
            }
        }
        for stretch in &mut merged {
            stretch.chars = if ascii {
                stretch.bytes.clone()
            } else {
                counter.at(stretch.bytes.start)..counter.at(stretch.bytes.end)
            };
        }
        Ok(merged)
    }

    /// The bytes of a span without white space at its ends; None where it does not fit.
    fn trimmed(&self, span: usize, text: &str, places: &Places) -> Option<Range<usize>> {
        let bytes = places.bytes(self.bounds.starts[span], self.bounds.ends[span])?;
        let value = text.get(bytes.clone())?;
        let leading = value.len() - value.trim_start().len();
        Some(bytes.start + leading..bytes.start + leading + value.trim().len())
    }

    fn is_stronger(&self, span: usize, than: usize) -> bool {
        let length = |span: usize| self.bounds.ends[span] - self.bounds.starts[span];
        (length(span), std::cmp::Reverse(self.categories[span]))
            > (length(than), std::cmp::Reverse(self.categories[than]))
    }
}
