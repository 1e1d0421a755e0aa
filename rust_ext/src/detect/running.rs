//! Running text: names that stand in no header and behind no title, by the words around them.
//!
//! A run is one to five words with capitals, joined as the parts of a name, none of which this corpus writes small (`common`) and
//! none of a closed list (`running_words`). A run alone is no name: it may be a town, a drug or a firm. It is one where something
//! next to it says so, in English, French, Spanish or German:
//!
//! | evidence | example |
//! | --- | --- |
//! | a word that names | her name is Anna Roy; se llama Ana; un homme nommé Petit |
//! | kinship or a trade before it | his wife Anna; su hija Ana; the surgeon Roy |
//! | an address | Dear Anna; thanks, Anna |
//! | something only an individual does | Roy denies pain; Ana refiere dolor; Anna Roy is a 43-year-old woman |
//! | an initial within | Anna B. Roy |
//! | a doer, of two words | seen by Anna Roy |
//! | a line of its own above an address or below a greeting | Anna Roy / 12 Main Street |
//! | kinship behind its genitive | Anna's mother |
//! | a name next to it | Anna Roy and Max; Anna, Max and Ada |
//! | in a line typed small: a title, an address, "name is" | dr. roy; hi anna |
//!
//! Where else a name stands that was found once, `surfaces` finds. Cost: a look at the first letter of each piece; the rest only where it is a
//! capital.

use std::sync::LazyLock;

use rayon::prelude::*;

use crate::detect::common::CommonWords;
use crate::detect::context::{is_capital, is_in_date, is_initial, is_particle, is_title, month, starts_sentence};
use crate::detect::letter_case::{Lines, has_case, is_all_capitals};
use crate::detect::name_runs::{Run, between, runs};
use crate::detect::places::is_in_place;
use crate::detect::running_words::{
    ACT, AGENT, AND, ARTICLE, CALL, CLOSING, COPULA, ELDER, GREETING, HUMAN, KIN, NAME, NAMING, OBJECT, OFFICE, OWNER,
    PLACE, ROLE, SAY, SPOUSES, ends_as_no_name, kind,
};
use crate::pool::rows;
use crate::text::pieces::View;
use crate::text::spans::Found;
use crate::text::surface::Surface;
use crate::text::texts::Texts;
use crate::word_lists::{WordSet, Words};

/// The names of documents, by document, then start.
pub fn find_all(texts: &Texts, common: Option<&CommonWords>) -> Vec<Found> {
    rows(texts.len())
        .flat_map_iter(|row| {
            let view = View::new(texts.get(row), Surface::Fold);
            let mut found = Vec::new();
            find(&view, common, |first, last| {
                if let Some((start, end)) = view.origin_of(first, last) {
                    found.push(Found { document: row as u32, start, end, source: 0 });
                }
            });
            found.sort_unstable_by_key(|found| found.start); // names in small letters came first
            found
        })
        .collect()
}

/// First and last piece of each name of a text, from left to right; without `common` words, only what a word before it says.
pub fn find(view: &View, common: Option<&CommonWords>, mut emit: impl FnMut(usize, usize)) {
    if let Some(common) = common {
        find_in_small(view, common, &mut emit);
    }
    if !has_case(view.original) {
        return;
    }
    let runs = runs(view, common);
    let mut names: Vec<bool> = runs
        .iter()
        .map(|run| {
            !is_place(view, run)
                && (is_said_before(view, run) || common.is_some_and(|common| is_name(view, run, common)))
        })
        .collect();
    if common.is_some() {
        let mut joined: Vec<bool> = runs.windows(2).map(|two| is_joined(view, &two[0], &two[1])).collect();
        // A comma joins in a list that ends in "and": from the right.
        for at in (1..joined.len()).rev() {
            joined[at - 1] |= joined[at] && is_listed(view, &runs[at - 1], &runs[at]);
        }
        for (at, _) in joined.iter().enumerate().filter(|(_, joined)| **joined) {
            names[at + 1] |= names[at] && !is_place(view, &runs[at + 1]);
        }
        for (at, _) in joined.iter().enumerate().rev().filter(|(_, joined)| **joined) {
            names[at] |= names[at + 1] && !is_place(view, &runs[at]);
        }
    }
    runs.iter().zip(names).filter(|(_, is_name)| *is_name).for_each(|(run, _)| emit(run.first, run.last));
}

