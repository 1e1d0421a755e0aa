//! The generated hospital for Python, as Arrow.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, LargeStringBuilder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::{ArrayRef, StringArray};
use arrow_schema::{DataType, Field, Fields};
use pyo3::prelude::*;

use super::index::batch;
use super::{ArrowBatch, to_py_err};
use crate::error::Error;
use crate::pool::pool;
use crate::synth::{Document, Language, Settings, documents, public, records};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(synth_documents, module)?)?;
    module.add_function(wrap_pyfunction!(synth_records, module)?)?;
    module.add_function(wrap_pyfunction!(synth_public, module)?)
}

fn settings(seed: u64, languages: &[String], words: usize, notes: f64, vocabulary: usize) -> PyResult<Settings> {
    if languages.is_empty() || words == 0 || notes < 1.0 {
        let message = "synth: expected at least one language, one word a document and one document an individual";
        return Err(to_py_err(Error::Policy(message.into())));
    }
    let languages = languages.iter().map(|name| Language::parse(name)).collect::<Result<_, _>>().map_err(to_py_err)?;
    Ok(Settings { seed, languages, words_per_document: words, documents_per_individual: notes, vocabulary })
}

/// Documents of individuals `first_individual .. first_individual + num_individuals`, in the columns of DOCUMENTS.
#[pyfunction]
#[pyo3(signature = (*, seed, first_individual, num_individuals, languages, words_per_document, documents_per_individual, vocabulary=0, num_threads=0))]
#[allow(clippy::too_many_arguments)]
fn synth_documents(
    py: Python<'_>,
    seed: u64,
    first_individual: u64,
    num_individuals: u64,
    languages: Vec<String>,
    words_per_document: usize,
    documents_per_individual: f64,
    vocabulary: usize,
    num_threads: usize,
) -> PyResult<ArrowBatch> {
    let settings = settings(seed, &languages, words_per_document, documents_per_individual, vocabulary)?;
    let threads = pool(num_threads).map_err(to_py_err)?;
    py.detach(|| {
        let documents = threads.install(|| documents(&settings, first_individual, num_individuals));
        let mut ids = StringBuilder::new();
        let mut individuals = StringBuilder::new();
        let mut households = StringBuilder::new();
        let mut labels = StringBuilder::new();
        let mut texts =
            LargeStringBuilder::with_capacity(documents.len(), documents.iter().map(|d| d.text.len()).sum());
        for document in &documents {
            ids.append_value(&document.doc_id);
            individuals.append_value(format!("p{:08}", document.individual));
            households.append_value(format!("h{:08}", document.household));
            labels.append_value(document.label);
            texts.append_value(&document.text);
        }
        batch(vec![
            ("doc_id", Arc::new(ids.finish())),
            ("individual_id", Arc::new(individuals.finish())),
            ("text", Arc::new(texts.finish())),
            ("household_id", Arc::new(households.finish())),
            ("label", Arc::new(labels.finish())),
            ("spans", spans_of(&documents)),
        ])
    })
}

/// Column `spans`: a list of start, end and label for each document.
fn spans_of(documents: &[Document]) -> ArrayRef {
    let fields: Fields = vec![
        Field::new("start", DataType::Int32, true),
        Field::new("end", DataType::Int32, true),
        Field::new("label", DataType::Utf8, true),
    ]
    .into();
    let mut spans = ListBuilder::new(StructBuilder::from_fields(fields, documents.len() * 16));
    for document in documents {
        let row = spans.values();
        for span in &document.spans {
            if let Some(builder) = row.field_builder::<Int32Builder>(0) {
                builder.append_value(span.start);
            }
            if let Some(builder) = row.field_builder::<Int32Builder>(1) {
                builder.append_value(span.end);
            }
            if let Some(builder) = row.field_builder::<StringBuilder>(2) {
                builder.append_value(span.label);
            }
            row.append(true);
        }
        spans.append(true);
    }
    Arc::new(spans.finish())
}

/// The record fields of these individuals.
#[pyfunction]
#[pyo3(signature = (*, seed, first_individual, num_individuals, languages, num_threads=0))]
fn synth_records(
    py: Python<'_>,
    seed: u64,
    first_individual: u64,
    num_individuals: u64,
    languages: Vec<String>,
    num_threads: usize,
) -> PyResult<ArrowBatch> {
    let settings = settings(seed, &languages, 1, 1.0, 0)?;
    let threads = pool(num_threads).map_err(to_py_err)?;
    py.detach(|| {
        let individuals = threads.install(|| records(&settings, first_individual, num_individuals));
        let date = |language, (year, month, day): (u32, u32, u32)| match language {
            Language::English => format!("{month:02}/{day:02}/{year}"),
            Language::French => format!("{day:02}/{month:02}/{year}"),
        };
        let column = |values: Vec<String>| Arc::new(StringArray::from(values)) as ArrayRef;
        batch(vec![
            ("individual_id", column(individuals.iter().map(|p| format!("p{:08}", p.individual)).collect())),
            ("household_id", column(individuals.iter().map(|p| format!("h{:08}", p.household)).collect())),
            ("first_name", column(individuals.iter().map(|p| p.first_name.clone()).collect())),
            ("last_name", column(individuals.iter().map(|p| p.last_name.clone()).collect())),
            ("birth_date", column(individuals.iter().map(|p| date(p.language, p.birth)).collect())),
            ("phone", column(individuals.iter().map(|p| p.phone.clone()).collect())),
            ("email", column(individuals.iter().map(|p| p.email.clone()).collect())),
            ("address", column(individuals.iter().map(|p| p.address.clone()).collect())),
            ("city", column(individuals.iter().map(|p| p.city.to_owned()).collect())),
            ("zip", column(individuals.iter().map(|p| p.zip.clone()).collect())),
            ("mrn", column(individuals.iter().map(|p| p.mrn.clone()).collect())),
            ("ssn", column(individuals.iter().map(|p| p.ssn.clone()).collect())),
        ])
    })
}

/// Public documents, columns doc_id, individual_id (the same) and text.
#[pyfunction]
#[pyo3(signature = (*, seed, first_document, num_documents, languages, words_per_document, num_threads=0))]
fn synth_public(
    py: Python<'_>,
    seed: u64,
    first_document: u64,
    num_documents: u64,
    languages: Vec<String>,
    words_per_document: usize,
    num_threads: usize,
) -> PyResult<ArrowBatch> {
    let settings = settings(seed, &languages, words_per_document, 1.0, 0)?;
    let threads = pool(num_threads).map_err(to_py_err)?;
    py.detach(|| {
        let texts = threads.install(|| public(&settings, first_document, num_documents));
        let ids: Vec<String> =
            (first_document..first_document + num_documents).map(|n| format!("public-{n:08}")).collect();
        batch(vec![
            ("doc_id", Arc::new(StringArray::from(ids.clone()))),
            ("individual_id", Arc::new(StringArray::from(ids))),
            ("text", Arc::new(arrow_array::LargeStringArray::from(texts))),
        ])
    })
}
