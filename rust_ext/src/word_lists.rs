//! Word lists: what is known of a language, from the files of `rust_ext/words`, which anybody can read and add to.
//!
//! A file has lists, `[name]` and then an entry a line: a word, or `word = mark, mark`, where the marks say who reads it.
//! Lists of one name are read together, in the order of `FILES`. `hospital` files are read by `synth` alone.

use std::sync::LazyLock;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use crate::text::fold::fold;
use crate::text::surface::Surface;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    English,
    French,
    Spanish,
    German,
}

pub const LANGUAGES: [Language; 4] = [Language::English, Language::French, Language::Spanish, Language::German];

macro_rules! files {
    ($($language:expr, $folder:literal: $($file:literal)*;)*) => {
        &[$($(($language, include_str!(concat!("../words/", $folder, "/", $file, ".txt"))),)*)*]
    };
}

const FILES: &[(Option<Language>, &str)] = files! {
    None, "any": "medicine" "names" "people" "places";
    Some(Language::English), "english": "ages" "dates" "forms" "medicine" "people" "places";
    Some(Language::French), "french": "ages" "dates" "forms" "medicine" "people" "places";
    Some(Language::Spanish), "spanish": "ages" "dates" "forms" "medicine" "people" "places";
    Some(Language::German), "german": "ages" "dates" "forms" "medicine" "people" "places";
};

/// An entry of a list.
#[derive(Clone, Copy)]
pub struct Entry {
    pub word: &'static str,
    pub language: Option<Language>,
    marks: &'static str,
}

impl Entry {
    pub fn marks(&self) -> impl Iterator<Item = &'static str> {
        self.marks.split(", ")
    }

    /// The number of a month or a day of the week: the first mark.
    pub fn number(&self) -> u32 {
        self.marks().next().and_then(|mark| mark.parse().ok()).unwrap_or(0)
    }

    pub fn has(&self, mark: &str) -> bool {
        self.marks().any(|other| other == mark)
    }
}

/// The lists of a file in turn, each with its lines, without comments and empty lines.
pub fn sections(text: &'static str) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => sections.push((name, Vec::new())),
            None => sections.last_mut().map_or((), |(_, lines)| lines.push(line)),
        }
    }
    sections
}

static LISTS: LazyLock<HashMap<&'static str, Vec<Entry>, FixedState>> = LazyLock::new(|| {
    let mut lists: HashMap<&str, Vec<Entry>, _> = HashMap::default();
    for &(language, text) in FILES {
        for (name, lines) in sections(text) {
            let entries = lines.into_iter().map(|line| {
                let (word, marks) = line.split_once(" = ").unwrap_or((line, ""));
                Entry { word, language, marks }
            });
            lists.entry(name).or_default().extend(entries);
        }
    }
    lists
});

/// The entries of a list; a list that no file has is a mistake of ours, which any test of its reader shows.
pub fn entries(list: &str) -> &'static [Entry] {
    match LISTS.get(list) {
        Some(entries) => entries,
        None => panic!("no word list {list:?}"),
    }
}

pub fn words(list: &str) -> impl Iterator<Item = &'static str> {
    entries(list).iter().map(|entry| entry.word)
}

/// The words of a list that have a mark.
pub fn marked(list: &str, mark: &str) -> impl Iterator<Item = &'static str> {
    entries(list).iter().filter(move |entry| entry.has(mark)).map(|entry| entry.word)
}

/// A word without its accents, in small letters, as texts are compared.
pub fn plain(word: &'static str) -> &'static str {
    if word.is_ascii() { word } else { fold(word, Surface::Fold).text.leak() }
}

/// Spellings of months that a reader takes, folded, each with the number of its month.
pub fn months(reader: &str) -> impl Iterator<Item = (u32, &'static str)> {
    let of_reader = entries("months").iter().filter(move |entry| entry.has(reader));
    of_reader.map(|entry| (entry.number(), plain(entry.word)))
}

/// Names of months of a language, folded, not those that are cut short.
pub fn month_names(language: Language, reader: &str) -> impl Iterator<Item = &'static str> {
    let full = entries("months").iter().filter(move |entry| entry.language == Some(language) && entry.has("full"));
    full.filter(move |entry| entry.has(reader)).map(|entry| plain(entry.word))
}

/// Names of the days of the week, folded, one a day and language.
pub fn weekdays() -> impl Iterator<Item = &'static str> {
    LANGUAGES.into_iter().flat_map(weekdays_of)
}

pub fn weekdays_of(language: Language) -> impl Iterator<Item = &'static str> {
    let names = entries("weekdays").iter().filter(move |entry| entry.language == Some(language) && entry.has("full"));
    let mut last = 0;
    let first_of_day = move |entry: &&Entry| std::mem::replace(&mut last, entry.number()) != entry.number();
    names.filter(first_of_day).map(|entry| plain(entry.word))
}

