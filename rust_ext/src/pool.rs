//! One thread pool a process.
//!
//! rayon's global pool does not survive `fork`: a child would wait for threads that are not there. So pools are kept by
//! process id and size, and a child makes its own. Nothing computed here depends on the number of threads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use rayon::ThreadPool;
use rayon::iter::MaxLen;
use rayon::prelude::*;

use crate::error::{Error, Result};

type Pools = Mutex<HashMap<(u32, usize), Arc<ThreadPool>>>;

/// The number of threads meant by `num_threads`: 0 is `RAYON_NUM_THREADS`, or every core.
pub fn resolve(num_threads: usize) -> usize {
    if num_threads > 0 {
        return num_threads;
    }
    std::env::var("RAYON_NUM_THREADS")
        .ok()
        .and_then(|value| value.parse().ok())
        .filter(|&n: &usize| n > 0)
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1)
}

/// The pool of this process with `num_threads` threads (0 as in [`resolve`]).
pub fn pool(num_threads: usize) -> Result<Arc<ThreadPool>> {
    static POOLS: OnceLock<Pools> = OnceLock::new();
    let size = resolve(num_threads);
    let mut pools =
        POOLS.get_or_init(Pools::default).lock().map_err(|_| Error::Policy("thread pool table is poisoned".into()))?;
    if let Some(found) = pools.get(&(std::process::id(), size)) {
        return Ok(found.clone());
    }
    let built = rayon::ThreadPoolBuilder::new()
        .num_threads(size)
        .thread_name(|i| format!("reticent-{i}"))
        .build()
        .map_err(|error| Error::Policy(format!("cannot start {size} threads: {error}")))?;
    let built = Arc::new(built);
    pools.insert((std::process::id(), size), built.clone());
    Ok(built)
}

/// Rows of a batch in pieces so short that no thread waits long for the last one of another.
pub fn rows(num: usize) -> MaxLen<rayon::range::Iter<usize>> {
    (0..num).into_par_iter().with_max_len(8)
}

/// Give memory that was freed back to the system, which the C library of Linux keeps for later.
pub fn release_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: a function of the C library without preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}
