//! Packing: the numbers of a page with as few bits each as the largest of them needs.
//!
//! Each number is stored as its difference from the smallest of the page. All have the same width, lowest bits first. So the
//! position of a number gives the bit where it begins, and a range is read without the numbers before it. A code of variable length
//! might take fewer bits, but documents are read at random, and each read would have to decode its page from the beginning.

/// Numbers a page can hold.
///
/// # Safety
/// Pages are made of u64 words and go to disk as bytes. So the type must have no padding, every bit pattern must be a value,
/// its size must divide 8, and its alignment must be at most that of u64.
pub unsafe trait Number: Copy + Default + Ord + Send + Sync + 'static {
    fn widen(self) -> u64;
    /// The lowest bits.
    fn narrow(number: u64) -> Self;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        // SAFETY: an unsigned integer of 1, 2, 4 or 8 bytes, aligned to its size at most.
        unsafe impl Number for $number {
            #[inline(always)]
            fn widen(self) -> u64 {
                self.into()
            }
            #[inline(always)]
            fn narrow(number: u64) -> Self {
                number as Self
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64);

pub fn bytes_of<T: Number>(numbers: &[T]) -> &[u8] {
    // SAFETY: `Number` has no padding, so every byte of the slice is initialised; u8 asks for no alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

pub fn bytes_of_mut<T: Number>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`; and any bytes that are written are numbers again (`Number`).
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// How the numbers of one page are packed.
#[derive(Clone, Copy)]
pub struct Packing {
    /// The least number, from which the others count.
    least: u64,
    /// Bits of each number, 1 to `MAX_BITS`.
    bits: u32,
}

/// A number of this width lies within eight bytes, wherever in the first of them it begins (7 bits before it at most): one load
/// and a shift read it. Wider numbers are not worth packing.
const MAX_BITS: u32 = 57;
/// What `unpack` reads at once, and so may read past the last number.
const READ_BYTES: usize = 8;

impl Packing {
    /// The narrowest for these numbers, if there is one that saves anything.
    pub fn of<T: Number>(numbers: &[T]) -> Option<Self> {
        let first = *numbers.first()?;
        let (least, most) = numbers.iter().fold((first, first), |(a, b), &number| (a.min(number), b.max(number)));
        let bits = (u64::BITS - (most.widen() - least.widen()).leading_zeros()).max(1);
        let saves = bits <= MAX_BITS && (bits as usize) < 8 * size_of::<T>();
        saves.then_some(Self { least: least.widen(), bits })
    }

    /// Bytes of so many numbers.
    pub fn num_bytes(self, len: usize) -> usize {
        (len * self.bits as usize).div_ceil(8)
    }

    /// Where in the packed bytes to look for the numbers `from..from + len`: first byte and number of bytes.
    pub fn bytes_of(self, from: usize, len: usize) -> (usize, usize) {
        let (first, end) = (from * self.bits as usize / 8, self.num_bytes(from + len));
        (first, end - first)
    }

    /// Room that `unpack` needs for so many bytes.
    pub const fn room(num_bytes: usize) -> usize {
        num_bytes + READ_BYTES
    }

    /// Fill `packed` from its beginning; the bits past the last number are 0 up to the end of its word. Two numbers at once where
    /// a word of 64 bits holds them: each step waits for the one before, so half the steps take half the time.
    pub fn pack<T: Number>(self, numbers: &[T], packed: &mut [u64]) {
        let (mut word, mut filled) = (0u64, 0);
        let mut packed = packed.iter_mut();
        // `word` holds the next `filled` bits, fewer than 64. A number may cross into the next word with its highest bits.
        let mut put = |number: u64, bits: u32| {
            word |= number << filled;
            filled += bits;
            if filled >= u64::BITS {
                if let Some(next) = packed.next() {
                    *next = word.to_le();
                }
                filled -= u64::BITS;
                word = number.checked_shr(bits - filled).unwrap_or(0);
            }
        };
        let of = |number: T| number.widen() - self.least;
        let (pairs, rest) = if self.bits <= 32 { numbers.as_chunks() } else { (&[][..], numbers) };
        pairs.iter().for_each(|&[a, b]| put(of(a) | of(b) << self.bits, 2 * self.bits));
        rest.iter().for_each(|&number| put(of(number), self.bits));
        if filled > 0
            && let Some(next) = packed.next()
        {
            *next = word.to_le();
        }
    }

    /// The numbers from `from` on, out of the bytes that begin where `bytes_of` says.
    pub fn unpack<T: Number>(self, packed: &[u8], from: usize, numbers: &mut [T]) {
        let mask = (1 << self.bits) - 1;
        let mut bit = from * self.bits as usize % 8;
        for number in numbers {
            let word = packed[bit / 8..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            *number = T::narrow((word >> (bit % 8) & mask) + self.least);
            bit += self.bits as usize;
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The same each time.
    pub fn draws(mut state: u64) -> impl FnMut() -> u64 {
        move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state.rotate_left(32)
        }
    }

    /// Those below a bound, which each has for itself.
    pub fn draws_below(state: u64) -> impl FnMut(usize) -> usize {
        let mut draw = draws(state);
        move |bound| draw() as u32 as usize % bound
    }

    /// A page of numbers from `least` to `least` + the greatest of so many bits, both of which are there.
    pub fn numbers<T: Number>(bits: u32, least: u64, len: usize) -> Vec<T> {
        let greatest = greatest(bits);
        let mut draw = draws(u64::from(bits));
        let mut numbers: Vec<T> = (0..len).map(|_| T::narrow(least + (draw() & greatest))).collect();
        (numbers[0], numbers[len - 1]) = (T::narrow(least), T::narrow(least + greatest));
        numbers
    }

    fn greatest(bits: u32) -> u64 {
        u64::MAX.checked_shr(64 - bits).unwrap_or(0)
    }

    fn check<T: Number + std::fmt::Debug>() {
        let width = 8 * size_of::<T>() as u32;
        for bits in 0..=width {
            let last = greatest(width) - greatest(bits);
            for least in [0, last / 2, last] {
                for len in [2, 7, 64, 513] {
                    let page: Vec<T> = numbers(bits, least, len);
                    let Some(packing) = Packing::of(&page) else {
                        assert!(bits == width || bits > MAX_BITS);
                        continue;
                    };
                    assert_eq!(packing.bits, bits.max(1));
                    let mut packed = vec![u64::MAX; packing.num_bytes(len).div_ceil(8)];
                    packing.pack(&page, &mut packed);
                    for (from, len) in [(0, len), (len - 1, 1), (len / 3, len / 2), (len / 2, 0)] {
                        let (first, num_bytes) = packing.bytes_of(from, len);
                        assert!(num_bytes <= packing.num_bytes(len) + 1);
                        let mut read = bytes_of(&packed)[first..first + num_bytes].to_vec();
                        read.resize(Packing::room(num_bytes), 0xAA);
                        let mut found = vec![T::default(); len];
                        packing.unpack(&read, from, &mut found);
                        assert_eq!(found, page[from..from + len]);
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_of_packed_numbers_of_every_width_come_back() {
        check::<u8>();
        check::<u16>();
        check::<u32>();
        check::<u64>();
        assert!(Packing::of::<u8>(&[]).is_none());
    }
}
