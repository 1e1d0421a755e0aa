//! The generated hospital for Python, as Arrow.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int32Array, LargeStringArray, ListArray, StringArray, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;
use pyo3::prelude::*;

use super::index::batch;
use super::{ArrowBatch, to_py_err};
use crate::error::Error;
use crate::pool::pool;
use crate::synth::{Document, Language, Person, Settings, documents, public, records};

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
        let column = |value: fn(&Document) -> String| strings(documents.iter().map(value));
        let texts = LargeStringArray::from_iter_values(documents.iter().map(|document| &document.text));
        batch(vec![
            ("doc_id", column(|document| document.doc_id.clone())),
            ("individual_id", column(|document| format!("p{:08}", document.individual))),
            ("text", Arc::new(texts)),
            ("household_id", column(|document| format!("h{:08}", document.household))),
            ("label", column(|document| document.label.to_owned())),
            ("spans", spans_of(&documents)),
        ])
    })
}

fn strings(values: impl Iterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// Column `spans`: a list of start, end and label for each document.
fn spans_of(documents: &[Document]) -> ArrayRef {
    let spans = || documents.iter().flat_map(|document| &document.spans);
    let column = |name, array: ArrayRef| (Arc::new(Field::new(name, array.data_type().clone(), true)), array);
    let values = StructArray::from(vec![
        column("start", Arc::new(Int32Array::from_iter_values(spans().map(|span| span.start)))),
        column("end", Arc::new(Int32Array::from_iter_values(spans().map(|span| span.end)))),
        column("label", Arc::new(StringArray::from_iter_values(spans().map(|span| span.label)))),
    ]);
    let offsets = OffsetBuffer::from_lengths(documents.iter().map(|document| document.spans.len()));
    let item = Field::new_list_field(values.data_type().clone(), true);
    Arc::new(ListArray::new(Arc::new(item), offsets, Arc::new(values), None))
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
        let column = |value: fn(&Person) -> String| strings(individuals.iter().map(value));
        batch(vec![
            ("individual_id", column(|person| format!("p{:08}", person.individual))),
            ("household_id", column(|person| format!("h{:08}", person.household))),
            ("first_name", column(|person| person.first_name.clone())),
            ("last_name", column(|person| person.last_name.clone())),
            ("birth_date", column(|person| person.language.date(person.birth))),
            ("phone", column(|person| person.phone.clone())),
            ("email", column(|person| person.email.clone())),
            ("address", column(|person| person.address.clone())),
            ("city", column(|person| person.city.to_owned())),
            ("zip", column(|person| person.zip.clone())),
            ("mrn", column(|person| person.mrn.clone())),
            ("ssn", column(|person| person.ssn.clone())),
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
        let ids = strings((first_document..first_document + num_documents).map(|n| format!("public-{n:08}")));
        batch(vec![("doc_id", ids.clone()), ("individual_id", ids), ("text", Arc::new(LargeStringArray::from(texts)))])
    })
}
