//! Identifiers of the corpus: the real ones, which no surrogate should be, and new ids of documents and individuals.

use rayon::prelude::*;

use super::{Key, Manner, Spans, dates, values};
use crate::error::{Error, Result};
use crate::text::texts::Texts;

/// Hashes of the real identifiers in the spans, ascending: what surrogates should not be by chance. With them how many
/// dates can only be read day first, and month first.
pub fn real_identifiers(texts: &Texts, spans: &Spans, categories: &[String]) -> Result<(Vec<u64>, u64, u64)> {
    spans.check(texts.len(), categories.len())?;
    let manners: Vec<Manner> = categories.iter().map(|name| Manner::of(name)).collect();
    let names: Vec<bool> = manners.iter().map(|&manner| manner == Manner::Name).collect();
    let (mut hashes, day_first, month_first) = (0..texts.len())
        .into_par_iter()
        .map(|row| {
            let text = texts.get(row);
            let (mut hashes, mut dates) = (Vec::new(), Vec::new());
            for stretch in spans.stretches(row, text, false, &names)? {
                let value = &text[stretch.bytes];
                match manners[spans.categories[stretch.span] as usize] {
                    Manner::Name | Manner::Place | Manner::Organization => {
                        values::real_parts(value, false, |hash| hashes.push(hash));
                    }
                    Manner::Id | Manner::Phone => values::real_parts(value, true, |hash| hashes.push(hash)),
                    Manner::Date => dates.push(value),
                    _ => {}
                }
            }
            let (day_first, month_first) = dates::evident_orders(dates.into_iter());
            Ok::<_, Error>((hashes, day_first, month_first))
        })
        .try_reduce(
            || (Vec::new(), 0, 0),
            |mut a, b| {
                a.0.extend(b.0);
                Ok((a.0, a.1 + b.1, a.2 + b.2))
            },
        )?;
    hashes.sort_unstable();
    hashes.dedup();
    Ok((hashes, day_first, month_first))
}

/// Pseudonyms of ids: 16 hexadecimal digits under the key.
pub fn new_ids(ids: &Texts, key: &Key, purpose: &str) -> Vec<String> {
    (0..ids.len())
        .into_par_iter()
        .map(|row| {
            let mut stream = key.derive(&[purpose.as_bytes(), ids.get(row).as_bytes()]).stream(b'#', b"", 0);
            (0..16).map(|_| char::from_digit(stream.below(16) as u32, 16).unwrap_or('0')).collect()
        })
        .collect()
}
