//! Words and surfaces for Python, and what it asks of threads and memory.

use std::sync::Arc;

use arrow_array::LargeStringArray;
use numpy::{PyArray1, ToPyArray};
use pyo3::prelude::*;
use rayon::prelude::*;

use super::index::batch;
use super::{ArrowBatch, import_array, import_texts, on_pool, to_py_err};
use crate::pool::{pool, rows};
use crate::text::classes::InstructionSet;
use crate::text::languages::WordLists;
use crate::text::surface::Surface;
use crate::text::texts::Texts;
use crate::text::words::{Words, segment};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyWords>()?;
    module.add_function(wrap_pyfunction!(py_segment, module)?)?;
    module.add_function(wrap_pyfunction!(resolve_threads, module)?)?;
    module.add_function(wrap_pyfunction!(instruction_set, module)?)?;
    module.add_function(wrap_pyfunction!(release_memory, module)?)?;
    module.add_function(wrap_pyfunction!(explain_abort, module)?)?;
    module.add_function(wrap_pyfunction!(count_listed_words, module)?)?;
    module.add_function(wrap_pyfunction!(apply_surface, module)?)?;
    module.add_function(wrap_pyfunction!(seen_surfaces, module)?)
}

/// The words in the beginning of each text (-1: not told here), and how many of them are of each list, text by text.
#[pyfunction]
#[allow(clippy::type_complexity)]
#[pyo3(signature = (texts, lists, num_characters, *, num_threads=0))]
fn count_listed_words<'py>(
    py: Python<'py>,
    texts: &Bound<'py, PyAny>,
    lists: Vec<Vec<String>>,
    num_characters: usize,
    num_threads: usize,
) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u32>>)> {
    let texts = import_texts(texts, "text")?;
    let lists = WordLists::new(&lists).map_err(to_py_err)?;
    let pool = pool(num_threads).map_err(to_py_err)?;
    let counted: Vec<(i64, Vec<u32>)> = py.detach(|| {
        let count = |row| {
            let mut hits = vec![0; lists.num_lists];
            (lists.count(texts.get(row), num_characters, &mut hits).map_or(-1, i64::from), hits)
        };
        pool.install(|| rows(texts.len()).map(count).collect())
    });
    let (num_words, hits): (Vec<_>, Vec<_>) = counted.into_iter().unzip();
    Ok((PyArray1::from_vec(py, num_words), hits.concat().to_pyarray(py)))
}

/// Words of a batch of documents, and the texts they were cut from.
#[pyclass(module = "reticent._rust", name = "Words", frozen)]
pub struct PyWords(pub Arc<Words>, pub Texts);

impl PyWords {
    /// The texts given with these words: those they were cut from were checked then.
    pub fn import_texts(&self, object: &Bound<'_, PyAny>) -> PyResult<Texts> {
        let array = import_array(object)?;
        if self.1.is_same(&array) {
            return Ok(self.1.clone());
        }
        Texts::new(&array, "text").map_err(to_py_err)
    }
}

#[pymethods]
impl PyWords {
    #[getter]
    fn doc_offsets<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        self.0.doc_offsets.to_pyarray(py)
    }

    #[getter]
    fn starts<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        self.0.starts.to_pyarray(py)
    }

    #[getter]
    fn ends<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        self.0.ends.to_pyarray(py)
    }

    #[getter]
    fn num_words(&self) -> usize {
        self.0.starts.len()
    }

    #[getter]
    fn num_documents(&self) -> usize {
        self.0.num_documents()
    }

    /// Word bounds in characters instead of bytes.
    #[allow(clippy::type_complexity)]
    fn char_spans<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u32>>)> {
        let texts = self.import_texts(texts)?;
        self.0.check(texts.len()).map_err(to_py_err)?;
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for row in 0..texts.len() {
            let text = texts.get(row);
            let (mut bytes, mut chars) = (0usize, 0u32);
            let (from, to) = self.0.of(row);
            for (&start, &end) in from.iter().zip(to) {
                chars += text[bytes..start as usize].chars().count() as u32;
                starts.push(chars);
                chars += text[start as usize..end as usize].chars().count() as u32;
                ends.push(chars);
                bytes = end as usize;
            }
        }
        Ok((PyArray1::from_vec(py, starts), PyArray1::from_vec(py, ends)))
    }

    /// The words themselves, column `word`.
    fn surfaces(&self, texts: &Bound<'_, PyAny>) -> PyResult<ArrowBatch> {
        let texts = self.import_texts(texts)?;
        self.0.check(texts.len()).map_err(to_py_err)?;
        let words = (0..texts.len()).flat_map(|row| {
            let text = texts.get(row);
            let (from, to) = self.0.of(row);
            from.iter().zip(to).map(move |(&a, &b)| &text[a as usize..b as usize])
        });
        batch(vec![("word", Arc::new(LargeStringArray::from_iter_values(words)))])
    }
}

/// Segment documents into words.
#[pyfunction(name = "segment")]
#[pyo3(signature = (texts, *, num_threads=0, instruction_set=None))]
fn py_segment(
    py: Python<'_>,
    texts: &Bound<'_, PyAny>,
    num_threads: usize,
    instruction_set: Option<&str>,
) -> PyResult<PyWords> {
    let set = instruction_set.map_or_else(|| Ok(InstructionSet::detect()), InstructionSet::parse).map_err(to_py_err)?;
    let texts = import_texts(texts, "text")?;
    let words = on_pool(py, num_threads, || segment(&texts, set))?;
    Ok(PyWords(Arc::new(words), texts))
}

/// The number of threads meant by `num_threads`: 0 is `RAYON_NUM_THREADS`, or every core.
#[pyfunction]
fn resolve_threads(num_threads: usize) -> PyResult<usize> {
    crate::pool::resolve(num_threads).map_err(to_py_err)
}

/// Give memory that was freed back to the system.
#[pyfunction]
fn release_memory(py: Python<'_>) {
    py.detach(crate::pool::release_memory);
}

/// Say "out of memory" where a library aborts for want of it; a signal handler, so for a process of our own.
#[pyfunction]
fn explain_abort() {
    crate::allocator::explain_abort();
}

/// The instruction set that words are cut with on this machine.
#[pyfunction]
fn instruction_set() -> &'static str {
    InstructionSet::detect().name()
}

/// The surface of each string: what words are counted by (`exact`, `casefold`) or leaks matched on (`fold`).
#[pyfunction]
#[pyo3(signature = (words, *, surface))]
fn apply_surface(words: &Bound<'_, PyAny>, surface: &str) -> PyResult<ArrowBatch> {
    let words = import_texts(words, "word")?;
    let surface = Surface::parse(surface).map_err(to_py_err)?;
    let applied = (0..words.len()).map(|row| surface.apply(words.get(row)).into_owned());
    batch(vec![("word", Arc::new(LargeStringArray::from_iter_values(applied)))])
}

/// The surface of what is seen of each string, distinct and in byte order, column `word`: what blacklists hold.
#[pyfunction]
#[pyo3(signature = (words, *, surface))]
fn seen_surfaces(words: &Bound<'_, PyAny>, surface: &str) -> PyResult<ArrowBatch> {
    let words = import_texts(words, "word")?;
    let surface = Surface::parse(surface).map_err(to_py_err)?;
    let mut seen: Vec<_> = (0..words.len()).map(|row| surface.apply_to_seen(words.get(row))).collect();
    seen.sort_unstable();
    seen.dedup();
    batch(vec![("word", Arc::new(LargeStringArray::from_iter_values(seen)))])
}
