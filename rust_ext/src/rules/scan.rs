//! Scanning: the places of a text, the expressions tried at them, and what is reported.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::sync::LazyLock;

use memchr::{memchr, memchr2_iter, memchr3, memchr3_iter, memmem};
use rayon::prelude::*;
use regex_automata::meta::{Cache, Regex};
use regex_automata::nfa::thompson::{self, NFA};
use regex_automata::util::{primitives::NonMaxUsize, syntax};
use regex_automata::{Anchored, Input};

use super::fields::{Fields, Value, is_sign, signs as signs_of_fields};
use super::filter::{Filter, LANES, Mask};
use super::split::{Answer, Caches, Split, parts as parts_of};
use super::{Hit, RULES, expand, tables};
use crate::detect::common::CommonWords;
use crate::error::{Error, Result};
use crate::pool::rows;
use crate::text::byte_features::byte_features;
use crate::text::classes::{Block, InstructionSet, classify};
use crate::text::escapes::unescape_with;
use crate::text::fold::{Folded, fold_plain};
use crate::text::spans::Found;
use crate::text::texts::Texts;

/// A match ends within so many bytes of the place where it is tried, which bounds the time on hostile text.
pub const LIMIT: usize = 256;
/// Addresses of the web alone may be longer: they fail only where no other begins, so the time stays linear.
const UNLIMITED: &str = "url";
/// Addresses go on over lines.
const ADDRESS: &str = "field_address";
/// The one rule that is not tried where it begins (any word) but where its sign stands.
const AT: &str = "email";
/// Any word may begin its match, but only behind a sign of HL7: it is tried there, as the filter would let it through everywhere.
const OF_SEGMENT: &str = "name_hl7";
/// A cue that forms write without a space behind a name ("MartínezNºCol: 28"): it is tried inside of a word too.
const GLUED: &[u8] = b"NoCol";
/// What shows a match free: no letter or digit.
const FREE: &str = r"(?:[^0-9A-Za-z\x80-\xff]|\z)";
/// Bytes before the sign that are looked at.
const MAX_LOCAL: usize = 64;
/// Reported groups of an expression.
const MAX_GROUPS: usize = 4;

struct Compiled {
    regexes: Vec<Regex>,
    /// Rules that report all that they match.
    whole: Vec<bool>,
    /// Of those with a group at the end.
    splits: Vec<Option<Split>>,
    filter: Filter,
    at: usize,
    of_segment: usize,
    unlimited: usize,
    address: usize,
}

/// Compiled once; the error is a mistake in the table, which a test would show.
static COMPILED: LazyLock<std::result::Result<Compiled, String>> = LazyLock::new(compile);

