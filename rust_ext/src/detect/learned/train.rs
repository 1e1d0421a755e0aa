//! Training: which features at least k individuals have, and their weights by stochastic gradients of the likelihood.
//!
//! The objective is the log-likelihood of the labels (a conditional random field), less `l2` times half the squared weights;
//! steps are AdaGrad's, in an order that the seed says, on one thread: equal documents give equal taggers, bit for bit.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::features::{HashKey, Hint, Kind, Memo, Reader, Table};
use super::model::{Tagger, Transitions, each_row, num_slots};
use super::{LANES, WIDTH};
use crate::detect::common::CommonWords;
use crate::error::{Error, Result};
use crate::text::spans::words_met;
use crate::text::texts::Texts;

/// How to learn.
pub struct Settings {
    /// Individuals that have each feature, at the least.
    pub k: u32,
    pub epochs: u32,
    pub seed: u64,
    pub affixes: bool,
    pub l2: f32,
    pub rate: f32,
}

/// Marked documents.
pub struct Lessons<'a> {
    pub texts: &'a Texts,
    /// Number of the individual of each document.
    pub individuals: &'a [u32],
    /// What a document counts, beside one that people marked.
    pub weights: &'a [f32],
    /// Bytes and lane of each span of a document; `UNKNOWN` says nothing of its words.
    pub marks: &'a dyn Fn(usize) -> Result<Vec<Hint>>,
    pub hints: &'a dyn Fn(usize) -> Result<Vec<Hint>>,
    pub names: &'a [String],
    pub common: Option<&'a CommonWords>,
}

/// Lane of words that nobody knows the label of.
pub const UNKNOWN: u32 = u32::MAX;
const LEFT_OUT: u8 = u8::MAX;
/// A document is learned in stretches: one ends at a line end after so many words, and at so many anywhere between spans.
const SHORT: usize = 24;
const LONG: usize = 96;
/// A word whose labels are all that sure is not learned again.
const SURE: f32 = 1e-3;

struct Stretch {
    first: usize,
    end: usize,
    weight: f32,
}

/// Individuals that have a feature, and the last of them.
type Counts = HashMap<u64, (u32, u32), FixedState>;
/// The same for each place of a symbol.
type PlaceCounts = HashMap<u64, Vec<(u32, u32)>, FixedState>;

/// Learn a tagger.
pub fn learn(key: HashKey, lessons: &Lessons<'_>, settings: &Settings) -> Result<Tagger> {
    let mut order: Vec<usize> = (0..lessons.texts.len()).collect();
    order.sort_by_key(|&row| lessons.individuals[row]);
    let symbols = common_symbols(&key, lessons, settings, &order)?;
    let (entries, mut kept) = rows_of(symbols, settings.k);
    let pairs = common_pairs(&key, &Table::new(&entries), lessons, settings, &order)?;
    let mut all = entries;
    let mut num_rows = kept.len() as u32;
    for pair in pairs {
        all.push((pair, 1, num_rows));
        kept.push(true);
        num_rows += 1;
    }
    all.sort_unstable();
    if all.windows(2).any(|two| two[0].0 == two[1].0) {
        return Err(Error::Policy("two features of a tagger have one hash; choose another key".into()));
    }
    let table = Table::new(&all);
    let seen = Seen::read(&key, &table, &kept, lessons, settings)?;
    let mut fit = Fit::new(num_rows as usize, &seen, settings);
    fit.run(&seen, settings);
    // In the order of the keys, and as coarse as they are written.
    let (mut weights, largest) = (Vec::with_capacity(fit.weights.len()), fit.largest());
    for &(_, num, base) in &all {
        let first = base as usize * WIDTH;
        weights
            .extend(fit.weights[first..first + usize::from(num) * WIDTH].iter().map(|&weight| coarse(weight, largest)));
    }
    let keys = all.iter().map(|row| row.0).collect();
    let slots = all.iter().map(|row| row.1).collect();
    let transitions =
        Transitions::from_flat(&fit.transitions.flat().iter().map(|&w| coarse(w, largest)).collect::<Vec<_>>());
    Tagger::new(key, keys, slots, weights, transitions, seen.used, settings.affixes)
}

/// Steps of the weights in 16 bits.
pub const STEPS: f32 = 32767.0;

