//! Notes: templates filled for one visit of one individual, with the spans of every identity.

use super::person::{Person, Piece, split_template};
use super::rng::Rng;
use super::{Document, FIRST_NAMES, Language, Lexicon, Lists, PARTS, Settings, language_of, rng_of};

const VISITS: u64 = 3;
const PUBLIC: u64 = 4;
const CLINICIAN: u64 = 5;
const NUM_CLINICIANS: usize = 150;

/// A gold span in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub start: i32,
    pub end: i32,
    pub label: &'static str,
}

/// A text under way; knows how many characters it holds.
#[derive(Default)]
pub struct Note {
    pub text: String,
    pub spans: Vec<Span>,
    num_chars: i32,
    num_words: usize,
}

impl Note {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.num_chars += text.chars().count() as i32;
        self.num_words += text.split_ascii_whitespace().count();
    }

    /// A sentence with its spans.
    fn push_with_spans(&mut self, sentence: &str, spans: &[Span]) {
        let shift = self.num_chars;
        self.push(sentence);
        self.spans.extend(spans.iter().map(|span| Span { start: span.start + shift, end: span.end + shift, ..*span }));
    }

    /// A phrase with its first letter as its place in the sentence wants it.
    fn cased(&self, phrase: String) -> String {
        let starts_sentence = matches!(self.text.trim_end_matches(' ').chars().next_back(), None | Some('.' | '\n'));
        let mut letters = phrase.chars();
        match letters.next() {
            Some(first) if starts_sentence => first.to_uppercase().chain(letters).collect(),
            // Abbreviations and proper names keep theirs: only articles are lowered.
            Some(first) if phrase.starts_with("A ") || phrase.starts_with("An ") || phrase.starts_with("Une ") => {
                first.to_lowercase().chain(letters).collect()
            }
            _ => phrase,
        }
    }

    /// Write an identity, and mark it.
    fn identity(&mut self, text: &str, label: &'static str) {
        let start = self.num_chars;
        self.push(text);
        self.spans.push(Span { start, end: self.num_chars, label });
    }
}

/// A clinician that many individuals share.
struct Clinician {
    name: String,
    hospital: &'static str,
}

struct Visit<'a> {
    settings: &'a Settings,
    person: &'a Person,
    lexicon: &'static Lexicon,
    condition: &'static Lists,
    clinician: Clinician,
    date: (u32, u32, u32),
    rng: Rng,
}

/// The notes of one individual, oldest first.
pub fn notes_of(settings: &Settings, individual: u64) -> Vec<Document> {
    let person = Person::new(settings, individual);
    let lexicon = person.language.lexicon();
    let mut rng = rng_of(settings, VISITS, individual);
    let mean = settings.documents_per_individual;
    // At least one note, and the mean asked for: 1 + a geometric number with mean - 1.
    let mut num_notes = 1;
    while num_notes < 64 && rng.chance((mean - 1.0).max(0.0) / mean) {
        num_notes += 1;
    }
    let condition = &lexicon.conditions[rng.below(lexicon.conditions.len())];
    let home = rng.below(NUM_CLINICIANS);
    let mut day = rng.below(3000);
    let mut copied: Vec<(String, Vec<Span>)> = Vec::new();
    let mut documents = Vec::with_capacity(num_notes);
    for number in 0..num_notes {
        day += 5 + rng.below(200);
        // Mostly one condition and one clinician; sometimes another.
        let condition =
            if rng.chance(0.2) { &lexicon.conditions[rng.below(lexicon.conditions.len())] } else { condition };
        let clinician = if rng.chance(0.3) { rng.below(NUM_CLINICIANS) } else { home };
        let mut visit = Visit {
            settings,
            person: &person,
            lexicon,
            condition,
            clinician: clinician_of(settings, person.language, clinician),
            date: date_of(day),
            rng: Rng::new(settings.seed ^ 0x5eed, individual, number as u64),
        };
        let note = visit.write(&mut copied);
        documents.push(Document {
            doc_id: format!("d{individual:08}-{number:02}"),
            individual,
            household: person.household,
            text: note.text,
            label: condition["group"][0],
            spans: note.spans,
        });
    }
    documents
}

