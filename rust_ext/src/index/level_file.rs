//! Level file: the n-grams of a level where they stand on disk, read by row groups.
//!
//! Protection reads each level twice from its front (`NgramIndex::check`, `NgramIndex::pairs`), and nothing reads one at random but
//! a look-up by hand. So an index that is opened holds none of them: rare n-grams, which are most, take no memory.
//! The file stays open, so an index that is made again meanwhile changes nothing here.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::parquet::ParquetFile;

const COLUMNS: [&str; 3] = ["left", "right", "support"];

pub struct LevelFile {
    /// For messages.
    path: PathBuf,
    file: ParquetFile,
    /// Row group g holds the rows `firsts[g]..firsts[g + 1]`.
    firsts: Vec<usize>,
}

impl LevelFile {
    pub fn open(path: &Path) -> Result<Self> {
        let unreadable = || unreadable(path);
        let file = ParquetFile::open(path).ok_or_else(unreadable)?;
        let mut firsts = vec![0usize];
        for num_rows in file.num_rows() {
            let num_rows = usize::try_from(num_rows).map_err(|_| unreadable())?;
            firsts.push(firsts[firsts.len() - 1].checked_add(num_rows).ok_or_else(unreadable)?);
        }
        if file.num_rows_of_all() != firsts[firsts.len() - 1] as i64 {
            return Err(unreadable());
        }
        Ok(Self { path: path.to_owned(), file, firsts })
    }

    pub fn num_rows(&self) -> usize {
        self.firsts[self.firsts.len() - 1]
    }

    /// Call `visit(keys, supports)` for each row group from the one that holds row `start` on, until `len` rows are seen.
    pub fn for_each(
        &self,
        start: usize,
        len: usize,
        mut visit: impl FnMut(&[u64], &[u32]) -> Result<()>,
    ) -> Result<()> {
        let end = start.saturating_add(len).min(self.num_rows());
        let mut keys = Vec::new();
        for (group, bounds) in
            self.firsts.windows(2).enumerate().filter(|(_, b)| b[0] < end && b[1] > start && b[0] < b[1])
        {
            let columns = self.file.read_numbers(COLUMNS, group).ok_or_else(|| unreadable(&self.path))?;
            let [left, right, support] = &columns;
            keys.clear();
            keys.extend(left.iter().zip(right).map(|(&left, &right)| u64::from(left) << 32 | u64::from(right)));
            let own = start.saturating_sub(bounds[0])..end.min(bounds[1]) - bounds[0];
            visit(&keys[own.clone()], &support[own])?;
        }
        Ok(())
    }
}

fn unreadable(path: &Path) -> Error {
    Error::Artifact(format!("{}: not a readable table of an index", path.display()))
}
