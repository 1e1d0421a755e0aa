use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::*;
use crate::error::Error;
use crate::index::design;
use crate::storage::packing::tests::draws_below;
use crate::storage::spool::tests::packing_store;

/// Documents of ids + 1 (0: no id), by unit, by share.
type Corpus = Vec<Vec<Vec<Vec<u32>>>>;

struct Given<'a>(&'a [Vec<Vec<u32>>]);

impl Share for Given<'_> {
    fn documents(self, mut visit: impl FnMut(u32, &[u32]) -> Result<()>) -> Result<()> {
        for (unit, documents) in self.0.iter().enumerate() {
            documents.iter().try_for_each(|ids| visit(unit as u32, ids))?;
        }
        Ok(())
    }
}

fn plan_of(weights: &[u32], names: Vec<u32>, max_partitions: usize) -> Plan {
    Plan::new(&Spool::from_slice(weights).unwrap(), names, max_partitions).unwrap()
}

/// The same each time; small ids are frequent.
fn corpus(num_shares: u64, num_ids: u64, num_documents: u64) -> Corpus {
    let mut draw = draws_below(num_ids);
    let unit = |number: u64, draw: &mut dyn FnMut(usize) -> usize| {
        // One unit of each share has a hundred times as many documents; some documents are empty or one id long.
        let num_documents = if number == 1 { 100 } else { draw(4) };
        let document = |draw: &mut dyn FnMut(usize) -> usize| {
            let (len, below) = (draw(30), draw(num_ids as usize + 1) + 1);
            (0..len).map(|_| draw(below) as u32).collect()
        };
        (0..num_documents).map(|_| document(draw)).collect()
    };
    (0..num_shares).map(|_| (0..num_documents).map(|number| unit(number, &mut draw)).collect()).collect()
}

/// Pair of ids -> its units and how often it stands there.
#[allow(clippy::type_complexity)]
fn oracle(corpus: &Corpus) -> BTreeMap<(u32, u32), (BTreeSet<(usize, usize)>, u32)> {
    let mut pairs: BTreeMap<_, (BTreeSet<_>, u32)> = BTreeMap::new();
    for (share, units) in corpus.iter().enumerate() {
        for (unit, documents) in units.iter().enumerate() {
            for pair in documents.iter().flat_map(|ids| ids.windows(2)).filter(|pair| pair[0] > 0 && pair[1] > 0) {
                let found = pairs.entry((pair[0] - 1, pair[1] - 1)).or_default();
                found.0.insert((share, unit));
                found.1 += 1;
            }
        }
    }
    pairs
}

fn weights(corpus: &Corpus, num_ids: u64) -> Vec<u32> {
    let mut weights = vec![0; num_ids as usize];
    for &id in corpus.iter().flatten().flatten().flatten().filter(|&&id| id > 0) {
        weights[id as usize - 1] += 1;
    }
    weights
}

fn check(corpus: &Corpus, plan: &Plan, names: &[u32], min_support: u32, store: &Arc<Store>) {
    let shares = || corpus.iter().map(|units| Given(units)).collect::<Vec<_>>();
    let settings = Settings { min_support, num_of_subset: corpus.len() / 2, next: true };
    let counted = count_level(shares(), plan, settings, &Room::unlimited(), store).unwrap();
    let pairs = oracle(corpus);
    let name = |id: u32| u64::from(names.get(id as usize).copied().unwrap_or(id));
    let keys: Vec<u64> = pairs.keys().map(|&(left, right)| name(left) << 32 | name(right)).collect();
    assert_eq!(counted.level.keys.to_vec().unwrap(), keys);
    let support: Vec<u32> = pairs.values().map(|found| found.0.len() as u32).collect();
    assert_eq!(counted.level.support.to_vec().unwrap(), support);
    let in_subset =
        |found: &BTreeSet<(usize, usize)>| found.iter().filter(|unit| unit.0 < settings.num_of_subset).count();
    let of_subset: Vec<u32> = pairs.values().map(|found| in_subset(&found.0) as u32).collect();
    assert_eq!(
        counted.support_of_subset.to_vec().unwrap(),
        if settings.num_of_subset > 0 { of_subset } else { Vec::new() }
    );
    let kept: Vec<_> = pairs.iter().filter(|pair| pair.1.0.len() as u32 >= min_support).collect();
    assert_eq!(counted.weights.to_vec().unwrap(), kept.iter().map(|pair| pair.1.1).collect::<Vec<_>>());
    let ranks: BTreeMap<_, u32> = (1..).zip(&kept).map(|(rank, pair)| (*pair.0, rank)).collect();
    assert_eq!(counted.streams.len(), corpus.len());
    for (stream, units) in counted.streams.iter().zip(corpus) {
        let mut expected = Vec::new();
        for ids in units.iter().flatten() {
            let rank = |pair: &[u32]| {
                let pair = (pair[0].checked_sub(1)?, pair[1].checked_sub(1)?);
                ranks.get(&pair).copied()
            };
            expected.extend(ids.windows(2).map(|pair| rank(pair).unwrap_or(0)));
            expected.extend(ids.last().map(|_| 0));
        }
        assert_eq!(stream.to_vec().unwrap(), expected);
    }
    let last = count_level(shares(), plan, Settings { next: false, ..settings }, &Room::unlimited(), store).unwrap();
    assert!(last.streams.is_empty() && last.weights.is_empty());
    assert_eq!(last.level.keys.to_vec().unwrap(), keys);
    assert_eq!(last.level.support.to_vec().unwrap(), support);
}

