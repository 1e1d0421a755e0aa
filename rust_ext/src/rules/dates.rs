//! Dates: in numbers, with a month's name, in words, with a weekday, and parts of dates behind a preposition.

use std::sync::LazyLock;

use super::checks::{as_digits, num_digits, num_value};
use super::{Hit, Rank, Rule, always, rule};
use crate::word_lists::{
    Language, WordSet, Words, alternatives, entries, month_names, months, plain, weekdays_of, words,
};

/// Months and days of the week, from the word lists.
pub fn listed_parts() -> Vec<(&'static str, String)> {
    use Language::{English, French, German, Spanish};
    let any_case = |words: String| format!("(?i:{words})");
    let names = |language| any_case(alternatives(month_names(language, "text")));
    let days = |language| any_case(alternatives(weekdays_of(language)));
    // In small letters "may" and "march" are verbs.
    let full = entries("months").iter().filter(|month| month.has("full") && !matches!(month.word, "may" | "march"));
    let full = full.map(|month| plain(month.word));
    let text = entries("weekdays").iter().filter(|day| day.has("text")).map(|day| plain(day.word));
    vec![
        ("%MONTH%", any_case(alternatives(months("text").map(|(_, name)| name)))),
        ("%MONTH_FULL%", format!("(?:May|March|{})", any_case(alternatives(full)))),
        ("%MONTH_JOINED%", any_case(alternatives(months("joined").map(|(_, name)| name)))),
        ("%MONTH_EN%", names(English)),
        ("%MONTH_FR%", names(French)),
        ("%MONTH_ES%", names(Spanish)),
        ("%MONTH_DE%", names(German)),
        ("%HOLIDAY%", format!("(?:{})", alternatives(words("holidays")))),
        ("%TO%", format!("(?: ?[-/] ?| (?i:{}) (?i:the |el |le )?)", alternatives(words("between dates").map(plain)))),
        ("%WEEKDAY%", any_case(alternatives(text))),
        ("%WEEKDAY_FR%", days(French)),
        ("%WEEKDAY_ES%", days(Spanish)),
        ("%WEEKDAY_DE%", days(German)),
    ]
}

pub const PARTS: &[(&str, &str)] = &[
    // The first to the thirty-first.
    (
        "%ORDINAL_EN%",
        r"(?i:(?:twenty|thirty)[- ]?(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth)|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|(?:thir|four|fif|six|seven|eigh|nine)teenth|twentieth|thirtieth)",
    ),
    (
        "%DAY_FR%",
        r"(?i:premier|(?:vingt|trente)[- ](?:et[- ])?(?:un|deux|trois|quatre|cinq|six|sept|huit|neuf)|dix-(?:sept|huit|neuf)|deux|trois|quatre|cinq|six|sept|huit|neuf|dix|onze|douze|treize|quatorze|quinze|seize|vingt|trente)",
    ),
    (
        "%DAY_ES%",
        r"(?i:primero|uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce|trece|catorce|quince|dieci(?:seis|siete|ocho|nueve)|veinte|veinti(?:un|uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve)|treinta(?: y uno)?)",
    ),
    (
        "%DAY_DE%",
        r"(?i:(?:(?:ein|zwei|drei|vier|funf|fuenf|sechs|sieben|acht|neun)und)?(?:zwanzig|dreissig)ste[nr]?|ers|zwei|drit|vier|funf|fuenf|sechs|sieb|siebent|ach|neun|zehn|elf|zwolf|zwoelf|(?:drei|vier|funf|fuenf|sech|sieb|acht|neun)zehn)(?:te[nr]?)?",
    ),
    ("%ROMAN%", r"(?:I{1,3}|IV|VI{0,3}|IX|XI{0,2}|X|i{1,3}|iv|vi{0,3}|ix|xi{0,2}|x)"),
    ("%YEAR%", r"(?:1[6-9]|20)\d{2}"),
    ("%DAY%", r"(?:0?[1-9]|[12]\d|3[01])"),
    ("%OF_YEAR%", r"(?: ?'\d{2}|\.?,?[\s/-]{1,2}(?:(?i:de |del |of )(?i:ano )?(?i:de )?)?%YEAR%|[/-]\d{2})"),
];

