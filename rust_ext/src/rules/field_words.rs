//! The signs behind a field's name, and its words as the table has them: in lower case, one spelling of "number", no particles.

use std::sync::LazyLock;

use memchr::{memchr_iter, memchr3_iter};

use crate::text::classes::Block;
use crate::word_lists::{WordSet, Words as WordList};

/// Bytes before a sign in which its name may stand.
pub const MAX_NAME: usize = 72;
/// Bytes of the words of a name with a space behind each: "#" becomes "no".
const MAX_JOINED: usize = MAX_NAME + 3 * (MAX_WORDS + 1);
/// Words of the longest name.
pub const MAX_WORDS: usize = 7;
/// Words that name nothing: they are left out of names.
static PARTICLES: WordList = LazyLock::new(|| WordSet::marked("particles", "field"));
/// Spellings of "number", beside `#`.
static NUMBER: WordList = LazyLock::new(|| WordSet::of("number"));

/// The last words before a place, in lower case, without particles and with one spelling of "number".
pub struct Words {
    pub len: usize,
    pub starts: [usize; MAX_WORDS + 1],
    /// Whether a particle was left out before the word.
    pub after_particle: [bool; MAX_WORDS + 1],
    /// The words with a space behind each, and where each begins in that.
    joined: [u8; MAX_JOINED],
    bounds: [usize; MAX_WORDS + 2],
}

impl Words {
    pub fn before(text: &[u8], end: usize) -> Self {
        let from = end.saturating_sub(MAX_NAME);
        let is_edge = |byte: &u8| {
            matches!(byte, b'\n' | b'\t' | b'|' | b';' | b'<' | b'>' | b'{' | b'[' | b'"' | b'=' | b':' | 0)
        };
        let end = end
            - text[from..end]
                .iter()
                .rev()
                .take_while(|byte| matches!(byte, b' ' | b'"' | b'\'' | b'*' | b'_' | b']' | b'\t'))
                .count();
        let from = text[from..end].iter().rposition(is_edge).map_or(from, |edge| from + edge + 1);
        // Three spaces part columns: "Sex F    Age: 29".
        let from = text[from..end].windows(3).rposition(|three| three == b"   ").map_or(from, |edge| from + edge + 3);
        let mut words = Self {
            len: 0,
            starts: [0; MAX_WORDS + 1],
            after_particle: [false; MAX_WORDS + 1],
            joined: [0; MAX_JOINED],
            bounds: [0; MAX_WORDS + 2],
        };
        let mut found: [(usize, usize); MAX_WORDS + 1] = [(0, 0); MAX_WORDS + 1];
        // Bit n: a particle stands before the word that is n-th from the end.
        let (mut count, mut at, mut particles) = (0, end, 0u32);
        // From the end, for only the last words count.
        while at > from && count <= MAX_WORDS {
            let byte = text[at - 1];
            if !is_letter(byte) && byte != b'#' {
                at -= 1;
                continue;
            }
            let stop = at;
            at -= 1;
            if byte != b'#' {
                while at > from && is_letter(text[at - 1]) && !is_hump(text, at) {
                    at -= 1;
                }
                // The window cuts it.
                if at == from && from > 0 && is_letter(text[from - 1]) {
                    break;
                }
            }
            let word = &text[at..stop];
            // "n.º" is "n.o" here.
            if word == b"o" && text[..at].ends_with(b"n.") {
                continue;
            }
            if is_particle(word) {
                particles |= 1 << count;
            } else {
                found[count] = (at, stop);
                count += 1;
            }
        }
        let mut filled = 0;
        for number in (0..count).rev() {
            let (start, stop) = found[number];
            let word = &text[start..stop];
            words.after_particle[words.len] = particles >> (number + 1) & 1 != 0;
            words.starts[words.len] = start;
            words.bounds[words.len] = filled;
            let word = if is_number(word) { &b"no"[..] } else { word };
            for (to, from) in words.joined[filled..].iter_mut().zip(word) {
                *to = from.to_ascii_lowercase();
            }
            filled += word.len();
            words.joined[filled] = b' ';
            filled += 1;
            words.len += 1;
        }
        words.bounds[words.len] = filled;
        words
    }

    /// The words `first..last`, joined.
    pub fn key_of(&self, first: usize, last: usize) -> &[u8] {
        &self.joined[self.bounds[first]..self.bounds[last] - 1]
    }

    /// Where the last capitalised word begins.
    pub fn last_capital(&self, text: &[u8]) -> Option<usize> {
        self.starts[..self.len].iter().rev().copied().find(|&start| text[start].is_ascii_uppercase())
    }
}

/// Signs behind a field's name: between it and its value, or at the edge of its cell or tag.
pub fn is_sign(byte: u8) -> bool {
    matches!(byte, b':' | b'=' | b'\t' | b'|' | b'>')
}

/// The places of signs, of colons by the masks of a text; `others` false says that there are no other signs.
pub fn signs(text: &[u8], blocks: &[Block], others: bool) -> Vec<usize> {
    let mut signs = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        let mut colons = block.colon;
        while colons != 0 {
            signs.push(number * 64 + colons.trailing_zeros() as usize);
            colons &= colons - 1;
        }
    }
    if !others {
        return signs;
    }
    let num_colons = signs.len();
    signs.extend(memchr3_iter(b'=', b'\t', b'|', text));
    signs.extend(memchr_iter(b'>', text));
    if signs.len() > num_colons {
        signs.sort_unstable();
    }
    signs
}

/// A word that names nothing.
pub fn is_particle(word: &[u8]) -> bool {
    word.len() <= 3 && PARTICLES.has_any_case(word)
}

fn is_number(word: &[u8]) -> bool {
    matches!(word[0], b'n' | b'N') && NUMBER.has_any_case(word) || word == b"#"
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// A capital within a word begins another: PatientName, and MartínezNoCol where a space is missing.
fn is_hump(text: &[u8], at: usize) -> bool {
    text[at].is_ascii_uppercase() && text[at - 1].is_ascii_lowercase()
}
