//! Strings: many strings in one allocation.

#[derive(Clone, Default)]
pub struct Strings {
    bytes: String,
    /// String `i` is `bytes[ends[i - 1]..ends[i]]`.
    ends: Vec<u64>,
}

impl Strings {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_capacity(num: usize, num_bytes: usize) -> Self {
        Self { bytes: String::with_capacity(num_bytes), ends: Vec::with_capacity(num) }
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn push(&mut self, string: &str) {
        self.bytes.push_str(string);
        self.ends.push(self.bytes.len() as u64);
    }

    #[inline]
    pub fn get(&self, number: usize) -> &str {
        let start = if number == 0 { 0 } else { self.ends[number - 1] as usize };
        &self.bytes[start..self.ends[number] as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|number| self.get(number))
    }

    pub fn num_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 8
    }

    /// The strings from a number on, one after the other.
    pub fn starting_at(&self, number: usize) -> &str {
        let start = if number == 0 { 0 } else { self.ends[number - 1] as usize };
        &self.bytes[start..]
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
