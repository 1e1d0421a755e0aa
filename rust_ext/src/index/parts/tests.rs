use super::*;
use crate::index::build::IndexBuilder;
use crate::text::texts::Texts;

/// Documents of units, drawn from few words so that n-grams of every length repeat. The same each time.
fn documents(seed: u64, num: usize) -> Vec<(u32, String)> {
    let mut state = seed;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let words =
        ["fever", "Fever", "été", "e\u{301}te\u{301}", "cough", "no", "病", "at", "x1", "Dupont", "\u{10ffff}a"];
    let document = |draw: &mut dyn FnMut(u64) -> u64| {
        let len = draw(25);
        (0..len).map(|_| words[(draw(11) * draw(11) / 10) as usize]).collect::<Vec<_>>().join(" ")
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

/// Count parts to the end through ranges; `first` is added to every number in all. Returns the tables by level, and the parts.
#[allow(clippy::type_complexity)]
fn exchange(mut parts: Vec<Part>, num_ranges: usize, first: u64) -> (Vec<Vec<Merged>>, Vec<Part>) {
    let (max_n, min_support) = (parts[0].max_n, parts[0].min_support);
    let mut levels = Vec::new();
    for n in 1..=max_n {
        let mut sample: Vec<Vec<u8>> = parts.iter().flat_map(|part| part.sample(5)).collect();
        sample.sort();
        let step = sample.len().div_ceil(num_ranges).max(1);
        let bounds: Vec<Vec<u8>> = sample.into_iter().skip(step).step_by(step).collect();
        let runs: Vec<Vec<Vec<u8>>> = parts.iter().map(|part| part.cut(&bounds)).collect();
        let kind = parts[0].kind();
        assert!(parts.iter().all(|part| part.n == n));
        let merged: Vec<Merged> = (0..=bounds.len())
            .map(|range| merge(kind, &runs.iter().map(|runs| &*runs[range]).collect::<Vec<_>>(), min_support).unwrap())
            .collect();
        let mut firsts = vec![first];
        merged.iter().for_each(|range| firsts.push(firsts[firsts.len() - 1] + range.num_ranked));
        parts = parts
            .into_iter()
            .enumerate()
            .map(|(number, part)| {
                let mut part = Part::from_bytes(&part.to_bytes()).unwrap();
                let answers = merged.iter().zip(&firsts).map(|(range, &first)| (first, &*range.answers[number]));
                part.answer(&answers.collect::<Vec<_>>()).unwrap();
                part
            })
            .collect();
        levels.push(merged);
    }
    (levels, parts)
}

fn cut_by_unit(documents: &[(u32, String)], num_parts: u32) -> Vec<Vec<(u32, String)>> {
    (0..num_parts)
        .map(|part| documents.iter().filter(|(unit, _)| unit % num_parts == part).cloned().collect())
        .collect()
}

#[test]
fn parts_make_the_index_of_all_documents() {
    for (seed, max_n, min_support, num_parts, num_ranges, surface) in [
        (1, 1, 2, 3, 2, Surface::Exact),
        (2, 2, 2, 1, 3, Surface::Exact),
        (3, 3, 1, 4, 1, Surface::Casefold),
        (4, 3, 3, 5, 4, Surface::Exact),
        (5, 8, 2, 3, 7, Surface::Fold),
        (6, 8, 1, 13, 3, Surface::Exact),
    ] {
        let documents = documents(seed, 150);
        // Beyond 32 bits, as the numbers of a large corpus are; and with units that are protected and not counted.
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
            let (levels, parts) = exchange(parts, num_ranges, first);
            let words: Vec<&str> = levels[0].iter().flat_map(|range| range.words.iter()).collect();
            assert!(words.iter().copied().eq(whole.words.iter()));
            let column = |n: usize, of: fn(&Merged) -> &[u32]| -> Vec<u32> {
                levels[n - 1].iter().flat_map(|range| of(range).to_vec()).collect()
            };
            assert_eq!(column(1, |range| &range.support), whole.support);
            let occurrences: Vec<u64> = levels[0].iter().flat_map(|range| range.occurrences.clone()).collect();
            assert_eq!(occurrences, whole.occurrences);
            for n in 2..=max_n {
                let (level_keys, level_support) = whole.levels[n - 2].read(0, usize::MAX).unwrap();
                let keys: Vec<(u64, u64)> = levels[n - 1]
                    .iter()
                    .flat_map(|range| range.left.iter().zip(&range.right).map(|(left, right)| (*left, *right)))
                    .collect();
                let expected = level_keys;
                let expected = expected.iter().map(|key| ((key >> 32) + first, (key & u64::from(u32::MAX)) + first));
                assert!(keys.iter().copied().eq(expected), "{n}-grams");
                assert_eq!(column(n, |range| &range.support), level_support);
                // Both sides of the threshold are there, or the test compares nothing.
                assert!(n > 2 || level_support.contains(&1));
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
fn bounds_cut_where_they_say() {
    let rows = |left: u64| Row { key: Key::Pair(left, 7), support: 1, occurrences: 0 };
    let bounds: Vec<Vec<u8>> = [2, 2, 5].map(|left: u64| Key::Pair(left, 7).bound()).to_vec();
    let runs = write_runs(Kind::Pairs, [1, 2, 3, 5, u64::MAX].map(rows).into_iter(), &bounds);
    for (run, expected) in runs.iter().zip([&[1][..], &[], &[2, 3], &[5, u64::MAX]]) {
        let mut reader = run::RunReader::new(Kind::Pairs, run);
        for &left in expected {
            assert!(reader.step().unwrap());
            assert_eq!(reader.key(), Key::Pair(left, 7));
        }
        assert!(!reader.step().unwrap());
    }
}

#[test]
fn bytes_that_are_cut_short_are_refused() {
    let mut parts = [builder(&documents(9, 40), 2, Surface::Exact, Some(9)).finish_part(2).unwrap()];
    for _ in 0..2 {
        let bytes = parts[0].to_bytes();
        for len in 0..bytes.len() {
            assert!(Part::from_bytes(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
        }
        let run = &parts[0].cut(&[])[0];
        let kind = parts[0].kind();
        let merged = merge(kind, &[run], 2).unwrap();
        assert!(merge(kind, &[&run[..run.len() - 1]], 2).is_err());
        if kind == Kind::Words {
            // Pairs are written as steps, so there are no bytes of pairs that descend.
            assert!(merge(kind, &[&[&run[..], &run[..]].concat()], 2).is_err(), "a run that is not sorted");
        }
        let answer = &merged.answers[0];
        let mut short = Part::from_bytes(&bytes).unwrap();
        assert!(short.answer(&[(0, &answer[..answer.len() - 1])]).is_err());
        assert!(Part::from_bytes(&bytes).unwrap().answer(&[]).is_err());
        parts[0].answer(&[(0, answer)]).unwrap();
    }
    assert!(parts[0].answer(&[]).is_err(), "everything is answered");
}

#[test]
fn bytes_that_were_changed_are_refused_or_answered_and_never_panic() {
    let mut part = builder(&documents(9, 40), 3, Surface::Exact, Some(9)).finish_part(2).unwrap();
    let mut num_refused = 0;
    for _ in 1..=4 {
        let bytes = part.to_bytes();
        let (kind, run) = (part.kind(), part.cut(&[]).concat());
        let answer = merge(kind, &[&run], 2).map(|merged| merged.answers[0].clone()).unwrap_or_default();
        for at in 0..bytes.len() {
            for value in [0, bytes[at].wrapping_add(1), bytes[at] ^ 0x80, 255] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let Ok(mut found) = Part::from_bytes(&changed) else {
                    num_refused += 1;
                    continue;
                };
                found.sample(5);
                found.cut(&[]);
                _ = found.answer(&[(0, &answer)]);
            }
        }
        if part.n <= part.max_n {
            part.answer(&[(0, &answer)]).unwrap();
        }
    }
    assert!(num_refused > 1000, "{num_refused}");
}
