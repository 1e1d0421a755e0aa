//! Model: the weights of a tagger, and the most probable labels of a document (Viterbi's algorithm, exact).

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::features::{HashKey, Hint, Kind, Memo, NONE, Reader, SLOTS, Table};
use super::{LANES, WIDTH};
use crate::detect::common::CommonWords;
use crate::error::{Error, Result};
use crate::pool::rows;
use crate::text::spans::Found;
use crate::text::texts::Texts;
use crate::text::words::Bounds;

/// Scores of what follows what: lane 0 is `O`, and a span of lane c ends where another begins.
#[derive(Clone, PartialEq, Debug)]
pub struct Transitions {
    /// `next[c * LANES + d]`: from `O` or a span of c to `O` or a new span of d.
    pub next: Vec<f32>,
    /// From `B-c` to `I-c`, and from `I-c` to `I-c`.
    pub stay: [[f32; LANES]; 2],
}

impl Transitions {
    pub fn zero() -> Self {
        Self { next: vec![0.0; LANES * LANES], stay: [[0.0; LANES]; 2] }
    }

    pub fn from_flat(flat: &[f32]) -> Self {
        let (next, stay) = flat.split_at(LANES * LANES);
        Self {
            next: next.to_vec(),
            stay: std::array::from_fn(|part| std::array::from_fn(|lane| stay[part * LANES + lane])),
        }
    }

    pub fn flat(&self) -> Vec<f32> {
        self.next.iter().chain(self.stay.iter().flatten()).copied().collect()
    }
}

/// Scores of the labels of a word: `B` lanes (0: `O`), then `I` lanes.
pub type Scores = [f32; WIDTH];

/// Where the best way to a word's labels comes from.
#[derive(Clone, Copy)]
struct Step {
    from: [u8; LANES],
    /// Bits by lane: the better label of the lane is `I`; the way to `I` comes from `I`.
    is_inside: u16,
    stays: u16,
}

/// Rows that are seen from a word beside those of forms, at the most: gaps, places, fields, hints and pairs.
const MOST_BESIDE: usize = 16;

/// Words whose forms' weights are on their way to the cache.
const AHEAD: usize = 8;

/// Pairs whose rows are kept at hand: 16 KB.
const RECENT: usize = 1024;

/// Room for one document of a tagger after another.
#[derive(Default)]
pub struct Room {
    pub scores: Vec<Scores>,
    /// Pairs that were seen lately, with their rows. Most of a text are few, and the table is larger than the near caches.
    recent: Vec<(u64, u32)>,
    steps: Vec<Step>,
    pub labels: Vec<u8>,
}

const LOW: f32 = -1e30;

/// More than sums of two words' scores are rounded by.
const MARGIN: f32 = 1e-3;

/// The best labels (lane, plus `LANES` where a span goes on) for the scores in `room`; of equals that of the lowest lane.
#[inline(always)]
pub fn viterbi(room: &mut Room, transitions: &Transitions, used: usize) {
    let num = room.scores.len();
    room.steps.clear();
    room.labels.clear();
    room.labels.resize(num, 0);
    if num == 0 {
        return;
    }
    // By how much what follows a span may be better than after `O`, at the most.
    let mut gain = [LOW; LANES];
    for from in 1..used {
        let row = &transitions.next[from * LANES..from * LANES + used];
        gain[from] = row.iter().zip(&transitions.next).map(|(next, open)| next - open).fold(LOW, f32::max);
    }
    let (mut begin, mut inside) = ([LOW; LANES], [LOW; LANES]);
    for (at, scores) in room.scores.iter().enumerate() {
        if at == 0 {
            begin.copy_from_slice(&scores[..LANES]);
            begin[used..].fill(LOW);
            continue;
        }
        // By how much they are better than `O`: a sum over a long text would be rounded by more than a word's scores.
        let open = begin[0];
        for lane in 0..LANES {
            (begin[lane], inside[lane]) = (begin[lane] - open, inside[lane] - open);
        }
        let mut step = Step { from: [0; LANES], is_inside: 0, stays: 0 };
        let mut best = [LOW; LANES];
        for lane in 0..LANES {
            step.is_inside |= u16::from(inside[lane] > begin[lane]) << lane;
            best[lane] = if inside[lane] > begin[lane] { inside[lane] } else { begin[lane] };
        }
        let mut reached = [LOW; LANES];
        reached.copy_from_slice(&transitions.next[..LANES]);
        // Most words follow `O`: where no span comes near it, none is tried.
        let mut is_near = 0u32;
        for from in 0..LANES {
            is_near |= u32::from(best[from] + gain[from] > -MARGIN) << from;
        }
        while is_near != 0 {
            let from = is_near.trailing_zeros() as usize;
            is_near &= is_near - 1;
            let row = &transitions.next[from * LANES..(from + 1) * LANES];
            for lane in 0..LANES {
                let way = best[from] + row[lane];
                let better = way > reached[lane];
                reached[lane] = if better { way } else { reached[lane] };
                step.from[lane] = if better { from as u8 } else { step.from[lane] };
            }
        }
        for lane in 0..LANES {
            let (entered, stayed) = (begin[lane] + transitions.stay[0][lane], inside[lane] + transitions.stay[1][lane]);
            step.stays |= u16::from(stayed > entered) << lane;
            inside[lane] = (if stayed > entered { stayed } else { entered }) + scores[LANES + lane];
            begin[lane] = reached[lane] + scores[lane];
        }
        inside[0] = LOW;
        begin[used..].fill(LOW);
        inside[used..].fill(LOW);
        room.steps.push(step);
    }
    let (mut lane, mut is_in, mut most) = (0, false, LOW * 2.0);
    for candidate in 0..used {
        for (score, side) in [(begin[candidate], false), (inside[candidate], true)] {
            if score > most {
                (lane, is_in, most) = (candidate, side, score);
            }
        }
    }
    for at in (0..num).rev() {
        room.labels[at] = (lane + if is_in { LANES } else { 0 }) as u8;
        let Some(step) = at.checked_sub(1).map(|before| &room.steps[before]) else { break };
        if is_in {
            is_in = step.stays >> lane & 1 == 1;
        } else {
            lane = step.from[lane] as usize;
            is_in = step.is_inside >> lane & 1 == 1;
        }
    }
}

