//! Tokenizer check: a bound on how much a `tokenizer.json` can lengthen a text, so that no document becomes gigabytes.
//!
//! A normaliser that replaces `e` by a thousand of them, three times, turns one character into a thousand million. The growth of
//! each step is computed from the file, because a trial run would already do the damage. Steps that Unicode defines (NFKC, lower
//! case) have a known bound.

use serde_json::Value;
use tokenizers::{Model, Tokenizer};

use crate::error::{Error, Result};

/// The most characters that the steps of a normaliser may together make of one; published tokenizers make up to 40.
const MOST_PER_CHARACTER: u64 = 100;
/// The most tokens of a document's byte; published tokenizers make up to 11.
const MOST_TOKENS_PER_BYTE: usize = 100;

/// The tokenizer of a `tokenizer.json`, which neither cuts nor pads.
pub fn opened(json: &str) -> Result<Tokenizer> {
    let mut tokenizer: Tokenizer =
        json.parse().map_err(|error| Error::Artifact(format!("tokenizer.json cannot be read: {error}")))?;
    tokenizer.with_padding(None);
    let untruncated = tokenizer.with_truncation(None).map(|_| ());
    untruncated.map_err(|_| Error::Artifact("tokenizer.json cannot be used (its truncation is wrong)".into()))?;
    Ok(tokenizer)
}

pub fn fields_of(json: &str) -> Result<Value> {
    serde_json::from_str(json).map_err(|_| Error::Artifact("tokenizer.json is not JSON".into()))
}

/// What the model answers to a character that no vocabulary holds; models without an unknown token answer nothing or several bytes.
pub fn unknown_of(tokenizer: &Tokenizer) -> Option<u32> {
    match tokenizer.get_model().tokenize("\u{10fffe}") {
        Ok(tokens) if tokens.len() == 1 => Some(tokens[0].id),
        _ => None,
    }
}

/// Refuse a tokenizer whose normaliser can make a text too long, or that makes other tokens of a text each time.
pub fn check_expansion(tokenizer: &Value) -> Result<()> {
    if tokenizer["model"]["dropout"].as_f64().is_some_and(|share| share > 0.0) {
        return Err(Error::Artifact(
            "tokenizer.json draws the tokens of a text anew each time: set dropout of its model to null".into(),
        ));
    }
    let found = expansion(&tokenizer["normalizer"]);
    if found > MOST_PER_CHARACTER {
        return Err(Error::Artifact(format!(
            "tokenizer.json: the normalizer can make {} characters of one, expected at most {MOST_PER_CHARACTER}; look at its \
             steps Replace, Prepend and Precompiled",
            if found == u64::MAX { "countless".into() } else { found.to_string() },
        )));
    }
    Ok(())
}

/// Refuse more tokens of a document than a tokenizer that is meant for text can make.
pub fn check_length(num_bytes: usize, num_tokens: usize) -> Result<()> {
    let most = (num_bytes + 1).saturating_mul(MOST_TOKENS_PER_BYTE); // of nothing some make a space
    if num_tokens > most {
        return Err(Error::Corpus(format!(
            "the tokenizer makes {num_tokens} tokens of {num_bytes} bytes, expected at most {most}"
        )));
    }
    Ok(())
}

/// The most characters that a step makes of one, all steps before it aside; `u64::MAX` is more than that.
fn expansion(step: &Value) -> u64 {
    match step["type"].as_str() {
        Some("Sequence") => {
            let steps = step["normalizers"].as_array().map_or(&[][..], Vec::as_slice);
            steps.iter().map(expansion).fold(1, u64::saturating_mul)
        }
        Some("Replace") => {
            let made = len(&step["content"]);
            match step["pattern"]["String"].as_str() {
                Some(pattern) => made.div_ceil((pattern.chars().count() as u64).max(1)).max(1),
                // A regular expression may match before each character and at the end.
                None => made + 1,
            }
        }
        // Once for each piece between added tokens, which may be a character long.
        Some("Prepend") => len(&step["prepend"]) + 1,
        Some("Precompiled") => longest_replacement(&step["precompiled_charsmap"]),
        _ => 1,
    }
}

