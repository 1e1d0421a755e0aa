//! A message of HL7 v2: its segments, their fields that are read, and the texts of OBX without escapes.
//!
//! A segment ends where a line ends and a name with the separator of fields follows. Where that is not certain, since a text
//! may have lines of its own, a name that no segment of the standard has goes on with the OBX before it. Lines of a text
//! are mostly short and many: those of one type, and with the same fields behind them, become one text here.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memchr2, memchr2_iter};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// The signs of a message: between fields, components, repetitions; of escapes; between subcomponents.
#[derive(Clone, Copy)]
pub struct Signs {
    pub field: char,
    pub component: char,
    pub repetition: char,
    pub escape: char,
    pub subcomponent: char,
}

/// Fields of a segment, its name the first; one that is left out is empty.
///
/// Of OBX that follow each other with one type and the same fields behind their values: name, type, status, and the values;
/// of a type of text one value, which has a line for each of them and for each repetition.
pub struct Segment<'a> {
    pub fields: Vec<Cow<'a, str>>,
    /// A break of a line stands in OBX where what is text and what is a field cannot be told.
    pub is_broken: bool,
}

/// Segments of HL7 2.1 to 2.9, by name; those of a site begin with Z.
const SEGMENTS: [&str; 195] = [
    "ABS", "ACC", "ADD", "ADJ", "AFF", "AIG", "AIL", "AIP", "AIS", "AL1", "APR", "ARQ", "ARV", "AUT", "BHS", "BLC",
    "BLG", "BPO", "BPX", "BTS", "BTX", "BUI", "CDM", "CDO", "CER", "CM0", "CM1", "CM2", "CNS", "CON", "CSP", "CSR",
    "CSS", "CTD", "CTI", "CTR", "DB1", "DEV", "DG1", "DMI", "DON", "DPS", "DRG", "DSC", "DSP", "DST", "ECD", "ECR",
    "EDU", "EQL", "EQP", "EQU", "ERQ", "ERR", "EVN", "FAC", "FHS", "FT1", "FTS", "GOL", "GP1", "GP2", "GT1", "IAM",
    "IAR", "IIM", "ILT", "IN1", "IN2", "IN3", "INV", "IPC", "IPR", "ISD", "ITM", "IVC", "IVT", "LAN", "LCC", "LCH",
    "LDP", "LOC", "LRL", "MCP", "MFA", "MFE", "MFI", "MRG", "MSA", "MSH", "NCK", "NDS", "NK1", "NPU", "NSC", "NST",
    "NTE", "OBR", "OBX", "ODS", "ODT", "OH1", "OH2", "OH3", "OH4", "OM1", "OM2", "OM3", "OM4", "OM5", "OM6", "OM7",
    "OM8", "OMC", "ORC", "ORG", "OVR", "PAC", "PCE", "PCR", "PD1", "PDA", "PDC", "PEO", "PES", "PID", "PKG", "PM1",
    "PMT", "PR1", "PRA", "PRB", "PRC", "PRD", "PRT", "PSG", "PSH", "PSL", "PSS", "PTH", "PV1", "PV2", "PYE", "QAK",
    "QID", "QPD", "QRD", "QRF", "QRI", "RCP", "RDF", "RDT", "REL", "RF1", "RFI", "RGS", "RMI", "ROL", "RQ1", "RQD",
    "RXA", "RXC", "RXD", "RXE", "RXG", "RXO", "RXR", "RXV", "SAC", "SCD", "SCH", "SCP", "SDD", "SFT", "SGH", "SGT",
    "SHP", "SID", "SLT", "SPM", "STF", "STZ", "TCC", "TCD", "TQ1", "TQ2", "TXA", "UAC", "UB1", "UB2", "URD", "URS",
    "VAR", "VND", "VTQ",
];

/// The fields that are read of a segment, with its name; None of one that is not read.
fn num_fields(name: &str) -> Option<usize> {
    Some(match name {
        "MSH" => 10,
        "PID" => 4,
        "MRG" => 2,
        "TXA" => 13,
        "OBR" => 8,
        "OBX" => 7,
        "ADD" => 1,
        _ => return None,
    })
}

fn is_end(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\x0b' | '\x1c')
}

fn has_break(text: &str) -> bool {
    memchr2(b'\r', b'\n', text.as_bytes()).is_some()
}