fn coarse(weight: f32, largest: f32) -> f32 {
    (weight / largest * STEPS).round() * (largest / STEPS)
}

impl<'a> Lessons<'a> {
    /// A reader of the documents; `table` None: of every symbol.
    fn reader(&self, key: &'a HashKey, table: Option<&'a Table>, settings: &Settings) -> Reader<'a> {
        Reader::new(key, table, None, self.common, settings.affixes, self.names, Memo::default())
    }

    fn read(&self, reader: &mut Reader<'_>, row: usize) -> Result<()> {
        reader.read(self.texts.get(row), &(self.hints)(row)?);
        Ok(())
    }
}

/// Individuals that have each symbol in each of its places.
///
/// A word that fewer than k of them have outside of marks is mostly a name, and is seen only where 2k - 1 have it, as is the
/// head of a field, which may hold one: so nobody who asks the tagger can tell a name of exactly k individuals from one of none.
fn common_symbols(key: &HashKey, lessons: &Lessons<'_>, settings: &Settings, order: &[usize]) -> Result<PlaceCounts> {
    let (mut counts, mut unmarked) = (PlaceCounts::default(), Counts::default());
    let mut reader = lessons.reader(key, None, settings);
    for &row in order {
        lessons.read(&mut reader, row)?;
        let individual = lessons.individuals[row] + 1;
        let labels = labels_of(&reader, (lessons.marks)(row)?);
        for at in 0..reader.units.len() {
            reader.each_symbol(at, |symbol, kind, slot| {
                if symbol.key != 0 {
                    let own = counts.entry(symbol.key).or_insert_with(|| vec![(0, 0); usize::from(num_slots(kind))]);
                    see(&mut own[slot as usize], individual);
                }
                if matches!(kind, Kind::Word | Kind::Field) && slot == 0 {
                    let own = unmarked.entry(symbol.key).or_default();
                    if labels[at] == 0 && matches!(kind, Kind::Word) {
                        see(own, individual);
                    }
                }
            });
        }
    }
    counts.retain(|key, places| {
        let is_name = unmarked.get(key).is_some_and(|own| own.0 < settings.k);
        !is_name || places[0].0 >= 2 * settings.k - 1
    });
    Ok(counts)
}

fn see(count: &mut (u32, u32), individual: u32) {
    if count.1 != individual {
        *count = (count.0 + 1, individual);
    }
}

/// Features of a tagger at the most, of symbols and of pairs: 64 MB in memory for both, half of it in a file.
const MOST_FEATURES: usize = 1 << 18;

/// The number of individuals that a feature has at the least: `k`, or as many as leave `MOST_FEATURES`.
fn least(counts: impl Iterator<Item = u32>, k: u32) -> u32 {
    let mut counts: Vec<u32> = counts.filter(|&count| count >= k).collect();
    if counts.len() <= MOST_FEATURES {
        return k;
    }
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts[MOST_FEATURES] + 1
}

/// Number of rows and first row of each symbol that k individuals have somewhere, by hash, and which of all rows k individuals
/// have.
fn rows_of(symbols: PlaceCounts, k: u32) -> (Vec<(u64, u8, u32)>, Vec<bool>) {
    let k = least(symbols.values().flatten().map(|place| place.0), k);
    let mut found: Vec<_> = symbols.into_iter().filter(|(_, places)| places.iter().any(|place| place.0 >= k)).collect();
    found.sort_unstable_by_key(|row| row.0);
    let (mut entries, mut kept) = (Vec::with_capacity(found.len()), Vec::new());
    for (key, places) in found {
        entries.push((key, places.len() as u8, kept.len() as u32));
        kept.extend(places.iter().map(|place| place.0 >= k));
    }
    (entries, kept)
}

/// Pairs of such symbols that k individuals have, by hash.
fn common_pairs(
    key: &HashKey,
    table: &Table,
    lessons: &Lessons<'_>,
    settings: &Settings,
    order: &[usize],
) -> Result<Vec<u64>> {
    let mut counts = Counts::default();
    let mut reader = lessons.reader(key, Some(table), settings);
    for &row in order {
        lessons.read(&mut reader, row)?;
        let individual = lessons.individuals[row] + 1;
        for at in 0..reader.units.len() {
            reader.each_pair(at, |pair| see(counts.entry(pair).or_default(), individual));
        }
    }
    let k = least(counts.values().map(|count| count.0), settings.k);
    let mut found: Vec<u64> = counts.iter().filter(|(_, count)| count.0 >= k).map(|(&pair, _)| pair).collect();
    found.sort_unstable();
    Ok(found)
}

