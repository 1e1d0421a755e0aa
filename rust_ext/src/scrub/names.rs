//! Invented names of individuals and places, put together from syllables of our own, and the case that any name is given.
//!
//! A name is drawn for a given first letter, so that initials can be kept in step with the names they stand for. Each
//! letter has some twenty thousand surnames: two names of one individual rarely become one, and an invented name is
//! rarely somebody's.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::key::Stream;
use crate::word_lists::words;

/// What a word of a span is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Woman,
    Man,
    Surname,
    Place,
}

/// Syllables of invented names: the ends of the first one behind a consonant and a vowel, the second ones, and the last.
struct Syllables {
    after_consonant: Vec<&'static str>,
    after_vowel: Vec<&'static str>,
    middles: Vec<&'static str>,
    links: Vec<&'static str>,
    surnames: Vec<&'static str>,
    places: Vec<&'static str>,
    women: Vec<&'static str>,
    men: Vec<&'static str>,
}

static SYLLABLES: LazyLock<Syllables> = LazyLock::new(|| {
    let list = |name| words(name).collect();
    Syllables {
        after_consonant: list("after a consonant"),
        after_vowel: list("after a vowel"),
        middles: list("middles"),
        links: list("links"),
        surnames: list("ends of surnames"),
        places: list("ends of places"),
        women: list("ends of women"),
        men: list("ends of men"),
    }
});

/// A name in lower case that begins with `letter` (0 is a).
pub fn invent(letter: u8, kind: Kind, stream: &mut Stream) -> String {
    let first = char::from(b'a' + letter % 26);
    let mut name = String::with_capacity(16);
    name.push(first);
    let vowel = matches!(first, 'a' | 'e' | 'i' | 'o' | 'u');
    let end = stream.pick(if vowel { &SYLLABLES.after_vowel } else { &SYLLABLES.after_consonant });
    if first == 'q' && !end.starts_with('u') {
        name.push('u');
    }
    name.push_str(end);
    match kind {
        Kind::Surname | Kind::Place => {
            name.push_str(stream.pick(&SYLLABLES.middles));
            name.push_str(stream.pick(if kind == Kind::Place { &SYLLABLES.places } else { &SYLLABLES.surnames }));
        }
        Kind::Woman | Kind::Man => {
            name.push_str(stream.pick(&SYLLABLES.links));
            name.push_str(stream.pick(if kind == Kind::Woman { &SYLLABLES.women } else { &SYLLABLES.men }));
        }
    }
    name
}

/// Whose first name a folded word is known to be; None for any other, which is taken for a surname.
pub fn first_name(folded: &str) -> Option<Kind> {
    static KNOWN: LazyLock<HashMap<&'static str, Kind>> = LazyLock::new(|| {
        let women = words("women").map(|name| (name, Kind::Woman));
        women.chain(words("men").map(|name| (name, Kind::Man))).collect()
    });
    KNOWN.get(folded).copied()
}

/// Give a name the case pattern of a word: all capitals, all small, or a capital first and the rest as it is.
pub fn with_case_of(word: &str, name: &str) -> String {
    let mut letters = word.chars().filter(|c| c.is_lowercase() || c.is_uppercase());
    let first_upper = letters.next().is_some_and(char::is_uppercase);
    let (mut rest, mut rest_upper) = (0, 0);
    for letter in letters {
        rest += 1;
        rest_upper += usize::from(letter.is_uppercase());
    }
    if first_upper && rest > 0 && rest == rest_upper {
        return name.to_uppercase();
    }
    let mut chars = name.chars();
    match chars.next() {
        Some(first) if first_upper => first.to_uppercase().chain(chars).collect(),
        _ => name.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrub::key::Key;
    use std::collections::HashSet;

    #[test]
    fn names_begin_with_their_letter_and_are_many() {
        for kind in [Kind::Woman, Kind::Man, Kind::Surname, Kind::Place] {
            for letter in 0..26 {
                let names: HashSet<String> = (0..500)
                    .map(|attempt| invent(letter, kind, &mut Key::new([3; 32]).stream(b'n', b"x", attempt)))
                    .collect();
                assert!(names.iter().all(|name| name.as_bytes()[0] == b'a' + letter));
                assert!(names.len() > 450, "{kind:?} {letter}: {}", names.len());
            }
        }
    }

    #[test]
    fn case_follows_the_word() {
        for (word, expected) in
            [("SMITH", "BROWN"), ("smith", "brown"), ("Smith", "Brown"), ("McDonald", "Brown"), ("É", "Brown")]
        {
            assert_eq!(with_case_of(word, "brown"), expected);
            let mixed = if word == "smith" { "mcbrown" } else { "McBrown" };
            let mixed = if word == "SMITH" { "MCBROWN" } else { mixed };
            assert_eq!(with_case_of(word, "McBrown"), mixed);
        }
    }
}
