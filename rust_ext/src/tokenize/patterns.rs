//! Patterns: how byte-level tokenizers since GPT-4 split texts, found without a regular expression.
//!
//! Llama 3, Qwen, GPT-4o and others have one expression in `tokenizer.json`; StarCoder and SmolLM cut out digits and then
//! split as GPT-2 does. A *chunk* begins where each of them begins a pretoken whatever stands before, and its pretokens do
//! not depend on what stands behind. Chunks of ASCII are split here, the library splits all others.

use serde_json::Value;

use super::pretokens::{Class, HIGH, class, end_of_word, low_bytes, shortened, space_at};
use crate::storage::key::load;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// GPT-2's, within what digits and stretches of spaces leave.
    Gpt2,
    /// GPT-4's: a letter takes the sign before it, and signs the line feeds behind them.
    Gpt4,
    /// GPT-4o's: words are parted at capitals too, and hold their `'s`.
    Gpt4o,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    kind: Kind,
    /// Most digits of a pretoken.
    digits: usize,
    /// Whether words are parted from `'s`, or keep it.
    shortens: bool,
    /// Chunks with so much white space in one place are the library's, which has added tokens for it.
    spaces: usize,
}

/// Most digits of a pretoken, and how an expression says it.
const NUMBERS: [(usize, &str); 2] = [(3, r"\p{N}{1,3}"), (1, r"\p{N}")];
/// What stands around the number.
const GPT4: [&str; 2] =
    [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|", r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"];
