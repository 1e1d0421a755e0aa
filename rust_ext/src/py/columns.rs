//! Columns of documents, for Python: the strings of a Parquet file, checks of CSV and JSON, and what ids are.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use super::{ArrowBatch, import_array, import_texts, to_py_err};
use crate::csv_check::CsvCheck;
use crate::error::Error;
use crate::parquet::{ParquetFile, Rows};
use crate::{identity, ids, json_depth};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyParquetFile>()?;
    module.add_class::<PyParquetRows>()?;
    module.add_class::<PyCsvCheck>()?;
    module.add_class::<PyIdRows>()?;
    module.add("MISSING", ids::MISSING)?;
    module.add_function(wrap_pyfunction!(json_too_deep, module)?)?;
    module.add_function(wrap_pyfunction!(check_utf8, module)?)?;
    module.add_function(wrap_pyfunction!(blank_rows, module)?)?;
    module.add_function(wrap_pyfunction!(count_distinct, module)?)?;
    module.add_function(wrap_pyfunction!(sorted_codes, module)?)?;
    module.add("ID_DIFFERENCES", identity::DIFFERENCES.to_vec())?;
    module.add_function(wrap_pyfunction!(fold_ids, module)?)?;
    module.add_function(wrap_pyfunction!(id_groups, module)?)?;
    module.add_function(wrap_pyfunction!(hash_units, module)?)
}

/// A Parquet file whose columns of strings are read here.
#[pyclass(module = "reticent._rust", name = "ParquetFile", frozen)]
pub struct PyParquetFile(Arc<ParquetFile>);

#[pymethods]
impl PyParquetFile {
    /// None where pyarrow shall read the file, or say why it cannot be read.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> Option<Self> {
        py.detach(|| ParquetFile::open(&path)).map(|file| Self(Arc::new(file)))
    }

    /// Number of rows of each row group.
    #[getter]
    fn num_rows(&self) -> Vec<i64> {
        self.0.num_rows()
    }

    /// Rows of these row groups (None: all), of these columns; `large[c]`: with 64-bit offsets. None where pyarrow shall
    /// read them, or say what is wrong.
    #[pyo3(signature = (columns, *, large, row_groups=None))]
    fn read(&self, columns: Vec<String>, large: Vec<bool>, row_groups: Option<Vec<usize>>) -> Option<PyParquetRows> {
        let groups = row_groups.unwrap_or_else(|| (0..self.0.num_rows().len()).collect());
        let rows = self.0.read(&columns, &large, groups)?;
        let fields = columns.iter().zip(large).map(|(name, large)| {
            let kind = if large { DataType::LargeUtf8 } else { DataType::Utf8 };
            Field::new(name, kind, true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Some(PyParquetRows { rows: Mutex::new(rows), schema })
    }
}

/// Rows of a Parquet file, from the first to the last.
#[pyclass(module = "reticent._rust", name = "ParquetRows", frozen)]
pub struct PyParquetRows {
    rows: Mutex<Rows>,
    schema: Arc<Schema>,
}

#[pymethods]
impl PyParquetRows {
    /// The next rows, so many but at the end; None there. `CorpusError` where the file is broken.
    fn next(&self, py: Python<'_>, num_rows: usize) -> PyResult<Option<ArrowBatch>> {
        let read = py.detach(|| {
            let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(columns) = rows.next(num_rows)? else { return Ok(None) };
            RecordBatch::try_new(self.schema.clone(), columns)
                .map(Some)
                .map_err(|_| Error::Corpus("columns of other lengths".into()))
        });
        Ok(read.map_err(to_py_err)?.map(ArrowBatch))
    }
}

/// Whether the bytes of a CSV file, which come in blocks, are rows as RFC 4180 writes them.
#[pyclass(module = "reticent._rust", name = "CsvCheck")]
pub struct PyCsvCheck(CsvCheck);

#[pymethods]
impl PyCsvCheck {
    /// `delimiter` and `quote` are one byte; a row has at most `max_row` bytes; `id_columns` are numbers of columns.
    #[new]
    #[pyo3(signature = (*, delimiter, quote, max_row, id_columns))]
    fn new(delimiter: u8, quote: Option<u8>, max_row: usize, id_columns: Vec<usize>) -> Self {
        Self(CsvCheck::new(delimiter, quote, max_row, id_columns))
    }

    /// Look at the next bytes. `CorpusError` names row (1 is the first after the header) and what is wrong, and no file.
    fn feed(&mut self, py: Python<'_>, block: &[u8]) -> PyResult<()> {
        py.detach(|| self.0.feed(block)).map_err(to_py_err)
    }

    /// Say that there are no more bytes; `CorpusError` where a quoted value is open.
    fn finish(&mut self) -> PyResult<()> {
        self.0.finish().map_err(to_py_err)
    }

    /// Rows that are whole, the header among them.
    #[getter]
    fn num_rows(&self) -> u64 {
        self.0.num_rows()
    }

    /// How many rows hold a value with a line like a row of its own, and the first of them (1 is the first after the
    /// header).
    #[getter]
    fn suspects(&self) -> (u64, Option<u64>) {
        self.0.suspects()
    }
}

/// Where the first value begins that stands in more than `limit` others, or None.
#[pyfunction]
#[pyo3(signature = (json, *, limit))]
fn json_too_deep(py: Python<'_>, json: &[u8], limit: usize) -> Option<usize> {
    py.detach(|| json_depth::too_deep(json, limit))
}

/// The first row that is not valid UTF-8, or None.
#[pyfunction]
fn check_utf8(py: Python<'_>, texts: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let array = import_array(texts)?;
    Ok(py.detach(|| crate::text::texts::first_invalid(&array)))
}

/// Rows of strings (checked to be UTF-8; nulls allowed) that are empty or print nothing; int64.
#[pyfunction]
fn blank_rows<'py>(py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let array = import_array(ids)?;
    Ok(py.detach(|| ids::blank_rows(&array)).into_pyarray(py))
}

/// How many of these strings are distinct.
#[pyfunction]
fn count_distinct(py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<usize> {
    let ids = import_texts(ids, "id")?;
    Ok(py.detach(|| ids::count_distinct(&ids)))
}

/// The distinct strings in byte order (a batch of one column, `name`), and which of them each row holds (uint32).
#[pyfunction]
fn sorted_codes<'py>(py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<(ArrowBatch, Bound<'py, PyArray1<u32>>)> {
    let ids = import_texts(ids, "id")?;
    let (names, codes) = py.detach(|| {
        let (names, codes) = ids::sorted_codes(&ids);
        (Arc::new(StringArray::from_iter_values(names)) as ArrayRef, codes)
    });
    Ok((super::index::batch(vec![("name", names)])?, codes.into_pyarray(py)))
}

/// Distinct ids, whose rows are looked up.
#[pyclass(module = "reticent._rust", name = "IdRows", frozen)]
struct PyIdRows(ids::IdRows);

#[pymethods]
impl PyIdRows {
    #[new]
    fn new(py: Python<'_>, names: &Bound<'_, PyAny>) -> PyResult<Self> {
        let names = import_texts(names, "name")?;
        py.detach(|| ids::IdRows::new(&names)).map(Self).map_err(to_py_err)
    }

    /// The row that holds each id, uint32; `MISSING` where there is none.
    fn rows<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let ids = import_texts(ids, "id")?;
        Ok(py.detach(|| self.0.rows(&ids)).into_pyarray(py))
    }
}