pub const RULES: &[Rule] = &[
    rule(
        "date_numeric",
        "DATE",
        Rank::Sure,
        "day, month and year in numbers, in any usual order, with an ISO time",
        r"\d{1,4}(?:[-.] ?| ?/ ?| [-.] )\d{1,2}(?:[-.]|\. | ?/ ?| [-.] )\d{1,4}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?",
        is_date,
    ),
    rule(
        "date_misread",
        "DATE",
        Rank::Form,
        "day, month and year in numbers with letters that a scanner put for digits: O3/l4/2019",
        r"[\dOolISB]{1,2}[-/.][\dOolISB]{1,2}[-/.][\dOolISB]{4}",
        is_misread_date,
    ),
    rule("date_compact", "DATE", Rank::Form, "yyyymmdd", r"(?:19|20)\d{6}", is_compact_date),
    rule(
        "date_month_year",
        "DATE",
        Rank::Form,
        "month and year in numbers",
        r"(?:0?[1-9]|1[0-2])[/-](?:19|20)\d{2}",
        stands_alone,
    ),
    rule(
        "date_year_month",
        "DATE",
        Rank::Form,
        "year and month in numbers",
        r"(?:19|20)\d{2}[/-](?:0[1-9]|1[0-2])",
        stands_alone,
    ),
    rule(
        "date_day_month",
        "DATE",
        Rank::Form,
        "day and month in numbers behind a preposition: on 3/14, le 14/03, el 14/3, am 14.3., le 14 03 1958",
        r"(?i:on|since|until|from|through|thru|seen|labs?|follow-?up|f/u|d/c|discharged?|admitted|admit|visit|appt|cath|cabg|surgery|sortie|entree|biologie|rdv|analitica|alta|ingreso|cita|control|labor|kontrolle|dated?:?|dob:?|le|du|au|depuis|el dia|el|al|dia|fecha:?|am|vom|seit|bis|ab|zum|(?-i:Mo|Di|Mi|Do|Fr|Sa|So))[ \n](%DAY%/%DAY%|%DAY%\.(?:0?[1-9]|1[0-2])\.|%DAY% (?:0[1-9]|1[0-2]) %YEAR%)",
        is_day_month,
    ),
    rule(
        "date_bare",
        "DATE",
        Rank::Form,
        "day and month that nothing announces, where only one of the two can be the month or one is written with a zero: 6/18, 04/11",
        r"\d{1,2}/\d{1,2}",
        is_bare_day_month,
    ),
    rule(
        "date_range",
        "DATE",
        Rank::Sure,
        "two days, months or years and what stands between: March 3 to 9, 2019; 12-19 May 2020; du 3 au 9 mars; 3/4-3/9/2019; 2003-2007",
        r"%MONTH%\.? %DAY%(?i:st|nd|rd|th)?%TO%%DAY%(?i:st|nd|rd|th)?(?:(?:,|,?\s)\s?%YEAR%)?|%DAY%(?i:st|nd|rd|th|er|o|\.)?%TO%%DAY%(?i:st|nd|rd|th|er|o|\.)?[ \n-](?i:of |de |the )?%MONTH%(?:%OF_YEAR%)?|\d{1,2}/\d{1,2}%TO%\d{1,2}/\d{1,2}(?:/(?:%YEAR%|\d{2}))?|%DAY%\.(?:\d{1,2}\.)?%TO%%DAY%\.\d{1,2}\.(?:%YEAR%|\d{2})?|%YEAR%(?: ?[-/] ?| (?i:to|until|through|till|a|au|bis|al|hasta) )%YEAR%|\d{1,2}[/.]%YEAR%%TO%\d{1,2}[/.]%YEAR%|%MONTH%%TO%%MONTH%(?:\.?,? (?i:de |del )?%YEAR%)",
        is_range,
    ),
    rule(
        "date_named",
        "DATE",
        Rank::Form,
        "holidays, and quarters of a year: Christmas 2018, New Year's Eve, Weihnachten 2019, Q3 2020",
        r"%HOLIDAY%(?:,? (?i:de |del )?%YEAR%)?|Q[1-4][ /-]?%YEAR%",
        always,
    ),
    rule(
        "date_day",
        "DATE",
        Rank::Form,
        "a day of the month at the end of its sentence: discharged the 19th.",
        r"(?i:on|discharged|admitted|seen|until|till|through|by|since) the (%DAY%(?i:st|nd|rd|th))",
        |hit| matches!(hit.after(), [] | [b'.' | b';' | b'\n' | b'\r', ..]),
    ),
    Rule {
        behind: begins_line,
        ..rule(
            "date_of_line",
            "DATE",
            Rank::Form,
            "day and month that begin a line or fill brackets, with a zero or a point behind: 18/02 M:, 18.02. FD, (04/03)",
            r"\d{1,2}/\d{2}|\d{2}\.\d{2}\.",
            is_day_month_of_line,
        )
    },
    rule(
        "date_day_first",
        "DATE",
        Rank::Form,
        "a day and a month's name, with a year or without",
        r"\d{1,2}(?i:st|nd|rd|th|er|o|\.)?[ \n/-]{1,2}(?i:of |de |du |the )?%MONTH%(?:%OF_YEAR%)?",
        is_day_first,
    ),
    rule(
        "date_joined",
        "DATE",
        Rank::Form,
        "day, a month's first letters and year without a space: 12MAR2020, 05-dic19",
        r"%DAY%-?%MONTH_JOINED%-?(?:%YEAR%|\d{2})|%MONTH_JOINED%%YEAR%",
        always,
    ),
    rule(
        "date_month_first",
        "DATE",
        Rank::Form,
        "a month's name and a day or a year, of two digits too: juin 98",
        r"%MONTH%(?:\.?,?[\s/-]{1,2}(?i:(?:de |del |of )(?:ano )?(?:de )?)?%YEAR%|\.?[\s-]{1,2}(?i:the )?%DAY%(?i:st|nd|rd|th)?(?:(?:[,.]|,?\s)\s?(?:%YEAR%|'\d{2}))?)|%MONTH_FULL% (?:3[2-9]|[4-9]\d)",
        is_no_amount,
    ),
    rule(
        "date_roman",
        "DATE",
        Rank::Sure,
        "dates with a Roman month: 12-III-2019, 3.XI.04, III/2019",
        r"%DAY%(?: ?[-./] ?| )%ROMAN%(?:(?: ?[-./] ?| )%YEAR%|[-./]\d{2})|%ROMAN%[-./]%YEAR%",
        is_no_amount,
    ),
    rule(
        "date_in_words",
        "DATE",
        Rank::Form,
        "days in words: the third of May, May third, deux mars, primero de enero, dritter Mai",
        r"(?i:the )?%ORDINAL_EN%(?: day)? of %MONTH_EN%(?:,? %YEAR%)?|%MONTH_EN% (?i:the )?%ORDINAL_EN%(?:,? %YEAR%)?|%DAY_FR% (?i:de )?%MONTH_FR%(?: %YEAR%| (?i:deux mille|mille neuf cent)(?:[ -][a-z]+){0,4})?|%DAY_ES% (?i:de )%MONTH_ES%(?: (?i:del? )(?:%YEAR%|(?i:dos mil|mil novecientos)(?: [a-z]+){0,3}))?|%DAY_DE% %MONTH_DE%(?: %YEAR%)?",
        always,
    ),
    rule(
        "date_weekday",
        "DATE",
        Rank::Form,
        "a weekday with a date",
        r"(?:%WEEKDAY%),? (?i:the |le |el |den |dem |der |dia |(?:el |le )?)(?:%DAY%(?:\.|o|er)? (?i:de |of )?%MONTH%(?:%OF_YEAR%)?|%DAY%(?i:st|nd|rd|th)(?: of %MONTH%)?(?:%OF_YEAR%)?|%MONTH%\.? %DAY%(?i:st|nd|rd|th)?(?:,? %YEAR%)?|%DAY%[-/.]%DAY%(?:[-/.]\d{2,4})?)",
        always,
    ),
    rule(
        "date_weekday_day",
        "DATE",
        Rank::Form,
        "a weekday and a day's number in French, Spanish and German",
        r"(?:%WEEKDAY_FR%|%WEEKDAY_ES%|%WEEKDAY_DE%,? (?i:den|dem)) (?i:dia )?%DAY%",
        is_no_amount,
    ),
    rule(
        "date_month",
        "DATE",
        Rank::Form,
        "a month alone behind a preposition",
        r"(?:(?:(?i:in|since|until|last|next|this|during|through|till)[ -]|(?i:im|seit|bis) )(%MONTH_EN%|%MONTH_DE%)|(?i:en|desde|hasta|mes de|de|durante|pasado|depuis|courant|jusqu'en) ?(%MONTH_ES%|%MONTH_FR%)|((?i:early|late|mid|end of|beginning of|mediados de|principios de|finales de|fines de|fin de|fin|debut|mi|ende|anfang|mitte)[ -]%MONTH%))",
        is_capital_or_sure,
    ),
    rule(
        "date_year",
        "DATE",
        Rank::Form,
        "a year behind a preposition: in 2004, since 1998, en 2004, año 2004, depuis 1998, seit 1998, fin 2004, and the one it is joined to",
        r"(?i:in|since|until|till|from|by|during|circa|around|early|late|mid|fall|spring|summer|winter|autumn|debut|mi|fin|courant|avant|apres|ete|automne|hiver|printemps|anfang|mitte|ende|vor|nach|sommer|herbst|fruhjahr|en|desde|hasta|durante|del?|hacia|entre|ano|anos|depuis|annee|jusqu'en|des|vers|seit|im jahr|jahr|jahrgang|jg\.|bis|ab|between|before|after|year|of|born|nacid[oa]|nee?)[ -](?i:(?:en )?(?:el |l'|the |los )?)((?i:(?:ano|annee|year|jahr)s? )?%YEAR%)(?:(?: ?[-/] ?|,? (?i:a|y|e|o|and|to|et|ou|und|bis|au|hasta|through|en|in) )(?i:(?:en|in|el) )?(?i:el )?((?i:ano )?%YEAR%))?(?:(?: ?[-/] ?|,? (?i:a|y|e|o|and|to|et|und|bis|au|hasta) )(?i:(?:en|in) )?(%YEAR%))?",
        is_year,
    ),
];

