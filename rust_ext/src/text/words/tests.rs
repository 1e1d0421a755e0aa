use super::*;
use crate::storage::packing::tests::draws_below;

fn words(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut scanner = Scanner::new(InstructionSet::detect());
    let mut bounds = Vec::new();
    scanner.words(text, &mut bounds);
    found.extend(bounds.into_iter().map(|(start, end)| &text[start as usize..end as usize]));
    found
}

#[test]
fn words_of_hand_worked_texts() {
    let table: &[(&str, &[&str])] = &[
        ("", &[]),
        (" .,; ", &[]),
        ("Mr. Smith's BP 120/80", &["Mr", "Smith's", "BP", "120/80"]),
        ("2021-03-04 at 10:45", &["2021-03-04", "at", "10:45"]),
        ("555-123-4567.", &["555-123-4567"]),
        ("post-op COVID-19", &["post", "op", "COVID", "19"]),
        ("1,234.5 mg", &["1,234.5", "mg"]),
        ("A1-B2/C3", &["A1-B2/C3"]),
        ("12--30", &["12", "30"]),
        ("été œdème", &["été", "œdème"]),
        ("___", &[]),
        ("a \u{e34}", &["a", "\u{e34}"]),
        ("Z\u{e123}\u{e124}q", &["Z", "\u{e123}\u{e124}", "q"]),
        ("👩\u{200d}⚕\u{fe0f} ok 👍🏽👍", &["👩\u{200d}⚕\u{fe0f}", "ok", "👍🏽👍"]),
        ("🇫🇷🇨🇭 ⠓⠊ \u{378}", &["🇫🇷🇨🇭", "⠓⠊", "\u{378}"]),
        ("© € → + × ■ 𝄞", &[]),
        ("Du\u{200b}pont\u{200b}", &["Du\u{200b}pont\u{200b}"]),
        ("1\u{2060}2-\u{200b}0\u{ad}5", &["1\u{2060}2-\u{200b}0\u{ad}5"]),
        ("ก\u{200b}ข 田\u{200b}中", &["ก", "ข", "田", "中"]),
        ("カナ\u{200b}カナ", &["カナ", "カナ"]),
        ("Dupont\u{202f}! 10\u{202f}000 a\u{202f}\u{200b}b", &["Dupont", "10", "000", "a", "b"]),
    ];
    for (text, expected) in table {
        assert_eq!(&words(text), expected, "{text:?}");
    }
}

/// Texts of up to 15 characters (one in eight: 299) of an alphabet, the same each time.
fn texts(alphabet: &[char], number: usize) -> impl Iterator<Item = String> {
    let mut draw = draws_below(1);
    let alphabet = alphabet.to_vec();
    (0..number).map(move |_| {
        let length = if draw(8) == 0 { draw(300) } else { draw(16) };
        (0..length).map(|_| alphabet[draw(alphabet.len())]).collect()
    })
}

fn assert_full_rule(text: &str) {
    let mut full = Vec::new();
    let mut join = NumberJoin::new(text, &mut full);
    scan_unicode(text, &mut String::new(), |start, end, digit| join.push(start, end, digit));
    for set in [InstructionSet::Table, InstructionSet::detect()] {
        let mut fast = Vec::new();
        Scanner::new(set).words(text, &mut fast);
        assert_eq!(fast, full, "{text:?}");
    }
}

#[test]
fn fast_scanner_matches_the_full_rule() {
    let ascii: Vec<char> = "aZ09_.':,;-/ \n\0@".chars().collect();
    let mixed: Vec<char> =
        "aé9ßĀɏ.':,_- \n\t\r×÷’·²½\u{a0}\u{ad}\u{301}\u{e34}\u{200b}\u{200d}\u{5d0}\"田한😀Ⓜ\u{1f1eb}\u{250}ª\u{e000}\u{378}⠓€\u{202f}"
            .chars()
            .collect();
    texts(&ascii, 200_000).chain(texts(&mixed, 400_000)).for_each(|text| assert_full_rule(&text));
}

#[test]
fn fast_scanner_matches_the_full_rule_around_every_character() {
    for c in (0..0x3000).filter_map(char::from_u32) {
        for text in [format!("a{c}b"), format!("9{c}9"), format!("a {c}b"), format!("{c}"), format!("é{c} 1")] {
            assert_full_rule(&text);
        }
    }
}
