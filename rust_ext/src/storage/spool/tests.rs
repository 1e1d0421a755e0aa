use super::*;
use crate::storage::spill::Spill;

/// A store with pages so large that packing them saves blocks of the disk, few of them in memory.
pub fn packing_store() -> Arc<Store> {
    Arc::new(Store::new(32 << 10, 2, Some(Spill::new(&std::env::temp_dir(), 0).unwrap())))
}

/// Whether no page of a store is in use.
pub fn holds_nothing(store: &Store) -> bool {
    let spilled = store.spill.as_ref().map_or(0, |spill| spill.num_bytes() - spill.free_bytes());
    store.state().num_pages == 0 && spilled == 0
}

fn check(store: &Arc<Store>) {
    let numbers: Vec<u32> = (0..100_000).collect();
    let mut spool = Spool::new(store);
    for &number in &numbers[..1000] {
        spool.push(number).unwrap();
    }
    spool.extend(&numbers[1000..]).unwrap();
    assert_eq!(spool.len(), numbers.len());
    assert_eq!(spool.to_vec().unwrap(), numbers);
    let mut part = Vec::new();
    spool.read(4_000, 5_000, &mut part, true).unwrap();
    assert_eq!(part, &numbers[4_000..9_000]);
    let mut other = Spool::new(store);
    other.extend(&numbers).unwrap();
    let mut reader = other.into_reader();
    let (mut found, mut next) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        next.extend(reader.take().unwrap());
    }
    reader.read(usize::MAX, &mut found).unwrap();
    assert_eq!([next, found].concat(), numbers);
    assert_eq!(reader.take().unwrap(), None);
}

#[test]
fn spools_give_back_what_they_were_given() {
    check(&Store::in_memory());
    let small = Store::limited(32 << 10, &std::env::temp_dir()).unwrap();
    for store in [small, packing_store()] {
        check(&store);
        assert!(store.spilled_bytes() > 0);
        assert!(holds_nothing(&store));
        store.release_idle();
        check(&store);
    }
}

#[test]
fn a_store_that_may_hold_less_writes_what_it_holds() {
    let store = Store::limited(1 << 20, &std::env::temp_dir()).unwrap();
    let numbers: Vec<u32> = (0..100_000).collect();
    let mut spool = Spool::new(&store);
    spool.extend(&numbers).unwrap();
    assert_eq!(store.spilled_bytes(), 0);
    store.hold_at_most(20 << 10);
    spool.evict().unwrap();
    assert!(store.state().num_pages == 5 && store.spilled_bytes() > 0);
    spool.extend(&numbers).unwrap();
    assert_eq!(store.state().num_pages, 5);
    assert_eq!(spool.to_vec().unwrap(), [&numbers[..], &numbers].concat());
    drop(spool);
    assert!(holds_nothing(&store));
    Store::in_memory().hold_at_most(usize::MAX);
}

#[test]
fn idle_pages_are_released_around_those_in_use() {
    let store = Store::in_memory();
    let numbers: Vec<u64> = (0..1_000_000).collect();
    let mut spools: Vec<Spool<u64>> = (0..4).map(|_| Spool::new(&store)).collect();
    for part in numbers.chunks(1_000) {
        spools.iter_mut().for_each(|spool| spool.extend(part).unwrap());
    }
    spools.remove(2);
    spools.remove(0);
    store.release_idle();
    assert!(spools.iter().all(|spool| spool.to_vec().unwrap() == numbers));
    check(&store);
}

#[test]
fn a_read_past_the_end_is_an_error() {
    let spool = Spool::from_slice(&[1u32, 2, 3]).unwrap();
    let mut out = Vec::new();
    for (start, len) in [(0, 4), (3, 1), (2, usize::MAX), (1 << 20, 1)] {
        assert!(spool.read(start, len, &mut out, false).is_err());
    }
    assert!(out.is_empty());
    assert!(Spool::<u32>::from_slice(&[]).unwrap().read(0, 1, &mut out, false).is_err());
}
