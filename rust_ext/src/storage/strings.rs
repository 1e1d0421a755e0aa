//! Strings: many strings in one allocation.
//!
//! A `Vec<String>` costs 24 bytes and an allocation for each string. Here a string costs its bytes and 4 more: the low 32 bits of
//! its end. The high bits change once in 4 GiB of strings; `wraps` stores the few positions where they do.

/// Bits of an end that are kept for every string; few in tests, so that these come past them.
const LOW_BITS: u32 = if cfg!(test) { 6 } else { 32 };

#[derive(Clone, Default)]
pub struct Strings {
    bytes: String,
    /// The low bits of where each string ends; it begins where the one before it ends.
    ends: Vec<u32>,
    /// The first string that ends at `1 << LOW_BITS` or beyond, at twice that, and so on.
    wraps: Vec<usize>,
}

impl Strings {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_capacity(num: usize, num_bytes: usize) -> Self {
        Self { bytes: String::with_capacity(num_bytes), ends: Vec::with_capacity(num), wraps: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn push(&mut self, string: &str) {
        self.bytes.push_str(string);
        let end = self.bytes.len() as u64;
        self.wraps.resize((end >> LOW_BITS) as usize, self.ends.len());
        self.ends.push((end & ((1 << LOW_BITS) - 1)) as u32);
    }

    /// Where a string begins: the end of the one before it.
    #[inline]
    fn start(&self, number: usize) -> usize {
        let Some(before) = number.checked_sub(1) else { return 0 };
        let above = match &self.wraps[..] {
            [] => 0,
            wraps => wraps.partition_point(|&first| first <= before) as u64,
        };
        (above << LOW_BITS | u64::from(self.ends[before])) as usize
    }

    #[inline]
    pub fn get(&self, number: usize) -> &str {
        &self.bytes[self.start(number)..self.start(number + 1)]
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|number| self.get(number))
    }

    pub fn num_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 4
    }

    /// The strings from a number on, one after the other.
    pub fn starting_at(&self, number: usize) -> &str {
        &self.bytes[self.start(number)..]
    }

    /// All strings one after the other.
    pub fn as_str(&self) -> &str {
        &self.bytes
    }

    /// The number of a string in strings that are in byte order.
    pub fn find_sorted(&self, string: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle).cmp(string) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

impl<'a> FromIterator<&'a str> for Strings {
    fn from_iter<I: IntoIterator<Item = &'a str>>(strings: I) -> Self {
        let mut all = Self::new();
        for string in strings {
            all.push(string);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_wherever_they_end() {
        let expected: Vec<String> = (0..500).map(|number| "é".repeat(number * 7 % 90)).collect();
        let strings: Strings = expected.iter().map(String::as_str).collect();
        assert!(strings.wraps.len() > 500, "ends are past the low bits");
        assert!(strings.iter().eq(expected.iter().map(String::as_str)));
        assert_eq!(strings.starting_at(498), expected[498..].concat());
    }
}
