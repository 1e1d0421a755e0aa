//! Surface normalisers: they define the spellings that count as one word.
//!
//! A coarser surface can only raise support, so it can only shrink protection: support is counted on the fine surface, leaks
//! are matched on the coarse one (definitions.md#documents-and-words).

use std::borrow::Cow;

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark, is_nfc};

use crate::error::{Error, Result};
use crate::text::characters::is_default_ignorable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// NFC only.
    Exact,
    /// NFC, then each character upper- and lower-cased (`ß`, `ẞ` and `SS` meet, as do `ς` and `Σ`).
    Casefold,
    /// NFKC, case folded, without diacritics, zero-width characters and soft hyphens, common look-alikes as Latin.
    Fold,
}

impl Surface {
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "exact" => Ok(Self::Exact),
            "casefold" => Ok(Self::Casefold),
            "fold" => Ok(Self::Fold),
            _ => Err(Error::Policy(format!("surface: expected exact, casefold or fold, got {name:?}"))),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Casefold => "casefold",
            Self::Fold => "fold",
        }
    }

    /// The surface of one word; borrowed when nothing changes.
    #[inline]
    pub fn apply(self, word: &str) -> Cow<'_, str> {
        match self {
            Self::Exact if word.is_ascii() || is_nfc(word) => Cow::Borrowed(word),
            Self::Exact => Cow::Owned(word.nfc().collect()),
            Self::Casefold => Cow::Owned(word.nfc().flat_map(casefold).collect()),
            Self::Fold => {
                let folded = word.nfkc().filter(|&c| !is_default_ignorable(c)).flat_map(casefold);
                Cow::Owned(folded.nfd().filter(|&c| !is_combining_mark(c)).map(look_alike).collect())
            }
        }
    }

    /// The surface of what is seen of a word: without default-ignorable characters.
    pub fn apply_to_seen(self, word: &str) -> Cow<'_, str> {
        if word.is_ascii() || !word.contains(is_default_ignorable) {
            return self.apply(word);
        }
        let seen: String = word.chars().filter(|&c| !is_default_ignorable(c)).collect();
        Cow::Owned(self.apply(&seen).into_owned())
    }

    /// Whether each word of a text is its own surface, as far as can be told fast.
    pub fn keeps(self, text: &str) -> bool {
        // Everything under U+0300 stays as it is under NFC, whatever stands next to it; its first bytes are under 0xCC.
        self == Self::Exact && (text.bytes().fold(0, u8::max) < 0xcc || is_nfc(text))
    }
}

/// One character, upper- and lower-cased; the capital `ẞ`, which is its own upper case, as `ß`.
pub fn casefold(c: char) -> impl Iterator<Item = char> {
    let c = if c == 'ẞ' { 'ß' } else { c };
    c.to_uppercase().flat_map(char::to_lowercase)
}

/// Cyrillic and Greek letters that print like a Latin one (lower case, after folding).
pub fn look_alike(c: char) -> char {
    match c {
        'а' | 'α' => 'a',
        'в' => 'b',
        'с' => 'c',
        'е' | 'ε' => 'e',
        'һ' => 'h',
        'і' | 'ι' => 'i',
        'ј' => 'j',
        'к' | 'κ' => 'k',
        'м' => 'm',
        'о' | 'ο' => 'o',
        'р' | 'ρ' => 'p',
        'ѕ' => 's',
        'т' | 'τ' => 't',
        'у' | 'υ' => 'y',
        'х' | 'χ' => 'x',
        'ν' => 'v',
        _ => c,
    }
}

/// The same for capitals, where case is kept; small letters stay.
pub fn capital_look_alike(c: char) -> char {
    match c {
        'А' | 'Α' => 'A',
        'В' | 'Β' => 'B',
        'С' => 'C',
        'Е' | 'Ε' => 'E',
        'Ζ' => 'Z',
        'Н' | 'Η' => 'H',
        'І' | 'Ι' => 'I',
        'Ј' => 'J',
        'К' | 'Κ' => 'K',
        'М' | 'Μ' => 'M',
        'Ν' => 'N',
        'О' | 'Ο' => 'O',
        'Р' | 'Ρ' => 'P',
        'Ѕ' => 'S',
        'Т' | 'Τ' => 'T',
        'У' | 'Υ' => 'Y',
        'Х' | 'Χ' => 'X',
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::Surface;

    #[test]
    fn surfaces_of_hand_worked_words() {
        assert_eq!(Surface::Exact.apply("e\u{301}"), "é");
        assert_eq!(Surface::Exact.apply("Été"), "Été");
        for spelling in ["STRASSE", "straße", "STRAẞE"] {
            assert_eq!(Surface::Casefold.apply(spelling), "strasse");
            assert_eq!(Surface::Fold.apply(spelling), "strasse");
        }
        assert_eq!(Surface::Fold.apply("Du\u{ad}po\u{200b}nt"), "dupont");
        assert_eq!(Surface::Fold.apply("Ｄｕｐｏｎｔ"), "dupont");
        assert_eq!(Surface::Fold.apply("Élodie"), "elodie");
    }

    #[test]
    fn every_word_of_a_text_that_is_kept_is_its_own_surface() {
        assert!(Surface::Exact.keeps("L’été, naïve Čapek à ŁóDŹ") && !Surface::Casefold.keeps("a"));
        assert!(!Surface::Exact.keeps("e\u{301}te") && !Surface::Exact.keeps("5 \u{2126}"));
        for c in (0..0x300).filter_map(char::from_u32) {
            let word = String::from_iter(['a', c, 'b', c]);
            assert!(Surface::Exact.keeps(&word));
            assert_eq!(Surface::Exact.apply(&word), word);
        }
    }
}
