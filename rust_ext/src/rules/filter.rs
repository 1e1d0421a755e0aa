//! Which rules can match at a place, from its first bytes: a small automaton derived from the expressions themselves.
//!
//! Trying a hundred expressions at every word would cost a hundred times the reading. The automaton reads up to `DEPTH` bytes
//! and holds, at each of its nodes, the rules of which some match begins so; most words are dead after two letters, most
//! numbers after the first sign. It is built by the subset construction over the rules' Thompson automata, with bytes put
//! into classes and look-around taken as passed: it may let a rule through in vain, never keep one out.
//!
//! The table is larger than the caches nearest to the processor, so a step waits for memory: places are taken `LANES` at a time,
//! whose waits overlap, and all steps are made at each of them, so that no branch hangs on what was read.
//!
//! Most places are dead after three letters. Those are left out before, by one bit each for three classes in a row, whose
//! bits for small letters stay in the nearest cache (`begins`).
//!
//! A rule of which every match has a digit within so many bytes (`reach`, from the expression too) is kept out where the next
//! digit stands further away: "in" begins a year, and mostly none follows.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::primitives::StateID;

/// One bit a rule.
pub type Mask = u128;

/// Bytes that are read: enough to tell 12.5 from 12.5.20.
const DEPTH: usize = 6;
/// Nodes beyond this are not made: one node that lets every rule through stands for all of them.
const MAX_NODES: usize = 30_000;
const DEAD: u16 = 0;
/// Stands for a node that is not made while the others are.
const BEYOND: u16 = u16::MAX;
/// Class of what stands beyond the end of the text.
const END: usize = 0;
const NUM_CLASSES: usize = 80;

/// A class for each letter and each sign of numbers, one for the digits and one for all other bytes.
const CLASSES: [u8; 256] = {
    let mut classes = [1u8; 256];
    let mut byte = 0;
    while byte < 256 {
        let c = byte as u8;
        classes[byte] = match c {
            b'0'..=b'9' => 2,
            b'a'..=b'z' => 3 + (c - b'a'),
            b'A'..=b'Z' => 29 + (c - b'A'),
            b' ' => 55,
            b'\n' => 56,
            b'-' => 57,
            b'.' => 58,
            b'/' => 59,
            b':' => 60,
            b'(' => 61,
            b')' => 62,
            b'+' => 63,
            b',' => 64,
            b'#' => 65,
            b'*' => 66,
            b'_' => 67,
            b'\'' => 68,
            b'=' => 69,
            b'@' => 70,
            b'\\' => 71,
            0x80.. => 72,
            _ => 1,
        };
        byte += 1;
    }
    classes
};

pub struct Filter {
    /// Node and class -> node.
    next: Vec<[u16; NUM_CLASSES]>,
    /// Rules of which a match may go through the node.
    alive: Vec<Mask>,
    /// A bit for each three classes with which some match begins.
    begins: Vec<u64>,
    /// Number of bytes -> rules that may match with so many before the next digit.
    without_digit: Vec<Mask>,
}

/// Places that are looked at together.
pub const LANES: usize = 8;
/// Bytes before the next digit, and more, that are distinguished.
pub const MAX_REACH: usize = 63;

/// A state of a rule's automaton; `MATCHED` once the rule has matched.
type Live = (u8, u32);
const MATCHED: u32 = u32::MAX;

impl Filter {
    /// A filter for these rules, each with its number.
    pub fn new(rules: &[(u8, &NFA)]) -> Self {
        Self::with_nodes(rules, MAX_NODES)
    }

