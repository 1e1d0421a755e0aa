//! A `tokenizer.json` is tried before anything relies on it, here or in Python's own tokenizers library, which is built from
//! the same crate: what the crate panics on ends in an error.

use pyo3::prelude::*;
use tokenizers::Tokenizer;

use super::to_py_err;
use crate::error::{Error, Result};
use crate::panic::survive;
use crate::tokenize::tokenizer_check::{check_expansion, fields_of, opened};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<LibraryTokenizer>()?;
    module.add_class::<TokenisedText>()?;
    module.add_function(wrap_pyfunction!(check_tokenizer, module)?)
}

/// A tokenizer as the crate has it, for few texts; documents go through `TokenEncoder`.
#[pyclass(module = "reticent._rust", frozen)]
pub struct LibraryTokenizer(Tokenizer);

/// The tokens of a text: ids, and the characters and the word of the library that each is.
#[pyclass(module = "reticent._rust", frozen, get_all)]
pub struct TokenisedText {
    ids: Vec<u32>,
    offsets: Vec<(usize, usize)>,
    word_ids: Vec<Option<u32>>,
}

#[pymethods]
impl LibraryTokenizer {
    #[new]
    fn new(py: Python<'_>, tokenizer_json: &str) -> PyResult<Self> {
        py.detach(|| survived(|| opened(tokenizer_json).map(Self))).map_err(to_py_err)
    }

    fn encode(&self, py: Python<'_>, texts: Vec<String>) -> PyResult<Vec<TokenisedText>> {
        let encode = || self.0.encode_batch_char_offsets(texts, false).map_err(failed("it fails on a text"));
        let encodings = py.detach(|| survived(encode)).map_err(to_py_err)?;
        let taken = encodings.iter().map(|encoding| TokenisedText {
            ids: encoding.get_ids().to_vec(),
            offsets: encoding.get_offsets().to_vec(),
            word_ids: encoding.get_word_ids().to_vec(),
        });
        Ok(taken.collect())
    }

    #[pyo3(signature = (rows, *, skip_special_tokens))]
    fn decode(&self, py: Python<'_>, rows: Vec<Vec<u32>>, skip_special_tokens: bool) -> PyResult<Vec<String>> {
        let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
        let decode = || self.0.decode_batch(&rows, skip_special_tokens).map_err(failed("its tokens cannot be decoded"));
        py.detach(|| survived(decode)).map_err(to_py_err)
    }
}

fn failed<E>(why: &'static str) -> impl Fn(E) -> Error {
    move |_| Error::Artifact(format!("tokenizer.json cannot be used ({why})"))
}

/// What a call of the tokenizers library returns, or an error where the library panics.
pub fn survived<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    survive(|| Error::Artifact("tokenizer.json cannot be used (the tokenizers library fails on it)".into()), call)
}

/// Of what documents hold, a little of everything.
const TRIALS: &[&str] = &[
    "",
    " ",
    "The patient, Mr. O'Neill (born 12/03/1948), was seen at 9:30 and said: \"It doesn't hurt any more\".\n\n\tHe left.",
    "naïve café, Ångström: 37,5 °C – “très bien” … 100 % ½ ﬁn e\u{301}",
    "山田太郎は東京で ทดสอบ кириллица עברית العربية हिन्दी 한국어",
    "👩‍👩‍👧 🇫🇷 \u{0} \u{ad}\u{200b}\u{feff}\u{e123}\u{10fffe} \r\n ▁Ġ</s>[MASK]<unk>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!!!!!!!!",
];

/// The largest vocabularies have a million tokens.
const MAX_ID: u32 = 1 << 24;

/// `ArtifactError` for a `tokenizer.json` (as text) that cannot be read, or that the library fails on with ordinary text.
#[pyfunction]
fn check_tokenizer(py: Python<'_>, tokenizer_json: &str) -> PyResult<()> {
    py.detach(|| survived(|| try_all(tokenizer_json))).map_err(to_py_err)
}

/// Ids too great for any memory, and two tokens of one id, of which a copy of the tokenizer keeps one.
fn check_ids(tokenizer: &Tokenizer) -> Result<()> {
    let largest = tokenizer.get_vocab(true).into_values().max().unwrap_or(0);
    if largest >= MAX_ID {
        return Err(Error::Artifact(format!("tokenizer.json has an id of {largest}, expected ids below {MAX_ID}")));
    }
    let mut ids: Vec<u32> = tokenizer.get_vocab(false).into_values().collect();
    let num_tokens = ids.len();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() < num_tokens {
        return Err(Error::Artifact(format!("tokenizer.json has {num_tokens} tokens and {} ids for them", ids.len())));
    }
    Ok(())
}

fn try_all(json: &str) -> Result<()> {
    let mut tokenizer = opened(json)?;
    check_expansion(&fields_of(json)?)?;
    check_ids(&tokenizer)?;
    for special in [true, false] {
        tokenizer.set_encode_special_tokens(special);
        for &text in TRIALS {
            for added in [true, false] {
                let encoding = tokenizer.encode(text, added).map_err(failed("it fails on ordinary text"))?;
                tokenizer.decode(encoding.get_ids(), added).map_err(failed("its tokens cannot be decoded"))?;
            }
        }
    }
    Ok(())
}
