//! Copies among documents, and verbatim matches with them, for Python.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use arrow_array::Int32Array;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use rayon::prelude::*;

use super::index::batch;
use super::{ArrowBatch, import_texts, on_pool, to_py_err};
use crate::duplicates::copies::{Collector, Documents};
use crate::duplicates::minhash::near_duplicates;
use crate::duplicates::passages::shared_passages;
use crate::error::Error;
use crate::pool::pool;
use crate::verbatim::{Filter, Scratch, Span, Stream, joined};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCopyCollector>()?;
    module.add_class::<PyCopies>()?;
    module.add_class::<PyVerbatimFilter>()?;
    module.add_class::<PyVerbatimStream>()
}

/// Collects documents; `finish` gives what can be asked of them.
#[pyclass(module = "reticent._rust", name = "CopyCollector", frozen)]
pub struct PyCopyCollector(RwLock<Option<Collector>>);

#[pymethods]
impl PyCopyCollector {
    #[new]
    fn new() -> Self {
        Self(RwLock::new(Some(Collector::default())))
    }

    /// Add documents numbered from `first` on; works in the calling thread, and many threads may call at once.
    fn add(&self, py: Python<'_>, first: usize, texts: &Bound<'_, PyAny>) -> PyResult<()> {
        let texts = import_texts(texts, "text")?;
        py.detach(|| {
            let collector = self.0.read().unwrap_or_else(PoisonError::into_inner);
            collector.as_ref().ok_or_else(used_up)?.add(first, &texts)
        })
        .map_err(to_py_err)
    }

    #[pyo3(signature = (*, num_threads=0))]
    fn finish(&self, py: Python<'_>, num_threads: usize) -> PyResult<PyCopies> {
        let threads = pool(num_threads).map_err(to_py_err)?;
        let found = py.detach(|| {
            let collector = self.0.write().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(used_up)?;
            let documents = collector.finish()?;
            let first_equal = threads.install(|| documents.first_equal());
            Ok((documents, first_equal))
        });
        let (documents, first_equal) = found.map_err(to_py_err)?;
        Ok(PyCopies { documents, first_equal, num_threads })
    }
}

fn used_up() -> Error {
    Error::Policy("this CopyCollector is finished; make a new one".into())
}

/// Documents among which copies are looked for.
#[pyclass(module = "reticent._rust", name = "Copies", frozen)]
pub struct PyCopies {
    documents: Documents,
    first_equal: Vec<u32>,
    num_threads: usize,
}

type TwoArrays<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u32>>);

#[pymethods]
impl PyCopies {
    /// Words of each document.
    #[getter]
    fn num_words<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        let num_words = (0..self.documents.len()).map(|document| self.documents.words_of(document).len() as u32);
        PyArray1::from_vec(py, num_words.collect())
    }

    /// For each document the first one with an equal text.
    #[getter]
    fn first_equal<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        PyArray1::from_slice(py, &self.first_equal)
    }

    /// For each document the first one of its cluster, and the kept one of its owner that it is a copy of.
    #[pyo3(signature = (owners, *, threshold=0.8, shingle=5))]
    fn near<'py>(
        &self,
        py: Python<'py>,
        owners: PyReadonlyArray1<'_, u32>,
        threshold: f64,
        shingle: usize,
    ) -> PyResult<TwoArrays<'py>> {
        let owners = owners.as_slice()?;
        let near = on_pool(py, self.num_threads, || {
            near_duplicates(&self.documents, &self.first_equal, owners, threshold, shingle)
        })?;
        Ok((PyArray1::from_vec(py, near.cluster), PyArray1::from_vec(py, near.copy_of)))
    }

    /// Words of each document in passages that another document of its unit has too, and one of another unit.
    #[pyo3(signature = (units, *, num_words=50))]
    fn passages<'py>(
        &self,
        py: Python<'py>,
        units: PyReadonlyArray1<'_, u32>,
        num_words: usize,
    ) -> PyResult<TwoArrays<'py>> {
        let units = units.as_slice()?;
        let shared = on_pool(py, self.num_threads, || shared_passages(&self.documents, units, num_words))?;
        Ok((PyArray1::from_vec(py, shared.within), PyArray1::from_vec(py, shared.across)))
    }
}

/// Every stretch of the training texts, by keyed hashes.
#[pyclass(module = "reticent._rust", name = "VerbatimFilter", frozen)]
pub struct PyVerbatimFilter {
    filter: Arc<Filter>,
    num_stretches: AtomicUsize,
}

