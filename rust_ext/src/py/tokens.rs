//! Spans, blacklists and tokens for Python.

use std::sync::Arc;

use arrow_array::LargeStringArray;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::{ArrowBatch, import_texts, on_pool, to_py_err};
use super::{index::PyNgramIndex, index::batch, store::PyPackedTokens, tokenizer::survived, words::PyWords};
use crate::detect::blacklist::Blacklist;
use crate::error::Error;
use crate::pool::resolve;
use crate::text::spans::replace_words;
use crate::text::surface::Surface;
use crate::tokenize::tokens::TokenEncoder;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyBlacklist>()?;
    module.add_class::<PyTokenEncoder>()?;
    module.add_class::<PyTokens>()?;
    module.add_function(wrap_pyfunction!(py_replace_words, module)?)
}

/// Texts with each masked word replaced, column `text`, and where each word begins in its own.
#[pyfunction(name = "replace_words")]
#[pyo3(signature = (texts, words, mask, replacement="X", *, gaps=None, num_threads=0))]
fn py_replace_words<'py>(
    py: Python<'py>,
    texts: &Bound<'py, PyAny>,
    words: &PyWords,
    mask: PyReadonlyArray1<'py, u8>,
    replacement: &str,
    gaps: Option<&PyWords>,
    num_threads: usize,
) -> PyResult<(ArrowBatch, Bound<'py, PyArray1<i64>>)> {
    let texts = words.import_texts(texts)?;
    let (mask, gaps) = (mask.as_slice()?, gaps.map(|gaps| &*gaps.0));
    let (replaced, starts) = on_pool(py, num_threads, || replace_words(&texts, &words.0, mask, gaps, replacement))?;
    let texts = batch(vec![("text", Arc::new(LargeStringArray::from_iter_values(replaced)))])?;
    Ok((texts, PyArray1::from_vec(py, starts)))
}

/// Surfaces protected beyond the span that showed them.
#[pyclass(module = "reticent._rust", name = "Blacklist")]
pub struct PyBlacklist(Blacklist);

#[pymethods]
impl PyBlacklist {
    #[new]
    #[pyo3(signature = (*, surface="exact", index=None))]
    fn new(surface: &str, index: Option<&PyNgramIndex>) -> PyResult<Self> {
        Ok(Self(Blacklist::new(Surface::parse(surface).map_err(to_py_err)?, index.map(|index| index.0.clone()))))
    }

    #[getter]
    fn num_surfaces(&self) -> usize {
        self.0.len()
    }

    /// Add the masked words, for the whole corpus (`everywhere`) or for the unit of their document.
    #[pyo3(signature = (texts, words, mask, units, *, everywhere))]
    fn add(
        &mut self,
        texts: &Bound<'_, PyAny>,
        words: &PyWords,
        mask: PyReadonlyArray1<'_, u8>,
        units: PyReadonlyArray1<'_, u32>,
        everywhere: bool,
    ) -> PyResult<()> {
        let texts = words.import_texts(texts)?;
        let units = units.as_slice()?;
        check_units(units, texts.len())?;
        self.0.add(&texts, &words.0, mask.as_slice()?, units, everywhere).map_err(to_py_err)
    }

    /// Every surface on the list, column `word`, in byte order, and whether it is protected wherever it stands.
    fn surfaces<'py>(&self, py: Python<'py>) -> PyResult<(ArrowBatch, Bound<'py, PyArray1<bool>>)> {
        let surfaces = self.0.surfaces();
        let words = LargeStringArray::from_iter_values(surfaces.iter().map(|surface| surface.0));
        let everywhere = PyArray1::from_iter(py, surfaces.iter().map(|surface| surface.1));
        Ok((batch(vec![("word", Arc::new(words))])?, everywhere))
    }

    /// Protect surfaces, as `surfaces` gives them, wherever they stand.
    fn add_surfaces(&mut self, surfaces: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.add_surfaces(&import_texts(surfaces, "word")?);
        Ok(())
    }

    /// 1 for each word on the list.
    #[pyo3(signature = (texts, words, units, *, num_threads=0))]
    fn r#match<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        words: &PyWords,
        units: PyReadonlyArray1<'py, u32>,
        num_threads: usize,
    ) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let texts = words.import_texts(texts)?;
        let units = units.as_slice()?;
        check_units(units, texts.len())?;
        let mask = on_pool(py, num_threads, || self.0.find(&texts, &words.0, units))?;
        Ok(PyArray1::from_vec(py, mask))
    }
}