/// A tagger.
pub struct Tagger {
    pub key: HashKey,
    /// Hash of each symbol or pair, ascending, with its number of rows.
    pub keys: Vec<u64>,
    pub slots: Vec<u8>,
    pub table: Table,
    /// `WIDTH` a row.
    pub weights: Vec<f32>,
    pub transitions: Transitions,
    /// Lanes that are in use, with `O`.
    pub used: usize,
    pub affixes: bool,
    memos: Mutex<Vec<Memo>>,
}

impl Tagger {
    /// From its tables; the weights are of the rows of each key in turn.
    pub fn new(
        key: HashKey,
        keys: Vec<u64>,
        slots: Vec<u8>,
        weights: Vec<f32>,
        transitions: Transitions,
        used: usize,
        affixes: bool,
    ) -> Result<Self> {
        let num_rows: usize = slots.iter().map(|&num| usize::from(num)).sum();
        if let Some(&num) = slots.iter().find(|num| !SLOTS.contains(num)) {
            return Err(Error::Artifact(format!("a feature of a tagger has {num} rows, which no kind of feature has")));
        }
        let is_whole = keys.len() == slots.len()
            && weights.len() == num_rows * WIDTH
            && keys.is_sorted_by(|one, next| one < next)
            && keys.first().is_none_or(|&first| first != 0)
            && weights.iter().all(|weight| weight.is_finite())
            && (2..=LANES).contains(&used);
        if !is_whole || num_rows > NONE as usize / 2 {
            return Err(Error::Artifact("the tables of a tagger do not match".into()));
        }
        let mut base = 0;
        let entries: Vec<(u64, u8, u32)> = keys
            .iter()
            .zip(&slots)
            .map(|(&key, &num)| {
                base += u32::from(num);
                (key, num, base - u32::from(num))
            })
            .collect();
        let table = Table::new(&entries);
        if !table.is_whole(&key) {
            return Err(Error::Artifact("a feature of a tagger has more or fewer rows than its kind".into()));
        }
        Ok(Self { key, keys, slots, table, weights, transitions, used, affixes, memos: Mutex::default() })
    }

    pub(super) fn reader<'a>(&'a self, common: Option<&'a CommonWords>, hints: &[String]) -> Reader<'a> {
        let memo = self.memos.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        Reader::new(&self.key, Some(&self.table), Some(&self.weights), common, self.affixes, hints, memo)
    }

