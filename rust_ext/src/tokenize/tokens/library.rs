//! Library: pieces of a text from the tokenizers library, which is called once for each distinct pretoken.

use super::TokenEncoder;
use super::memory::{MAX_PIECES, MAX_REMEMBERED, Memory, Piece};
use crate::error::{Error, Result};
use crate::storage::intern::Interner;
use crate::tokenize::pretokens::Cut;
use crate::tokenize::subwords::Subword;

use tokenizers::{Encoding, Model, OffsetType, PreTokenizer, Token};

impl TokenEncoder {
    pub(super) fn tokenise_by_pretokens(
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
                (memory.pretokens, memory.bounds, memory.pieces) = (Interner::default(), vec![0], Vec::new());
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
    pub(super) fn subwords_of(&self, pretoken: &str, pieces: &mut Vec<Subword>) -> bool {
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
    pub(super) fn tokenise_pretoken(&self, cut: Cut, pretoken: &str, mut push: impl FnMut(Piece)) -> Result<()> {
        let word = pretoken.strip_prefix(' ').unwrap_or(pretoken);
        if !word.bytes().all(|byte| byte.is_ascii_graphic()) || pretoken.is_empty() {
            return self.tokenise(pretoken, push);
        }
        // A byte-level model has its own name for the space, of two bytes.
        let (name, longer) = if cut.is_byte_level() && word.len() < pretoken.len() {
            (format!("\u{120}{word}"), 1)
        } else if self.lowercase {
            (word.to_ascii_lowercase(), 0)
        } else {
            (word.to_owned(), 0)
        };
        let tokens = self.tokenizer.get_model().tokenize(&name).map_err(|_| failed())?;
        for token in self.placed(tokens, &name) {
            let (start, end) = token.offsets;
            let place = |at: usize| at.saturating_sub(longer) as u32;
            push(Piece { id: self.allowed(token.id)?, start: place(start), end: place(end) });
        }
        Ok(())
    }

    /// The library's own answer.
    pub(super) fn tokenise(&self, text: &str, mut push: impl FnMut(Piece)) -> Result<()> {
        let deleted = self.charsmap.as_ref().map_or(0, |map| map.deleted_prefix(text));
        let text = &text[deleted..];
        let encoding = self.encoding_of(text).map_err(|_| failed())?;
        for (&id, &(start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            let start = self.charsmap.as_ref().map_or(start, |map| map.begin(text, start));
            push(Piece { id: self.allowed(id)?, start: (deleted + start) as u32, end: (deleted + end) as u32 });
        }
        Ok(())
    }

    fn encoding_of(&self, text: &str) -> tokenizers::Result<Encoding> {
        let Self { tokenizer, .. } = self;
        if self.misplaced.is_none() {
            return tokenizer.encode(text, false);
        }
        let mut parts = tokenizer.get_added_vocabulary().extract_and_normalize(tokenizer.get_normalizer(), text);
        tokenizer.get_pre_tokenizer().map_or(Ok(()), |steps| steps.pre_tokenize(&mut parts))?;
        let model = tokenizer.get_model();
        parts.tokenize(|part| Ok(self.placed(model.tokenize(part.get())?, part.get())))?;
        tokenizer.post_process(parts.into_encoding(None, 0, OffsetType::Byte)?, None, false)
    }

    /// The tokens of a pretoken at their characters.
    fn placed(&self, tokens: Vec<Token>, pretoken: &str) -> Vec<Token> {
        match &self.misplaced {
            Some(misplaced) => misplaced.placed(self.tokenizer.get_model(), tokens, pretoken),
            None => tokens,
        }
    }

    /// An id that a text may come to: the unknown token in the place of a special one.
    pub(super) fn allowed(&self, id: u32) -> Result<u32> {
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
