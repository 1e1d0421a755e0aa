//! FusedPass: records, alone or with a gazetteer, in one pass over the texts.
//!
//! Both look up the pieces of one view of a text, which is folded and cut once. Each finds what it finds alone, and gives it in
//! the same order (tests compare them). Rules stay separate: they read another folding, and their tables and those of the
//! names push each other out of the caches; one pass for all three took a sixth longer than two.

use rayon::prelude::*;

use crate::detect::common::CommonWords;
use crate::detect::gazetteer::Gazetteer;
use crate::detect::records::Records;
use crate::error::{Error, Result};
use crate::text::pieces::View;
use crate::text::spans::Found;
use crate::text::surface::Surface;
use crate::text::texts::Texts;

/// Records with the individual of each document, and a list with its own common words.
pub struct FusedPass<'a> {
    pub records: &'a Records,
    pub units: &'a [u32],
    pub common: Option<&'a CommonWords>,
    pub initials: bool,
    pub gazetteer: Option<(&'a Gazetteer, Option<&'a CommonWords>)>,
}

/// Spans of the records and of the gazetteer, each by document, then start.
pub type Parts = [Vec<Found>; 2];

impl FusedPass<'_> {
    pub fn find(&self, texts: &Texts) -> Result<Parts> {
        let Self { units, common, .. } = *self;
        if units.len() != texts.len() {
            return Err(Error::Corpus("records: one individual is needed for each document".into()));
        }
        let unit = |row: u32| units[row as usize];
        let mut order: Vec<u32> = (0..texts.len() as u32).collect();
        order.sort_by_key(|&row| unit(row));
        let groups: Vec<&[u32]> = order.chunk_by(|&a, &b| unit(a) == unit(b)).collect();
        let list = self.gazetteer.map(|(gazetteer, common)| (gazetteer.surface(), gazetteer.guarded(common)));
        let found: Vec<Parts> = groups
            .into_par_iter()
            .with_max_len(4)
            .map(|rows| {
                let profile = self.records.profile(unit(rows[0]), common);
                let mut parts = Parts::default();
                for &row in rows {
                    let (text, mut folded) = (texts.get(row as usize), None);
                    if let Some((surface, list)) = &list {
                        let view = View::new(text, *surface);
                        parts[1].extend(list.find(row, &view));
                        folded = Some(view).filter(|_| *surface == Surface::Fold);
                    }
                    if let Some(profile) = &profile {
                        let view = folded.unwrap_or_else(|| View::new(text, Surface::Fold));
                        parts[0].extend(profile.found(row, &view, common, self.initials));
                    }
                }
                parts
            })
            .collect();
        let mut all = Parts::default();
        for parts in found {
            all.iter_mut().zip(parts).for_each(|(all, part)| all.extend(part));
        }
        for part in &mut all {
            part.sort_by_key(|found| found.document); // stable: each document's spans stand in order
        }
        Ok(all)
    }
}