/// The word before a piece that one space, or a comma and one, parts from it.
fn before(view: &View, piece: usize) -> Option<(usize, bool)> {
    let before = piece.checked_sub(1)?;
    match between(view, before)? {
        " " | "  " => Some((before, false)),
        ", " | " , " => Some((before, true)),
        _ => None,
    }
}

pub fn kind_at(view: &View, piece: Option<usize>) -> u32 {
    piece.filter(|&piece| piece < view.len()).map_or(0, |piece| kind(view.piece(piece)))
}

/// Whether the words before a run say that a name comes.
fn is_said_before(view: &View, run: &Run) -> bool {
    if is_in_brackets(view, run) {
        return true;
    }
    let Some((last, comma)) = before(view, run.first) else { return false };
    let kind = kind(view.piece(last));
    let second = || kind_at(view, last.checked_sub(1));
    if kind & NAMING != 0 {
        return !comma;
    }
    // "de nombre Ana", "by the name of Roy", "du nom de Roy"
    let word_at = |by: usize| last.checked_sub(by).map_or("", |piece| view.piece(piece));
    if !comma
        && (kind & NAME != 0 && word_at(1) == "de"
            || matches!(word_at(0), "of" | "de") && second() & NAME != 0 && matches!(word_at(2), "the" | "du"))
    {
        return true;
    }
    // "widow of Anna", "veuve de Roy"
    if !comma && matches!(word_at(0), "of" | "de") && SPOUSES.has(word_at(1)) {
        return true;
    }
    // "call her Anna"
    if !comma && kind & OBJECT != 0 && second() & CALL != 0 {
        return true;
    }
    // "I am well," says Anna
    if !comma && kind & SAY != 0 && last > 0 && view.gap(last - 1).contains(['"', '\u{201d}', '\u{bb}']) {
        return true;
    }
    // "her name is", "son nom est"
    if kind & COPULA != 0 && !comma && second() & NAME != 0 {
        return true;
    }
    // "his wife Anna", "his wife, Anna,"
    if kind & KIN != 0 {
        // With a capital it may be of a title ("Abduction of Child Conventions") or a heading, but for "Seine Frau Anna".
        let owned = || second() & OWNER != 0;
        let in_title = is_capital(view, last) == Some(true)
            && !last
                .checked_sub(1)
                .is_some_and(|piece| view.gap(piece) == " " && (owned() || is_german(view.piece(piece))));
        return !in_title && (!comma || owned());
    }
    // "su hermana mayor Ana"
    if kind & ELDER != 0 && second() & KIN != 0 {
        return !comma && view.gap(last - 1) == " ";
    }
    // "report to SW Anna"
    kind & GREETING != 0 || kind & ROLE != 0 && !comma && is_all_capitals(view, last)
}

/// "Mum (Anna)", "su abuela (Ana Roy, 60 años)"
fn is_in_brackets(view: &View, run: &Run) -> bool {
    run.first.checked_sub(1).is_some_and(|last| between(view, last) == Some(" (") && kind(view.piece(last)) & KIN != 0)
        && between(view, run.last).is_some_and(|gap| gap.starts_with([')', ',', ';']))
}

/// Before kin in German, where nouns have capitals.
fn is_german(word: &str) -> bool {
    matches!(
        word,
        "mit"
            | "von"
            | "bei"
            | "zur"
            | "zum"
            | "sowie"
            | "die"
            | "der"
            | "das"
            | "den"
            | "dem"
            | "des"
            | "und"
            | "ihrer"
            | "seiner"
            | "seines"
            | "deren"
            | "dessen"
    )
}

fn is_name(view: &View, run: &Run, common: &CommonWords) -> bool {
    // "Ambassador A. Roy"
    let office = run.num_initials > 0
        && is_initial(view, run.first)
        && before(view, run.first).is_some_and(|(last, comma)| {
            !comma && kind(view.piece(last)) & OFFICE != 0 && is_capital(view, last) == Some(true)
        });
    let initial_within = run.num_initials > 0 && run.num_words > 1 && {
        let is_inner = |piece: usize| piece > run.first && is_initial(view, piece);
        (run.first..run.last).any(is_inner) && is_capital(view, run.last) == Some(true) && !is_initial(view, run.last)
    };
    // One word that begins a sentence has a capital for that; elsewhere the corpus must have one.
    let told = run.num_words > 1 || !starts_sentence(view, run.first) || common.has_capital(view.piece(run.first));
    initial_within || office || told && does_as_individuals_do(view, run) || is_doer(view, run) || is_line(view, run)
}

