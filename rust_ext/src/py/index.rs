//! The index and the policies for Python.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use arrow_array::{Array, LargeStringArray, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::{Field, Schema};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::index_tables::{About, index_of, level_of};
use super::words::PyWords;
use super::{ArrowBatch, import_texts, on_pool, to_py_err};
use crate::error::Error;
use crate::index::build::{IndexBuilder, LEFT_OUT};
use crate::index::level_table::LevelTable;
use crate::index::limit::{BYTES_PER_DOCUMENT, LEAST_BYTES, LEAST_BYTES_PER_THREAD, Limit};
use crate::index::ngram_index::NgramIndex;
use crate::index::protect::{Policy, Settings, protect};
use crate::pool::{pool, resolve};
use crate::text::surface::Surface;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("LEFT_OUT", LEFT_OUT)?;
    module.add("LEAST_BYTES", LEAST_BYTES)?;
    module.add("LEAST_BYTES_PER_THREAD", LEAST_BYTES_PER_THREAD)?;
    module.add("BYTES_PER_DOCUMENT", BYTES_PER_DOCUMENT)?;
    module.add_class::<PyIndexBuilder>()?;
    module.add_class::<PyNgramIndex>()
}

/// Collects documents; `finish` counts.
#[pyclass(module = "reticent._rust", name = "IndexBuilder", frozen)]
pub struct PyIndexBuilder {
    builder: RwLock<Option<IndexBuilder>>,
    num_threads: usize,
}

#[pymethods]
impl PyIndexBuilder {
    /// `documents_per_unit[u]`: how many documents of unit `u` will be added; support is counted sooner where it is known.
    /// `subset[u]`: whether unit `u` belongs to the subset, whose index `finish_both` makes as well.
    /// With `memory_limit` (bytes beside what the process uses now) what does not fit goes to nameless files in `folder`. With
    /// `memory_used` too (what the process uses now) a limit that cannot be held is refused.
    #[new]
    #[pyo3(signature = (
        *, max_n=1, surface="exact", documents_per_unit=None, subset=None, num_threads=0, memory_limit=None,
        memory_used=None, folder=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        max_n: usize,
        surface: &str,
        documents_per_unit: Option<PyReadonlyArray1<'_, u32>>,
        subset: Option<PyReadonlyArray1<'_, bool>>,
        num_threads: usize,
        memory_limit: Option<usize>,
        memory_used: Option<usize>,
        folder: Option<PathBuf>,
    ) -> PyResult<Self> {
        let surface = Surface::parse(surface).map_err(to_py_err)?;
        let threads = resolve(num_threads).map_err(to_py_err)?;
        let limit = memory_limit.map(|num_bytes| Limit {
            num_bytes,
            folder: folder.unwrap_or_else(std::env::temp_dir),
            num_threads: threads,
            used: memory_used,
        });
        let documents_of = documents_per_unit.map(|array| array.as_slice().map(<[u32]>::to_vec)).transpose()?;
        let subset = subset.map(|array| array.as_slice().map(<[bool]>::to_vec)).transpose()?;
        let builder =
            IndexBuilder::new(max_n, surface, documents_of.unwrap_or_default(), subset.unwrap_or_default(), limit)
                .map_err(to_py_err)?;
        Ok(Self { builder: RwLock::new(Some(builder)), num_threads })
    }

    /// Add documents, but for those whose unit is `LEFT_OUT`; works in the calling thread, and many threads may call at once.
    /// Returns the number of words.
    fn add(&self, py: Python<'_>, texts: &Bound<'_, PyAny>, units: PyReadonlyArray1<'_, u32>) -> PyResult<usize> {
        let texts = import_texts(texts, "text")?;
        let units = units.as_slice()?;
        py.detach(|| {
            let builder = self.builder.read().unwrap_or_else(PoisonError::into_inner);
            builder.as_ref().ok_or_else(used_up)?.add(&texts, units)
        })
        .map_err(to_py_err)
    }

    #[pyo3(signature = (*, min_support=2))]
    fn finish(&self, py: Python<'_>, min_support: u32) -> PyResult<PyNgramIndex> {
        Ok(self.finish_both(py, min_support)?.1)
    }

    /// The index of the subset, if there is one, and that of all units.
    #[pyo3(signature = (*, min_support=2))]
    fn finish_both(&self, py: Python<'_>, min_support: u32) -> PyResult<(Option<PyNgramIndex>, PyNgramIndex)> {
        crate::index::ngram_index::check_min_support(min_support).map_err(to_py_err)?;
        let threads = pool(self.num_threads).map_err(to_py_err)?;
        let built = py.detach(|| {
            let builder = self.take()?;
            threads.install(|| builder.finish(min_support))
        });
        let (subset, whole) = built.map_err(to_py_err)?;
        let share = |index| PyNgramIndex(Arc::new(index));
        Ok((subset.map(share), share(whole)))
    }
}

