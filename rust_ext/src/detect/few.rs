//! Few: in how many documents a word stands, as far as that must be told.

/// Documents with a word in small letters, up to 255, and in the other three bytes the number of the last of them: a thread
/// that counts sees each of its documents once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Documents(u32);

impl Documents {
    const LAST: u32 = 0xff_ffff;

    /// One document, with a number from 1 on.
    pub fn one(number: u32) -> Self {
        Self((1 << 24) | (number % Self::LAST + 1))
    }

    pub fn num(self) -> u32 {
        self.0 >> 24
    }

    /// Those of a thread, with the next one of it.
    #[inline]
    pub fn then(self, other: Self) -> Self {
        // Without a branch, which a processor could not foresee.
        let is_next = u32::from(other.0 != 0) & u32::from((self.0 ^ other.0) & Self::LAST != 0);
        let last = if other.0 == 0 { self.0 } else { other.0 } & Self::LAST;
        Self((self.num() + is_next).min(255) << 24 | last)
    }

    /// Those of two threads.
    pub fn merged(self, other: Self) -> Self {
        Self((self.num() + other.num()).min(255) << 24)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_threads_add_up() {
        let thread = |numbers: &[u32]| numbers.iter().fold(Documents::default(), |all, &n| all.then(Documents::one(n)));
        assert_eq!(thread(&[1, 1, 2, 2, 2, 5]).num(), 3);
        assert_eq!(thread(&[1, 2]).merged(thread(&[1, 2, 3])).num(), 5);
        assert_eq!(thread(&(1..400).collect::<Vec<_>>()).num(), 255);
    }
}