/// "seen by Anna Roy"; "por" and "von" only behind a participle: they are also "for" and "of".
fn is_doer(view: &View, run: &Run) -> bool {
    let is_agent = |last: usize| {
        let participle = || {
            last.checked_sub(1).map(|verb| view.piece(verb)).is_some_and(|verb| {
                ["do", "da", "dos", "das", "to", "ta", "en", "t"].iter().any(|ending| verb.ends_with(ending))
                    && verb.len() > 4
            })
        };
        kind(view.piece(last)) & AGENT != 0 && (!matches!(view.piece(last), "por" | "von") || participle())
    };
    run.num_words > 1
        && (run.first..run.last).any(|piece| between(view, piece) == Some(" "))
        && before(view, run.first).is_some_and(|(last, comma)| !comma && is_agent(last))
}

/// "Roy denies", "Roy is a 43-year-old", "Roy, a 43-year-old", "Roy's mother"
fn does_as_individuals_do(view: &View, run: &Run) -> bool {
    let next = run.last + 1;
    let Some(gap) = between(view, run.last).filter(|_| next < view.len()) else { return false };
    let small = is_capital(view, next) == Some(false);
    let kind = kind_at(view, Some(next));
    match gap {
        " " if small && kind & ACT != 0 => true,
        " " if small && kind & COPULA != 0 => is_individual(view, next + 1),
        // "Anna Roy (wife)"
        " (" => kind & KIN != 0 && between(view, next).is_some_and(|gap| gap.starts_with([')', ',', ';'])),
        ", " => is_individual(view, next) || run.num_words > 1 && is_age(view, next),
        "'" | "\u{2019}" => {
            view.piece(next) == "s"
                && view.gap(next) == " "
                && kind_at(view, Some(next + 1)) & KIN != 0
                && is_capital(view, next + 1) == Some(false)
        }
        _ => false,
    }
}

/// "a 43-year-old", "a pleasant woman", "une patiente de 43 ans"
fn is_individual(view: &View, piece: usize) -> bool {
    kind_at(view, Some(piece)) & ARTICLE != 0
        && (piece + 1..view.len().min(piece + 6))
            .take_while(|&at| !view.gap(at - 1).contains(['.', ';', ':', '\n']))
            .any(|at| kind(view.piece(at)) & HUMAN != 0)
}

/// "54 y.o.", "54 ans,", "54 years old", "54 años de edad"; not "2 years ago".
fn is_age(view: &View, piece: usize) -> bool {
    let number = view.piece(piece);
    if number.len() > 3 || !number.bytes().all(|byte| byte.is_ascii_digit()) || piece + 1 >= view.len() {
        return false;
    }
    let ends = |at: usize| between(view, at).is_some_and(|gap| gap.starts_with([',', '.', ';', ')']));
    let word_at = |at: usize| if at < view.len() { view.piece(at) } else { "" };
    match view.piece(piece + 1) {
        "y" => view.gap(piece + 1) == "." && word_at(piece + 2) == "o",
        "yo" => true,
        "year" | "years" | "ans" | "anos" | "jahre" | "jahren" => {
            ends(piece + 1)
                || matches!(word_at(piece + 2), "old" | "alt")
                || word_at(piece + 2) == "de" && word_at(piece + 3) == "edad"
        }
        _ => false,
    }
}

/// Two to four words that are a line of their own, as in a letter.
fn is_line(view: &View, run: &Run) -> bool {
    let words = run.num_words + run.num_initials;
    (2..=4).contains(&words) && run.num_words > 0 && is_own_line(view, run.first, run.last)
}

/// What stands around it makes it a place or a firm.
fn is_place(view: &View, run: &Run) -> bool {
    let next = (run.last + 1 < view.len() && matches!(view.gap(run.last), " " | ", " | " & ")).then_some(run.last + 1);
    kind_at(view, next) & PLACE != 0 || is_in_date(view, run.first) || is_in_place(view, run.first, run.last)
}

/// "Anna, Max", in a list
fn is_listed(view: &View, one: &Run, next: &Run) -> bool {
    next.first == one.last + 1 && between(view, one.last) == Some(", ")
}

/// "Anna Roy and Max"
fn is_joined(view: &View, one: &Run, next: &Run) -> bool {
    next.first == one.last + 2
        && kind(view.piece(one.last + 1)) & AND != 0
        && [one.last, one.last + 1].into_iter().all(|piece| between(view, piece) == Some(" "))
}