/// All words that teach, as rows of weights and labels.
struct Seen {
    /// Rows of word w: `rows[offsets[w]..offsets[w + 1]]`.
    offsets: Vec<usize>,
    rows: Vec<u32>,
    labels: Vec<u8>,
    stretches: Vec<Stretch>,
    used: usize,
}

impl Seen {
    fn read(key: &HashKey, table: &Table, kept: &[bool], lessons: &Lessons<'_>, settings: &Settings) -> Result<Self> {
        let mut seen = Self { offsets: vec![0], rows: Vec::new(), labels: Vec::new(), stretches: Vec::new(), used: 1 };
        let mut reader = lessons.reader(key, Some(table), settings);
        for row in 0..lessons.texts.len() {
            lessons.read(&mut reader, row)?;
            let text = lessons.texts.get(row);
            let labels = labels_of(&reader, (lessons.marks)(row)?);
            let mut first = 0;
            for at in 0..=labels.len() {
                let ends = at == labels.len()
                    || labels[at] == LEFT_OUT
                    || at > 0 && labels[at - 1] == LEFT_OUT
                    || usize::from(labels[at]) < LANES && {
                        let has_line =
                            || text[reader.words[at - 1].1 as usize..reader.words[at].0 as usize].contains('\n');
                        at - first >= LONG || at - first >= SHORT && has_line()
                    };
                if ends && at > first {
                    if labels[first] != LEFT_OUT {
                        let end = seen.labels.len() + at - first;
                        seen.stretches.push(Stretch { first: seen.labels.len(), end, weight: lessons.weights[row] });
                        for word in first..at {
                            each_row(&reader, table, word, &mut |row| {
                                if kept[row as usize] {
                                    seen.rows.push(row);
                                }
                            });
                            seen.offsets.push(seen.rows.len());
                            seen.labels.push(labels[word]);
                            seen.used = seen.used.max(usize::from(labels[word]) % LANES + 1);
                        }
                    }
                    first = at;
                }
            }
        }
        if seen.used < 2 {
            return Err(Error::Corpus("no marked word: there is nothing to learn".into()));
        }
        Ok(seen)
    }
}

/// The label of each word; of marks that overlap, the one that begins first and is longest.
fn labels_of(reader: &Reader<'_>, mut marks: Vec<Hint>) -> Vec<u8> {
    let (starts, ends): (Vec<u32>, Vec<u32>) = reader.words.iter().copied().unzip();
    let mut labels = vec![0u8; starts.len()];
    marks.sort_by_key(|&(start, end, lane)| (lane == UNKNOWN, start, std::cmp::Reverse(end)));
    for (start, end, lane) in marks {
        let words = words_met((&starts, &ends), &(start..end));
        if lane == UNKNOWN {
            labels[words].iter_mut().filter(|label| **label == 0).for_each(|label| *label = LEFT_OUT);
        } else if !words.is_empty() && labels[words.clone()].iter().all(|&label| label == 0) {
            let first = words.start;
            labels[words].fill(lane as u8 + LANES as u8);
            labels[first] = lane as u8;
        }
    }
    labels
}

/// The weights as they are fitted.
struct Fit {
    weights: Vec<f32>,
    squares: Vec<f32>,
    transitions: Transitions,
    transition_squares: Transitions,
    /// `l2` by how often a row is seen.
    decay: Vec<f32>,
}

impl Fit {
    fn new(num_rows: usize, seen: &Seen, settings: &Settings) -> Self {
        let mut counts = vec![0f32; num_rows];
        seen.rows.iter().for_each(|&row| counts[row as usize] += 1.0);
        Self {
            weights: vec![0.0; num_rows * WIDTH],
            squares: vec![1e-6; num_rows * WIDTH],
            transitions: Transitions::zero(),
            transition_squares: Transitions::zero(),
            decay: counts.iter().map(|&count| settings.l2 / count.max(1.0)).collect(),
        }
    }

    fn largest(&self) -> f32 {
        let all = self.weights.iter().chain(&self.transitions.next).chain(self.transitions.stay.iter().flatten());
        all.fold(1e-6, |largest, weight| weight.abs().max(largest))
    }

