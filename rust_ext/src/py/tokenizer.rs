//! A `tokenizer.json` is tried before anything relies on it, here or in Python's own tokenizers library, which is built from
//! the same crate: what the crate panics on ends in an error.

use pyo3::prelude::*;
use tokenizers::Tokenizer;

use super::to_py_err;
use crate::error::{Error, Result};
use crate::panic::survive;
use crate::tokenize::tokenizer_check::check_expansion;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(check_tokenizer, module)?)
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
    let fails = |what: &'static str| move |_| Error::Artifact(format!("tokenizer.json cannot be used ({what})"));
    let mut tokenizer: Tokenizer =
        json.parse().map_err(|error| Error::Artifact(format!("tokenizer.json cannot be read: {error}")))?;
    let parsed = serde_json::from_str(json).map_err(|_| Error::Artifact("tokenizer.json is not JSON".into()))?;
    check_expansion(&parsed)?;
    check_ids(&tokenizer)?;
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(fails("its truncation is wrong"))?;
    for special in [true, false] {
        tokenizer.set_encode_special_tokens(special);
        for &text in TRIALS {
            for added in [true, false] {
                let encoding = tokenizer.encode(text, added).map_err(fails("it fails on ordinary text"))?;
                tokenizer.decode(encoding.get_ids(), added).map_err(fails("its tokens cannot be decoded"))?;
            }
        }
    }
    Ok(())
}
