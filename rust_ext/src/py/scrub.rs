//! Scrubbing for Python: new texts and the map of offsets, as Arrow.

use std::sync::Arc;

use arrow_array::{Int64Array, LargeStringArray, StringArray, UInt8Array, UInt32Array};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::index::batch;
use super::{ArrowBatch, import_texts, on_pool, to_py_err};
use crate::error::Error;
use crate::scrub::{
    Avoid, Edit, Key, NamePool, Order, Scrubbed, Settings, Spans, Style, new_ids, real_identifiers, scrub,
};
use crate::text::spans::Spans as Bounds;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyNamePool>()?;
    module.add_function(wrap_pyfunction!(scrub_texts, module)?)?;
    module.add_function(wrap_pyfunction!(py_real_identifiers, module)?)?;
    module.add_function(wrap_pyfunction!(pseudonymise_ids, module)?)
}

/// Realistic names of which surrogates are drawn.
#[pyclass(module = "reticent._rust", name = "NamePool", frozen)]
pub struct PyNamePool(NamePool);

#[pymethods]
impl PyNamePool {
    #[new]
    fn new(
        women: &Bound<'_, PyAny>,
        men: &Bound<'_, PyAny>,
        surnames: &Bound<'_, PyAny>,
        places: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (women, men) = (import_texts(women, "women")?, import_texts(men, "men")?);
        let (surnames, places) = (import_texts(surnames, "surnames")?, import_texts(places, "places")?);
        Ok(Self(NamePool::new([&women, &men, &surnames, &places]).map_err(to_py_err)?))
    }
}

fn key_of(key: &[u8]) -> PyResult<Key> {
    let secret =
        key.try_into().map_err(|_| to_py_err(Error::Policy(format!("key: expected 32 bytes, got {}", key.len()))))?;
    Ok(Key::new(secret))
}

fn order_of(name: &str) -> PyResult<Order> {
    match name {
        "dmy" => Ok(Order::DayFirst),
        "mdy" => Ok(Order::MonthFirst),
        _ => Err(to_py_err(Error::Policy(format!("date order: expected dmy or mdy, got {name:?}")))),
    }
}

/// Documents with their spans replaced: a batch of texts (columns text and first_edit, where its edits begin), and a batch
/// of edits (old_start, old_end, new_start, new_end in characters, span = row of the span that gave the label, outcome).
#[pyfunction]
#[pyo3(signature = (texts, individuals, doc_ids, span_offsets, starts, ends, span_categories, categories, *, style, key,
    draw=0, shift_days=None, date_order="mdy", order_is_sure=false, avoid=None, names=None, num_threads=0))]
#[allow(clippy::too_many_arguments)]
fn scrub_texts(
    py: Python<'_>,
    texts: &Bound<'_, PyAny>,
    individuals: &Bound<'_, PyAny>,
    doc_ids: &Bound<'_, PyAny>,
    span_offsets: PyReadonlyArray1<'_, i64>,
    starts: PyReadonlyArray1<'_, i32>,
    ends: PyReadonlyArray1<'_, i32>,
    span_categories: PyReadonlyArray1<'_, u32>,
    categories: Vec<String>,
    style: &str,
    key: &[u8],
    draw: u64,
    shift_days: Option<u32>,
    date_order: &str,
    order_is_sure: bool,
    avoid: Option<PyReadonlyArray1<'_, u64>>,
    names: Option<&Bound<'_, PyNamePool>>,
    num_threads: usize,
) -> PyResult<(ArrowBatch, ArrowBatch)> {
    let texts = import_texts(texts, "text")?;
    let individuals = import_texts(individuals, "individual_id")?;
    let doc_ids = import_texts(doc_ids, "doc_id")?;
    if shift_days == Some(0) {
        return Err(to_py_err(Error::Policy("shift_days: expected at least 1".into())));
    }
    let bounds = Bounds { offsets: span_offsets.as_slice()?, starts: starts.as_slice()?, ends: ends.as_slice()? };
    let spans = Spans { bounds, categories: span_categories.as_slice()? };
    let settings = Settings {
        style: Style::parse(style).map_err(to_py_err)?,
        key: key_of(key)?,
        draw,
        shift_days,
        order: order_of(date_order)?,
        order_is_sure,
        avoid: Avoid(avoid.as_ref().map_or(Ok(&[][..]), |avoid| avoid.as_slice())?),
        names: names.map(|names| &names.get().0),
        categories: &categories,
    };
    let scrubbed = on_pool(py, num_threads, || scrub(&texts, &individuals, &doc_ids, &spans, &settings))?;
    columns_of(&scrubbed)
}

