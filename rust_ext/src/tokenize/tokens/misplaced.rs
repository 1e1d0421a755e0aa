//! Misplaced: where the library's BPE places tokens elsewhere than at their characters.
//!
//! It counts places by the lengths of what it made. A character that it leaves out (no unknown token) has none, so what follows
//! stands too early. The bytes of a character (`byte_fallback`) overtake unknown characters before them, which the library puts out
//! only at the next character that it knows; and they are as many as those of the character with its prefix and suffix.

use std::ops::Range;

use tokenizers::models::bpe::BPE;
use tokenizers::{Model, ModelWrapper, Token};

/// What is needed to place tokens again.
pub(super) struct Misplaced {
    /// The unknown token, where the model has one.
    unknown: Option<u32>,
    /// Whether characters have a prefix or a suffix.
    adds: bool,
}

/// So many bytes as the library counts them, and where these stand.
struct Stretch {
    length: usize,
    bytes: Range<usize>,
}

impl Misplaced {
    /// None where every token stands at its characters.
    pub(super) fn of(model: &ModelWrapper) -> Option<Self> {
        let ModelWrapper::BPE(model) = model else { return None };
        let unknown = model.get_unk_token().as_deref().and_then(|token| model.token_to_id(token));
        let added = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
        let adds = added.into_iter().flatten().any(|added| !added.is_empty());
        let lacks_bytes = || (0..=255).any(|byte| !has_byte(model, byte));
        (unknown.is_none() || model.byte_fallback && (adds || lacks_bytes())).then_some(Self { unknown, adds })
    }

    /// The tokens of a pretoken, each at all characters that it may stand for.
    pub(super) fn placed(&self, model: &ModelWrapper, mut tokens: Vec<Token>, pretoken: &str) -> Vec<Token> {
        let ModelWrapper::BPE(model) = model else { return tokens };
        let end = tokens.last().map_or(pretoken.len(), |token| token.offsets.1);
        let by_bytes = || self.adds || tokens.iter().any(|token| Some(token.id) == self.unknown);
        if end == pretoken.len() && !(model.byte_fallback && by_bytes()) {
            return tokens;
        }
        let stretches = self.stretches(model, pretoken);
        let mut ends = Vec::with_capacity(stretches.len());
        for stretch in &stretches {
            ends.push(ends.last().copied().unwrap_or(0) + stretch.length);
        }
        for token in &mut tokens {
            let (start, end) = token.offsets;
            let first = stretches.get(ends.partition_point(|&to| to <= start));
            let last = stretches.get(ends.partition_point(|&to| to < end));
            token.offsets =
                (first.map_or(start, |first| first.bytes.start), last.map_or(pretoken.len(), |last| last.bytes.end));
        }
        tokens
    }

    /// The characters of a pretoken, those that overtook each other as one.
    fn stretches(&self, model: &BPE, pretoken: &str) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::with_capacity(pretoken.len());
        let (mut waiting, mut overtaken) = (None, false);
        for (start, c) in pretoken.char_indices() {
            let end = start + c.len_utf8();
            let symbol = symbol_of(model, &pretoken[start..end], start == 0, end == pretoken.len());
            let by_bytes = model.byte_fallback && symbol.bytes().all(|byte| has_byte(model, byte));
            let length = if model.token_to_id(&symbol).is_some() {
                (waiting, overtaken) = (None, false);
                end - start
            } else if by_bytes {
                overtaken = waiting.is_some();
                symbol.len()
            } else if self.unknown.is_some() {
                waiting = waiting.or(Some(stretches.len()));
                end - start
            } else {
                0
            };
            stretches.push(Stretch { length, bytes: start..end });
            if let Some(first) = waiting.filter(|_| overtaken) {
                let length = stretches.drain(first + 1..).map(|stretch| stretch.length).sum::<usize>();
                stretches[first].length += length;
                stretches[first].bytes.end = end;
            }
        }
        stretches
    }
}

fn has_byte(model: &BPE, byte: u8) -> bool {
    model.token_to_id(&format!("<0x{byte:02X}>")).is_some()
}

/// A character as the vocabulary has it.
fn symbol_of(model: &BPE, character: &str, is_first: bool, is_last: bool) -> String {
    let prefix = model.continuing_subword_prefix.as_deref().filter(|_| !is_first);
    let suffix = model.end_of_word_suffix.as_deref().filter(|_| is_last);
    [prefix.unwrap_or(""), character, suffix.unwrap_or("")].concat()
}
