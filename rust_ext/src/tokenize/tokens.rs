//! Tokens: texts to ids of any `tokenizer.json`, aligned with words by offsets, never by splitting strings again.
//!
//! A token is protected if its bytes meet a protected word, or the characters of a protected span between words. Neither contains
//! white space, so a token that only includes the space before a word (as in byte-level BPE) does not meet it by accident.
//!
//! If the tokenizer allows its texts to be cut ([`Cut`]), the library tokenises each distinct pretoken once, and its pieces are
//! stored; the result is the library's, token for token. Most text is even faster: a chunk of up to 15 bytes (a word and the marks
//! around it) is stored with its tokens *and* the words that they meet, and each time a check confirms that the document's words
//! lie at the same places. Cost: about 5 ns for each token of such a chunk, otherwise that of the library.

mod align;
mod chunks;
mod library;
mod memory;
mod misplaced;

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use align::{Aligner, Buffer, Document};
use memory::{Memory, Piece};
use misplaced::Misplaced;
use rayon::prelude::*;
use tokenizers::Tokenizer;

use crate::error::{Error, Result};
use crate::text::spans::check_mask;
use crate::text::texts::Texts;
use crate::text::words::Words;
use crate::tokenize::charsmap::Charsmap;
use crate::tokenize::packed::{Aligned, Packed};
use crate::tokenize::pretokens::Cut;
use crate::tokenize::subwords::Subwords;
use crate::tokenize::tokenizer_check::{check_expansion, check_length, fields_of, opened, unknown_of};
use crate::tokenize::whole::Cutting;

pub struct TokenEncoder {
    tokenizer: Tokenizer,
    /// Ids that no text may come to, whatever it spells, ascending; the unknown token is not one of them.
    special: Vec<u32>,
    unknown: Option<u32>,
    /// Of a model that places some tokens elsewhere than at their characters.
    misplaced: Option<Misplaced>,
    cutting: Option<Cutting>,
    charsmap: Option<Charsmap>,
    subwords: Option<Subwords>,
    /// What the normaliser does to visible ASCII: to lower case, or nothing.
    lowercase: bool,
    vocab_size: usize,
    /// One for each thread that encodes.
    memories: Vec<Mutex<Memory>>,
    /// Buffers of earlier batches: their pages are there already.
    spares: Mutex<Vec<Buffer>>,
}

/// Documents are shared out by about this many bytes, so that a slow thread delays no other.
const SHARE: usize = 1 << 17;
/// Buffers kept between batches: those of 32 MiB of text.
const MAX_SPARES: usize = 256;

/// Tokens of a batch, in the order of its documents.
#[derive(Default)]
pub struct Tokens {
    pub doc_offsets: Vec<i64>,
    pub input_ids: Vec<u32>,
    pub word_ids: Vec<i32>,
    pub flags: Vec<u8>,
    pub ngram_starts: Vec<u8>,
}

impl TokenEncoder {
    /// From the text of a `tokenizer.json`. Truncation and padding are switched off, and text that spells a special token is
    /// ordinary text: a document must not be able to write `[MASK]`. Where the model itself has it as a piece (Unigram,
    /// WordPiece without a split at punctuation), the unknown token stands in its place.
    pub fn new(json: &str, num_threads: usize) -> Result<Self> {
        let mut tokenizer = opened(json)?;
        tokenizer.set_encode_special_tokens(true);
        let unknown = unknown_of(&tokenizer);
        let misplaced = Misplaced::of(tokenizer.get_model());
        let mut special: Vec<u32> = tokenizer
            .get_added_tokens_decoder()
            .iter()
            .filter(|&(&id, token)| token.special && Some(id) != unknown)
            .map(|(&id, _)| id)
            .collect();
        special.sort_unstable();
        let parsed = fields_of(json)?;
        check_expansion(&parsed)?;
        let lowercase = parsed["normalizer"]["type"] == "BertNormalizer" && parsed["normalizer"]["lowercase"] == true;
        let memories = (0..num_threads.max(1)).map(|_| Mutex::new(Memory::new())).collect();
        let cutting = Cutting::of(&parsed)?;
        let charsmap = Charsmap::of(&parsed);
        let subwords = cutting.as_ref().and_then(|_| Subwords::of(&parsed["model"]));
        let vocab_size = tokenizer.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
        let spares = Mutex::default();
        Ok(Self {
            tokenizer,
            special,
            unknown,
            misplaced,
            cutting,
            charsmap,
            subwords,
            lowercase,
            vocab_size,
            memories,
            spares,
        })
    }

