//! Spans: from characters to words.
//!
//! In the interface, spans count characters (Unicode code points, end exclusive); in the core, they count bytes. This file holds
//! both conversions and the rule that a word is direct if it meets a span in at least one character. The characters of a span
//! outside words (punctuation, symbols) are as direct as its words: [`mark_spans`] returns their positions too.

use std::ops::Range;

use rayon::prelude::*;
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};
use unicode_segmentation::GraphemeCursor;

use crate::error::{Error, Result};
use crate::pool::rows;
use crate::text::characters::is_default_ignorable;
use crate::text::texts::Texts;
use crate::text::words::{Bounds, Words};

/// A span found in a batch of documents, in bytes of its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub document: u32,
    pub start: usize,
    pub end: usize,
    /// Which rule, pattern or field found it.
    pub source: u32,
}

/// Byte offsets -> character offsets of ascending positions in one text.
pub struct CharCounter<'a> {
    text: &'a str,
    byte: usize,
    chars: usize,
}

impl<'a> CharCounter<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, byte: 0, chars: 0 }
    }

    /// Characters before `byte`; starts over when asked to go back.
    pub fn at(&mut self, byte: usize) -> usize {
        if byte < self.byte {
            (self.byte, self.chars) = (0, 0);
        }
        self.chars += self.text[self.byte..byte].chars().count();
        self.byte = byte;
        self.chars
    }
}

/// Start and end in characters of each span, the spans of a document standing together with ascending starts.
pub fn in_characters(texts: &Texts, found: &[Found]) -> Vec<[i32; 2]> {
    found
        .par_chunk_by(|one, next| one.document == next.document)
        .flat_map_iter(|spans| {
            let text = texts.get(spans[0].document as usize);
            let mut chars = CharCounter::new(text);
            spans.iter().map(move |span| {
                // Ends do not ascend where spans overlap, and going back would count the text again.
                let start = chars.at(span.start);
                [start as i32, (start + text[span.start..span.end].chars().count()) as i32]
            })
        })
        .collect()
}

/// The bytes of the characters that spans begin or end at.
pub enum Places {
    /// Of an ASCII text of so many: they are the same.
    Ascii(usize),
    /// Character and byte, ascending.
    Found(Vec<(usize, usize)>),
}

impl Places {
    /// One walk over a text, however the spans overlap.
    pub fn new(text: &str, starts: &[i32], ends: &[i32]) -> Self {
        if text.is_ascii() {
            return Self::Ascii(text.len());
        }
        let mut wanted: Vec<usize> = starts.iter().chain(ends).filter_map(|&at| usize::try_from(at).ok()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let (mut chars, mut next) = (text.chars(), 0);
        let found = wanted.into_iter().map_while(|at| {
            if at > next {
                chars.nth(at - next - 1)?;
                next = at;
            }
            Some((at, text.len() - chars.as_str().len()))
        });
        Self::Found(found.collect())
    }

    /// The byte of such a character; None beyond the end of the text.
    #[inline]
    pub fn byte(&self, at: i32) -> Option<usize> {
        let at = usize::try_from(at).ok()?;
        match self {
            Self::Ascii(length) => (at <= *length).then_some(at),
            Self::Found(places) => Some(places[places.binary_search_by_key(&at, |place| place.0).ok()?].1),
        }
    }

    /// The bytes of a span; None where it does not fit the text.
    #[inline]
    pub fn bytes(&self, start: i32, end: i32) -> Option<Range<usize>> {
        if end < start { None } else { Some(self.byte(start)?..self.byte(end)?) }
    }
}

/// Spans of a batch, in characters: those of document d are `offsets[d]..offsets[d + 1]`.
#[derive(Clone, Copy)]
pub struct Spans<'a> {
    pub offsets: &'a [i64],
    pub starts: &'a [i32],
    pub ends: &'a [i32],
}

