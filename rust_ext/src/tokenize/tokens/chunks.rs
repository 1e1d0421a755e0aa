//! Chunks: tokenisation of a text from stored results for its words and the marks around them.

use std::ops::Range;

use super::TokenEncoder;
use super::align::{Aligner, Buffer, Document, Met};
use super::memory::{Block, Chunk, MAX_BLOCKS, Memory, Part, Piece, Seen};
use crate::error::Result;
use crate::storage::buffer::prefetch;
use crate::storage::key::Key;
use crate::tokenize::pretokens::Cut;

/// Chunks looked up together: one then waits for memory beside the others.
const AHEAD: usize = 32;

impl TokenEncoder {
    /// By what is remembered of the text's chunks; false where a word does not lie within a chunk, or not as it did before.
    pub(super) fn encode_chunks(
        &self,
        cut: Cut,
        text: &str,
        document: Document<'_>,
        memory: &mut Memory,
        tokens: &mut Buffer,
    ) -> Result<bool> {
        if memory.parts.len() + memory.blocks.len() > MAX_BLOCKS {
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
                // A longer chunk has the default key, which no string has.
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
    pub(super) fn encode_new(
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
        if let Some(key) = key {
            memory.remember(key, &parts, start, own);
        }
        memory.spare_parts = parts;
        Ok(Some(num_words))
    }
}

impl Memory {
    /// Remember the tokens of a chunk that begins at `start`, and its words; not those of more than 255 tokens.
    fn remember(&mut self, key: Key, parts: &[Part], start: u32, own: (&[u32], &[u32])) {
        let num_words = own.0.len();
        if let Ok(num_tokens) = u8::try_from(parts.len()) {
            let words = own.0.iter().zip(own.1).map(|(&a, &b)| ((a - start) as u8, (b - start) as u8));
            let (first, last) = words.clone().next().unwrap_or_default();
            let mut known =
                Chunk { num_tokens, num_words: num_words as u8, start: first, end: last, ..Chunk::default() };
            if num_words > 1 || num_tokens > 8 {
                known.ids[0] = self.parts.len() as u32;
                self.parts.extend_from_slice(parts);
                self.parts.extend(words.map(|(first, last)| Part { id: 0, first, last, fresh: 0 }));
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
                    known.ids[0] = self.blocks.len() as u32;
                    self.blocks.push(block);
                }
            }
            self.chunks.insert(key, known);
        }
    }
}
