//! Languages: how many words the beginning of a text has, and how many of them are of the lists of common words.
//!
//! What a pattern of Python finds, without one: a listed word is a whole run of `[0-9A-Za-z_]` of the text in small letters, and
//! a word a run of anything but white space, digits and punctuation of ASCII. Scripts without spaces are left to the pattern.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::error::{Error, Result};

pub struct WordLists {
    /// A word, its letters one after the other -> the lists that have it, a bit each.
    of: HashMap<u128, u32, FixedState>,
    pub num_lists: usize,
}

impl WordLists {
    pub fn new(lists: &[Vec<String>]) -> Result<Self> {
        let mut of: HashMap<u128, u32, FixedState> = HashMap::default();
        for (number, word) in
            lists.iter().enumerate().flat_map(|(number, list)| list.iter().map(move |word| (number, word)))
        {
            if number >= 32 || word.len() > 15 || !word.bytes().all(|letter| letter.is_ascii_lowercase()) {
                return Err(Error::Policy(
                    "lists of words: expected up to 32, of up to 15 small letters of ASCII".into(),
                ));
            }
            *of.entry(word.bytes().fold(0, grown)).or_default() |= 1 << number;
        }
        Ok(Self { of, num_lists: lists.len() })
    }

    /// Count the words of so many characters, and those of each list; None where the text may have a script without spaces.
    pub fn count(&self, text: &str, num_characters: usize, hits: &mut [u32]) -> Option<u32> {
        let (mut num_words, mut in_word, mut run, mut length) = (0, false, 0, 0usize);
        for character in text.chars().take(num_characters) {
            let small = match character {
                '\u{130}' => b'i',
                '\u{212a}' => b'k',
                _ if character.is_ascii() => (character as u8).to_ascii_lowercase(),
                '\u{e00}'..='\u{1dff}' | '\u{2e00}'.. => return None,
                _ => 0xff,
            };
            let parts = matches!(small, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ')
                || small.is_ascii_digit()
                || small.is_ascii_punctuation();
            num_words += u32::from(!parts && !in_word);
            in_word = !parts;
            if small.is_ascii_alphanumeric() || small == b'_' {
                (run, length) = (grown(run, small), length + 1);
            } else if length > 0 {
                self.ended(run, length, hits);
                (run, length) = (0, 0);
            }
        }
        self.ended(run, length, hits);
        Some(num_words)
    }

    fn ended(&self, run: u128, length: usize, hits: &mut [u32]) {
        let mut lists = if length > 15 { 0 } else { self.of.get(&run).copied().unwrap_or(0) };
        while lists != 0 {
            hits[lists.trailing_zeros() as usize] += 1;
            lists &= lists - 1;
        }
    }
}

fn grown(word: u128, letter: u8) -> u128 {
    word << 8 | u128::from(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_words_are_whole_and_words_are_runs() {
        let lists = WordLists::new(&[vec!["the".into(), "no".into()], vec!["no".into()]]).unwrap();
        let counted = |text: &str, length: usize| {
            let mut hits = [0, 0];
            (lists.count(text, length, &mut hits), hits)
        };
        assert_eq!(counted("The the_ theo é the", 99), (Some(5), [2, 0]));
        assert_eq!(counted("no-NO 2no n\u{2019}o", 99), (Some(4), [2, 2]));
        assert_eq!(counted("the the", 6), (Some(2), [1, 0]));
        assert_eq!(counted("the \u{6771}", 99).0, None);
        assert_eq!(counted("", 9), (Some(0), [0, 0]));
    }
}
