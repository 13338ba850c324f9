//! The files of the page: their size, and that they are text of our own origin.

use std::io::Write as _;
use std::path::PathBuf;

fn files() -> Vec<(PathBuf, Vec<u8>)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("page");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn compressed_page_is_small() {
    let mut total = 0;
    for (_, content) in files() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&content).unwrap();
        total += encoder.finish().unwrap().len();
    }
    assert!(total <= 100_000, "{total} bytes");
}

#[test]
fn every_file_is_embedded() {
    let list = include_str!("../src/assets.rs");
    for (path, _) in files() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(list.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn page_fetches_nothing_from_outside_and_writes_no_markup() {
    for (path, content) in files() {
        let text = String::from_utf8(content).unwrap();
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "<style",
            "style=\"",
        ] {
            assert!(!text.contains(forbidden), "{}: {forbidden}", path.display());
        }
        let outside = text.replace("http://www.w3.org/", "").replace("https?:\\/\\/", "");
        assert!(!outside.contains("http://") && !outside.contains("https://"), "{}", path.display());
    }
}
