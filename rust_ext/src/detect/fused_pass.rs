//! FusedPass: records and gazetteer in one pass over the texts.
//!
//! Both look up the pieces of one view of a text, which is folded and cut once. Each finds what it finds alone, and gives it in
//! the same order (tests compare them). Rules stay separate: they read another folding, and their tables and those of the
//! names push each other out of the caches; one pass for all three took a sixth longer than two.

use rayon::prelude::*;

use crate::detect::common::CommonWords;
use crate::detect::gazetteer::Gazetteer;
use crate::detect::records::{Records, by_unit};
use crate::error::Result;
use crate::text::pieces::View;
use crate::text::spans::Found;
use crate::text::surface::Surface;
use crate::text::texts::Texts;

/// Records with the individual of each document, and a list.
pub struct FusedPass<'a> {
    pub records: &'a Records,
    pub units: &'a [u32],
    pub common_of_records: Option<&'a CommonWords>,
    pub initials: bool,
    pub gazetteer: &'a Gazetteer,
    pub common_of_gazetteer: Option<&'a CommonWords>,
}

/// Spans of the records and of the gazetteer, each by document, then start.
pub type Parts = [Vec<Found>; 2];

impl FusedPass<'_> {
    pub fn find(&self, texts: &Texts) -> Result<Parts> {
        let order = by_unit(self.units, texts.len())?;
        let unit = |row: u32| self.units[row as usize];
        let groups: Vec<&[u32]> = order.chunk_by(|&a, &b| unit(a) == unit(b)).collect();
        let (surface, list) = (self.gazetteer.surface(), self.gazetteer.guarded(self.common_of_gazetteer));
        let common = self.common_of_records;
        let found: Vec<Parts> = groups
            .into_par_iter()
            .with_max_len(4)
            .map(|rows| {
                let profile = self.records.profile(unit(rows[0]), common);
                let mut parts = Parts::default();
                for &row in rows {
                    let text = texts.get(row as usize);
                    let view = View::new(text, surface);
                    parts[1].extend(list.find(row, &view));
                    if let Some(profile) = &profile {
                        let other = (surface != Surface::Fold).then(|| View::new(text, Surface::Fold));
                        let view = other.as_ref().unwrap_or(&view);
                        parts[0].extend(profile.found(row, view, common, self.initials));
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