/// The place of a sign, which mostly is ASCII: of such a one the library's own search is slower.
fn find(text: &str, sign: char) -> Option<usize> {
    match u8::try_from(sign) {
        Ok(byte) if byte.is_ascii() => memchr(byte, text.as_bytes()),
        _ => text.find(sign),
    }
}

/// The segments of a message that are read, in their order; or the name behind a line feed of which cannot be told whether
/// it is text or begins a segment of another patient or document.
pub fn segments(message: &str, signs: Signs) -> Result<Vec<Segment<'_>>, &str> {
    let mut found = Vec::new();
    let mut observations: Option<Observations<'_>> = None;
    for line in lines(message.trim_matches(is_end), signs.field)? {
        let Some(count) = line.get(..3).and_then(num_fields) else { continue };
        let line = line.trim_end_matches(is_end);
        if line.starts_with("OBX") {
            let (value, alike) = Alike::of(line, signs.field);
            match &mut observations {
                Some(held) if held.alike == alike => held.values.push(value),
                _ => {
                    let next = Observations { alike, values: vec![value] };
                    found.extend(observations.replace(next).map(|held| held.segment(signs)));
                }
            }
            continue;
        }
        found.extend(observations.take().map(|held| held.segment(signs)));
        let mut fields: Vec<_> = line.split(signs.field).take(count).map(Cow::Borrowed).collect();
        fields.resize(count, Cow::Borrowed(""));
        found.push(Segment { fields, is_broken: false });
    }
    found.extend(observations.map(|held| held.segment(signs)));
    Ok(found)
}

/// The lines of the segments of a message, each with what goes on with it.
fn lines(message: &str, field: char) -> Result<Vec<&str>, &str> {
    let bytes = message.as_bytes();
    let begins = |line: &str| {
        let name = line.as_bytes();
        name.len() > 3
            && name[0].is_ascii_uppercase()
            && name[1..3].iter().all(|sign| sign.is_ascii_uppercase() || sign.is_ascii_digit())
            && line[3..].starts_with(field)
    };
    let is_segment =
        |line: &str| line.starts_with('Z') || line.get(..3).is_some_and(|name| SEGMENTS.binary_search(&name).is_ok());
    // Signs of frames within a message are rare.
    let begins_behind = |&end: &usize| begins(&message[end + 1..]);
    let ends: Vec<_> = match memchr2(b'\x0b', b'\x1c', bytes) {
        Some(_) => (0..bytes.len()).filter(|&at| is_end(bytes[at].into())).filter(begins_behind).collect(),
        None => memchr2_iter(b'\r', b'\n', bytes).filter(begins_behind).collect(),
    };
    let of_returns = memchr2(b'\r', b'\n', bytes).is_some_and(|at| bytes[at] == b'\r');
    let is_certain = if of_returns {
        memchr_iter(b'\n', bytes).all(|at| at > 0 && bytes[at - 1] == b'\r')
    } else {
        is_segment(message) && ends.iter().all(|end| is_segment(&message[end + 1..]))
    };
    let (mut found, mut start) = (Vec::new(), 0);
    for end in ends {
        let next = &message[end + 1..];
        let is_text_before = bytes[end] == b'\n' && message[start..].starts_with("OBX");
        if !is_certain && is_text_before && !(of_returns && bytes[end - 1] == b'\r') {
            let name = &next[..3];
            // Whose the lines behind it are would be guessed.
            if of_returns && name != "OBX" && num_fields(name).is_some() {
                return Err(name);
            }
            if !(if of_returns { name == "OBX" } else { is_segment(next) }) {
                continue;
            }
        }
        found.push(&message[start..end]);
        start = end + 1;
    }
    found.push(&message[start..]);
    Ok(found)
}

/// What OBX have in common that become one text.
#[derive(PartialEq, Eq)]
struct Alike<'a> {
    kind: &'a str,
    behind: &'a str,
    /// Fields that are lacking up to those behind the value.
    num_missing: usize,
}

impl<'a> Alike<'a> {
    /// The value of an OBX, and what stands around it.
    fn of(line: &'a str, field: char) -> (&'a str, Self) {
        let (mut fields, mut num_missing, mut rest) = ([""; 7], 6, line);
        for slot in &mut fields[..6] {
            let Some(end) = find(rest, field) else { break };
            (*slot, rest) = (&rest[..end], &rest[end + field.len_utf8()..]);
            num_missing -= 1;
        }
        fields[6 - num_missing] = rest;
        (fields[5], Self { kind: fields[2], behind: fields[6], num_missing })
    }
}

