//! Records and gazetteers for Python: spans in characters.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, StringArray, UInt32Array};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::index::batch;
use super::{ArrowBatch, import_texts, on_pool, to_py_err};
use crate::detect::common::CommonWords;
use crate::detect::fused_pass::FusedPass;
use crate::detect::gazetteer::Gazetteer;
use crate::detect::records::{Field, Records};
use crate::detect::surfaces::{Labelled, Surfaces};
use crate::error::Error;
use crate::text::fold::fold;
use crate::text::spans::{Found, Spans, in_characters};
use crate::text::surface::Surface;
use crate::text::texts::Texts;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCommonWords>()?;
    module.add_class::<PyGazetteer>()?;
    module.add_class::<PyRecords>()?;
    module.add_class::<PySurfaces>()?;
    module.add_function(wrap_pyfunction!(find_together, module)?)
}

/// What was found, with its bounds in characters.
pub fn located(texts: &Texts, found: Vec<Found>) -> (Vec<Found>, Vec<[i32; 2]>) {
    let characters = in_characters(texts, &found);
    (found, characters)
}

/// Columns document (row in the batch), start, end (characters), label, rule.
pub fn to_batch<'a>(
    (found, characters): &(Vec<Found>, Vec<[i32; 2]>),
    named: impl Fn(u32) -> (&'a str, &'a str),
) -> PyResult<ArrowBatch> {
    let labels = found.iter().map(|span| named(span.source).0);
    let rules = found.iter().map(|span| named(span.source).1);
    let told = [
        ("label", Arc::new(StringArray::from_iter_values(labels)) as ArrayRef),
        ("rule", Arc::new(StringArray::from_iter_values(rules))),
    ];
    batch(bounds(found, characters).into_iter().chain(told).collect())
}

/// Columns document, start, end.
pub fn bounds(found: &[Found], characters: &[[i32; 2]]) -> [(&'static str, ArrayRef); 3] {
    [
        ("document", Arc::new(Int32Array::from_iter_values(found.iter().map(|span| span.document as i32)))),
        ("start", Arc::new(Int32Array::from_iter_values(characters.iter().map(|at| at[0])))),
        ("end", Arc::new(Int32Array::from_iter_values(characters.iter().map(|at| at[1])))),
    ]
}

type RecordsChoice<'py> = (PyRef<'py, PyRecords>, PyReadonlyArray1<'py, u32>, Option<PyRef<'py, PyCommonWords>>, bool);
type GazetteerChoice<'py> = (PyRef<'py, PyGazetteer>, Option<PyRef<'py, PyCommonWords>>);

/// Records and gazetteer in one pass: the batch of each, as it finds alone.
#[pyfunction]
#[pyo3(signature = (texts, records, gazetteer, *, num_threads=0))]
fn find_together(
    py: Python<'_>,
    texts: &Bound<'_, PyAny>,
    records: RecordsChoice<'_>,
    gazetteer: GazetteerChoice<'_>,
    num_threads: usize,
) -> PyResult<(ArrowBatch, ArrowBatch)> {
    let texts = import_texts(texts, "text")?;
    let (own, units, common, initials) = &records;
    let (list, common_of_list) = &gazetteer;
    let pass = FusedPass {
        records: &own.records,
        units: units.as_slice()?,
        common: common.as_ref().map(|common| &common.common),
        initials: *initials,
        gazetteer: Some((&list.gazetteer, common_of_list.as_ref().map(|common| &common.common))),
    };
    let [of_records, of_list] =
        on_pool(py, num_threads, || pass.find(&texts).map(|parts| parts.map(|part| located(&texts, part))))?;
    Ok((to_batch(&of_records, |source| own.named(source))?, to_batch(&of_list, |source| list.named(source))?))
}

fn check_labels(labels: &Texts, num_values: usize) -> PyResult<()> {
    if labels.len() != num_values {
        let message = format!("{} labels were given for {num_values} values", labels.len());
        return Err(to_py_err(Error::Corpus(message)));
    }
    Ok(())
}

/// Which words are common, by how a corpus writes them.
#[pyclass(module = "reticent._rust", name = "CommonWords")]
pub struct PyCommonWords {
    pub common: CommonWords,
}

#[pymethods]
impl PyCommonWords {
    #[new]
    fn new() -> Self {
        Self { common: CommonWords::new() }
    }

    #[getter]
    fn num_words(&self) -> usize {
        self.common.len()
    }

    /// Documents that were counted.
    #[getter]
    fn num_documents(&self) -> u32 {
        self.common.num_documents()
    }

