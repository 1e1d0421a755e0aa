//! Packed tokens, word numbers and planes for Python.

use std::sync::{Arc, OnceLock};

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::index::PyNgramIndex;
use super::words::PyWords;
use super::{on_pool, to_py_err};
use crate::error::Error;
use crate::index::lookup::Found;
use crate::index::ngram_index::NgramIndex;
use crate::index::numbers::{Stored, pack, unpack};
use crate::index::protect::Settings;
use crate::index::word_flags::{NumberBlacklist, NumberedDocuments, Supports, WordSpans, flag_words};
use crate::storage::bits::Bits;
use crate::text::spans::{Spans, mark_spans};
use crate::tokenize::packed::{Exception, Packed};
use crate::tokenize::planes::{FlaggedWords, StoredTokens, planes};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPackedTokens>()?;
    module.add_class::<PyMarkedSpans>()?;
    module.add_class::<PyPlanes>()?;
    module.add_class::<PyNumbering>()?;
    module.add_function(wrap_pyfunction!(py_mark_spans, module)?)?;
    module.add_function(wrap_pyfunction!(py_planes, module)?)?;
    module.add_function(wrap_pyfunction!(py_pack_numbers, module)?)?;
    module.add_function(wrap_pyfunction!(py_unpack_numbers, module)?)
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
    /// Words of its document that each span meets: the first, and one past the last.
    firsts: Column<u32>,
    ends: Column<u32>,
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
    let marked = on_pool(py, num_threads, || mark_spans(&texts, &words.0, spans))?;
    Ok(PyMarkedSpans {
        firsts: PyArray1::from_vec(py, marked.firsts).unbind(),
        ends: PyArray1::from_vec(py, marked.ends).unbind(),
        mask: PyArray1::from_vec(py, marked.mask).unbind(),
        gaps: Py::new(py, PyWords(Arc::new(marked.gaps), texts))?,
    })
}

/// One bit a token for direct and for indirect identifiers, and the tokens where minimal identifying n-grams start.
#[pyclass(module = "reticent._rust", name = "Planes", frozen, get_all)]
pub struct PyPlanes {
    direct: Column<u8>,
    indirect: Column<u8>,
    ngram_tokens: Column<i64>,
    ngram_lengths: Column<u8>,
    /// Words that the tokens do not tell, by number among those of the kept documents; their flags, and the lengths of the
    /// n-grams that start there.
    untold_words: Column<i64>,
    untold_flags: Column<u8>,
    untold_lengths: Column<u8>,
}

/// Planes of documents from the flags of their words. `token_offsets` are numbers of tokens in the store, whose bits and
/// exceptions are given whole; `word_offsets` begin with 0.
#[pyfunction(name = "planes")]
#[pyo3(signature = (
    begins, outside, gaps, exceptions, skipped, more, token_offsets, flags, ngram_starts, word_offsets, kept, *,
    num_threads=0
))]
#[allow(clippy::too_many_arguments)]
fn py_planes(
    py: Python<'_>,
    begins: Read<'_, u8>,
    outside: Read<'_, u8>,
    gaps: Option<Read<'_, u8>>,
    exceptions: Read<'_, i64>,
    skipped: Read<'_, u32>,
    more: Read<'_, u32>,
    token_offsets: Read<'_, i64>,
    flags: Read<'_, u8>,
    ngram_starts: Read<'_, u8>,
    word_offsets: Read<'_, i64>,
    kept: Read<'_, bool>,
    num_threads: usize,
) -> PyResult<PyPlanes> {
    let (tokens, skipped, more) = (exceptions.as_slice()?, skipped.as_slice()?, more.as_slice()?);
    if tokens.len() != skipped.len() || tokens.len() != more.len() {
        return Err(to_py_err(Error::Artifact("token store: columns of exceptions differ in length".into())));
    }
    let known: Vec<Exception> =
        (0..tokens.len()).map(|i| Exception { token: tokens[i] as u64, skipped: skipped[i], more: more[i] }).collect();
    let tokens = StoredTokens {
        begins: begins.as_slice()?,
        outside: outside.as_slice()?,
        gaps: gaps.as_ref().map(|gaps| gaps.as_slice()).transpose()?,
        exceptions: &known,
        offsets: token_offsets.as_slice()?,
    };
    let words = FlaggedWords {
        flags: flags.as_slice()?,
        ngram_starts: ngram_starts.as_slice()?,
        offsets: word_offsets.as_slice()?,
        kept: kept.as_slice()?,
    };
    let made = on_pool(py, num_threads, || planes(tokens, words))?;
    Ok(PyPlanes {
        direct: PyArray1::from_vec(py, made.direct.into_bytes()).unbind(),
        indirect: PyArray1::from_vec(py, made.indirect.into_bytes()).unbind(),
        ngram_tokens: PyArray1::from_iter(py, made.starts.iter().map(|&(token, _)| token as i64)).unbind(),
        ngram_lengths: PyArray1::from_iter(py, made.starts.iter().map(|&(_, lengths)| lengths)).unbind(),
        untold_words: PyArray1::from_iter(py, made.untold.iter().map(|&(word, _, _)| word as i64)).unbind(),
        untold_flags: PyArray1::from_iter(py, made.untold.iter().map(|&(_, flag, _)| flag)).unbind(),
        untold_lengths: PyArray1::from_iter(py, made.untold.iter().map(|&(_, _, lengths)| lengths)).unbind(),
    })
}

