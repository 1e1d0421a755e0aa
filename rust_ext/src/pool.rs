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

/// No machine has a use for more, and a number with a slip in it would exhaust it.
pub const MAX_THREADS: usize = 1024;
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// The number of threads meant by `num_threads`: 0 is `RAYON_NUM_THREADS`, or every core where that is no number.
pub fn resolve(num_threads: usize) -> Result<usize> {
    if num_threads > 0 {
        return bounded(num_threads, "num_threads");
    }
    let wanted = std::env::var(VARIABLE).ok().and_then(|value| value.trim().parse().ok()).unwrap_or(0);
    if wanted > 0 {
        return bounded(wanted, VARIABLE);
    }
    Ok(std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS))
}

fn bounded(num_threads: usize, name: &str) -> Result<usize> {
    if num_threads > MAX_THREADS {
        return Err(Error::Policy(format!("{name}: expected at most {MAX_THREADS} threads, got {num_threads}")));
    }
    Ok(num_threads)
}

/// The pool of this process with `num_threads` threads (0 as in [`resolve`]).
pub fn pool(num_threads: usize) -> Result<Arc<ThreadPool>> {
    static POOLS: OnceLock<Pools> = OnceLock::new();
    let size = resolve(num_threads)?;
    let mut pools =
        POOLS.get_or_init(Pools::default).lock().map_err(|_| Error::Policy("thread pool table is poisoned".into()))?;
    if let Some(found) = pools.get(&(std::process::id(), size)) {
        return Ok(found.clone());
    }
    let built = rayon::ThreadPoolBuilder::new()
        .num_threads(size)
        .thread_name(|i| format!("reticent-{i}"))
        .build()
        .map_err(|error| Error::Memory(format!("cannot start {size} threads: {error}")))?;
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
    // SAFETY: the C library locks its own state, so any thread may call it at any time; it returns free memory alone, which
    // no pointer of ours reaches.
    unsafe {
        libc::malloc_trim(0);
    }
}
