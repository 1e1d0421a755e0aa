//! The learned tagger for Python: marked documents in, tables of hashes and weights out; spans in characters.

use std::sync::Arc;

use arrow_array::{ArrayRef, UInt8Array};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::detect::{PyCommonWords, bounds, located};
use super::index::batch;
use super::{ArrowBatch, import_texts, to_py_err};
use crate::detect::learned::features::{HashKey, Hint};
use crate::detect::learned::model::{Tagger, Transitions};
use crate::detect::learned::train::{self, Lessons, STEPS, Settings};
use crate::detect::learned::{LANES, WIDTH};
use crate::error::{Error, Result};
use crate::pool::pool;
use crate::text::spans::Spans;
use crate::text::texts::Texts;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTagger>()
}

/// Spans of a batch in characters, each with a number: offsets int64, starts and ends int32, numbers uint32.
type Numbered<'py> =
    (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, u32>);

fn read<'a>(numbered: &'a Numbered<'_>) -> PyResult<(Spans<'a>, &'a [u32])> {
    let (offsets, starts, ends, numbers) = numbered;
    let spans = Spans { offsets: offsets.as_slice()?, starts: starts.as_slice()?, ends: ends.as_slice()? };
    Ok((spans, numbers.as_slice()?))
}

fn of_document<'a>(
    (spans, numbers): (Spans<'a>, &'a [u32]),
    texts: &'a Texts,
    most: usize,
    unknown: Option<u32>,
) -> Result<impl Fn(usize) -> Result<Vec<Hint>> + Sync + 'a> {
    spans.check(texts.len())?;
    if numbers.len() != spans.starts.len()
        || numbers.iter().any(|&number| Some(number) != unknown && number as usize >= most)
    {
        return Err(Error::Corpus("tagger: each span has the number of one of the names".into()));
    }
    Ok(move |row: usize| {
        let found = spans.in_bytes(row, texts.get(row))?;
        let mut found: Vec<Hint> = found
            .into_iter()
            .zip(&numbers[spans.of(row)])
            .map(|(span, &number)| (span.start, span.end, number))
            .collect();
        found.sort_unstable();
        Ok(found)
    })
}

/// A tagger that was learned.
#[pyclass(module = "reticent._rust", name = "Tagger", frozen)]
pub struct PyTagger {
    tagger: Tagger,
}

