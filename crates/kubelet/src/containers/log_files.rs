//! Log files as CRI runtimes write them: `TIME stdout|stderr F|P TEXT`, one line or part of a line each.
//!
//! Files are read from the end as far as is needed, and never more than a bound. Rotated files are `FILE.1` (newest) to
//! `FILE.4`.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
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
    read_until(path, std::fs::metadata(path)?.len())
}

/// The lines before a place in a log file, at most [`READ_BYTES_MAX`] of it.
pub(super) fn read_until(path: &Path, end: u64) -> std::io::Result<Vec<Line>> {
    let mut file = File::open(path)?;
    let start = end.saturating_sub(READ_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(end.saturating_sub(start)).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line of a part is cut off.
    let text = if start == 0 { &*text } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
    Ok(parse(text))
}

/// Parses lines in the runtime's format. Parts of long lines are joined; other text is ignored.
pub(super) fn parse(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut is_partial = false;
    for raw in text.lines() {
        let mut fields = raw.splitn(4, ' ');
        let (Some(time), Some(_stream), Some(tag)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let Ok(time) = Timestamp::parse(time) else { continue };
        let rest = fields.next().unwrap_or_default();
        match lines.last_mut().filter(|_| is_partial) {
            Some(line) => line.text.push_str(rest),
            None => lines.push(Line { time, text: rest.to_owned() }),
        }
        is_partial = tag.split(':').next() == Some("P");
    }
    lines
}

/// The end of a container's output as one text of at most `bytes` and `lines`, for termination messages.
pub(super) fn tail(path: &Path, bytes: usize, lines: usize) -> String {
    let all = read(path).unwrap_or_default();
    let from = all.len().saturating_sub(lines);
    let mut text = String::new();
    for line in all.into_iter().skip(from) {
        text.push_str(&line.text);
        text.push('\n');
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

fn numbered(path: &Path, number: u32) -> PathBuf {
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
