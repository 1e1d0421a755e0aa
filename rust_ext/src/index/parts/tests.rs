use std::collections::BTreeMap;

use super::*;
use crate::index::build::IndexBuilder;
use crate::storage::packing::tests::draws_below;
use crate::text::texts::Texts;

/// Documents of units, drawn from few words so that n-grams of every length repeat. The same each time.
fn documents(seed: u64, num: usize) -> Vec<(u32, String)> {
    let mut draw = draws_below(seed);
    let words =
        ["fever", "Fever", "été", "e\u{301}te\u{301}", "cough", "no", "病", "at", "x1", "Dupont", "\u{10ffff}a"];
    let document = |draw: &mut dyn FnMut(usize) -> usize| {
        let len = draw(25);
        (0..len).map(|_| words[draw(11) * draw(11) / 10]).collect::<Vec<_>>().join(" ")
    };
    (0..num).map(|_| (draw(12) as u32, document(&mut draw))).collect()
}

/// A builder of these documents; `num_counted` units are counted, if that is given.
fn builder(documents: &[(u32, String)], max_n: usize, surface: Surface, num_counted: Option<u32>) -> IndexBuilder {
    let subset = num_counted.map_or(Vec::new(), |num| (0..12).map(|unit| unit < num).collect());
    let builder = IndexBuilder::new(max_n, surface, Vec::new(), subset, None).unwrap();
    for (unit, text) in documents {
        builder.add(&Texts::of(&[text.as_str()]), &[*unit]).unwrap();
    }
    builder
}

/// A table over all parts: supports (and occurrences) by key, and the id of each key.
#[derive(Default)]
struct Level {
    words: BTreeMap<String, (u32, u64, u64)>,
    pairs: BTreeMap<(u64, u64), (u32, u64)>,
}

/// What a `groupBy` over all parts does: count parts to the end. Ids are of the first part that has the key, from `first` on.
fn group(mut parts: Vec<Part>, first: u64) -> (Vec<Level>, Vec<Part>) {
    let (max_n, min_support) = (parts[0].max_n, parts[0].min_support);
    let mut levels = Vec::new();
    for n in 1..=max_n {
        let mut level = Level::default();
        for (number, part) in parts.iter().enumerate() {
            assert_eq!(part.n, n);
            for row in 0..part.num_rows() {
                let id = first + ((number as u64) << 32 | row as u64);
                if n == 1 {
                    let (word, support, occurrences) = part.word(row);
                    let found = level.words.entry(word.into()).or_insert((0, 0, id));
                    (found.0, found.1) = (found.0 + support, found.1 + occurrences);
                } else {
                    let (left, right, support) = part.pair(row);
                    level.pairs.entry((left, right)).or_insert((0, id)).0 += support;
                }
            }
        }
        parts = parts.iter().map(|part| Part::from_bytes(&part.to_bytes()).unwrap()).collect();
        for part in &mut parts {
            answer(part, &level, min_support).unwrap();
        }
        levels.push(level);
    }
    (levels, parts)
}

/// Answer a part with those of its n-grams that are kept in all, in another order than its own.
fn answer(part: &mut Part, level: &Level, min_support: u32) -> Result<()> {
    let rows = (0..part.num_rows()).rev();
    let answers: Vec<(usize, u32, u64)> = if part.n == 1 {
        let found = rows.map(|row| (part.word(row).0, level.words[part.word(row).0]));
        let kept: Vec<_> = found.filter(|(_, (support, ..))| *support >= min_support).collect();
        let rows = part.rows_of_words(kept.iter().map(|(word, _)| *word))?;
        rows.into_iter().zip(kept).map(|(row, (_, (support, _, id)))| (row, support, id)).collect()
    } else {
        let found = rows.map(|row| part.pair(row)).map(|(left, right, _)| ((left, right), level.pairs[&(left, right)]));
        let kept: Vec<_> = found.filter(|(_, (support, _))| *support >= min_support).collect();
        let rows = part.rows_of_pairs(kept.iter().map(|(pair, _)| *pair))?;
        rows.into_iter().zip(kept).map(|(row, (_, (support, id)))| (row, support, id)).collect()
    };
    part.answer(answers.into_iter())
}

fn cut_by_unit(documents: &[(u32, String)], num_parts: u32) -> Vec<Vec<(u32, String)>> {
    (0..num_parts)
        .map(|part| documents.iter().filter(|(unit, _)| unit % num_parts == part).cloned().collect())
        .collect()
}

