//! What the readers of hospitals' exports ask of the core: a search in bytes, and HL7 v2.

use std::borrow::Cow;

use memchr::memmem;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::text::hl7::{Signs, segments, unescape};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(has_any, module)?)?;
    module.add_function(wrap_pyfunction!(hl7_segments, module)?)?;
    module.add_function(wrap_pyfunction!(hl7_unescape, module)?)
}

/// Whether one of several short parts stands in the data.
#[pyfunction]
fn has_any(data: &[u8], parts: Vec<PyBackedBytes>) -> bool {
    parts.iter().any(|part| memmem::find(data, part).is_some())
}

type GivenSigns = (char, char, char, char, char);

fn signs_of((field, component, repetition, escape, subcomponent): GivenSigns) -> Signs {
    Signs { field, component, repetition, escape, subcomponent }
}

#[derive(IntoPyObject)]
enum Found<'a> {
    Segments(Vec<(Vec<Cow<'a, str>>, bool)>),
    Unclear(&'a str),
}

/// The fields of each segment that is read, and whether a line breaks in it where it must not; or the name of the segment
/// of which cannot be told whether it is text.
///
/// The lock is held: a message is mostly read in less time than a thread waits for it.
#[pyfunction]
fn hl7_segments(message: &str, signs: GivenSigns) -> Found<'_> {
    match segments(message, signs_of(signs)) {
        Ok(found) => Found::Segments(found.into_iter().map(|each| (each.fields, each.is_broken)).collect()),
        Err(name) => Found::Unclear(name),
    }
}

/// A field without its escapes.
#[pyfunction]
fn hl7_unescape(text: &str, signs: GivenSigns) -> Cow<'_, str> {
    unescape(text, signs_of(signs))
}
