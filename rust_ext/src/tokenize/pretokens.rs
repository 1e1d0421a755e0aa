//! Pretokens: parts of a text that a tokenizer treats separately, found without the tokenizer.
//!
//! If a tokenizer's own configuration guarantees that none of its steps crosses a boundary, each distinct pretoken must be
//! tokenised only once. BERT's, GPT-2's and the patterns of later models ([`Pattern`]) are cut here. Every other tokenizer gets the
//! whole document.
//!
//! A *chunk* is a run of pretokens between white space: a word and the marks around it. Chunks are found 16 bytes at a time.

use serde_json::Value;

use super::patterns::Pattern;
use crate::storage::key::load;

/// How texts are cut for a tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// BERT: at ASCII white space, and around each ASCII punctuation mark. What its normaliser does (NFD, accents, lower
    /// case, control characters, spaces around CJK) never reaches across one of these.
    Bert,
    /// GPT-2: the byte-level pattern; a word that is not all ASCII stays whole, with the space before it.
    ByteLevel,
    /// Other patterns before the same model.
    Pattern(Pattern),
}

impl Cut {
    /// The cut that the steps of a `tokenizer.json` allow; None where there is none we know of.
    pub fn of(tokenizer: &Value) -> Option<Self> {
        let kind = |part: &str| tokenizer[part]["type"].as_str();
        let pre_tokenizer = &tokenizer["pre_tokenizer"];
        if kind("normalizer").is_none() && !tokenizer["normalizer"].is_null() {
            return None; // of a kind that the library tells by its fields
        }
        match (kind("normalizer"), kind("pre_tokenizer")) {
            (None | Some("BertNormalizer"), Some("BertPreTokenizer")) => Some(Cut::Bert),
            (None | Some("NFC"), Some("ByteLevel"))
                if pre_tokenizer["add_prefix_space"] == false && pre_tokenizer["use_regex"] != false =>
            {
                Some(Cut::ByteLevel)
            }
            (None | Some("NFC"), Some("Sequence")) => {
                Pattern::of(pre_tokenizer["pretokenizers"].as_array()?).map(Cut::Pattern)
            }
            _ => None,
        }
    }

    /// Call `emit(start, end)` with the byte bounds of each pretoken, in order.
    #[inline]
    pub fn for_each<E>(self, text: &str, mut emit: impl FnMut(usize, usize) -> Result<(), E>) -> Result<(), E> {
        let pattern = match self {
            Cut::Bert => return cut_bert(text.as_bytes(), emit),
            Cut::ByteLevel => Pattern::ALL,
            Cut::Pattern(pattern) => pattern,
        };
        self.chunks(text).try_for_each(|(start, end)| pattern.split(text.as_bytes(), start, end, &mut emit))
    }

    /// Whether a space belongs to the word behind it.
    pub fn is_byte_level(self) -> bool {
        self != Cut::Bert
    }

    /// The chunks of a text, whose pretokens together are the text's.
    #[inline(always)]
    pub fn chunks(self, text: &str) -> Chunks<'_> {
        Chunks { cut: self, text, at: 0 }
    }
}

/// Byte bounds of each chunk, in order: BERT's lie between ASCII white space; GPT-2's take the space before them, and what
/// other white space there is makes chunks of its own.
pub struct Chunks<'a> {
    cut: Cut,
    text: &'a str,
    at: usize,
}

impl Iterator for Chunks<'_> {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        match self.cut {
            Cut::Bert => self.next_bert(),
            Cut::ByteLevel => self.next_bytelevel(),
            Cut::Pattern(pattern) => {
                let start = self.at;
                (start < self.text.len()).then(|| {
                    self.at = pattern.end_of_chunk(self.text, start);
                    (start, self.at)
                })
            }
        }
    }
}

pub(super) const HIGH: u128 = u128::from_ne_bytes([0x80; 16]);

/// The high bit of each byte that is not above 0x20: white space or a control character. A sum never leaves its byte.
#[inline(always)]
pub(super) fn low_bytes(block: u128) -> u128 {
    const REACH: u128 = u128::from_ne_bytes([0x7f - 0x20; 16]);
    !(((block & !HIGH) + REACH) | block) & HIGH
}