/// An expression for one of these words, the longer ones first.
pub fn alternatives(words: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut words: Vec<String> = words.map(|word| word.as_ref().replace('.', r"\.")).collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    words.dedup();
    words.join("|")
}

/// Bytes of a word that is compared in any case.
const LONGEST: usize = 32;

/// Words of a list, made on first use.
pub type Words = LazyLock<WordSet>;

pub struct WordSet {
    words: HashSet<&'static [u8], FixedState>,
    longest: usize,
}

impl WordSet {
    pub fn of(list: &str) -> Self {
        words(list).collect()
    }

    pub fn marked(list: &str, mark: &str) -> Self {
        marked(list, mark).collect()
    }

    #[inline]
    pub fn has(&self, word: impl AsRef<[u8]>) -> bool {
        self.words.contains(word.as_ref())
    }

    /// Whether a word is one of these in whatever case; the list has them in small letters.
    pub fn has_any_case(&self, word: &[u8]) -> bool {
        let mut small = [0; LONGEST];
        let Some(small) = small.get_mut(..word.len()).filter(|_| word.len() <= self.longest) else { return false };
        small.copy_from_slice(word);
        small.make_ascii_lowercase();
        self.words.contains(&*small)
    }

    pub fn iter(&self) -> impl Iterator<Item = &'static [u8]> {
        self.words.iter().copied()
    }

    /// Whether a text begins with one of these, in whatever case.
    pub fn begin(&self, text: &[u8]) -> bool {
        self.iter().any(|word| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)))
    }
}

impl FromIterator<&'static str> for WordSet {
    fn from_iter<T: IntoIterator<Item = &'static str>>(words: T) -> Self {
        let words: HashSet<&[u8], FixedState> = words.into_iter().map(str::as_bytes).collect();
        let longest = words.iter().map(|word| word.len()).max().unwrap_or(0);
        Self { words, longest }
    }
}

/// First names and surnames that surrogates are drawn from, folded; those that are words too are among them.
static NAMES: LazyLock<[WordSet; 2]> = LazyLock::new(|| {
    let (mut lists, mut kind) = ([Vec::new(), Vec::new()], None);
    for line in include_str!("../../reticent/engine/names.toml").lines() {
        if let Some((name, _)) = line.split_once(" = ") {
            kind = ["women", "men", "surnames"].iter().position(|other| *other == name).map(|at| at / 2);
        } else if let Some(kind) = kind {
            lists[kind].extend(line.split(' ').map(|word| &*fold(word, Surface::Fold).text.leak()));
        }
    }
    lists.map(|list| list.into_iter().collect())
});

/// Whether a folded word is a first name on a list of names.
pub fn is_first_name(word: &str) -> bool {
    NAMES[0].has(word)
}

/// Whether a folded word is a first name or a surname on a list of names.
pub fn is_listed_name(word: &str) -> bool {
    NAMES.iter().any(|names| names.has(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_words_with_their_marks() {
        let text = "# About.\n\n[one]\na b = x, y z\nc\n\n[two]\n[one]\nd\n";
        let found = sections(text);
        assert_eq!(found, [("one", vec!["a b = x, y z", "c"]), ("two", vec![]), ("one", vec!["d"])]);
        let entry = Entry { word: "a b", language: None, marks: "x, y z" };
        assert!(entry.has("x") && entry.has("y z") && !entry.has("y"));
    }

    #[test]
    fn words_are_written_as_they_are_compared() {
        for (list, entries) in LISTS.iter() {
            assert!(!entries.is_empty(), "{list}");
            for (number, Entry { word, marks, language }) in entries.iter().enumerate() {
                assert!(word.trim() == *word && !word.contains(" ="), "{list}: {word:?}");
                let accents = matches!(*list, "months" | "weekdays");
                assert!(accents || word.is_ascii(), "{list}: {word:?} has an accent");
                let again = entries[..number].iter().any(|other| other.word == *word && other.language == *language);
                assert!(!again && !marks.ends_with(','), "{list}: {word:?} stands twice");
            }
        }
    }

    #[test]
    fn sets_are_asked_in_several_ways() {
        let set: WordSet = ["tel", "e-mail"].into_iter().collect();
        assert!(set.has("tel") && !set.has("Tel") && set.has_any_case(b"E-Mail") && !set.has_any_case(b"e-mails"));
        assert!(set.begin(b"TELEPHONE") && !set.begin(b"te") && !set.begin(b"fax"));
        assert_eq!(alternatives(["nom", "pat.", "noms"].into_iter()), r"pat\.|noms|nom");
    }
}
