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

use foldhash::fast::FixedState;
use hashbrown::HashMap;
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

    pub fn date(self, (year, month, day): (u32, u32, u32)) -> String {
        match self {
            Self::English => format!("{month:02}/{day:02}/{year}"),
            Self::French => format!("{day:02}/{month:02}/{year}"),
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
/// Parts of invented surnames and words, and domains of mail, in whatever language.
static PARTS: LazyLock<Lists> = LazyLock::new(|| Lexicon::read(include_str!("../../words/any/hospital.txt")).lists);

/// Lists by name, with their entries in order; one that is missing is a mistake of ours, and a panic.
pub type Lists = HashMap<&'static str, Vec<&'static str>, FixedState>;

/// The words of one language. `{…}` in a template is filled from the condition, the person or the visit.
pub struct Lexicon {
    pub lists: Lists,
    /// Of each condition its name, its group and what goes with it, the coherence that a model can learn: under "symptom" all
    /// symptoms.
    pub conditions: Vec<Lists>,
}

const FIRST_NAMES: [&str; 2] = ["first names of women", "first names of men"];

impl Lexicon {
    /// From the lists of a file, with its `\n` as line ends.
    fn read(text: &'static str) -> Self {
        let (conditions, lists): (Vec<_>, Vec<_>) = sections(text).into_iter().partition(|list| list.0 == "condition");
        let with_line_ends = |line: &'static str| -> &'static str {
            if line.contains("\\n") { line.replace("\\n", "\n").leak() } else { line }
        };
        let of_condition = |lines: Vec<&'static str>| {
            let mut lists = Lists::default();
            for (key, value) in lines.into_iter().filter_map(|line| line.split_once(": ")) {
                lists.entry(key).or_default().push(value);
            }
            lists
        };
        Self {
            lists: lists
                .into_iter()
                .map(|(name, lines)| (name, lines.into_iter().map(with_line_ends).collect()))
                .collect(),
            conditions: conditions.into_iter().map(|(_, lines)| of_condition(lines)).collect(),
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