    fn with_nodes(rules: &[(u8, &NFA)], max_nodes: usize) -> Self {
        let automata: HashMap<u8, &NFA, FixedState> = rules.iter().copied().collect();
        let mut start = Vec::new();
        for &(rule, nfa) in rules {
            close(rule, nfa, nfa.start_anchored(), &mut start);
        }
        start.sort_unstable();
        start.dedup();
        let mut filter = Self {
            next: Vec::new(),
            alive: Vec::new(),
            begins: vec![0; NUM_CLASSES.pow(3).div_ceil(64)],
            without_digit: vec![0; MAX_REACH + 1],
        };
        for &(rule, nfa) in rules {
            let most = reach(nfa).unwrap_or(MAX_REACH);
            filter.without_digit[..=most.min(MAX_REACH)].iter_mut().for_each(|mask| *mask |= 1 << rule);
        }
        let mut numbers: HashMap<Vec<Live>, u16, FixedState> = HashMap::default();
        filter.node(&mut numbers, Vec::new());
        let mut layer = vec![(filter.node(&mut numbers, start.clone()), start)];
        for _ in 0..DEPTH {
            let mut deeper = Vec::new();
            for (number, set) in layer {
                for (class, mut target) in followers(&automata, &set).into_iter().enumerate() {
                    target.sort_unstable();
                    target.dedup();
                    let known = numbers.len();
                    let to = if known < max_nodes || numbers.contains_key(&target) {
                        filter.node(&mut numbers, target.clone())
                    } else {
                        BEYOND
                    };
                    filter.next[number as usize][class] = to;
                    if numbers.len() > known {
                        deeper.push((to, target));
                    }
                }
            }
            layer = deeper;
        }
        // Nodes that were never expanded let through what is alive in them.
        for (number, _) in layer {
            filter.next[number as usize] = [number; NUM_CLASSES];
        }
        filter.close_beyond(rules.iter().fold(0, |all, &(rule, _)| all | 1 << rule));
        filter.mark_begins();
        filter
    }

    /// Put one node, from which no byte leads away and where all rules are alive, in place of those that were not made.
    fn close_beyond(&mut self, all: Mask) {
        let number = self.next.len() as u16;
        self.next.push([number; NUM_CLASSES]);
        self.alive.push(all);
        self.next.iter_mut().flatten().filter(|to| **to == BEYOND).for_each(|to| *to = number);
    }

    /// Mark the three classes that lead to a node where some rule is alive.
    fn mark_begins(&mut self) {
        for (first, &one) in self.next[1].iter().enumerate() {
            for (second, &two) in self.next[one as usize].iter().enumerate() {
                for (third, &three) in self.next[two as usize].iter().enumerate() {
                    let place = (first * NUM_CLASSES + second) * NUM_CLASSES + third;
                    self.begins[place / 64] |= u64::from(self.alive[three as usize] != 0) << (place % 64);
                }
            }
        }
    }

    /// Whether some rule may match from a place on, by its first three bytes.
    #[inline(always)]
    pub fn may_begin(&self, text: &[u8], at: usize) -> bool {
        let [first, second, third] = match text[at..].first_chunk::<3>() {
            Some(bytes) => bytes.map(|byte| CLASSES[byte as usize] as usize),
            None => [at, at + 1, at + 2].map(|at| text.get(at).map_or(END, |&byte| CLASSES[byte as usize] as usize)),
        };
        let place = (first * NUM_CLASSES + second) * NUM_CLASSES + third;
        self.begins[place / 64] >> (place % 64) & 1 == 1
    }

    fn node(&mut self, numbers: &mut HashMap<Vec<Live>, u16, FixedState>, set: Vec<Live>) -> u16 {
        let alive = set.iter().fold(0, |mask, &(rule, _)| mask | 1 << rule);
        *numbers.entry(set).or_insert_with(|| {
            self.next.push([DEAD; NUM_CLASSES]);
            self.alive.push(alive);
            (self.next.len() - 1) as u16
        })
    }

    /// The rules that can match from each place on.
    #[inline]
    pub fn candidates(&self, text: &[u8], places: &[usize; LANES]) -> [Mask; LANES] {
        let mut nodes = [1; LANES];
        let inside = places.iter().all(|place| place + DEPTH <= text.len());
        for offset in 0..DEPTH {
            for (node, place) in nodes.iter_mut().zip(places) {
                let class = match inside {
                    true => CLASSES[text[place + offset] as usize] as usize,
                    false => text.get(place + offset).map_or(END, |&byte| CLASSES[byte as usize] as usize),
                };
                *node = self.next[*node][class] as usize;
            }
        }
        nodes.map(|node| self.alive[node])
    }

