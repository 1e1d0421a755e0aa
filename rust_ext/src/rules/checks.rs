//! Check digits: what makes a number one of its kind. Each takes the bytes of a match, signs between the groups and all.

/// The digits of a number, as numbers.
pub fn digits(piece: &[u8]) -> impl DoubleEndedIterator<Item = u32> + Clone + '_ {
    piece.iter().filter(|byte| byte.is_ascii_digit()).map(|&byte| u32::from(byte - b'0'))
}

pub fn num_digits(piece: &[u8]) -> usize {
    digits(piece).count()
}

/// What was read, with the letters that a scanner puts for digits as digits.
pub fn as_digits(piece: &[u8]) -> Vec<u8> {
    let digit = |byte: &u8| match byte {
        b'O' | b'o' => b'0',
        b'l' | b'I' => b'1',
        b'S' => b'5',
        b'B' => b'8',
        other => *other,
    };
    piece.iter().map(digit).collect()
}

/// Letters and digits, in upper case.
fn compact(piece: &[u8]) -> Vec<u8> {
    piece.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_uppercase).collect()
}

fn remainder(digits: impl Iterator<Item = u32>, modulus: u32) -> u32 {
    digits.fold(0, |rest, digit| (rest * 10 + digit) % modulus)
}

/// Luhn (ISO/IEC 7812): from the right, every second digit doubled, its digits added; the sum is a multiple of 10.
pub fn is_luhn(digits: impl DoubleEndedIterator<Item = u32>) -> bool {
    let doubled = |(place, digit): (usize, u32)| if place % 2 == 1 { digit * 2 / 10 + digit * 2 % 10 } else { digit };
    digits.rev().enumerate().map(doubled).sum::<u32>() % 10 == 0
}

/// Payment cards: 12 to 19 digits that begin as issuers' do, Luhn.
pub fn is_card(piece: &[u8]) -> bool {
    (12..=19).contains(&num_digits(piece))
        && digits(piece).next().is_some_and(|first| (2..=6).contains(&first))
        && digits(piece).any(|digit| Some(digit) != digits(piece).next())
        && is_luhn(digits(piece))
}

/// French NIR: 13 characters and a key, 97 - (number mod 97); Corsica's 2A and 2B count as 19 and 18. Overseas the department
/// has three digits, which changes nothing here.
pub fn is_nir(piece: &[u8]) -> bool {
    // The word "clé" before the key has letters too.
    let letters = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'A' | b'B' | b'a' | b'b');
    let mut number: Vec<u8> = piece.iter().copied().filter(|&byte| letters(byte)).collect();
    if number.len() != 15 {
        return false;
    }
    let month = &number[3..5];
    let real_month = matches!(month, [b'0', b'1'..=b'9'] | [b'1', b'0'..=b'2'] | [b'2'..=b'9', _]);
    match number[5..7].to_ascii_uppercase()[..] {
        [b'2', b'A'] => number[5..7].copy_from_slice(b"19"),
        [b'2', b'B'] => number[5..7].copy_from_slice(b"18"),
        _ => {}
    }
    let (body, key) = number.split_at(13);
    num_digits(&number) == 15 && real_month && remainder(digits(key), 100) == 97 - remainder(digits(body), 97)
}

/// UK NHS number: weights 10 to 2, check digit 11 - sum mod 11, 11 counts as 0 and 10 is never issued.
pub fn is_nhs(piece: &[u8]) -> bool {
    let number: Vec<u32> = digits(piece).collect();
    let sum: u32 = number.iter().zip((2..=10).rev()).map(|(digit, weight)| digit * weight).sum();
    number.len() == 10 && number.iter().any(|&digit| digit != number[0]) && (11 - sum % 11) % 11 == number[9]
}

/// US National Provider Identifier: ten digits from 1 or 2 on, Luhn of 80840 and the number.
pub fn is_npi(piece: &[u8]) -> bool {
    let number: Vec<u32> = [8, 0, 8, 4, 0].into_iter().chain(digits(piece)).collect();
    number.len() == 15 && matches!(number[5], 1 | 2) && is_luhn(number.into_iter())
}

/// Spanish DNI and NIE: the letter is number mod 23; X, Y, Z at the start of a NIE count as 0, 1, 2.
pub fn is_dni(piece: &[u8]) -> bool {
    let mut number = compact(piece);
    let letter = number.pop();
    if let Some(first @ b'X'..=b'Z') = number.first_mut() {
        *first = *first - b'X' + b'0';
    }
    let all_digits = number.iter().all(u8::is_ascii_digit) && (7..=8).contains(&number.len());
    all_digits && letter == Some(b"TRWAGMYFPDXBNJZSQVHLCKE"[remainder(digits(&number), 23) as usize])
}

/// German insured person's number: a letter and nine digits; weights 1 and 2 in turn over the letter's place in the alphabet
/// (two digits) and eight digits, digit sums, mod 10.
pub fn is_kvnr(piece: &[u8]) -> bool {
    let number = compact(piece);
    let [letter @ b'A'..=b'Z', rest @ ..] = &number[..] else { return false };
    let place = u32::from(letter - b'A' + 1);
    let values = [place / 10, place % 10].into_iter().chain(digits(rest).take(8));
    let weighted = values.enumerate().map(|(at, value)| value * (1 + at as u32 % 2));
    let sum: u32 = weighted.map(|product| product / 10 + product % 10).sum();
    rest.len() == 9 && digits(rest).next_back() == Some(sum % 10)
}

