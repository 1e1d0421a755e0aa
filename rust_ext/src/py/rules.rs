//! Rules for Python: spans in characters.

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::detect::{PyCommonWords, located, to_batch};
use super::{ArrowBatch, import_texts, on_pool, to_py_err};
use crate::detect::no_names::{Formless, refine};
use crate::error::Error;
use crate::rules::{RULES, scan};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(scan_rules, module)?)?;
    module.add_function(wrap_pyfunction!(refine_formless, module)?)?;
    module.add_function(wrap_pyfunction!(unescape, module)?)?;
    module.add("RULES", env!("RULES"))?;
    module.add_function(wrap_pyfunction!(list_rules, module)?)
}

/// Name, label and what it finds of every rule.
#[pyfunction]
fn list_rules() -> Vec<(&'static str, &'static str, &'static str)> {
    RULES.iter().map(|rule| (rule.name, rule.label, rule.finds)).collect()
}

/// A text without the escapes of an export, and where each of its characters begins in the original, in characters.
#[pyfunction]
fn unescape(text: &str) -> (String, Vec<usize>) {
    let Some(plain) = crate::text::escapes::unescape(text) else {
        return (text.to_owned(), (0..text.chars().count()).collect());
    };
    let starts = plain.origins(text, plain.text.char_indices().map(|(at, _)| at as u32));
    let starts = starts.into_iter().map(|start| text[..start as usize].chars().count()).collect();
    (plain.text, starts)
}

/// Identifiers that have a form; `fields` are names of fields with their labels, beside those that are known; `labels` None takes every rule, `filtered` false tries all of them at every place.
#[pyfunction]
#[pyo3(signature = (texts, labels=None, *, fields=None, common=None, num_threads=0, filtered=true))]
fn scan_rules(
    py: Python<'_>,
    texts: &Bound<'_, PyAny>,
    labels: Option<Vec<String>>,
    fields: Option<Vec<(String, String)>>,
    common: Option<PyRef<'_, PyCommonWords>>,
    num_threads: usize,
    filtered: bool,
) -> PyResult<ArrowBatch> {
    let texts = import_texts(texts, "text")?;
    let common = common.as_ref().map(|common| &common.common);
    let rows = fields.unwrap_or_default();
    let found =
        on_pool(py, num_threads, || Ok(located(&texts, scan(&texts, labels.as_deref(), &rows, common, filtered)?)))?;
    to_batch(&found, |source| {
        let rule = &RULES[source as usize];
        (rule.label, rule.name)
    })
}

/// Ends of spans, and which of them are kept.
type Refined<'py> = (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<bool>>);

/// Ends in characters and whether it is kept of each span of a category without a fixed form.
#[pyfunction]
#[pyo3(signature = (texts, documents, starts, ends, are_names, *, num_threads=0))]
fn refine_formless<'py>(
    py: Python<'py>,
    texts: &Bound<'py, PyAny>,
    documents: PyReadonlyArray1<'py, i64>,
    starts: PyReadonlyArray1<'py, i32>,
    ends: PyReadonlyArray1<'py, i32>,
    are_names: PyReadonlyArray1<'py, bool>,
    num_threads: usize,
) -> PyResult<Refined<'py>> {
    let texts = import_texts(texts, "text")?;
    let spans = Formless {
        documents: documents.as_slice()?,
        starts: starts.as_slice()?,
        ends: ends.as_slice()?,
        are_names: are_names.as_slice()?,
    };
    if [spans.starts.len(), spans.ends.len(), spans.are_names.len()] != [spans.documents.len(); 3] {
        return Err(to_py_err(Error::Corpus("columns of spans have different lengths".into())));
    }
    let (ends, kept): (Vec<i32>, Vec<bool>) = on_pool(py, num_threads, || refine(&texts, &spans))?.into_iter().unzip();
    Ok((PyArray1::from_vec(py, ends), PyArray1::from_vec(py, kept)))
}
