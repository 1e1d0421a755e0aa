//! Ways to reach an individual: mail, web, network addresses, telephone and fax.

use std::net::Ipv6Addr;

use super::checks::{as_digits, num_digits, num_value};
use super::{Hit, Rank, Rule, always, rule};

pub const PARTS: &[(&str, &str)] = &[
    ("%NUMBER%", r"(?:%PHONE_FR%|%PHONE_ES%|%PHONE_US%|%PHONE_ANY%)"),
    (
        "%PHONE_US%",
        r"(?:\+?1%SEP%{1,2})?(?:\(\d{3}\)%SEP%{0,2}|\d{3}(?:%SEP%|/))\d{3}%SEP%\d{4}(?: ?(?:x|ext\.?|extension) ?\d{1,6})?",
    ),
    // One sign between all pairs: with any, the date and hour 02/03/2020 10:30 would begin with a phone number.
    (
        "%PHONE_FR%",
        r"(?:(?:\+|00)33%SEP%?(?:\(0\)%SEP%?)?|0)[1-9](?:(?: \d{2}){4}|(?:-\d{2}){4}|(?:\.\d{2}){4}|(?:/\d{2}){4}|\d{8})",
    ),
    (
        "%PHONE_ES%",
        r"(?:(?:\+|00)?34%SEP%{1,2})?[6-9](?:\d{2}%SEP%\d{3}%SEP%\d{3}|\d{2}(?:%SEP%\d{2}){3}|\d%SEP%\d{3}(?:%SEP%\d{2}){2}|\d{2}%SEP%\d{6}|\d%SEP%\d{7})",
    ),
    (
        "%PHONE_ANY%",
        r"\+?(?:\(\+?\d{1,5}\) ?)?\d{1,13}\)?(?:[-. /]\(?\d{1,7}\)?){0,6}(?: ?(?:x|ext\.?|extension) ?\d{1,6})?",
    ),
    (
        "%PHONE_CUE%",
        r"(?i:phones?|tel(?:e?f(?:ono)?s?|ephone|s|efax)?|tl[fn]o?s?|tfn?o?s?|(?:numero de )?telefon|rufnummer|handy|mobile?|movil|cell(?:ular| ?phone)?|pager|beeper|bip|portable|celular|natel|gsm|whatsapp|(?:call(?:s|ed|ing)?|reach(?:ed)?|answering|messages?|contact)(?: (?:him|her|me|us|them))?(?: back)? (?:at|on|to)|desk|office|fon|durchwahl)",
    ),
    ("%FAX_CUE%", r"(?i:(?:tele|tel\. ?/ ?)?fax|telecopie)"),
    ("%SEP%", r"[-. ]"),
    // Between the groups of a number that its check digits hold together, on one line or two.
    ("%OVER%", r"[-., \n]"),
    // Behind a field's name, of whatever form.
    ("%CALL%", r"(\(?\+?\d(?:[ ().-]{0,3}\d|/\d){3,24}(?: ?(?i:x|ext\.?|poste|int\.?|dw) ?\d{1,6})?)"),
];

