//! Packed tokens: ids of two or three bytes, and the words they meet as bits.
//!
//! A token is *outside* if it meets no word. It *begins a word* if the first word that it meets differs from that of the token
//! before it (tokens outside are ignored). The word that begins is nearly always the next one. If it is not (the token before
//! meets several words, or a word has no token), an [`Exception`] has the number of skipped words. Another exception has the
//! number of further words of a token that meets several. So two bits for each token are enough to recover its words.

use crate::index::protect::{DIRECT, INDIRECT};
use crate::storage::bits::Bits;

/// A token whose words do not follow from its bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exception {
    /// Number of the token in its documents.
    pub token: u64,
    /// Words between the first word of the token before that met one, and its own.
    pub skipped: u32,
    /// Words that it meets beside the first.
    pub more: u32,
}

/// Tokens of some documents.
#[derive(Default)]
pub struct Packed {
    /// The lower two bytes of each id.
    pub ids: Vec<u16>,
    /// The third byte of each id, where the vocabulary is larger than two bytes number.
    pub high: Vec<u8>,
    /// Tokens that begin a word.
    pub begins: Bits,
    /// Tokens that meet no word.
    pub outside: Bits,
    /// Tokens that meet a direct, or an indirect identifier.
    pub direct: Bits,
    pub indirect: Bits,
    /// Tokens where minimal identifying n-grams start, and their lengths (bit n - 1); ascending.
    pub ngram_starts: Vec<(u64, u8)>,
    /// Ascending by token.
    pub exceptions: Vec<Exception>,
}

/// Tokens as the aligner leaves them: of each its id, first word (-1: none) and flags; of those that meet several words
/// (token, words beside the first), ascending.
pub struct Aligned<'a> {
    pub ids: &'a [u32],
    pub words: &'a [i32],
    pub flags: &'a [u8],
    pub ngram_starts: &'a [u8],
    pub several: &'a [(usize, u32)],
}

impl Packed {
    /// Pack documents of these lengths; None where the words of a document are out of order.
    pub fn of(tokens: &Aligned<'_>, lengths: &[i64], wide: bool) -> Option<Self> {
        let mut packed = Self { ids: tokens.ids.iter().map(|&id| id as u16).collect(), ..Self::default() };
        if wide {
            packed.high = tokens.ids.iter().map(|&id| (id >> 16) as u8).collect();
        }
        packed.outside.extend_from(tokens.words, |&word| word < 0);
        packed.direct.extend_from(tokens.flags, |&flag| flag & DIRECT != 0);
        packed.indirect.extend_from(tokens.flags, |&flag| flag & INDIRECT != 0);
        let starts = tokens.ngram_starts.iter().enumerate().filter(|&(_, &lengths)| lengths != 0);
        packed.ngram_starts = starts.map(|(token, &lengths)| (token as u64, lengths)).collect();
        let mut several = tokens.several.iter().peekable();
        let mut first = 0;
        for &length in lengths {
            let end = first + length as usize;
            let mut last = -1;
            let mut at = first;
            for chunk in tokens.words[first..end].chunks(64) {
                let mut begins = 0u64;
                for (place, &word) in chunk.iter().enumerate() {
                    let is_next = word > last;
                    begins |= u64::from(is_next) << place;
                    if word > last + 1 {
                        packed.exceptions.push(Exception {
                            token: (at + place) as u64,
                            skipped: (word - last - 1) as u32,
                            more: 0,
                        });
                    } else if word >= 0 && word < last {
                        return None;
                    }
                    last = last.max(word);
                }
                packed.begins.push_word(begins, chunk.len());
                at += chunk.len();
            }
            first = end;
        }
        if several.peek().is_some() {
            for &(token, more) in several {
                packed.exceptions.push(Exception { token: token as u64, skipped: 0, more });
            }
            packed.exceptions.sort_by_key(|exception| exception.token);
            packed.exceptions.dedup_by(|next, kept| {
                let is_same = next.token == kept.token;
                if is_same {
                    (kept.skipped, kept.more) = (kept.skipped + next.skipped, kept.more + next.more);
                }
                is_same
            });
        }
        Some(packed)
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }
}