impl PyIndexBuilder {
    /// The builder, which Python then has no more.
    pub fn take(&self) -> crate::error::Result<IndexBuilder> {
        self.builder.write().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(used_up)
    }
}

fn used_up() -> Error {
    Error::Policy("this IndexBuilder is finished; make a new one".into())
}

/// The smallest support that is not under `share` of the units. The product may be rounded past a whole number (0.07 of
/// 100 is 7.000000000000001), so the quotient decides.
fn support_limit(share: f64, num_units: u64) -> u32 {
    let product = (share * num_units as f64).ceil();
    let candidates = [product - 1.0, product];
    candidates.into_iter().find(|support| support / num_units as f64 >= share).unwrap_or(product + 1.0) as u32
}

/// Supports of words and n-grams.
#[pyclass(module = "reticent._rust", name = "NgramIndex", frozen)]
pub struct PyNgramIndex(pub Arc<NgramIndex>);

#[pymethods]
impl PyNgramIndex {
    #[getter]
    fn max_n(&self) -> usize {
        self.0.max_n
    }

    #[getter]
    fn num_units(&self) -> u64 {
        self.0.num_units
    }

    #[getter]
    fn num_documents(&self) -> u64 {
        self.0.num_documents
    }

    #[getter]
    fn num_words(&self) -> usize {
        self.0.words.len()
    }

    #[getter]
    fn num_occurrences(&self) -> u64 {
        self.0.num_occurrences()
    }

    #[getter]
    fn num_unspaced(&self) -> u64 {
        self.0.num_unspaced()
    }

    #[getter]
    fn min_support(&self) -> u32 {
        self.0.min_support
    }

    #[getter]
    fn spilled_bytes(&self) -> u64 {
        self.0.spilled_bytes
    }