// Lines of their own: a name at the head of an address, or below the greeting that ends a letter.

/// Before each line of a quoted mail.
const QUOTING: [char; 4] = [' ', '\t', '>', '|'];
/// Lines from a name to the street it lives in.
const ADDRESS: usize = 4;
/// Words of a line of an address.
const MAX_LINE: usize = 6;

/// A line that a house number follows, at once or after lines of a trade or a firm, or that ends a letter.
pub fn is_own_line(view: &View, first: usize, last: usize) -> bool {
    let begins =
        first == 0 || between(view, first - 1).is_some_and(|gap| gap.trim_end_matches(QUOTING).ends_with('\n'));
    let ends = between(view, last).is_some_and(|gap| gap.trim_start_matches([' ', '\t', ',', '\r']).starts_with('\n'));
    if !begins || !ends {
        return false;
    }
    let number =
        view.pieces().get(last + 1).is_some() && view.piece(last + 1).bytes().all(|byte| byte.is_ascii_digit());
    let street = number && {
        let gap = between(view, last + 1);
        gap.is_some_and(|gap| matches!(gap, " " | ", "))
            && is_capital(view, last + 2 - usize::from(last + 2 >= view.len())).is_some()
    };
    // A line further up than the street is a name where it is the first of its block.
    let is_top =
        first == 0 || between(view, first - 1).is_some_and(|gap| gap.bytes().filter(|byte| *byte == b'\n').count() > 1);
    let street = street || is_top && (1..ADDRESS).any(|line| is_street_below(view, last, line));
    let closing = first > 0 && kind(view.piece(first - 1)) & CLOSING != 0;
    street || closing
}

/// Whether so many short lines below a piece a line begins with a number and a word with a capital, or two numbers.
fn is_street_below(view: &View, last: usize, num_lines: usize) -> bool {
    let mut piece = last;
    for _ in 0..=num_lines {
        // The last piece of its line.
        let from = piece;
        while piece + 1 < view.len() && between(view, piece).is_some_and(|gap| !gap.contains('\n')) {
            piece += 1;
        }
        let ends = between(view, piece).is_some_and(|gap| gap.trim_matches(QUOTING) == "\n");
        if piece + 2 >= view.len() || piece - from > MAX_LINE || !ends {
            return false;
        }
        piece += 1;
    }
    let is_number = |piece: usize| view.piece(piece).bytes().all(|byte| byte.is_ascii_digit());
    is_number(piece)
        && between(view, piece) == Some(" ")
        && (is_capital(view, piece + 1) == Some(true) || is_number(piece + 1))
}

// Lines typed all in small letters, as dialogues are: case says nothing there, and what stands before a word says more.
//
// "dr. roy", "hi anna ,", "my name is anna roy": a word behind a title, an address or "name is", unless many documents have it.

/// Before a name in small letters; "m" and "dr" without a point are other things too.
static TITLES: Words = LazyLock::new(|| WordSet::marked("titles", "typed"));

/// Names in lines typed all in small letters, where case says nothing: behind a title, an address or "my name is".
pub fn find_in_small(view: &View, common: &CommonWords, emit: &mut impl FnMut(usize, usize)) {
    let mut lines = Lines::new(view.original);
    let mut piece = 0;
    while piece < view.len() {
        if lines.has_case(view, piece) {
            // On to the next line: most texts have no other.
            while piece < view.len() && view.origin_start(piece).is_none_or(|start| start < lines.end()) {
                piece += 1;
            }
            continue;
        }
        if is_capital(view, piece) != Some(false) {
            piece += 1;
            continue;
        }
        if is_described(view, piece) && is_unusual(view.piece(piece), common) {
            emit(piece, piece);
            piece += 1;
            continue;
        }
        if piece == 0 {
            piece += 1;
            continue;
        }
        let word = view.piece(piece - 1);
        let gap = view.gap(piece - 1);
        let titled = matches!(gap, " " | ". " | " . ") && TITLES.has(word) && (gap != " " || word.len() > 2);
        let kind = kind(word);
        let addressed = matches!(gap, " " | " , " | ", ") && kind & GREETING != 0;
        let named = gap == " "
            && (kind & COPULA != 0 && piece > 1 && kind_at(view, Some(piece - 2)) & NAME != 0
                || kind & OBJECT != 0 && piece > 1 && kind_at(view, Some(piece - 2)) & CALL != 0);
        if !(titled || addressed || named) || !is_unusual(view.piece(piece), common) {
            piece += 1;
            continue;
        }
        let mut last = piece;
        while last + 1 < view.len()
            && last - piece < 2
            && matches!(view.gap(last), " " | "-")
            && is_unusual(view.piece(last + 1), common)
        {
            last += 1;
        }
        emit(piece, last);
        piece = last + 1;
    }
}

