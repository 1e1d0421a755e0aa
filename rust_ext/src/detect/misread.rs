//! Misread names: how a name looks in a text that was read in another encoding than it was written in, or that TeX would set.
//!
//! "Wałęsa" is "Wa³êsa" where Windows-1250 was read as Windows-1252, "WaĹ‚Ä™sa" where UTF-8 was read as Windows-1250, "Wa??sa" where
//! what was not known was replaced, and `Wa\l{}\k{e}sa` in TeX. Each letter of such a text may be a letter of another language, so a
//! text is not undone: the forms of a name that is known are looked for. What is told without knowing a name, as `Ã¼` is, `escapes`
//! undoes.

use std::sync::LazyLock;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memchr::{memchr2, memmem};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use crate::detect::records::Field;
use crate::text::escapes::HIGH;

/// Characters of the bytes from 0x80; a space where nothing is. Texts are read as one of the first `NUM_READ`, behind two more.
const TABLES: [&str; 9] = [
    // Windows-1250
    "€ ‚ „…†‡ ‰Š‹ŚŤŽŹ ‘’“”•–— ™š›śťžź\u{a0}ˇ˘Ł¤Ą¦§¨©Ş«¬\u{ad}®Ż°±˛ł´µ¶·¸ąş»Ľ˝ľżŔÁÂĂÄĹĆÇČÉĘËĚÍÎĎĐŃŇÓÔŐÖ×ŘŮÚŰÜÝŢßŕáâăäĺćçčéęëěíîďđńňóôőö÷řůúűüýţ˙",
    // Windows-1251
    "ЂЃ‚ѓ„…†‡€‰Љ‹ЊЌЋЏђ‘’“”•–— ™љ›њќћџ\u{a0}ЎўЈ¤Ґ¦§Ё©Є«¬\u{ad}®Ї°±Ііґµ¶·ё№є»јЅѕїАБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯабвгдежзийклмнопрстуфхцчшщъыьэюя",
    // the DOS of Western Europe
    "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜø£Ø×ƒáíóúñÑªº¿®¬½¼¡«»░▒▓│┤ÁÂÀ©╣║╗╝¢¥┐└┴┬├─┼ãÃ╚╔╩╦╠═╬¤ðÐÊËÈıÍÎÏ┘┌█▄¦Ì▀ÓßÔÒõÕµþÞÚÛÙýÝ¯´\u{ad}±‗¾¶§÷¸°¨·¹³²■\u{a0}",
    // ISO 8859-2
    "                                \u{a0}Ą˘Ł¤ĽŚ§¨ŠŞŤŹ\u{ad}ŽŻ°ą˛ł´ľśˇ¸šşťź˝žżŔÁÂĂÄĹĆÇČÉĘËĚÍÎĎĐŃŇÓÔŐÖ×ŘŮÚŰÜÝŢßŕáâăäĺćçčéęëěíîďđńňóôőö÷řůúűüýţ˙",
    // the DOS of Central Europe
    "ÇüéâäůćçłëŐőîŹÄĆÉĹĺôöĽľŚśÖÜŤťŁ×čáíóúĄąŽžĘę¬źČş«»░▒▓│┤ÁÂĚŞ╣║╗╝Żż┐└┴┬├─┼Ăă╚╔╩╦╠═╬¤đĐĎËďŇÍÎě┘┌█▄ŢŮ▀ÓßÔŃńňŠšŔÚŕŰýÝţ´\u{ad}˝˛ˇ˘§÷¸°¨˙űŘř■\u{a0}",
    // KOI8-R
    "─│┌┐└┘├┤┬┴┼▀▄█▌▐░▒▓⌠■∙√≈≤≥\u{a0}⌡°²·÷═║╒ё╓╔╕╖╗╘╙╚╛╜╝╞╟╠╡Ё╢╣╤╥╦╧╨╩╪╫╬©юабцдефгхийклмнопярстужвьызшэщчъЮАБЦДЕФГХИЙКЛМНОПЯРСТУЖВЬЫЗШЭЩЧЪ",
    // the DOS of Russia
    "АБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯабвгдежзийклмноп░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀рстуфхцчшщъыьэюяЁёЄєЇїЎў°∙·√№¤■\u{a0}",
    // Windows-1253
    "€ ‚ƒ„…†‡ ‰ ‹     ‘’“”•–— ™ ›    \u{a0}΅Ά£¤¥¦§¨© «¬\u{ad}®―°±²³΄µ¶·ΈΉΊ»Ό½ΎΏΐΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡ ΣΤΥΦΧΨΩΪΫάέήίΰαβγδεζηθικλμνξοπρςστυφχψωϊϋόύώ ",
    // Windows-1254
    "€ ‚ƒ„…†‡ˆ‰Š‹Œ    ‘’“”•–—˜™š›œ  Ÿ\u{a0}¡¢£¤¥¦§¨©ª«¬\u{ad}®¯°±²³´µ¶·¸¹º»¼½¾¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏĞÑÒÓÔÕÖ×ØÙÚÛÜİŞßàáâãäåæçèéêëìíîïğñòóôõö÷øùúûüışÿ",
];
const NUM_READ: usize = 5;

