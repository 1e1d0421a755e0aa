//! Part: the documents of a builder as a part of more documents than one machine holds (`index::parts`).

use super::IndexBuilder;
use super::documents::{Documents, Numbered, Words};
use super::unite::United;
use crate::error::Result;
use crate::index::counts::Counted;
use crate::index::levels::Share;
use crate::index::ngram_index::check_min_support;
use crate::index::parts::Part;

impl IndexBuilder {
    /// Phases 2 to 4; the builder is used up. `min_support` is that of the index of all documents: nothing is pruned here.
    /// Where there is a subset, its units alone are counted, and the n-grams of the others are looked up in all.
    pub fn finish_part(self, min_support: u32) -> Result<Part> {
        check_min_support(min_support)?;
        self.check_complete()?;
        let United { runs, numbers, mut counted, .. } = self.unite(1)?;
        let documents = Documents::new(runs);
        let (shares, num_of_subset) = documents.shares(1);
        self.count_rest(&documents, &shares, num_of_subset, 1, &numbers, &mut counted)?;
        let has_subset = !self.subset.is_empty();
        let (num_units, num_documents) = documents.size(has_subset);
        let (mut lens, mut units, mut stream) = (Vec::new(), Vec::new(), Vec::new());
        let mut num_counted = 0;
        if self.max_n > 1 {
            for (number, share) in shares.into_iter().enumerate() {
                num_counted += if !has_subset || number < num_of_subset { share.len() } else { 0 };
                let words = Words { streams: &documents.streams, numbers: &numbers, last: true };
                Numbered { share, words }.documents(|unit, ids| {
                    lens.push(ids.len() as u32);
                    units.push(unit);
                    stream.extend(ids.iter().map(|&id| id + 1));
                    Ok(())
                })?;
            }
        }
        let Counted { words, whole, subset } = counted;
        let mut counts = if has_subset { subset } else { whole };
        counts.resize(words.len());
        Ok(Part {
            max_n: self.max_n,
            surface: self.surface,
            min_support,
            num_units,
            num_documents,
            n: 1,
            num_counted,
            lens,
            units,
            stream,
            words,
            occurrences: counts.occurrences,
            support: counts.support,
            levels: Vec::new(),
            open: (Vec::new(), Vec::new()),
            globals: Vec::new(),
        })
    }
}