fn check_units(units: &[u32], num_documents: usize) -> PyResult<()> {
    if units.len() != num_documents {
        let message = format!("{} units were given for {num_documents} documents", units.len());
        return Err(to_py_err(Error::Corpus(message)));
    }
    Ok(())
}

/// A tokenizer whose tokens know their words.
#[pyclass(module = "reticent._rust", name = "TokenEncoder", frozen)]
pub struct PyTokenEncoder {
    encoder: TokenEncoder,
    num_threads: usize,
}

#[pymethods]
impl PyTokenEncoder {
    #[new]
    #[pyo3(signature = (tokenizer_json, *, num_threads=0))]
    fn new(tokenizer_json: &str, num_threads: usize) -> PyResult<Self> {
        let threads = resolve(num_threads).map_err(to_py_err)?;
        let made = survived(|| TokenEncoder::new(tokenizer_json, threads));
        let encoder = made.map_err(to_py_err)?;
        Ok(Self { encoder, num_threads })
    }

    #[getter]
    fn vocab_size(&self) -> usize {
        self.encoder.vocab_size()
    }

    /// "bert" or "bytelevel" where each distinct pretoken is tokenised once, "library" where each document is.
    #[getter]
    fn path(&self) -> &'static str {
        self.encoder.path()
    }

    #[pyo3(signature = (texts, words, word_flags, ngram_starts, *, gaps=None))]
    fn encode(
        &self,
        py: Python<'_>,
        texts: &Bound<'_, PyAny>,
        words: &PyWords,
        word_flags: PyReadonlyArray1<'_, u8>,
        ngram_starts: PyReadonlyArray1<'_, u8>,
        gaps: Option<&PyWords>,
    ) -> PyResult<PyTokens> {
        let texts = words.import_texts(texts)?;
        let (word_flags, starts) = (word_flags.as_slice()?, ngram_starts.as_slice()?);
        let gaps = gaps.map(|gaps| &*gaps.0);
        let tokens = on_pool(py, self.num_threads, || {
            survived(|| self.encoder.encode(&texts, &words.0, word_flags, starts, gaps))
        })?;
        Ok(PyTokens {
            doc_offsets: PyArray1::from_vec(py, tokens.doc_offsets).unbind(),
            input_ids: PyArray1::from_vec(py, tokens.input_ids).unbind(),
            word_ids: PyArray1::from_vec(py, tokens.word_ids).unbind(),
            flags: PyArray1::from_vec(py, tokens.flags).unbind(),
            ngram_starts: PyArray1::from_vec(py, tokens.ngram_starts).unbind(),
        })
    }

    /// The tokens of `encode`, packed.
    #[pyo3(signature = (texts, words, word_flags, ngram_starts, *, gaps=None))]
    fn pack(
        &self,
        py: Python<'_>,
        texts: &Bound<'_, PyAny>,
        words: &PyWords,
        word_flags: PyReadonlyArray1<'_, u8>,
        ngram_starts: PyReadonlyArray1<'_, u8>,
        gaps: Option<&PyWords>,
    ) -> PyResult<PyPackedTokens> {
        let texts = words.import_texts(texts)?;
        let (word_flags, starts) = (word_flags.as_slice()?, ngram_starts.as_slice()?);
        let gaps = gaps.map(|gaps| &*gaps.0);
        let (doc_offsets, parts) = on_pool(py, self.num_threads, || {
            survived(|| self.encoder.pack(&texts, &words.0, word_flags, starts, gaps))
        })?;
        Ok(PyPackedTokens::new(py, doc_offsets, parts))
    }
}

/// Tokens of a batch of documents.
#[pyclass(module = "reticent._rust", name = "Tokens", frozen, get_all)]
pub struct PyTokens {
    doc_offsets: Py<PyArray1<i64>>,
    input_ids: Py<PyArray1<u32>>,
    word_ids: Py<PyArray1<i32>>,
    flags: Py<PyArray1<u8>>,
    ngram_starts: Py<PyArray1<u8>>,
}
