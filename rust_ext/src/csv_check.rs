//! CSV: whether the bytes of a file are rows as RFC 4180 writes them, which the reader after it does not ask.
//!
//! A quote that is never closed makes text of the rows after it, up to the next quote of another document: it then stands
//! inside a value or before text, which no row may have. Where it happens to stand where a quote may, the file is
//! grammatical and nothing can tell; rows that hold lines like rows of their own are counted (`num_suspects`).
//!
//! Bytes come in blocks, cut anywhere. Memory: the row that is not yet whole. Quoted text is passed over by `memchr`.

use memchr::{memchr, memchr_iter, memchr2, memchr3};

use crate::error::{Error, Result};

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Before the first byte of a value.
    Start,
    Plain,
    Quoted,
    /// After a quote in a quoted value: it closes the value, or is the first of two.
    Quote,
}

pub struct CsvCheck {
    delimiter: u8,
    quote: Option<u8>,
    /// Longest row, in bytes.
    max_row: usize,
    /// Columns whose values tell a row from a line of text: ids.
    id_columns: Vec<usize>,
    state: State,
    /// The row that is being read, from its first byte.
    row: Vec<u8>,
    /// Bounds in `row` of its values that are whole, and where the one that is being read begins.
    values: Vec<(usize, usize)>,
    begin: usize,
    /// Whether a value of the row holds a newline.
    has_lines: bool,
    /// Rows that are whole; the first is the header.
    num_rows: u64,
    num_columns: usize,
    /// What the ids of the row before look like.
    looks_before: Vec<Looks>,
    num_suspects: u64,
    first_suspect: Option<u64>,
}

impl CsvCheck {
    pub fn new(delimiter: u8, quote: Option<u8>, max_row: usize, id_columns: Vec<usize>) -> Self {
        Self {
            delimiter,
            quote,
            max_row,
            id_columns,
            state: State::Start,
            row: Vec::new(),
            values: Vec::new(),
            begin: 0,
            has_lines: false,
            num_rows: 0,
            num_columns: 0,
            looks_before: Vec::new(),
            num_suspects: 0,
            first_suspect: None,
        }
    }

    /// Rows before the one that is being read, less the header: the number of the row that holds the next byte is one more.
    pub fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Rows with a value that holds a line like a row of its own, and the first of them.
    pub fn suspects(&self) -> (u64, Option<u64>) {
        (self.num_suspects, self.first_suspect)
    }

    /// Look at the next bytes.
    pub fn feed(&mut self, mut block: &[u8]) -> Result<()> {
        // Whole rows are looked at where they stand; only the last one of a block is copied.
        let mut held = std::mem::take(&mut self.row);
        if !held.is_empty() {
            let Some(end) = self.scan_row(&mut held, block)? else {
                self.row = held;
                return self.limit();
            };
            block = &block[end..];
        }
        let mut at = 0;
        while at < block.len() {
            let Some(end) = self.scan(&block[at..], 0)? else { break };
            self.close(&block[at..at + end]);
            at += end + 1;
        }
        held.clear();
        held.extend_from_slice(&block[at.min(block.len())..]);
        self.row = held;
        self.limit()
    }

    /// Go on with a row that began in an earlier block; the end of it in this one, behind its newline.
    fn scan_row(&mut self, held: &mut Vec<u8>, block: &[u8]) -> Result<Option<usize>> {
        let from = held.len();
        // Pieces, so that a block is not copied for the end of one row.
        let mut taken = 0;
        while taken < block.len() {
            let piece = &block[taken..block.len().min(taken + (1 << 12).max(from))];
            let scanned = held.len();
            held.extend_from_slice(piece);
            if let Some(end) = self.scan(held, scanned)? {
                self.close(&held[..end]);
                return Ok(Some(taken + end + 1 - scanned));
            }
            taken += piece.len();
        }
        Ok(None)
    }

    /// Say that there are no more bytes.
    pub fn finish(&mut self) -> Result<()> {
        if self.state == State::Quoted {
            return Err(self.error("a quoted value is not closed by the end of the file"));
        }
        let row = std::mem::take(&mut self.row);
        if !row.is_empty() {
            self.has_lines |= self.state == State::Quote && holds_lines(&row[self.begin..]);
            self.end_value(row.len());
            self.close(&row);
        }
        Ok(())
    }

