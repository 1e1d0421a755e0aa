//! Invented names of individuals and places, put together from syllables of our own, and the case that any name is given.
//!
//! A name is drawn for a given first letter, so that initials can be kept in step with the names they stand for. Each
//! letter has some twenty thousand surnames: two names of one individual rarely become one, and an invented name is
//! rarely somebody's.

use super::key::Stream;

/// What a word of a span is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Woman,
    Man,
    Surname,
    Place,
}

/// Ends of a first syllable; after a vowel they may be heavier, which makes up for the vowel that is given.
const AFTER_CONSONANT: &[&str] = &[
    "al", "an", "ar", "el", "en", "er", "il", "in", "ir", "ol", "on", "or", "ul", "un", "ur", "av", "ev", "ad", "ed",
    "am", "em", "om", "as", "es", "os", "ag", "eb", "ob", "ath", "eth",
];
const AFTER_VOWEL: &[&str] = &[
    "l", "n", "r", "s", "d", "m", "v", "b", "g", "t", "ld", "nd", "rd", "lb", "rn", "sk", "lm", "nt", "rv", "st", "lv",
    "mb", "rg", "ng", "rm", "lf", "nf", "sp", "rl", "lt",
];
const MIDDLES: &[&str] = &["a", "e", "i", "o", "an", "en", "in", "on", "or", "er", "ar", "el", "il", "ev", "om", "ur"];
/// Beginnings of a second syllable of a first name.
const LINKS: &[&str] = &[
    "ab", "ad", "al", "am", "an", "ar", "eb", "ed", "el", "em", "en", "er", "ib", "id", "il", "im", "in", "ir", "ol",
    "or",
];
const SURNAME_TAILS: &[&str] = &[
    "bert", "borne", "brand", "bridge", "court", "croft", "dahl", "dell", "feld", "fort", "gan", "gard", "grave",
    "hart", "heim", "hold", "inger", "kamp", "kin", "lard", "lock", "lund", "man", "mark", "mont", "nell", "now",
    "quist", "rand", "rick", "rot", "sen", "sford", "sham", "son", "stone", "thal", "tier", "vald", "vard", "vel",
    "vier", "ward", "well", "wick", "worth", "zel", "zier",
];
const PLACE_TAILS: &[&str] = &[
    "bach", "borough", "brook", "burg", "bury", "combe", "dale", "dorf", "field", "ford", "gate", "haven", "holm",
    "leigh", "mere", "minster", "mont", "port", "stadt", "stead", "ton", "vale", "ville", "wick",
];
const WOMAN_TAILS: &[&str] =
    &["a", "andra", "ela", "elle", "essa", "ette", "ia", "ika", "ine", "ira", "isa", "ita", "ora", "ona", "una", "yn"];
const MAN_TAILS: &[&str] =
    &["an", "ard", "as", "ek", "el", "en", "ero", "ic", "iel", "io", "is", "old", "on", "or", "us", "win"];

/// A name in lower case that begins with `letter` (0 is a).
pub fn invent(letter: u8, kind: Kind, stream: &mut Stream) -> String {
    let first = char::from(b'a' + letter % 26);
    let mut name = String::with_capacity(16);
    name.push(first);
    let vowel = matches!(first, 'a' | 'e' | 'i' | 'o' | 'u');
    let end = stream.pick(if vowel { AFTER_VOWEL } else { AFTER_CONSONANT });
    if first == 'q' && !end.starts_with('u') {
        name.push('u');
    }
    name.push_str(end);
    match kind {
        Kind::Surname | Kind::Place => {
            name.push_str(stream.pick(MIDDLES));
            name.push_str(stream.pick(if kind == Kind::Place { PLACE_TAILS } else { SURNAME_TAILS }));
        }
        Kind::Woman | Kind::Man => {
            name.push_str(stream.pick(LINKS));
            name.push_str(stream.pick(if kind == Kind::Woman { WOMAN_TAILS } else { MAN_TAILS }));
        }
    }
    name
}

const WOMEN: &str = "adele agnes aisha alice alicia alina ana andrea angela anita anna anne annie antonia astrid aurelie \
    barbara beatrice bianca birgit brigitte camille carla carmen carol caroline catherine cecilia charlotte chloe \
    christine claire clara claudia concepcion cristina daniela deborah denise diana diane dolores donna dorothy edith \
    elena eleanor elisabeth elise elizabeth ella ellen elodie elsa emilie emily emma erika esther eva fatima florence \
    frances francesca francoise gabriela genevieve gisela gloria grace hannah heidi heike helen helena helene ingrid \
    irene isabel isabelle jacqueline jane janet jeanne jennifer jessica joan joanna josefa judith julia julie karen \
    katharina katherine laura lea lena leonie lidia linda lisa louise lucia lucie luisa madeleine manon margaret maria \
    marie marina marion marta martha martina martine mary mathilde megan mercedes michelle monika monique nadia nancy \
    naomi natalia nathalie nicole nina nora odette olga olivia pamela patricia paula petra pilar rachel rebecca renate \
    rita rosa rosario ruth sabine samantha sandra sara sarah sharon silvia simone sofia sonia sophie stephanie susan \
    susanne sylvie teresa theresa ursula valerie vanessa vera veronica victoria virginia yolanda yvonne zoe";
const MEN: &str = "aaron abdul adam adrian ahmed alain alan albert alberto alejandro alexander alexandre alfred ali \
    andre andreas andres andrew angel anthony antoine antonio arthur benjamin benoit bernard bernd brian bruno carlos \
    charles christian christoph christopher claude daniel david denis dennis diego dieter dominique donald edward emil \
    enrique eric ernst etienne eugene fabien felix fernando francis francisco francois frank franz frederic gabriel \
    george georges gerald gerard gilles gonzalo gregory guillaume gunther hans harold heinz helmut henri henry hugo ian \
    ignacio jack jacob jacques jaime james jan jason javier jean jeffrey jerome jesus joachim johann john jonas jonathan \
    jorge jose josef joseph juan jules julien karl keith kenneth kevin klaus larry laurent leon leonard louis luc lucas \
    luis lukas manuel marc marcel marco mario mark markus martin matthew matthias maurice max michael michel miguel \
    mohamed nathan nicolas olivier oscar otto pablo pascal patrick paul pedro peter philip philippe pierre rafael ralf \
    raphael raymond remi rene ricardo richard robert roberto roger roland ronald samuel scott sebastian serge sergio \
    simon stefan stephane stephen steven theo thierry thomas timothy tomas uwe vicente victor vincent walter werner \
    william wolfgang xavier yves";

/// Whose first name a folded word is known to be; None for any other, which is taken for a surname.
pub fn first_name(folded: &str) -> Option<Kind> {
    use std::collections::HashMap;
    use std::sync::LazyLock;
    static KNOWN: LazyLock<HashMap<&'static str, Kind>> = LazyLock::new(|| {
        let women = WOMEN.split_ascii_whitespace().map(|name| (name, Kind::Woman));
        women.chain(MEN.split_ascii_whitespace().map(|name| (name, Kind::Man))).collect()
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
