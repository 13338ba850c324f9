//! Log files as CRI runtimes write them: `TIME stdout|stderr F|P TEXT`, one line or part of a line each.
//!
//! Files are read from the end as far as is needed, and never more than a bound. Rotated files are `FILE.1` (newest) to
//! `FILE.4`.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use api::json::Text;
use api::time::Timestamp;

use crate::logs::Line;

/// The most that is read of one file.
const READ_BYTES_MAX: u64 = 10 << 20;
/// Size at which a log file is rotated.
const ROTATE_BYTES: u64 = 10 << 20;
/// Number of files to keep of a container, including the current one.
const FILES_MAX: u32 = 5;

/// The lines at the end of a log file, at most [`READ_BYTES_MAX`] of it.
pub(super) fn read(path: &Path) -> std::io::Result<Vec<Line>> {
    let (bytes, _) = end_of(&mut File::open(path)?)?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

/// The whole lines at the end of a log file, at most [`READ_BYTES_MAX`] of it, and the length of the file.
pub(super) fn end_of(file: &mut File) -> std::io::Result<(Vec<u8>, u64)> {
    let end = file.metadata()?.len();
    let start = end.saturating_sub(READ_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(end.saturating_sub(start)).read_to_end(&mut bytes)?;
    if start > 0 {
        // The first line of a part is cut off.
        let first = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at.saturating_add(1));
        bytes.drain(..first);
    }
    Ok((bytes, end))
}

/// Parses lines in the runtime's format. Parts of long lines are joined; other text is ignored.
pub(super) fn parse(text: &str) -> Vec<Line> {
    let mut unfinished = None;
    let mut lines = parse_after(&mut unfinished, text);
    lines.extend(unfinished);
    lines
}

/// Parses lines that follow those of another call, whose last parts may be those of an unfinished line.
pub(super) fn parse_after(unfinished: &mut Option<Line>, text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for raw in text.lines() {
        let mut fields = raw.splitn(4, ' ');
        let (Some(time), Some(_stream), Some(tag)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let Ok(time) = Timestamp::parse(time) else { continue };
        let rest = fields.next().unwrap_or_default();
        let mut line = unfinished.take().unwrap_or_else(|| Line { time, text: String::new() });
        line.text.push_str(rest);
        match tag.split(':').next() == Some("P") {
            true => *unfinished = Some(line),
            false => lines.push(line),
        }
    }
    lines
}

/// The end of a container's output as one text of at most `bytes` and `lines`, for termination messages.
pub(super) fn tail(path: &Path, bytes: usize, lines: usize) -> String {
    let read = File::open(path).and_then(|mut file| end_of(&mut file));
    let (bytes_read, _) = read.unwrap_or_default();
    let mut unfinished = None;
    let mut all = parse_after(&mut unfinished, &String::from_utf8_lossy(&bytes_read));
    // The runtime marks a last line without a line break as a part.
    let is_cut = unfinished.is_some();
    all.extend(unfinished);
    let from = all.len().saturating_sub(lines);
    let mut text = String::new();
    for line in all.into_iter().skip(from) {
        text.push_str(&line.text);
        text.push('\n');
    }
    if is_cut {
        text.pop();
    }
    let start = text.ceil_char_boundary(text.len().saturating_sub(bytes));
    text.split_off(start)
}

/// The uids of pods with a log file that is to be rotated. The directory of a pod's logs ends with its uid.
pub(super) fn with_long_files(directory: &Path, uids: &HashSet<Text>) -> Vec<Text> {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_long = |file: &Path| {
        let is_current = file.extension().is_some_and(|it| it == "log");
        is_current && std::fs::metadata(file).is_ok_and(|it| it.len() >= ROTATE_BYTES)
    };
    let mut found = Vec::new();
    for of_pod in entries(directory) {
        let name = of_pod.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        let uid = name.rsplit('_').next().unwrap_or_default();
        let has_long = || entries(&of_pod).any(|of_container| entries(&of_container).any(|file| is_long(&file)));
        if uids.contains(uid) && has_long() {
            found.push(uid.into());
        }
    }
    found
}

/// Rotates a log file that has become too long; returns whether the runtime must reopen it.
pub(super) fn rotate(path: &Path) -> std::io::Result<bool> {
    if std::fs::metadata(path)?.len() < ROTATE_BYTES {
        return Ok(false);
    }
    for number in (1..FILES_MAX.saturating_sub(1)).rev() {
        let from = numbered(path, number);
        if from.exists() {
            std::fs::rename(&from, numbered(path, number.saturating_add(1)))?;
        }
    }
    std::fs::rename(path, numbered(path, 1))?;
    Ok(true)
}

/// The file that follows another of a log, if there is one with content: the runtime may still write to the old one while
/// the new one is empty. Rotations that followed each other fast left several.
pub(super) fn after(path: &Path, current: &Metadata) -> Option<File> {
    let older = (1..FILES_MAX).rev().map(|number| numbered(path, number));
    let all: Vec<(File, u64, u64)> = older
        .chain([path.to_owned()])
        .filter_map(|path| {
            let file = File::open(path).ok()?;
            let metadata = file.metadata().ok()?;
            Some((file, metadata.ino(), metadata.len()))
        })
        .collect();
    // A file that was removed was the oldest one. Any other that is not found is being renamed, and is found the next time.
    let at = match all.iter().position(|(_, inode, _)| *inode == current.ino()) {
        Some(at) => at.saturating_add(1),
        None if current.nlink() == 0 => 0,
        None => return None,
    };
    all.into_iter().nth(at).filter(|(_, _, length)| *length > 0).map(|(file, _, _)| file)
}

/// The name of a rotated file.
pub(super) fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_lines_are_joined_and_other_text_is_skipped() {
        let text = "2026-01-01T00:00:00.5Z stdout F one\nbroken\n2026-01-01T00:00:01Z stderr P tw\n\
                    2026-01-01T00:00:01Z stderr F o\n2026-01-01T00:00:02Z stdout F \n";
        let lines: Vec<String> = parse(text).into_iter().map(|it| it.text).collect();
        assert_eq!(lines, ["one", "two", ""]);
    }

    #[test]
    fn tails_are_cut_by_lines_and_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        std::fs::write(&path, "2026-01-01T00:00:00Z stdout F ab\n2026-01-01T00:00:00Z stdout F cd\n").unwrap();
        assert_eq!(tail(&path, 100, 1), "cd\n");
        assert_eq!(tail(&path, 4, 10), "\ncd\n");
        std::fs::write(&path, "2026-01-01T00:00:00Z stdout F ab\n2026-01-01T00:00:00Z stdout P cd\n").unwrap();
        assert_eq!(tail(&path, 100, 10), "ab\ncd");
        assert_eq!(tail(&directory.path().join("none"), 4, 10), "");
    }

    #[test]
    fn pods_with_long_files_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let file = |pod: &str, name: &str, length: u64| {
            let container = directory.path().join(pod).join("c");
            std::fs::create_dir_all(&container).unwrap();
            File::create(container.join(name)).unwrap().set_len(length).unwrap();
        };
        file("ns_long_1", "0.log", ROTATE_BYTES);
        file("ns_short_2", "0.log", ROTATE_BYTES - 1);
        file("ns_rotated_3", "0.log.1", ROTATE_BYTES);
        file("ns_other_4", "0.log", ROTATE_BYTES);
        let uids: HashSet<Text> = ["1", "2", "3", "5"].into_iter().map(Text::from).collect();
        let found = with_long_files(directory.path(), &uids);
        assert_eq!(found.iter().map(Text::as_str).collect::<Vec<_>>(), ["1"]);
    }

    #[test]
    fn long_files_are_rotated_and_old_ones_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        for turn in 0..7_u32 {
            let file = File::create(&path).unwrap();
            assert!(!rotate(&path).unwrap());
            file.set_len(ROTATE_BYTES + u64::from(turn)).unwrap();
            assert!(rotate(&path).unwrap());
        }
        let length = |number| std::fs::metadata(numbered(&path, number)).unwrap().len() - ROTATE_BYTES;
        assert_eq!((length(1), length(2), length(3), length(4)), (6, 5, 4, 3));
        assert!(!numbered(&path, 5).exists());
    }
}