    fn run(&mut self, seen: &Seen, settings: &Settings) {
        let mut order: Vec<u32> = (0..seen.stretches.len() as u32).collect();
        let mut random = settings.seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut beliefs = Beliefs::default();
        // The mean of the weights at the ends of the later half: the last steps alone are those of the last stretches.
        let (mut sum, mut transitions, mut num) =
            (vec![0f32; self.weights.len()], vec![0f32; LANES * (LANES + 2)], 0f32);
        for epoch in 0..settings.epochs {
            for at in (1..order.len()).rev() {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                order.swap(at, (random % (at as u64 + 1)) as usize);
            }
            for &number in &order {
                self.learn(seen, &seen.stretches[number as usize], settings.rate, &mut beliefs);
            }
            if 2 * (epoch + 1) > settings.epochs {
                num += 1.0;
                sum.iter_mut().zip(&self.weights).for_each(|(sum, weight)| *sum += weight);
                transitions.iter_mut().zip(self.transitions.flat()).for_each(|(sum, weight)| *sum += weight);
            }
        }
        self.weights.iter_mut().zip(sum).for_each(|(weight, sum)| *weight = sum / num);
        self.transitions = Transitions::from_flat(&transitions.iter().map(|sum| sum / num).collect::<Vec<_>>());
    }

    fn learn(&mut self, seen: &Seen, stretch: &Stretch, rate: f32, beliefs: &mut Beliefs) {
        beliefs.scores.clear();
        for word in stretch.first..stretch.end {
            let mut scores = [0f32; WIDTH];
            for &row in &seen.rows[seen.offsets[word]..seen.offsets[word + 1]] {
                let weights = &self.weights[row as usize * WIDTH..(row as usize + 1) * WIDTH];
                for lane in 0..WIDTH {
                    scores[lane] += weights[lane];
                }
            }
            beliefs.scores.push(scores);
        }
        let labels = &seen.labels[stretch.first..stretch.end];
        beliefs.update(&self.transitions, labels, seen.used);
        for (at, word) in (stretch.first..stretch.end).enumerate() {
            let gradient = &beliefs.marginals[at];
            if gradient.iter().all(|part| part.abs() < SURE) {
                continue;
            }
            for &row in &seen.rows[seen.offsets[word]..seen.offsets[word + 1]] {
                let range = row as usize * WIDTH..(row as usize + 1) * WIDTH;
                let (weights, squares) = (&mut self.weights[range.clone()], &mut self.squares[range]);
                let decay = self.decay[row as usize];
                for lane in 0..WIDTH {
                    let slope = stretch.weight * gradient[lane] + decay * weights[lane];
                    squares[lane] += slope * slope;
                    weights[lane] -= rate * slope / squares[lane].sqrt();
                }
            }
        }
        let step = |weight: &mut f32, square: &mut f32, slope: f32| {
            let slope = stretch.weight * slope;
            if slope != 0.0 {
                *square += slope * slope;
                *weight -= rate * slope / (*square + 1e-6).sqrt();
            }
        };
        for (at, &slope) in beliefs.next.iter().enumerate() {
            step(&mut self.transitions.next[at], &mut self.transition_squares.next[at], slope);
        }
        for part in 0..2 {
            for lane in 1..LANES {
                let (weight, square) =
                    (&mut self.transitions.stay[part][lane], &mut self.transition_squares.stay[part][lane]);
                step(weight, square, beliefs.stay[part][lane]);
            }
        }
    }
}

/// Probabilities of labels given the scores (the forward-backward algorithm, scaled at each word).
#[derive(Default)]
struct Beliefs {
    scores: Vec<[f32; WIDTH]>,
    forward: Vec<[f32; WIDTH]>,
    backward: Vec<[f32; WIDTH]>,
    /// Less the labels that are right: the slope of minus the log-likelihood.
    marginals: Vec<[f32; WIDTH]>,
    next: Vec<f32>,
    stay: [[f32; LANES]; 2],
}