/// The form of each id that ids are compared by (a batch of one column, `id`); nulls stay.
#[pyfunction]
fn fold_ids(py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<ArrowBatch> {
    let array = import_array(ids)?;
    let folded = py.detach(|| {
        let (mut form, mut forms) = (String::new(), StringBuilder::new());
        for id in ids::strings(&array) {
            form.clear();
            id.inspect(|id| identity::fold(id, &mut form));
            forms.append_option(id.map(|_| &form));
        }
        Arc::new(forms.finish()) as ArrayRef
    });
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Utf8, true)]));
    RecordBatch::try_new(schema, vec![folded])
        .map(ArrowBatch)
        .map_err(|error| to_py_err(Error::Corpus(error.to_string())))
}

type Groups<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u8>>);

/// Ids that fold to one another: the first row of each spelling, where each group of them begins, what differs in it.
#[pyfunction]
fn id_groups<'py>(py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Groups<'py>> {
    let array = import_array(ids)?;
    let found = py.detach(|| identity::groups(&array));
    Ok((found.rows.into_pyarray(py), found.bounds.into_pyarray(py), found.differences.into_pyarray(py)))
}

/// xxh3-64 of each string with a seed: stable for ever, so a split never changes.
#[pyfunction]
#[pyo3(signature = (ids, *, seed))]
fn hash_units<'py>(py: Python<'py>, ids: &Bound<'py, PyAny>, seed: u64) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let ids = import_texts(ids, "id")?;
    let hashes =
        (0..ids.len()).map(|row| xxhash_rust::xxh3::xxh3_64_with_seed(ids.get(row).as_bytes(), seed)).collect();
    Ok(PyArray1::from_vec(py, hashes))
}