fn len(text: &Value) -> u64 {
    text.as_str().map_or(0, |text| text.chars().count() as u64)
}

/// The longest text that a table of SentencePiece holds: a number, so many bytes of a tree, and texts that end with NUL.
fn longest_replacement(table: &Value) -> u64 {
    let bytes = table.as_str().map(from_base64).unwrap_or_default();
    let Some((size, rest)) = bytes.split_first_chunk() else { return 1 };
    let texts = rest.get(u32::from_le_bytes(*size) as usize..).unwrap_or_default();
    let texts = texts.split(|&byte| byte == 0).map(|text| String::from_utf8_lossy(text).chars().count());
    texts.max().map_or(1, |longest| (longest as u64).max(1))
}

/// What the library has decoded before: nothing here is wrong, and what ends it is left out.
fn from_base64(text: &str) -> Vec<u8> {
    let (mut bytes, mut held, mut num_bits) = (Vec::with_capacity(text.len() / 4 * 3), 0u32, 0);
    for letter in text.bytes() {
        let digit = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        held = held << 6 | u32::from(digit);
        num_bits += 6;
        if num_bits >= 8 {
            num_bits -= 8;
            bytes.push((held >> num_bits) as u8);
            held &= (1 << num_bits) - 1;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steps_multiply_and_those_of_unicode_do_not_count() {
        let replace = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": content});
        let regex = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "});
        let prepend = json!({"type": "Prepend", "prepend": "▁"});
        let sequence = |steps: Vec<Value>| json!({"type": "Sequence", "normalizers": steps});
        let thousand = replace("e", &"e".repeat(1_000));
        let table: Vec<(Value, u64)> = vec![
            (Value::Null, 1),
            (json!({"type": "NFKC"}), 1),
            (replace(" ", "▁"), 1),
            (replace("``", "\""), 1),
            (replace("", "abc"), 3),
            (replace("ab", "abcde"), 3),
            (regex.clone(), 2),
            (sequence(vec![prepend.clone(), replace(" ", "▁")]), 2),
            (sequence(vec![sequence(vec![prepend]), regex, json!({"type": "Lowercase"})]), 4),
            (sequence(vec![]), 1),
            (sequence(vec![thousand.clone(); 3]), 1_000_000_000),
            (sequence(vec![thousand; 9]), u64::MAX),
        ];
        for (step, expected) in table {
            assert_eq!(expansion(&step), expected, "{step}");
            assert_eq!(check_expansion(&json!({"normalizer": step})).is_ok(), expected <= MOST_PER_CHARACTER);
        }
    }

    #[test]
    fn a_table_of_sentencepiece_is_as_long_as_its_longest_text() {
        // A tree of eight bytes, "é" twice, "abc".
        let table = json!("CAAAAAAAAAAAAAAAw6nDqQBhYmMA");
        assert_eq!(from_base64(table.as_str().unwrap()), b"\x08\0\0\0\0\0\0\0\0\0\0\0\xc3\xa9\xc3\xa9\0abc\0");
        assert_eq!(longest_replacement(&table), 3);
        for broken in [json!(""), json!("CAAA"), json!("////////"), json!(null), json!("CAAAAA==")] {
            assert_eq!(longest_replacement(&broken), 1);
        }
    }

    #[test]
    fn a_document_has_as_many_tokens_as_its_bytes_allow() {
        for (num_bytes, num_tokens) in [(0, 0), (0, 100), (5, 0), (1, 200)] {
            check_length(num_bytes, num_tokens).unwrap();
        }
        for (num_bytes, num_tokens) in [(1, 201), (0, 101)] {
            assert!(check_length(num_bytes, num_tokens).is_err());
        }
    }
}