impl Beliefs {
    fn update(&mut self, transitions: &Transitions, labels: &[u8], used: usize) {
        let num = self.scores.len();
        let next: Vec<f32> = transitions.next.iter().map(|weight| weight.exp()).collect();
        let stay = transitions.stay.map(|part| part.map(f32::exp));
        for scores in &mut self.scores {
            let most = scores[..used].iter().chain(&scores[LANES + 1..LANES + used]).fold(f32::MIN, |a, &b| a.max(b));
            for lane in 0..LANES {
                scores[lane] = if lane < used { (scores[lane] - most).exp() } else { 0.0 };
                let inside = &mut scores[LANES + lane];
                *inside = if lane > 0 && lane < used { (*inside - most).exp() } else { 0.0 };
            }
        }
        self.forward.clear();
        self.backward.clear();
        self.backward.resize(num, [0.0; WIDTH]);
        self.marginals.clear();
        self.next.clear();
        self.next.resize(LANES * LANES, 0.0);
        self.stay = [[0.0; LANES]; 2];
        for at in 0..num {
            let own = &self.scores[at];
            let mut reached = [0f32; WIDTH];
            if let Some(before) = at.checked_sub(1).map(|before| &self.forward[before]) {
                for from in 0..used {
                    let mass = before[from] + before[LANES + from];
                    for lane in 0..LANES {
                        reached[lane] += mass * next[from * LANES + lane];
                    }
                }
                for lane in 0..LANES {
                    let entered = before[lane] * stay[0][lane] + before[LANES + lane] * stay[1][lane];
                    reached[LANES + lane] = entered * own[LANES + lane];
                    reached[lane] *= own[lane];
                }
            } else {
                reached[..LANES].copy_from_slice(&own[..LANES]);
            }
            let total: f32 = reached.iter().sum();
            let scale = 1.0 / total.max(f32::MIN_POSITIVE);
            reached.iter_mut().for_each(|mass| *mass *= scale);
            self.forward.push(reached);
        }
        self.backward[num - 1] = [1.0; WIDTH];
        for at in (0..num - 1).rev() {
            let (own, after) = (&self.scores[at + 1], self.backward[at + 1]);
            let ahead: [f32; WIDTH] = std::array::from_fn(|lane| own[lane] * after[lane]);
            let mut found = [0f32; WIDTH];
            for from in 0..used {
                let row = &next[from * LANES..(from + 1) * LANES];
                let begun: f32 = row.iter().zip(&ahead).map(|(way, mass)| way * mass).sum();
                found[from] = begun + stay[0][from] * ahead[LANES + from];
                found[LANES + from] = begun + stay[1][from] * ahead[LANES + from];
            }
            let total: f32 = found.iter().sum();
            let scale = 1.0 / total.max(f32::MIN_POSITIVE);
            self.backward[at] = found.map(|mass| mass * scale);
            // What follows what, of these two words.
            let before = &self.forward[at];
            let mut sum = 0f32;
            let mut pairs = [0f32; LANES * LANES];
            for from in 0..used {
                let mass = before[from] + before[LANES + from];
                for lane in 0..LANES {
                    let pair = mass * next[from * LANES + lane] * ahead[lane];
                    pairs[from * LANES + lane] = pair;
                    sum += pair;
                }
            }
            let kept: [[f32; LANES]; 2] = std::array::from_fn(|part| {
                std::array::from_fn(|lane| before[part * LANES + lane] * stay[part][lane] * ahead[LANES + lane])
            });
            sum += kept.iter().flatten().sum::<f32>();
            let scale = 1.0 / sum.max(f32::MIN_POSITIVE);
            self.next.iter_mut().zip(&pairs).for_each(|(slope, pair)| *slope += pair * scale);
            for part in 0..2 {
                for lane in 0..LANES {
                    self.stay[part][lane] += kept[part][lane] * scale;
                }
            }
            let (from, to) = (usize::from(labels[at]), usize::from(labels[at + 1]));
            if to >= LANES {
                self.stay[usize::from(from >= LANES)][to - LANES] -= 1.0;
            } else {
                self.next[from % LANES * LANES + to] -= 1.0;
            }
        }
        for at in 0..num {
            let mut belief: [f32; WIDTH] = std::array::from_fn(|lane| self.forward[at][lane] * self.backward[at][lane]);
            let scale = 1.0 / belief.iter().sum::<f32>().max(f32::MIN_POSITIVE);
            belief.iter_mut().for_each(|mass| *mass *= scale);
            belief[usize::from(labels[at])] -= 1.0;
            self.marginals.push(belief);
        }
    }
}