fn compile() -> std::result::Result<Compiled, String> {
    let syntax = syntax::Config::new().unicode(false).utf8(false);
    let mut expressions = Vec::new();
    for rule in RULES.iter() {
        let pattern = expand(rule.pattern);
        let parsed = syntax::parse_with(&pattern, &syntax).map_err(|error| format!("rule {}: {error}", rule.name))?;
        let num_groups = parsed.properties().explicit_captures_len();
        // Without a group in it, the expression is the group; the byte behind it shows that it stands free.
        let reported = if num_groups == 0 { format!("({pattern}){FREE}") } else { format!("(?:{pattern}){FREE}") };
        expressions.push((rule, pattern, num_groups, reported));
    }
    let number = |name: &str| RULES.iter().position(|rule| rule.name == name).unwrap_or(usize::MAX);
    let (at, of_segment, unlimited, address) = (number(AT), number(OF_SEGMENT), number(UNLIMITED), number(ADDRESS));
    let filter = || {
        let config = thompson::Config::new().utf8(false).which_captures(thompson::WhichCaptures::None);
        let mut automata = Vec::new();
        for (number, (rule, .., reported)) in expressions.iter().enumerate() {
            if number != at && number != of_segment && !rule.of_field {
                let nfa = NFA::compiler().configure(config.clone()).syntax(syntax).build(reported);
                automata.push((number as u8, nfa.map_err(|error| format!("rule {}: {error}", rule.name))?));
            }
        }
        Ok::<_, String>(Filter::new(&automata.iter().map(|(rule, nfa)| (*rule, nfa)).collect::<Vec<_>>()))
    };
    // A run waits for both: each takes about half of the time, with threads of their own, as those of a pool may wait for this.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, filter).ok();
        let (mut regexes, mut whole, mut splits) = (Vec::new(), Vec::new(), Vec::new());
        for (rule, pattern, num_groups, reported) in &expressions {
            let build = |pattern: &str| {
                let mut builder = Regex::builder();
                builder.configure(Regex::config().auto_prefilter(false)).syntax(syntax);
                builder.build(pattern).map_err(|error| format!("rule {}: {error}", rule.name))
            };
            whole.push(*num_groups == 0);
            let split = if *num_groups == 1 { parts_of(pattern) } else { None };
            let split = split
                .map(|(before, group)| Ok::<_, String>(Split::new(build(before)?, build(&format!("{group}{FREE}"))?)));
            splits.push(split.transpose()?);
            regexes.push(build(reported)?);
        }
        // Without a thread it takes longer; an error would stay for as long as the process lives.
        let filter = match thread {
            Some(thread) => thread.join().map_err(|_| "the filter of the rules cannot be made".to_owned())??,
            None => filter()?,
        };
        Ok(Compiled { filter, regexes, whole, splits, at, of_segment, unlimited, address })
    })
}

#[derive(Default)]
struct Remembered {
    whole: Option<Cache>,
    split: Option<Caches>,
}

thread_local! {
    /// What the expressions remember of their automata, by rule.
    static CACHES: RefCell<Vec<Remembered>> = const { RefCell::new(Vec::new()) };
    static BLOCKS: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

/// A letter or digit of a plain text: beyond ASCII nothing else is left.
#[inline]
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// No letter or digit on both sides of a position of a plain text.
#[inline]
fn parts(text: &[u8], at: usize) -> bool {
    !(at > 0 && at < text.len() && is_word(text[at - 1]) && is_word(text[at]))
}

/// Bytes before the next digit, as far as the next block goes.
#[inline]
fn before_digit(blocks: &[Block], at: usize) -> usize {
    let (number, bit) = (at / 64, at % 64);
    match blocks[number].digit >> bit {
        0 => 64 - bit + blocks.get(number + 1).map_or(64, |next| next.digit.trailing_zeros() as usize),
        digits => digits.trailing_zeros() as usize,
    }
}

/// A text under its rules; `resume` is the end of each rule's last match.
struct Scan<'a> {
    compiled: &'a Compiled,
    caches: &'a mut [Remembered],
    text: &'a [u8],
    source: &'a Source<'a>,
    common: Option<&'a CommonWords>,
    folded: Option<&'a Folded>,
    /// Whether the text may have signs of fields other than colons.
    others: bool,
    resume: Vec<usize>,
    /// Start, end, rule.
    hits: Vec<(usize, usize, u32)>,
}

