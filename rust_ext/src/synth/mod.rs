//! A hospital that does not exist: individuals, their records, their notes over time, and public text besides.
//!
//! Everything about individual `i` is a pure function of (seed, i): generating 0..1000 in one call, in ten, or on any number
//! of threads gives the same documents. Every mention of an identity in a note is written through [`Note::identity`], which
//! records its span, so gold spans are complete by construction.
//!
//! What makes notes personal besides names: rare facts composed from parts (most of them used by one individual), misspelt
//! words, and sentences copied forward from the individual's earlier notes.

mod note;
mod person;
mod rng;

use std::sync::LazyLock;

use rayon::prelude::*;

pub use note::Span;
pub use person::Person;

use crate::error::{Error, Result};
use crate::word_lists::sections;
use rng::Rng;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    English,
    French,
}

impl Language {
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "en" => Ok(Self::English),
            "fr" => Ok(Self::French),
            _ => Err(Error::Policy(format!("language: expected en or fr, got {name:?}"))),
        }
    }

    fn lexicon(self) -> &'static Lexicon {
        match self {
            Self::English => &ENGLISH,
            Self::French => &FRENCH,
        }
    }
}

static ENGLISH: LazyLock<Lexicon> = LazyLock::new(|| Lexicon::read(include_str!("../../words/english/hospital.txt")));
static FRENCH: LazyLock<Lexicon> = LazyLock::new(|| Lexicon::read(include_str!("../../words/french/hospital.txt")));
static PARTS: LazyLock<NameParts> = LazyLock::new(|| NameParts::read(include_str!("../../words/any/hospital.txt")));

/// Entries of a list, in its order.
pub type List = Vec<&'static str>;

/// A condition and what goes with it: the coherence a model can learn.
pub struct Condition {
    pub name: &'static str,
    pub group: &'static str,
    pub symptoms: List,
    pub findings: List,
    pub drugs: List,
    pub doses: List,
    pub exams: List,
    pub plans: List,
}

/// The words of one language. `{…}` in a template is filled from the condition, the person or the visit.
pub struct Lexicon {
    pub first_names: [List; 2],
    pub last_names: List,
    pub cities: List,
    pub streets: List,
    pub hospitals: List,
    pub conditions: Vec<Condition>,
    pub headers: List,
    pub openings: List,
    pub bodies: List,
    pub endings: List,
    pub signatures: List,
    pub social: List,
    pub rare_facts: List,
    pub rare_heads: List,
    pub rare_tails: List,
    pub rare_things: List,
    pub public: List,
    pub titles: List,
    pub sexes: List,
}

/// Parts of invented surnames and words, and domains of mail, in whatever language.
pub struct NameParts {
    pub heads: List,
    pub middles: List,
    pub tails: List,
    pub syllables: List,
    pub domains: List,
}

/// Take a list out of those of a file, with its `\n` as line ends; one that is missing is a mistake of ours.
fn take(lists: &mut Vec<(&'static str, List)>, name: &str) -> List {
    let Some(at) = lists.iter().position(|list| list.0 == name) else { panic!("hospital: no list {name:?}") };
    let with_line_ends = |line: &'static str| -> &'static str {
        if line.contains("\\n") { line.replace("\\n", "\n").leak() } else { line }
    };
    lists.swap_remove(at).1.into_iter().map(with_line_ends).collect()
}

impl Lexicon {
    fn read(text: &'static str) -> Self {
        let (conditions, mut lists): (Vec<_>, Vec<_>) =
            sections(text).into_iter().partition(|list| list.0 == "condition");
        let mut list = |name| take(&mut lists, name);
        Self {
            first_names: [list("first names of women"), list("first names of men")],
            last_names: list("last names"),
            cities: list("cities"),
            streets: list("streets"),
            hospitals: list("hospitals"),
            headers: list("headers"),
            openings: list("openings"),
            bodies: list("bodies"),
            endings: list("endings"),
            signatures: list("signatures"),
            social: list("social"),
            rare_facts: list("rare facts"),
            rare_heads: list("beginnings of invented words"),
            rare_tails: list("ends of invented words"),
            rare_things: list("rare things"),
            public: list("public"),
            titles: list("titles"),
            sexes: list("sexes"),
            conditions: conditions.into_iter().map(|(_, lines)| Condition::read(&lines)).collect(),
        }
    }
}

impl Condition {
    fn read(lines: &[&'static str]) -> Self {
        let all = |key: &str| -> List {
            let of_key = |line: &&'static str| line.strip_prefix(key)?.strip_prefix(": ");
            lines.iter().filter_map(of_key).collect()
        };
        let one = |key| all(key).first().copied().unwrap_or_default();
        Self {
            name: one("name"),
            group: one("group"),
            symptoms: all("symptom"),
            findings: all("finding"),
            drugs: all("drug"),
            doses: all("dose"),
            exams: all("exam"),
            plans: all("plan"),
        }
    }
}

impl NameParts {
    fn read(text: &'static str) -> Self {
        let mut lists = sections(text);
        let mut list = |name| take(&mut lists, name);
        Self {
            heads: list("beginnings of surnames"),
            middles: list("middles of surnames"),
            tails: list("ends of surnames"),
            syllables: list("syllables"),
            domains: list("domains of mail"),
        }
    }
}

/// What to generate.
#[derive(Clone)]
pub struct Settings {
    pub seed: u64,
    pub languages: Vec<Language>,
    pub words_per_document: usize,
    pub documents_per_individual: f64,
    /// Invented words that notes draw from by Zipf's law, one word in 17; 0: none.
    pub vocabulary: usize,
}

/// One generated document.
pub struct Document {
    pub doc_id: String,
    pub individual: u64,
    pub household: u64,
    pub text: String,
    pub label: &'static str,
    pub spans: Vec<Span>,
}

/// The notes of individuals `first..first + count`.
pub fn documents(settings: &Settings, first: u64, count: u64) -> Vec<Document> {
    (0..count as usize)
        .into_par_iter()
        .with_min_len(8)
        .flat_map_iter(|number| note::notes_of(settings, first + number as u64))
        .collect()
}

/// The record fields of individuals `first..first + count`.
pub fn records(settings: &Settings, first: u64, count: u64) -> Vec<Person> {
    (first..first + count).into_par_iter().map(|individual| Person::new(settings, individual)).collect()
}

/// Text about no individual: the same medical language without identities, rare facts or misspellings.
pub fn public(settings: &Settings, first: u64, count: u64) -> Vec<String> {
    (0..count as usize)
        .into_par_iter()
        .with_min_len(8)
        .map(|number| note::public_text(settings, first + number as u64))
        .collect()
}

fn rng_of(settings: &Settings, purpose: u64, number: u64) -> Rng {
    Rng::new(settings.seed, purpose, number)
}

fn language_of(settings: &Settings, number: u64) -> Language {
    settings.languages[(number % settings.languages.len() as u64) as usize]
}