/// The two batches of [`scrub_texts`].
fn columns_of(scrubbed: &[Scrubbed]) -> PyResult<(ArrowBatch, ArrowBatch)> {
    let mut first = 0;
    let first_edits = scrubbed.iter().map(|document| {
        let edits = first;
        first += document.edits.len() as i64;
        edits
    });
    let firsts = Int64Array::from_iter_values(first_edits);
    let edits = || scrubbed.iter().flat_map(|document| &document.edits);
    let column = |value: fn(&Edit) -> u32| Arc::new(UInt32Array::from_iter_values(edits().map(value)));
    Ok((
        batch(vec![
            ("text", Arc::new(LargeStringArray::from_iter_values(scrubbed.iter().map(|document| &document.text)))),
            ("first_edit", Arc::new(firsts)),
        ])?,
        batch(vec![
            ("old_start", column(|edit| edit.old.start)),
            ("old_end", column(|edit| edit.old.end)),
            ("new_start", column(|edit| edit.new.start)),
            ("new_end", column(|edit| edit.new.end)),
            ("span", column(|edit| edit.span)),
            ("outcome", Arc::new(UInt8Array::from_iter_values(edits().map(|edit| edit.outcome)))),
        ])?,
    ))
}

/// Hashes of names and ids in the spans, ascending; and how many dates can only be read day first, and month first.
#[pyfunction(name = "real_identifiers")]
#[pyo3(signature = (texts, span_offsets, starts, ends, span_categories, categories, *, num_threads=0))]
#[allow(clippy::too_many_arguments)]
fn py_real_identifiers<'py>(
    py: Python<'py>,
    texts: &Bound<'py, PyAny>,
    span_offsets: PyReadonlyArray1<'py, i64>,
    starts: PyReadonlyArray1<'py, i32>,
    ends: PyReadonlyArray1<'py, i32>,
    span_categories: PyReadonlyArray1<'py, u32>,
    categories: Vec<String>,
    num_threads: usize,
) -> PyResult<(Bound<'py, PyArray1<u64>>, u64, u64)> {
    let texts = import_texts(texts, "text")?;
    let bounds = Bounds { offsets: span_offsets.as_slice()?, starts: starts.as_slice()?, ends: ends.as_slice()? };
    let spans = Spans { bounds, categories: span_categories.as_slice()? };
    let (hashes, day_first, month_first) = on_pool(py, num_threads, || real_identifiers(&texts, &spans, &categories))?;
    Ok((PyArray1::from_vec(py, hashes), day_first, month_first))
}

/// Keyed pseudonyms of ids, column `id`; ids of two purposes have nothing in common.
#[pyfunction]
#[pyo3(signature = (ids, *, key, purpose, num_threads=0))]
fn pseudonymise_ids(
    py: Python<'_>,
    ids: &Bound<'_, PyAny>,
    key: &[u8],
    purpose: &str,
    num_threads: usize,
) -> PyResult<ArrowBatch> {
    let ids = import_texts(ids, purpose)?;
    let key = key_of(key)?;
    let ids = on_pool(py, num_threads, || Ok(new_ids(&ids, &key, purpose)))?;
    batch(vec![("id", Arc::new(StringArray::from_iter_values(ids)))])
}