#[test]
fn pairs_match_a_map_in_memory_and_on_disk_with_narrow_and_wide_entries() {
    let folder = std::env::temp_dir();
    for (num_shares, num_ids, num_documents) in [(1, 1, 30), (3, 40, 60), (2, 3_000, 400), (4, 70_000, 100)] {
        let corpus = corpus(num_shares, num_ids, num_documents);
        let weights = weights(&corpus, num_ids);
        let names: Vec<u32> = (0..num_ids as u32).map(|id| 3 * id + 1).collect();
        for (narrow, min_support) in [(true, 1), (false, 2), (true, 3)] {
            let small = Store::limited(16 << 10, &folder).unwrap();
            let packing = (packing_store(), num_ids >= 3_000);
            for (store, spills) in [(Store::in_memory(), false), (small, true), packing] {
                let mut plan = plan_of(&weights, names.clone(), usize::MAX);
                assert!(plan.narrow);
                plan.narrow = narrow;
                check(&corpus, &plan, &names, min_support, &store);
                assert_eq!(store.spilled_bytes() > 0, spills);
            }
        }
    }
}

#[test]
fn pairs_match_a_map_for_any_partitions() {
    let corpus = corpus(3, 3_000, 200);
    let weights = weights(&corpus, 3_000);
    let store = Store::limited(64 << 10, &std::env::temp_dir()).unwrap();
    for left in 1..=5u32 {
        let mut plan = plan_of(&weights, Vec::new(), usize::MAX);
        // Each left id one of its own, then 11, 121, … together.
        let wide = 11u32.pow(left - 1);
        plan.first_left = (0..3_000).step_by(wide as usize).collect();
        plan.partitions = (0..3_000 >> plan.shift).map(|bin| ((bin << plan.shift) / wide) as u16).collect();
        assert_eq!(plan.shift, 0);
        plan.narrow = left % 2 == 0;
        check(&corpus, &plan, &[], 2, &store);
    }
    assert!(store.spilled_bytes() > 0);
}

#[test]
fn tables_that_have_no_room_are_refused() {
    let corpus = corpus(2, 3_000, 400);
    let plan = plan_of(&weights(&corpus, 3_000), Vec::new(), usize::MAX);
    let settings = Settings { min_support: 2, num_of_subset: 0, next: true };
    let count = |room: &Room| {
        let shares = corpus.iter().map(|units| Given(units)).collect::<Vec<_>>();
        count_level(shares, &plan, settings, room, &Store::in_memory())
    };
    let refusal = Error::Policy("too little".into());
    let small = Room::within(1 << 16, &refusal);
    assert!(count(&small).is_err_and(|error| error.to_string() == "too little"));
    for room in [Room::within(64 << 20, &refusal), Room::unlimited()] {
        assert!(count(&room).is_ok());
        assert_eq!(room.num_bytes_taken(), 0);
    }
}

/// What must hold of every plan: partitions are ranges of left ids in order, and keys fit their entries.
fn check_plan(plan: &Plan, num_ids: u64) {
    assert_eq!(plan.partitions.len() as u64, num_ids.div_ceil(1 << plan.shift));
    assert!(plan.num_partitions() <= 2 * MAX_PARTITIONS && plan.num_partitions() < NO_PAIR as usize);
    assert!(plan.partitions.is_sorted() && plan.first_left.is_sorted());
    for (number, &first) in plan.first_left.iter().enumerate() {
        let end = plan.first_left.get(number + 1).map_or(num_ids, |&next| u64::from(next));
        for left in [u64::from(first), end - 1] {
            assert_eq!(plan.partition_of(left as u32 + 1, 1) as usize, number);
        }
        let last = plan.key(number, end as u32, num_ids as u32);
        assert!(last < 1 << if plan.narrow { u32::KEY_BITS } else { u64::KEY_BITS });
    }
}

