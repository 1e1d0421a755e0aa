//! Pages of HTML for Python.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use rayon::prelude::*;

use super::to_py_err;
use crate::pool::pool;
use crate::text::html::html_text;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(html_texts, module)?)
}

/// The text of each page, which is in UTF-8; None of one in which too many elements stand in each other.
#[pyfunction]
#[pyo3(signature = (pages, *, num_threads=0))]
fn html_texts(py: Python<'_>, pages: Vec<PyBackedBytes>, num_threads: usize) -> PyResult<Vec<Option<String>>> {
    if let [page] = pages.as_slice() {
        return Ok(vec![py.detach(|| html_text(page))]);
    }
    let threads = pool(num_threads).map_err(to_py_err)?;
    Ok(py.detach(|| threads.install(|| pages.par_iter().map(|page| html_text(page)).collect())))
}
