//! Tokens: texts to ids of any `tokenizer.json`, aligned with words by offsets, never by splitting strings again.
//!
//! A token is protected when its bytes meet a protected word. Words hold no white space, so a token that only shares the space
//! before a word (byte-level BPE glues it on) does not meet that word by accident.
//!
//! Where the tokenizer lets its texts be cut ([`Cut`]), each distinct pretoken goes through the library once and its pieces are
//! remembered; the answer is the library's, token for token. Cost: about 20 ns a token then, else the library's.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use tokenizers::{Model, Tokenizer};

use crate::error::{Error, Result};
use crate::intern::Interner;
use crate::pretokens::Cut;
use crate::spans::check_mask;
use crate::text::Texts;
use crate::words::Words;

pub struct TokenEncoder {
    tokenizer: Tokenizer,
    /// Ids that no text may come to, whatever it spells; the unknown token is not one of them.
    special: HashSet<u32>,
    unknown: Option<u32>,
    cut: Option<Cut>,
    /// One for each thread that encodes.
    memories: Vec<Mutex<Memory>>,
}

/// A token and the bytes of its pretoken or document it stands for.
#[derive(Clone, Copy)]
struct Piece {
    id: u32,
    start: u32,
    end: u32,
}

/// The pieces of every pretoken a thread has met.
struct Memory {
    pretokens: Interner,
    /// Pieces of pretoken `p` are `bounds[p]..bounds[p + 1]`.
    bounds: Vec<usize>,
    pieces: Vec<Piece>,
}

/// Longer pretokens are not remembered: they hardly come back.
const MAX_REMEMBERED: usize = 64;
/// A memory with more pieces than this is emptied: what a corpus of identifiers could grow without end.
const MAX_PIECES: usize = 1 << 24;

impl Memory {
    fn new() -> Self {
        Self { pretokens: Interner::new(), bounds: vec![0], pieces: Vec::new() }
    }
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
    pub fn new(json: &str, num_threads: usize) -> Result<Self> {
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
        let parsed = serde_json::from_str(json).map_err(|_| Error::Artifact("tokenizer.json is not JSON".into()))?;
        let memories = (0..num_threads.max(1)).map(|_| Mutex::new(Memory::new())).collect();
        Ok(Self { tokenizer, special, unknown, cut: Cut::of(&parsed), memories })
    }

