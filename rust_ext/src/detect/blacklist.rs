//! Blacklist: surfaces of direct identifiers that are protected beyond the span that showed them, less the characters in
//! them that print nothing: `Dupont` with a zero-width space in it is `Dupont`.
//!
//! A bare number of up to three digits is not spread: it stays protected where it stands. `06 12 34 56 78` would otherwise
//! protect every "12" of the corpus and `12 rue des Lilas` every "12" of the individual (bare numbers are
//! protected by occurrence: definitions.md#identifiers). A surface that is too common to identify anybody spreads over its
//! individual's documents at most: one web address would otherwise protect every "the".

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use rayon::prelude::*;

use crate::error::Result;
use crate::index::ngram_index::NgramIndex;
use crate::pool::rows;
use crate::storage::intern::Interner;
use crate::text::spans::check_mask;
use crate::text::surface::Surface;
use crate::text::texts::Texts;
use crate::text::words::Words;

pub struct Blacklist {
    surface: Surface,
    words: Interner,
    /// It says what is too common; without it nothing is.
    index: Option<Arc<NgramIndex>>,
    /// Ids protected wherever they stand.
    everywhere: HashSet<u32, FixedState>,
    /// (unit, id) protected in all documents of that unit.
    of_unit: HashSet<(u32, u32), FixedState>,
}

impl Blacklist {
    pub fn new(surface: Surface, index: Option<Arc<NgramIndex>>) -> Self {
        Self { surface, words: Interner::default(), index, everywhere: HashSet::default(), of_unit: HashSet::default() }
    }

    fn is_widespread(&self, surface: &str) -> bool {
        self.index.as_ref().is_some_and(|index| index.has_widespread(surface))
    }

    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Add the masked words: for the whole corpus, or for the unit of their document.
    pub fn add(&mut self, texts: &Texts, words: &Words, mask: &[u8], units: &[u32], everywhere: bool) -> Result<()> {
        words.check(texts.len())?;
        check_mask(words, mask)?;
        for (row, &unit) in units.iter().enumerate().take(texts.len()) {
            let text = texts.get(row);
            let (from, to) = words.of(row);
            let first = words.first(row);
            for word in 0..from.len() {
                if mask[first + word] == 0 {
                    continue;
                }
                let surface = self.surface.apply_to_seen(&text[from[word] as usize..to[word] as usize]);
                if is_small_number(&surface) {
                    continue;
                }
                let id = self.words.intern(&surface);
                if everywhere && !self.is_widespread(&surface) {
                    self.everywhere.insert(id);
                } else {
                    self.of_unit.insert((unit, id));
                }
            }
        }
        Ok(())
    }

    /// Every surface on the list, in byte order, and whether it is protected wherever it stands.
    pub fn surfaces(&self) -> Vec<(&str, bool)> {
        let number = |id: u32| (self.words.word(id), self.everywhere.contains(&id));
        let mut surfaces: Vec<(&str, bool)> = (0..self.words.len() as u32).map(number).collect();
        surfaces.sort_unstable();
        surfaces
    }

    /// Protect surfaces, as [`Blacklist::surfaces`] has them, wherever they stand, but those that are too common.
    pub fn add_surfaces(&mut self, surfaces: &Texts) {
        for surface in (0..surfaces.len()).map(|row| surfaces.get(row)) {
            if !self.is_widespread(surface) {
                self.everywhere.insert(self.words.intern(surface));
            }
        }
    }

    /// 1 for each word on the list.
    pub fn find(&self, texts: &Texts, words: &Words, units: &[u32]) -> Result<Vec<u8>> {
        words.check(texts.len())?;
        let parts: Vec<Vec<u8>> = rows(texts.len())
            .map(|row| {
                let text = texts.get(row);
                let (from, to) = words.of(row);
                let listed = |(&start, &end): (&u32, &u32)| {
                    let surface = self.surface.apply_to_seen(&text[start as usize..end as usize]);
                    self.words
                        .find(&surface)
                        .is_some_and(|id| self.everywhere.contains(&id) || self.of_unit.contains(&(units[row], id)))
                };
                from.iter().zip(to).map(|bounds| u8::from(listed(bounds))).collect()
            })
            .collect();
        Ok(parts.concat())
    }
}

/// Whether a surface is a bare number so short that it says nothing outside its span.
pub fn is_small_number(surface: &str) -> bool {
    surface.chars().count() <= 3 && surface.chars().all(char::is_numeric)
}
