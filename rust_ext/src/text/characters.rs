//! Classes of characters that the word rules use besides those of UAX #29, from the tables of `unicode-properties`.
//!
//! The crates and the standard library follow Unicode at their own pace: a letter that only the newest table knows is counted
//! like an unassigned character until the others know it too.

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeEmoji, UnicodeGeneralCategory};

/// Unicode's Default_Ignorable_Code_Point: joiners, marks of direction, selectors of a glyph, fillers; nothing is printed.
#[inline]
pub fn is_default_ignorable(c: char) -> bool {
    if c < '\u{ad}' {
        return false;
    }
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}')
        || matches!(c, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}')
        || matches!(c, '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
}

/// Default-ignorable characters at which UAX #29 ends a word (their Word_Break is Other), as it does at punctuation.
pub fn splits_unseen(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{2065}' | '\u{fff0}'..='\u{fff8}' | '\u{e0000}' | '\u{e0002}'..='\u{e001f}')
        || matches!(c, '\u{e0080}'..='\u{e00ff}' | '\u{e01f0}'..='\u{e0fff}')
}

/// Symbols that can stand for a person and are therefore counted: private-use and unassigned characters, Braille, regional
/// indicators and emoji, but those of ASCII and Latin-1 and the punctuation, currency, mathematical signs and arrows among
/// them.
pub fn is_counted_symbol(c: char) -> bool {
    // The first character without a meaning.
    if c < '\u{378}' {
        return false;
    }
    if is_default_ignorable(c) {
        return false;
    }
    match c.general_category() {
        GeneralCategory::PrivateUse | GeneralCategory::Unassigned => true,
        // Letters and numbers are words before anybody asks, but for those that are newer than the standard library.
        _ if c.is_alphanumeric() => false,
        _ if matches!(c.general_category_group(), GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number) => true,
        GeneralCategory::OtherSymbol | GeneralCategory::ModifierSymbol => {
            matches!(c, '\u{2800}'..='\u{28ff}') || (c.is_emoji_char() && !is_arrow(c))
        }
        _ => false,
    }
}

/// Emoji that are arrows, of the blocks of arrows and dingbats.
fn is_arrow(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{21ff}' | '\u{27a1}' | '\u{2900}'..='\u{297f}' | '\u{2b00}'..='\u{2b11}')
}

/// Letters of scripts that write no spaces between words; UAX #29 makes each of them a word, but for runs of Katakana.
pub fn is_unspaced(c: char) -> bool {
    if c < '\u{e00}' {
        return false;
    }
    is_katakana(c) || is_word_by_itself(c)
}

/// Letters of scripts without spaces each of which is a word: Han, Hiragana, Thai, Lao, Khmer, Burmese and their like.
pub fn is_word_by_itself(c: char) -> bool {
    let is_of_script = match c as u32 {
        0..0xe00 => false,
        0xe00..=0xeff | 0x1000..=0x109f | 0x1780..=0x17ff => true,
        0x1950..=0x19ff | 0x1a20..=0x1aaf | 0xa9e0..=0xa9ff | 0xaa60..=0xaadf => true,
        0x2e80..=0x2fdf | 0x3005..=0x3007 | 0x3021..=0x3029 | 0x3038..=0x303b => true,
        0x3041..=0x309f | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff => true,
        0x11700..=0x1174f | 0x1b001..=0x1b11f | 0x1b150..=0x1b152 | 0x20000..=0x3ffff => true,
        _ => false,
    };
    is_of_script && c.general_category_group() == GeneralCategoryGroup::Letter || matches!(c, '\u{3007}')
}

fn is_katakana(c: char) -> bool {
    matches!(c, '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{ff66}'..='\u{ff9f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_counted_by_the_table() {
        for c in "\u{e123}\u{f0000}\u{10ffff}\u{378}\u{1f600}\u{1f1eb}\u{2801}\u{1f3fd}\u{2695}\u{2764}\u{e000}".chars()
        {
            assert!(is_counted_symbol(c), "{c:?}");
        }
        for c in "a1 #*©®€→↔+−×÷±§°µ·\u{1d11e}\u{200b}\u{200d}\u{fe0f}\u{feff}ก田■✓‼〰\u{2b05}\u{fffd}".chars()
        {
            assert!(!is_counted_symbol(c), "{c:?}");
        }
    }

    #[test]
    fn every_character_that_may_be_a_letter_is_in_a_word_or_counted() {
        for c in (0x378..=0x10_ffff).filter_map(char::from_u32) {
            let category = c.general_category_group();
            if matches!(category, GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number) {
                assert!(c.is_alphanumeric() || is_counted_symbol(c) || is_default_ignorable(c), "{c:?}");
            }
        }
    }

    #[test]
    fn what_splits_unseen_is_ignorable_and_of_three_bytes_or_four() {
        let found = (0..=0x10_ffff).filter_map(char::from_u32).filter(|&c| splits_unseen(c));
        for c in found {
            assert!(is_default_ignorable(c) && matches!(c.len_utf8(), 3 | 4), "{c:?}");
        }
    }
}