/// US prescriber's number (DEA): two letters and seven digits, d1 + d3 + d5 + 2 (d2 + d4 + d6) ends in d7.
pub fn is_dea(piece: &[u8]) -> bool {
    let number: Vec<u32> = digits(piece).collect();
    let [a, b, c, d, e, f, check] = number[..] else { return false };
    (a + c + e + 2 * (b + d + f)) % 10 == check
}

/// Vehicle identification number: 17 characters without I, O, Q; transliterated, weighted, mod 11 gives the ninth (10 is X).
pub fn is_vin(piece: &[u8]) -> bool {
    const WEIGHTS: [u32; 17] = [8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2];
    let value = |byte: u8| match byte {
        b'0'..=b'9' => u32::from(byte - b'0'),
        b'A'..=b'H' => u32::from(byte - b'A' + 1),
        b'J'..=b'R' => u32::from(byte - b'J' + 1),
        _ => u32::from(byte - b'S' + 2),
    };
    let sum: u32 = piece.iter().zip(WEIGHTS).map(|(&byte, weight)| value(byte) * weight).sum();
    piece.len() == 17 && piece[8] == b"0123456789X"[(sum % 11) as usize]
}

/// Lengths of the account numbers of each country of the IBAN registry.
const IBAN_LENGTHS: &[u8] = b"AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29ES24\
FI18FK18FO18FR27GB22GE22GI23GL18GR27GT28HN28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22\
MK19MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28TL23TN24TR26UA29\
VA22VG24XK20YE30";

/// Bytes that the IBAN at the start of `piece` takes, by its country's length; mod 97 of the turned number is 1.
pub fn iban_len(piece: &[u8]) -> Option<usize> {
    let country = piece.get(..2)?.to_ascii_uppercase();
    let entry = IBAN_LENGTHS.chunks_exact(4).find(|entry| entry[..2] == country[..])?;
    let length = num_value(&entry[2..]);
    let (last, _) = piece.iter().enumerate().filter(|(_, byte)| byte.is_ascii_alphanumeric()).nth(length - 1)?;
    let number = compact(&piece[..=last]);
    let turned = number[4..].iter().chain(&number[..4]);
    let rest = turned.fold(0, |rest, &byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        _ => (rest * 100 + u32::from(byte - b'A' + 10)) % 97,
    });
    (rest == 1).then_some(last + 1)
}

/// The number that some digits write.
pub fn num_value(piece: &[u8]) -> usize {
    digits(piece).fold(0usize, |value, digit| value.saturating_mul(10).saturating_add(digit as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&[u8]) -> bool;

    /// A valid number, one with a wrong digit, one with two digits exchanged.
    #[test]
    fn check_digits_by_hand() {
        let table: &[(Check, &str, &str, &str)] = &[
            (is_card, "4539 1488 0343 6467", "4539 1488 0343 6468", "4539 1488 0343 4667"),
            (is_card, "378282246310005", "378282246310006", "738282246310005"),
            (is_nir, "1 84 12 76 451 089 46", "1 84 12 76 451 089 47", "1 84 12 76 415 089 46"),
            (is_nhs, "943 476 5919", "943 476 5918", "943 476 5991"),
            (is_npi, "1234567893", "1234567894", "1234567839"),
            (is_dni, "12345678Z", "12345679Z", "12345687Z"),
            (is_dni, "X-1234567-L", "Y-1234567-L", "X-1234576-L"),
            (is_kvnr, "A123456780", "A123456781", "A123456870"),
            (is_dea, "AB1234563", "AB1234564", "AB1234536"),
            (is_vin, "1M8GDM9AXKP042788", "1M8GDM9AXKP042789", "1M8GDM9AXKP047288"),
        ];
        for (number, (check, valid, digit, exchanged)) in table.iter().enumerate() {
            assert!(check(valid.as_bytes()), "{number}: {valid}");
            assert!(!check(digit.as_bytes()), "{number}: {digit}");
            assert!(!check(exchanged.as_bytes()), "{number}: {exchanged}");
        }
        for zeros in ["0000000000", "000 000 0000"] {
            assert!(!is_nhs(zeros.as_bytes()) && !is_npi(zeros.as_bytes()));
        }
    }

    #[test]
    fn ibans_take_their_country_s_length() {
        assert_eq!(iban_len(b"GB82 WEST 1234 5698 7654 32 TO"), Some(27));
        assert_eq!(iban_len(b"DE89370400440532013000"), Some(22));
        assert_eq!(iban_len(b"FR14 2004 1010 0505 0001 3M02 606"), Some(33));
        assert_eq!(iban_len(b"GB82 WEST 1234 5698 7654 33"), None);
        assert_eq!(iban_len(b"GB28 WEST 1234 5698 7654 32"), None);
        assert_eq!(iban_len(b"GB82WEST123456987654"), None);
        assert_eq!(iban_len(b"ZZ82WEST12345698765432"), None);
    }
}