impl Spans<'_> {
    pub fn check(&self, num_documents: usize) -> Result<()> {
        let whole = self.offsets.len() == num_documents + 1
            && self.offsets.first() == Some(&0)
            && self.offsets.last() == Some(&(self.starts.len() as i64))
            && self.starts.len() == self.ends.len()
            && self.offsets.is_sorted();
        if !whole {
            return Err(Error::Corpus("span offsets do not match the documents and spans".into()));
        }
        Ok(())
    }

    /// The numbers of a document's spans.
    pub fn of(&self, row: usize) -> Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// Bytes of each span of a document.
    pub fn in_bytes(&self, row: usize, text: &str) -> Result<Vec<Range<usize>>> {
        let spans = self.of(row);
        if spans.is_empty() {
            return Ok(Vec::new());
        }
        let (starts, ends) = (&self.starts[spans.clone()], &self.ends[spans]);
        let places = Places::new(text, starts, ends);
        let both = starts.iter().zip(ends).enumerate();
        both.map(|(number, (&start, &end))| {
            places.bytes(start, end).ok_or_else(|| {
                let length = text.chars().count();
                Error::Corpus(format!(
                    "document {row} of the batch: span {number} is {start}..{end} in a text of {length} characters"
                ))
            })
        })
        .collect()
    }
}

/// Words that a span of bytes meets in at least one, of a document's words.
pub fn words_met((from, to): (&[u32], &[u32]), span: &Range<usize>) -> Range<usize> {
    let first = to.partition_point(|&word_end| word_end as usize <= span.start);
    let num = from[first..].iter().take_while(|&&word_start| (word_start as usize) < span.end).count();
    first..first + num
}

/// What spans hold of a batch of documents.
pub struct Marked {
    /// Words of its document that each span meets: the first, and one past the last.
    pub firsts: Vec<u32>,
    pub ends: Vec<u32>,
    /// 1 for each word that meets a span.
    pub mask: Vec<u8>,
    /// What they hold outside words, white space aside.
    pub gaps: Words,
}

/// The words that spans meet in at least one character, and what they hold between words.
pub fn mark_spans(texts: &Texts, words: &Words, spans: Spans<'_>) -> Result<Marked> {
    words.check(texts.len())?;
    spans.check(texts.len())?;
    let parts: Vec<(Vec<Range<usize>>, Vec<Bounds>)> = rows(texts.len())
        .map(|row| {
            let (text, own) = (texts.get(row), words.of(row));
            let found = spans.in_bytes(row, text)?;
            let met = found.iter().map(|span| words_met(own, span)).collect();
            Ok((met, gaps_of(text, own, found)))
        })
        .collect::<Result<_>>()?;
    let mut mask = vec![0u8; words.starts.len()];
    for (row, (met, _)) in parts.iter().enumerate() {
        let own = &mut mask[words.first(row)..words.first(row + 1)];
        met.iter().for_each(|met| own[met.clone()].fill(1));
    }
    let (met, gaps): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let met = || met.iter().flatten();
    Ok(Marked {
        firsts: met().map(|met| met.start as u32).collect(),
        ends: met().map(|met| met.end as u32).collect(),
        mask,
        gaps: Words::from_parts(&gaps),
    })
}

/// Where spans hold something else than words and white space: the bytes of each such run, in order and separately. A span that
/// cuts a character from its marks holds both: a tokenizer may have them as one.
fn gaps_of(text: &str, words: (&[u32], &[u32]), mut spans: Vec<Range<usize>>) -> Vec<Bounds> {
    spans.retain(|span| !span.is_empty());
    spans.iter_mut().for_each(|span| *span = whole_clusters(text, span.clone()));
    spans.sort_unstable_by_key(|span| span.start);
    let (mut found, mut done) = (Vec::new(), 0);
    for span in spans {
        let start = span.start.max(done);
        if start < span.end {
            push_gaps(text, words, start..span.end, &mut found);
            done = span.end;
        }
    }
    found
}

/// A range with all of the grapheme clusters that it begins and ends in.
fn whole_clusters(text: &str, range: Range<usize>) -> Range<usize> {
    let edge = |at: usize| GraphemeCursor::new(at, text.len(), true);
    let is_inside = |at: usize| {
        let is_ascii = |at: usize| text.as_bytes().get(at).is_none_or(u8::is_ascii);
        !is_ascii(at) && edge(at).is_boundary(text, 0) == Ok(false)
    };
    let start = match is_inside(range.start) {
        true => edge(range.start).prev_boundary(text, 0).ok().flatten().unwrap_or(range.start),
        false => range.start,
    };
    let end = match is_inside(range.end) {
        true => edge(range.end).next_boundary(text, 0).ok().flatten().unwrap_or(range.end),
        false => range.end,
    };
    start..end
}

