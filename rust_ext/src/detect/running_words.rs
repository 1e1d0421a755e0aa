//! Words next to names in running text, folded, in English, French, Spanish and German; and those that are no names.

use std::sync::LazyLock;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::word_lists::{WordSet, Words, weekdays, words};

/// A name follows: "named".
pub const NAMING: u32 = 1;
/// "name", before a copula.
pub const NAME: u32 = 1 << 1;
pub const COPULA: u32 = 1 << 2;
/// Relatives, friends, and trades that stand before a name.
pub const KIN: u32 = 1 << 3;
/// "his", before kin.
pub const OWNER: u32 = 1 << 4;
pub const GREETING: u32 = 1 << 5;
/// Only an individual does it.
pub const ACT: u32 = 1 << 6;
pub const ARTICLE: u32 = 1 << 7;
/// Only an individual is one.
pub const HUMAN: u32 = 1 << 8;
pub const AGENT: u32 = 1 << 9;
/// Behind the name of a place or a firm.
pub const PLACE: u32 = 1 << 10;
pub const AND: u32 = 1 << 11;
/// Ends a letter.
pub const CLOSING: u32 = 1 << 12;
/// Has a capital and is nobody.
pub const NO_NAME: u32 = 1 << 13;
/// Is nobody where the corpus writes it small too: in another language it may be a name ("Ella").
pub const FUNCTION: u32 = 1 << 14;
/// A name follows an object: "call her Anna".
pub const CALL: u32 = 1 << 15;
pub const OBJECT: u32 = 1 << 16;
/// Behind kin: "su hermana mayor Ana".
pub const ELDER: u32 = 1 << 18;
/// Only an individual holds one; with a capital, a name may follow.
pub const OFFICE: u32 = 1 << 19;
/// Trades that are cut short to capitals: a name follows.
pub const ROLE: u32 = 1 << 20;
/// Before who says it: "I am well," says Roy.
pub const SAY: u32 = 1 << 17;

/// With "of" or "de" behind them they are of somebody, and of no place.
pub static SPOUSES: Words = LazyLock::new(|| WordSet::of("spouses"));

const LISTS: &[(u32, &str)] = &[
    (NAMING, "naming"),
    (NAME, "name"),
    (COPULA, "is"),
    (KIN, "kin"),
    (OWNER, "owners"),
    (GREETING, "greetings"),
    (ACT, "acts"),
    (ARTICLE, "articles"),
    (HUMAN, "human"),
    (AGENT, "by"),
    (PLACE, "places behind"),
    (AND, "and"),
    (CLOSING, "closings"),
    (NO_NAME, "nobody"),
    (FUNCTION, "function words"),
    (ELDER, "elder"),
    (OFFICE, "offices"),
    (ROLE, "roles"),
    (CALL, "calls"),
    (OBJECT, "objects"),
    (SAY, "says"),
];

static KINDS: LazyLock<HashMap<&'static str, u32, FixedState>> = LazyLock::new(|| {
    let mut kinds: HashMap<&str, u32, FixedState> = HashMap::default();
    for &(list, name) in LISTS {
        words(name).for_each(|word| *kinds.entry(word).or_default() |= list);
    }
    for day in weekdays() {
        *kinds.entry(day).or_default() |= NO_NAME;
    }
    kinds
});

static ENDINGS: LazyLock<Vec<&'static str>> = LazyLock::new(|| words("endings of no name").collect());

/// Whether a folded word ends as names do not.
pub fn ends_as_no_name(word: &str) -> bool {
    ENDINGS.iter().any(|ending| word.len() > ending.len() + 1 && word.ends_with(ending))
}

/// The lists a folded word is in; 0 for none.
#[inline]
pub fn kind(word: &str) -> u32 {
    KINDS.get(word).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_of_their_lists() {
        assert_eq!(kind("wife"), KIN);
        assert_eq!(kind("son"), KIN | OWNER); // English and French
        assert_eq!(kind("sabado"), NO_NAME);
        assert_eq!(kind("anna"), 0);
    }
}
