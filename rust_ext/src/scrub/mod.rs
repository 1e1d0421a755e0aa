//! Scrubbing: spans of documents replaced, with the map from old to new offsets.
//!
//! Four styles: `x` (an X for each word), `tag` (`[NAME]`), `surrogate` (the same value of one individual always becomes the
//! same invented one) and `rotate` (drawn afresh at each occurrence). What is drawn is a function of the key, the individual
//! (and draw, document and place where surrogates rotate) and the value: no table is kept, and neither order nor threads
//! nor batches matter.
//!
//! Before anything is replaced, the spans of a document are brought in order: white space at their ends is left out, and
//! spans that overlap become one from the first character to the last, under the label of the longest (then of the first
//! category in the order given, then of the first span). Spans that touch stay separate where surrogates are drawn, word by
//! word, and become one where both get the same placeholder.
//!
//! Text outside spans is never touched, not even the rest of a word that a span cuts; such spans are counted.

mod calendar;
mod dates;
mod identifiers;
mod key;
mod merge;
mod names;
mod values;

use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;

pub use dates::Order;
pub use identifiers::{new_ids, real_identifiers};
pub use key::Key;
pub use merge::Spans;
pub use names::NamePool;
pub use values::Avoid;

use crate::error::{Error, Result};
use crate::text::classes::InstructionSet;
use crate::text::escapes::unescape;
use crate::text::spans::crossed_out;
use crate::text::texts::Texts;
use crate::text::words::Scanner;
use dates::Context;
use merge::Stretch;
use names::{Kind, titled_first_name};
use values::Drawer;

/// Bits of [`Edit::outcome`]: no surrogate for this value, so a tag stands there.
pub const TAGGED: u8 = 1;
/// Day and month of a date were distinguishable by the order given only.
pub const AMBIGUOUS: u8 = 2;
/// A realistic name that an individual of the corpus bears; or, where real identifiers are avoided, every draw was one.
pub const COLLIDED: u8 = 4;
/// The span begins or ends inside a word, the rest of which still stands.
pub const CUTS_WORD: u8 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    X,
    Tag,
    Surrogate,
    Rotate,
}

impl Style {
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "x" => Ok(Self::X),
            "tag" => Ok(Self::Tag),
            "surrogate" => Ok(Self::Surrogate),
            "rotate" => Ok(Self::Rotate),
            _ => Err(Error::Policy(format!("style: expected x, tag, surrogate or rotate, got {name:?}"))),
        }
    }

    fn draws(self) -> bool {
        matches!(self, Self::Surrogate | Self::Rotate)
    }
}

/// How values of a category are replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    Name,
    Date,
    Age,
    Phone,
    Email,
    Url,
    Ip,
    Id,
    Place,
    Organization,
    Quantity,
    Tag,
}

impl Manner {
    fn of(category: &str) -> Self {
        match category {
            "NAME" => Self::Name,
            "DATE" => Self::Date,
            "AGE" => Self::Age,
            "PHONE" => Self::Phone,
            "EMAIL" => Self::Email,
            "URL" => Self::Url,
            "IP" => Self::Ip,
            "ID" | "ZIP" => Self::Id,
            "LOCATION" => Self::Place,
            "ORGANIZATION" => Self::Organization,
            "QUANTITY" => Self::Quantity,
            _ => Self::Tag,
        }
    }
}

pub struct Settings<'a> {
    pub style: Style,
    pub key: Key,
    /// Which draw this is, where surrogates rotate.
    pub draw: u64,
    /// Dates of one individual all move by the same number of days, 1 to this in either direction.
    pub shift_days: Option<u32>,
    /// How 03/04/2019 is read: where `order_is_sure` always, else where the document does not tell.
    pub order: Order,
    pub order_is_sure: bool,
    pub avoid: Avoid<'a>,
    /// Realistic names; without them names are put together from syllables.
    pub names: Option<&'a NamePool>,
    /// Categories by number; an earlier one wins where overlapping spans are equally long.
    pub categories: &'a [String],
}

/// One replacement: characters `old` became characters `new`; `span` is the row whose label it bears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub old: Range<u32>,
    pub new: Range<u32>,
    pub span: u32,
    pub outcome: u8,
}

pub struct Scrubbed {
    pub text: String,
    pub edits: Vec<Edit>,
}

/// Replace the spans of every document, in parallel.
///
/// `individuals` and `doc_ids` are read where surrogates are drawn; they have one string a document.
pub fn scrub(
    texts: &Texts,
    individuals: &Texts,
    doc_ids: &Texts,
    spans: &Spans,
    settings: &Settings,
) -> Result<Vec<Scrubbed>> {
    spans.check(texts.len(), settings.categories.len())?;
    if individuals.len() != texts.len() || doc_ids.len() != texts.len() {
        return Err(Error::Corpus("ids do not match the documents".into()));
    }
    let manners: Vec<Manner> = settings.categories.iter().map(|name| Manner::of(name)).collect();
    let names: Vec<bool> = manners.iter().map(|&manner| manner == Manner::Name).collect();
    (0..texts.len())
        .into_par_iter()
        .with_min_len(16)
        .map_init(
            || Scanner::new(InstructionSet::detect()),
            |scanner, row| {
                let text = texts.get(row);
                let stretches = spans.stretches(row, text, !settings.style.draws(), &names)?;
                let document = Document {
                    text,
                    individual: settings.key.derive(&[b"individual", individuals.get(row).as_bytes()]),
                    doc_id: doc_ids.get(row),
                    manners: &manners,
                    spans,
                    settings,
                };
                Ok(document.scrub(&stretches, scanner))
            },
        )
        .collect()
}

