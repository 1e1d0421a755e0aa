use std::collections::BTreeMap;

use super::*;
use crate::index::dictionary::{Dictionary, Visit};
use crate::text::surface::Surface;

fn no_refusal(_: Size, _: Frequency) -> Error {
    unreachable!("there is room")
}

#[test]
fn what_has_no_room_is_refused_with_the_size_of_all() {
    let store = Store::limited(8 << 10, &std::env::temp_dir()).unwrap();
    let part = |first: usize, spools: bool| {
        let mut dictionary = Dictionary::default();
        for number in first..first + 1_000 {
            let word = format!("w{number:04}");
            dictionary.intern(&word, &[(0, 5)], Visit::default(), &mut Vec::new());
        }
        let sorted = Sorted::new(dictionary, Surface::Exact);
        assert_eq!(sorted.size(), Size { num: 1_000, num_bytes: 5_000 });
        let sorted = if spools { sorted.spool(false, &store).unwrap() } else { sorted };
        assert_eq!(sorted.size(), Size { num: 1_000, num_bytes: 5_000 });
        sorted
    };
    let parts = vec![part(0, false), part(500, true), part(3_000, true)];
    let mut asked = Vec::new();
    let make_room = |size: Size| {
        asked.push(size.num);
        Ok(size.num < 600)
    };
    let refusal = |size: Size, frequency: Frequency| Error::Policy(format!("{size:?} {frequency:?}"));
    let merged = Vocabulary::merge(parts, &store, make_room, refusal);
    let (size, frequency) = (Size { num: 2_500, num_bytes: 12_500 }, Frequency { num_repeated: 500, most: 2 });
    assert!(merged.is_err_and(|error| error.to_string() == format!("{size:?} {frequency:?}")));
    assert_eq!(asked, [257, 513, 769]);
}

#[test]
fn merged_dictionaries_match_a_map_in_memory_and_on_disk() {
    let long = "electroencephalography".repeat(2_000);
    let words = |d: usize| -> Vec<String> {
        let numbered = (0..3_000).map(|i| format!("{}w{}", "é".repeat(i % 5), i * (d + 1) % 2_500));
        numbered.chain([long.clone(), "e\u{301}te".into(), "éte".into(), "\0".into(), "a\0".into()]).collect()
    };
    let store = Store::limited(8 << 10, &std::env::temp_dir()).unwrap();
    for num_spooled in 0..=4 {
        let mut expected: BTreeMap<String, [Count; 2]> = BTreeMap::new();
        let (mut parts, mut named) = (vec![Sorted::new(Dictionary::default(), Surface::Exact)], vec![Vec::new()]);
        for d in 0..4 {
            let (mut dictionary, mut ids) = (Dictionary::default(), Vec::new());
            let mut names = BTreeMap::new();
            for word in words(d) {
                ids.clear();
                dictionary.intern(&word, &[(0, word.len() as u32)], Visit { number: 0, only: true }, &mut ids);
                let surface = Surface::Exact.apply(&word).into_owned();
                // All of a dictionary is one visit, which counts a spelling once.
                let is_new = names.insert(ids[0], surface.clone()).is_none();
                let entry = expected.entry(surface).or_default();
                // The first two dictionaries are the subset's.
                for count in &mut entry[..if d < 2 { 2 } else { 1 }] {
                    count.occurrences += 1;
                    count.support += u32::from(is_new);
                }
            }
            if d < 2 {
                dictionary.end_subset();
            }
            named.push(names.into_values().collect());
            let sorted = Sorted::new(dictionary, Surface::Exact);
            parts.push(if d < num_spooled { sorted.spool(d < 2, &store).unwrap() } else { sorted });
        }
        let merged = Vocabulary::merge(parts, &store, |_| Ok(true), no_refusal).unwrap();
        let Counted { words, whole, subset } = &merged.counted;
        assert!(words.iter().eq(expected.keys().map(String::as_str)));
        assert!((0..words.len()).map(|id| [whole.get(id), subset.get(id)]).eq(expected.values().copied()));
        assert_eq!(merged.merged.len(), named.len());
        for (part, names) in merged.merged.into_iter().zip(&named) {
            assert!(part.numbers().unwrap().iter().map(|&number| words.get(number as usize)).eq(names));
        }
        assert_eq!(store.spilled_bytes() > 0, num_spooled > 0);
    }
}

#[test]
fn nothing_merges_to_nothing() {
    let merged = Vocabulary::merge(Vec::new(), &Store::in_memory(), |_| Ok(true), no_refusal).unwrap();
    assert!(merged.counted.words.is_empty() && merged.merged.is_empty());
}