    /// Scan a row from `at` on, up to the newline that ends it.
    fn scan(&mut self, row: &[u8], mut at: usize) -> Result<Option<usize>> {
        while at < row.len() {
            let byte = row[at];
            match self.state {
                State::Start if Some(byte) == self.quote => (self.state, at) = (State::Quoted, at + 1),
                State::Start => self.state = State::Plain,
                State::Plain => {
                    let Some(end) = self.end_of_plain(&row[at..]) else { return Ok(None) };
                    at += end;
                    if Some(row[at]) == self.quote {
                        return Err(self.error(
                            "a quote stands inside a value that does not begin with one; where quotes are part of the \
                             text, the value must be quoted and its quotes doubled, or set corpus.quote to none",
                        ));
                    }
                    if self.ended(row[at], at) {
                        return Ok(Some(at));
                    }
                    at += 1;
                }
                State::Quoted => {
                    let Some(more) = self.quote.and_then(|quote| memchr(quote, &row[at..])) else { return Ok(None) };
                    (self.state, at) = (State::Quote, at + more + 1);
                }
                State::Quote if Some(byte) == self.quote => (self.state, at) = (State::Quoted, at + 1),
                State::Quote => {
                    if !(byte == self.delimiter || byte == b'\n' || byte == b'\r') {
                        return Err(self.error(
                            "text follows the quote that closes a value: a quote before it may be missing, or a quote \
                             in the text is not doubled",
                        ));
                    }
                    self.has_lines |= holds_lines(&row[self.begin..at]);
                    if self.ended(byte, at) {
                        return Ok(Some(at));
                    }
                    at += 1;
                }
            }
        }
        Ok(None)
    }

    /// Where a value that is not quoted may end: at a delimiter, a newline, or a quote that must not be there.
    fn end_of_plain(&self, bytes: &[u8]) -> Option<usize> {
        let end = memchr3(self.delimiter, b'\n', self.quote.unwrap_or(b'\n'), bytes);
        memchr(b'\r', &bytes[..end.unwrap_or(bytes.len())]).or(end)
    }

    /// End the value at a delimiter or a newline; whether the row ends with it.
    fn ended(&mut self, byte: u8, at: usize) -> bool {
        self.end_value(at);
        byte != self.delimiter
    }

    fn end_value(&mut self, at: usize) {
        self.values.push((self.begin, at));
        (self.begin, self.state) = (at + 1, State::Start);
    }

    /// Count a row that is whole; a blank line is none.
    fn close(&mut self, row: &[u8]) {
        if !row.is_empty() {
            if self.num_rows == 0 {
                self.num_columns = self.values.len();
            } else if self.values.len() == self.num_columns && !self.id_columns.is_empty() {
                let looks = self.looks(row, &self.values, 0);
                if self.has_lines && self.holds_rows(row, &looks) {
                    self.num_suspects += 1;
                    self.first_suspect.get_or_insert(self.num_rows);
                }
                self.looks_before = looks;
            }
            self.num_rows += 1;
        }
        self.values.clear();
        (self.begin, self.has_lines) = (0, false);
    }

    /// What the ids look like in values at these places; of more values than columns, ids stand at the right by so many.
    fn looks(&self, row: &[u8], values: &[(usize, usize)], skipped: usize) -> Vec<Looks> {
        let of = |&column: &usize| {
            values.get(column + skipped).map_or_else(Looks::default, |&(from, to)| Looks::of(&row[from..to]))
        };
        self.id_columns.iter().map(of).collect()
    }

    /// Whether a line of a value, after its first, has the values of a row, and ids like those of the row it stands in or
    /// of the row before. There may be more values, as the text of a row that lost a quote holds delimiters. The last line
    /// goes on to the end of the row, as it would if the quote that closes it opened a value.
    fn holds_rows(&self, row: &[u8], looks: &[Looks]) -> bool {
        let alike = |found: &[Looks], wanted: &[Looks]| {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| a.is_like(b))
        };
        for &(from, to) in &self.values {
            let mut begins: Vec<usize> = memchr_iter(b'\n', &row[from..to]).map(|at| from + at + 1).collect();
            if begins.is_empty() {
                begins.extend(memchr_iter(b'\r', &row[from..to]).map(|at| from + at + 1));
            }
            for (number, &begin) in begins.iter().enumerate() {
                let end = begins.get(number + 1).map_or(row.len(), |&next| next - 1);
                let delimiters = || memchr_iter(self.delimiter, &row[begin..end]);
                let Some(more) = (delimiters().count() + 1).checked_sub(self.num_columns) else { continue };
                let ends = delimiters().map(|at| begin + at).chain([end]);
                let begins = std::iter::once(begin).chain(delimiters().map(|at| begin + at + 1));
                let values: Vec<(usize, usize)> = begins.zip(ends).collect();
                for skipped in [0, more] {
                    let found = self.looks(row, &values, skipped);
                    if alike(&found, looks) || alike(&found, &self.looks_before) {
                        return true;
                    }
                }
            }
        }
        false
    }

    fn limit(&self) -> Result<()> {
        if self.row.len() > self.max_row {
            let most = match self.max_row >> 20 {
                0 => format!("{} bytes", self.max_row),
                many => format!("{many} MiB"),
            };
            return Err(self.error(&format!("longer than {most}; is a quoted value not closed?")));
        }
        Ok(())
    }

    fn error(&self, what: &str) -> Error {
        Error::Corpus(match self.num_rows {
            0 => format!("header: {what}"),
            row => format!("row {row}: {what}"),
        })
    }
}

fn holds_lines(value: &[u8]) -> bool {
    memchr2(b'\n', b'\r', value).is_some()
}

/// What an id looks like: its signs but letters and digits, whether it has these, and its length.
#[derive(Default)]
struct Looks {
    signs: Vec<u8>,
    has_digits: bool,
    has_letters: bool,
    len: usize,
}

