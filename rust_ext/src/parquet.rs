//! Parquet: columns of strings of a file, a page at a time, and columns of numbers, a row group at a time.
//!
//! Documents and ids are strings, and an index reads nothing else, so they are read here: a page is unpacked once and its
//! strings go straight to the batch, in a third of the memory that pyarrow's reader takes. What this does not read (other
//! types, nested columns, rare codecs and encodings, encrypted or broken files) is pyarrow's, which also says what is wrong.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, GenericStringArray, OffsetSizeTrait};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use bytes::Bytes;
use parquet::basic::{Compression, ConvertedType, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::schema::types::Type;

use crate::error::{Error, Result};
use crate::panic::survive;

/// A file read at places that are named, so that many threads can: a file's own position is one for all of them.
struct Positioned {
    file: Arc<File>,
    len: u64,
}

struct At {
    file: Arc<File>,
    position: u64,
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Length for Positioned {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Positioned {
    type T = BufReader<At>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        // Headers of pages are read by it, of some 50 bytes.
        Ok(BufReader::with_capacity(512, At { file: self.file.clone(), position: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(ParquetError::EOF("a page lies beyond the end of the file".into()));
        }
        let mut buffer = vec![0; length];
        self.file.read_exact_at(&mut buffer, start)?;
        Ok(buffer.into())
    }
}

/// An open file, of which many threads can read different rows.
pub struct ParquetFile {
    reader: SerializedFileReader<Positioned>,
}

impl ParquetFile {
    /// None where pyarrow shall read the file, or say why it cannot be read.
    pub fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let len = file.metadata().ok()?.len();
        let file = Positioned { file: Arc::new(file), len };
        let reader = survive(broken, || SerializedFileReader::new(file).map_err(unreadable)).ok()?;
        Some(Self { reader })
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.reader.metadata()
    }

    /// Number of rows of each row group.
    pub fn num_rows(&self) -> Vec<i64> {
        self.metadata().row_groups().iter().map(|group| group.num_rows()).collect()
    }

    /// Number of rows, as the file says it of the whole.
    pub fn num_rows_of_all(&self) -> i64 {
        self.metadata().file_metadata().num_rows()
    }

    /// Where the column of this name stands, if it is not nested.
    fn leaf(&self, name: &str) -> Option<usize> {
        let columns = self.metadata().file_metadata().schema_descr().columns();
        columns.iter().position(|column| column.path().parts() == [name])
    }

    /// Where the columns of these names stand; None where one is missing, twice there, or not read here.
    fn find(&self, columns: &[String]) -> Option<Vec<usize>> {
        let schema = self.metadata().file_metadata().schema_descr();
        let roots = schema.root_schema().get_fields();
        columns
            .iter()
            .map(|name| {
                let mut named = roots.iter().filter(|field| field.name() == name);
                let (field, None) = (named.next()?, named.next()) else { return None };
                let leaf = self.leaf(name)?;
                let mut chunks = self.metadata().row_groups().iter().map(|group| group.column(leaf));
                (is_string(field) && chunks.all(is_known)).then_some(leaf)
            })
            .collect()
    }

    /// Read these columns of these row groups; `large[c]`: with 64-bit offsets. None where pyarrow shall.
    pub fn read(self: &Arc<Self>, columns: &[String], large: &[bool], groups: Vec<usize>) -> Option<Rows> {
        survive(broken, || Ok(self.rows_of(columns, large, groups))).ok()?
    }

    fn rows_of(self: &Arc<Self>, columns: &[String], large: &[bool], groups: Vec<usize>) -> Option<Rows> {
        if columns.is_empty() || groups.iter().any(|&group| group >= self.metadata().num_row_groups()) {
            return None;
        }
        let leaves = self.find(columns)?;
        let schema = self.metadata().file_metadata().schema_descr();
        let column = |(leaf, &is_large)| Column {
            leaf,
            is_large,
            has_nulls: schema.column(leaf).max_def_level() > 0,
            reader: None,
            levels: Vec::new(),
            values: Vec::new(),
        };
        let columns = leaves.into_iter().zip(large).map(column).collect();
        Some(Rows { file: self.clone(), groups: groups.into_iter(), columns, num_left: 0 })
    }

    /// All rows of a row group of columns of unsigned numbers of 32 bits, each as long as the others; None where one is missing, has
    /// another type or nulls, or cannot be read.
    pub fn read_numbers<const N: usize>(&self, columns: [&str; N], group: usize) -> Option<[Vec<u32>; N]> {
        survive(broken, || Ok(self.numbers_of(columns, group))).ok()?
    }

    fn numbers_of<const N: usize>(&self, columns: [&str; N], group: usize) -> Option<[Vec<u32>; N]> {
        let rows = self.reader.get_row_group(group).ok()?;
        let num_rows = usize::try_from(rows.metadata().num_rows()).ok()?;
        let schema = self.metadata().file_metadata().schema_descr();
        let mut read = [const { Vec::new() }; N];
        for (name, numbers) in columns.iter().zip(&mut read) {
            let leaf = self.leaf(name)?;
            let (about, chunk) = (schema.column(leaf), rows.metadata().column(leaf));
            // The library takes these for granted.
            let is_sound = chunk.num_values() == rows.metadata().num_rows()
                && chunk.compressed_size() >= 0
                && chunk.data_page_offset() >= 0
                && chunk.dictionary_page_offset().is_none_or(|at| at >= 0);
            if !is_sound {
                return None;
            }
            if about.max_def_level() > 0 || about.converted_type() != ConvertedType::UINT_32 {
                return None;
            }
            let ColumnReader::Int32ColumnReader(mut reader) = rows.get_column_reader(leaf).ok()? else { return None };
            let mut values = Vec::new();
            // In stretches: what a file says of itself makes no room for more.
            while values.len() < num_rows {
                let (_, num_read, _) =
                    reader.read_records((num_rows - values.len()).min(1 << 17), None, None, &mut values).ok()?;
                if num_read == 0 {
                    return None;
                }
            }
            *numbers = values.into_iter().map(|value| value as u32).collect();
        }
        Some(read)
    }
}

fn is_string(field: &Type) -> bool {
    let info = field.get_basic_info();
    let says_so = match info.logical_type_ref() {
        Some(logical) => matches!(logical, LogicalType::String),
        None => info.converted_type() == ConvertedType::UTF8,
    };
    let flat = info.has_repetition() && info.repetition() != Repetition::REPEATED;
    field.is_primitive() && field.get_physical_type() == Physical::BYTE_ARRAY && says_so && flat
}

fn is_known(chunk: &ColumnChunkMetaData) -> bool {
    use Compression::{GZIP, LZ4_RAW, SNAPPY, UNCOMPRESSED, ZSTD};
    let codec = matches!(chunk.compression(), UNCOMPRESSED | SNAPPY | GZIP(_) | LZ4_RAW | ZSTD(_));
    // Old writers set a dictionary's place to 0 where there is none.
    let place = chunk.dictionary_page_offset().is_none_or(|at| 0 < at && at < chunk.data_page_offset());
    codec && place && chunk.encodings().all(|encoding| is_plain(encoding) || is_of_levels(encoding))
}

/// As the strings are, or as their numbers in a dictionary.
fn is_plain(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY)
}

#[allow(deprecated)]
fn is_of_levels(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::RLE | Encoding::BIT_PACKED)
}

/// Pages that say of themselves what can be true. A broken one could name any number of strings, which the library makes
/// room for before it looks at them, and a process that asks for too much memory is ended.
struct Checked(Box<dyn PageReader>);

impl Checked {
    fn check(page: Page) -> parquet::errors::Result<Page> {
        let sound = match &page {
            // A string takes 4 bytes and its own.
            Page::DictionaryPage { buf, num_values, .. } => *num_values as usize <= buf.len() / 4,
            Page::DataPage { encoding, .. } | Page::DataPageV2 { encoding, .. } => is_plain(*encoding),
        };
        if sound { Ok(page) } else { Err(ParquetError::General("a page of more strings than bytes".into())) }
    }
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> parquet::errors::Result<Option<Page>> {
        self.0.get_next_page()?.map(Self::check).transpose()
    }

    fn peek_next_page(&mut self) -> parquet::errors::Result<Option<PageMetadata>> {
        self.0.peek_next_page()
    }

    fn skip_next_page(&mut self) -> parquet::errors::Result<()> {
        self.0.skip_next_page()
    }
}

impl Iterator for Checked {
    type Item = parquet::errors::Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// Rows of row groups, in order.
pub struct Rows {
    file: Arc<ParquetFile>,
    groups: std::vec::IntoIter<usize>,
    columns: Vec<Column>,
    /// Rows of the row group that is being read which are left.
    num_left: usize,
}

struct Column {
    /// Where it stands in the file.
    leaf: usize,
    /// Whether its offsets have 64 bits.
    is_large: bool,
    has_nulls: bool,
    /// Of the row group that is being read.
    reader: Option<ColumnReaderImpl<ByteArrayType>>,
    levels: Vec<i16>,
    values: Vec<ByteArray>,
}

impl Rows {
    /// The next rows, `num_rows` but at the end, wherever row groups begin: an array of strings for each column, of which
    /// not checked to be UTF-8. None at the end.
    pub fn next(&mut self, num_rows: usize) -> Result<Option<Vec<ArrayRef>>> {
        survive(broken, || self.read_next(num_rows))
    }

    fn read_next(&mut self, num_rows: usize) -> Result<Option<Vec<ArrayRef>>> {
        let mut num_read = 0;
        while num_read < num_rows && (self.num_left > 0 || self.open_group().map_err(unreadable)?) {
            let now = self.num_left.min(num_rows - num_read);
            self.columns.iter_mut().try_for_each(|column| column.read(now)).map_err(unreadable)?;
            self.num_left -= now;
            num_read += now;
        }
        if num_read == 0 {
            return Ok(None);
        }
        self.columns.iter_mut().map(|column| column.take(num_read)).collect::<Result<_>>().map(Some)
    }

    /// Open the next row group that has rows, if there is one.
    fn open_group(&mut self) -> parquet::errors::Result<bool> {
        while self.num_left == 0 {
            let Some(group) = self.groups.next() else { return Ok(false) };
            let rows = self.file.reader.get_row_group(group)?;
            self.num_left = usize::try_from(rows.metadata().num_rows())?;
            for column in &mut self.columns {
                let about = rows.metadata().column(column.leaf).column_descr_ptr();
                let pages = Box::new(Checked(rows.get_column_page_reader(column.leaf)?));
                column.reader = Some(ColumnReaderImpl::new(about, pages));
            }
        }
        Ok(true)
    }
}

impl Column {
    fn read(&mut self, num_rows: usize) -> parquet::errors::Result<()> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let num_before = self.values.len();
        let levels = self.has_nulls.then_some(&mut self.levels);
        let read = reader.read_records(num_rows, levels, None, &mut self.values)?;
        if read.0 != num_rows || !self.has_nulls && self.values.len() - num_before != num_rows {
            return Err(ParquetError::EOF("fewer rows than the file says".into()));
        }
        Ok(())
    }

    /// The rows that were read, as an array; pages whose last string was read are given back.
    fn take(&mut self, num_rows: usize) -> Result<ArrayRef> {
        let array = if self.is_large { self.strings::<i64>(num_rows) } else { self.strings::<i32>(num_rows) };
        self.levels.clear();
        self.values.clear();
        array
    }

    fn strings<O: OffsetSizeTrait>(&self, num_rows: usize) -> Result<ArrayRef> {
        let num_bytes = self.values.iter().map(ByteArray::len).sum();
        if O::from_usize(num_bytes).is_none() {
            return Err(Error::Corpus("a batch holds more than 2 GiB of one column; read fewer rows".into()));
        }
        let mut offsets = Vec::with_capacity(num_rows + 1);
        let mut bytes: Vec<u8> = Vec::with_capacity(num_bytes);
        let mut values = self.values.iter();
        offsets.push(O::usize_as(0));
        let mut take = |there: bool| {
            if let Some(value) = there.then(|| values.next()).flatten() {
                bytes.extend_from_slice(value.data());
            }
            offsets.push(O::usize_as(bytes.len()));
        };
        let mut nulls = None;
        if self.has_nulls {
            self.levels.iter().for_each(|&level| take(level > 0));
            nulls = Some(NullBuffer::from_iter(self.levels.iter().map(|&level| level > 0)));
        } else {
            (0..num_rows).for_each(|_| take(true));
        }
        let (offsets, bytes) = (OffsetBuffer::new(offsets.into()), Buffer::from_vec(bytes));
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        // SAFETY: the offsets ascend from 0 to the number of bytes, and there is one more of them than rows. The bytes come
        // from a file and may not be UTF-8, which Arrow asks for: nothing in this crate makes a `str` of them before `Texts`
        // has checked them, and Python receives the array over Arrow's C interface, which promises no check either.
        Ok(Arc::new(unsafe { GenericStringArray::<O>::new_unchecked(offsets, bytes, nulls) }))
    }
}

/// The reader's own message may quote the data.
fn unreadable(_: ParquetError) -> Error {
    broken()
}

/// A broken file may make the library panic, which is no reason for a caller to.
fn broken() -> Error {
    Error::Corpus("not valid parquet".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_cannot_be_true_are_refused() {
        let dictionary = |num_values| Page::DictionaryPage {
            buf: Bytes::from_static(&[0; 40]),
            num_values,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let strings = |encoding| Page::DataPage {
            buf: Bytes::new(),
            num_values: 0,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        assert!(Checked::check(dictionary(10)).is_ok());
        assert!(Checked::check(dictionary(11)).is_err());
        assert!(Checked::check(dictionary(u32::MAX)).is_err());
        assert!(Checked::check(strings(Encoding::PLAIN)).is_ok());
        assert!(Checked::check(strings(Encoding::DELTA_BYTE_ARRAY)).is_err());
    }
}