#[pymethods]
impl PyVerbatimFilter {
    /// An empty filter for texts of `num_bytes` bytes together.
    #[new]
    #[pyo3(signature = (num_bytes, *, length=50, key=0, letters=false))]
    fn new(num_bytes: usize, length: usize, key: u64, letters: bool) -> PyResult<Self> {
        let filter = Arc::new(Filter::new(num_bytes, length, key, letters).map_err(to_py_err)?);
        Ok(Self { filter, num_stretches: AtomicUsize::new(0) })
    }

    /// A filter from its bits; `ArtifactError` when they are no whole blocks.
    #[staticmethod]
    #[pyo3(signature = (bits, *, length, key, letters=false))]
    fn from_bits(bits: PyReadonlyArray1<'_, u64>, length: usize, key: u64, letters: bool) -> PyResult<Self> {
        let bits = bits.as_slice()?.iter().map(|&word| AtomicU64::new(word)).collect();
        let filter = Arc::new(Filter::from_bits(bits, length, key, letters).map_err(to_py_err)?);
        Ok(Self { filter, num_stretches: AtomicUsize::new(0) })
    }

    #[getter]
    fn length(&self) -> usize {
        self.filter.length()
    }

    /// Whether letters and digits alone are compared as well.
    #[getter]
    fn letters(&self) -> bool {
        self.filter.letters()
    }

    #[getter]
    fn key(&self) -> u64 {
        self.filter.key()
    }

    #[getter]
    fn num_bytes(&self) -> usize {
        self.filter.num_bytes()
    }

    /// Stretches added, repeats included.
    #[getter]
    fn num_stretches(&self) -> usize {
        self.num_stretches.load(Ordering::Relaxed)
    }

    /// Share of unknown stretches that are taken for known ones, measured.
    #[getter]
    fn error(&self, py: Python<'_>) -> f64 {
        py.detach(|| self.filter.error())
    }

    fn bits<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        PyArray1::from_vec(py, self.filter.bits())
    }

    /// Add training texts; works in the calling thread, and many threads may call at once.
    fn add(&self, py: Python<'_>, texts: &Bound<'_, PyAny>) -> PyResult<()> {
        let texts = import_texts(texts, "text")?;
        let added: usize = py.detach(|| {
            let mut scratch = Scratch::default();
            (0..texts.len()).map(|row| self.filter.add(texts.get(row), &mut scratch)).sum()
        });
        self.num_stretches.fetch_add(added, Ordering::Relaxed);
        Ok(())
    }

    /// Columns document, start, end (characters) of the matches in texts.
    #[pyo3(signature = (texts, *, num_threads=0))]
    fn find(&self, py: Python<'_>, texts: &Bound<'_, PyAny>, num_threads: usize) -> PyResult<ArrowBatch> {
        let texts = import_texts(texts, "text")?;
        let found: Vec<(usize, Span)> = on_pool(py, num_threads, || {
            let find = |row: usize| {
                let (mut stream, mut spans) = (Stream::new(&self.filter), Vec::new());
                stream.push(texts.get(row), &self.filter, &mut spans);
                spans.extend(stream.open());
                joined(spans).into_iter().map(move |span| (row, span)).collect::<Vec<_>>()
            };
            Ok((0..texts.len()).into_par_iter().flat_map(find).collect())
        })?;
        let column = |value: fn(&(usize, Span)) -> usize| {
            Arc::new(Int32Array::from_iter_values(found.iter().map(|found| value(found) as i32)))
        };
        batch(vec![
            ("document", column(|found| found.0)),
            ("start", column(|found| found.1.0)),
            ("end", column(|found| found.1.1)),
        ])
    }

    /// A new text to read piece by piece.
    fn stream(&self) -> PyVerbatimStream {
        PyVerbatimStream { filter: self.filter.clone(), stream: Mutex::new(Stream::new(&self.filter)) }
    }
}

/// A text that is read piece by piece.
#[pyclass(module = "reticent._rust", name = "VerbatimStream", frozen)]
pub struct PyVerbatimStream {
    filter: Arc<Filter>,
    stream: Mutex<Stream>,
}

#[pymethods]
impl PyVerbatimStream {
    /// Read on; returns the matches (start, end) that no further text can lengthen.
    fn push(&self, text: &str) -> Vec<Span> {
        let mut closed = Vec::new();
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).push(text, &self.filter, &mut closed);
        closed
    }

    /// The match that further text may lengthen.
    #[getter]
    fn open(&self) -> Option<Span> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).open()
    }

    /// The first character that is in the open match, or may come to lie in one.
    #[getter]
    fn pending(&self) -> usize {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).pending()
    }
}
