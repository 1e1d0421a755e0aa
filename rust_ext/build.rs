//! `RULES`: a digest of all code and lists by which the core finds identifiers, so that a change of them is never forgotten.

// Cargo reads what a build script prints.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const SOURCES: [&str; 6] =
    ["src/detect", "src/rules", "src/text", "src/word_lists.rs", "words", "../reticent/engine/names.toml"];

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("rust_ext");
    let mut files = Vec::new();
    for source in SOURCES {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
        add(&root.join(source), &mut files)?;
    }
    files.sort();
    // FNV-1a: a change must show, nobody forges one.
    let mut digest: u64 = 0xcbf2_9ce4_8422_2325;
    for path in files {
        for byte in fs::read(path)? {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    println!("cargo:rustc-env=RULES={digest:016x}");
    Ok(())
}

fn add(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        add(&entry?.path(), files)?;
    }
    Ok(())
}
