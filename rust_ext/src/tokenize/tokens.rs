//! Tokens: texts to ids of any `tokenizer.json`, aligned with words by offsets, never by splitting strings again.
//!
//! A token is protected when its bytes meet a protected word, or what a protected span holds between words. Neither holds
//! white space, so a token that only shares the space before a word (byte-level BPE glues it on) does not meet it by accident.
//!
//! Where the tokenizer lets its texts be cut ([`Cut`]), each distinct pretoken goes through the library once and its pieces are
//! remembered; the answer is the library's, token for token. Most text does not even come to that: a chunk of up to 15 bytes
//! (a word, the marks around it) is remembered with its tokens *and* the words they meet, and whether the document's words lie
//! where they lay before is checked each time. Cost: about 5 ns a token then, else the library's.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rayon::prelude::*;
use tokenizers::{Model, Tokenizer};

use crate::error::{Error, Result};
use crate::index::protect::DIRECT;
use crate::storage::buffer::{Zero, prefetch};
use crate::storage::intern::Interner;
use crate::storage::key::Key;
use crate::storage::memo::Memo;
use crate::text::spans::check_mask;
use crate::text::texts::Texts;
use crate::text::words::Words;
use crate::tokenize::charsmap::Charsmap;
use crate::tokenize::pretokens::Cut;
use crate::tokenize::subwords::{Subword, Subwords};
use crate::tokenize::tokenizer_check::{check_expansion, check_length};

pub struct TokenEncoder {
    tokenizer: Tokenizer,
    /// Ids that no text may come to, whatever it spells, ascending; the unknown token is not one of them.
    special: Vec<u32>,
    unknown: Option<u32>,
    cut: Option<Cut>,
    charsmap: Option<Charsmap>,
    subwords: Option<Subwords>,
    /// What the normaliser does to visible ASCII: to lower case, or nothing.
    lowercase: bool,
    /// One for each thread that encodes.
    memories: Vec<Mutex<Memory>>,
    /// Buffers of earlier batches: their pages are there already.
    spares: Mutex<Vec<Buffer>>,
}

/// A token and the bytes of its chunk or document it stands for.
#[derive(Clone, Copy)]
struct Piece {
    id: u32,
    start: u32,
    end: u32,
}

/// What a thread has met.
struct Memory {
    pretokens: Interner,
    /// Pieces of pretoken `p` are `bounds[p]..bounds[p + 1]`.
    bounds: Vec<usize>,
    pieces: Vec<Piece>,
    /// Of the pretoken at hand.
    subwords: Vec<Subword>,
    spare_parts: Vec<Part>,
    chunks: Memo<Chunk>,
    /// Tokens of the chunks of three to eight tokens and up to one word.
    blocks: Vec<Block>,
    /// Tokens, then words, of longer chunks.
    parts: Vec<Part>,
}

/// A chunk's tokens and words.
#[derive(Clone, Copy, Default)]
struct Chunk {
    /// Of up to two tokens and up to one word; of more, the number of the block or of the first part.
    ids: [u32; 2],
    num_tokens: u8,
    num_words: u8,
    /// Bytes of its first word.
    start: u8,
    end: u8,
    /// Of up to eight tokens and up to one word: bit i where token i meets the word.
    meets: u8,
}

// SAFETY: every field is an integer or an array of integers, of which zero is a value; none needs drop.
unsafe impl Zero for Chunk {}

/// Up to eight tokens of a chunk with up to one word.
#[derive(Clone, Copy)]
struct Block {
    ids: [u32; 8],
    /// -1 where a token does not meet the word, else 0.
    misses: [i32; 8],
}

/// A chunk of the text at hand, and what is remembered of it.
#[derive(Clone, Copy, Default)]
struct Seen {
    start: usize,
    end: usize,
    key: Key,
    chunk: Option<Chunk>,
}

/// Chunks looked up together: one then waits for memory beside the others.
const AHEAD: usize = 32;

/// A token of a chunk and the words it meets, or a word of a chunk and its bytes.
#[derive(Clone, Copy)]
struct Part {
    id: u32,
    /// Words `first..last` of the chunk meet the token; of these `fresh..last` do so first. Of a word, bytes `first..last`.
    first: u8,
    last: u8,
    fresh: u8,
}