    /// The rules that can match with so many bytes before the next digit.
    #[inline]
    pub fn with_digit_behind(&self, num_bytes: usize) -> Mask {
        self.without_digit[num_bytes.min(MAX_REACH)]
    }
}

/// The most bytes before the first digit of a match; None where a match needs none, or as many as there are.
fn reach(nfa: &NFA) -> Option<usize> {
    /// Longest ways from states; none where no digit need be read, `OPEN` while a way is looked for.
    const OPEN: usize = usize::MAX;
    fn longest(nfa: &NFA, state: StateID, known: &mut HashMap<StateID, usize, FixedState>) -> Option<usize> {
        match known.get(&state) {
            Some(&OPEN) => return None,
            Some(&length) => return Some(length),
            None => _ = known.insert(state, OPEN),
        }
        let behind = |from: u8, to: u8, next: StateID, known: &mut HashMap<_, _, _>| {
            if from.is_ascii_digit() && to.is_ascii_digit() {
                Some(0)
            } else {
                longest(nfa, next, known).map(|length| length + 1)
            }
        };
        let mut most = 0;
        match nfa.state(state) {
            State::Look { next, .. } | State::Capture { next, .. } => most = longest(nfa, *next, known)?,
            State::Union { alternates } => {
                for &next in alternates {
                    most = most.max(longest(nfa, next, known)?);
                }
            }
            State::BinaryUnion { alt1, alt2 } => {
                most = longest(nfa, *alt1, known)?.max(longest(nfa, *alt2, known)?);
            }
            State::ByteRange { trans } => most = behind(trans.start, trans.end, trans.next, known)?,
            State::Sparse(sparse) => {
                for trans in &sparse.transitions {
                    most = most.max(behind(trans.start, trans.end, trans.next, known)?);
                }
            }
            State::Dense(dense) => {
                for (byte, &next) in (0..=u8::MAX).zip(&dense.transitions).filter(|(_, next)| **next != StateID::ZERO) {
                    most = most.max(behind(byte, byte, next, known)?);
                }
            }
            State::Match { .. } => return None,
            State::Fail => {}
        }
        known.insert(state, most);
        Some(most)
    }
    longest(nfa, nfa.start_anchored(), &mut HashMap::default()).filter(|&most| most < MAX_REACH)
}

/// For each class, the states that a byte of it leads to.
fn followers(automata: &HashMap<u8, &NFA, FixedState>, set: &[Live]) -> Vec<Vec<Live>> {
    let mut targets = vec![Vec::new(); NUM_CLASSES];
    for &(rule, state) in set {
        if state == MATCHED {
            targets.iter_mut().for_each(|target| target.push((rule, MATCHED)));
            continue;
        }
        let Some(&nfa) = automata.get(&rule) else { continue };
        let mut follow = |from: u8, to: u8, next: StateID| {
            let mut states = Vec::new();
            close(rule, nfa, next, &mut states);
            let mut seen = 0u128;
            for byte in from..=to {
                let class = CLASSES[byte as usize];
                if seen >> class & 1 == 0 {
                    seen |= 1 << class;
                    targets[class as usize].extend_from_slice(&states);
                }
            }
        };
        match nfa.state(StateID::new_unchecked(state as usize)) {
            State::ByteRange { trans } => follow(trans.start, trans.end, trans.next),
            State::Sparse(sparse) => sparse.transitions.iter().for_each(|t| follow(t.start, t.end, t.next)),
            State::Dense(dense) => (0..=u8::MAX).zip(&dense.transitions).for_each(|(byte, &next)| {
                if next != StateID::ZERO {
                    follow(byte, byte, next);
                }
            }),
            _ => {}
        }
    }
    targets
}

