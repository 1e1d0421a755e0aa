//! Invented names of individuals and places, put together from syllables of our own, and the case that any name is given.
//!
//! A name is drawn for a given first letter, so that initials can be kept in step with the names they stand for. Each
//! letter has some twenty thousand surnames: two names of one individual rarely become one, and an invented name is
//! rarely somebody's.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::key::Stream;
use super::values::{folded, hash};
use crate::error::{Error, Result};
use crate::text::texts::Texts;
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

/// Whose first name a title says ("Frau Ilse Roth"): the folded name and the kind. None where no surname follows it.
pub fn titled_first_name(before: &str, name: &str) -> Option<(String, Kind)> {
    static TITLES: LazyLock<HashMap<&'static str, Option<Kind>>> = LazyLock::new(|| {
        let women = words("titles of women").map(|title| (title, Some(Kind::Woman)));
        let men = words("titles of men").map(|title| (title, Some(Kind::Man)));
        women.chain(men).chain(words("titles of any").map(|title| (title, None))).collect()
    });
    let parts = |text: &str| -> Vec<String> {
        let letters = text.split(|c: char| !c.is_alphabetic() && c != '-');
        letters.filter(|word| !word.is_empty()).map(|word| folded(word).into_owned()).collect()
    };
    let line = before.rsplit(['\n', ',', ';', ':']).next().unwrap_or_default();
    let mut ahead = parts(line);
    let own = parts(name);
    let num_titles = own.iter().take_while(|word| TITLES.contains_key(word.as_str())).count();
    ahead.extend_from_slice(&own[..num_titles]);
    let kind = ahead.iter().rev().map_while(|word| TITLES.get(word.as_str())).find_map(|kind| *kind)?;
    let [first, _, ..] = &own[num_titles..] else { return None };
    (first.chars().count() > 1).then(|| (first.clone(), kind))
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

// Realistic names: lists that were fixed without the corpus, of which surrogates are drawn.
//
// A first letter becomes another one, drawn by how many names of the lists begin with it, so that initials keep in step
// with the names they stand for and no letter is more frequent than in the lists. Two letters can become one; of the pairs
// of names of an individual about one in 500 becomes one name. Unlike invented names, a drawn name is kept where somebody
// of the corpus bears it: surrogates that are never a real name would tell which names are real.

const LETTERS: usize = 26;
const KINDS: [Kind; 4] = [Kind::Woman, Kind::Man, Kind::Surname, Kind::Place];

/// A name as it is written, with the hash of its folded form, by which it is known among those of a corpus.
pub struct Name {
    pub text: Box<str>,
    pub hash: u64,
}

pub struct NamePool {
    /// Names of each kind by first letter.
    names: [[Vec<Name>; LETTERS]; KINDS.len()],
    /// The share of each letter, averaged over kinds; 0 where a kind has no name under it. Their sum is `total`.
    weights: [u32; LETTERS],
    total: u32,
}

impl NamePool {
    /// From the names of women, men, families and places, in this order. A name whose folded form does not begin with a
    /// letter from a to z is refused.
    pub fn new(lists: [&Texts; KINDS.len()]) -> Result<Self> {
        let mut names: [[Vec<Name>; LETTERS]; KINDS.len()] = Default::default();
        for (of_kind, list) in names.iter_mut().zip(lists) {
            for row in 0..list.len() {
                let text = list.get(row);
                let plain = folded(text);
                let letter = plain.bytes().next().filter(u8::is_ascii_lowercase).ok_or_else(|| {
                    Error::Policy(format!("names: name {row} of a list begins with no letter from a to z"))
                })?;
                of_kind[usize::from(letter - b'a')].push(Name { text: text.into(), hash: hash(&plain) });
            }
        }
        let mut weights = [0; LETTERS];
        for (letter, weight) in weights.iter_mut().enumerate() {
            if names.iter().all(|of_kind| !of_kind[letter].is_empty()) {
                *weight = names.iter().zip(lists).map(|(of_kind, list)| share(of_kind[letter].len(), list.len())).sum();
            }
        }
        if weights.iter().filter(|&&weight| weight > 0).count() < 2 {
            return Err(Error::Policy("names: expected names of every kind under two letters and more".into()));
        }
        Ok(Self { names, total: weights.iter().sum(), weights })
    }

    /// A letter (0 is a) in place of another one, never itself.
    pub fn letter(&self, own: u8, stream: &mut Stream) -> u8 {
        let own = usize::from(own);
        let mut left = stream.below((self.total - self.weights[own]) as usize) as u32;
        let others = (0..LETTERS).filter(|&letter| letter != own && self.weights[letter] > 0);
        let mut last = own;
        for letter in others {
            last = letter;
            if left < self.weights[letter] {
                break;
            }
            left -= self.weights[letter];
        }
        last as u8
    }

    /// A name that begins with a letter that [`Self::letter`] gave.
    pub fn name(&self, letter: u8, kind: Kind, stream: &mut Stream) -> &Name {
        let of_kind = &self.names[kind as usize][usize::from(letter)];
        &of_kind[stream.below(of_kind.len())]
    }
}

/// How many of all, in parts of 2^20, at least 1.
fn share(num: usize, all: usize) -> u32 {
    ((num << 20) / all.max(1)).max(1) as u32
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

    #[test]
    fn letters_are_drawn_by_their_share_and_never_stay() {
        // Under c one kind has no name; of a there are three times as many names as of b and of é.
        let list = Texts::of(&["Ann", "Abe", "Amy", "Bob", "Élie"]);
        let with_c = Texts::of(&["Ann", "Abe", "Amy", "Bob", "Élie", "Cid"]);
        let pool = NamePool::new([&list, &list, &list, &with_c]).unwrap();
        let mut counts = [0; LETTERS];
        for attempt in 0..10_000 {
            let letter = pool.letter(3, &mut Key::new([1; 32]).stream(b'L', b"", attempt));
            counts[usize::from(letter)] += 1;
        }
        assert_eq!(counts.iter().sum::<i32>(), counts[0] + counts[1] + counts[4]);
        assert!((5_700..6_300).contains(&counts[0]) && (1_800..2_200).contains(&counts[4]), "{counts:?}");
        for attempt in 0..100 {
            let mut stream = Key::new([2; 32]).stream(b'L', b"", attempt);
            assert_ne!(pool.letter(0, &mut stream), 0);
            assert_eq!(&*pool.name(4, Kind::Man, &mut stream).text, "Élie");
        }
    }

    #[test]
    fn lists_without_two_letters_in_common_are_refused() {
        let (a, b) = (Texts::of(&["Ann"]), Texts::of(&["Ann", "Bob"]));
        assert!(NamePool::new([&a, &b, &b, &b]).is_err());
        assert!(NamePool::new([&b, &b, &b, &b]).is_ok());
        assert!(NamePool::new([&b, &b, &b, &Texts::of(&["王", "Ann", "Bob"])]).is_err());
    }
}