    #[getter]
    fn surface(&self) -> &'static str {
        self.0.surface.name()
    }

    /// Columns word, support, occurrences, in byte order of the word: all, or `length` rows from `start` on.
    #[pyo3(signature = (start=0, length=None))]
    fn words(&self, start: usize, length: Option<usize>) -> PyResult<ArrowBatch> {
        let rows = rows(start, length, self.0.words.len());
        batch(vec![
            ("word", Arc::new(LargeStringArray::from_iter_values(rows.clone().map(|id| self.0.words.get(id))))),
            ("support", Arc::new(UInt32Array::from(self.0.support[rows.clone()].to_vec()))),
            ("occurrences", Arc::new(UInt64Array::from(self.0.occurrences[rows].to_vec()))),
        ])
    }

    /// Number of distinct n-grams, n >= 2.
    fn num_ngrams(&self, n: usize) -> PyResult<usize> {
        Ok(self.level_of(n)?.len())
    }

    /// Columns left, right, support of the n-grams, n >= 2, sorted by (left, right): all, or `length` rows from `start` on.
    #[pyo3(signature = (n, start=0, length=None))]
    fn level(&self, py: Python<'_>, n: usize, start: usize, length: Option<usize>) -> PyResult<ArrowBatch> {
        let level = self.level_of(n)?;
        let rows = rows(start, length, level.len());
        let (keys, support) = py.detach(|| level.read(rows.start, rows.len())).map_err(to_py_err)?;
        let left = UInt32Array::from_iter_values(keys.iter().map(|key| (key >> 32) as u32));
        let right = UInt32Array::from_iter_values(keys.iter().map(|&key| key as u32));
        batch(vec![
            ("left", Arc::new(left)),
            ("right", Arc::new(right)),
            ("support", Arc::new(UInt32Array::from(support))),
        ])
    }

    /// Memory of the tables that protection by this k and n makes of the n-grams.
    #[pyo3(signature = (*, k, n))]
    fn table_bytes(&self, py: Python<'_>, k: u32, n: usize) -> PyResult<u64> {
        let settings = self.settings(k, n, "all", None).map_err(to_py_err)?;
        settings.check(&self.0).map_err(to_py_err)?;
        py.detach(|| self.0.num_bytes_of_pairs(n, k)).map_err(to_py_err)
    }

    /// Give the memory of those tables back.
    fn forget_tables(&self, py: Python<'_>) {
        py.detach(|| self.0.forget_pairs());
    }

    /// An index from its tables; `ArtifactError` when they do not fit together. A level that is a path stays where it is on disk, and is read
    /// when it is asked for.
    #[staticmethod]
    #[pyo3(signature = (words, levels, *, max_n, num_units, num_documents, min_support, surface))]
    #[allow(clippy::too_many_arguments)]
    fn from_tables(
        py: Python<'_>,
        words: &Bound<'_, PyAny>,
        levels: Vec<Bound<'_, PyAny>>,
        max_n: usize,
        num_units: u64,
        num_documents: u64,
        min_support: u32,
        surface: &str,
    ) -> PyResult<Self> {
        let levels = levels.iter().map(level_of).collect::<PyResult<_>>()?;
        let about = About { max_n, num_units, num_documents, min_support, surface };
        Ok(Self(Arc::new(index_of(py, about, words, levels)?)))
    }

    /// The index of the union of two sets of documents that share no unit.
    fn merge(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        let merged = py.detach(|| self.0.merge(&other.0)).map_err(to_py_err)?;
        Ok(Self(Arc::new(merged)))
    }

    /// The index that the same documents give with a greater `min_support`.
    fn prune(&self, py: Python<'_>, min_support: u32) -> PyResult<Self> {
        let pruned = py.detach(|| self.0.prune(min_support)).map_err(to_py_err)?;
        Ok(Self(Arc::new(pruned)))
    }

    /// This index less the documents of `removed`, with those of `added`; and for each n how many n-grams are new, gone,
    /// identifying now and were not, shared now and were not.
    #[allow(clippy::type_complexity)]
    fn update(
        &self,
        py: Python<'_>,
        removed: &Self,
        added: &Self,
        k: u32,
    ) -> PyResult<(Self, Vec<(u64, u64, u64, u64)>)> {
        let (index, moved) = py.detach(|| self.0.update(&removed.0, &added.0, k)).map_err(to_py_err)?;
        let moved = moved.iter().map(|moved| (moved.new, moved.gone, moved.to_identifying, moved.to_shared));
        Ok((Self(Arc::new(index)), moved.collect()))
    }

    /// Flags (2 = INDIRECT) and starts of minimal identifying n-grams, one byte a word each.
    #[pyo3(signature = (texts, words, *, k, n, policy="all", max_document_frequency=None, num_threads=0))]
    #[allow(clippy::too_many_arguments, clippy::type_complexity)]
    fn protect<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        words: &PyWords,
        k: u32,
        n: usize,
        policy: &str,
        max_document_frequency: Option<f64>,
        num_threads: usize,
    ) -> PyResult<(Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<u8>>)> {
        let texts = words.import_texts(texts)?;
        let settings = self.settings(k, n, policy, max_document_frequency).map_err(to_py_err)?;
        let (flags, starts) = on_pool(py, num_threads, || protect(&self.0, &texts, &words.0, settings))?;
        Ok((PyArray1::from_vec(py, flags), PyArray1::from_vec(py, starts)))
    }

    /// The row of each word of the texts among this index's words; all bits set for a word that it does not hold.
    #[pyo3(signature = (texts, words, *, num_threads=0))]
    fn number_words<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        words: &PyWords,
        num_threads: usize,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let texts = words.import_texts(texts)?;
        let numbers = on_pool(py, num_threads, || self.0.number_words(&texts, &words.0))?;
        Ok(PyArray1::from_vec(py, numbers))
    }
}

/// `length` rows from `start` on, as far as there are.
fn rows(start: usize, length: Option<usize>, num_rows: usize) -> std::ops::Range<usize> {
    let start = start.min(num_rows);
    start..start + length.unwrap_or(num_rows).min(num_rows - start)
}

impl PyNgramIndex {
    pub fn settings(
        &self,
        k: u32,
        n: usize,
        policy: &str,
        max_document_frequency: Option<f64>,
    ) -> crate::error::Result<Settings> {
        Ok(Settings {
            k,
            n,
            policy: Policy::parse(policy)?,
            max_word_support: max_document_frequency.map(|share| support_limit(share, self.0.num_units)),
        })
    }

    fn level_of(&self, n: usize) -> PyResult<&LevelTable> {
        if n < 2 || n > self.0.max_n {
            let message = format!("level: expected 2 to {}, got {n}", self.0.max_n);
            return Err(to_py_err(Error::Policy(message)));
        }
        Ok(&self.0.levels[n - 2])
    }
}

/// A batch of named columns.
pub fn batch(columns: Vec<(&str, Arc<dyn Array>)>) -> PyResult<ArrowBatch> {
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), false)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map(ArrowBatch)
        .map_err(|error| to_py_err(Error::Artifact(error.to_string())))
}