/// The runs of `range` that are neither in a word nor white space; one that goes on where the last ended joins it.
fn push_gaps(text: &str, (from, to): (&[u32], &[u32]), range: Range<usize>, found: &mut Vec<Bounds>) {
    let mut word = to.partition_point(|&word_end| word_end as usize <= range.start);
    for (at, c) in text[range.clone()].char_indices() {
        let at = (range.start + at) as u32;
        while to.get(word).is_some_and(|&word_end| word_end <= at) {
            word += 1;
        }
        if from.get(word).is_some_and(|&word_start| word_start <= at) || c.is_whitespace() {
            continue;
        }
        let end = at + c.len_utf8() as u32;
        match found.last_mut() {
            Some(last) if last.1 == at => last.1 = end,
            _ => found.push((at, end)),
        }
    }
}

/// Whether X has to stand for this character of an identifier: punctuation and what prints nothing may stay.
fn is_crossed_out(c: char) -> bool {
    !c.is_ascii() && c.general_category_group() != GeneralCategoryGroup::Punctuation && !is_default_ignorable(c)
}

/// The stretches of a range between words that X has to stand for.
pub fn crossed_out(text: &str, range: Range<usize>, mut emit: impl FnMut(Range<usize>)) {
    let mut at = range.start;
    while let Some(start) = text[at..range.end].find(is_crossed_out).map(|start| at + start) {
        at = text[start..range.end].find(|c| !is_crossed_out(c)).map_or(range.end, |length| start + length);
        emit(start..at);
    }
}

/// Each masked word, and each run of symbols in `gaps`, replaced by `replacement`; the other bytes stay. With the texts
/// comes the byte at which each word begins in its own, for a masked one that of its replacement.
pub fn replace_words(
    texts: &Texts,
    words: &Words,
    mask: &[u8],
    gaps: Option<&Words>,
    replacement: &str,
) -> Result<(Vec<String>, Vec<i64>)> {
    words.check(texts.len())?;
    check_mask(words, mask)?;
    gaps.map_or(Ok(()), |gaps| gaps.check(texts.len()))?;
    let replaced: Vec<(String, Vec<i64>)> = rows(texts.len())
        .map(|row| {
            let text = texts.get(row);
            let (from, to) = words.of(row);
            let first = words.first(row);
            let mut symbols = Vec::new();
            for (&start, &end) in gaps.map(|gaps| gaps.of(row)).into_iter().flat_map(|(from, to)| from.iter().zip(to)) {
                crossed_out(text, start as usize..end as usize, |run| symbols.push(run));
            }
            let mut symbols = symbols.into_iter().peekable();
            let (mut out, mut places) = (String::with_capacity(text.len()), Vec::with_capacity(from.len()));
            let mut at = 0;
            let mut copy_and_put = |out: &mut String, range: Range<usize>, put: &str| {
                out.push_str(&text[at..range.start]);
                out.push_str(put);
                at = range.end;
            };
            for word in 0..from.len() {
                let (start, end) = (from[word] as usize, to[word] as usize);
                while let Some(run) = symbols.next_if(|run| run.start < start) {
                    copy_and_put(&mut out, run, replacement);
                }
                copy_and_put(&mut out, start..start, "");
                places.push(out.len() as i64);
                if mask[first + word] != 0 {
                    copy_and_put(&mut out, start..end, replacement);
                }
            }
            symbols.for_each(|run| copy_and_put(&mut out, run, replacement));
            copy_and_put(&mut out, text.len()..text.len(), "");
            (out, places)
        })
        .collect();
    let places = replaced.iter().flat_map(|(_, places)| places).copied().collect();
    Ok((replaced.into_iter().map(|(text, _)| text).collect(), places))
}

/// One byte a word is what every mask here has.
pub fn check_mask(words: &Words, mask: &[u8]) -> Result<()> {
    if mask.len() != words.starts.len() {
        return Err(Error::Corpus(format!(
            "a mask of {} bytes was given for {} words",
            mask.len(),
            words.starts.len()
        )));
    }
    Ok(())
}
