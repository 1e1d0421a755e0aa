//! JSON: how deep values are nested, before a parser that goes into them by calling itself runs out of stack.

use memchr::memchr2;

/// Where the first value begins that stands in more than `limit` others; None where no value does.
///
/// Newlines mean nothing here: a parser reads an object on over them. Up to the first byte that is not JSON this sees the
/// brackets that any parser sees, and no parser goes on behind it.
pub fn too_deep(json: &[u8], limit: usize) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while at < json.len() {
        match json[at] {
            b'"' => {
                at += 1;
                loop {
                    at += memchr2(b'"', b'\\', &json[at.min(json.len())..])?;
                    if json[at] == b'"' {
                        break;
                    }
                    at += 2; // and what is escaped
                }
            }
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return Some(at);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => (),
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_count() {
        assert_eq!(too_deep(b"", 1), None);
        assert_eq!(too_deep(br#"{"a": [1, {"b": 2}]}"#, 3), None);
        assert_eq!(too_deep(br#"{"a": [1, {"b": 2}]}"#, 2), Some(10));
        assert_eq!(too_deep(br#"{"a": "[[[[ \" {{{{ \\"}"#, 1), None);
        assert_eq!(too_deep(br#"{"a": "\\", "b": [[1]]}"#, 2), Some(18));
        assert_eq!(too_deep(b"{\"a\":\n{\"a\":\n{", 2), Some(12));
        assert_eq!(too_deep(br#"{"a": "x"#, 1), None);
        assert_eq!(too_deep(br#"{"a": "x\"#, 1), None);
        assert_eq!(too_deep(b"{}{}{}{}{}\n{}", 1), None);
        assert_eq!(too_deep(&[b'['; 100_000], 64), Some(64));
    }
}
