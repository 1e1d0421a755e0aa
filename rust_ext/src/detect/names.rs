//! Names: one individual's own, in that individual's text, however they are written there.
//!
//! A name is found by its parts. Each part of three letters and more that is no particle counts alone; a hit grows over
//! neighbours that belong to the same individual (other parts, particles, initials), so `J. R. Smith`, `SMITH, John` and
//! `van der Berg` are one span each, in any order. A part of five letters may differ by one edit and one of nine by two
//! (optimal string alignment: insertion, deletion, substitution, swap of neighbours), and by what OCR confuses (`0`/`o`, `1`/`l`,
//! `5`/`s`, `8`/`b`, `rn`/`m`, `vv`/`w`), where the word is no other word of the corpus.
//!
//! Cost: a few nanoseconds a piece: lengths, then sets of letters, are compared before letters are. An edit changes two letters
//! of the set at most.

use crate::detect::common::CommonWords;
use crate::detect::context::{
    is_announced, is_capital, is_in_date, is_initial, is_particle, joins_names, starts_sentence,
};
use crate::detect::records::{has, set};
use crate::text::pieces::View;

/// A part of a name that may stand alone.
struct Part {
    text: Box<str>,
    chars: Box<[char]>,
    letters: u32,
    num_edits: usize,
    /// Too short to be a name wherever it stands ("Li", "Do").
    weak: bool,
    /// A word of the user's list: in small letters it is that word.
    language: bool,
    source: u32,
}

impl Part {
    /// By how many bytes a piece may be longer or shorter: characters have up to four, and OCR makes two of one.
    fn reach(&self) -> usize {
        if self.text.is_ascii() { self.num_edits.max(1) } else { 4 * (self.num_edits + 1) }
    }
}

#[derive(Default)]
pub struct Names {
    parts: Vec<Part>,
    particles: Vec<Box<str>>,
    initials: Vec<char>,
    /// Bit n: a part has n bytes; and a piece of n bytes may be like a part.
    lengths: u64,
    lengths_alike: u64,
    /// The first bytes of the parts.
    starts: [u64; 4],
}

/// A piece that is a part of a name.
struct Hit {
    piece: usize,
    /// The piece that a part goes on with behind the end of a line, or the same.
    last: usize,
    part: usize,
    edited: bool,
    /// Counts without a neighbour's help.
    sure: bool,
}

/// What a note's case says, and what its words are.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub common: Option<&'a CommonWords>,
    pub cased: bool,
    /// Whether initials count without a name next to them ("J.S.").
    pub initials: bool,
}

impl Names {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Add a value, as it is folded and cut.
    pub fn add(&mut self, value: &View, source: u32, common: Option<&CommonWords>) {
        let pieces: Vec<&str> = (0..value.len()).map(|number| value.piece(number)).collect();
        let strong = |piece: &str| !is_particle(piece) && (!piece.is_ascii() || piece.len() >= 3);
        let any_strong = pieces.iter().any(|piece| strong(piece));
        for piece in &pieces {
            if strong(piece) || !any_strong && piece.len() >= 2 {
                self.push(piece, strong(piece), false, source, common);
            } else if piece.len() >= 2 {
                self.particles.push((*piece).into());
            }
            self.initials.extend(piece.chars().next());
        }
        // "O'Brien" is written OBrien too, and "de la Cruz" delacruz.
        if (2..=4).contains(&pieces.len()) && any_strong && pieces.iter().all(|piece| piece.is_ascii()) {
            let glued = pieces.concat();
            if glued.len() >= 5 {
                self.push(&glued, true, true, source, common);
            }
        }
    }

