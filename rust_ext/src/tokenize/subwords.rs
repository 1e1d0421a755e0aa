//! Subwords: the pieces of a word of visible ASCII, as cut by the models WordPiece and BPE of the tokenizers library.
//!
//! The library supports any tokenizer, at the cost of working with strings. These two use tables of integers, some ten times as
//! fast, and only for words on which their configuration is unambiguous. The library cuts all other words.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde_json::Value;

use crate::storage::key::Key;

pub enum Subwords {
    WordPiece(WordPiece),
    Bpe(Box<Bpe>),
}

/// A piece: its id and its bytes in the word.
pub type Subword = (u32, usize, usize);

/// What stands for a space before a word in a byte-level vocabulary.
const SPACE: char = '\u{120}';

impl Subwords {
    /// The model of a `tokenizer.json`; None where the library must answer.
    pub fn of(model: &Value) -> Option<Self> {
        let kind = model["type"].as_str()?;
        let vocabulary: HashMap<&str, u32, FixedState> = model["vocab"]
            .as_object()?
            .iter()
            .map(|(piece, id)| Some((piece.as_str(), u32::try_from(id.as_u64()?).ok()?)))
            .collect::<Option<_>>()?;
        match kind {
            "WordPiece" => WordPiece::of(model, &vocabulary).map(Subwords::WordPiece),
            "BPE" => Bpe::of(model, &vocabulary).map(|model| Subwords::Bpe(Box::new(model))),
            _ => None,
        }
    }

    /// The pieces of a word; `spaced` if a space stands before it, which only BPE is given. None: ask the library.
    #[inline]
    pub fn of_word(&self, word: &[u8], spaced: bool, pieces: &mut Vec<Subword>) -> Option<()> {
        pieces.clear();
        match self {
            Subwords::WordPiece(model) => (!spaced).then(|| model.cut(word, pieces)),
            Subwords::Bpe(model) => model.cut(word, spaced, pieces),
        }
    }
}

/// The longest piece that fits, again and again; one gap makes the whole word unknown.
pub struct WordPiece {
    /// Pieces that begin a word, and those that go on within one, of up to 15 bytes.
    short: [HashMap<Key, u32, FixedState>; 2],
    long: [HashMap<Box<[u8]>, u32, FixedState>; 2],
    /// Bytes of the longest piece that begins with each byte: of a number few are.
    longest: Box<[[usize; 256]; 2]>,
    unknown: u32,
    max_len: usize,
}

impl WordPiece {
    fn of(model: &Value, vocabulary: &HashMap<&str, u32, FixedState>) -> Option<Self> {
        let prefix = model["continuing_subword_prefix"].as_str()?;
        let mut found = Self {
            short: Default::default(),
            long: Default::default(),
            longest: Box::new([[0; 256]; 2]),
            unknown: *vocabulary.get(model["unk_token"].as_str()?)?,
            max_len: usize::try_from(model["max_input_chars_per_word"].as_u64()?).ok()?,
        };
        for (&piece, &id) in vocabulary {
            // A piece with the prefix is also one that begins a word spelled so.
            let forms = [Some(piece), piece.strip_prefix(prefix)];
            for (within, form) in forms.into_iter().enumerate() {
                let Some(form) = form.filter(|form| !form.is_empty() && form.is_ascii()) else { continue };
                let longest = &mut found.longest[within][usize::from(form.as_bytes()[0])];
                *longest = form.len().max(*longest);
                match Key::of(form.as_bytes(), 0, form.len()) {
                    Some(key) => _ = found.short[within].insert(key, id),
                    None => _ = found.long[within].insert(form.as_bytes().into(), id),
                }
            }
        }
        Some(found)
    }

    fn cut(&self, word: &[u8], pieces: &mut Vec<Subword>) {
        let mut start = 0;
        if word.len() <= self.max_len {
            while start < word.len() {
                let within = usize::from(start > 0);
                let longest = word.len().min(start + self.longest[within][usize::from(word[start])]);
                let fits = (start + 1..=longest).rev().find_map(|end| {
                    let id = match Key::of(word, start, end) {
                        Some(key) => self.short[within].get(&key),
                        None => self.long[within].get(&word[start..end]),
                    };
                    Some((*id?, end))
                });
                let Some((id, end)) = fits else { break };
                pieces.push((id, start, end));
                start = end;
            }
        }
        if start < word.len() {
            pieces.clear();
            pieces.push((self.unknown, 0, word.len()));
        }
    }
}