    /// How texts reach the library: "bert" or "bytelevel", by distinct pretokens; "library", each document whole.
    pub fn path(&self) -> &'static str {
        match self.cut {
            Some(Cut::Bert) => "bert",
            Some(Cut::ByteLevel) => "bytelevel",
            None => "library",
        }
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
        let shares = shares(texts, self.memories.len());
        let parts: Vec<Tokens> = shares
            .into_par_iter()
            .zip(&self.memories)
            .map(|(rows, memory)| {
                // A memory is whole after every pretoken, whatever happened to the thread that had it.
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                let mut tokens = Tokens::default();
                for row in rows {
                    let range = words.first(row)..words.first(row + 1);
                    let mut aligner = Aligner::new(words.of(row), &flags[range.clone()], &ngram_starts[range]);
                    self.encode_one(texts.get(row), &mut memory, |piece| aligner.push(piece, &mut tokens))
                        .map_err(|error| Error::Corpus(format!("document {row} of the batch: {error}")))?;
                    tokens.doc_offsets.push(tokens.input_ids.len() as i64);
                }
                Ok(tokens)
            })
            .collect::<Result<_>>()?;
        let num_tokens = parts.iter().map(|part| part.input_ids.len()).sum();
        let mut tokens = Tokens {
            doc_offsets: Vec::with_capacity(texts.len() + 1),
            input_ids: Vec::with_capacity(num_tokens),
            word_ids: Vec::with_capacity(num_tokens),
            flags: Vec::with_capacity(num_tokens),
            ngram_starts: Vec::with_capacity(num_tokens),
        };
        tokens.doc_offsets.push(0);
        for part in parts {
            let before = tokens.input_ids.len() as i64;
            tokens.doc_offsets.extend(part.doc_offsets.iter().map(|end| before + end));
            tokens.input_ids.extend_from_slice(&part.input_ids);
            tokens.word_ids.extend_from_slice(&part.word_ids);
            tokens.flags.extend_from_slice(&part.flags);
            tokens.ngram_starts.extend_from_slice(&part.ngram_starts);
        }
        Ok(tokens)
    }

    fn encode_one(&self, text: &str, memory: &mut Memory, mut push: impl FnMut(Piece)) -> Result<()> {
        let Some(cut) = self.cut else {
            return self.tokenise(text, push);
        };
        cut.for_each(text, |start, end| {
            let pretoken = &text[start..end];
            let mut at = |piece: Piece| {
                push(Piece { id: piece.id, start: piece.start + start as u32, end: piece.end + start as u32 })
            };
            if pretoken.len() > MAX_REMEMBERED {
                return self.tokenise(pretoken, at);
            }
            if memory.pieces.len() > MAX_PIECES {
                *memory = Memory::new();
            }
            if let Some(known) = memory.pretokens.find(pretoken) {
                let bounds = memory.bounds[known as usize]..memory.bounds[known as usize + 1];
                memory.pieces[bounds].iter().for_each(|&piece| at(piece));
                return Ok(());
            }
            let first = memory.pieces.len();
            let pieces = &mut memory.pieces;
            if let Err(error) = self.tokenise(pretoken, |piece| pieces.push(piece)) {
                memory.pieces.truncate(first);
                return Err(error);
            }
            memory.pretokens.intern(pretoken);
            memory.bounds.push(memory.pieces.len());
            memory.pieces[first..].iter().for_each(|&piece| at(piece));
            Ok(())
        })
    }

    /// The library's own answer.
    fn tokenise(&self, text: &str, mut push: impl FnMut(Piece)) -> Result<()> {
        // The library's message may quote the text: only its existence is passed on.
        let encoding =
            self.tokenizer.encode(text, false).map_err(|_| Error::Corpus("the tokenizer failed on it".into()))?;
        for (&id, &(start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            let id = match self.unknown {
                _ if !self.special.contains(&id) => id,
                Some(unknown) => unknown,
                None => {
                    let message = "it spells a special token, and the tokenizer has no unknown token";
                    return Err(Error::Corpus(message.into()));
                }
            };
            push(Piece { id, start: start as u32, end: end as u32 });
        }
        Ok(())
    }
}

/// Runs of rows with about as many bytes each, `num_shares` of them; some may be empty.
fn shares(texts: &Texts, num_shares: usize) -> Vec<std::ops::Range<usize>> {
    let wanted = texts.num_bytes().div_ceil(num_shares).max(1);
    let (mut shares, mut start, mut bytes) = (Vec::with_capacity(num_shares), 0, 0);
    for row in 0..texts.len() {
        bytes += texts.get(row).len();
        if bytes >= wanted && shares.len() + 1 < num_shares {
            shares.push(start..row + 1);
            (start, bytes) = (row + 1, 0);
        }
    }
    shares.push(start..texts.len());
    shares
}

/// Gives the tokens of one document, in order, the words they meet.
struct Aligner<'a> {
    from: &'a [u32],
    to: &'a [u32],
    flags: &'a [u8],
    starts: &'a [u8],
    /// First word that does not end before the last token's start.
    first: usize,
    last_start: u32,
    /// Words before it have had their first token.
    unseen: usize,
}

impl<'a> Aligner<'a> {
    fn new((from, to): (&'a [u32], &'a [u32]), flags: &'a [u8], starts: &'a [u8]) -> Self {
        Self { from, to, flags, starts, first: 0, last_start: 0, unseen: 0 }
    }

    #[inline]
    fn push(&mut self, piece: Piece, tokens: &mut Tokens) {
        let Piece { id, start, end } = piece;
        if start < self.last_start {
            self.first = self.to.partition_point(|&word_end| word_end <= start);
        }
        self.last_start = start;
        while self.to.get(self.first).is_some_and(|&word_end| word_end <= start) {
            self.first += 1;
        }
        let (mut word_id, mut flags, mut starts) = (-1, 0, 0);
        for word in self.first..self.from.len() {
            if self.from[word] >= end {
                break;
            }
            if word_id < 0 {
                word_id = word as i32;
            }
            flags |= self.flags[word];
            if word >= self.unseen {
                starts |= self.starts[word];
                self.unseen = word + 1;
            }
        }
        tokens.input_ids.push(id);
        tokens.word_ids.push(word_id);
        tokens.flags.push(flags);
        tokens.ngram_starts.push(starts);
    }
}
