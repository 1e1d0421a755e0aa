use std::fmt::Write;

use super::documents::numbers_of;
use super::worker::Document;
use super::*;
use crate::index::design::{DOCUMENTS, check, row, texts};
use crate::index::protect::{self, Policy, protect};
use crate::text::classes::InstructionSet;
use crate::text::words::segment;

/// A builder to which two threads have added the documents of the example, two each.
fn added() -> IndexBuilder {
    let builder = IndexBuilder::new(3, Surface::Exact, vec![2, 1, 1], Vec::new(), None).unwrap();
    let add = |documents| {
        let (texts, units) = texts(documents);
        builder.add(&texts, &units).unwrap();
    };
    add(&DOCUMENTS[..2]);
    // While the first worker is away, as another thread has it, the second call takes a new one.
    let first = builder.idle[1].lock().unwrap().pop().unwrap();
    add(&DOCUMENTS[2..]);
    builder.idle[1].lock().unwrap().insert(0, first);
    builder
}

/// The document of the example that has this unit and length, and begins its stretch of its worker.
fn name(unit: u32, run_of_first_worker: bool) -> &'static str {
    let documents = if run_of_first_worker { &DOCUMENTS[..2] } else { &DOCUMENTS[2..] };
    documents.iter().find(|document| document.1 == unit).unwrap().0
}

fn all(spool: &Spool<u32>) -> Vec<u32> {
    spool.to_vec().unwrap()
}

#[test]
fn phase_1_of_the_design_is_what_workers_hold() {
    let mut made = String::new();
    let workers = std::mem::take(&mut *added().idle[1].lock().unwrap());
    for (number, worker) in (1..).zip(workers) {
        writeln!(made, "worker {number}").unwrap();
        let Run { stream, documents, .. } = worker.run;
        for Document { unit, len, start, counted } in documents {
            let (name, start) = (name(unit, number == 1), start as usize);
            let ids = row(&all(&stream)[start..start + len as usize]);
            writeln!(made, "  document {name}  unit {unit}  start {start}  len {len}  counted {counted:5}  ids {ids}")
                .unwrap();
        }
        let Counted { words, whole, .. } = worker.dictionary.into_counted();
        writeln!(made, "  id  word    occurrences  support").unwrap();
        for (id, word) in words.iter().enumerate() {
            let count = whole.get(id);
            writeln!(made, "  {id:<3} {word:<7} {:<12} {}", count.occurrences, count.support).unwrap();
        }
    }
    check("phase-1", &made);
}

#[test]
fn phases_2_to_4_of_the_design_are_what_the_builder_makes() {
    let builder = added();
    let mut made = String::new();
    let United { runs, mut numbers, mut counted, .. } = builder.unite(2).unwrap();
    for (run, numbers) in numbers.iter().enumerate() {
        let worker = if runs[run].stream.len() == 10 { 1 } else { 2 };
        writeln!(made, "run {run} (worker {worker}): id -> number  {}", row(numbers)).unwrap();
    }
    check("phase-2", &made);

    made.clear();
    let first_worker: Vec<bool> = runs.iter().map(|run| run.stream.len() == 10).collect();
    let documents = Documents::new(runs);
    let (shares, num_of_subset) = documents.shares(2);
    let mut ids_of = Vec::new();
    for (number, share) in shares.iter().enumerate() {
        for document in *share {
            let name = name(document.unit, first_worker[document.run as usize]);
            let Placed { unit, run, start, len, counted } = document;
            writeln!(
                made,
                "share {number}  document {name}  unit {unit}  run {run}  start {start}  len {len}  counted {counted}"
            )
            .unwrap();
            ids_of.push((number, name, *unit, *run, *start, *len));
        }
    }
    check("phase-3", &made);

    made.clear();
    let before = counted.whole.support.clone();
    builder.count_rest(&documents, &shares, num_of_subset, 2, &numbers, &mut counted).unwrap();
    let Counted { words, whole, .. } = counted;
    let mut index = NgramIndex::new(3, Surface::Exact, 2, words);
    (index.support, index.occurrences) = (whole.support, whole.occurrences);
    let (weights, names) = keep_words(&index, &mut numbers);
    writeln!(made, "number  word    occurrences  support: so far  of the rest  in all  id").unwrap();
    for (number, word) in index.words.iter().enumerate() {
        let id = names.iter().position(|&name| name as usize == number).map_or("-".into(), |id| id.to_string());
        let support = (before[number], index.support[number] - before[number], index.support[number]);
        writeln!(
            made,
            "{number:<7} {word:<7} {:<12} {:<16} {:<12} {:<7} {id}",
            index.occurrences[number], support.0, support.1, support.2
        )
        .unwrap();
    }
    writeln!(made, "names    {}\nweights  {}", row(names), row(weights)).unwrap();
    check("phase-4", &made);

    made.clear();
    for (share, name, _, run, start, len) in ids_of {
        let numbers = numbers_of(&numbers, run as usize);
        let stream = all(&documents.streams[run as usize]);
        let ids = stream[start as usize..(start + u64::from(len)) as usize].iter().map(|&id| numbers[id as usize]);
        writeln!(made, "share {share}  document {name}  {}", row(ids)).unwrap();
    }
    check("ids-1", &made);
}

#[test]
fn the_index_and_the_protected_words_of_the_design_are_those_of_the_code() {
    let (subset, index) = added().finish(2).unwrap();
    assert!(subset.is_none());
    let mut made = String::new();
    let mut parts: Vec<String> = index.words.iter().map(str::to_owned).collect();
    for (n, level) in (2..).zip(&index.levels) {
        writeln!(made, "level {n}\n  left  right  support  rank  n-gram").unwrap();
        let mut kept = Vec::new();
        level
            .for_each(|keys, support| {
                for (&key, &support) in keys.iter().zip(support) {
                    let (left, right) = ((key >> 32) as usize, key as u32 as usize);
                    let last = parts[right].rsplit(' ').next().unwrap();
                    let ngram = format!("{} {last}", parts[left]);
                    let rank = if support >= 2 { kept.len().to_string() } else { "-".into() };
                    writeln!(made, "  {left:<5} {right:<6} {support:<8} {rank:<5} {ngram}").unwrap();
                    if support >= 2 {
                        kept.push(ngram);
                    }
                }
                Ok(())
            })
            .unwrap();
        parts = kept;
    }
    check("index", &made);

    made.clear();
    let (texts, _) = texts(&DOCUMENTS);
    let words = segment(&texts, InstructionSet::detect()).unwrap();
    for policy in ["all", "last", "cover", "paper"] {
        let settings = protect::Settings { k: 2, n: 3, policy: Policy::parse(policy).unwrap(), max_word_support: None };
        let (flags, _) = protect(&index, &texts, &words, settings).unwrap();
        for (row, (name, _, text)) in DOCUMENTS.iter().enumerate() {
            let shown = text.split(' ').zip(&flags[words.first(row)..]);
            let shown: Vec<String> =
                shown.map(|(word, &flag)| if flag > 0 { "_".repeat(word.len()) } else { word.into() }).collect();
            writeln!(made, "{policy:<6} {name}  {}", shown.join(" ")).unwrap();
        }
    }
    check("protected", &made);
}