#[test]
fn plans_hold_for_any_weights() {
    let even = |num_ids: u64, weight: u32| vec![weight; num_ids as usize];
    let mut heavy = even(100_000, 1);
    (heavy[0], heavy[50_000], heavy[99_999]) = (u32::MAX, u32::MAX, u32::MAX);
    let table: Vec<(Vec<u32>, usize, bool)> = vec![
        (even(1, 1), usize::MAX, true),
        (even(2_000, 100_000), usize::MAX, true),
        (even(100_000, 0), usize::MAX, true),
        (even(3_000_000, 1), usize::MAX, false),
        (even(1_000_000, 2), usize::MAX, true),
        (even(1_000_000, 2), 16, false),
        (even(300_000, u32::MAX), 0, false),
        (heavy.clone(), usize::MAX, true),
        (heavy, 3, false),
    ];
    for (weights, max_partitions, narrow) in table {
        let plan = plan_of(&weights, Vec::new(), max_partitions);
        assert_eq!(plan.narrow, narrow);
        check_plan(&plan, weights.len() as u64);
        if max_partitions < MAX_PARTITIONS {
            assert!(plan.num_partitions() <= 2 * max_partitions.max(1));
        }
    }
    let nothing = plan_of(&[], Vec::new(), usize::MAX);
    assert_eq!(nothing.num_partitions(), 0);
    check(&vec![vec![vec![vec![0, 0], vec![]]]], &nothing, &[], 1, &Store::in_memory());
}

/// Phase 5 of the worked example, from the ids of the page, which a test of the builder holds to its own.
#[test]
fn phase_5_of_the_design_is_what_levels_are_counted_by() {
    let mut shares: Vec<Vec<Vec<Vec<u32>>>> = vec![Vec::new(), Vec::new()];
    let mut names: Vec<Vec<&str>> = vec![Vec::new(), Vec::new()];
    for line in design::block("ids-1").lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let share: usize = fields[1].parse().unwrap();
        let ids = fields[4..].iter().map(|id| id.parse().unwrap()).collect();
        // The letter of a document is its individual's.
        match names[share].last() {
            Some(before) if before[..1] == fields[3][..1] => shares[share].last_mut().unwrap().push(ids),
            _ => shares[share].push(vec![ids]),
        }
        names[share].push(fields[3]);
    }
    let store = Store::in_memory();
    let weights = [2, 4, 4, 4, 2];
    let mut plan = plan_of(&weights, vec![1, 2, 4, 5, 9], usize::MAX);
    assert_eq!((plan.num_ids, plan.num_partitions(), plan.shift, plan.narrow), (5, 1, 0, true));
    // So few pairs are one partition; the page shows two.
    (plan.partitions, plan.first_left) = (vec![0, 0, 0, 1, 1], vec![0, 3]);

    let mut made = String::new();
    let mut lists: Vec<Vec<Spool<u32>>> = vec![Vec::new(), Vec::new()];
    let mut orders = Vec::new();
    for (share, units) in shares.iter().enumerate() {
        let (entries, order) = scatter::<u32, _>(Given(units), &plan, true, &store).unwrap();
        for (number, entries) in entries.into_iter().enumerate() {
            let shown = entries.to_vec().unwrap().into_iter().map(|entry| {
                let (first, key) = entry.split();
                format!("{key}{}", if first > 0 { "*" } else { "" })
            });
            writeln!(made, "share {share}  partition {number}  {}", design::row(shown)).unwrap();
            lists[number].push(entries);
        }
        writeln!(made, "share {share}  order        {}", design::row(order.to_vec().unwrap())).unwrap();
        orders.push(order);
    }
    design::check("scatter", &made);

    made.clear();
    let settings = Settings { min_support: 2, num_of_subset: 0, next: true };
    let (mut results, mut first_rank) = (vec![Vec::new(), Vec::new()], Vec::new());
    let mut num_kept = 0;
    for (number, lists) in lists.into_iter().enumerate() {
        let room = Room::unlimited();
        let counted = Tables::new(&room).count_partition(lists, &plan, number, settings, &store).unwrap();
        writeln!(made, "partition {number}  first rank {num_kept}").unwrap();
        let mut weights = counted.weights.iter();
        for (key, &support) in counted.keys.iter().zip(&counted.support) {
            let weight = if support >= 2 { weights.next().unwrap().to_string() } else { "-".into() };
            writeln!(made, "  left {}  right {}  support {support}  weight {weight}", key >> 32, *key as u32).unwrap();
        }
        for (share, result) in counted.results.into_iter().enumerate() {
            writeln!(made, "  share {share}  ranks + 1: {}", design::row(result.to_vec().unwrap())).unwrap();
            results[share].push(result.into_reader());
        }
        first_rank.push(num_kept);
        num_kept += counted.weights.len() as u32;
    }
    design::check("count", &made);

    made.clear();
    for (share, (order, results)) in orders.into_iter().zip(results).enumerate() {
        let stream = gather(order, results, &first_rank, &store).unwrap().to_vec().unwrap();
        let mut at = 0;
        for (name, ids) in names[share].iter().zip(shares[share].iter().flatten()) {
            writeln!(made, "share {share}  document {name}  {}", design::row(&stream[at..at + ids.len()])).unwrap();
            at += ids.len();
        }
        assert_eq!(at, stream.len());
    }
    design::check("ids-2", &made);
}
