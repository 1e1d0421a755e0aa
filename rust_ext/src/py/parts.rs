//! Parts of an index for Python: counted in tasks of a cluster, and exchanged as bytes.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{LargeStringArray, UInt32Array, UInt64Array};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::index::{PyIndexBuilder, PyNgramIndex, batch};
use super::{ArrowBatch, import_texts, to_py_err};
use crate::error::Error;
use crate::index::parts::{Key, Kind, Merged, Part, Row, merge, read_answers, write_runs};
use crate::pool::pool;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPart>()?;
    module.add_class::<PyMergedRuns>()?;
    module.add_function(wrap_pyfunction!(cut_strings, module)?)?;
    module.add_function(wrap_pyfunction!(merge_runs, module)?)?;
    module.add_function(wrap_pyfunction!(py_read_answers, module)?)
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

    fn with<T>(&self, work: impl FnOnce(&mut Part) -> crate::error::Result<T>) -> PyResult<T> {
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
        let threads = pool(num_threads).map_err(to_py_err)?;
        let part = py.detach(|| threads.install(|| builder.take()?.finish_part(min_support))).map_err(to_py_err)?;
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

    /// At most `num` bounds, evenly spread over the table at hand.
    fn sample<'py>(&self, py: Python<'py>, num: usize) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let keys = py.detach(|| self.with(|part| Ok(part.sample(num))))?;
        Ok(keys.iter().map(|key| PyBytes::new(py, key)).collect())
    }

    /// The table at hand as runs, one more than there are bounds.
    fn cut<'py>(&self, py: Python<'py>, bounds: Vec<Vec<u8>>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let runs = py.detach(|| self.with(|part| Ok(part.cut(&bounds))))?;
        Ok(runs.iter().map(|run| PyBytes::new(py, run)).collect())
    }

    /// Take the answers to the runs, and for each the number of the first row of its range; count the next level.
    fn answer(&self, py: Python<'_>, answers: Vec<Vec<u8>>, firsts: Vec<u64>) -> PyResult<()> {
        let threads = pool(self.num_threads).map_err(to_py_err)?;
        py.detach(|| {
            let answers: Vec<(u64, &[u8])> = firsts.into_iter().zip(answers.iter().map(Vec::as_slice)).collect();
            threads.install(|| self.with(|part| part.answer(&answers)))
        })
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

fn used_up() -> Error {
    Error::Policy("this part has become an index".into())
}

/// The runs of one range, merged.
#[pyclass(module = "reticent._rust", name = "MergedRuns", frozen)]
pub struct PyMergedRuns(Merged);

#[pymethods]
impl PyMergedRuns {
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.support.len()
    }

    /// Rows that have a number: all words, and the pairs of at least `min_support` units.
    #[getter]
    fn num_ranked(&self) -> u64 {
        self.0.num_ranked
    }

    /// Rows that several runs held.
    #[getter]
    fn num_shared(&self) -> u64 {
        self.0.num_shared
    }

    /// By run.
    #[getter]
    fn answers<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.0.answers.iter().map(|answer| PyBytes::new(py, answer)).collect()
    }

    /// Columns word, support, occurrences; or left, right (uint64), support.
    fn table(&self) -> PyResult<ArrowBatch> {
        let merged = &self.0;
        let support = Arc::new(UInt32Array::from(merged.support.clone()));
        if merged.left.is_empty() {
            return batch(vec![
                ("word", Arc::new(LargeStringArray::from_iter_values(merged.words.iter()))),
                ("support", support),
                ("occurrences", Arc::new(UInt64Array::from(merged.occurrences.clone()))),
            ]);
        }
        batch(vec![
            ("left", Arc::new(UInt64Array::from(merged.left.clone()))),
            ("right", Arc::new(UInt64Array::from(merged.right.clone()))),
            ("support", support),
        ])
    }
}

fn kind(words: bool) -> Kind {
    if words { Kind::Words } else { Kind::Pairs }
}

/// Merge the runs that parts sent to one range.
#[pyfunction]
#[pyo3(signature = (runs, *, words, min_support=1))]
fn merge_runs(py: Python<'_>, runs: Vec<Vec<u8>>, words: bool, min_support: u32) -> PyResult<PyMergedRuns> {
    let merged = py.detach(|| {
        let runs: Vec<&[u8]> = runs.iter().map(Vec::as_slice).collect();
        merge(kind(words), &runs, min_support)
    });
    Ok(PyMergedRuns(merged.map_err(to_py_err)?))
}

/// Distinct strings in byte order as runs, one more than there are bounds.
#[pyfunction]
fn cut_strings<'py>(
    py: Python<'py>,
    strings: &Bound<'py, PyAny>,
    support: PyReadonlyArray1<'py, u32>,
    occurrences: PyReadonlyArray1<'py, u64>,
    bounds: Vec<Vec<u8>>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let strings = import_texts(strings, "strings")?;
    let (support, occurrences) = (support.as_slice()?, occurrences.as_slice()?);
    if support.len() != strings.len() || occurrences.len() != strings.len() {
        return Err(to_py_err(Error::Policy("strings and their counts differ in length".into())));
    }
    if (1..strings.len()).any(|row| strings.get(row - 1) >= strings.get(row)) {
        return Err(to_py_err(Error::Policy("strings are not in byte order, or not distinct".into())));
    }
    let rows = (0..strings.len()).map(|row| Row {
        key: Key::Word(strings.get(row).as_bytes()),
        support: support[row],
        occurrences: occurrences[row],
    });
    let runs = write_runs(Kind::Words, rows, &bounds);
    Ok(runs.iter().map(|run| PyBytes::new(py, run)).collect())
}

/// Supports of the rows of runs, one after the other, and the numbers of those that have one.
#[pyfunction]
#[pyo3(name = "read_answers")]
#[allow(clippy::type_complexity)]
fn py_read_answers<'py>(
    py: Python<'py>,
    answers: Vec<Vec<u8>>,
    firsts: Vec<u64>,
) -> PyResult<(Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u64>>)> {
    let answers: Vec<(u64, &[u8])> = firsts.into_iter().zip(answers.iter().map(Vec::as_slice)).collect();
    let (support, ranks) = read_answers(&answers).map_err(to_py_err)?;
    Ok((PyArray1::from_vec(py, support), PyArray1::from_vec(py, ranks)))
}