    /// `individuals`, one a document, tell which words several have.
    #[pyo3(signature = (texts, individuals=None, *, num_threads=0))]
    fn add(
        &self,
        py: Python<'_>,
        texts: &Bound<'_, PyAny>,
        individuals: Option<&Bound<'_, PyAny>>,
        num_threads: usize,
    ) -> PyResult<()> {
        let texts = import_texts(texts, "text")?;
        let individuals = individuals.map(|ids| import_texts(ids, "individual_id")).transpose()?;
        on_pool(py, num_threads, || self.common.add(&texts, individuals.as_ref()))
    }

    fn add_list(&mut self, words: &Bound<'_, PyAny>) -> PyResult<()> {
        self.common.add_list(&import_texts(words, "word")?);
        Ok(())
    }

    fn merge(&mut self) {
        self.common.merge();
    }

    /// Of each word, 1 where it is common and stands in small letters in many documents.
    fn are_widespread<'py>(&self, py: Python<'py>, words: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let words = import_texts(words, "word")?;
        let found = (0..words.len()).map(|row| self.common.is_widespread(&fold(words.get(row), Surface::Fold).text));
        Ok(PyArray1::from_iter(py, found.map(u8::from)))
    }

    /// Of each word, 0: a name, 1: mixed, 2: common.
    fn classes<'py>(&self, py: Python<'py>, words: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let words = import_texts(words, "word")?;
        let classes = (0..words.len()).map(|row| self.common.class(&fold(words.get(row), Surface::Fold).text) as u8);
        Ok(PyArray1::from_iter(py, classes))
    }
}

/// A list of names, each with a label.
#[pyclass(module = "reticent._rust", name = "Gazetteer", frozen)]
pub struct PyGazetteer {
    gazetteer: Gazetteer,
    labels: Texts,
}

#[pymethods]
impl PyGazetteer {
    #[new]
    /// `surface` says which spellings are the same: exact, casefold or fold (neither case nor accents). `are_names`, one a pattern,
    /// says which are names of individuals.
    #[pyo3(signature = (patterns, labels, *, surface="fold", are_names=None))]
    fn new(
        patterns: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
        surface: &str,
        are_names: Option<Vec<bool>>,
    ) -> PyResult<Self> {
        let patterns = import_texts(patterns, "pattern")?;
        let surface = Surface::parse(surface).map_err(to_py_err)?;
        let labels = import_texts(labels, "label")?;
        check_labels(&labels, patterns.len())?;
        let gazetteer = Gazetteer::new(&patterns, surface).and_then(|gazetteer| match are_names {
            Some(are_names) => gazetteer.with_names(are_names),
            None => Ok(gazetteer),
        });
        Ok(Self { gazetteer: gazetteer.map_err(to_py_err)?, labels })
    }

    #[pyo3(signature = (texts, *, common=None, num_threads=0))]
    fn find(
        &self,
        py: Python<'_>,
        texts: &Bound<'_, PyAny>,
        common: Option<PyRef<'_, PyCommonWords>>,
        num_threads: usize,
    ) -> PyResult<ArrowBatch> {
        let texts = import_texts(texts, "text")?;
        let common = common.as_ref().map(|common| &common.common);
        let found = on_pool(py, num_threads, || Ok(located(&texts, self.gazetteer.find(&texts, common))))?;
        to_batch(&found, |source| self.named(source))
    }
}

impl PyGazetteer {
    fn named(&self, source: u32) -> (&str, &str) {
        (self.labels.get(source as usize), "list")
    }
}

/// Values of record fields, looked for in the documents of the individual they belong to only.
#[pyclass(module = "reticent._rust", name = "Records", frozen)]
pub struct PyRecords {
    records: Records,
    labels: Texts,
}

#[pymethods]
impl PyRecords {
    #[new]
    fn new(
        units: PyReadonlyArray1<'_, u32>,
        values: &Bound<'_, PyAny>,
        fields: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let values = import_texts(values, "value")?;
        let labels = import_texts(labels, "label")?;
        check_labels(&labels, values.len())?;
        let fields = import_texts(fields, "field")?;
        let fields =
            (0..fields.len()).map(|row| Field::parse(fields.get(row))).collect::<Result<_, _>>().map_err(to_py_err)?;
        let records = Records::new(units.as_slice()?, values, fields).map_err(to_py_err)?;
        Ok(Self { records, labels })
    }

