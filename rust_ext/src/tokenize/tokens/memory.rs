//! Memory: the chunks and pretokens that a thread has already tokenised, with their tokens.

use crate::storage::buffer::Zero;
use crate::storage::intern::Interner;
use crate::storage::key::Key;
use crate::storage::memo::Memo;
use crate::tokenize::subwords::Subword;

/// A token and the bytes of its chunk or document it stands for.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) id: u32,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// What a thread has met.
pub(super) struct Memory {
    pub(super) pretokens: Interner,
    /// Pieces of pretoken `p` are `bounds[p]..bounds[p + 1]`.
    pub(super) bounds: Vec<usize>,
    pub(super) pieces: Vec<Piece>,
    /// Of the pretoken at hand.
    pub(super) subwords: Vec<Subword>,
    pub(super) spare_parts: Vec<Part>,
    pub(super) chunks: Memo<Chunk>,
    /// Tokens of the chunks of three to eight tokens and up to one word.
    pub(super) blocks: Vec<Block>,
    /// Tokens, then words, of longer chunks.
    pub(super) parts: Vec<Part>,
}

/// A chunk's tokens and words.
#[derive(Clone, Copy, Default)]
pub(super) struct Chunk {
    /// Of up to two tokens and up to one word; of more, the number of the block or of the first part.
    pub(super) ids: [u32; 2],
    pub(super) num_tokens: u8,
    pub(super) num_words: u8,
    /// Bytes of its first word.
    pub(super) start: u8,
    pub(super) end: u8,
    /// Of up to eight tokens and up to one word: bit i where token i meets the word.
    pub(super) meets: u8,
}

// SAFETY: every field is an integer or an array of integers, of which zero is a value; none needs drop.
unsafe impl Zero for Chunk {}

/// Up to eight tokens of a chunk with up to one word.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) ids: [u32; 8],
    /// -1 where a token does not meet the word, else 0.
    pub(super) misses: [i32; 8],
}

/// A chunk of the text at hand, and what is remembered of it.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) key: Key,
    pub(super) chunk: Option<Chunk>,
}

/// A token of a chunk and the words it meets, or a word of a chunk and its bytes.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) id: u32,
    /// Words `first..last` of the chunk meet the token; of these `fresh..last` do so first. Of a word, bytes `first..last`.
    pub(super) first: u8,
    pub(super) last: u8,
    pub(super) fresh: u8,
}

/// Longer pretokens are not remembered: they hardly come back.
pub(super) const MAX_REMEMBERED: usize = 64;
/// A memory with more pieces than this is emptied, as a corpus of identifiers could make it grow without end; so is one with more
/// blocks and parts: a chunk that is forgotten leaves its block behind, of 64 bytes.
pub(super) const MAX_PIECES: usize = 1 << 22;
pub(super) const MAX_BLOCKS: usize = 1 << 20;

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            pretokens: Interner::default(),
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
