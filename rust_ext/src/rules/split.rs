//! Split: the group of an expression that ends with it, found by two automata.
//!
//! To say where a group begins costs many times what it costs to say that an expression matches. Most expressions are a
//! beginning and then the group. The beginning's own match is the first that the whole expression would try; where the
//! group goes on from its end, that is the match of the whole, and both are found without groups. Elsewhere the whole is asked.

use std::ops::Range;

use regex_automata::meta::{Cache, Regex};
use regex_automata::{Anchored, Input};

/// What stands before the group, and the group with the byte that shows it free.
pub struct Split {
    before: Regex,
    group: Regex,
}

/// What the two remember of their automata.
pub type Caches = (Cache, Cache);

impl Split {
    pub fn new(before: Regex, group: Regex) -> Self {
        Self { before, group }
    }

    pub fn create_caches(&self) -> Caches {
        (self.before.create_cache(), self.group.create_cache())
    }

    /// What the whole has that begins with `range`.
    #[inline]
    pub fn find(&self, text: &[u8], range: Range<usize>, (before, group): &mut Caches) -> Answer {
        let input = |from: usize| Input::new(text).range(from..range.end).anchored(Anchored::Yes);
        let Some(start) = self.before.search_half_with(before, &input(range.start)) else { return Answer::Nothing };
        match self.group.search_half_with(group, &input(start.offset())) {
            // At the end of the text it may be free of a last byte or have it.
            Some(end) if end.offset() < text.len() => Answer::Group(start.offset(), end.offset() - 1),
            _ => Answer::Unknown,
        }
    }
}

/// Bounds of the group, or that the whole does not match, or that only the whole can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Group(usize, usize),
    Nothing,
    Unknown,
}

/// What stands before the one group of an expression, and the group, where the expression ends with it.
pub fn parts(pattern: &str) -> Option<(&str, &str)> {
    let bytes = pattern.as_bytes();
    let (mut at, mut depth, mut group) = (0, 0, None);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'[' => {
                at += 1 + usize::from(bytes.get(at + 1) == Some(&b'^'));
                // The first may be a bracket itself.
                at += 1;
                while *bytes.get(at)? != b']' {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
            }
            b'(' => {
                let is_group = bytes.get(at + 1) != Some(&b'?');
                if is_group && (depth > 0 || group.is_some()) {
                    return None;
                }
                if is_group {
                    group = Some(at);
                } else if !pattern[at + 2..].trim_start_matches(|c: char| c.is_ascii_lowercase()).starts_with(':') {
                    return None;
                }
                depth += 1;
            }
            b')' => {
                depth -= 1;
                if depth == 0 && group.is_some() {
                    return (at + 1 == bytes.len()).then(|| pattern.split_at(group.unwrap_or(0)));
                }
            }
            b'|' if depth == 0 => return None,
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_hand_worked_expressions() {
        let table = [
            (r"a+(b|c)", Some(("a+", "(b|c)"))),
            (r"(?i:a|b) (\d)", Some(("(?i:a|b) ", r"(\d)"))),
            (r"[()\]]\((x)", Some((r"[()\]]\(", "(x)"))),
            (r"[^])](x(?:y)?)", Some(("[^])]", "(x(?:y)?)"))),
            ("(x)", Some(("", "(x)"))),
            ("(x)?", None),
            ("(x)y", None),
            ("a(x)|b(x)", None),
            ("(?:a(x))", None),
            ("(x)(y)", None),
            ("(?i)a(x)", None),
            ("ab", None),
        ];
        for (pattern, expected) in table {
            assert_eq!(parts(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn the_group_is_that_of_the_whole() {
        let free = "(?:[^a-z]|\\z)";
        let mut num_found = 0;
        // Beginnings that take more than they may, or less.
        for pattern in ["(?:ab|a)(b?c)", "(?:a|ab)(b?c)", "a*(ab)", "a*?(a*b)", "(?:a ?){0,2}(a(?: a)?)", "(?:x|)(a+)"]
        {
            let whole = Regex::new(&format!("(?:{pattern}){free}")).unwrap();
            let (before, group) = parts(pattern).unwrap();
            let split = Split::new(Regex::new(before).unwrap(), Regex::new(&format!("{group}{free}")).unwrap());
            let mut caches = split.create_caches();
            for number in 0..4_usize.pow(6) {
                let text: Vec<u8> = (0..6).map(|at| b"abc "[number / 4_usize.pow(at) % 4]).collect();
                let mut slots = [None; 4];
                let input = Input::new(&text).anchored(Anchored::Yes);
                whole.search_slots(&input, &mut slots);
                let expected = slots[2].zip(slots[3]).map(|(start, end)| (start.get(), end.get()));
                let found = match split.find(&text, 0..text.len(), &mut caches) {
                    Answer::Group(start, end) => Some((start, end)),
                    Answer::Nothing => None,
                    Answer::Unknown => continue,
                };
                assert_eq!(found, expected, "{pattern} in {text:?}");
                num_found += usize::from(found.is_some());
            }
        }
        assert!(num_found > 500);
    }
}