impl Chunks<'_> {
    #[inline(always)]
    fn next_bert(&mut self) -> Option<(usize, usize)> {
        let bytes = self.text.as_bytes();
        while self.at < bytes.len() {
            let start = self.at;
            let len = (low_bytes(load(bytes, start)).trailing_zeros() / 8) as usize;
            // Beyond the text there are zeros, which stop here as well.
            let mut end = start + len;
            if end < bytes.len() && !is_bert_space(bytes[end]) {
                end += bytes[end..].iter().position(|&byte| is_bert_space(byte)).unwrap_or(bytes.len() - end);
            }
            self.at = end + 1;
            if end > start {
                return Some((start, end));
            }
        }
        None
    }

    #[inline(always)]
    fn next_bytelevel(&mut self) -> Option<(usize, usize)> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let first = usize::from(*bytes.get(start)? == b' ');
        let block = load(bytes, start);
        // The first stop after the space.
        let stops = low_bytes(block) >> (8 * first) << (8 * first);
        let end = start + (stops.trailing_zeros() / 8) as usize;
        let parted = bytes.get(end).is_none_or(|&byte| matches!(byte, b' ' | b'\n'));
        let ascii = (block & HIGH).trailing_zeros() >= stops.trailing_zeros();
        // Other white space than ASCII's begins with one of these bytes.
        let plain = ascii || !bytes[start..end].iter().any(|byte| matches!(byte, 0xc2 | 0xe1..=0xe3));
        if parted && plain && end > start + first {
            self.at = end;
            return Some((start, end));
        }
        self.next_bytelevel_slow()
    }

    #[inline(never)]
    fn next_bytelevel_slow(&mut self) -> Option<(usize, usize)> {
        let (text, start) = (self.text, self.at);
        if let Some([b'\n', b'!'..=b'~']) = text.as_bytes().get(start..start + 2) {
            self.at = start + 1;
            return Some((start, self.at));
        }
        let mut at = start;
        let mut last = at; // where the last white space of the run begins
        while let Some(width) = space_at(text, at) {
            last = at;
            at += width;
        }
        // The run keeps all but its last white space; that one stands alone, unless it is a space that the word takes.
        self.at = if at == text.len() {
            at
        } else if last > start {
            last
        } else if at > start && text.as_bytes()[start] != b' ' {
            at
        } else {
            end_of_word(text, at)
        };
        Some((start, self.at))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// White space.
    Space,
    Letter,
    Digit,
    /// Any other visible ASCII.
    Mark,
    /// ASCII control characters that are no white space.
    Control,
    /// The byte of a longer character.
    Wide,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Wide; 256];
    let mut byte = 0u8;
    while byte < 128 {
        classes[byte as usize] = match byte {
            b' ' | b'\t'..=b'\r' => Class::Space,
            b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            b'!'..=b'~' => Class::Mark,
            _ => Class::Control,
        };
        byte += 1;
    }
    classes
};

#[inline]
pub(super) fn class(byte: u8) -> Class {
    CLASSES[byte as usize]
}

/// White space to BERT: to its normaliser, vertical tab and form feed are control characters, which it drops, joining what
/// they part.
#[inline(always)]
fn is_bert_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn cut_bert<E>(bytes: &[u8], mut emit: impl FnMut(usize, usize) -> Result<(), E>) -> Result<(), E> {
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        while at < bytes.len() && !is_bert_space(bytes[at]) && class(bytes[at]) != Class::Mark {
            at += 1;
        }
        if at > start {
            emit(start, at)?;
        } else {
            at += 1;
            if class(bytes[start]) == Class::Mark {
                emit(start, at)?;
            }
        }
    }
    Ok(())
}

/// Where the word that begins at `at` ends.
pub(super) fn end_of_word(text: &str, mut at: usize) -> usize {
    while at < text.len() && space_at(text, at).is_none() {
        at += 1;
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
    at
}

/// Bytes of the white space at `at`, if there is one.
#[inline]
pub(super) fn space_at(text: &str, at: usize) -> Option<usize> {
    match class(*text.as_bytes().get(at)?) {
        Class::Space => Some(1),
        Class::Wide => text[at..].chars().next().filter(|c| c.is_whitespace()).map(char::len_utf8),
        _ => None,
    }
}

/// Bytes of a form like `'s` at the start.
#[inline]
pub(super) fn shortened(bytes: &[u8], any_case: bool) -> Option<usize> {
    const FORMS: [&[u8]; 7] = [b"'s", b"'t", b"'re", b"'ve", b"'m", b"'ll", b"'d"];
    if bytes.first() != Some(&b'\'') {
        return None;
    }
    let begins = |form: &[u8]| match bytes.get(..form.len()) {
        Some(begin) if any_case => begin.eq_ignore_ascii_case(form),
        begin => begin == Some(form),
    };
    FORMS.into_iter().find(|form| begins(form)).map(<[u8]>::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::packing::tests::draws_below;

    fn cut(how: Cut, text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        how.for_each::<()>(text, |start, end| {
            found.push(&text[start..end]);
            Ok(())
        })
        .unwrap();
        found
    }

    /// Texts of up to 40 characters of an alphabet, the same each time.
    fn texts(alphabet: &str, number: usize) -> Vec<String> {
        let alphabet: Vec<char> = alphabet.chars().collect();
        let mut draw = draws_below(1);
        let mut text = || (0..draw(41)).map(|_| alphabet[draw(alphabet.len())]).collect();
        (0..number).map(|_| text()).collect()
    }

    #[test]
    fn pretokens_of_the_chunks_are_those_of_the_text() {
        let alphabets = [
            "abcdefgh 1'-.",
            "a \n\t\r\u{b}\u{c}\0\u{1c}\u{7f}!",
            "aé \u{85}\u{a0}\u{2009}\u{2028}\u{3000}田😀\u{301}\n\u{1680}",
            "aaaaaaaaé ",
        ];
        let patterns = crate::tokenize::patterns::tests::all().into_iter().map(Cut::Pattern);
        for how in [Cut::Bert, Cut::ByteLevel].into_iter().chain(patterns) {
            for text in alphabets.iter().flat_map(|alphabet| texts(alphabet, 50_000)) {
                let chunks: Vec<&str> = how.chunks(&text).map(|(start, end)| &text[start..end]).collect();
                assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
                let of_chunks: Vec<&str> = chunks.iter().flat_map(|chunk| cut(how, chunk)).collect();
                assert_eq!(of_chunks, cut(how, &text), "{text:?}");
                match how {
                    Cut::ByteLevel | Cut::Pattern(_) => assert_eq!(chunks.concat(), text),
                    Cut::Bert => {
                        let expected: Vec<&str> =
                            text.split([' ', '\t', '\n', '\r']).filter(|c| !c.is_empty()).collect();
                        assert_eq!(chunks, expected);
                    }
                }
            }
        }
    }
}
