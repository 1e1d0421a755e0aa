//! How a piece is written: in capitals alone, or within an address of mail or the web.

use crate::text::pieces::View;

/// Whether the piece is written in capitals alone, as headings and abbreviations are: no sign of a name.
#[inline]
pub fn is_all_capitals(view: &View, number: usize) -> bool {
    // Mostly the second letter tells it.
    let second = view.origin_start(number).and_then(|start| view.original.as_bytes().get(start + 1));
    if !second.is_some_and(u8::is_ascii_uppercase) {
        return false;
    }
    let bounds = view.origin_of(number, number);
    let original = bounds.and_then(|(start, end)| view.original.as_bytes().get(start..end));
    original.is_some_and(|original| original.len() > 1 && original.iter().all(|byte| byte.is_ascii_uppercase()))
}

/// Whether a piece is a part of an address of mail or the web, which has names in small letters.
#[inline]
pub fn is_in_address(text: &str, start: usize, end: usize) -> bool {
    let bytes = text.as_bytes();
    let joins = |sign: Option<&u8>, beyond: Option<&u8>| match sign {
        Some(b'@') => true,
        Some(b'.') => beyond.is_some_and(u8::is_ascii_alphanumeric),
        _ => false,
    };
    let before = |by: usize| start.checked_sub(by).and_then(|at| bytes.get(at));
    joins(bytes.get(end), bytes.get(end + 1)) || joins(before(1), before(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::surface::Surface;

    #[test]
    fn names_within_addresses() {
        let text = "write to ana.roy@mail.example or {max_name}; see roy. then roy, e.g. roy";
        let words = ["write", "ana", "roy", "mail", "max", "then"];
        let found = words.map(|word| {
            let start = text.find(word).unwrap();
            is_in_address(text, start, start + word.len())
        });
        assert_eq!(found, [false, true, true, true, false, false]);
        let last = text.len() - 3;
        assert!(!is_in_address(text, last, text.len()));
    }
    #[test]
    fn pieces_in_capitals_alone() {
        let view = View::new("MRI Mri ÉTÉ É X M&Uuml;LLER X\u{301}Y OK", Surface::Fold);
        let found: Vec<bool> = (0..view.len()).map(|piece| is_all_capitals(&view, piece)).collect();
        assert_eq!(found, [true, false, false, false, false, false, false, true]);
    }
}