/// "anna is a 43 year old", "ana es una mujer": what only an individual is.
fn is_described(view: &View, piece: usize) -> bool {
    static PERSONS: Words = LazyLock::new(|| WordSet::of("described"));
    let copula = piece + 2 < view.len() && view.gap(piece) == " " && kind(view.piece(piece + 1)) & COPULA != 0;
    copula
        && kind(view.piece(piece + 2)) & ARTICLE != 0
        && (piece + 3..view.len().min(piece + 8))
            .take_while(|&at| !view.gap(at - 1).contains(['.', ',', ';', ':', '\n']))
            .any(|at| PERSONS.has(view.piece(at)))
}

/// A word that many documents do not write: nobody's language.
fn is_unusual(word: &str, common: &CommonWords) -> bool {
    word.len() > 2
        && word.chars().all(char::is_alphabetic)
        && kind(word) == 0
        && !is_title(word)
        && !is_particle(word)
        && month(word).is_none()
        && !ends_as_no_name(word)
        && !common.is_widespread(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::surface::Surface;
    use crate::text::texts::Texts;

    fn corpus() -> CommonWords {
        let mut common = CommonWords::new();
        let texts = [
            "The patient and the nurse saw the pain, the plan and the clinic of the town; brown, will and long. So did Roy and Anna.",
            "the patient and the nurse saw the pain, the plan and the clinic of the town; brown, will and long; brown",
        ];
        common.add(&Texts::of(&texts), None).unwrap();
        common.merge();
        common
    }

    fn found(text: &str, common: Option<&CommonWords>) -> Vec<String> {
        let view = View::new(text, Surface::Fold);
        let mut found = Vec::new();
        find(&view, common, |first, last| {
            let (start, end) = view.origin_of(first, last).unwrap();
            found.push(text[start..end].to_owned());
        });
        found
    }

    #[test]
    fn names_of_hand_worked_sentences() {
        let table: &[(&str, &[&str])] = &[
            ("Her name is Anna Roy today.", &["Anna Roy"]),
            ("Une femme nommée Élodie Petit-Roy arrive.", &["Élodie Petit-Roy"]),
            ("La paciente se llama Ana de la Cruz y vive sola.", &["Ana de la Cruz"]),
            ("He lives with his wife Anna and a dog.", &["Anna"]),
            ("He came with his wife, Anna, today.", &["Anna"]),
            ("The wife, Medicare says, pays.", &[]),
            ("Su hermana mayor Ana acude.", &["Ana"]),
            ("Una hija de nombre Ana Ruiz vive sola.", &["Ana Ruiz"]),
            ("It was a man by the name of Roy.", &["Roy"]),
            ("His wife Anna Roy Code Status at Discharge", &["Anna Roy"]),
            ("Patient Information Anna Roy, 54 y.o. male", &["Anna Roy"]),
            ("Then Anna Roy, 54 ans, vient. Boston Town, 2 years ago", &["Anna Roy"]),
            ("Sus padres Ana Jesús Ruiz y Max vienen.", &["Ana Jesús Ruiz", "Max"]),
            ("It was seen of Ambassador A. Roy.", &["A. Roy"]),
            ("The Inspector explained it.", &[]),
            ("the law of Child Abduction", &[]),
            ("Die Tochter Anna kommt mit Sohn Max.", &["Anna", "Max"]),
            ("Dear Anna, thanks", &["Anna"]),
            ("Roy denies pain.", &["Roy"]),
            ("Zoe denies pain. Then Zoe denies it.", &["Zoe"]),
            ("Similarly, the patient came. IgG denies pain. Hematology states it.", &[]),
            ("Operada por Ana Ruiz. Tratada por Western Blot.", &["Ana Ruiz", "Western Blot"]),
            ("Enfermedad por Western Blot.", &[]),
            ("Ana Ruiz refiere dolor.", &["Ana Ruiz"]),
            ("Anna Roy is a pleasant 43-year-old woman.", &["Anna Roy"]),
            ("Then Roy, a 43-year-old woman, came.", &["Roy"]),
            ("Lasix is a drug.", &[]),
            ("The plan of Anna B. Roy is", &["Anna B. Roy"]),
            ("It was seen by Anna Roy today.", &["Anna Roy"]),
            ("It was seen by Medtronic today.", &[]),
            ("It was seen by Anna Roy Hospital.", &[]),
            ("Anna's mother came.", &["Anna"]),
            ("Anna's drug came.", &[]),
            ("Hello Anna and Max, come", &["Anna", "Max"]),
            ("said\nAnna Roy\n12 Main Street\nx", &["Anna Roy"]),
            ("said\nBest regards\nAnna Roy\n", &["Anna Roy"]),
            ("said\nAnna Roy\nfor pain", &[]),
            ("said\n\n> Anna Roy\n> Surveyor\n> 12 Main Street\n> x", &["Anna Roy"]),
            ("said\n\nAnna Roy\nSurveyor\n12 mg daily\nx", &[]),
            ("They had four: Zoe, his son Max, Anna, Ada and Leo.", &["Max", "Anna", "Ada", "Leo"]),
            ("He saw Paris, Lyon and Metz.", &[]),
            ("Los padres, Teresa y Juan Carlos, vienen.", &[]),
            ("Habla con los padres Teresa y Juan Carlos.", &["Teresa", "Juan Carlos"]),
            ("Mum (Anna) is well. Anna Roy (wife) called, su abuela (Ana Ruiz).", &["Anna", "Anna Roy", "Ana Ruiz"]),
            ("the widow of Anna came; viuda de Roy.", &["Anna", "Roy"]),
            ("Report to SW Anna Roy; due Monday, due Roy", &["Anna Roy"]),
            ("The mother (Medicare) pays; her wife (in Paris)", &[]),
            ("His kids Anna and Max came. The United Nations Children Convention", &["Anna", "Max"]),
            ("Seine Tochter Anna kommt. Ihre Mutter Anna auch.", &["Anna", "Anna"]),
            ("They call her Anna.", &["Anna"]),
            ("\u{201c}I am well,\u{201d} says Anna.", &["Anna"]),
            ("Anna is an old person.", &["Anna"]),
            ("vive con su hija Ana en San Ana", &["Ana"]),
            // The corpus writes these small.
            ("Patient denies pain. Brown denies pain.", &[]),
            ("MRI denies pain.", &[]),
            ("She denies pain. He reports it.", &[]),
            ("Crohn's disease is a disease of the patient.", &[]),
            ("in May he says", &[]),
            ("", &[]),
        ];
        let common = corpus();
        for (text, expected) in table {
            assert_eq!(found(text, Some(&common)), *expected, "{text:?}");
        }
    }

    #[test]
    fn without_a_corpus_only_a_word_before_a_name_is_believed() {
        assert_eq!(found("Her name is Anna Roy. Roy denies pain.", None), ["Anna Roy"]);
    }

    #[test]
    fn a_text_in_capitals_says_nothing() {
        assert!(found("HER NAME IS ANNA ROY", Some(&corpus())).is_empty());
    }

    #[test]
    fn names_of_hand_worked_lines() {
        let mut common = CommonWords::new();
        let talk = "so the patient said how are you and the hill is there\nThe hill, she said.";
        common.add(&Texts::of(&[talk; 3]), None).unwrap();
        common.merge();
        for (text, names) in [
            ("hi , dr. roy , how are you", vec!["roy"]),
            ("ms . roy said so", vec!["roy"]),
            ("hey anna , how are you", vec!["anna"]),
            ("hi how are you", vec![]),
            ("my name is anna jerković and you", vec!["anna jerković"]),
            ("they call me anna", vec!["anna"]),
            ("anna is a 34 -year-old female with pain", vec!["anna"]),
            ("ana es una mujer de 43 años", vec!["ana"]),
            ("she is a 34 year old female", vec![]),
            ("gout is a ten year problem", vec![]),
            ("bonjour madame petit", vec!["petit"]),
            ("frau müller said", vec!["müller"]),
            // A word of many documents, and a line with case.
            ("dr. hill said", vec![]),
            ("Then dr. roy said so", vec![]),
            ("dr roy", vec![]),
            ("", vec![]),
        ] {
            let view = View::new(text, Surface::Fold);
            let mut found = Vec::new();
            find_in_small(&view, &common, &mut |first, last| {
                let (start, end) = view.origin_of(first, last).unwrap();
                found.push(&text[start..end]);
            });
            assert_eq!(found, names, "{text}");
        }
    }
}