impl Visit<'_> {
    fn write(&mut self, copied: &mut Vec<(String, Vec<Span>)>) -> Note {
        let target = (self.settings.words_per_document as f64 * (0.7 + 0.6 * self.rng.uniform())) as usize;
        let lexicon = self.lexicon;
        let mut note = Note::default();
        let header = self.rng.pick(&lexicon.lists["headers"]);
        self.fill(&mut note, header);
        note.push("\n");
        let opening = self.rng.pick(&lexicon.lists["openings"]);
        self.fill(&mut note, opening);
        let mut rare = 0;
        let mut told_social = false;
        while note.num_words + 20 < target {
            if self.settings.vocabulary > 0 && self.rng.chance(0.55) {
                note.push(" ");
                note.push(&invented(&mut self.rng, self.settings.vocabulary));
                note.push(".");
            }
            note.push(if self.rng.chance(0.15) { "\n" } else { " " });
            // A note says more rare things the longer it is: about one in 35 words of free text, never more than there are.
            if rare < self.person.rare.len() && self.rng.chance(0.22) {
                let sentence = self.person.rare[rare].clone();
                self.fill(&mut note, &sentence);
                rare += 1;
            } else if !told_social && self.rng.chance(0.2) {
                let sentence = self.rng.pick(&lexicon.lists["social"]);
                self.fill(&mut note, sentence);
                told_social = true;
            } else if !copied.is_empty() && self.rng.chance(0.12) {
                let (sentence, spans) = &copied[self.rng.below(copied.len())];
                note.push_with_spans(sentence, spans);
            } else {
                let template = self.rng.pick(&lexicon.lists["bodies"]);
                let mut sentence = Note::default();
                self.fill(&mut sentence, template);
                note.push_with_spans(&sentence.text, &sentence.spans);
                if copied.len() < 8 {
                    copied.push((sentence.text, sentence.spans));
                }
            }
        }
        note.push("\n");
        let ending = self.rng.pick(&lexicon.lists["endings"]);
        self.fill(&mut note, ending);
        note.push("\n");
        let signature = self.rng.pick(&lexicon.lists["signatures"]);
        self.fill(&mut note, signature);
        note.push("\n");
        note
    }

    fn fill(&mut self, note: &mut Note, template: &str) {
        for piece in split_template(template) {
            match piece {
                Piece::Text(text) => note.push(text),
                Piece::Slot(slot) => self.slot(note, slot),
            }
        }
    }

    fn slot(&mut self, note: &mut Note, slot: &str) {
        let person = self.person;
        match slot {
            "name" => note.identity(&format!("{} {}", person.first_name, person.last_name), "NAME"),
            "first" => note.identity(&person.first_name, "NAME"),
            "last" => note.identity(&person.last_name, "NAME"),
            "title" => note.push(self.lexicon.lists["titles"][person.sex]),
            "sex" => note.push(self.lexicon.lists["sexes"][person.sex]),
            "birth" => note.identity(&person.language.date(person.birth), "DATE"),
            "date" => note.identity(&person.language.date(self.date), "DATE"),
            "age" => note.identity(&self.age().to_string(), "AGE"),
            "mrn" => note.identity(&person.mrn, "ID"),
            "ssn" => {
                let label = if person.language == Language::French { "NIR" } else { "SSN" };
                note.identity(&person.ssn, label);
            }
            "phone" => note.identity(&person.phone, "PHONE"),
            "email" => note.identity(&person.email, "EMAIL"),
            "address" => note.identity(&person.address, "ADDRESS"),
            "city" => note.identity(person.city, "CITY"),
            "zip" => note.identity(&person.zip, "ZIP"),
            "doctor" => {
                let name = self.clinician.name.clone();
                note.identity(&name, "DOCTOR");
            }
            "hospital" => note.identity(self.clinician.hospital, "HOSPITAL"),
            _ => {
                let value = note.cased(general(slot, self.condition, &mut self.rng));
                // One condition word in forty is misspelt: such words belong to one individual.
                if slot != "number" && self.rng.chance(0.025) {
                    note.push(&misspell(&value, &mut self.rng));
                } else {
                    note.push(&value);
                }
            }
        }
    }

    /// Years completed on the day of the visit.
    fn age(&self) -> u32 {
        let birth = self.person.birth;
        let before_birthday = (self.date.1, self.date.2) < (birth.1, birth.2);
        self.date.0 - birth.0 - u32::from(before_birthday)
    }
}

