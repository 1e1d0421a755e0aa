use super::*;
use crate::storage::packing::tests::draws_below;

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
