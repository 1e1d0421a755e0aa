use std::collections::{HashMap, HashSet};

use super::*;
use crate::storage::packing::tests::draws_below;

#[test]
fn ids_and_counts_match_a_map() {
    let mut text = String::new();
    let mut draw = draws_below(1);
    for _ in 0..50_000 {
        let number = draw(9_000);
        text += &"abcdefgh".repeat(number % 4)[..];
        text += &format!("é{number} ");
    }
    let bounds: Vec<(u32, u32)> = text
        .split_inclusive(' ')
        .scan(0, |at, word| {
            let start = *at;
            *at += word.len() as u32;
            Some((start, *at - 1))
        })
        .collect();
    let (first, second) = (Visit { number: 1, only: true }, Visit { number: 2, only: false });
    let mut dictionary = Dictionary::default();
    let (mut ids, mut distinct) = (Vec::new(), Vec::new());
    dictionary.intern(&text, &bounds, first, &mut ids);
    dictionary.settle();
    dictionary.intern_new(&text, &bounds, second, &mut distinct);
    dictionary.count(&text, &bounds[..100], Visit { number: 3, only: true });
    let mut other = Dictionary::default();
    let (some, mut others) = (&bounds[..10_000], Vec::new());
    other.intern("nowhere else", &[(0, 7)], second, &mut others);
    other.intern(&text, some, first, &mut others);
    dictionary.end_subset();
    let here = dictionary.absorb(other);
    let Counted { words, whole, subset } = dictionary.into_counted();
    let visit = |expected: &mut HashMap<_, _>, bounds: &[(u32, u32)], only: bool| {
        let mut seen = HashSet::new();
        for &(start, end) in bounds {
            let word = &text[start as usize..end as usize];
            let entry: &mut (u64, u32) = expected.entry(word).or_default();
            *entry = (entry.0 + 1, entry.1 + u32::from(only && seen.insert(word)));
        }
    };
    let mut before = HashMap::new();
    for (bounds, only) in [(&bounds[..], true), (&bounds, false), (&bounds[..100], true)] {
        visit(&mut before, bounds, only);
    }
    let mut expected = before.clone();
    expected.insert("nowhere", (1, 0));
    visit(&mut expected, some, true);
    for (&(start, end), &id) in bounds.iter().zip(&ids) {
        assert_eq!(words.get(id as usize), &text[start as usize..end as usize]);
    }
    for (&(start, end), &id) in some.iter().zip(&others[1..]) {
        assert_eq!(words.get(here[id as usize] as usize), &text[start as usize..end as usize]);
    }
    assert_eq!(words.len(), expected.len());
    assert_eq!(distinct.len() + 1, expected.len());
    let pair = |count: Count| (count.occurrences, count.support);
    assert!((0..words.len()).all(|id| expected[words.get(id)] == pair(whole.get(id))));
    assert!((0..words.len()).all(|id| before.get(words.get(id)).copied().unwrap_or_default() == pair(subset.get(id))));
}