/// Longer pretokens are not remembered: they hardly come back.
const MAX_REMEMBERED: usize = 64;
/// A memory with more pieces or parts than this is emptied: what a corpus of identifiers could grow without end.
const MAX_PIECES: usize = 1 << 24;
/// Documents are shared out by about this many bytes, so that a slow thread holds nobody up.
const SHARE: usize = 1 << 17;
/// Buffers kept between batches: those of 32 MiB of text.
const MAX_SPARES: usize = 256;

impl Memory {
    fn new() -> Self {
        Self {
            pretokens: Interner::new(),
            bounds: vec![0],
            pieces: Vec::new(),
            subwords: Vec::new(),
            spare_parts: Vec::new(),
            chunks: Memo::new(13, 18),
            blocks: Vec::new(),
            parts: Vec::new(),
        }
    }
}

/// Tokens of a batch, in the order of its documents.
pub struct Tokens {
    pub doc_offsets: Vec<i64>,
    shares: Vec<Buffer>,
}

/// Where the tokens of a batch go, one entry a token each.
pub struct Columns<'a> {
    pub input_ids: &'a mut [u32],
    pub word_ids: &'a mut [i32],
    pub flags: &'a mut [u8],
    pub ngram_starts: &'a mut [u8],
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
        let mut special: Vec<u32> = tokenizer
            .get_added_tokens_decoder()
            .iter()
            .filter(|&(&id, token)| token.special && Some(id) != unknown)
            .map(|(&id, _)| id)
            .collect();
        special.sort_unstable();
        let parsed: serde_json::Value =
            serde_json::from_str(json).map_err(|_| Error::Artifact("tokenizer.json is not JSON".into()))?;
        check_expansion(&parsed)?;
        let lowercase = parsed["normalizer"]["lowercase"] == true;
        let memories = (0..num_threads.max(1)).map(|_| Mutex::new(Memory::new())).collect();
        let cut = Cut::of(&parsed);
        let charsmap = Charsmap::of(&parsed);
        let subwords = cut.and_then(|_| Subwords::of(&parsed["model"]));
        Ok(Self { tokenizer, special, unknown, cut, charsmap, subwords, lowercase, memories, spares: Mutex::default() })
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

    /// Tokens of the texts. `gaps` are stretches of bytes outside words: what meets one is direct.
    pub fn encode(
        &self,
        texts: &Texts,
        words: &Words,
        flags: &[u8],
        ngram_starts: &[u8],
        gaps: Option<&Words>,
    ) -> Result<Tokens> {
        words.check(texts.len())?;
        check_mask(words, flags)?;
        check_mask(words, ngram_starts)?;
        gaps.map_or(Ok(()), |gaps| gaps.check(texts.len()))?;
        let shares = shares(texts)
            .into_par_iter()
            .with_max_len(1)
            .map(|rows| {
                // A memory is whole after every pretoken, whatever happened to the thread that had it.
                let mut memory = self.memory();
                let mut tokens = self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
                let mut lengths = Vec::with_capacity(rows.len());
                tokens.len = 0;
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
                Ok((tokens, lengths))
            })
            .collect::<Result<Vec<_>>>()?;
        let mut doc_offsets = Vec::with_capacity(texts.len() + 1);
        let mut end = 0;
        doc_offsets.push(0);
        for length in shares.iter().flat_map(|(_, lengths)| lengths) {
            end += length;
            doc_offsets.push(end);
        }
        Ok(Tokens { doc_offsets, shares: shares.into_iter().map(|(tokens, _)| tokens).collect() })
    }

    /// Fill columns of [`Tokens::len`] entries.
    pub fn write(&self, tokens: Tokens, columns: Columns<'_>) {
        let Columns { mut input_ids, mut word_ids, mut flags, mut ngram_starts } = columns;
        let mut jobs = Vec::with_capacity(tokens.shares.len());
        for share in &tokens.shares {
            let (ids, words, own_flags, starts);
            (ids, input_ids) = input_ids.split_at_mut(share.len);
            (words, word_ids) = word_ids.split_at_mut(share.len);
            (own_flags, flags) = flags.split_at_mut(share.len);
            (starts, ngram_starts) = ngram_starts.split_at_mut(share.len);
            jobs.push((share, ids, words, own_flags, starts));
        }
        jobs.into_par_iter().with_max_len(1).for_each(|(share, ids, words, flags, starts)| {
            ids.copy_from_slice(&share.ids[..share.len]);
            words.copy_from_slice(&share.words[..share.len]);
            flags.copy_from_slice(&share.flags[..share.len]);
            starts.copy_from_slice(&share.starts[..share.len]);
        });
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        spares.extend(tokens.shares.into_iter().filter(|share| share.ids.len() <= 2 * SHARE));
        spares.truncate(MAX_SPARES);
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
        if let Some(cut) = self.cut {
            if self.encode_chunks(cut, text, document, memory, tokens)? {
                return Ok(());
            }
            tokens.truncate(before);
        }
        let mut aligner = Aligner::new(document.words);
        let push = |piece: Piece| document.push_piece(piece, aligner.meet(piece), 0, tokens);
        match self.cut {
            Some(cut) => self.tokenise_by_pretokens(cut, text, memory, push),
            None => self.tokenise(text, push),
        }
    }

    /// By what is remembered of the text's chunks; false where a word does not lie within a chunk, or not as it did before.
    fn encode_chunks(
        &self,
        cut: Cut,
        text: &str,
        document: Document<'_>,
        memory: &mut Memory,
        tokens: &mut Buffer,
    ) -> Result<bool> {
        if memory.parts.len() + memory.blocks.len() > MAX_PIECES {
            memory.blocks.clear();
            memory.parts.clear();
            memory.chunks.clear();
        }
        let (from, to) = document.words;
        let lies = |word: usize, at: usize, first: u8, last: u8| {
            from.get(word) == Some(&(at as u32 + u32::from(first)))
                && to.get(word) == Some(&(at as u32 + u32::from(last)))
        };
        let mut word = 0;
        let mut chunks = cut.chunks(text);
        let mut seen = [Seen::default(); AHEAD];
        loop {
            let mut num_seen = 0;
            for (place, (start, end)) in seen.iter_mut().zip(&mut chunks) {
                let key = Key::of(text.as_bytes(), start, end).unwrap_or_default();
                memory.chunks.prefetch(key);
                *place = Seen { start, end, key, chunk: None };
                num_seen += 1;
            }
            for place in &mut seen[..num_seen] {
                // A longer chunk has nobody's key.
                let is_known = place.key != Key::default() && !document.is_direct_gap(place.start, place.end);
                place.chunk = memory.chunks.get(place.key).filter(|_| is_known);
                if let Some(Chunk { num_tokens: 3.., ids, .. }) = place.chunk
                    && let Some(block) = memory.blocks.get(ids[0] as usize)
                {
                    prefetch(block);
                }
            }
            for &Seen { start, end, chunk, .. } in &seen[..num_seen] {
                let Some(chunk) = chunk else {
                    match self.encode_new(cut, text, start..end, word, document, memory, tokens)? {
                        Some(num_words) => word += num_words,
                        None => return Ok(false),
                    }
                    continue;
                };
                if chunk.num_words > 0 && !lies(word, start, chunk.start, chunk.end) {
                    return Ok(false);
                }
                if chunk.num_words <= 1 && chunk.num_tokens <= 8 {
                    tokens.make_room();
                    if chunk.num_tokens <= 2 {
                        let misses = [i32::from(chunk.meets & 1) - 1, i32::from(chunk.meets >> 1) - 1];
                        tokens.push_of_word(chunk, chunk.ids, misses, word, document);
                    } else {
                        let Block { ids, misses } = memory.blocks[chunk.ids[0] as usize];
                        tokens.push_of_word(chunk, ids, misses, word, document);
                    }
                    word += usize::from(chunk.num_words);
                    continue;
                }
                let (first, num_tokens) = (chunk.ids[0] as usize, usize::from(chunk.num_tokens));
                let parts = &memory.parts[first..first + num_tokens + usize::from(chunk.num_words)];
                let (parts, words) = parts.split_at(num_tokens);
                if !words.iter().enumerate().all(|(i, part)| lies(word + i, start, part.first, part.last)) {
                    return Ok(false);
                }
                for part in parts {
                    let met = Met { first: part.first.into(), last: part.last.into(), fresh: part.fresh.into() };
                    document.push(part.id, met, word, tokens);
                }
                word += words.len();
            }
            if num_seen < AHEAD {
                return Ok(word == from.len());
            }
        }
    }

    /// Tokenise a chunk, and remember it if it is short; the number of its words, or None if they do not lie within it.
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn encode_new(
        &self,
        cut: Cut,
        text: &str,
        chunk: Range<usize>,
        word: usize,
        document: Document<'_>,
        memory: &mut Memory,
        tokens: &mut Buffer,
    ) -> Result<Option<usize>> {
        let (from, to) = document.words;
        let (start, end) = (chunk.start as u32, chunk.end as u32);
        let num_words = from[word..].iter().take_while(|&&word_start| word_start < end).count();
        let own = (&from[word..word + num_words], &to[word..word + num_words]);
        if num_words > 0 && (own.0[0] < start || own.1[num_words - 1] > end) {
            return Ok(None);
        }
        let key = Key::of(text.as_bytes(), chunk.start, chunk.end);
        let mut parts = std::mem::take(&mut memory.spare_parts);
        parts.clear();
        let mut aligner = Aligner::new(own);
        self.tokenise_by_pretokens(cut, &text[chunk], memory, |piece| {
            let piece = Piece { id: piece.id, start: piece.start + start, end: piece.end + start };
            let met = aligner.meet(piece);
            document.push_piece(piece, met, word, tokens);
            if key.is_some() {
                // Up to 15 words, all of them in up to 15 bytes.
                parts.push(Part { id: piece.id, first: met.first as u8, last: met.last as u8, fresh: met.fresh as u8 });
            }
        })?;
        if let (Some(key), Ok(num_tokens)) = (key, u8::try_from(parts.len())) {
            let words = own.0.iter().zip(own.1).map(|(&a, &b)| ((a - start) as u8, (b - start) as u8));
            let (first, last) = words.clone().next().unwrap_or_default();
            let mut known =
                Chunk { num_tokens, num_words: num_words as u8, start: first, end: last, ..Chunk::default() };
            if num_words > 1 || num_tokens > 8 {
                known.ids[0] = memory.parts.len() as u32;
                memory.parts.extend_from_slice(&parts);
                memory.parts.extend(words.map(|(first, last)| Part { id: 0, first, last, fresh: 0 }));
            } else {
                let mut block = Block { ids: [0; 8], misses: [-1; 8] };
                for (i, part) in parts.iter().enumerate() {
                    block.ids[i] = part.id;
                    if part.first < part.last {
                        block.misses[i] = 0;
                        known.meets |= 1 << i;
                    }
                }
                if num_tokens <= 2 {
                    known.ids = [block.ids[0], block.ids[1]];
                } else {
                    known.ids[0] = memory.blocks.len() as u32;
                    memory.blocks.push(block);
                }
            }
            memory.chunks.insert(key, known);
        }
        memory.spare_parts = parts;
        Ok(Some(num_words))
    }

    fn tokenise_by_pretokens(
        &self,
        cut: Cut,
        text: &str,
        memory: &mut Memory,
        mut push: impl FnMut(Piece),
    ) -> Result<()> {
        cut.for_each(text, |start, end| {
            let pretoken = &text[start..end];
            let mut at = |piece: Piece| {
                push(Piece { id: piece.id, start: piece.start + start as u32, end: piece.end + start as u32 })
            };
            if pretoken.len() > MAX_REMEMBERED {
                return self.tokenise(pretoken, at);
            }
            if self.subwords_of(pretoken, &mut memory.subwords) {
                for &(id, start, end) in &memory.subwords {
                    at(Piece { id: self.allowed(id)?, start: start as u32, end: end as u32 });
                }
                return Ok(());
            }
            if memory.pieces.len() > MAX_PIECES {
                (memory.pretokens, memory.bounds, memory.pieces) = (Interner::new(), vec![0], Vec::new());
            }
            if let Some(known) = memory.pretokens.find(pretoken) {
                let bounds = memory.bounds[known as usize]..memory.bounds[known as usize + 1];
                memory.pieces[bounds].iter().for_each(|&piece| at(piece));
                return Ok(());
            }
            let first = memory.bounds.last().copied().unwrap_or(0);
            let pieces = &mut memory.pieces;
            pieces.truncate(first); // of a pretoken that failed
            self.tokenise_pretoken(cut, pretoken, |piece| pieces.push(piece))?;
            memory.pretokens.intern(pretoken);
            memory.bounds.push(memory.pieces.len());
            memory.pieces[first..].iter().for_each(|&piece| at(piece));
            Ok(())
        })
    }

    /// The pieces of a short pretoken of visible ASCII, where the model is one that need not be asked; false: ask it.
    fn subwords_of(&self, pretoken: &str, pieces: &mut Vec<Subword>) -> bool {
        let Some(subwords) = &self.subwords else { return false };
        let word = pretoken.strip_prefix(' ').unwrap_or(pretoken).as_bytes();
        let spaced = word.len() < pretoken.len();
        if pretoken.is_empty() || !word.iter().all(u8::is_ascii_graphic) {
            return false;
        }
        if !self.lowercase {
            return subwords.of_word(word, spaced, pieces).is_some();
        }
        let mut lower = [0; MAX_REMEMBERED];
        let lower = &mut lower[..word.len()];
        lower.copy_from_slice(word);
        lower.make_ascii_lowercase();
        subwords.of_word(lower, spaced, pieces).is_some()
    }

    /// The library's own answer for a pretoken; where it is visible ASCII, from the library's model alone.
    fn tokenise_pretoken(&self, cut: Cut, pretoken: &str, mut push: impl FnMut(Piece)) -> Result<()> {
        let word = pretoken.strip_prefix(' ').unwrap_or(pretoken);
        if !word.bytes().all(|byte| byte.is_ascii_graphic()) || pretoken.is_empty() {
            return self.tokenise(pretoken, push);
        }
        // A byte-level model has its own name for the space, of two bytes.
        let (name, longer) = match cut {
            Cut::ByteLevel if word.len() < pretoken.len() => (format!("\u{120}{word}"), 1),
            _ if self.lowercase => (word.to_ascii_lowercase(), 0),
            _ => (word.to_owned(), 0),
        };
        let tokens = self.tokenizer.get_model().tokenize(&name).map_err(|_| failed())?;
        for token in tokens {
            let (start, end) = token.offsets;
            let place = |at: usize| at.saturating_sub(longer) as u32;
            push(Piece { id: self.allowed(token.id)?, start: place(start), end: place(end) });
        }
        Ok(())
    }

    /// The library's own answer.
    fn tokenise(&self, text: &str, mut push: impl FnMut(Piece)) -> Result<()> {
        let deleted = self.charsmap.as_ref().map_or(0, |map| map.deleted_prefix(text));
        let text = &text[deleted..];
        let encoding = self.tokenizer.encode(text, false).map_err(|_| failed())?;
        for (&id, &(start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            let start = self.charsmap.as_ref().map_or(start, |map| map.begin(text, start));
            push(Piece { id: self.allowed(id)?, start: (deleted + start) as u32, end: (deleted + end) as u32 });
        }
        Ok(())
    }

    /// An id that a text may come to: the unknown token in the place of a special one.
    fn allowed(&self, id: u32) -> Result<u32> {
        match self.unknown {
            _ if self.special.binary_search(&id).is_err() => Ok(id),
            Some(unknown) => Ok(unknown),
            None => Err(Error::Corpus("it spells a special token, and the tokenizer has no unknown token".into())),
        }
    }
}

