//! Rules and gazetteers for Python: spans in characters.

use std::sync::Arc;

use arrow_array::{Int32Array, StringArray};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use super::index::batch;
use super::{ArrowBatch, import_texts, to_py_err};
use crate::error::Error;
use crate::gazetteer::{Gazetteer, find_records};
use crate::pool::pool;
use crate::rules::{RULES, scan};
use crate::spans::{CharCounter, Found};
use crate::surface::Surface;
use crate::text::Texts;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyGazetteer>()?;
    module.add_function(wrap_pyfunction!(scan_rules, module)?)?;
    module.add_function(wrap_pyfunction!(list_rules, module)?)?;
    module.add_function(wrap_pyfunction!(py_find_records, module)?)
}

/// Columns document (row in the batch), start, end (characters), label, rule.
fn to_batch<'a>(texts: &Texts, found: &[Found], named: impl Fn(u32) -> (&'a str, &'a str)) -> PyResult<ArrowBatch> {
    let (mut starts, mut ends) = (Vec::with_capacity(found.len()), Vec::with_capacity(found.len()));
    let mut counter: Option<(u32, CharCounter)> = None;
    for span in found {
        if counter.as_ref().is_none_or(|(row, _)| *row != span.document) {
            counter = Some((span.document, CharCounter::new(texts.get(span.document as usize))));
        }
        if let Some((_, chars)) = &mut counter {
            // Starts ascend; ends do not where spans overlap, and going back would count the text again.
            let start = chars.at(span.start);
            let length = texts.get(span.document as usize)[span.start..span.end].chars().count();
            starts.push(start as i32);
            ends.push((start + length) as i32);
        }
    }
    let labels = found.iter().map(|span| named(span.source).0);
    let rules = found.iter().map(|span| named(span.source).1);
    batch(vec![
        ("document", Arc::new(Int32Array::from_iter_values(found.iter().map(|span| span.document as i32)))),
        ("start", Arc::new(Int32Array::from(starts))),
        ("end", Arc::new(Int32Array::from(ends))),
        ("label", Arc::new(StringArray::from_iter_values(labels))),
        ("rule", Arc::new(StringArray::from_iter_values(rules))),
    ])
}

/// Name, label and what it finds of every rule.
#[pyfunction]
fn list_rules() -> Vec<(&'static str, &'static str, &'static str)> {
    RULES.iter().map(|rule| (rule.name, rule.label, rule.finds)).collect()
}

/// Identifiers that have a form; `labels` None takes every rule, `filtered` false tries all of them at every place.
#[pyfunction]
#[pyo3(signature = (texts, labels=None, *, num_threads=0, filtered=true))]
fn scan_rules(
    py: Python<'_>,
    texts: &Bound<'_, PyAny>,
    labels: Option<Vec<String>>,
    num_threads: usize,
    filtered: bool,
) -> PyResult<ArrowBatch> {
    let texts = import_texts(texts, "text")?;
    let threads = pool(num_threads).map_err(to_py_err)?;
    let found = py.detach(|| threads.install(|| scan(&texts, labels.as_deref(), filtered))).map_err(to_py_err)?;
    to_batch(&texts, &found, |source| {
        let rule = &RULES[source as usize];
        (rule.label, rule.name)
    })
}

fn check_labels(labels: &Texts, num_values: usize) -> PyResult<()> {
    if labels.len() != num_values {
        let message = format!("{} labels were given for {num_values} values", labels.len());
        return Err(to_py_err(Error::Corpus(message)));
    }
    Ok(())
}

/// A list of names, each with a label.
#[pyclass(name = "Gazetteer", frozen)]
pub struct PyGazetteer {
    gazetteer: Gazetteer,
    labels: Texts,
}

#[pymethods]
impl PyGazetteer {
    #[new]
    /// `surface` says which spellings are the same: exact, casefold or fold (neither case nor accents).
    #[pyo3(signature = (patterns, labels, *, surface="fold"))]
    fn new(patterns: &Bound<'_, PyAny>, labels: &Bound<'_, PyAny>, surface: &str) -> PyResult<Self> {
        let patterns = import_texts(patterns, "pattern")?;
        let surface = Surface::parse(surface).map_err(to_py_err)?;
        let gazetteer = Gazetteer::new(&patterns, surface).map_err(to_py_err)?;
        let labels = import_texts(labels, "label")?;
        check_labels(&labels, patterns.len())?;
        Ok(Self { gazetteer, labels })
    }

    #[pyo3(signature = (texts, *, num_threads=0))]
    fn find(&self, py: Python<'_>, texts: &Bound<'_, PyAny>, num_threads: usize) -> PyResult<ArrowBatch> {
        let texts = import_texts(texts, "text")?;
        let threads = pool(num_threads).map_err(to_py_err)?;
        let found = py.detach(|| threads.install(|| self.gazetteer.find(&texts)));
        to_batch(&texts, &found, |source| (self.labels.get(source as usize), "list"))
    }
}

/// Values of record fields, in the documents of the individual they belong to only.
#[pyfunction(name = "find_records")]
#[pyo3(signature = (texts, units, record_units, values, labels, *, num_threads=0))]
#[allow(clippy::too_many_arguments)]
fn py_find_records(
    py: Python<'_>,
    texts: &Bound<'_, PyAny>,
    units: PyReadonlyArray1<'_, u32>,
    record_units: PyReadonlyArray1<'_, u32>,
    values: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
    num_threads: usize,
) -> PyResult<ArrowBatch> {
    let texts = import_texts(texts, "text")?;
    let values = import_texts(values, "value")?;
    let labels = import_texts(labels, "label")?;
    check_labels(&labels, values.len())?;
    let (units, record_units) = (units.as_slice()?, record_units.as_slice()?);
    let threads = pool(num_threads).map_err(to_py_err)?;
    let found =
        py.detach(|| threads.install(|| find_records(&texts, units, record_units, &values))).map_err(to_py_err)?;
    to_batch(&texts, &found, |source| (labels.get(source as usize), "record"))
}