    fn push(&mut self, text: &str, strong: bool, glued: bool, source: u32, common: Option<&CommonWords>) {
        if self.parts.iter().any(|part| *part.text == *text) {
            return;
        }
        let chars: Box<[char]> = text.chars().collect();
        let num_edits = match chars.len() {
            _ if glued || !strong || !chars.iter().all(|c| c.is_alphabetic()) => 0,
            0..5 => 0,
            5..9 => 1,
            _ => 2,
        };
        let part = Part {
            letters: letters(text),
            num_edits,
            weak: !strong,
            language: common.is_some_and(|common| common.is_listed(text)),
            source,
            chars,
            text: text.into(),
        };
        if part.chars.len() >= 4 && strong && !glued {
            let reach = part.reach();
            for length in text.len().saturating_sub(reach)..=text.len() + reach {
                self.lengths_alike |= 1 << length.min(63);
            }
        }
        self.lengths |= 1 << text.len().min(63);
        let first = text.as_bytes()[0];
        set(&mut self.starts, first);
        self.parts.push(part);
    }

    /// Give first piece, last piece, source and whether letters differ, for each name of a text, from left to right.
    pub fn find(&self, view: &View, setting: Setting, mut emit: impl FnMut(usize, usize, u32, bool)) {
        let mut hits: Vec<Hit> = Vec::new();
        for (piece, &(start, end)) in view.pieces().iter().enumerate() {
            let length = (end - start).min(63);
            if hits.last().is_some_and(|hit| hit.last == piece) {
                continue; // the rest of a part
            }
            let first = view.text().as_bytes()[start as usize];
            let may_start = has(&self.starts, first);
            if may_start && let Some(part) = self.part_over_lines(view, piece) {
                hits.push(Hit { last: piece + 1, ..self.judged(view, piece, part, false, setting) });
                continue;
            }
            if (self.lengths | self.lengths_alike) >> length & 1 == 0 {
                continue;
            }
            let text = view.piece(piece);
            if self.lengths >> length & 1 == 1
                && may_start
                && let Some(part) = self.parts.iter().position(|part| *part.text == *text)
            {
                hits.push(self.judged(view, piece, part, false, setting));
            } else if length >= 4
                && self.lengths_alike >> length & 1 == 1
                && let Some(part) = self.part_like(text, || may_be_edited(view, piece, setting))
            {
                hits.push(self.judged(view, piece, part, true, setting));
            }
        }
        let mut free = 0;
        let mut next = 0;
        while next < hits.len() {
            let (first, last, after) = self.run(view, &hits, next, free, setting);
            if self.is_name(view, &hits[next..after], first, last, setting) {
                let named = hits[next..after].iter().find(|hit| hit.sure).unwrap_or(&hits[next]);
                let edited = hits[next..after].iter().all(|hit| hit.edited);
                emit(first, last, self.parts[named.part].source, edited);
                free = last + 1;
            }
            next = after;
        }
        if setting.initials {
            self.find_initials(view, emit);
        }
    }

    /// The part that a piece begins and the next piece ends, with the end of a line between them.
    fn part_over_lines(&self, view: &View, piece: usize) -> Option<usize> {
        if piece + 1 >= view.len() || !is_broken(view, piece) {
            return None;
        }
        let (text, next) = (view.piece(piece), view.piece(piece + 1));
        let is_both = |part: &Part| part.text.strip_prefix(text).is_some_and(|rest| !rest.is_empty() && rest == next);
        self.parts.iter().position(|part| !part.weak && part.text.len() >= 5 && is_both(part))
    }

    /// The first part that a piece is like.
    fn part_like(&self, piece: &str, may_be: impl FnOnce() -> bool) -> Option<usize> {
        if !may_be() {
            return None;
        }
        let found = letters(piece);
        self.parts.iter().position(|part| {
            (part.letters ^ found).count_ones() as usize <= 2 * part.num_edits
                && part.chars.len() >= 4
                && part.text.len().abs_diff(piece.len()) <= part.reach()
                && is_like(part, piece)
        })
    }

