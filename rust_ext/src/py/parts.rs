//! Parts of an index for Python: counted in tasks of a cluster, and answered with what a `groupBy` found.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Int64Array, StringArray};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::index::{PyIndexBuilder, PyNgramIndex, batch};
use super::{ArrowBatch, import_texts, on_pool, to_py_err};
use crate::error::{Error, Result};
use crate::index::parts::Part;
use crate::pool::pool;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPart>()
}

/// The documents of some units, counted level by level; see `rust_ext/src/index/parts.rs`.
#[pyclass(module = "reticent._rust", name = "Part", frozen)]
pub struct PyPart {
    part: Mutex<Option<Part>>,
    num_threads: usize,
}

impl PyPart {
    fn of(part: Part, num_threads: usize) -> Self {
        Self { part: Mutex::new(Some(part)), num_threads }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Part) -> Result<T>) -> PyResult<T> {
        let done = {
            let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
            part.as_mut().ok_or_else(used_up).and_then(work)
        };
        // An error becomes Python's under the interpreter lock: a thread that has that may wait for this part.
        done.map_err(to_py_err)
    }
}

#[pymethods]
impl PyPart {
    /// The documents that were added to a builder, which is used up; `min_support` is that of the index of all documents.
    #[staticmethod]
    #[pyo3(signature = (builder, *, min_support=2, num_threads=1))]
    fn of_documents(py: Python<'_>, builder: &PyIndexBuilder, min_support: u32, num_threads: usize) -> PyResult<Self> {
        let part = on_pool(py, num_threads, || builder.take()?.finish_part(min_support))?;
        Ok(Self::of(part, num_threads))
    }

    #[staticmethod]
    #[pyo3(signature = (data, *, num_threads=1))]
    fn from_bytes(py: Python<'_>, data: &[u8], num_threads: usize) -> PyResult<Self> {
        Ok(Self::of(py.detach(|| Part::from_bytes(data)).map_err(to_py_err)?, num_threads))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.with(|part| Ok(part.to_bytes())))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The length of the n-grams at hand.
    #[getter]
    fn n(&self) -> PyResult<usize> {
        self.with(|part| Ok(part.n))
    }

    #[getter]
    fn num_rows(&self) -> PyResult<usize> {
        self.with(|part| Ok(part.num_rows()))
    }

    #[getter]
    fn num_units(&self) -> PyResult<u64> {
        self.with(|part| Ok(part.num_units))
    }

    #[getter]
    fn num_documents(&self) -> PyResult<u64> {
        self.with(|part| Ok(part.num_documents))
    }

    /// The table at hand: columns word, support, occurrences; or left, right, support. Numbers are int64, as Spark has them.
    fn rows(&self) -> PyResult<ArrowBatch> {
        self.with(|part| {
            let (rows, is_words) = (0..part.num_rows(), part.n == 1);
            let numbers = |number: fn(&Part, usize) -> u64| {
                Arc::new(Int64Array::from_iter_values((0..part.num_rows()).map(|row| number(part, row) as i64)))
            };
            if is_words {
                return Ok(batch(vec![
                    ("word", Arc::new(StringArray::from_iter_values(rows.map(|row| part.word(row).0)))),
                    ("support", numbers(|part, row| part.word(row).1.into())),
                    ("occurrences", numbers(|part, row| part.word(row).2)),
                ]));
            }
            Ok(batch(vec![
                ("left", numbers(|part, row| part.pair(row).0)),
                ("right", numbers(|part, row| part.pair(row).1)),
                ("support", numbers(|part, row| part.pair(row).2.into())),
            ]))
        })?
    }

    /// Take support and id of words over all parts, and count the next level.
    fn answer_words(
        &self,
        py: Python<'_>,
        words: &Bound<'_, PyAny>,
        support: PyReadonlyArray1<'_, i64>,
        ids: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<()> {
        let words = import_texts(words, "words")?;
        let (support, ids) = (support.as_slice()?, ids.as_slice()?);
        self.answer(py, support, ids, words.len(), |part| {
            part.rows_of_words((0..words.len()).map(|row| words.get(row)))
        })
    }

    /// Take support and id of pairs of ids over all parts, and count the next level.
    fn answer_pairs(
        &self,
        py: Python<'_>,
        left: PyReadonlyArray1<'_, i64>,
        right: PyReadonlyArray1<'_, i64>,
        support: PyReadonlyArray1<'_, i64>,
        ids: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<()> {
        let (left, right) = (left.as_slice()?, right.as_slice()?);
        let pairs = left.iter().zip(right).map(|(&left, &right)| (left as u64, right as u64));
        self.answer(py, support.as_slice()?, ids.as_slice()?, left.len(), |part| part.rows_of_pairs(pairs))
    }

    /// The index of this part with the supports of all; the part is used up.
    fn index(&self, py: Python<'_>, num_units: u64, num_documents: u64) -> PyResult<PyNgramIndex> {
        py.detach(|| {
            let part = self.part.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(used_up)?;
            part.index(num_units, num_documents)
        })
        .map(|index| PyNgramIndex(Arc::new(index)))
        .map_err(to_py_err)
    }
}

impl PyPart {
    fn answer(
        &self,
        py: Python<'_>,
        support: &[i64],
        ids: &[i64],
        num_keys: usize,
        rows: impl FnOnce(&Part) -> Result<Vec<usize>> + Send,
    ) -> PyResult<()> {
        if support.len() != num_keys || ids.len() != num_keys {
            return Err(to_py_err(Error::Policy("keys, supports and ids differ in length".into())));
        }
        let threads = pool(self.num_threads).map_err(to_py_err)?;
        py.detach(|| {
            threads.install(|| {
                self.with(|part| {
                    let supports = support.iter().map(|&sum| u32::try_from(sum).map_err(|_| too_many()));
                    let supports = supports.collect::<Result<Vec<u32>>>()?;
                    let rows = rows(part)?;
                    part.answer(rows.into_iter().zip(supports).zip(ids).map(|((row, sum), &id)| (row, sum, id as u64)))
                })
            })
        })
    }
}

fn used_up() -> Error {
    Error::Policy("this part has become an index".into())
}

fn too_many() -> Error {
    Error::Corpus("more than 4 294 967 295 individuals use one n-gram".into())
}
