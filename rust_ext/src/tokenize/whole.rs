//! Whole: the documents that a tokenizer must see whole, though it can be cut: those with an added token, and those that its
//! normaliser changes.

use aho_corasick::AhoCorasick;
use serde_json::Value;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::patterns::Pattern;
use super::pretokens::Cut;
use crate::error::{Error, Result};

/// A tokenizer that can be cut, and where not.
pub struct Cutting {
    pub cut: Cut,
    /// Added tokens that are no special ones are looked for in the text before anything else.
    added: Option<AhoCorasick>,
    /// Whether the normaliser composes characters.
    composes: bool,
}

impl Cutting {
    /// Of a `tokenizer.json`; None where no document can be cut.
    pub fn of(tokenizer: &Value) -> Result<Option<Self>> {
        let Some(mut cut) = Cut::of(tokenizer) else { return Ok(None) };
        let composes = tokenizer["normalizer"]["type"] == "NFC";
        let (mut contents, mut spaces) = (Vec::new(), usize::MAX);
        let added = tokenizer["added_tokens"].as_array().map_or(&[][..], |added| added);
        let (special, others): (Vec<_>, Vec<_>) = added.iter().partition(|token| token["special"] == true);
        // The library finds a special token, passes it over, and finds no other within: one with a space hides others beyond it.
        let holds_space = |token: &Value| token["content"].as_str().is_some_and(|c| c.contains(char::is_whitespace));
        if !others.is_empty() && special.into_iter().any(holds_space) {
            return Ok(None);
        }
        for token in others {
            let content = token["content"].as_str().unwrap_or_default();
            // One that takes white space beside it, or holds a space, reaches over the places where texts are cut.
            if cut == Cut::Bert || content.is_empty() || token["lstrip"] == true || token["rstrip"] == true {
                return Ok(None);
            }
            if content.bytes().all(|byte| byte.is_ascii_whitespace()) {
                if token["single_word"] == true {
                    return Ok(None); // the chunk before decides
                }
                spaces = spaces.min(content.len());
            } else if content.contains(char::is_whitespace) {
                return Ok(None);
            } else {
                contents.push(content.to_owned());
                if composes {
                    contents.push(content.nfc().collect());
                }
            }
        }
        if spaces < usize::MAX {
            if cut != Cut::ByteLevel || spaces < 2 {
                return Ok(None);
            }
            cut = Cut::Pattern(Pattern::with_spaces(spaces));
        }
        let added = (!contents.is_empty()).then(|| AhoCorasick::new(&contents)).transpose();
        let added = added.map_err(|_| Error::Artifact("tokenizer.json has too many added tokens".into()))?;
        Ok(Some(Self { cut, added, composes }))
    }

    /// The cut of a text; None if it goes to the library whole.
    #[inline]
    pub fn of_text(&self, text: &str) -> Option<Cut> {
        // What is below U+0300 composes with nothing before it.
        let composed =
            !self.composes || text.bytes().all(|byte| byte < 0xcc) || is_nfc_quick(text.chars()) == IsNormalized::Yes;
        (composed && self.added.as_ref().is_none_or(|added| !added.is_match(text))).then_some(self.cut)
    }
}
