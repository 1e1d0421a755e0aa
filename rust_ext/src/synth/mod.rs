//! A hospital that does not exist: individuals, their records, their notes over time, and public text beside them.
//!
//! Everything about individual `i` is a pure function of (seed, i): generating 0..1000 in one call, in ten, or on any number
//! of threads gives the same documents. Every mention of an identity in a note is written through [`Note::identity`], which
//! records its span, so gold spans are complete by construction.
//!
//! What makes notes personal besides names: rare facts composed from parts (most of them used by one individual), misspelt
//! words, and sentences copied forward from the individual's earlier notes.

mod english;
mod french;
mod note;
mod person;
mod rng;

use rayon::prelude::*;

pub use note::Span;
pub use person::Person;

use crate::error::{Error, Result};
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
            Self::English => &english::LEXICON,
            Self::French => &french::LEXICON,
        }
    }
}

/// A condition and what goes with it: the coherence a model can learn.
pub struct Condition {
    pub name: &'static str,
    pub group: &'static str,
    pub symptoms: &'static [&'static str],
    pub findings: &'static [&'static str],
    pub drugs: &'static [&'static str],
    pub doses: &'static [&'static str],
    pub exams: &'static [&'static str],
    pub plans: &'static [&'static str],
}

/// The words of one language. `{…}` in a template is filled from the condition, the person or the visit.
pub struct Lexicon {
    pub first_names: [&'static [&'static str]; 2],
    pub last_names: &'static [&'static str],
    pub cities: &'static [&'static str],
    pub streets: &'static [&'static str],
    pub hospitals: &'static [&'static str],
    pub conditions: &'static [Condition],
    pub headers: &'static [&'static str],
    pub openings: &'static [&'static str],
    pub bodies: &'static [&'static str],
    pub endings: &'static [&'static str],
    pub signatures: &'static [&'static str],
    pub social: &'static [&'static str],
    pub rare_templates: &'static [&'static str],
    pub rare_heads: &'static [&'static str],
    pub rare_tails: &'static [&'static str],
    pub rare_things: &'static [&'static str],
    pub public: &'static [&'static str],
    pub titles: [&'static str; 2],
    pub sexes: [&'static str; 2],
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