impl Scan<'_> {
    /// Every rule of `active` at every place where the filter lets it through.
    fn filtered(&mut self, fields: &Fields, active: Mask) {
        let mut blocks = BLOCKS.take();
        classify(self.text, &mut blocks, InstructionSet::detect());
        let mut signs = memchr3_iter(b'+', b'(', b'@', self.text).peekable();
        let mut glued = memmem::find_iter(self.text, GLUED).peekable();
        let mut in_word = 0;
        let mut found = Vec::with_capacity(64);
        for (number, block) in blocks.iter().enumerate() {
            let word = block.letter | block.digit | block.not_ascii;
            let mut places = word & !(word << 1 | in_word);
            in_word = word >> 63;
            while let Some(at) = signs.next_if(|at| at / 64 == number).or_else(|| glued.next_if(|at| at / 64 == number))
            {
                places |= 1 << (at % 64);
            }
            // Without a branch that hangs on the text.
            let mut num = found.len();
            found.resize(num + places.count_ones() as usize, 0);
            while places != 0 {
                let at = number * 64 + places.trailing_zeros() as usize;
                found[num] = at;
                num += usize::from(self.compiled.filter.may_begin(self.text, at) | (self.text[at] == b'@'));
                places &= places - 1;
            }
            found.truncate(num);
            // Those left over go with the next block's.
            let whole = found.len() / LANES * LANES;
            self.at_places(&blocks, &found[..whole], active);
            found.drain(..whole);
        }
        self.at_places(&blocks, &found, active);
        if active >> self.compiled.of_segment & 1 != 0 && memchr(b'^', self.text).is_some() {
            self.behind_separators();
        }
        self.fields(fields, signs_of_fields(self.text, &blocks, self.others).into_iter(), active);
        BLOCKS.set(blocks);
    }

    /// The rules that the filter lets through, at ascending places.
    #[inline(always)]
    fn at_places(&mut self, blocks: &[Block], places: &[usize], active: Mask) {
        for places in places.chunks(LANES) {
            let mut lanes = [places[0]; LANES];
            lanes[..places.len()].copy_from_slice(places);
            let masks = self.compiled.filter.candidates(self.text, &lanes);
            for (&at, mask) in places.iter().zip(masks) {
                let mut mask = mask & active;
                if self.text[at] == b'@' {
                    if active >> self.compiled.at & 1 != 0 {
                        self.around(at);
                    }
                } else if mask != 0 {
                    mask &= self.compiled.filter.with_digit_behind(before_digit(blocks, at));
                    while mask != 0 {
                        let rule = mask.trailing_zeros() as usize;
                        if (RULES[rule].behind)(&self.text[at.saturating_sub(LIMIT)..at]) {
                            self.attempt(rule, at);
                        }
                        mask &= mask - 1;
                    }
                }
            }
        }
    }

    /// The definition of what is found: every rule at every place.
    fn everywhere(&mut self, fields: &Fields, active: Mask) {
        let text = self.text;
        self.fields(fields, (0..text.len()).filter(|&at| is_sign(text[at])), active);
        for at in 0..self.text.len() {
            let byte = self.text[at];
            let begins = is_word(byte) && parts(self.text, at);
            if begins || matches!(byte, b'+' | b'(') || self.text[at..].starts_with(GLUED) {
                for rule in (0..RULES.len()).filter(|&rule| active >> rule & 1 != 0 && !RULES[rule].of_field) {
                    self.attempt(rule, at);
                }
            }
        }
    }

    /// The address around an `@`, from the places before it.
    fn around(&mut self, at: usize) {
        let is_local = |byte: u8| is_word(byte) || matches!(byte, b'.' | b'_' | b'%' | b'+' | b'-' | b'\'');
        let local =
            self.text[at.saturating_sub(MAX_LOCAL)..at].iter().rev().take_while(|&&byte| is_local(byte)).count();
        for place in at - local..at {
            let begins = self.text[place] == b'+' || (is_word(self.text[place]) && parts(self.text, place));
            if begins && self.attempt(self.compiled.at, place) {
                break;
            }
        }
    }

    /// The names of a segment of HL7, at each word behind a separator of fields or of their parts.
    fn behind_separators(&mut self) {
        let text = self.text;
        for at in memchr2_iter(b'|', b'^', text).map(|separator| separator + 1) {
            if text.get(at).copied().is_some_and(is_word) {
                self.attempt(self.compiled.of_segment, at);
            }
        }
    }

    /// The rules of each field's value.
    fn fields(&mut self, fields: &Fields, signs: impl Iterator<Item = usize>, active: Mask) {
        let (text, others) = (self.text, self.others);
        let mut take = |value: Value| {
            // Each in turn, until one takes the value; one more byte shows that it stands free.
            let wanted = value.rules.into_iter().map(usize::from);
            wanted.filter(|&rule| rule < RULES.len() && active >> rule & 1 != 0).any(|rule| {
                let end = if rule == self.compiled.address { value.next.min(value.start + LIMIT) } else { value.end };
                self.attempt_within(rule, value.start, self.text.len().min(end + 1))
            });
        };
        if !others {
            return fields.of_text(text, signs, take);
        }
        let mut values = Vec::new();
        let tables = tables::of_text(fields, text, |value| values.push(value));
        // Edges of the cells of a table are no signs of fields on one line.
        let is_edge = |at: usize| {
            let table = tables.get(tables.partition_point(|&(_, end)| end <= at));
            matches!(text[at], b'\t' | b'|') && table.is_some_and(|&(start, _)| start <= at)
        };
        fields.of_text(text, signs.filter(|&at| !is_edge(at)), |value| values.push(value));
        values.sort_unstable_by_key(|value| value.start);
        values.into_iter().for_each(&mut take);
    }

    /// Try one rule at one place.
    fn attempt(&mut self, rule: usize, at: usize) -> bool {
        let limit = if rule == self.compiled.unlimited { self.text.len() } else { self.text.len().min(at + LIMIT) };
        self.attempt_within(rule, at, limit)
    }

    fn attempt_within(&mut self, rule: usize, at: usize, limit: usize) -> bool {
        if at < self.resume[rule] {
            return false;
        }
        let regex = &self.compiled.regexes[rule];
        let input = Input::new(self.text).range(at..limit).anchored(Anchored::Yes);
        if let Some(split) = &self.compiled.splits[rule] {
            let caches = self.caches[rule].split.get_or_insert_with(|| split.create_caches());
            match split.find(self.text, at..limit, caches) {
                Answer::Group(start, end) => return self.accept(rule, start, end),
                Answer::Nothing => return false,
                Answer::Unknown => {}
            }
        }
        let cache = self.caches[rule].whole.get_or_insert_with(|| regex.create_cache());
        if self.compiled.whole[rule] {
            // Groups cost several times the match. Without one, the match ends with the byte that shows it free, or with the text.
            let Some(end) = regex.search_half_with(cache, &input).map(|half| half.offset()) else {
                return false;
            };
            if end < self.text.len() {
                return self.accept(rule, at, end - 1);
            }
            if is_word(self.text[end - 1]) {
                return self.accept(rule, at, end);
            }
        }
        let mut slots: [Option<NonMaxUsize>; 2 * MAX_GROUPS] = [None; 2 * MAX_GROUPS];
        let slots = &mut slots[..2 * regex.captures_len().min(MAX_GROUPS)];
        if regex.search_slots_with(cache, &input, slots).is_none() {
            return false;
        }
        let mut found = false;
        for group in slots.chunks_exact(2).skip(1) {
            if let (Some(start), Some(end)) = (group[0], group[1]) {
                found |= self.accept(rule, start.get(), end.get());
            }
        }
        found
    }

    /// Keep a match that its rule accepts.
    fn accept(&mut self, rule: usize, start: usize, end: usize) -> bool {
        let spaced = RULES[rule].of_field && self.source.is_spaced(self.folded, start, end);
        let mut hit = Hit { text: self.text, start, end, spaced, common: self.common };
        let found = start < end && (RULES[rule].accepts)(&mut hit) && parts(self.text, hit.end);
        if found {
            self.hits.push((hit.start, hit.end, rule as u32));
            self.resume[rule] = hit.end.max(start + 1);
        }
        found
    }

    /// Without those within a surer hit, or within another of their own label.
    fn reported(mut self) -> Vec<(usize, usize, u32)> {
        let rank = |rule: u32| RULES[rule as usize].rank;
        self.hits.sort_unstable_by_key(|&(start, end, rule)| (start, Reverse(end), Reverse(rank(rule)), rule));
        let mut furthest = [0; 3];
        let mut of_label: Vec<(&str, usize)> = Vec::new();
        self.hits.retain(|&(_, end, rule)| {
            let surer = furthest[rank(rule) as usize + 1..].iter().any(|&other| other >= end);
            furthest[rank(rule) as usize] = furthest[rank(rule) as usize].max(end);
            let label = RULES[rule as usize].label;
            let within = match of_label.iter_mut().find(|(other, _)| *other == label) {
                Some((_, other)) => {
                    let within = *other >= end;
                    *other = end.max(*other);
                    within
                }
                None => {
                    of_label.push((label, end));
                    false
                }
            };
            !surer && !within
        });
        self.hits
    }
}