    /// The scores of the labels of each word that was read.
    #[inline(always)]
    pub(super) fn score(&self, reader: &Reader<'_>, room: &mut Room, lean: f32) {
        room.scores.clear();
        room.recent.resize(RECENT, (0, NONE));
        for at in 0..reader.units.len() {
            reader.prefetch(at + AHEAD);
            let mut scores = [0f32; WIDTH];
            scores[0] = -lean;
            reader.add_forms(at, &mut scores);
            let (mut seen, mut num) = ([0u32; MOST_BESIDE], 0);
            let mut note = |row: u32| {
                seen[num] = row;
                num += 1;
            };
            reader.each_beside(at, |symbol, _, slot| {
                if symbol.base != NONE {
                    note(symbol.base + slot);
                }
            });
            reader.each_pair(at, |key| {
                let known = &mut room.recent[(key >> 1) as usize % RECENT]; // the last bit is set in all
                if known.0 != key {
                    *known = (key, self.table.base(key));
                }
                if known.1 != NONE {
                    note(known.1);
                }
            });
            for &row in &seen[..num] {
                let weights = &self.weights[row as usize * WIDTH..(row as usize + 1) * WIDTH];
                for lane in 0..WIDTH {
                    scores[lane] += weights[lane];
                }
            }
            room.scores.push(scores);
        }
    }

    /// The labels of each word that was read, in `room`; `lean` is taken from the score of `O`.
    pub fn label(&self, reader: &Reader<'_>, room: &mut Room, lean: f32) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the function asks for a processor with AVX2 alone, and this one has it.
            unsafe { self.label_avx2(reader, room, lean) };
            return;
        }
        self.score(reader, room, lean);
        viterbi(room, &self.transitions, self.used);
    }

    /// # Safety
    ///
    /// The processor has AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn label_avx2(&self, reader: &Reader<'_>, room: &mut Room, lean: f32) {
        self.score(reader, room, lean);
        viterbi(room, &self.transitions, self.used);
    }

    /// Spans of every document, by document and start; `source` is the lane.
    pub fn find(
        &self,
        texts: &Texts,
        hints: &(dyn Fn(usize) -> Result<Vec<Hint>> + Sync),
        names: &[String],
        common: Option<&CommonWords>,
        lean: f32,
    ) -> Result<Vec<Found>> {
        let threads = rayon::current_num_threads();
        let readers: Vec<Mutex<(Reader<'_>, Room)>> =
            (0..threads).map(|_| Mutex::new((self.reader(common, names), Room::default()))).collect();
        let parts: Vec<Vec<Found>> = rows(texts.len())
            .map(|row| {
                let own = &readers[rayon::current_thread_index().unwrap_or(0) % threads];
                let (reader, room) = &mut *own.lock().unwrap_or_else(PoisonError::into_inner);
                reader.read(texts.get(row), &hints(row)?);
                self.label(reader, room, lean);
                Ok(spans(texts.get(row), &room.labels, &reader.words, row))
            })
            .collect::<Result<_>>()?;
        let memos =
            readers.into_iter().map(|own| own.into_inner().unwrap_or_else(PoisonError::into_inner).0.into_memo());
        self.memos.lock().unwrap_or_else(PoisonError::into_inner).extend(memos);
        Ok(parts.concat())
    }
}

/// Call `emit` with each row of weights that is seen from a word.
#[inline(always)]
pub fn each_row(reader: &Reader<'_>, table: &Table, at: usize, emit: &mut impl FnMut(u32)) {
    reader.each_symbol(at, |symbol, _, slot| {
        if symbol.base != NONE {
            emit(symbol.base + slot);
        }
    });
    reader.each_pair(at, |key| {
        let base = table.base(key);
        if base != NONE {
            emit(base);
        }
    });
}

/// Rows of a symbol of a kind.
pub fn num_slots(kind: Kind) -> u8 {
    SLOTS[kind as usize]
}

/// Words that one label covers, as spans; what is opened within one is closed there.
fn spans(text: &str, labels: &[u8], words: &[Bounds], row: usize) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for (&label, &(start, end)) in labels.iter().zip(words) {
        let label = usize::from(label);
        if label >= LANES {
            if let Some(last) = found.last_mut() {
                last.end = end as usize;
            }
        } else if label > 0 {
            let (start, end) = (start as usize, end as usize);
            found.push(Found { document: row as u32, start, end, source: label as u32 });
        }
    }
    for span in &mut found {
        let open = text[span.start..span.end].chars().fold(None, |open, c| match (open, c) {
            (None, '"') => Some('"'),
            (_, '(') => Some(')'),
            (_, '«') => Some('»'),
            (_, '“') => Some('”'),
            (Some(close), c) if c == close => None,
            _ => open,
        });
        if let Some(close) = open.filter(|&close| text[span.end..].starts_with(close)) {
            span.end += close.len_utf8();
        }
    }
    found
}