    fn judged(&self, view: &View, piece: usize, part: usize, edited: bool, setting: Setting) -> Hit {
        let Part { weak, language, .. } = self.parts[part];
        let capital = is_capital(view, piece);
        let text = view.piece(piece);
        let sure = if edited {
            // A word of the corpus is that word; nothing is known of the first word of a sentence without a corpus.
            !setting.common.is_some_and(|common| common.is_word(text))
                && (setting.common.is_some() || setting.cased && !starts_sentence(view, piece))
        } else if is_in_date(view, piece) {
            false
        } else if capital.is_none() {
            true
        } else if !setting.cased {
            !weak
        } else if capital == Some(true) {
            // "Do not" is no Mr. Do, unless this corpus has no such word.
            !weak || setting.common.is_some() && !language || !starts_sentence(view, piece)
        } else {
            !weak && !language
        };
        Hit { piece, last: piece, part, edited, sure }
    }

    /// The neighbours that a hit grows over: first and last piece, and the first hit after them.
    fn run(&self, view: &View, hits: &[Hit], from: usize, free: usize, setting: Setting) -> (usize, usize, usize) {
        let (mut first, mut last, mut after) = (hits[from].piece, hits[from].last, from + 1);
        let initial = |piece: usize| {
            is_initial(view, piece)
                || !setting.cased && view.piece(piece).len() == 1 && view.gap(piece).starts_with('.')
        };
        let own_initial = |piece: usize| {
            initial(piece) && view.piece(piece).chars().next().is_some_and(|letter| self.initials.contains(&letter))
        };
        let particle = |piece: usize| self.particles.iter().any(|own| **own == *view.piece(piece));
        loop {
            // Over initials (a second name's too) and particles to the next hit.
            let mut to = last + 1;
            while to < view.len() && to <= last + 4 && joins_names(view, to - 1) {
                if hits.get(after).is_some_and(|hit| hit.piece == to) || !(initial(to) || particle(to)) {
                    break;
                }
                to += 1;
            }
            let is_other = |hit: &Hit| hit.piece == to && hits[from..after].iter().all(|own| own.part != hit.part);
            if to < view.len() && joins_names(view, to - 1) && hits.get(after).is_some_and(is_other) {
                last = hits[after].last;
                after += 1;
                continue;
            }
            break;
        }
        if last + 1 < view.len() && joins_names(view, last) && own_initial(last + 1) {
            last += 1; // "Smith J"
        }
        while first > free && joins_names(view, first - 1) && (own_initial(first - 1) || particle(first - 1)) {
            first -= 1;
        }
        (first, last, after)
    }

    /// Something about the run says that it is a name.
    fn is_name(&self, view: &View, hits: &[Hit], first: usize, last: usize, setting: Setting) -> bool {
        let others = || hits.iter().any(|hit| !hit.edited && hit.part != hits[0].part);
        let initial = || (first..=last).any(|piece| view.piece(piece).len() == 1 && is_initial(view, piece));
        let exact = || hits.iter().any(|hit| !hit.edited);
        let capital = || !setting.cased || hits.iter().any(|hit| is_capital(view, hit.piece) != Some(false));
        let strong = || hits.iter().any(|hit| !self.parts[hit.part].weak);
        hits.iter().any(|hit| hit.sure)
            || (others() && strong() || is_announced(view, first) && exact())
                && !(first == last && is_in_date(view, first))
            || (others() || initial() && setting.cased && exact()) && capital()
    }

    /// "J.S." or "J. S.", of the initials of two different parts.
    fn find_initials(&self, view: &View, mut emit: impl FnMut(usize, usize, u32, bool)) {
        let part_of = |piece: usize| {
            let letter = view.piece(piece).chars().next()?;
            self.parts.iter().position(|part| part.chars.first() == Some(&letter)).filter(|_| is_initial(view, piece))
        };
        for piece in 1..view.len() {
            let pair = part_of(piece - 1).zip(part_of(piece)).filter(|(first, second)| first != second);
            if let Some((first, _)) = pair
                && matches!(view.gap(piece - 1), "." | ". ")
                && view.gap(piece).starts_with('.')
            {
                emit(piece - 1, piece, self.parts[first].source, false);
            }
        }
    }
}

