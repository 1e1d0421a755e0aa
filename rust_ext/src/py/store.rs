//! Packed tokens, and spans as words, for Python.

use std::sync::Arc;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::to_py_err;
use super::words::PyWords;
use crate::pool::pool;
use crate::storage::bits::Bits;
use crate::text::spans::{Spans, mark_spans};
use crate::tokenize::packed::{Exception, Packed};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPackedTokens>()?;
    module.add_class::<PyMarkedSpans>()?;
    module.add_function(wrap_pyfunction!(py_mark_spans, module)?)
}

type Column<T> = Py<PyArray1<T>>;
type Read<'py, T> = PyReadonlyArray1<'py, T>;

/// Packed tokens of a batch of documents (`tokenize::packed`). Rows of bits begin with the lowest bit of the first byte.
#[pyclass(module = "reticent._rust", name = "PackedTokens", frozen, get_all)]
pub struct PyPackedTokens {
    doc_offsets: Column<i64>,
    ids: Column<u16>,
    /// Third byte of each id; empty where two are enough.
    high: Column<u8>,
    begins: Column<u8>,
    outside: Column<u8>,
    direct: Column<u8>,
    indirect: Column<u8>,
    /// Tokens where minimal identifying n-grams start, and their lengths as bits.
    ngram_tokens: Column<i64>,
    ngram_lengths: Column<u8>,
    /// Tokens whose words do not follow from the bits; how many words each passes over, and meets beside the first.
    exceptions: Column<i64>,
    skipped: Column<u32>,
    more: Column<u32>,
}

impl PyPackedTokens {
    pub fn new(py: Python<'_>, doc_offsets: Vec<i64>, parts: Vec<Packed>) -> Self {
        let (ids, high, bits, starts, exceptions) = py.detach(|| {
            let num_tokens = parts.iter().map(Packed::len).sum();
            let (mut ids, mut high) = (Vec::with_capacity(num_tokens), Vec::new());
            let (mut starts, mut exceptions) = (Vec::new(), Vec::new());
            let mut bits = [(); 4].map(|()| Bits::default());
            for part in parts {
                ids.extend_from_slice(&part.ids);
                high.extend_from_slice(&part.high);
                for (whole, own) in bits.iter_mut().zip([&part.begins, &part.outside, &part.direct, &part.indirect]) {
                    whole.append(own);
                }
                starts.extend(part.ngram_starts);
                exceptions.extend(part.exceptions);
            }
            (ids, high, bits.map(Bits::into_bytes), starts, exceptions)
        });
        let [begins, outside, direct, indirect] = bits.map(|bytes| PyArray1::from_vec(py, bytes).unbind());
        let column = |of: fn(&Exception) -> u32| PyArray1::from_iter(py, exceptions.iter().map(of)).unbind();
        Self {
            doc_offsets: PyArray1::from_vec(py, doc_offsets).unbind(),
            ids: PyArray1::from_vec(py, ids).unbind(),
            high: PyArray1::from_vec(py, high).unbind(),
            begins,
            outside,
            direct,
            indirect,
            ngram_tokens: PyArray1::from_iter(py, starts.iter().map(|&(token, _)| token as i64)).unbind(),
            ngram_lengths: PyArray1::from_iter(py, starts.iter().map(|&(_, lengths)| lengths)).unbind(),
            exceptions: PyArray1::from_iter(py, exceptions.iter().map(|exception| exception.token as i64)).unbind(),
            skipped: column(|exception| exception.skipped),
            more: column(|exception| exception.more),
        }
    }
}

/// What spans hold of a batch of documents.
#[pyclass(module = "reticent._rust", name = "MarkedSpans", frozen, get_all)]
pub struct PyMarkedSpans {
    /// 1 for each word that meets a span.
    mask: Column<u8>,
    /// What spans hold between words, white space aside.
    gaps: Py<PyWords>,
}

/// The words that spans (in characters) meet, and what they hold between words.
#[pyfunction(name = "mark_spans")]
#[pyo3(signature = (texts, words, span_offsets, starts, ends, *, num_threads=0))]
fn py_mark_spans(
    py: Python<'_>,
    texts: &Bound<'_, PyAny>,
    words: &PyWords,
    span_offsets: Read<'_, i64>,
    starts: Read<'_, i32>,
    ends: Read<'_, i32>,
    num_threads: usize,
) -> PyResult<PyMarkedSpans> {
    let texts = words.import_texts(texts)?;
    let spans = Spans { offsets: span_offsets.as_slice()?, starts: starts.as_slice()?, ends: ends.as_slice()? };
    let threads = pool(num_threads).map_err(to_py_err)?;
    let marked = py.detach(|| threads.install(|| mark_spans(&texts, &words.0, spans))).map_err(to_py_err)?;
    Ok(PyMarkedSpans {
        mask: PyArray1::from_vec(py, marked.mask).unbind(),
        gaps: Py::new(py, PyWords(Arc::new(marked.gaps), texts))?,
    })
}