/// The states with a byte to read, and matches, that `from` leads to without reading.
fn close(rule: u8, nfa: &NFA, from: StateID, to: &mut Vec<Live>) {
    let mut seen = vec![from];
    let mut at = 0;
    while let Some(&state) = seen.get(at) {
        at += 1;
        let mut visit = |next: StateID| {
            if !seen.contains(&next) {
                seen.push(next);
            }
        };
        match nfa.state(state) {
            State::Look { next, .. } | State::Capture { next, .. } => visit(*next),
            State::Union { alternates } => alternates.iter().for_each(|&next| visit(next)),
            State::BinaryUnion { alt1, alt2 } => [*alt1, *alt2].into_iter().for_each(visit),
            State::Match { .. } => to.push((rule, MATCHED)),
            State::Fail => {}
            _ => to.push((rule, state.as_u32())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nfa(pattern: &str) -> NFA {
        let syntax = regex_automata::util::syntax::Config::new().unicode(false).utf8(false);
        let config = regex_automata::nfa::thompson::Config::new().utf8(false);
        NFA::compiler().configure(config).syntax(syntax).build(pattern).unwrap()
    }

    #[test]
    fn reach_of_hand_worked_expressions() {
        let table = [
            (r"\d{2}", Some(0)),
            (r"in \d{4}", Some(3)),
            (r"(?i:in|since) (?:the )?\d", Some(10)),
            (r"in (?:\d|[a-f])x\d", Some(5)),
            (r"in ?[A-Z0-9]\d", Some(4)),
            (r"in", None),
            (r"in(?: \d)?", None),
            (r"in [a-z]+\d", None),
            (r"(?:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa){2}\d", None), // beyond what is distinguished
        ];
        for (pattern, expected) in table {
            assert_eq!(reach(&nfa(pattern)), expected, "{pattern}");
        }
    }

    #[test]
    fn a_filter_with_too_few_nodes_keeps_no_rule_out() {
        let automata = [r"in \d{4}", r"[A-Z]{2}\d", r"\d\d?/\d", r"[a-c]{3}x\d"].map(nfa);
        let rules: Vec<(u8, &NFA)> = (0..).zip(&automata).collect();
        let whole = Filter::new(&rules);
        let texts = ["in 2001", "AB3", "1/2", "12/3", "abcx1", "acbx7", "xxAB3", "in 20a", "zzzzzz", "ab", "1/"];
        for max_nodes in 1..whole.next.len() {
            let small = Filter::with_nodes(&rules, max_nodes);
            for text in texts {
                let [may, all] = [&small, &whole].map(|f| f.candidates(text.as_bytes(), &[0; LANES])[0]);
                assert_eq!(may & all, all, "{max_nodes} nodes: {text}");
                assert!(small.may_begin(text.as_bytes(), 0) || !whole.may_begin(text.as_bytes(), 0));
            }
        }
    }

    #[test]
    fn candidates_of_several_places_are_those_of_each() {
        let automata = [r"in \d{4}", r"[A-Z]{2}\d", r"\d\d?/\d"].map(nfa);
        let rules: Vec<(u8, &NFA)> = (0..).zip(&automata).collect();
        let filter = Filter::new(&rules);
        let text = b"in 2004 AB1 12/3 in AB 1/x";
        let expected = [(0, 1), (3, 0), (8, 2), (12, 4), (17, 0), (20, 0), (23, 0), (25, 0)];
        assert_eq!(filter.candidates(text, &expected.map(|(at, _)| at)), expected.map(|(_, mask)| mask));
        for (at, mask) in expected {
            assert!(mask == 0 || filter.may_begin(text, at));
        }
        assert!(!filter.may_begin(text, 5) && !filter.may_begin(b"i", 0));
        assert_eq!([0, 3, 4, 63].map(|length| filter.with_digit_behind(length)), [7, 1, 0, 0]);
    }
}
