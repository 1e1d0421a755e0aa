//! What the readers of hospitals' exports ask of the core: the bytes of many files, a search in bytes, and HL7 v2.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use memchr::memmem;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::text::hl7::{Signs, segments, unescape};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(read_files, module)?)?;
    module.add_function(wrap_pyfunction!(has_any, module)?)?;
    module.add_function(wrap_pyfunction!(hl7_segments, module)?)?;
    module.add_function(wrap_pyfunction!(hl7_unescape, module)?)
}

/// The bytes of each file, of a longer one the first `most`.
///
/// Small files come many in a call, since a thread that takes the lock again waits for it.
#[pyfunction]
fn read_files(py: Python<'_>, files: Vec<PathBuf>, most: u64) -> PyResult<Vec<Bound<'_, PyBytes>>> {
    let read = |file: &PathBuf| read_bytes(file, most).map_err(|error| (error, file.clone()));
    let contents: Result<Vec<_>, _> = py.detach(|| files.iter().map(read).collect());
    match contents {
        Ok(contents) => Ok(contents.into_iter().map(|content| PyBytes::new(py, &content)).collect()),
        Err((error, file)) => Err(PyOSError::new_err((error.raw_os_error(), error.to_string(), file))),
    }
}

fn read_bytes(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let opened = File::open(file)?;
    let mut content = Vec::with_capacity(opened.metadata()?.len().min(most) as usize + 1);
    opened.take(most).read_to_end(&mut content)?;
    Ok(content)
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