    /// How texts reach the library: "bert" or "bytelevel", by distinct pretokens; "library", each document whole.
    pub fn path(&self) -> &'static str {
        match self.cutting.as_ref().map(|cutting| cutting.cut) {
            Some(Cut::Bert) => "bert",
            Some(Cut::ByteLevel | Cut::Pattern(_)) => "bytelevel",
            None => "library",
        }
    }

    /// Ids run from 0 to this, exclusive.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Tokens of the texts. `gaps` are stretches of bytes outside words: what meets one is direct.
    pub fn encode(
        &self,
        texts: &Texts,
        words: &Words,
        flags: &[u8],
        ngram_starts: &[u8],
        gaps: Option<&Words>,
    ) -> Result<Tokens> {
        let shares = self.encode_shares(texts, words, (flags, ngram_starts), gaps, |tokens, _| Ok(tokens))?;
        let doc_offsets = ends_of(shares.iter().flat_map(|(_, lengths)| lengths));
        let mut all = Tokens { doc_offsets, ..Tokens::default() };
        for (share, _) in shares {
            all.input_ids.extend_from_slice(&share.ids[..share.len]);
            all.word_ids.extend_from_slice(&share.words[..share.len]);
            all.flags.extend_from_slice(&share.flags[..share.len]);
            all.ngram_starts.extend_from_slice(&share.starts[..share.len]);
            self.put_back(share);
        }
        Ok(all)
    }

    /// Packed tokens of the texts as [`TokenEncoder::encode`] gives them, and their offsets by document. Sparse columns
    /// count from the batch's first token.
    pub fn pack(
        &self,
        texts: &Texts,
        words: &Words,
        flags: &[u8],
        ngram_starts: &[u8],
        gaps: Option<&Words>,
    ) -> Result<(Vec<i64>, Vec<Packed>)> {
        let wide = self.vocab_size > 1 << 16;
        let mut shares = self.encode_shares(texts, words, (flags, ngram_starts), gaps, |tokens, lengths| {
            let aligned = Aligned {
                ids: &tokens.ids[..tokens.len],
                words: &tokens.words[..tokens.len],
                flags: &tokens.flags[..tokens.len],
                ngram_starts: &tokens.starts[..tokens.len],
                several: &tokens.several,
            };
            let packed = Packed::of(&aligned, lengths, wide).ok_or_else(|| {
                Error::Corpus("the tokenizer gives the tokens of a document in another order than their words".into())
            });
            self.put_back(tokens);
            packed
        })?;
        let mut first = 0;
        for (packed, _) in &mut shares {
            packed.exceptions.iter_mut().for_each(|exception| exception.token += first);
            packed.ngram_starts.iter_mut().for_each(|(token, _)| *token += first);
            first += packed.len() as u64;
        }
        let doc_offsets = ends_of(shares.iter().flat_map(|(_, lengths)| lengths));
        Ok((doc_offsets, shares.into_iter().map(|(packed, _)| packed).collect()))
    }

    /// Encode the documents, share by share; `finish` takes the tokens of a share and the number of each document's.
    fn encode_shares<T: Send>(
        &self,
        texts: &Texts,
        words: &Words,
        (flags, ngram_starts): (&[u8], &[u8]),
        gaps: Option<&Words>,
        finish: impl Fn(Buffer, &[i64]) -> Result<T> + Sync,
    ) -> Result<Vec<(T, Vec<i64>)>> {
        words.check(texts.len())?;
        check_mask(words, flags)?;
        check_mask(words, ngram_starts)?;
        gaps.map_or(Ok(()), |gaps| gaps.check(texts.len()))?;
        shares(texts)
            .into_par_iter()
            .with_max_len(1)
            .map(|rows| {
                // A memory is whole after every pretoken, whatever happened to the thread that had it.
                let mut memory = self.memory();
                let mut tokens = self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
                let mut lengths = Vec::with_capacity(rows.len());
                tokens.truncate(0);
                for row in rows {
                    let before = tokens.len;
                    let range = words.first(row)..words.first(row + 1);
                    let document = Document {
                        words: words.of(row),
                        flags: &flags[range.clone()],
                        starts: &ngram_starts[range],
                        gaps: gaps.map_or((&[], &[]), |gaps| gaps.of(row)),
                    };
                    self.encode_one(texts.get(row), document, &mut memory, &mut tokens)
                        .and_then(|()| check_length(texts.get(row).len(), tokens.len - before))
                        .map_err(|error| Error::Corpus(format!("document {row} of the batch: {error}")))?;
                    lengths.push((tokens.len - before) as i64);
                }
                Ok((finish(tokens, &lengths)?, lengths))
            })
            .collect()
    }

    /// Keep a buffer for the next batch, but for one that a long document made large.
    fn put_back(&self, buffer: Buffer) {
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.ids.len() <= 2 * SHARE && spares.len() < MAX_SPARES {
            spares.push(buffer);
        }
    }

    /// A memory that no other thread has; waits for one where there are more threads than memories.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        let free = self.memories.iter().find_map(|memory| match memory.try_lock() {
            Ok(memory) => Some(memory),
            Err(TryLockError::Poisoned(memory)) => Some(memory.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        free.unwrap_or_else(|| self.memories[0].lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn encode_one(&self, text: &str, document: Document<'_>, memory: &mut Memory, tokens: &mut Buffer) -> Result<()> {
        let before = tokens.len;
        let cut = self.cutting.as_ref().and_then(|cutting| cutting.of_text(text));
        if let Some(cut) = cut {
            if self.encode_chunks(cut, text, document, memory, tokens)? {
                return Ok(());
            }
            tokens.truncate(before);
        }
        let mut aligner = Aligner::new(document.words);
        let push = |piece: Piece| document.push_piece(piece, aligner.meet(piece), 0, tokens);
        match cut {
            Some(cut) => self.tokenise_by_pretokens(cut, text, memory, push),
            None => self.tokenise(text, push),
        }
    }
}

/// The bounds of runs of these lengths.
fn ends_of<'a>(lengths: impl Iterator<Item = &'a i64>) -> Vec<i64> {
    let mut end = 0;
    let ends = lengths.map(|length| {
        end += length;
        end
    });
    [0].into_iter().chain(ends).collect()
}

/// Runs of rows with about as many bytes each.
fn shares(texts: &Texts) -> Vec<Range<usize>> {
    let (mut shares, mut start, mut bytes) = (Vec::new(), 0, 0);
    for row in 0..texts.len() {
        bytes += texts.get(row).len();
        if bytes >= SHARE || row + 1 == texts.len() {
            shares.push(start..row + 1);
            (start, bytes) = (row + 1, 0);
        }
    }
    shares
}
