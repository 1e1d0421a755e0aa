//! Tables of an index from Python: record batches of words and n-grams -> an index that was seen to hold together.

use std::path::PathBuf;

use arrow_array::{Array, RecordBatch, cast::AsArray, types};
use arrow_schema::DataType;
use pyo3::prelude::*;

use super::{import_array, on_pool, to_py_err};
use crate::error::Error;
use crate::index::level_file::LevelFile;
use crate::index::level_table::LevelTable;
use crate::index::ngram_index::{Level, NgramIndex};
use crate::storage::spool::Spool;
use crate::text::surface::Surface;
use crate::text::texts::Texts;

/// What an index says of itself beside its tables.
pub struct About<'a> {
    pub max_n: usize,
    pub num_units: u64,
    pub num_documents: u64,
    pub min_support: u32,
    pub surface: &'a str,
}

/// An index with the words, supports and occurrences of a table, and levels that fit them.
pub fn index_of(
    py: Python<'_>,
    about: About<'_>,
    words: &Bound<'_, PyAny>,
    levels: Vec<LevelTable>,
) -> PyResult<NgramIndex> {
    let table = import_struct(words)?;
    let surfaces = table.column_by_name("word").ok_or_else(|| missing("word"))?;
    let surfaces = Texts::new(surfaces, "word").map_err(to_py_err)?;
    let surface = Surface::parse(about.surface).map_err(to_py_err)?;
    let surfaces = (0..surfaces.len()).map(|row| surfaces.get(row)).collect();
    let mut index = NgramIndex::new(about.max_n, surface, about.min_support, surfaces);
    (index.num_units, index.num_documents) = (about.num_units, about.num_documents);
    index.support = column::<types::UInt32Type>(&table, "support")?;
    index.occurrences = column::<types::UInt64Type>(&table, "occurrences")?;
    index.levels = levels;
    on_pool(py, 0, || index.check())?;
    Ok(index)
}

/// A level from its table, which is held in memory, or from the path of its file.
pub fn level_of(level: &Bound<'_, PyAny>) -> PyResult<LevelTable> {
    if let Ok(path) = level.extract::<PathBuf>() {
        return LevelFile::open(&path).map(LevelTable::from).map_err(to_py_err);
    }
    let level = import_struct(level)?;
    let left = column::<types::UInt32Type>(&level, "left")?;
    let right = column::<types::UInt32Type>(&level, "right")?;
    let keys = left.iter().zip(&right).map(|(&a, &b)| u64::from(a) << 32 | u64::from(b));
    let keys: Vec<u64> = keys.collect();
    let support = column::<types::UInt32Type>(&level, "support")?;
    let spools = Spool::from_slice(&keys).and_then(|keys| Ok((keys, Spool::from_slice(&support)?)));
    let (keys, support) = spools.map_err(to_py_err)?;
    Ok(Level { keys, support }.into())
}

fn import_struct(object: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let array = import_array(object)?;
    match array.data_type() {
        DataType::Struct(_) => Ok(RecordBatch::from(array.as_struct())),
        other => Err(to_py_err(Error::Artifact(format!("expected a record batch, got {other}")))),
    }
}

fn column<T: types::ArrowPrimitiveType>(batch: &RecordBatch, name: &str) -> PyResult<Vec<T::Native>> {
    let array = batch.column_by_name(name).ok_or_else(|| missing(name))?;
    let array = array.as_primitive_opt::<T>().ok_or_else(|| {
        to_py_err(Error::Artifact(format!("index tables: column {name} has type {}", array.data_type())))
    })?;
    if array.null_count() > 0 {
        return Err(to_py_err(Error::Artifact(format!("index tables: column {name} has nulls"))));
    }
    Ok(array.values().to_vec())
}

fn missing(name: &str) -> PyErr {
    to_py_err(Error::Artifact(format!("index tables: column {name} is missing")))
}