struct Encoding {
    chars: [char; 128],
    bytes: HashMap<char, u8, FixedState>,
}

impl Encoding {
    /// What has no character is read as a control character.
    fn new(chars: impl Iterator<Item = char>) -> Self {
        let mut own = Self { chars: std::array::from_fn(control), bytes: HashMap::default() };
        for (at, char) in chars.enumerate().filter(|(_, char)| *char != ' ') {
            own.chars[at] = char;
            own.bytes.insert(char, 0x80 + at as u8);
        }
        own
    }

    fn write(&self, text: &str) -> Option<Vec<u8>> {
        text.chars().map(|c| if c.is_ascii() { Some(c as u8) } else { self.bytes.get(&c).copied() }).collect()
    }

    fn read(&self, bytes: &[u8]) -> String {
        bytes
            .iter()
            .map(|&byte| if byte < 0x80 { char::from(byte) } else { self.chars[usize::from(byte) - 0x80] })
            .collect()
    }
}

/// The character of Latin-1.
fn control(at: usize) -> char {
    char::from(0x80 + at as u8)
}

/// Windows-1252, Latin-1, and the tables.
static ENCODINGS: LazyLock<Vec<Encoding>> = LazyLock::new(|| {
    let windows = HIGH.chars().chain((0x20..0x80).map(control));
    let tables = TABLES.iter().map(|table| Encoding::new(table.chars()));
    [Encoding::new(windows), Encoding::new((0..0x80).map(control))].into_iter().chain(tables).collect()
});

/// Letters of a part of a name whose misread forms are looked for.
const MIN_LETTERS: usize = 3;

/// The values of an individual with letters beyond ASCII, as they look otherwise: each form, and the value's number.
#[derive(Default)]
pub struct Misread(Vec<(String, u32)>);

impl Misread {
    pub fn add(&mut self, value: &str, field: Field, source: u32) {
        if value.is_ascii() {
            return;
        }
        let value: String = value.nfc().collect();
        let parts = value.split(|c: char| match field {
            Field::Name => !c.is_alphabetic() && !is_combining_mark(c),
            Field::Address => matches!(c, ',' | ';' | '\n'),
            _ => false,
        });
        let long = |part: &&str| part.chars().count() >= MIN_LETTERS && !part.is_ascii();
        for part in parts.map(str::trim).filter(long) {
            self.0.extend(forms(part).into_iter().map(|form| (form, source)));
        }
    }

    /// Give first byte, last byte and number of each form that stands in a text between what is no letter.
    pub fn find(&self, text: &str, mut emit: impl FnMut(usize, usize, u32)) {
        if self.0.is_empty() || text.is_ascii() && memchr2(b'?', b'\\', text.as_bytes()).is_none() {
            return;
        }
        let is_word = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
        for (form, source) in &self.0 {
            for start in memmem::find_iter(text.as_bytes(), form) {
                let end = start + form.len();
                if !is_word(text[..start].chars().next_back()) && !is_word(text[end..].chars().next()) {
                    emit(start, end, *source);
                }
            }
        }
    }
}