/// OBX that follow each other, of one type and with the same fields behind their values.
struct Observations<'a> {
    alike: Alike<'a>,
    values: Vec<&'a str>,
}

impl<'a> Observations<'a> {
    fn segment(self, signs: Signs) -> Segment<'a> {
        let Alike { kind, behind, .. } = self.alike;
        let mut fields = behind.split(signs.field);
        let (units, reference) = (fields.next(), fields.next());
        // Fields behind a value may be a part of it, where a line breaks in it.
        let is_alone = [units, reference].into_iter().flatten().all(str::is_empty);
        let status = fields.nth(3).unwrap_or("");
        let is_broken = has_break(behind) || (!is_alone && self.values.iter().any(|value| has_break(value)));
        let mut fields: Vec<Cow<'a, str>> = vec!["OBX".into(), kind.into(), status.into()];
        if matches!(kind, "TX" | "FT" | "ST") {
            fields.push(text(&self.values, signs).into());
        } else {
            fields.extend(self.values.into_iter().map(Cow::Borrowed));
        }
        Segment { fields, is_broken }
    }
}

/// A line of each value and of each repetition in it, without escapes.
fn text(values: &[&str], signs: Signs) -> String {
    let has_lines = |value: &str| match u8::try_from(signs.repetition) {
        Ok(sign) if sign.is_ascii() => memchr2(b'\r', sign, value.as_bytes()).is_some(),
        _ => value.contains(['\r', signs.repetition]),
    };
    let mut found = String::with_capacity(values.iter().map(|value| value.len() + 1).sum());
    for (number, value) in values.iter().enumerate() {
        if number > 0 {
            found.push('\n');
        }
        if has_lines(value) {
            let lines = value.replace("\r\n", "\n").replace(['\r', signs.repetition], "\n");
            unescape_into(&lines, signs, &mut found);
        } else {
            unescape_into(value, signs, &mut found);
        }
    }
    found
}

/// A field without its escapes: signs, breaks and spaces are put in, formatting is left out.
///
/// What is no escape, a path of Windows say, takes no sign away from an escape behind it.
pub fn unescape(text: &str, signs: Signs) -> Cow<'_, str> {
    if !text.contains(signs.escape) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    unescape_into(text, signs, &mut plain);
    Cow::Owned(plain)
}

fn unescape_into(text: &str, signs: Signs, plain: &mut String) {
    let mut rest = text;
    while let Some(end) = find(rest, signs.escape) {
        let behind = &rest[end + signs.escape.len_utf8()..];
        plain.push_str(&rest[..end]);
        rest = match unescape_one(behind, signs, plain) {
            Some(after) => after,
            None => {
                plain.push(signs.escape);
                behind
            }
        };
    }
    plain.push_str(rest);
}

/// Add what an escape is read as, and return what follows it; `text` begins behind its first sign. None if it is none.
fn unescape_one<'a>(text: &'a str, signs: Signs, plain: &mut String) -> Option<&'a str> {
    let sign = match text.as_bytes().first()? {
        b'F' => signs.field,
        b'S' => signs.component,
        b'T' => signs.subcomponent,
        b'R' => signs.repetition,
        b'E' => signs.escape,
        b'H' | b'N' => return text[1..].strip_prefix(signs.escape),
        b'X' => return octets(text, signs.escape, plain),
        b'.' => return command(text, signs.escape, plain),
        b'C' | b'M' => {
            let behind = text[1..].trim_start_matches(|c: char| c.is_ascii_hexdigit());
            return behind.strip_prefix(signs.escape).filter(|_| behind.len() + 1 < text.len());
        }
        b'Z' => {
            let behind = text.trim_start_matches(is_word);
            if signs.escape == '_' {
                return text[1..text.len() - behind.len()].rfind('_').map(|at| &text[at + 2..]);
            }
            return behind.strip_prefix(signs.escape);
        }
        _ => return None,
    };
    let behind = text[1..].strip_prefix(signs.escape)?;
    plain.push(sign);
    Some(behind)
}

fn is_word(c: char) -> bool {
    let group = || c.general_category_group();
    c == '_' || c.is_ascii_alphanumeric() || {
        !c.is_ascii() && matches!(group(), GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number)
    }
}

