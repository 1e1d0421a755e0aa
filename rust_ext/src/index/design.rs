//! The worked example of DESIGN.md: four documents with ten distinct words. Tests beside the code compare each block of that
//! page with the values that the code makes.

use crate::text::texts::Texts;

/// (name, unit, text) of the documents, in the order in which they are added. They belong to three individuals.
pub const DOCUMENTS: [(&str, u32, &str); 4] = [
    ("a1", 0, "fever and cough since Monday"),
    ("b1", 1, "fever and cough at night"),
    ("c1", 2, "no cough and fever since Monday"),
    ("a2", 0, "fever and cough in Lyon"),
];

/// The texts of documents and the unit of each.
pub fn texts(documents: &[(&str, u32, &str)]) -> (Texts, Vec<u32>) {
    let texts: Vec<&str> = documents.iter().map(|document| document.2).collect();
    (Texts::of(&texts), documents.iter().map(|document| document.1).collect())
}

/// The block of the page with this name on its fence; it panics if there is none.
pub fn block(name: &str) -> &'static str {
    let fence = format!("```text {name}\n");
    let page = include_str!("DESIGN.md");
    let (_, rest) = page.split_once(&fence).unwrap_or_else(|| panic!("DESIGN.md has no block {name}"));
    rest.split_once("```").unwrap().0
}

/// Assert that a block of the page equals what the code makes, and print the right block if it does not.
pub fn check(name: &str, made: &str) {
    assert_eq!(block(name), made, "\n--- block {name} of DESIGN.md should be:\n{made}---");
}

/// Numbers with a space between them.
pub fn row<T: ToString>(numbers: impl IntoIterator<Item = T>) -> String {
    numbers.into_iter().map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}