/// How a text with letters beyond ASCII looks otherwise, each form once.
fn forms(text: &str) -> Vec<String> {
    let read = &ENCODINGS[..NUM_READ];
    let (small, large) = (text.to_lowercase(), text.to_uppercase());
    let first = large.chars().next().into_iter();
    let name: String = first.chain(small.chars().skip(1)).collect();
    let mut cased = [text, &name, &small, &large];
    cased.sort_unstable();
    let mut forms = Vec::new();
    for pair in cased.chunk_by(|one, other| one == other) {
        let one = pair[0];
        let written = ENCODINGS.iter().filter_map(|encoding| encoding.write(one));
        for bytes in written.chain([one.as_bytes().to_vec()]) {
            forms.extend(read.iter().map(|encoding| encoding.read(&bytes)));
        }
        for sign in ["?", "\u{fffd}"] {
            forms.push(replaced(one, |_| sign.into()));
            forms.push(replaced(one, |c| sign.repeat(c.len_utf8())));
        }
        for write in [|sign: &str, of: &str| format!("\\{sign}{of}"), braces_within, braces_around] {
            forms.push(replaced(one, |c| tex(c, write)));
        }
    }
    forms.sort_unstable();
    forms.dedup();
    let left = |form: &str| form.chars().filter(|c| !matches!(c, '?' | '\u{fffd}')).count();
    forms.retain(|form| left(form) >= 2 && !cased.contains(&form.as_str()));
    forms
}

fn replaced(text: &str, by: impl Fn(char) -> String) -> String {
    text.chars().map(|c| if c.is_ascii() { c.into() } else { by(c) }).collect()
}

/// `\"{u}`
fn braces_within(sign: &str, of: &str) -> String {
    format!("\\{sign}{{{of}}}")
}

/// `{\"u}`, `{\c c}`
fn braces_around(sign: &str, of: &str) -> String {
    let space = if sign.ends_with(|c: char| c.is_ascii_alphabetic()) && !of.is_empty() { " " } else { "" };
    format!("{{\\{sign}{space}{of}}}")
}

/// How TeX writes a letter; itself where it has no name.
fn tex(c: char, write: fn(&str, &str) -> String) -> String {
    let mut parts = std::iter::once(c).nfd();
    let (base, mark, none_left) = (parts.next().unwrap_or(c), parts.next(), parts.next().is_none());
    let accent = mark.and_then(|mark| TEX_ACCENTS.iter().find(|(_, other)| *other == mark));
    match (accent, TEX_LETTERS.iter().find(|(_, other)| *other == c)) {
        (Some((sign, mark)), _) if none_left && is_combining_mark(*mark) => write(sign, &base.to_string()),
        (_, Some((sign, _))) => write(sign, ""),
        _ => c.into(),
    }
}

const TEX_ACCENTS: [(&str, char); 13] = [
    ("`", '\u{300}'),
    ("'", '\u{301}'),
    ("^", '\u{302}'),
    ("~", '\u{303}'),
    ("=", '\u{304}'),
    ("u", '\u{306}'),
    (".", '\u{307}'),
    ("\"", '\u{308}'),
    ("r", '\u{30a}'),
    ("H", '\u{30b}'),
    ("v", '\u{30c}'),
    ("c", '\u{327}'),
    ("k", '\u{328}'),
];
const TEX_LETTERS: [(&str, char); 14] = [
    ("ss", 'ß'),
    ("ae", 'æ'),
    ("AE", 'Æ'),
    ("oe", 'œ'),
    ("OE", 'Œ'),
    ("aa", 'å'),
    ("AA", 'Å'),
    ("o", 'ø'),
    ("O", 'Ø'),
    ("l", 'ł'),
    ("L", 'Ł'),
    ("dj", 'đ'),
    ("DJ", 'Đ'),
    ("i", 'ı'),
];