pub const RULES: &[Rule] = &[
    rule(
        "email",
        "EMAIL",
        Rank::Sure,
        "e-mail addresses",
        // The apostrophe of sean.o'connor@, and no elision: "l'anna@" begins behind it.
        r"(?:(?:(?:[A-Za-z0-9\x80-\xff]{1,30}[._-]){1,3}[A-Za-z\x80-\xff]{1,3}|[Oo])')?[A-Za-z0-9_+\x80-\xff][A-Za-z0-9._%+\-\x80-\xff]{0,63}@(?:[A-Za-z0-9_\-\x80-\xff]+\.)+[A-Za-z\x80-\xff]{2,}",
        always,
    ),
    rule(
        "url",
        "URL",
        Rank::Sure,
        "web addresses with a protocol or www.",
        r#"(?i:https?://|ftp://|www\.)[^\s<>"'()\[\]\x1f]*[^\s<>"'()\[\].,;:!?\x1f]"#,
        always,
    ),
    rule("ipv4", "IP", Rank::Form, "IPv4 addresses", r"\d{1,3}(?:\.\d{1,3}){3}", is_ipv4),
    rule("ipv6", "IP", Rank::Form, "IPv6 addresses", r"[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{0,4}){2,7}", is_ipv6),
    rule(
        "mac",
        "DEVICE",
        Rank::Form,
        "hardware addresses (MAC)",
        r"[0-9A-Fa-f]{2}(?:(?::[0-9A-Fa-f]{2}){5}|(?:-[0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f]{4}){2})",
        always,
    ),
    rule("phone_us", "PHONE", Rank::Form, "North American telephone numbers", "%PHONE_US%", always),
    rule(
        "phone_misread",
        "PHONE",
        Rank::Form,
        "North American telephone numbers with letters that a scanner put for digits: 555-2l4-889O",
        r"[\dOolISB]{3}[-. ][\dOolISB]{3}[-. ][\dOolISB]{4}",
        |hit| num_digits(hit.piece()) >= 7 && num_digits(&as_digits(hit.piece())) == 10,
    ),
    rule("phone_fr", "PHONE", Rank::Form, "French telephone numbers", "%PHONE_FR%", always),
    rule("phone_es", "PHONE", Rank::Form, "Spanish telephone numbers in groups", "%PHONE_ES%", is_no_list),
    rule(
        "phone_national",
        "PHONE",
        Rank::Form,
        "telephone numbers of other countries in groups, from 0 on",
        r"(?:\(0\d{1,4}\) ?|0[1-9]\d{1,3}[ -])\d{2,8}(?:[ -]\d{2,4}){0,3}|0[1-9] \d{3} \d{2} \d{2}|0[1-9] \d{6,8}",
        is_national,
    ),
    rule(
        "phone_de",
        "PHONE",
        Rank::Form,
        "German telephone numbers with a stroke or a hyphen",
        r"0[1-9]\d{0,4}(?: ?/ ?|-)\d{2,8}(?:[-. ]\d{1,5}){0,4}",
        is_stroked,
    ),
    rule(
        "phone_international",
        "PHONE",
        Rank::Form,
        "telephone numbers with + and the country",
        r"(?:\+|00(?:43|41|32|49|33|34|1|44|31|352|423|39) ?)\d{1,3}(?:[-. /]{0,2}\(?\d{1,7}\)?){2,6}",
        is_phone,
    ),
    rule(
        "phone_cued",
        "PHONE",
        Rank::Sure,
        "numbers behind words such as tel., phone, móvil, Telefon, and those listed after the first",
        r"%PHONE_CUE%(?:\.?:? ?(?:y|et|and|und|/|&)? ?%FAX_CUE%)?[ .:#=)\n]{0,4}(?:(?:no|number|numero|num|is|de contacto|es|est|ist|contact)\b[.:]?[ \n]{0,2})?[(+]?(%NUMBER%)(?: ?(?:[-/,;]|y|et|and|und|ou|o|or) ?(%NUMBER%))?(?: ?(?:[-/,;]|y|et|and|und|ou|o|or) ?(%NUMBER%))?",
        is_long_enough,
    ),
    rule(
        "fax",
        "FAX",
        Rank::Sure,
        "numbers behind the word fax",
        r"%FAX_CUE%[ .:#=\n]{0,4}(?:(?:no|number|numero|is)\b[.:]? {0,2})?[(+]?(%NUMBER%)",
        is_long_enough,
    ),
];

/// Four numbers of at most 255: a section number such as 3.14.15.926 is none.
fn is_ipv4(hit: &mut Hit) -> bool {
    hit.piece().split(|&byte| byte == b'.').all(|part| num_value(part) <= 255)
}

/// What parses as one and has a letter or all groups: 10:30:45 is an hour.
fn is_ipv6(hit: &mut Hit) -> bool {
    let piece = hit.piece();
    let telling = piece.iter().any(u8::is_ascii_alphabetic) || piece.iter().filter(|&&byte| byte == b':').count() == 7;
    telling && str::from_utf8(piece).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// E.164 numbers have 8 to 15 digits.
fn is_phone(hit: &mut Hit) -> bool {
    (8..=15).contains(&num_digits(hit.piece()))
}

/// And no month with years: 01/2020-2021.
fn is_stroked(hit: &mut Hit) -> bool {
    let rest = hit
        .piece()
        .iter()
        .position(|byte| matches!(byte, b'/' | b'-'))
        .map_or(&[][..], |at| hit.piece()[at + 1..].trim_ascii_start());
    let dated = hit.leading_digits().len() == 2
        && (rest.starts_with(b"19")
            || rest.starts_with(b"20")
            || rest.iter().take_while(|byte| byte.is_ascii_digit()).count() < 3);
    is_phone(hit) && !dated
}

/// Nine to eleven digits with an area's code; none of the groups is a value with its unit.
fn is_national(hit: &mut Hit) -> bool {
    (9..=12).contains(&num_digits(hit.piece())) && is_no_list(hit)
}

/// Behind a cue a number may be a local one.
fn is_long_enough(hit: &mut Hit) -> bool {
    (6..=15).contains(&num_digits(hit.piece())) && !super::dates::is_numeric_date(hit.piece())
}

/// Values in a row ("650 700 800 900") go on; a telephone number ends.
fn is_no_list(hit: &mut Hit) -> bool {
    let goes_on = |text: &[u8]| matches!(text, [b' ' | b'-' | b'.' | b',', b'0'..=b'9', ..]);
    let after = hit.after();
    let unit = after.starts_with(b" mg") || after.starts_with(b" ml") || after.starts_with(b" g");
    let begun = match hit.before() {
        [.., b'0'..=b'9', b'.' | b',' | b'-'] => true,
        [rest @ .., b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b' '] => !rest.last().is_some_and(u8::is_ascii_alphanumeric),
        _ => false,
    };
    !goes_on(after) && !unit && !begun
}
