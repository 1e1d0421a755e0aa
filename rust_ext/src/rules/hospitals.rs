//! Hospitals by the head of their name, in Spanish, French and German: Hospital Comarcal de Valdearce, CHU de Lyon, Kreisklinikum
//! Wiesenau. In English the head stands last, and capitals before it may be anything; there a field or a list must say it.

use std::sync::LazyLock;

use super::{Hit, Rank, Rule, rule};
use crate::word_lists::{WordSet, Words, alternatives, words};

/// `%HOSPITAL%`: the heads of the word lists.
pub fn head() -> String {
    let [heads, beginnings, ends] =
        ["hospital heads", "beginnings of hospitals", "ends of hospitals"].map(|list| alternatives(words(list)));
    format!("(?:CH[RU]{{0,2}} d[eu]|{heads}|(?:{beginnings})(?:{ends}))")
}

pub const PARTS: &[(&str, &str)] = &[
    (
        "%OF%",
        r"(?:(?i:universitari[oa]|universitaire|prive|regional|de la|de las|de los|de l'|des|del|du|de|d'|la|las|los|le|les|el|y|et|i|e|am|an der|im|in|der) ?)",
    ),
    ("%OWN%", r"(?:[A-Z\x80-\xff][A-Za-z\x80-\xff'-]+|\d{1,2} de [A-Z][a-z]+|Dr\.|St\.)"),
];

pub const RULES: &[Rule] = &[rule(
    "hospital_named",
    "HOSPITAL",
    Rank::Form,
    "hospitals by the head of their name: Hospital Universitario La Paz, Centre Hospitalier de Valbrune, Kreisklinikum Wiesenau",
    r"%HOSPITAL% %OF%{0,3}%OWN%(?:[ -]%OF%{0,2}%OWN%){0,6}",
    is_hospital,
)];

/// In other languages "Hospital" begins a heading too ("Hospital Course"); one word of Spanish must say that it is a name.
fn is_hospital(hit: &mut Hit) -> bool {
    static SPANISH: Words = LazyLock::new(|| WordSet::of("hospitals"));
    static NEXT: Words = LazyLock::new(|| WordSet::of("behind a hospital"));
    let mut end = 0;
    for (number, word) in hit.piece().split(|byte| *byte == b' ').enumerate() {
        let bare = word.strip_suffix(b".").unwrap_or(word);
        if number > 1 && NEXT.has_any_case(bare) {
            hit.end = hit.start + end - 1;
            break;
        }
        end += word.len() + 1;
    }
    let piece = hit.piece();
    let several = piece.iter().filter(|byte| **byte == b' ').count();
    let generic = piece[..8.min(piece.len())].eq_ignore_ascii_case(b"hospital") && piece.get(8) == Some(&b' ');
    let said = || piece.split(|byte| *byte == b' ').skip(1).any(|word| SPANISH.has_any_case(word));
    // "EXAMEN CLINIQUE GENERAL": a heading.
    let heading = piece[..6.min(piece.len())].eq_ignore_ascii_case(b"cliniq")
        && hit.before().trim_ascii_end().last().is_some_and(u8::is_ascii_alphanumeric)
        && hit.before().ends_with(b" ")
        && piece[1].is_ascii_uppercase();
    several > 0 && !heading && (!generic || said())
}
