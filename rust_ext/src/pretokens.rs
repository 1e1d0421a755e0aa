//! Pretokens: pieces of a text that a tokenizer treats apart, found without the tokenizer.
//!
//! Where a tokenizer's own configuration says that nothing it does reaches across a boundary, each distinct pretoken has to be
//! tokenised once only. Two families are cut here, BERT's and GPT-2's; every other tokenizer gets the whole document.

use serde_json::Value;

/// How texts are cut for a tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// BERT: at ASCII white space, and around each ASCII punctuation mark. What its normaliser does (NFD, accents, lower
    /// case, control characters, spaces around CJK) never reaches across one of these.
    Bert,
    /// GPT-2: the byte-level pattern; a word that is not all ASCII stays whole, with the space before it.
    ByteLevel,
}

impl Cut {
    /// The cut that a `tokenizer.json` allows; None where there is none we know of.
    pub fn of(tokenizer: &Value) -> Option<Self> {
        let kind = |part: &str| tokenizer[part]["type"].as_str();
        // An added token that is not special is looked for in the text before anything else, and may hold a space.
        let plain = tokenizer["added_tokens"].as_array().is_none_or(|added| added.iter().all(|t| t["special"] == true));
        let dropout = tokenizer["model"]["dropout"].as_f64().is_some_and(|share| share > 0.0);
        if !plain || dropout {
            return None;
        }
        let pre_tokenizer = &tokenizer["pre_tokenizer"];
        match (kind("normalizer"), kind("pre_tokenizer")) {
            (None | Some("BertNormalizer"), Some("BertPreTokenizer")) => Some(Cut::Bert),
            (None, Some("ByteLevel"))
                if pre_tokenizer["add_prefix_space"] == false && pre_tokenizer["use_regex"] != false =>
            {
                Some(Cut::ByteLevel)
            }
            _ => None,
        }
    }

    /// Call `emit(start, end)` with the byte bounds of each pretoken, in order.
    #[inline]
    pub fn for_each<E>(self, text: &str, emit: impl FnMut(usize, usize) -> Result<(), E>) -> Result<(), E> {
        match self {
            Cut::Bert => cut_bert(text.as_bytes(), emit),
            Cut::ByteLevel => cut_bytelevel(text, emit),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
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
fn class(byte: u8) -> Class {
    CLASSES[byte as usize]
}

fn cut_bert<E>(bytes: &[u8], mut emit: impl FnMut(usize, usize) -> Result<(), E>) -> Result<(), E> {
    // To the normaliser, vertical tab and form feed are control characters: it drops them, and joins what they part.
    let parts = |byte: u8| match class(byte) {
        Class::Space => !matches!(byte, 0x0b | 0x0c),
        Class::Mark => true,
        _ => false,
    };
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        while at < bytes.len() && !parts(bytes[at]) {
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

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
fn cut_bytelevel<E>(text: &str, mut emit: impl FnMut(usize, usize) -> Result<(), E>) -> Result<(), E> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let mut last = at; // where the last white space of the run begins
        while let Some(width) = space_at(text, at) {
            last = at;
            at += width;
        }
        if at == bytes.len() {
            return emit(start, at);
        }
        // The run keeps all but its last white space; that one stands alone, unless it is a space that the word takes.
        if last > start {
            emit(start, last)?;
        }
        let word = if at == start {
            at
        } else if bytes[last] == b' ' {
            last
        } else {
            emit(last, at)?;
            at
        };
        let mut ascii = true;
        while at < bytes.len() && space_at(text, at).is_none() {
            ascii &= bytes[at] < 128;
            at += 1;
            while at < bytes.len() && !text.is_char_boundary(at) {
                at += 1;
            }
        }
        if ascii { cut_ascii(bytes, word, at, &mut emit)? } else { emit(word, at)? }
    }
    Ok(())
}

/// Bytes of the white space at `at`, if there is one.
#[inline]
fn space_at(text: &str, at: usize) -> Option<usize> {
    match class(*text.as_bytes().get(at)?) {
        Class::Space => Some(1),
        Class::Wide => text[at..].chars().next().filter(|c| c.is_whitespace()).map(char::len_utf8),
        _ => None,
    }
}

/// The pretokens of an ASCII word, which may begin with one space.
fn cut_ascii<E>(
    bytes: &[u8],
    start: usize,
    end: usize,
    emit: &mut impl FnMut(usize, usize) -> Result<(), E>,
) -> Result<(), E> {
    const SHORTENED: [&[u8]; 7] = [b"'s", b"'t", b"'re", b"'ve", b"'m", b"'ll", b"'d"];
    let mut at = start;
    while at < end {
        let from = at;
        let shortened = SHORTENED.iter().find(|&&form| bytes[at] == b'\'' && bytes[at..end].starts_with(form));
        if let Some(form) = shortened {
            at += form.len();
        } else {
            at += usize::from(bytes[at] == b' ');
            let kind = |byte: u8| match class(byte) {
                Class::Letter => 0,
                Class::Digit => 1,
                _ => 2,
            };
            let first = kind(bytes[at]);
            while at < end && kind(bytes[at]) == first {
                at += 1;
            }
        }
        emit(from, at)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(how: Cut, text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        how.for_each::<()>(text, |start, end| {
            found.push(&text[start..end]);
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn bert_pretokens() {
        assert_eq!(cut(Cut::Bert, "Mr. Été-X\t 12/05\n"), ["Mr", ".", "Été", "-", "X", "12", "/", "05"]);
        assert_eq!(cut(Cut::Bert, "a\u{b}b\u{a0}c"), ["a\u{b}b\u{a0}c"]);
        assert!(cut(Cut::Bert, " \n").is_empty());
    }

    #[test]
    fn bytelevel_pretokens() {
        assert_eq!(cut(Cut::ByteLevel, "He's 12mg,\n\n ok"), ["He", "'s", " 12", "mg", ",", "\n\n", " ok"]);
        assert_eq!(cut(Cut::ByteLevel, "  a \n"), [" ", " a", " \n"]);
        assert_eq!(cut(Cut::ByteLevel, "a\nb \u{a0}c"), ["a", "\n", "b", " ", "\u{a0}", "c"]);
        assert_eq!(cut(Cut::ByteLevel, "it''s 'll été's"), ["it", "''", "s", " '", "ll", " été's"]);
        assert!(cut(Cut::ByteLevel, "").is_empty());
    }
}
