//! Planes: from the protection of words to one bit for each token, for documents whose tokens are packed (`packed`).
//!
//! A token has a flag where a word that it meets has it. No text is read, and no tokenizer.

use std::ops::Range;

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::index::protect::{DIRECT, INDIRECT};
use crate::storage::bits::{Bits, bit_at};
use crate::tokenize::packed::Exception;

/// Tokens of some documents, in a store of more: bits stand at the numbers that tokens have in the store.
#[derive(Clone, Copy)]
pub struct StoredTokens<'a> {
    pub begins: &'a [u8],
    pub outside: &'a [u8],
    /// Tokens that meet what a span of the text holds between words.
    pub gaps: Option<&'a [u8]>,
    /// Of the whole store, ascending.
    pub exceptions: &'a [Exception],
    /// Tokens of document d are `offsets[d]..offsets[d + 1]`, by their numbers in the store.
    pub offsets: &'a [i64],
}

/// What is protected of the words of the same documents; those of document d are `offsets[d]..offsets[d + 1]`.
#[derive(Clone, Copy)]
pub struct FlaggedWords<'a> {
    pub flags: &'a [u8],
    /// Bit n - 1 where a minimal identifying n-gram of n words starts.
    pub ngram_starts: &'a [u8],
    pub offsets: &'a [i64],
    /// Documents whose tokens the planes have bits for; others are passed over.
    pub kept: &'a [bool],
}

/// One bit a token of the kept documents each, and those tokens where n-grams start: their numbers among these tokens, and the
/// lengths as bits.
#[derive(Default)]
pub struct Planes {
    pub direct: Bits,
    pub indirect: Bits,
    pub starts: Vec<(u64, u8)>,
}

/// Documents that one thread takes at a time.
const SHARE: usize = 64;

/// The planes of some documents.
pub fn planes(tokens: StoredTokens<'_>, words: FlaggedWords<'_>) -> Result<Planes> {
    check(tokens, words)?;
    let num_documents = words.kept.len();
    let shares: Vec<Range<usize>> =
        (0..num_documents).step_by(SHARE).map(|first| first..(first + SHARE).min(num_documents)).collect();
    let parts: Vec<Planes> = shares
        .into_par_iter()
        .map(|documents| {
            let mut made = Planes::default();
            let mut scratch = Vec::new();
            for document in documents {
                one_document(tokens, words, document, &mut scratch, &mut made)?;
            }
            Ok(made)
        })
        .collect::<Result<_>>()?;
    let mut whole = Planes::default();
    for part in parts {
        let base = whole.direct.len() as u64;
        whole.starts.extend(part.starts.iter().map(|&(token, lengths)| (base + token, lengths)));
        whole.direct.append(&part.direct);
        whole.indirect.append(&part.indirect);
    }
    Ok(whole)
}

fn check(tokens: StoredTokens<'_>, words: FlaggedWords<'_>) -> Result<()> {
    let bad = |what: &str| Err(Error::Artifact(format!("token store: {what}; damaged, run protect again")));
    let num_documents = words.kept.len();
    let goes_up = |offsets: &[i64]| {
        offsets.len() == num_documents + 1 && offsets.first().is_some_and(|&first| first >= 0) && offsets.is_sorted()
    };
    if !goes_up(tokens.offsets) || !goes_up(words.offsets) || words.offsets[0] != 0 {
        return bad("documents, tokens and words do not fit together");
    }
    let num_words = words.offsets[num_documents] as usize;
    if words.flags.len() != num_words || words.ngram_starts.len() != num_words {
        return bad("flags do not fit the words");
    }
    let end = tokens.offsets[num_documents] as usize;
    if [Some(tokens.begins), Some(tokens.outside), tokens.gaps].into_iter().flatten().any(|bits| bits.len() * 8 < end) {
        return bad("a plane is shorter than the tokens");
    }
    Ok(())
}

/// Append the planes of one document; `scratch` is room for the flags of its tokens.
fn one_document(
    tokens: StoredTokens<'_>,
    words: FlaggedWords<'_>,
    document: usize,
    scratch: &mut Vec<u8>,
    made: &mut Planes,
) -> Result<()> {
    let own = tokens.offsets[document] as usize..tokens.offsets[document + 1] as usize;
    if !words.kept[document] {
        return Ok(());
    }
    let base = made.direct.len();
    let range = words.offsets[document] as usize..words.offsets[document + 1] as usize;
    let (flags, starts) = (&words.flags[range.clone()], &words.ngram_starts[range]);
    scratch.clear();
    let mut exceptions = tokens.exceptions[tokens.exceptions.partition_point(|e| e.token < own.start as u64)..].iter();
    let mut next = exceptions.next();
    // The first word of the last token that met one, and the first word that no token has met.
    let (mut word, mut unseen) = (-1i64, 0usize);
    for token in own.clone() {
        let mut more = 0;
        word += i64::from(bit_at(tokens.begins, token));
        if let Some(exception) = next.filter(|exception| exception.token == token as u64) {
            word += i64::from(exception.skipped);
            more = exception.more as usize;
            next = exceptions.next();
        }
        let in_gap = u8::from(tokens.gaps.is_some_and(|bits| bit_at(bits, token))) * DIRECT;
        if bit_at(tokens.outside, token) {
            scratch.push(in_gap);
            continue;
        }
        let first = word as usize;
        let end = first + 1 + more;
        if word < 0 || end > flags.len() {
            let message = "token store: a token belongs to a word that is not there; damaged, run protect again";
            return Err(Error::Artifact(message.into()));
        }
        scratch.push(flags[first..end].iter().fold(in_gap, |all, flag| all | flag));
        if end > unseen {
            let lengths = starts[first.max(unseen)..end].iter().fold(0, |all, lengths| all | lengths);
            if lengths != 0 {
                made.starts.push(((base + token - own.start) as u64, lengths));
            }
            unseen = end;
        }
    }
    made.direct.extend_from(scratch, |flag| flag & DIRECT != 0);
    made.indirect.extend_from(scratch, |flag| flag & INDIRECT != 0);
    Ok(())
}