impl Looks {
    fn of(value: &[u8]) -> Self {
        let value = value.strip_suffix(b"\r").unwrap_or(value);
        let value = value.strip_prefix(b"\"").unwrap_or(value);
        let value = value.strip_suffix(b"\"").unwrap_or(value);
        let mut looks = Self { len: value.len(), ..Self::default() };
        // An id is short: text in its place is not looked through.
        for &byte in &value[..value.len().min(256)] {
            match byte {
                b'0'..=b'9' => looks.has_digits = true,
                b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => looks.has_letters = true,
                _ => looks.signs.push(byte),
            }
        }
        looks
    }

    fn is_like(&self, other: &Self) -> bool {
        let kinds = |looks: &Self| (looks.has_digits, looks.has_letters);
        self.len > 0 && self.len.abs_diff(other.len) <= 2 && kinds(self) == kinds(other) && self.signs == other.signs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows and suspects of a file, fed in blocks of so many bytes; the same for all sizes.
    fn check(file: &str) -> std::result::Result<(u64, u64), String> {
        let mut found = Vec::new();
        for size in [1, 2, 3, 7, 1 << 20] {
            let mut check = CsvCheck::new(b',', Some(b'"'), 1 << 20, vec![0, 1]);
            let fed = file.as_bytes().chunks(size).try_for_each(|block| check.feed(block));
            let ended = fed.and_then(|()| check.finish());
            found.push(match ended {
                Ok(()) => Ok((check.num_rows(), check.suspects().0)),
                Err(error) => Err(error.to_string().split([';', ':']).take(2).collect::<Vec<_>>().join(":")),
            });
        }
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{file:?}: {found:?}");
        found.remove(0)
    }

    #[test]
    fn rows_are_counted_as_rfc_4180_says() {
        for (file, rows) in [
            ("", 0),
            ("a,b,c", 1),
            ("a,b,c\n", 1),
            ("a,b\r\n1,2\r\n", 2),
            ("a,b\r1,2\r", 2),
            ("\n\na,b\n\n1,2\n\n", 2),
            ("a,b\n1,\"x\ny\"\n", 2),
            ("a,b\n1,\"x\r\n\r\ny\"\r\n2,\"\"\n", 3),
            ("a,b\n1,\"say \"\"x\"\", he\"\n", 2),
            ("a,b\n1,\"\"\"\"", 2),
            ("a,b\n\"\",\"\"\n", 2),
            ("a\n\"\"\n", 2),
        ] {
            assert_eq!(check(file).map(|found| found.0), Ok(rows), "{file:?}");
        }
    }

    #[test]
    fn quotes_that_no_row_may_have_are_named_by_row() {
        let inside = "a quote stands inside a value that does not begin with one";
        let after = "text follows the quote that closes a value";
        let open = "a quoted value is not closed by the end of the file";
        for (file, row, what) in [
            ("a,b\n1,2\n3,x\"\n", "row 2", inside),
            ("a,b\n1, \"x\"\n", "row 1", inside),
            ("a,b\n1,\"x\"y\n", "row 1", after),
            ("a,b\n1,\"x\n2,\"y\n", "row 1", after),
            ("a,b\n1,\"x\" \n", "row 1", after),
            ("a,b\n1,\"x\n\n2,y\n", "row 1", open),
            ("a\"b\n", "header", inside),
            ("\"a\n", "header", open),
        ] {
            assert_eq!(check(file).map_err(|e| e.to_string()), Err(format!("{row}: {what}")), "{file:?}");
        }
    }

    #[test]
    fn rows_inside_a_value_are_suspected() {
        let header = "doc,who,text\n";
        for (rows, suspects) in [
            ("d1,p1,\"x\nd2,p2,y\"\nd3,p3,z\n", 1),
            ("d1,p1,\"x\r\nd2,p2,y\r\nd3,p3,\"\r\n", 1),
            ("d0,p0,w\nd1,\"p1,x\nd2,p2\",y\n", 1),
            ("d1,p1,\"x\nsodium,140,high\"\n", 0),
            ("d1,p1,\"x\nd2,p2\"\n", 0),
            ("d1,p1,\"x\nd2,p2,y,z\"\n", 1),
            ("d1,p1,\"x\nd2, p2,y,z\"\n", 0),
            ("d1,p1,\"x\nd2 and p2,y,z\"\n", 0),
            ("d1,p1,\"x\n12,7,5\"\n", 0),
            ("d1,p1,\"d2,p2,y\"\n", 0),
        ] {
            assert_eq!(check(&format!("{header}{rows}")).map(|found| found.1), Ok(suspects), "{rows:?}");
        }
    }

    #[test]
    fn a_row_that_never_ends_is_refused_before_it_is_held() {
        let mut check = CsvCheck::new(b',', Some(b'"'), 100, vec![]);
        let fed: Result<()> = (0..50).try_for_each(|_| check.feed(b"\"2345678901234567890"));
        assert!(fed.is_err());
        let mut check = CsvCheck::new(b';', None, 100, vec![]);
        assert!((0..50).try_for_each(|_| check.feed(b"\"a\"b;\"\n")).is_ok());
        assert_eq!(check.num_rows(), 50);
    }
}