struct Document<'a> {
    text: &'a str,
    individual: Key,
    doc_id: &'a str,
    manners: &'a [Manner],
    spans: &'a Spans<'a>,
    settings: &'a Settings<'a>,
}

impl Document<'_> {
    fn scrub(&self, stretches: &[Stretch], scanner: &mut Scanner) -> Scrubbed {
        let Settings { style, avoid, names, categories, .. } = *self.settings;
        let mut out = String::with_capacity(self.text.len() + 8 * stretches.len());
        let mut edits = Vec::with_capacity(stretches.len());
        let context = self.dates(stretches);
        let genders = self.genders(stretches);
        let mut drawer = Drawer::new(self.individual, avoid, names, &genders);
        let (mut byte, mut char_at, mut new_chars) = (0, 0, 0);
        for stretch in stretches {
            let stretch = &self.with_initials(stretch, byte);
            out.push_str(&self.text[byte..stretch.bytes.start]);
            new_chars += stretch.chars.start - char_at;
            (byte, char_at) = (stretch.bytes.end, stretch.chars.end);
            let value = &self.text[stretch.bytes.clone()];
            let category = self.spans.categories[stretch.span] as usize;
            let mut outcome = u8::from(self.cuts_word(&stretch.bytes)) * CUTS_WORD;
            let from = out.len();
            if style == Style::X {
                push_x(&mut out, value, scanner);
            } else {
                if style == Style::Rotate {
                    let (place, draw) = ((stretch.chars.start as u64).to_le_bytes(), self.settings.draw.to_le_bytes());
                    let key = self.individual.derive(&[&draw, self.doc_id.as_bytes(), &place]);
                    drawer = Drawer::new(key, avoid, names, &genders);
                }
                let drawn =
                    style.draws().then(|| self.draw(value, self.manner(stretch), &context, &mut drawer, &mut outcome));
                match drawn.flatten().filter(|drawn| drawn != value) {
                    Some(drawn) => out.push_str(&drawn),
                    None => {
                        outcome |= u8::from(style.draws()) * TAGGED;
                        out.push('[');
                        out.push_str(&categories[category]);
                        out.push(']');
                    }
                }
                outcome |= u8::from(std::mem::take(&mut drawer.collided)) * COLLIDED;
            }
            let length = out[from..].chars().count();
            edits.push(Edit {
                old: stretch.chars.start as u32..stretch.chars.end as u32,
                new: new_chars as u32..(new_chars + length) as u32,
                span: stretch.span as u32,
                outcome,
            });
            new_chars += length;
        }
        out.push_str(&self.text[byte..]);
        Scrubbed { text: out, edits }
    }

    /// Words are those that the escapes of an export stand for: `M&uuml;ller` has the surrogate of Müller.
    fn draw(
        &self,
        value: &str,
        manner: Manner,
        context: &Context,
        drawer: &mut Drawer,
        outcome: &mut u8,
    ) -> Option<String> {
        let plain = match manner {
            Manner::Name | Manner::Place | Manner::Organization => unescape(value),
            _ => None,
        };
        let value = plain.as_ref().map_or(value, |plain| &plain.text);
        match manner {
            Manner::Name => drawer.name(value),
            Manner::Age => drawer.age(value),
            Manner::Phone => drawer.phone(value),
            Manner::Email => drawer.email(value),
            Manner::Url => drawer.url(value),
            Manner::Ip => drawer.ip(value),
            Manner::Id => drawer.id(value),
            Manner::Place => drawer.place(value),
            Manner::Organization => drawer.organization(value),
            Manner::Quantity => drawer.quantity(value),
            Manner::Date => self.date(value, context, drawer, outcome),
            Manner::Tag => None,
        }
    }

    fn is_name(&self, stretch: &Stretch) -> bool {
        self.manners[self.spans.categories[stretch.span] as usize] == Manner::Name
    }

    /// The first names of the document whose titles say whose they are.
    fn genders(&self, stretches: &[Stretch]) -> HashMap<String, Kind> {
        const BEFORE: usize = 40;
        if !self.settings.style.draws() {
            return HashMap::new();
        }
        let titled = |stretch: &Stretch| {
            let start = (stretch.bytes.start.saturating_sub(BEFORE)..=stretch.bytes.start)
                .find(|&at| self.text.is_char_boundary(at))?;
            titled_first_name(&self.text[start..stretch.bytes.start], &self.text[stretch.bytes.clone()])
        };
        stretches.iter().filter(|stretch| self.is_name(stretch)).filter_map(titled).collect()
    }

    /// A name with the initials before it, which a detector may have left: "J. Miller". "M." and "D." alone are titles.
    fn with_initials(&self, stretch: &Stretch, from: usize) -> Stretch {
        let mut grown = stretch.clone();
        if !self.is_name(stretch) || !self.settings.style.draws() {
            return grown;
        }
        let mut num_initials = 0;
        loop {
            let before = &self.text[from..grown.bytes.start];
            let bare = before.strip_suffix(' ').unwrap_or(before);
            let Some(rest) = bare.strip_suffix('.').filter(|_| !bare.is_empty()) else { break };
            let Some(initial) = rest.chars().next_back().filter(|c| c.is_uppercase()) else { break };
            let behind = &rest[..rest.len() - initial.len_utf8()];
            let is_word = behind.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '\'');
            let title = num_initials == 0 && matches!(initial, 'M' | 'D');
            if is_word || title || num_initials == 3 {
                break;
            }
            let start = from + behind.len();
            grown.chars.start -= self.text[start..grown.bytes.start].chars().count();
            grown.bytes.start = start;
            num_initials += 1;
        }
        grown
    }

    /// How a stretch is replaced. A quantity keeps its words (units), which may be any individual's where it took in other spans;
    /// so may the words that dates, places and organizations keep, where it took in a name ("Dr Ward, Ward 3").
    fn manner(&self, stretch: &Stretch) -> Manner {
        match self.manners[self.spans.categories[stretch.span] as usize] {
            Manner::Quantity if stretch.mixed => Manner::Id,
            Manner::Date | Manner::Place | Manner::Organization if stretch.named => Manner::Tag,
            manner => manner,
        }
    }

    /// A date moved by the individual's days, or, where dates are not shifted, by other days (up to two years); both
    /// ends of a period by the same.
    fn date(&self, value: &str, context: &Context, drawer: &mut Drawer, outcome: &mut u8) -> Option<String> {
        const OWN_DAYS: u32 = 730;
        let order = self.settings.order;
        let (text, date, rest) = match dates::parse(value, context, order) {
            Some(date) => (value, date, None),
            None => {
                let (first, between, second) = dates::period(value, context, order)?;
                let text = &value[..value.len() - between.len() - second.len()];
                (text, first, Some((between, second, dates::parse(second, context, order)?)))
            }
        };
        *outcome |= u8::from(date.ambiguous && !self.settings.order_is_sure) * AMBIGUOUS;
        let mut draws = date.draws(&drawer.key, text);
        let delta = match self.settings.shift_days {
            None => delta_of(&mut draws, OWN_DAYS),
            Some(days) => {
                let draw = if self.settings.style == Style::Rotate { self.settings.draw } else { 0 };
                delta_of(&mut self.individual.stream(b's', &draw.to_le_bytes(), 0), days)
            }
        };
        let moved = date.moved(text, delta, context, &mut draws)?;
        match rest {
            None => Some(moved),
            Some((between, text, date)) => {
                Some(format!("{moved}{between}{}", date.moved(text, delta, context, &mut draws)?))
            }
        }
    }

    /// What the dates of the document say about each other.
    fn dates(&self, stretches: &[Stretch]) -> Context {
        if !self.settings.style.draws() {
            return Context::default();
        }
        let is_date = |stretch: &&Stretch| self.manners[self.spans.categories[stretch.span] as usize] == Manner::Date;
        let dates = stretches.iter().filter(is_date).map(|stretch| &self.text[stretch.bytes.clone()]);
        let mut context = dates::context_of(dates);
        if self.settings.order_is_sure {
            context.order = Some(self.settings.order);
        }
        context
    }

    fn cuts_word(&self, bytes: &Range<usize>) -> bool {
        let inside = |at: usize| {
            let before = self.text[..at].chars().next_back().is_some_and(char::is_alphanumeric);
            before && self.text[at..].chars().next().is_some_and(char::is_alphanumeric)
        };
        inside(bytes.start) || inside(bytes.end)
    }
}

/// 1 to `most` days in either direction, never 0.
fn delta_of(stream: &mut key::Stream, most: u32) -> i64 {
    let days = 1 + stream.below(most as usize) as i64;
    if stream.below(2) == 0 { days } else { -days }
}

/// X for each word and for each run of symbols between words; punctuation stays, and where it is all there is, one X stands
/// for it.
fn push_x(out: &mut String, value: &str, scanner: &mut Scanner) {
    let mut words = Vec::new();
    scanner.words(value, &mut words);
    let mut crossed = Vec::new();
    let mut at = 0;
    for (start, end) in words.into_iter().map(|(start, end)| (start as usize, end as usize)) {
        crossed_out(value, at..start, |run| crossed.push(run));
        crossed.push(start..end);
        at = end;
    }
    crossed_out(value, at..value.len(), |run| crossed.push(run));
    if crossed.is_empty() {
        out.push('X');
        return;
    }
    let mut at = 0;
    for run in crossed {
        out.push_str(&value[at..run.start]);
        out.push('X');
        at = run.end;
    }
    out.push_str(&value[at..]);
}