/// Escapes of bytes. Neighbours are one row of bytes, since a character may have several; what is not UTF-8 is Latin-1.
fn octets<'a>(text: &'a str, escape: char, plain: &mut String) -> Option<&'a str> {
    let (mut bytes, mut end, mut next) = (Vec::new(), None, Some(text));
    while let Some(codes) = next.and_then(|text| text.strip_prefix('X')) {
        let length = codes.bytes().take_while(u8::is_ascii_hexdigit).count();
        let Some(behind) = codes[length..].strip_prefix(escape).filter(|_| length > 0 && length % 2 == 0) else {
            break;
        };
        bytes.extend((0..length).step_by(2).filter_map(|at| u8::from_str_radix(&codes[at..at + 2], 16).ok()));
        (end, next) = (Some(behind), behind.strip_prefix(escape));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => plain.push_str(text),
        Err(_) => plain.extend(bytes.iter().copied().map(char::from)),
    }
    end
}

/// A command of formatted text: `.` and two letters, a sign, digits. One that is not known stays as it is.
fn command<'a>(text: &'a str, escape: char, plain: &mut String) -> Option<&'a str> {
    let name = text.get(1..3).filter(|name| name.bytes().all(|letter| letter.is_ascii_lowercase()))?;
    let signed = text[3..].strip_prefix(['+', '-']);
    // The sign of the escape may be one of the number: then the number has none.
    [signed, Some(&text[3..])].into_iter().flatten().find_map(|behind| {
        let sign = &text[3..text.len() - behind.len()];
        let count = behind.bytes().take(3).take_while(u8::is_ascii_digit).count();
        let (digits, end) = (&behind[..count], behind[count..].strip_prefix(escape)?);
        let number = digits.parse().unwrap_or(1);
        match (name, sign, count) {
            ("br" | "ce", "", 0) => plain.push('\n'),
            ("fi" | "nf", "", 0) | ("in" | "ti", _, 1..=3) => {}
            ("sp", "" | "+", 0..=2) => plain.extend(std::iter::repeat_n('\n', number)),
            ("sk", "" | "+", 1..=2) => plain.extend(std::iter::repeat_n(' ', number)),
            _ => {
                plain.push(escape);
                plain.push_str(&text[..text.len() - end.len()]);
            }
        }
        Some(end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNS: Signs = Signs { field: '|', component: '^', repetition: '~', escape: '\\', subcomponent: '&' };

    #[test]
    fn escapes_are_read() {
        for (text, plain) in [
            ("a\\F\\b\\E\\", "a|b\\"),
            ("C:\\temp\\F\\", "C:\\temp|"),
            ("\\XC3\\\\XBC\\\\XFC\\", "\u{c3}\u{bc}\u{fc}"),
            ("\\XC3BC\\\\X4\\", "ü\\X4\\"),
            ("\\.sp2\\\\.sk+3\\\\.ab1\\", "\n\n   \\.ab1\\"),
            ("\\Zé_1\\\\C1\\\\C\\", "\\C\\"),
            ("\\", "\\"),
        ] {
            assert_eq!(unescape(text, SIGNS), plain);
        }
    }

    #[test]
    fn lines_of_one_type_are_one_text() {
        let message = "MSH|^~\\&\rOBX|1|TX|||a~b||||||F\rOBX|2|TX|||\\.br\\c||||||F\rOBX|3|TX|||d||||||W\rNTE|1\r";
        let found: Vec<_> = segments(message, SIGNS).unwrap().into_iter().map(|each| each.fields).collect();
        assert_eq!(found[0].len(), 10);
        assert_eq!(found[1..], [["OBX", "TX", "F", "a\nb\n\nc"], ["OBX", "TX", "W", "d"]]);
        let with_units = segments("MSH|^~\\&\rOBX|1|NM|||7|mg|1-9|||D", SIGNS).unwrap().pop().unwrap();
        assert_eq!(with_units.fields, ["OBX", "NM", "", "7"]);
        let with_units = segments("MSH|^~\\&\rOBX|1|NM|||7|mg|1-9||||D", SIGNS).unwrap().pop().unwrap();
        assert_eq!(with_units.fields, ["OBX", "NM", "D", "7"]);
    }

    #[test]
    fn the_names_of_segments_are_in_order() {
        assert!(SEGMENTS.is_sorted());
    }
}
