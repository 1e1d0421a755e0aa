//! Tokens: texts to ids of any `tokenizer.json`, aligned with words by offsets, never by splitting strings again.
//!
//! A token is protected when its bytes meet a protected word. Words hold no white space, so a token that only shares the space
//! before a word (byte-level BPE glues it on) does not meet that word by accident.

use std::collections::HashSet;

use rayon::prelude::*;
use tokenizers::{Model, Tokenizer};

use crate::error::{Error, Result};
use crate::spans::check_mask;
use crate::text::Texts;
use crate::words::Words;

pub struct TokenEncoder {
    tokenizer: Tokenizer,
    /// Ids that no text may come to, whatever it spells; the unknown token is not one of them.
    special: HashSet<u32>,
    unknown: Option<u32>,
}

/// Tokens of a batch; every vector but `doc_offsets` has one entry a token.
#[derive(Default)]
pub struct Tokens {
    pub doc_offsets: Vec<i64>,
    pub input_ids: Vec<u32>,
    /// Word of the document, -1 for none.
    pub word_ids: Vec<i32>,
    pub flags: Vec<u8>,
    /// Of the words whose first token this is.
    pub ngram_starts: Vec<u8>,
}

impl TokenEncoder {
    /// From the text of a `tokenizer.json`. Truncation and padding are switched off, and text that spells a special token is
    /// ordinary text: a document must not be able to write `[MASK]`. Where the model itself has it as a piece (Unigram,
    /// WordPiece without a split at punctuation), the unknown token stands in its place.
    pub fn new(json: &str) -> Result<Self> {
        let mut tokenizer: Tokenizer =
            json.parse().map_err(|error| Error::Artifact(format!("tokenizer.json cannot be read: {error}")))?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| Error::Artifact(format!("tokenizer.json: {error}")))?;
        tokenizer.set_encode_special_tokens(true);
        // What the model answers to a character that no vocabulary holds; models without an unknown token answer nothing
        // or several bytes.
        let unknown = match tokenizer.get_model().tokenize("\u{10fffe}") {
            Ok(tokens) if tokens.len() == 1 => Some(tokens[0].id),
            _ => None,
        };
        let special = tokenizer
            .get_added_tokens_decoder()
            .iter()
            .filter(|&(&id, token)| token.special && Some(id) != unknown)
            .map(|(&id, _)| id)
            .collect();
        Ok(Self { tokenizer, special, unknown })
    }

    /// Ids run from 0 to this, exclusive.
    pub fn vocab_size(&self) -> usize {
        let vocabulary = self.tokenizer.get_vocab(true);
        vocabulary.values().max().map_or(0, |&id| id as usize + 1)
    }

    pub fn encode(&self, texts: &Texts, words: &Words, flags: &[u8], ngram_starts: &[u8]) -> Result<Tokens> {
        words.check(texts.len())?;
        check_mask(words, flags)?;
        check_mask(words, ngram_starts)?;
        let parts: Vec<Tokens> = (0..texts.len())
            .into_par_iter()
            .map(|row| {
                let range = words.first(row)..words.first(row + 1);
                self.encode_one(texts.get(row), words.of(row), &flags[range.clone()], &ngram_starts[range])
                    .map_err(|error| Error::Corpus(format!("document {row} of the batch: {error}")))
            })
            .collect::<Result<_>>()?;
        let mut tokens = Tokens::default();
        tokens.doc_offsets.push(0);
        for part in parts {
            tokens.input_ids.extend(part.input_ids);
            tokens.word_ids.extend(part.word_ids);
            tokens.flags.extend(part.flags);
            tokens.ngram_starts.extend(part.ngram_starts);
            tokens.doc_offsets.push(tokens.input_ids.len() as i64);
        }
        Ok(tokens)
    }

    fn encode_one(&self, text: &str, bounds: (&[u32], &[u32]), flags: &[u8], starts: &[u8]) -> Result<Tokens> {
        // The library's message may quote the text: only its existence is passed on.
        let encoding =
            self.tokenizer.encode(text, false).map_err(|_| Error::Corpus("the tokenizer failed on it".into()))?;
        let (from, to) = bounds;
        let ordinary = |&id: &u32| match self.unknown {
            _ if !self.special.contains(&id) => Ok(id),
            Some(unknown) => Ok(unknown),
            None => Err(Error::Corpus("it spells a special token, and the tokenizer has no unknown token".into())),
        };
        let input_ids = encoding.get_ids().iter().map(ordinary).collect::<Result<Vec<u32>>>()?;
        let num_tokens = input_ids.len();
        let mut tokens = Tokens {
            doc_offsets: Vec::new(),
            input_ids,
            word_ids: vec![-1; num_tokens],
            flags: vec![0; num_tokens],
            ngram_starts: vec![0; num_tokens],
        };
        // Words before `unseen` have had their first token.
        let mut unseen = 0;
        for (token, &(start, end)) in encoding.get_offsets().iter().enumerate() {
            let first = to.partition_point(|&word_end| word_end as usize <= start);
            for word in first..from.len() {
                if from[word] as usize >= end {
                    break;
                }
                if tokens.word_ids[token] < 0 {
                    tokens.word_ids[token] = word as i32;
                }
                tokens.flags[token] |= flags[word];
                if word >= unseen {
                    tokens.ngram_starts[token] |= starts[word];
                    unseen = word + 1;
                }
            }
        }
        Ok(tokens)
    }
}
