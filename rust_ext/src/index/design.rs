//! The worked example of DESIGN.md, which tests beside the code hold to the values that the code makes.

use crate::text::texts::Texts;

/// Documents of three individuals, in the order in which they come, and who they are about.
pub const DOCUMENTS: [(&str, u32, &str); 4] = [
    ("a1", 0, "fever and cough since Monday"),
    ("b1", 1, "fever and cough at night"),
    ("c1", 2, "no cough and fever since Monday"),
    ("a2", 0, "fever and cough in Lyon"),
];

pub fn texts(documents: &[(&str, u32, &str)]) -> (Texts, Vec<u32>) {
    let texts: Vec<&str> = documents.iter().map(|document| document.2).collect();
    (Texts::of(&texts), documents.iter().map(|document| document.1).collect())
}

/// The block of the page whose fence names it.
pub fn block(name: &str) -> &'static str {
    let fence = format!("```text {name}\n");
    let page = include_str!("DESIGN.md");
    let (_, rest) = page.split_once(&fence).unwrap_or_else(|| panic!("DESIGN.md has no block {name}"));
    rest.split_once("```").unwrap().0
}

/// Whether a block of the page is what the code makes.
pub fn check(name: &str, made: &str) {
    assert_eq!(block(name), made, "\n--- block {name} of DESIGN.md should be:\n{made}---");
}

/// Numbers with a space between them.
pub fn row<T: ToString>(numbers: impl IntoIterator<Item = T>) -> String {
    numbers.into_iter().map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}
