use super::model::{Room, Transitions, viterbi};
use super::{LANES, WIDTH};

/// A stream of numbers between -2 and 2.
fn numbers(mut state: u64) -> impl FnMut() -> f32 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    }
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
        let mut room = Room { scores, ..Room::default() };
        viterbi(&mut room, &transitions, used);
        assert_eq!(room.labels, best.1, "seed {seed}");
    }
}