/// The library's message may quote the text: only its existence is passed on.
fn failed() -> Error {
    Error::Corpus("the tokenizer failed on it".into())
}

impl Tokens {
    pub fn len(&self) -> usize {
        self.shares.iter().map(|share| share.len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
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

/// Columns that grow in place: what lies beyond `len` is room, as much in each.
#[derive(Default)]
struct Buffer {
    ids: Vec<u32>,
    words: Vec<i32>,
    flags: Vec<u8>,
    starts: Vec<u8>,
    len: usize,
}

/// Byte i is all ones where bit i of the index is.
const SPREAD: [u64; 256] = {
    let mut spread = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let mut i = 0;
        while i < 8 {
            if bits >> i & 1 != 0 {
                spread[bits] |= 0xff << (8 * i);
            }
            i += 1;
        }
        bits += 1;
    }
    spread
};

/// The next N places of a column that has room for them.
#[inline(always)]
fn places<T, const N: usize>(column: &mut [T], at: usize) -> &mut [T; N] {
    match column[at..].first_chunk_mut() {
        Some(places) => places,
        None => unreachable!("room was made"),
    }
}

impl Buffer {
    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Room for eight tokens.
    #[inline(always)]
    fn make_room(&mut self) {
        if self.ids.len() < self.len + 8 {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let room = (self.len * 2).max(1 << 12);
        self.ids.resize(room, 0);
        self.words.resize(room, 0);
        self.flags.resize(room, 0);
        self.starts.resize(room, 0);
    }

    /// The tokens of a chunk of up to N tokens and up to one word, which is `word`: N are written where there is room, and
    /// as many counted as there are.
    #[inline(always)]
    fn push_of_word<const N: usize>(
        &mut self,
        chunk: Chunk,
        ids: [u32; N],
        misses: [i32; N],
        word: usize,
        document: Document<'_>,
    ) {
        let meets = usize::from(chunk.meets);
        let spread = |of: &[u8]| u64::from(of.get(word).copied().unwrap_or(0)) * 0x0101_0101_0101_0101;
        let flags = spread(document.flags) & SPREAD[meets];
        let starts = spread(document.starts) & SPREAD[meets & meets.wrapping_neg()];
        *places(&mut self.ids, self.len) = ids;
        let words: &mut [i32; N] = places(&mut self.words, self.len);
        for i in 0..N {
            words[i] = word as i32 | misses[i];
        }
        *places(&mut self.flags, self.len) = flags.to_le_bytes();
        *places(&mut self.starts, self.len) = starts.to_le_bytes();
        self.len += usize::from(chunk.num_tokens);
    }
}

/// What is known of a document's words.
#[derive(Clone, Copy)]
struct Document<'a> {
    words: (&'a [u32], &'a [u32]),
    flags: &'a [u8],
    starts: &'a [u8],
    /// Stretches outside words of which every token is direct.
    gaps: (&'a [u32], &'a [u32]),
}

impl Document<'_> {
    /// Whether these bytes meet a direct stretch outside words.
    #[inline]
    fn is_direct_gap(&self, start: usize, end: usize) -> bool {
        let (from, to) = self.gaps;
        if from.is_empty() {
            return false;
        }
        let first = to.partition_point(|&gap_end| gap_end as usize <= start);
        from.get(first).is_some_and(|&gap_start| (gap_start as usize) < end)
    }

    /// A token with its place in the document.
    fn push_piece(&self, piece: Piece, met: Met, base: usize, tokens: &mut Buffer) {
        self.push(piece.id, met, base, tokens);
        tokens.flags[tokens.len - 1] |= DIRECT * u8::from(self.is_direct_gap(piece.start as usize, piece.end as usize));
    }

    /// A token by the words it meets, which are counted from word `base`.
    fn push(&self, id: u32, met: Met, base: usize, tokens: &mut Buffer) {
        let (first, last, fresh) = (base + met.first as usize, base + met.last as usize, base + met.fresh as usize);
        let or = |of: &[u8]| of.iter().fold(0, |all, one| all | one);
        tokens.make_room();
        let at = tokens.len;
        tokens.ids[at] = id;
        tokens.words[at] = if first < last { first as i32 } else { -1 };
        tokens.flags[at] = or(&self.flags[first..last]);
        tokens.starts[at] = or(&self.starts[fresh..last]);
        tokens.len += 1;
    }
}

/// Words that meet a token, `first..last`, and those of them that no token before it met, `fresh..last`.
#[derive(Clone, Copy)]
struct Met {
    first: u32,
    last: u32,
    fresh: u32,
}

/// Gives the tokens of one document or chunk, in order, the words they meet.
struct Aligner<'a> {
    from: &'a [u32],
    to: &'a [u32],
    /// First word that does not end before the last token's start.
    first: usize,
    last_start: u32,
    /// Words before it have had their first token.
    unseen: usize,
}

impl<'a> Aligner<'a> {
    fn new((from, to): (&'a [u32], &'a [u32])) -> Self {
        Self { from, to, first: 0, last_start: 0, unseen: 0 }
    }

    #[inline]
    fn meet(&mut self, Piece { start, end, .. }: Piece) -> Met {
        if start < self.last_start {
            self.first = self.to.partition_point(|&word_end| word_end <= start);
        }
        self.last_start = start;
        while self.to.get(self.first).is_some_and(|&word_end| word_end <= start) {
            self.first += 1;
        }
        let mut last = self.first;
        while self.from.get(last).is_some_and(|&word_start| word_start < end) {
            last += 1;
        }
        let fresh = self.unseen.clamp(self.first, last);
        if self.first < last {
            self.unseen = self.unseen.max(last);
        }
        Met { first: self.first as u32, last: last as u32, fresh: fresh as u32 }
    }
}
