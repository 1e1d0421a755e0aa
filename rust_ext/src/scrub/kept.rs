//! Words of names, addresses, numbers and ages that stay where the rest is replaced: shared by all, they identify no individual.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::values::folded;
use crate::word_lists::{marked, words};

/// What kind of name a span holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Person,
    Place,
    Organization,
    Phone,
    Age,
}

/// They stay unless they end the name: there they are the name.
const IN_PARTICLES: u8 = 1;
/// Particles and titles that are a name when they have a capital.
const IN_SMALL_PARTICLES: u8 = 2;
const IN_TITLES: u8 = 4;
const IN_PLACES: u8 = 8;
const IN_ORGANIZATIONS: u8 = 16;
const IN_PHONES: u8 = 32;
const IN_AGES: u8 = 64;

/// Which of these lists a word is on.
static LISTS_OF: LazyLock<HashMap<&'static str, u8>> = LazyLock::new(|| {
    let mut lists_of = HashMap::new();
    let mut add = |list: u8, word| *lists_of.entry(word).or_insert(0) |= list;
    for (list, name, mark) in [
        (IN_PARTICLES, "particles", "kept"),
        (IN_SMALL_PARTICLES, "particles", "kept small"),
        (IN_TITLES, "titles", "kept"),
    ] {
        marked(name, mark).for_each(|word| add(list, word));
    }
    for (list, name) in [
        (IN_PLACES, "kept in places"),
        (IN_ORGANIZATIONS, "kept in organizations"),
        (IN_PHONES, "kept in phones"),
        (IN_AGES, "kept in ages"),
    ] {
        words(name).for_each(|word| add(list, word));
    }
    lists_of
});

/// `last`: no word of the name comes after it.
pub fn is_kept(word: &str, scope: Scope, last: bool) -> bool {
    let kept = match scope {
        Scope::Person if last => IN_TITLES,
        Scope::Person if word.starts_with(char::is_uppercase) => IN_TITLES | IN_PARTICLES,
        Scope::Person => IN_TITLES | IN_PARTICLES | IN_SMALL_PARTICLES,
        Scope::Place => IN_PLACES,
        Scope::Organization => IN_ORGANIZATIONS | IN_PLACES,
        Scope::Phone => IN_PHONES,
        Scope::Age => IN_AGES,
    };
    // A single letter of a person is an initial.
    let lists = LISTS_OF.get(folded(word).as_ref()).copied().unwrap_or(0);
    lists & kept != 0 && (word.len() > 1 || scope != Scope::Person)
}