#[pymethods]
impl PyTagger {
    /// From its tables (as `tables` gives them) and its key.
    #[new]
    #[pyo3(signature = (key, keys, slots, weights, scale, transitions, *, num_lanes, affixes))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        key: [u8; 16],
        keys: PyReadonlyArray1<'_, u64>,
        slots: PyReadonlyArray1<'_, u8>,
        weights: PyReadonlyArray1<'_, i16>,
        scale: f32,
        transitions: PyReadonlyArray1<'_, i16>,
        num_lanes: usize,
        affixes: bool,
    ) -> PyResult<Self> {
        let fine = |steps: &[i16]| steps.iter().map(|&step| f32::from(step) * scale).collect::<Vec<f32>>();
        let transitions = fine(transitions.as_slice()?);
        if transitions.len() != LANES * LANES + 2 * LANES {
            return Err(to_py_err(Error::Artifact("the tables of a tagger do not match".into())));
        }
        let tagger = Tagger::new(
            HashKey::new(&key),
            keys.as_slice()?.to_vec(),
            slots.as_slice()?.to_vec(),
            fine(weights.as_slice()?),
            Transitions::from_flat(&transitions),
            num_lanes,
            affixes,
        );
        Ok(Self { tagger: tagger.map_err(to_py_err)? })
    }

    /// Learn from marked documents; `marks` are their spans with their lanes (1 to 15), `hints` what other detectors found there, with numbers of `names`.
    #[staticmethod]
    #[pyo3(signature = (key, texts, individuals, weights, marks, hints, names, *, common=None, k, epochs, seed, affixes, l2, rate))]
    #[allow(clippy::too_many_arguments)]
    fn learn(
        py: Python<'_>,
        key: [u8; 16],
        texts: &Bound<'_, PyAny>,
        individuals: PyReadonlyArray1<'_, u32>,
        weights: PyReadonlyArray1<'_, f32>,
        marks: Numbered<'_>,
        hints: Numbered<'_>,
        names: Vec<String>,
        common: Option<PyRef<'_, PyCommonWords>>,
        k: u32,
        epochs: u32,
        seed: u64,
        affixes: bool,
        l2: f32,
        rate: f32,
    ) -> PyResult<Self> {
        let texts = import_texts(texts, "text")?;
        let (individuals, weights) = (individuals.as_slice()?, weights.as_slice()?);
        if individuals.len() != texts.len() || weights.len() != texts.len() {
            return Err(to_py_err(Error::Corpus("tagger: one individual and one weight a document".into())));
        }
        let common = common.as_ref().map(|common| &common.common);
        let settings = Settings { k, epochs, seed, affixes, l2, rate };
        let (marks, hints) = (read(&marks)?, read(&hints)?);
        let tagger = py
            .detach(|| {
                let marks = of_document(marks, &texts, LANES, Some(train::UNKNOWN))?;
                let hints = of_document(hints, &texts, names.len(), None)?;
                let lessons = Lessons {
                    texts: &texts,
                    individuals,
                    weights,
                    marks: &marks,
                    hints: &hints,
                    names: &names,
                    common,
                };
                train::learn(HashKey::new(&key), &lessons, &settings)
            })
            .map_err(to_py_err)?;
        Ok(Self { tagger })
    }

    /// Lanes in use, with the one of no span.
    #[getter]
    fn num_lanes(&self) -> usize {
        self.tagger.used
    }

    /// Hashes (uint64, ascending), rows of each (uint8), weights (int16, 32 a row), what one step is worth, and the scores of what follows what (int16).
    #[allow(clippy::type_complexity)]
    fn tables<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<i16>>, f32, Bound<'py, PyArray1<i16>>)
    {
        let tagger = &self.tagger;
        let transitions = tagger.transitions.flat();
        let largest = tagger.weights.iter().chain(&transitions).fold(1e-6f32, |most, weight| weight.abs().max(most));
        let scale = largest / STEPS;
        let steps =
            |weights: &[f32]| weights.iter().map(|&weight| (weight / scale).round() as i16).collect::<Vec<i16>>();
        (
            PyArray1::from_slice(py, &tagger.keys),
            PyArray1::from_slice(py, &tagger.slots),
            PyArray1::from_vec(py, steps(&tagger.weights)),
            scale,
            PyArray1::from_vec(py, steps(&transitions)),
        )
    }

    /// Columns document (row in the batch), start, end (characters) and lane; `hints` as in `learn`, and `lean` is taken from the score of no span.
    #[pyo3(signature = (texts, hints, names, *, lean=0.0, common=None, num_threads=0))]
    #[allow(clippy::too_many_arguments)]
    fn find(
        &self,
        py: Python<'_>,
        texts: &Bound<'_, PyAny>,
        hints: Numbered<'_>,
        names: Vec<String>,
        lean: f32,
        common: Option<PyRef<'_, PyCommonWords>>,
        num_threads: usize,
    ) -> PyResult<ArrowBatch> {
        let texts = import_texts(texts, "text")?;
        let threads = pool(num_threads).map_err(to_py_err)?;
        let common = common.as_ref().map(|common| &common.common);
        let hints = read(&hints)?;
        let (found, characters) = py
            .detach(|| {
                let hints = of_document(hints, &texts, names.len(), None)?;
                let found = threads.install(|| self.tagger.find(&texts, &hints, &names, common, lean))?;
                Ok(threads.install(|| located(&texts, found)))
            })
            .map_err(to_py_err)?;
        let lanes = UInt8Array::from_iter_values(found.iter().map(|span| span.source as u8));
        batch(bounds(&found, &characters).into_iter().chain([("lane", Arc::new(lanes) as ArrayRef)]).collect())
    }
}

const _: () = assert!(WIDTH == 32);