/// Year, month and day in one of the usual orders, joined by one sign: 3.14.15 is a date, 3.45.99 and 12/05-14 are not.
pub fn is_numeric_date(piece: &[u8]) -> bool {
    let date = piece.split(|&byte| byte == b'T').next().unwrap_or(piece);
    let mut signs = date.iter().filter(|byte| matches!(byte, b'-' | b'/' | b'.'));
    let Some(&sign) = signs.next() else { return false };
    if signs.next() != Some(&sign) || signs.next().is_some() {
        return false;
    }
    let mut parts = date.split(|&byte| byte == sign).map(<[u8]>::trim_ascii);
    let (Some(a), Some(b), Some(c)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let (year, rest) = match (a.len(), b.len(), c.len()) {
        (4, 1 | 2, 1 | 2) => (Some(a), [b, c]),
        (1 | 2, 1 | 2, 4) => (Some(c), [a, b]),
        (1 | 2, 1 | 2, 2) => (None, [a, b]),
        _ => return false,
    };
    let day_month = |day, month| (1..=31).contains(&num_value(day)) && (1..=12).contains(&num_value(month));
    year.is_none_or(|year| (1800..=2199).contains(&num_value(year)))
        && (day_month(rest[0], rest[1]) || day_month(rest[1], rest[0]))
}

/// Not the end or the beginning of a row of numbers.
fn stands_alone(hit: &mut Hit) -> bool {
    let joined = matches!(hit.before(), [.., b'0'..=b'9', b'/' | b'-' | b'.']);
    !joined && !goes_on(hit)
}

/// A date, and not the middle of a row such as 5/6/8/18.
fn is_date(hit: &mut Hit) -> bool {
    let piece = hit.piece();
    let sign = piece.iter().find(|byte| matches!(byte, b'-' | b'/' | b'.'));
    let has_year = piece.split(|byte| !byte.is_ascii_digit()).any(|digits| digits.len() == 4);
    let short = piece.contains(&b' ') && !has_year;
    let joined = match hit.before() {
        [.., b'0'..=b'9', a] => Some(a) == sign,
        [.., b'0'..=b'9', b' ', a, b' '] => short && Some(a) == sign,
        _ => false,
    };
    let goes_on = match hit.after() {
        [a, b'0'..=b'9', ..] => Some(a) == sign,
        [b' ', a, b' ', b'0'..=b'9', ..] => short && Some(a) == sign,
        _ => false,
    };
    // "1.5. 12 h", "2 - 3 - 10 mg": with such blanks, a year has four digits.
    let spaced = piece.windows(2).any(|pair| matches!(pair, b" -" | b" ."))
        || piece.rsplit(|byte| *byte == b'.').next().is_some_and(|last| last.starts_with(b" "));
    is_numeric_date(piece) && !joined && !goes_on && (has_year || !spaced)
}

/// A date once the letters that were read in place of digits are digits again; most of it is digits.
fn is_misread_date(hit: &mut Hit) -> bool {
    let read = as_digits(hit.piece());
    num_digits(hit.piece()) >= 4 && read != hit.piece() && is_numeric_date(&read)
}

fn is_compact_date(hit: &mut Hit) -> bool {
    let piece = hit.piece();
    (1..=12).contains(&num_value(&piece[4..6])) && (1..=31).contains(&num_value(&piece[6..8]))
}

/// A day and a month in one order or the other, and not a fraction, a blood pressure or a row of numbers.
fn is_day_month(hit: &mut Hit) -> bool {
    let mut parts = hit.piece().split(|byte| matches!(byte, b'/' | b'.' | b' ')).map(num_value);
    let (first, second) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    // 1/3 distal, 1/2 tablet: no day of a month is written so before a word.
    let word = matches!(hit.after(), [b' ', b'a'..=b'z', b'a'..=b'z', ..]) && !hit.after().starts_with(b" at ");
    let fraction = word
        && matches!(hit.piece(), b"1/2" | b"1/3" | b"2/3" | b"1/4" | b"3/4" | b"1/5" | b"1/8")
        && has_fraction(hit);
    let scale = fraction || matches!(hit.piece(), [b'0'..=b'9', b'/', b'5'] | [b'0'..=b'9', b'/', b'1', b'0']);
    first.min(second) <= 12 && first.max(second) <= 31 && !scale && !goes_on(hit)
}

/// A line, a cell or brackets begin.
fn begins_line(before: &[u8]) -> bool {
    matches!(before, [] | [.., b'\n' | b'('] | [.., b'|', b' '])
}

/// At the beginning of a line of notes, before a word or a colon; or all that stands in brackets.
fn is_day_month_of_line(hit: &mut Hit) -> bool {
    let piece = hit.piece();
    let padded = piece.ends_with(b".") || piece.starts_with(b"0") || piece[piece.len() - 2] == b'0';
    let begins = begins_line(hit.before()) && !hit.before().ends_with(b"(");
    let goes_on = matches!(hit.after(), [b':', b' ', ..] | [b' ', b'A'..=b'Z' | b'a'..=b'z' | 0x80.., ..]);
    let bracketed = hit.before().ends_with(b"(") && hit.after().starts_with(b")");
    padded && (begins && goes_on || bracketed) && is_day_month(hit)
}

/// A day and a month that nothing announces: no scale, no size, no pressure, no page.
fn is_bare_day_month(hit: &mut Hit) -> bool {
    static SCALES: Words = LazyLock::new(|| WordSet::of("scales"));
    const STREETS: [&[u8]; 6] = [b"strasse", b"str", b"gasse", b"weg", b"platz", b"allee"];
    let (piece, before, after) = (hit.piece(), hit.before(), hit.after());
    let mut parts = piece.split(|byte| *byte == b'/').map(num_value);
    let (first, second) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let padded = piece.starts_with(b"0") || piece[piece.len() - 2] == b'0';
    let one_way = (1..=12).contains(&first.min(second)) && (13..=31).contains(&first.max(second));
    let timed = matches!(after, [b' ', b'a', b't', b' ', b'0'..=b'9', ..]);
    let joined = before.last().is_some_and(|byte| b"/.,-+<>=~$#".contains(byte));
    let goes_on = matches!(
        after,
        [b'%' | b'"' | b'+', ..] | [b',', b' ', b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', ..]
    );
    let line = &before[super::behind_last(before, |byte| matches!(byte, b'\n' | b';'))..];
    let mut words = line.split(|byte| !byte.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).rev().take(3);
    let scaled = words.any(|word| {
        SCALES.has_any_case(word) || STREETS.iter().any(|street| word.to_ascii_lowercase().ends_with(street))
    });
    // "Orientation: 12/30": of so many points.
    let scored = matches!(second, 24 | 27 | 30) && !padded && before.ends_with(b": ");
    (one_way || padded || timed) && !(joined || goes_on || scaled || scored || has_unit(hit)) && is_day_month(hit)
}

/// Days from 1 to 31 and years in their order.
fn is_range(hit: &mut Hit) -> bool {
    let piece = hit.piece();
    let numbers: Vec<usize> =
        piece.split(|byte| !byte.is_ascii_digit()).filter(|number| !number.is_empty()).map(num_value).collect();
    let years = piece.iter().all(|byte| !matches!(byte, b'/' | b'.')) && numbers.len() == 2 && numbers[0] > 1000;
    let in_order = !years || numbers[0] < numbers[1] && numbers[1] < 2100;
    let slashed = piece.contains(&b'/') && numbers.len() >= 4 && numbers[1] < 1000;
    let days = !slashed
        || numbers[..4]
            .chunks(2)
            .all(|date| date[0].min(date[1]) <= 12 && date[0].max(date[1]) <= 31 && date[0].min(date[1]) > 0)
            && (numbers.len() > 4 || numbers[..4].iter().any(|number| *number > 12) || piece.contains(&b' '));
    let joined = matches!(hit.before(), [.., b'0'..=b'9', b'/' | b'-' | b'.']);
    in_order && days && !joined && !goes_on(hit) && !has_unit(hit)
}

/// What a fraction is of: a part of the body, a dose.
fn has_fraction(hit: &Hit) -> bool {
    static WHOLE: Words = LazyLock::new(|| WordSet::of("fractions"));
    let rest = hit.after().trim_ascii_start();
    WHOLE.begin(rest)
}

/// A day from 1 to 31.
fn is_day_first(hit: &mut Hit) -> bool {
    let day = hit
        .piece()
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |day, byte| day * 10 + u32::from(byte - b'0'));
    // "mar", "may", "mai" and "set" are words too; a number before one is a day only where the word is whole.
    let item = hit.piece().contains(&b'.') && matches!(hit.after(), [b' ', b'0'..=b'9', ..]);
    (1..=31).contains(&day) && !item && !matches!(hit.before(), [.., b'0'..=b'9', b'.' | b',' | b'/' | b'-'])
}

fn goes_on(hit: &Hit) -> bool {
    matches!(hit.after(), [b'/' | b'.' | b'-' | b',' | b':', b'0'..=b'9', ..])
}

/// Units that make a number an amount.
pub fn has_unit(hit: &Hit) -> bool {
    static UNITS: Words = LazyLock::new(|| WordSet::of("units"));
    let after = hit.after();
    let rest = after.strip_prefix(b" ").unwrap_or(after);
    let word = &rest[..rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count()];
    rest.starts_with(b"%") || rest.starts_with(b"*") || UNITS.has_any_case(word)
}

fn is_no_amount(hit: &mut Hit) -> bool {
    let goes_on = matches!(hit.after(), [b'.' | b',' | b':', b'0'..=b'9', ..]);
    !goes_on && !has_unit(hit)
}

fn is_year(hit: &mut Hit) -> bool {
    let next_year = hit.piece().len() >= 4 && num_value(&hit.piece()[hit.piece().len() - 4..]) < 2100;
    let goes_on = matches!(hit.after(), [b'.' | b',' | b':' | b'/', b'0'..=b'9', ..]);
    next_year && !goes_on && !has_unit(hit)
}

/// "march" and "may" in small letters are verbs; months of the other languages are no other words.
fn is_capital_or_sure(hit: &mut Hit) -> bool {
    let piece = hit.piece();
    let verb = [&b"march"[..], b"may", b"august", b"mars"].contains(&piece);

    let sure = piece == b"mars" && hit.before().ends_with(b"en ");
    (!verb || sure) && (piece != b"mai" || hit.before().ends_with(b"en "))
}