fn scan_text(
    compiled: &Compiled,
    fields: &Fields,
    common: Option<&CommonWords>,
    (document, text): (u32, &str),
    active: Mask,
    filtered: bool,
) -> Vec<Found> {
    let features = byte_features(text.as_bytes());
    let source = Source { text, unescaped: unescape_with(text, features) };
    let read = source.read();
    let folded = fold_plain(read);
    let plain = folded.as_ref().map_or(read, |folded| &folded.text).as_bytes();
    // Folding keeps every sign, and may make one of what was none.
    let others = match source.unescaped.is_some() || (folded.is_some() && !(features.equals || features.edge)) {
        true => memchr3(b'=', b'\t', b'|', plain).is_some() || memchr(b'>', plain).is_some(),
        false => features.equals || features.edge,
    };
    let hits = CACHES.with_borrow_mut(|caches| {
        caches.resize_with(RULES.len(), Remembered::default);
        let mut scan = Scan {
            compiled,
            caches,
            text: plain,
            source: &source,
            common,
            folded: folded.as_ref(),
            others,
            resume: vec![0; RULES.len()],
            hits: Vec::new(),
        };
        if filtered {
            scan.filtered(fields, active)
        } else {
            scan.everywhere(fields, active)
        }
        scan.reported()
    });
    let original = |(start, end, rule)| {
        let (start, end) = source.original(folded.as_ref(), start, end)?;
        Some(Found { document, start, end, source: rule })
    };
    hits.into_iter().filter_map(original).collect()
}