/// Numbers of words as bytes, of so many bits each.
#[pyfunction]
#[pyo3(name = "pack_numbers")]
fn py_pack_numbers<'py>(
    py: Python<'py>,
    numbers: Read<'py, u32>,
    offsets: Read<'py, i64>,
    bits: u32,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let (numbers, offsets) = (numbers.as_slice()?, offsets.as_slice()?);
    let packed = py.detach(|| pack(numbers, offsets, bits)).map_err(to_py_err)?;
    Ok(PyArray1::from_vec(py, packed))
}

/// The numbers of documents, from the first byte of each and how many words it has.
#[pyfunction]
#[pyo3(name = "unpack_numbers")]
fn py_unpack_numbers<'py>(
    py: Python<'py>,
    packed: Read<'py, u8>,
    bits: u32,
    firsts: Read<'py, i64>,
    lengths: Read<'py, i64>,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let (packed, firsts, lengths) = (packed.as_slice()?, firsts.as_slice()?, lengths.as_slice()?);
    let numbers = py.detach(|| unpack(packed, bits, firsts, lengths)).map_err(to_py_err)?;
    Ok(PyArray1::from_vec(py, numbers))
}

/// Documents as numbers: those of their words as they are stored, and the bits of each; the first byte of each document, word
/// offsets, units, which of them count, span offsets, and of each span the first word, one past the last, and the scope.
type Documents<'py> = (
    (Read<'py, u8>, u32),
    Read<'py, i64>,
    Read<'py, i64>,
    Read<'py, u32>,
    Read<'py, bool>,
    Read<'py, i64>,
    Read<'py, u32>,
    Read<'py, u32>,
    Read<'py, u8>,
);

/// Protection of documents whose words are numbers: rows of one index (`numbered`), protected by another of the same
/// surface (`by`).
#[pyclass(module = "reticent._rust", name = "Numbering")]
pub struct PyNumbering {
    by: Arc<NgramIndex>,
    /// By number, what `by` says of the word.
    found: Vec<Found>,
    /// By number, how far a word reaches; made where it is asked for.
    reaches: OnceLock<Vec<u8>>,
    settings: Settings,
    blacklist: NumberBlacklist,
    num_threads: usize,
}

#[pymethods]
impl PyNumbering {
    #[new]
    #[pyo3(signature = (numbered, by, *, k, n, policy, max_document_frequency=None, num_threads=0))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        numbered: &PyNgramIndex,
        by: &PyNgramIndex,
        k: u32,
        n: usize,
        policy: &str,
        max_document_frequency: Option<f64>,
        num_threads: usize,
    ) -> PyResult<Self> {
        if by.0.surface != numbered.0.surface {
            return Err(to_py_err(Error::Policy("the two indexes count words by different surfaces".into())));
        }
        let settings = by.settings(k, n, policy, max_document_frequency).map_err(to_py_err)?;
        settings.check(&by.0).map_err(to_py_err)?;
        let (found, blacklist) = py.detach(|| {
            let found = by.0.found_by_number(&numbered.0);
            let blacklist = NumberBlacklist::new(&numbered.0, &by.0, &found);
            (found, blacklist)
        });
        Ok(Self { by: by.0.clone(), found, reaches: OnceLock::new(), settings, blacklist, num_threads })
    }

    /// Different surfaces that are protected beyond the span that showed them.
    #[getter]
    fn num_blacklisted(&self) -> usize {
        self.blacklist.len()
    }

    /// Add what the spans of documents protect beyond themselves.
    fn add(&mut self, documents: Documents<'_>) -> PyResult<()> {
        let documents = read(&documents)?;
        self.reaches = OnceLock::new();
        self.blacklist.add(documents).map_err(to_py_err)
    }

    /// Flags of each word (4: too common to identify), and the lengths of the minimal identifying n-grams that start there (bit n - 1).
    #[allow(clippy::type_complexity)]
    fn flag_words<'py>(
        &self,
        py: Python<'py>,
        documents: Documents<'py>,
    ) -> PyResult<(Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<u8>>)> {
        let documents = read(&documents)?;
        let Self { found, settings, blacklist, .. } = self;
        let reaches = self.reaches.get_or_init(|| blacklist.reaches());
        let supports = Supports { index: &self.by, found, settings: *settings };
        let (flags, starts) = on_pool(py, self.num_threads, || flag_words(documents, &supports, blacklist, reaches))?;
        Ok((PyArray1::from_vec(py, flags), PyArray1::from_vec(py, starts)))
    }
}

fn read<'a>(documents: &'a Documents<'_>) -> PyResult<NumberedDocuments<'a>> {
    let ((packed, bits), first_bytes, offsets, units, kept, span_offsets, firsts, ends, scopes) = documents;
    let offsets = offsets.as_slice()?;
    let lengths = offsets.windows(2).map(|ends| ends[1] - ends[0]);
    Ok(NumberedDocuments {
        numbers: Stored::new(packed.as_slice()?, *bits, first_bytes.as_slice()?, lengths).map_err(to_py_err)?,
        offsets,
        units: units.as_slice()?,
        kept: kept.as_slice()?,
        spans: WordSpans {
            offsets: span_offsets.as_slice()?,
            firsts: firsts.as_slice()?,
            ends: ends.as_slice()?,
            scopes: scopes.as_slice()?,
        },
    })
}
