//! The words that a model reads, for Python.

use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use rayon::prelude::*;

use super::tokenizer::survived;
use super::{import_texts, on_pool, to_py_err};
use crate::error::Error;
use crate::text::surface::Surface;
use crate::tokenize::read_words::ReadWords;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyReadWords>()
}

/// Words that identify, as a tokenizer spells them.
#[pyclass(module = "reticent._rust", name = "ReadWords", frozen)]
pub struct PyReadWords(ReadWords);

#[pymethods]
impl PyReadWords {
    #[new]
    #[pyo3(signature = (tokenizer_json, words, is_rare, *, surface="exact", num_threads=0))]
    fn new(
        py: Python<'_>,
        tokenizer_json: &str,
        words: &Bound<'_, PyAny>,
        is_rare: PyReadonlyArray1<'_, u8>,
        surface: &str,
        num_threads: usize,
    ) -> PyResult<Self> {
        let words = import_texts(words, "word")?;
        let is_rare = is_rare.as_slice()?;
        let surface = Surface::parse(surface).map_err(to_py_err)?;
        let made = on_pool(py, num_threads, || {
            let words: Vec<&str> = (0..words.len()).map(|row| words.get(row)).collect();
            survived(|| ReadWords::new(tokenizer_json, &words, is_rare, surface))
        })?;
        Ok(Self(made))
    }

    #[getter]
    fn num_rare(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn unknown(&self) -> Option<u32> {
        self.0.unknown()
    }

    fn classes<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u8>> {
        PyArray1::from_vec(py, self.0.classes())
    }

    /// How many words of the rows are read that identify; a word with a skipped token is none.
    fn count(
        &self,
        py: Python<'_>,
        input_ids: PyReadonlyArray2<'_, i64>,
        word_ids: PyReadonlyArray2<'_, i32>,
        skipped: PyReadonlyArray2<'_, bool>,
    ) -> PyResult<usize> {
        let width = input_ids.as_array().ncols();
        let (ids, words, skipped) = (input_ids.as_slice()?, word_ids.as_slice()?, skipped.as_slice()?);
        if ids.len() != words.len() || ids.len() != skipped.len() {
            return Err(to_py_err(Error::Corpus("ids, words and skipped cells differ in number".into())));
        }
        let rows = |row: usize| row * width..(row + 1) * width;
        let num_rows = ids.len().checked_div(width).unwrap_or(0);
        let count = |row| self.0.count(&ids[rows(row)], &words[rows(row)], &skipped[rows(row)]);
        Ok(py.detach(|| (0..num_rows).map(count).sum()))
    }

    /// 1 for each run of ids, `ids[offsets[i]:offsets[i + 1]]`, that spells a word that identifies.
    fn is_rare<'py>(
        &self,
        py: Python<'py>,
        ids: PyReadonlyArray1<'py, u32>,
        offsets: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let (ids, offsets) = (ids.as_slice()?, offsets.as_slice()?);
        let bounds: Option<Vec<&[u32]>> = offsets
            .windows(2)
            .map(|pair| ids.get(usize::try_from(pair[0]).ok()?..usize::try_from(pair[1]).ok()?))
            .collect();
        let Some(runs) = bounds else {
            return Err(to_py_err(Error::Corpus("the offsets of the ids do not fit them".into())));
        };
        let found = py.detach(|| runs.par_iter().map(|run| u8::from(self.0.is_rare(run))).collect());
        Ok(PyArray1::from_vec(py, found))
    }
}
