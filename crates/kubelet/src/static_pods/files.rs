//! Manifests of pods in a directory or a file.
//!
//! In a directory every file counts whose name does not begin with a dot, in the order of the names;
//! subdirectories are ignored. A file that cannot be used is reported and skipped, without effect on the
//! others.

use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use api::json::Value;

/// No manifest is longer.
const BYTES_MAX: u64 = 10 << 20;

/// The manifest of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Path of the file.
    pub path: PathBuf,
    /// Parsed contents.
    pub document: Value,
}

/// Result of reading the manifests.
#[derive(Debug, Default, PartialEq)]
pub struct FoundManifests {
    /// Valid manifests.
    pub manifests: Vec<Manifest>,
    /// Invalid files, with the reasons.
    pub faults: Vec<(PathBuf, String)>,
}

/// File metadata: unchanged files need not be read.
#[derive(Debug, PartialEq, Eq)]
pub struct FileMetadata(Vec<(PathBuf, u64, Option<SystemTime>)>);

impl FileMetadata {
    /// Reads the metadata of the files.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        let of_file = |path: PathBuf| {
            let metadata = fs::metadata(&path);
            let size = metadata.as_ref().map_or(0, Metadata::len);
            let changed = metadata.and_then(|it| it.modified()).ok();
            (path, size, changed)
        };
        FileMetadata(files(path).unwrap_or_default().into_iter().map(of_file).collect())
    }
}

/// Reads the manifests. Where there is nothing, there are none.
///
/// # Errors
/// The state is unknown: the previous manifests stay.
pub fn read(path: &Path) -> io::Result<FoundManifests> {
    let mut found = FoundManifests::default();
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        metadata => metadata?,
    };
    if metadata.is_file() {
        let document = document(path).map_err(io::Error::other)?;
        found.manifests.push(Manifest { path: path.to_owned(), document });
        return Ok(found);
    }
    for path in files(path)? {
        match document(&path) {
            Ok(document) => found.manifests.push(Manifest { path, document }),
            Err(why) => found.faults.push((path, why)),
        }
    }
    Ok(found)
}

/// The files that count, sorted.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The pod of a file.
fn document(path: &Path) -> Result<Value, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        return Err("it is a directory, and directories in it are not read".to_owned());
    }
    if !metadata.is_file() {
        return Err("it is neither a directory nor a file".to_owned());
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(BYTES_MAX.saturating_add(1)).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > BYTES_MAX {
        return Err(format!("it is longer than {BYTES_MAX} bytes"));
    }
    let (documents, error) = api::yaml::parse_manifests(&text);
    if let Some(error) = error {
        return Err(format!("couldn't parse as pod({}), please check config file", error.message));
    }
    let mut documents = documents.into_iter().map(|it| it.value).filter(|it| !it.is_null());
    let (Some(document), None) = (documents.next(), documents.next()) else {
        return Err("it must contain exactly one pod".to_owned());
    };
    let text = |field: &str| document.text(field);
    if (text("apiVersion"), text("kind")) != ("v1", "Pod") {
        return Err(format!("it contains a {} of {}, not a Pod of v1", text("kind"), text("apiVersion")));
    }
    if document.text_at(&["metadata", "name"]).is_empty() {
        return Err("invalid pod: name is needed for the pod".to_owned());
    }
    Ok(document)
}
