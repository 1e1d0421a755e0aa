//! Everything Python sees, one file a subject; this file holds the module, the error map and the Arrow border.
//!
//! Arrays come in through the Arrow C data interface (any producer: pyarrow, polars, duckdb, Spark batches) or as NumPy
//! buffers, and leave the same way, without copies. Every kernel runs with the interpreter lock released.

pub mod columns;
pub mod copies;
pub mod detect;
pub mod exports;
pub mod html;
pub mod index;
pub mod index_tables;
pub mod learned;
pub mod parts;
pub mod read_words;
pub mod rules;
pub mod scrub;
pub mod store;
pub mod synth;
pub mod tokenizer;
pub mod tokens;
pub mod words;

use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, ffi};
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::{Error, Result};
use crate::pool::pool;
use crate::text::texts::Texts;

/// Map an error of the core to the Python exception of its kind.
pub fn to_py_err(error: Error) -> PyErr {
    let name = match &error {
        Error::Corpus(_) => "CorpusError",
        Error::Policy(_) => "PolicyError",
        Error::Artifact(_) => "ArtifactError",
        Error::Memory(message) => return PyMemoryError::new_err(message.clone()),
        Error::File(_) => "",
    };
    if let Error::File(error) = error {
        // With its number, by which callers know a full disk; of a number Python makes the right subclass.
        return match error.raw_os_error() {
            Some(number) => PyOSError::new_err((number, error.to_string())),
            None => error.into(),
        };
    }
    let message = error.to_string();
    Python::attach(|py| {
        let built = py
            .import("reticent.core.errors")
            .and_then(|module| module.getattr(name))
            .and_then(|class| class.call1((message.clone(),)));
        match built {
            Ok(exception) => PyErr::from_value(exception),
            Err(_) => PyRuntimeError::new_err(message),
        }
    })
}

/// What `work` returns, done by a pool of `num_threads` threads with the interpreter lock released.
pub fn on_pool<T: Send>(py: Python<'_>, num_threads: usize, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let threads = pool(num_threads).map_err(to_py_err)?;
    py.detach(|| threads.install(work)).map_err(to_py_err)
}

/// Import one array from any object with `__arrow_c_array__`.
pub fn import_array(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let capsules = object.call_method0("__arrow_c_array__")?;
    let schema = capsules.get_item(0)?;
    let schema = schema.cast::<PyCapsule>()?;
    let array = capsules.get_item(1)?;
    let array = array.cast::<PyCapsule>()?;
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<ffi::FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<ffi::FFI_ArrowArray>();
    // SAFETY: `pointer_checked` has seen that the capsules are named `arrow_schema` and `arrow_array`, and by the Arrow PyCapsule
    // protocol a capsule of such a name holds a live struct of that kind (this is the trust in the producer that every consumer
    // of the protocol has). The array is moved out, which the protocol allows once, and an empty, released one is left behind,
    // so the capsule's destructor releases nothing twice. The interpreter lock is held: no other thread moves it out meanwhile.
    let data = unsafe {
        let array = std::ptr::replace(array.as_ptr(), ffi::FFI_ArrowArray::empty());
        ffi::from_ffi(array, schema.as_ref())
    }
    .map_err(|error| to_py_err(Error::Corpus(format!("not a readable Arrow array: {error}"))))?;
    Ok(arrow_array::make_array(data))
}

/// Import a column of documents: strings without nulls, checked to be UTF-8.
pub fn import_texts(object: &Bound<'_, PyAny>, column: &str) -> PyResult<Texts> {
    let array = import_array(object)?;
    Texts::new(&array, column).map_err(to_py_err)
}

/// A record batch on its way to Python; `pyarrow.record_batch(x)` or `polars.from_arrow(x)` take it without a copy.
#[pyclass(module = "reticent._rust", name = "ArrowBatch", frozen)]
pub struct ArrowBatch(pub RecordBatch);

#[pymethods]
impl ArrowBatch {
    /// The Arrow PyCapsule protocol; a batch can be exported any number of times.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let array = StructArray::from(self.0.clone());
        let (array, schema) =
            ffi::to_ffi(&array.to_data()).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
        Ok((schema, array))
    }
}

#[pymodule]
#[pyo3(name = "_rust")]
fn rust_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    crate::panic::install_hook();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<ArrowBatch>()?;
    columns::register(module)?;
    words::register(module)?;
    index::register(module)?;
    parts::register(module)?;
    tokenizer::register(module)?;
    tokens::register(module)?;
    detect::register(module)?;
    exports::register(module)?;
    html::register(module)?;
    learned::register(module)?;
    read_words::register(module)?;
    rules::register(module)?;
    copies::register(module)?;
    scrub::register(module)?;
    store::register(module)?;
    synth::register(module)
}
