//! Spans: from characters to words.
//!
//! Outside, spans count characters (Unicode code points, end exclusive); inside, bytes. This file holds both conversions
//! and the rule that a word is direct when it meets a span in at least one character.

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::pool::rows;
use crate::text::Texts;
use crate::words::Words;

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

/// Byte offset of each character and of the end; empty for ASCII, where they are the same.
pub fn char_starts(text: &str) -> Vec<usize> {
    if text.is_ascii() {
        return Vec::new();
    }
    text.char_indices().map(|(byte, _)| byte).chain([text.len()]).collect()
}

/// 1 for each word that meets a span of its document in at least one character.
pub fn cover_spans(texts: &Texts, words: &Words, offsets: &[i64], starts: &[i32], ends: &[i32]) -> Result<Vec<u8>> {
    words.check(texts.len())?;
    let whole = offsets.len() == texts.len() + 1
        && offsets.first() == Some(&0)
        && offsets.last() == Some(&(starts.len() as i64))
        && starts.len() == ends.len()
        && offsets.is_sorted();
    if !whole {
        return Err(Error::Corpus("span offsets do not match the documents and spans".into()));
    }
    let parts: Vec<Vec<u8>> = rows(texts.len())
        .map(|row| {
            let (from, to) = words.of(row);
            let mut mask = vec![0u8; from.len()];
            let spans = offsets[row] as usize..offsets[row + 1] as usize;
            if spans.is_empty() {
                return Ok(mask);
            }
            let text = texts.get(row);
            let chars = char_starts(text);
            let length = if chars.is_empty() { text.len() } else { chars.len() - 1 };
            let byte = |at: usize| if chars.is_empty() { at } else { chars[at] };
            for number in spans.clone() {
                let (start, end) = (starts[number], ends[number]);
                if start < 0 || end < start || end as usize > length {
                    return Err(Error::Corpus(format!(
                        "document {row} of the batch: span {} is {start}..{end} in a text of {length} characters",
                        number - spans.start
                    )));
                }
                let (start, end) = (byte(start as usize), byte(end as usize));
                let first = to.partition_point(|&word_end| word_end as usize <= start);
                for word in first..from.len() {
                    if from[word] as usize >= end {
                        break;
                    }
                    mask[word] = 1;
                }
            }
            Ok(mask)
        })
        .collect::<Result<_>>()?;
    Ok(parts.concat())
}

/// Each masked word replaced by `replacement`; the other bytes stay.
pub fn replace_words(texts: &Texts, words: &Words, mask: &[u8], replacement: &str) -> Result<Vec<String>> {
    words.check(texts.len())?;
    check_mask(words, mask)?;
    Ok(rows(texts.len())
        .map(|row| {
            let text = texts.get(row);
            let (from, to) = words.of(row);
            let first = words.first(row);
            let mut out = String::with_capacity(text.len());
            let mut at = 0;
            for word in 0..from.len() {
                if mask[first + word] != 0 {
                    out.push_str(&text[at..from[word] as usize]);
                    out.push_str(replacement);
                    at = to[word] as usize;
                }
            }
            out.push_str(&text[at..]);
            out
        })
        .collect())
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