/// Small letters, what may be shortened, capitals, and what stands behind the number.
const GPT4O: [&str; 4] = [
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

impl Pattern {
    /// GPT-2's own: `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`.
    pub(super) const ALL: Self = Self { kind: Kind::Gpt2, digits: usize::MAX, shortens: true, spaces: usize::MAX };

    /// The one of a `tokenizer.json`'s list of pre-tokenizers.
    pub fn of(steps: &[Value]) -> Option<Self> {
        let [first, last] = steps else { return None };
        if last["type"] != "ByteLevel" || last["add_prefix_space"] != false {
            return None;
        }
        let with_pattern = last["use_regex"] != false;
        match first["type"].as_str()? {
            "Digits" if first["individual_digits"] == true && with_pattern => Some(Self { digits: 1, ..Self::ALL }),
            "Split" if first["behavior"] == "Isolated" && first["invert"] != true && !with_pattern => {
                Self::of_expression(first["pattern"]["Regex"].as_str()?)
            }
            _ => None,
        }
    }

    /// GPT-2's, where added tokens stand for so many spaces and more.
    pub fn with_spaces(spaces: usize) -> Self {
        Self { spaces, ..Self::ALL }
    }

    fn of_expression(expression: &str) -> Option<Self> {
        let [words, rest] = GPT4;
        let [small, shortened, capital, others] = GPT4O;
        for (digits, number) in NUMBERS {
            if expression == [words, number, rest].concat() {
                return Some(Self { kind: Kind::Gpt4, digits, ..Self::ALL });
            }
            for (shortens, shortened) in [(true, shortened), (false, "")] {
                if expression == [small, shortened, capital, shortened, "|", number, others].concat() {
                    return Some(Self { kind: Kind::Gpt4o, digits, shortens, ..Self::ALL });
                }
            }
        }
        None
    }

    /// The end of the chunk at `start`.
    #[inline(always)]
    pub fn end_of_chunk(self, text: &str, start: usize) -> usize {
        let bytes = text.as_bytes();
        let first = usize::from(bytes[start] == b' ');
        let block = load(bytes, start);
        // The first stop after the space.
        let stops = low_bytes(block) >> (8 * first) << (8 * first);
        let end = start + (stops.trailing_zeros() / 8) as usize;
        let ascii = (block & HIGH).trailing_zeros() >= stops.trailing_zeros();
        if ascii && end > start + first && bytes.get(end).is_none_or(|&byte| byte == b' ') {
            return end;
        }
        self.end_of_chunk_slow(text, start)
    }

    #[inline(never)]
    fn end_of_chunk_slow(self, text: &str, start: usize) -> usize {
        let bytes = text.as_bytes();
        let mut at = start;
        loop {
            // White space; to GPT-4 it ends with its last line feed, and what is behind that is another chunk.
            let run = at;
            let mut behind_line = at;
            while let Some(width) = space_at(text, at) {
                at += width;
                if is_line(bytes[at - 1]) {
                    behind_line = at;
                }
            }
            if run == start && behind_line > start && self.kind != Kind::Gpt2 {
                return behind_line;
            }
            let word = at;
            at = end_of_word(text, at);
            if at == text.len() || at == word || self.kind == Kind::Gpt2 || !is_line(bytes[at]) {
                return at;
            }
            let Some(last) = text[..at].chars().next_back() else { return at };
            if is_latin_letter(last) || last.is_ascii_digit() {
                return at;
            }
            if last.is_ascii_graphic() {
                while bytes.get(at).is_some_and(|&byte| self.ends_signs(byte)) {
                    at += 1;
                }
                return at;
            }
            // Whether the line feed belongs to the character before is the library's to say.
        }
    }

    /// What signs take behind them.
    fn ends_signs(self, byte: u8) -> bool {
        is_line(byte) || (byte == b'/' && self.kind == Kind::Gpt4o)
    }

    /// Call `emit(start, end)` with the pretokens of the chunk `start..end`, or with the chunk itself where the library is to say.
    #[inline]
    pub fn split<E>(
        self,
        bytes: &[u8],
        start: usize,
        end: usize,
        emit: &mut impl FnMut(usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let chunk = &bytes[..end];
        let (mut plain, mut run) = (true, 0);
        for &byte in &chunk[start..] {
            let class = class(byte);
            plain &= !matches!(class, Class::Wide | Class::Control);
            run = if class == Class::Space { run + 1 } else { 0 };
            plain &= run < self.spaces;
        }
        if !plain {
            return emit(start, end);
        }
        let mut at = start;
        while at < end {
            let to = match self.kind {
                Kind::Gpt2 => self.end_of_gpt2(chunk, at),
                Kind::Gpt4 | Kind::Gpt4o => self.end_of_gpt4(chunk, at),
            };
            emit(at, to)?;
            at = to;
        }
        Ok(())
    }

    fn end_of_gpt2(self, chunk: &[u8], at: usize) -> usize {
        if chunk[at].is_ascii_digit() {
            return run_of(chunk, at, at + self.digits.min(chunk.len() - at), |byte| byte.is_ascii_digit());
        }
        if let Some(len) = shortened(&chunk[at..], false) {
            return at + len;
        }
        let from = at + usize::from(chunk[at] == b' ');
        match chunk.get(from).map(|&byte| class(byte)) {
            Some(Class::Letter) => run_of(chunk, from, chunk.len(), |byte| byte.is_ascii_alphabetic()),
            Some(Class::Digit) if self.digits > 1 => run_of(chunk, from, chunk.len(), |byte| byte.is_ascii_digit()),
            Some(Class::Mark) => run_of(chunk, from, chunk.len(), |byte| class(byte) == Class::Mark),
            _ => {
                let spaces = run_of(chunk, at, chunk.len(), |byte| class(byte) == Class::Space);
                // Where digits are cut out first, what stands before them ends there.
                let is_last = self.digits == 1 && chunk.get(spaces).is_some_and(u8::is_ascii_digit);
                if is_last { spaces } else { end_of_spaces(chunk, at) }
            }
        }
    }

    fn end_of_gpt4(self, chunk: &[u8], at: usize) -> usize {
        if self.kind == Kind::Gpt4
            && let Some(len) = shortened(&chunk[at..], true)
        {
            return at + len;
        }
        let first = chunk[at];
        let takes = !first.is_ascii_alphanumeric() && !is_line(first);
        let from = at + usize::from(takes);
        if chunk.get(from).is_some_and(u8::is_ascii_alphabetic) {
            return self.end_of_word(chunk, from);
        }
        if first.is_ascii_digit() {
            return run_of(chunk, at, chunk.len().min(at + self.digits), |byte| byte.is_ascii_digit());
        }
        let from = at + usize::from(first == b' ');
        if chunk.get(from).is_some_and(|&byte| class(byte) == Class::Mark) {
            let marks = run_of(chunk, from, chunk.len(), |byte| class(byte) == Class::Mark);
            return run_of(chunk, marks, chunk.len(), |byte| self.ends_signs(byte));
        }
        let spaces = run_of(chunk, at, chunk.len(), |byte| class(byte) == Class::Space);
        match chunk[at..spaces].iter().rposition(|&byte| is_line(byte)) {
            Some(last) => at + last + 1,
            None => end_of_spaces(chunk, at),
        }
    }

    /// The end of a word's letters, and of the `'s` that it keeps.
    fn end_of_word(self, chunk: &[u8], from: usize) -> usize {
        if self.kind == Kind::Gpt4 {
            return run_of(chunk, from, chunk.len(), |byte| byte.is_ascii_alphabetic());
        }
        let capitals = run_of(chunk, from, chunk.len(), |byte| byte.is_ascii_uppercase());
        let end = run_of(chunk, capitals, chunk.len(), |byte| byte.is_ascii_lowercase());
        end + shortened(&chunk[end..], true).filter(|_| self.shortens).unwrap_or(0)
    }
}

fn is_line(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Letters of Latin alphabets with accents and without; other letters are not asked for.
fn is_latin_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, 'À'..='ɏ') && !matches!(c, '×' | '÷')
}

#[inline]
fn run_of(bytes: &[u8], from: usize, to: usize, is: impl Fn(u8) -> bool) -> usize {
    from + bytes[from..to].iter().take_while(|&&byte| is(byte)).count()
}

/// White space without a line feed of GPT-4's: all of it at the end of the text, else all but the last character.
fn end_of_spaces(bytes: &[u8], at: usize) -> usize {
    let end = run_of(bytes, at, bytes.len(), |byte| class(byte) == Class::Space);
    if end < bytes.len() && end > at + 1 { end - 1 } else { end }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tokenize::pretokens::Cut;

    fn of(steps: &str) -> Option<Pattern> {
        Pattern::of(serde_json::from_str::<Value>(steps).unwrap().as_array().unwrap())
    }

    fn of_expression(expression: &str) -> Option<Pattern> {
        Pattern::of_expression(expression)
    }

    /// Llama 3's, Qwen's, GPT-4o's, Mistral's, StarCoder's, ModernBERT's.
    pub(in crate::tokenize) fn all() -> [Pattern; 6] {
        let [words, rest] = GPT4;
        let [small, shortened, capital, others] = GPT4O;
        let [(_, three), (_, one)] = NUMBERS;
        let gpt4o = [small, shortened, capital, shortened, "|", three, others].concat();
        [
            of_expression(&[words, three, rest].concat()).unwrap(),
            of_expression(&[words, one, rest].concat()).unwrap(),
            of_expression(&gpt4o).unwrap(),
            of_expression(&[small, capital, "|", one, others].concat()).unwrap(),
            of(DIGITS).unwrap(),
            Pattern::with_spaces(2),
        ]
    }

    const DIGITS: &str = r#"[{"type": "Digits", "individual_digits": true},
        {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]"#;

    fn cut(number: usize, text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        let how = Cut::Pattern(all()[number]);
        let emit = |start: usize, end: usize| {
            found.push(&text[start..end]);
            Ok::<(), ()>(())
        };
        how.for_each(text, emit).unwrap();
        found
    }

    #[test]
    fn pretokens_by_hand() {
        let table: [(usize, &str, &[&str]); 9] = [
            (0, "He'S 1234mg,\n\n (ok)", &["He", "'S", " ", "123", "4", "mg", ",\n\n", " (", "ok", ")"]),
            (0, "a \n  b\tc  \n", &["a", " \n", " ", " b", "\tc", "  \n"]),
            (1, "12.5 (x)", &["1", "2", ".", "5", " (", "x", ")"]),
            (2, "McDONald's/\n/x HELLO'S", &["Mc", "DONald's", "/\n/", "x", " HELLO'S"]),
            (3, "a's ABc 12", &["a", "'s", " ABc", " ", "1", "2"]),
            (4, "a  12 b's", &["a", "  ", "1", "2", " b", "'s"]),
            (5, "a b  c", &["a", " b", "  c"]), // two spaces are the library's
            (0, "été's", &["été's"]),           // so is what is not ASCII
            (0, " é.\nx", &[" é.\n", "x"]),
        ];
        for (number, text, expected) in table {
            assert_eq!(cut(number, text), expected, "{number} {text:?}");
        }
    }

    #[test]
    fn other_patterns_are_not_taken_for_these() {
        assert!(of_expression(r"\p{L}+").is_none());
        assert!(of_expression(&GPT4.join(r"\p{N}{1,4}")).is_none());
        assert!(of(&DIGITS.replace("true},", "false},")).is_none());
        assert!(of(&DIGITS.replace("false,", "true,")).is_none());
        assert!(of("[]").is_none());
    }
}
