//! Together: rules, records and gazetteer in one pass over the texts.
//!
//! A text is read once: its escapes are looked for once, and it is folded and cut once for all that look names up. Each of the
//! three finds what it finds alone, and gives it in the same order (tests compare them).

use rayon::prelude::*;

use crate::detect::common::CommonWords;
use crate::detect::gazetteer::Gazetteer;
use crate::detect::records::{Records, by_unit};
use crate::error::Result;
use crate::rules::Wanted;
use crate::text::escapes::{seen, unescape_seen};
use crate::text::pieces::View;
use crate::text::spans::Found;
use crate::text::surface::Surface;
use crate::text::texts::Texts;

/// Records, with the individual of each document.
pub struct OwnRecords<'a> {
    pub records: &'a Records,
    pub units: &'a [u32],
    pub common: Option<&'a CommonWords>,
    pub initials: bool,
}

/// What to look for; each part may be missing.
#[derive(Default)]
pub struct Together<'a> {
    pub rules: Option<Wanted<'a>>,
    pub records: Option<OwnRecords<'a>>,
    pub gazetteer: Option<(&'a Gazetteer, Option<&'a CommonWords>)>,
}

/// Spans of the rules, of the records and of the gazetteer, each by document, then start.
pub type Parts = [Vec<Found>; 3];

impl Together<'_> {
    pub fn scan(&self, texts: &Texts) -> Result<Parts> {
        let order = match &self.records {
            Some(own) => by_unit(own.units, texts.len())?,
            None => (0..texts.len() as u32).collect(),
        };
        let unit = |row: u32| self.records.as_ref().map_or(row, |own| own.units[row as usize]);
        let groups: Vec<&[u32]> = order.chunk_by(|&a, &b| unit(a) == unit(b)).collect();
        let gazetteer = self.gazetteer.map(|(list, common)| (list.surface(), list.guarded(common)));
        let found: Vec<Parts> = groups
            .into_par_iter()
            .with_max_len(4)
            .map(|rows| {
                let own = self.records.as_ref();
                let profile = own.and_then(|own| Some((own, own.records.profile(unit(rows[0]), own.common)?)));
                let mut parts = Parts::default();
                for &row in rows {
                    let text = texts.get(row as usize);
                    let seen = seen(text.as_bytes());
                    let unescaped = unescape_seen(text, seen);
                    if let Some(rules) = &self.rules {
                        parts[0].extend(rules.find((row, text), seen, unescaped.as_ref()));
                    }
                    let surface = gazetteer.as_ref().map(|(surface, _)| *surface);
                    let Some(first) = surface.or(profile.as_ref().map(|_| Surface::Fold)) else { continue };
                    let view = View::of(text, unescaped, first);
                    if let Some((_, list)) = &gazetteer {
                        parts[2].extend(list.find(row, &view));
                    }
                    if let Some((own, profile)) = &profile {
                        let other = (first != Surface::Fold).then(|| View::new(text, Surface::Fold));
                        let view = other.as_ref().unwrap_or(&view);
                        parts[1].extend(profile.found(row, view, own.common, own.initials));
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