/// Single bytes, of which the pair that was learned first is joined, the leftmost of equals, until no pair was learned.
pub struct Bpe {
    bytes: [Option<u32>; 128],
    space: Option<u32>,
    /// Pair of ids -> rank, and the id of both together.
    merges: HashMap<u64, (u32, u32), FixedState>,
    /// Words that are pieces as they stand, whatever was learned, without a space and with one.
    whole: [HashMap<Box<[u8]>, u32, FixedState>; 2],
}

/// A word of more bytes is the library's: pairs are looked for from the start each time.
const MAX_BPE: usize = 40;

impl Bpe {
    fn of(model: &Value, vocabulary: &HashMap<&str, u32, FixedState>) -> Option<Self> {
        let is_set = |name: &str| !matches!(&model[name], Value::Null | Value::Bool(false)) && model[name] != "";
        if ["dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"].into_iter().any(is_set) {
            return None;
        }
        let mut merges = HashMap::default();
        for (rank, merge) in model["merges"].as_array()?.iter().enumerate() {
            let (left, right) = match merge {
                Value::String(both) => both.split_once(' ')?,
                both => (both[0].as_str()?, both[1].as_str()?),
            };
            let both = *vocabulary.get(format!("{left}{right}").as_str())?;
            // The last of equal merges counts, as in the library's map.
            merges.insert(pair(*vocabulary.get(left)?, *vocabulary.get(right)?), (rank as u32, both));
        }
        let id = |c: char| vocabulary.get(c.encode_utf8(&mut [0; 4]) as &str).copied();
        let mut bytes = [None; 128];
        (b'!'..=b'~').for_each(|byte| bytes[usize::from(byte)] = id(byte.into()));
        let mut whole: [HashMap<_, _, _>; 2] = Default::default();
        if model["ignore_merges"] == true {
            for (piece, &id) in vocabulary {
                let word = piece.strip_prefix(SPACE).unwrap_or(piece);
                if word.bytes().all(|byte| byte.is_ascii_graphic()) {
                    whole[usize::from(word.len() < piece.len())].insert(word.as_bytes().into(), id);
                }
            }
        }
        Some(Self { bytes, space: id(SPACE), merges, whole })
    }

    fn cut(&self, word: &[u8], spaced: bool, pieces: &mut Vec<Subword>) -> Option<()> {
        if word.len() > MAX_BPE {
            return None;
        }
        // With a space, the word's own bytes begin at 1.
        let shift = usize::from(spaced);
        if let Some(&id) = self.whole[shift].get(word) {
            pieces.push((id, 0, word.len() + shift));
            return Some(());
        }
        if spaced {
            pieces.push((self.space?, 0, 1));
        }
        for (at, &byte) in word.iter().enumerate() {
            pieces.push((self.bytes[usize::from(byte)]?, at + shift, at + shift + 1));
        }
        let rank_of = |left: Subword, right: Subword| self.merges.get(&pair(left.0, right.0)).copied();
        let mut joins = [None; MAX_BPE + 1];
        for at in 1..pieces.len() {
            joins[at - 1] = rank_of(pieces[at - 1], pieces[at]);
        }
        loop {
            let num_joins = pieces.len().saturating_sub(1);
            let first =
                (0..num_joins).filter_map(|at| Some((joins[at]?, at))).min_by_key(|&((rank, _), at)| (rank, at));
            let Some(((_, id), at)) = first else { return Some(()) };
            pieces[at] = (id, pieces[at].1, pieces[at + 1].2);
            pieces.remove(at + 1);
            joins.copy_within(at + 1..num_joins, at);
            if at > 0 {
                joins[at - 1] = rank_of(pieces[at - 1], pieces[at]);
            }
            if at + 1 < pieces.len() {
                joins[at] = rank_of(pieces[at], pieces[at + 1]);
            }
        }
    }
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}