pub fn scan(
    texts: &Texts,
    active: Mask,
    fields: &Fields,
    common: Option<&CommonWords>,
    filtered: bool,
) -> Result<Vec<Found>> {
    let compiled = COMPILED.as_ref().map_err(|error| Error::Policy(error.clone()))?;
    Ok(rows(texts.len())
        .flat_map_iter(|row| scan_text(compiled, fields, common, (row as u32, texts.get(row)), active, filtered))
        .collect())
}

// Source: the way back from what the rules read to the text as it is.

/// A text, and what was made of it for the rules.
pub struct Source<'a> {
    pub text: &'a str,
    pub unescaped: Option<Folded>,
}

impl Source<'_> {
    /// The text that is folded.
    pub fn read(&self) -> &str {
        self.unescaped.as_ref().map_or(self.text, |unescaped| &unescaped.text)
    }

    /// Bounds in the text of what stands at these in the plain one.
    pub fn original(&self, folded: Option<&Folded>, start: usize, end: usize) -> Option<(usize, usize)> {
        let (start, end) = match folded {
            Some(folded) => folded.original(self.read(), start, end)?,
            None => (start, end),
        };
        match &self.unescaped {
            Some(unescaped) => unescaped.original(self.text, start, end),
            None => Some((start, end)),
        }
    }

    /// Whether it was written in spaced letters.
    pub fn is_spaced(&self, folded: Option<&Folded>, start: usize, end: usize) -> bool {
        self.unescaped.is_some()
            && self
                .original(folded, start, end)
                .is_some_and(|(start, end)| self.text[start..end].split(' ').all(|word| word.chars().count() <= 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_is_tried_at_every_capital() {
        let compiled = COMPILED.as_ref().unwrap();
        for word in ["Kidney was", "Jugular vein", "Quadriceps", "Vomiting", "Zygomatic", "walked"] {
            let tried = compiled.filter.candidates(word.as_bytes(), &[0; LANES])[0];
            let names: Vec<_> =
                (0..RULES.len()).filter(|&rule| tried >> rule & 1 == 1).map(|rule| RULES[rule].name).collect();
            assert!(names.is_empty(), "{word}: {names:?}");
        }
    }
}