/// A sentence about no individual: filled from the condition and small numbers.
fn general(slot: &str, condition: &Lists, rng: &mut Rng) -> String {
    match slot {
        "condition" => condition["name"][0].to_owned(),
        "number" => (1 + rng.below(12)).to_string(),
        _ => condition.get(slot).map(|list| rng.pick(list).to_owned()).unwrap_or_default(),
    }
}

/// An invented word: its rank falls off like 1 / rank, and frequent ones are short.
fn invented(rng: &mut Rng, vocabulary: usize) -> String {
    let syllables = &PARTS["syllables"];
    let mut rank = rng.zipf(vocabulary) + syllables.len();
    let mut word = String::new();
    while rank > 0 {
        word.push_str(syllables[rank % syllables.len()]);
        rank /= syllables.len();
    }
    word
}

/// Swap, drop or double one letter of the longest word of a phrase.
fn misspell(phrase: &str, rng: &mut Rng) -> String {
    let longest = phrase.split(' ').max_by_key(|word| word.len()).unwrap_or_default();
    let mut letters: Vec<char> = longest.chars().collect();
    if letters.len() < 5 {
        return phrase.to_owned();
    }
    let at = 1 + rng.below(letters.len() - 2);
    match rng.below(3) {
        0 => letters.swap(at, at + 1),
        1 => drop(letters.remove(at)),
        _ => letters.insert(at, letters[at]),
    }
    phrase.replacen(longest, &letters.into_iter().collect::<String>(), 1)
}

fn clinician_of(settings: &Settings, language: Language, number: usize) -> Clinician {
    let lexicon = language.lexicon();
    let mut rng = rng_of(settings, CLINICIAN, number as u64);
    let sex = rng.below(2);
    let first = rng.pick(&lexicon.lists[FIRST_NAMES[sex]]);
    let last = rng.pick(&lexicon.lists["last names"]);
    Clinician {
        name: format!("{first} {last}"),
        hospital: lexicon.lists["hospitals"][number % lexicon.lists["hospitals"].len()],
    }
}

/// Days after 2012-01-01, in a calendar of 28-day months: dates are always valid.
fn date_of(day: usize) -> (u32, u32, u32) {
    let (year, rest) = (day / 336, day % 336);
    (2012 + year as u32, 1 + (rest / 28) as u32, 1 + (rest % 28) as u32)
}

/// A passage of general medical language about one condition.
pub fn public_text(settings: &Settings, number: u64) -> String {
    let lexicon = language_of(settings, number).lexicon();
    let mut rng = rng_of(settings, PUBLIC, number);
    let condition = &lexicon.conditions[rng.below(lexicon.conditions.len())];
    let target = (settings.words_per_document as f64 * (0.7 + 0.6 * rng.uniform())) as usize;
    let mut note = Note::default();
    while note.num_words < target {
        // The body sentences of notes name no individual; the identities of a header or signature never appear here.
        let template =
            if rng.chance(0.5) { rng.pick(&lexicon.lists["bodies"]) } else { rng.pick(&lexicon.lists["public"]) };
        if ["{name}", "{first}", "{last}", "{doctor}", "{hospital}", "{date}", "{age}"]
            .iter()
            .any(|slot| template.contains(slot))
        {
            continue;
        }
        if note.num_words > 0 {
            note.push(if rng.chance(0.15) { "\n" } else { " " });
        }
        for piece in split_template(template) {
            match piece {
                Piece::Text(text) => note.push(text),
                Piece::Slot("title") => note.push(lexicon.lists["titles"][rng.below(2)]),
                Piece::Slot("sex") => note.push(lexicon.lists["sexes"][rng.below(2)]),
                Piece::Slot(slot) => {
                    let value = note.cased(general(slot, condition, &mut rng));
                    note.push(&value);
                }
            }
        }
    }
    note.push("\n");
    note.text
}
