use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};

use super::features::HashKey;
use super::model::{Room, Transitions, each_row, viterbi};
use super::train::{Lessons, Settings, learn};
use super::{LANES, WIDTH};
use crate::storage::packing::tests::draws;
use crate::text::texts::Texts;

/// A stream of numbers between -2 and 2.
fn numbers(state: u64) -> impl FnMut() -> f32 {
    let mut draw = draws(state);
    move || (draw() >> 40) as f32 / (1u64 << 22) as f32 - 2.0
}

fn score(labels: &[u8], scores: &[[f32; WIDTH]], transitions: &Transitions) -> Option<f32> {
    let mut total = 0.0;
    for (at, &label) in labels.iter().enumerate() {
        let label = usize::from(label);
        total += scores[at][label];
        let before = at.checked_sub(1).map(|before| usize::from(labels[before]));
        total += match (before, label >= LANES) {
            (None, true) => return None,
            (None, false) => 0.0,
            (Some(before), false) => transitions.next[before % LANES * LANES + label],
            (Some(before), true) if before % LANES != label - LANES => return None,
            (Some(before), true) => transitions.stay[usize::from(before >= LANES)][label - LANES],
        };
    }
    Some(total)
}

#[test]
fn viterbi_finds_the_best_of_all_ways() {
    for seed in 1..60u64 {
        let mut next = numbers(seed * 7919);
        let (used, num) = (2 + seed as usize % 3, 1 + seed as usize % 5);
        let transitions =
            Transitions::from_flat(&std::iter::repeat_with(&mut next).take(LANES * (LANES + 2)).collect::<Vec<_>>());
        let scores: Vec<[f32; WIDTH]> = (0..num).map(|_| std::array::from_fn(|_| next())).collect();
        let all: Vec<u8> = (0..used).chain(LANES + 1..LANES + used).map(|label| label as u8).collect();
        let mut best = (f32::MIN, Vec::new());
        for number in 0..all.len().pow(num as u32) {
            let labels: Vec<u8> = (0..num).map(|at| all[number / all.len().pow(at as u32) % all.len()]).collect();
            if let Some(found) = score(&labels, &scores, &transitions)
                && found > best.0
            {
                best = (found, labels);
            }
        }
        let mut room = Room::default();
        room.scores = scores;
        viterbi(&mut room, &transitions, used);
        assert_eq!(room.labels, best.1, "seed {seed}");
    }
}

#[test]
fn words_of_a_long_text_have_labels_as_those_of_a_short_one() {
    let transitions = Transitions::zero();
    let mut block = [[0f32; WIDTH]; 4];
    block.iter_mut().for_each(|scores| scores[0] = 1000.0);
    block[1][1] = 1000.25;
    let mut room = Room::default();
    room.scores = block.repeat(1 << 16);
    viterbi(&mut room, &transitions, 2);
    assert!(room.labels.chunks(4).all(|labels| labels == [0, 1, 0, 0]));
}

#[test]
fn scores_are_sums_of_the_rows_that_are_seen() {
    let names = ["Zuvxo", "Abelt", "Mirnow", "Qest", "Ploko", "Wandry", "Ilvet", "Tsoru"];
    let written: Vec<String> =
        names.iter().map(|name| format!("Ho visto {name}, in corsia.\nNome: {name} (1)")).collect();
    let array: ArrayRef = Arc::new(StringArray::from(written.clone()));
    let texts = Texts::new(&array, "text").unwrap();
    let marks = |row: usize| {
        Ok(vec![(9, 9 + names[row].len(), 1), (written[row].len() - 4 - names[row].len(), written[row].len() - 4, 2)])
    };
    let hints = |row: usize| Ok(vec![(9, 9 + names[row].len(), 0)]);
    let lessons = Lessons {
        texts: &texts,
        individuals: &[0, 1, 2, 3, 4, 5, 6, 7],
        weights: &[1.0; 8],
        marks: &marks,
        hints: &hints,
        names: &["rules:NAME".to_owned()],
        common: None,
    };
    let settings = Settings { k: 2, epochs: 10, seed: 1, affixes: true, l2: 0.1, rate: 0.3 };
    let tagger = learn(HashKey::new(&[7; 16]), &lessons, &settings).unwrap();
    let mut reader = tagger.reader(None, lessons.names);
    let mut room = Room::default();
    for row in 0..texts.len() {
        reader.read(texts.get(row), &hints(row).unwrap());
        tagger.score(&reader, &mut room, 0.5);
        for (at, scores) in room.scores.iter().enumerate() {
            let mut expected = [0f32; WIDTH];
            expected[0] = -0.5;
            each_row(&reader, &tagger.table, at, &mut |row| {
                for lane in 0..WIDTH {
                    expected[lane] += tagger.weights[row as usize * WIDTH + lane];
                }
            });
            assert!(scores.iter().zip(&expected).all(|(one, other)| (one - other).abs() < 1e-4), "{row} {at}");
            assert!(scores.iter().any(|score| score.abs() > 0.5));
        }
        tagger.label(&reader, &mut room, 0.0);
        assert_eq!(room.labels, [0, 0, 1, 0, 0, 0, 2, 0]);
    }
}