/// Whether nothing but the end of a line, and a hyphen or a soft break before it, stands between a piece and the next.
fn is_broken(view: &View, piece: usize) -> bool {
    let end = view.origin_of(piece, piece).map(|(_, end)| end);
    let between = end.zip(view.origin_start(piece + 1)).and_then(|(end, start)| view.original.get(end..start));
    between.is_some_and(|gap| {
        let gap = gap.replace("\\.br\\", "\n").replace("\r\n", "\n");
        gap.split_once(['\n', '\r']).is_some_and(|(before, after)| {
            matches!(before.trim(), "" | "-" | "=" | "¬" | "\u{2010}" | "\u{ad}")
                && after.bytes().all(|byte| matches!(byte, b' ' | b'\t'))
        })
    })
}

/// Edits are looked for where case makes a name likely: behind a capital, or a digit that OCR put.
fn may_be_edited(view: &View, piece: usize, setting: Setting) -> bool {
    !setting.cased
        || is_capital(view, piece) != Some(false)
        || view.piece(piece).bytes().any(|byte| byte.is_ascii_digit())
}

/// Bits of the letters, those that OCR confuses together; other scripts share six bits.
fn letters(text: &str) -> u32 {
    if text.is_ascii() {
        return text.bytes().fold(0, |letters, byte| letters | LETTERS[byte as usize & 127]);
    }
    text.chars()
        .fold(0, |letters, c| letters | if c.is_ascii() { LETTERS[c as usize] } else { 1 << (26 + c as u32 % 6) })
}

const LETTERS: [u32; 128] = {
    let mut bits = [1 << 25; 128];
    let mut letter = b'a';
    while letter <= b'z' {
        bits[letter as usize] = 1 << (letter - b'a');
        letter += 1;
    }
    bits[b'm' as usize] = bits[b'r' as usize];
    bits[b'n' as usize] = bits[b'r' as usize];
    bits[b'w' as usize] = bits[b'v' as usize];
    bits[b'i' as usize] = bits[b'l' as usize];
    bits[b'1' as usize] = bits[b'l' as usize];
    bits[b'0' as usize] = bits[b'o' as usize];
    bits[b'5' as usize] = bits[b's' as usize];
    bits[b'8' as usize] = bits[b'b' as usize];
    bits
};

fn is_like(part: &Part, piece: &str) -> bool {
    let chars: Vec<char> = piece.chars().collect();
    part.num_edits > 0 && is_within(&part.chars, &chars, part.num_edits) || ocr_form(&part.chars) == ocr_form(&chars)
}

/// One writing for all that OCR confuses.
fn ocr_form(chars: &[char]) -> Vec<char> {
    let mut form: Vec<char> = Vec::with_capacity(chars.len());
    for &c in chars {
        let c = match c {
            '0' => 'o',
            '1' | 'i' => 'l',
            '5' => 's',
            '8' => 'b',
            _ => c,
        };
        match (form.last_mut(), c) {
            (Some(last @ 'r'), 'n') => *last = 'm',
            (Some(last @ 'v'), 'v') => *last = 'w',
            _ => form.push(c),
        }
    }
    form
}

/// Whether the optimal string alignment distance is at most `most`.
pub fn is_within(a: &[char], b: &[char], most: usize) -> bool {
    if a.len().abs_diff(b.len()) > most {
        return false;
    }
    let (mut before, mut row) = (vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<usize>>());
    for i in 1..=a.len() {
        let mut next = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            next[j] = (row[j] + 1).min(next[j - 1] + 1).min(row[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        if next.iter().all(|&distance| distance > most) {
            return false;
        }
        (before, row) = (row, next);
    }
    row[b.len()] <= most
}