    #[pyo3(signature = (texts, units, *, common=None, initials=false, num_threads=0))]
    fn find(
        &self,
        py: Python<'_>,
        texts: &Bound<'_, PyAny>,
        units: PyReadonlyArray1<'_, u32>,
        common: Option<PyRef<'_, PyCommonWords>>,
        initials: bool,
        num_threads: usize,
    ) -> PyResult<ArrowBatch> {
        let texts = import_texts(texts, "text")?;
        let common = common.as_ref().map(|common| &common.common);
        let pass = FusedPass { records: &self.records, units: units.as_slice()?, common, initials, gazetteer: None };
        let found = on_pool(py, num_threads, || pass.find(&texts).map(|[own, _]| located(&texts, own)))?;
        to_batch(&found, |source| self.named(source))
    }
}

impl PyRecords {
    fn named(&self, source: u32) -> (&str, &str) {
        (self.labels.get(source as usize / 2), if source % 2 == 1 { "edited" } else { "record" })
    }
}

/// What was found once, to be found wherever else it may stand.
#[pyclass(module = "reticent._rust", name = "Surfaces")]
pub struct PySurfaces {
    surfaces: Surfaces,
}

#[pymethods]
impl PySurfaces {
    #[new]
    fn new() -> Self {
        Self { surfaces: Surfaces::default() }
    }

    /// Spans in characters; `scopes` 0 nowhere, 1 the unit's documents, 2 all of them.
    #[pyo3(signature = (
        texts, units, span_offsets, starts, ends, labels, scopes, names, sources, *, counted=None, num_threads=0
    ))]
    #[allow(clippy::too_many_arguments)]
    fn add(
        &mut self,
        py: Python<'_>,
        texts: &Bound<'_, PyAny>,
        units: PyReadonlyArray1<'_, u32>,
        span_offsets: PyReadonlyArray1<'_, i64>,
        starts: PyReadonlyArray1<'_, i32>,
        ends: PyReadonlyArray1<'_, i32>,
        labels: PyReadonlyArray1<'_, u32>,
        scopes: PyReadonlyArray1<'_, u8>,
        names: PyReadonlyArray1<'_, u8>,
        sources: PyReadonlyArray1<'_, u32>,
        counted: Option<PyRef<'_, PyCommonWords>>,
        num_threads: usize,
    ) -> PyResult<()> {
        let texts = import_texts(texts, "text")?;
        let spans = Spans { offsets: span_offsets.as_slice()?, starts: starts.as_slice()?, ends: ends.as_slice()? };
        let spans = Labelled { spans, labels: labels.as_slice()? };
        let (units, scopes, names, sources) =
            (units.as_slice()?, scopes.as_slice()?, names.as_slice()?, sources.as_slice()?);
        let counted = counted.as_ref().map(|counted| &counted.common);
        on_pool(py, num_threads, || self.surfaces.add(&texts, units, &spans, scopes, names, sources, counted))
    }

    /// Returns how many surfaces spread, and how many are too short or too common to.
    fn finish(&mut self, common: PyRef<'_, PyCommonWords>) -> (u64, u64, u64) {
        let counts = self.surfaces.finish(&common.common);
        (counts.surfaces, counts.short, counts.common)
    }

    /// Columns document, start, end (characters), label, source.
    #[pyo3(signature = (texts, units, span_offsets, starts, ends, labels, *, common, num_threads=0))]
    #[allow(clippy::too_many_arguments)]
    fn find(
        &self,
        py: Python<'_>,
        texts: &Bound<'_, PyAny>,
        units: PyReadonlyArray1<'_, u32>,
        span_offsets: PyReadonlyArray1<'_, i64>,
        starts: PyReadonlyArray1<'_, i32>,
        ends: PyReadonlyArray1<'_, i32>,
        labels: PyReadonlyArray1<'_, u32>,
        common: PyRef<'_, PyCommonWords>,
        num_threads: usize,
    ) -> PyResult<ArrowBatch> {
        let texts = import_texts(texts, "text")?;
        let units = units.as_slice()?;
        let spans = Spans { offsets: span_offsets.as_slice()?, starts: starts.as_slice()?, ends: ends.as_slice()? };
        let spans = Labelled { spans, labels: labels.as_slice()? };
        if units.len() != texts.len() {
            return Err(to_py_err(Error::Corpus("surfaces: one unit is needed for each document".into())));
        }
        let common = &common.common;
        let (found, characters) =
            on_pool(py, num_threads, || Ok(located(&texts, self.surfaces.find(&texts, units, &spans, common)?)))?;
        let of = |which: fn(&Surfaces, u32) -> u32| {
            UInt32Array::from_iter_values(found.iter().map(|span| which(&self.surfaces, span.source)))
        };
        let told = [("label", Arc::new(of(Surfaces::label)) as ArrayRef), ("source", Arc::new(of(Surfaces::source)))];
        batch(bounds(&found, &characters).into_iter().chain(told).collect())
    }
}
