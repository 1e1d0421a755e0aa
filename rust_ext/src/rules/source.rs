//! Source: the way back from what the rules read to the text as it is.

use crate::text::fold::Folded;

/// A text, and what was made of it for the rules.
pub struct Source<'a> {
    pub text: &'a str,
    pub unescaped: Option<Folded>,
}

impl Source<'_> {
    /// The text that is folded.
    pub fn read(&self) -> &str {
        self.unescaped.as_ref().map_or(self.text, |unescaped| &unescaped.text)
    }

    /// Bounds in the text of what stands at these in the plain one.
    pub fn original(&self, folded: Option<&Folded>, start: usize, end: usize) -> Option<(usize, usize)> {
        let (start, end) = match folded {
            Some(folded) => folded.original(self.read(), start, end)?,
            None => (start, end),
        };
        match &self.unescaped {
            Some(unescaped) => unescaped.original(self.text, start, end),
            None => Some((start, end)),
        }
    }

    /// Whether it was written in letters apart.
    pub fn is_apart(&self, folded: Option<&Folded>, start: usize, end: usize) -> bool {
        self.unescaped.is_some()
            && self
                .original(folded, start, end)
                .is_some_and(|(start, end)| self.text[start..end].split(' ').all(|word| word.chars().count() <= 1))
    }
}