#[test]
fn parts_make_the_index_of_all_documents() {
    for (seed, max_n, min_support, num_parts, surface) in [
        (1, 1, 2, 3, Surface::Exact),
        (2, 2, 2, 1, Surface::Exact),
        (3, 3, 1, 4, Surface::Casefold),
        (4, 3, 3, 5, Surface::Exact),
        (5, 8, 2, 3, Surface::Fold),
        (6, 8, 1, 13, Surface::Exact),
    ] {
        let documents = documents(seed, 150);
        // Far beyond 32 bits, as the ids of a large corpus are; and with units that are protected and not counted.
        for (first, num_counted) in [(0, None), (5_000_000_000, None), (0, Some(7))] {
            let whole = builder(&documents, max_n, surface, num_counted).finish(min_support).unwrap();
            let whole = whole.0.unwrap_or(whole.1);
            let cut = cut_by_unit(&documents, num_parts);
            let parts: Vec<Part> = cut
                .iter()
                .map(|some| builder(some, max_n, surface, num_counted).finish_part(min_support).unwrap())
                .collect();
            assert_eq!(parts.iter().map(|part| part.num_units).sum::<u64>(), whole.num_units);
            assert_eq!(parts.iter().map(|part| part.num_documents).sum::<u64>(), whole.num_documents);
            let (levels, parts) = group(parts, first);
            // N-grams by their words, as ids say nothing: each level names the one before.
            let used = levels[0].words.iter().filter(|(_, (support, ..))| *support > 0);
            assert!(used.clone().map(|(word, (support, occurrences, _))| (word.as_str(), *support, *occurrences)).eq(
                (0..whole.words.len()).map(|row| (whole.words.get(row), whole.support[row], whole.occurrences[row]))
            ));
            let mut texts: BTreeMap<u64, String> = used.map(|(word, (_, _, id))| (*id, word.clone())).collect();
            let mut of_whole: Vec<String> = whole.words.iter().map(String::from).collect();
            for n in 2..=max_n {
                let name = |left: &str, right: &str| format!("{left} {}", right.rsplit(' ').next().unwrap_or(right));
                let mut found = Vec::new();
                let mut kept = BTreeMap::new();
                for (&(left, right), &(support, id)) in &levels[n - 1].pairs {
                    if support > 0 {
                        found.push((name(&texts[&left], &texts[&right]), support));
                        kept.insert(id, found[found.len() - 1].0.clone());
                    }
                }
                let (keys, support) = whole.levels[n - 2].read(0, usize::MAX).unwrap();
                let text = |key: &u64| name(&of_whole[(key >> 32) as usize], &of_whole[*key as u32 as usize]);
                let mut expected: Vec<_> = keys.iter().map(text).zip(support.iter().copied()).collect();
                of_whole = expected.iter().filter(|row| row.1 >= min_support).map(|row| row.0.clone()).collect();
                found.sort();
                expected.sort();
                assert_eq!(found, expected, "{n}-grams");
                texts = kept;
                // Both sides of the threshold are there, or the test compares nothing.
                assert!(n > 2 || support.contains(&1));
            }
            for (part, documents) in parts.into_iter().zip(cut) {
                let part = Part::from_bytes(&part.to_bytes()).unwrap();
                let slice = part.index(whole.num_units, whole.num_documents).unwrap();
                slice.check().unwrap();
                protects_as(&slice, &whole, &documents);
            }
        }
    }
}

/// The slice says of its documents what the whole index says.
fn protects_as(slice: &NgramIndex, whole: &NgramIndex, documents: &[(u32, String)]) {
    use crate::index::protect::{Policy, Settings, protect};
    use crate::text::classes::InstructionSet;
    let texts: Vec<&str> = documents.iter().map(|document| document.1.as_str()).collect();
    let texts = Texts::of(&texts);
    let words = crate::text::words::segment(&texts, InstructionSet::detect()).unwrap();
    for k in [whole.min_support.max(2), 4] {
        for n in 1..=whole.max_n {
            for policy in [Policy::All, Policy::Last, Policy::Cover, Policy::Paper] {
                for max_word_support in [None, Some(6)] {
                    let settings = Settings { k, n, policy, max_word_support };
                    let of_slice = protect(slice, &texts, &words, settings).unwrap();
                    assert!(of_slice == protect(whole, &texts, &words, settings).unwrap());
                }
            }
        }
    }
}

#[test]
fn answers_that_are_not_those_of_the_part_are_refused() {
    let mut part = builder(&documents(9, 40), 2, Surface::Exact, Some(9)).finish_part(2).unwrap();
    for _ in 0..2 {
        let bytes = part.to_bytes();
        let again = || Part::from_bytes(&bytes).unwrap();
        assert!(again().answer(std::iter::empty()).is_err(), "what this part alone shows to be kept has no answer");
        assert!(again().answer([(0, 2, 7), (0, 2, 7)].into_iter()).is_err(), "twice");
        assert!(again().answer([(0, 1, 7)].into_iter()).is_err(), "not kept");
        assert!(part.rows_of_words(["none of these"].into_iter()).is_err());
        assert!(part.rows_of_pairs([(1 << 40, 1)].into_iter()).is_err());
        let mut level = Level::default();
        for row in 0..part.num_rows() {
            if part.n == 1 {
                level.words.insert(part.word(row).0.into(), (part.word(row).1, 0, row as u64));
            } else {
                let (left, right, support) = part.pair(row);
                level.pairs.insert((left, right), (support, row as u64));
            }
        }
        answer(&mut part, &level, 2).unwrap();
    }
    assert!(part.answer(std::iter::empty()).is_err(), "everything is answered");
}

#[test]
fn bytes_that_are_cut_short_or_changed_are_refused_or_answered_and_never_panic() {
    let mut part = builder(&documents(9, 40), 3, Surface::Exact, Some(9)).finish_part(2).unwrap();
    let mut num_refused = 0;
    for _ in 1..=4 {
        let bytes = part.to_bytes();
        for len in 0..bytes.len() {
            assert!(Part::from_bytes(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
        }
        let answers: Vec<_> = (0..part.num_rows()).map(|row| (row, 2, row as u64)).collect();
        for at in 0..bytes.len() {
            for value in [0, bytes[at].wrapping_add(1), bytes[at] ^ 0x80, 255] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let Ok(mut found) = Part::from_bytes(&changed) else {
                    num_refused += 1;
                    continue;
                };
                if found.num_rows() >= answers.len() {
                    _ = found.answer(answers.iter().copied());
                }
            }
        }
        if part.n <= part.max_n {
            part.answer(answers.into_iter()).unwrap();
        }
    }
    assert!(num_refused > 1000, "{num_refused}");
}
