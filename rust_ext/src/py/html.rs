//! Pages of HTML for Python.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::text::html::html_text;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(html_texts, module)?)?;
    module.add_function(wrap_pyfunction!(is_utf8, module)?)
}

/// Whether the data are UTF-8, which Python would tell by making a text of them.
#[pyfunction]
fn is_utf8(data: &[u8]) -> bool {
    simdutf8::basic::from_utf8(data).is_ok()
}

/// The text of each page, which is in UTF-8; None of one in which too many elements stand in each other.
///
/// Small pages come many in a call, since a thread that takes the lock again waits for it.
#[pyfunction]
fn html_texts(py: Python<'_>, pages: Vec<PyBackedBytes>) -> Vec<Option<String>> {
    py.detach(|| pages.iter().map(|page| html_text(page)).collect())
}
