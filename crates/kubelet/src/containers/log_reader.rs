//! Reading a log piece by piece, also while it is written.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::core::v1::Pod;
use cri::messages as m;

use super::{Containers, SharedState, log_files};
use crate::logs;

/// The most that is read at once after the first piece.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Length at which the parts of an unfinished line are passed on as a line: a container may never end its line.
const LINE_BYTES_MAX: usize = 10 << 20;

/// A log that is being read.
pub struct LogReader {
    shared: Arc<SharedState>,
    id: String,
    path: PathBuf,
    options: logs::Options,
    follows: bool,
    progress: Progress,
    left: Option<usize>,
}

/// The position up to which a log was read.
enum Progress {
    NotBegun,
    Open(Position),
    /// There is no more to read.
    Ended,
}

/// A place in a log. The file stays open, so that it can be read to its end after it was rotated.
struct Position {
    file: File,
    offset: u64,
    /// The parts of a line whose end was not read yet.
    unfinished: Option<logs::Line>,
}

impl Containers {
    /// Opens the log of a container. A log that is followed has further pieces later.
    ///
    /// # Errors
    /// Why there is no log, as `kubectl logs` shows it.
    pub async fn open_log(
        &self,
        pod: &Pod,
        container: &str,
        options: logs::Options,
        follows: bool,
    ) -> Result<LogReader, String> {
        let (id, path) = self.shared.log_file(pod, container, options.previous).await?;
        let left = options.limit();
        Ok(LogReader { shared: self.shared.clone(), id, path, options, follows, progress: Progress::NotBegun, left })
    }
}

impl LogReader {
    /// Whether the container writes no more. If this is checked before the last pieces are read, none of them
    /// is missed.
    pub async fn has_ended(&self) -> bool {
        let request = m::ContainerStatusRequest { container_id: self.id.clone(), verbose: false };
        let status = self.shared.runtime.container_status(request).await;
        !status.is_ok_and(|it| it.status.is_some_and(|it| it.state() == m::ContainerState::Running))
    }

    /// Whether as many bytes were read as are wanted.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.left == Some(0)
    }

    /// The next piece; nothing if there is none yet.
    pub async fn next_piece(&mut self) -> Option<String> {
        while !self.is_exhausted() {
            let (text, is_moved) = match std::mem::replace(&mut self.progress, Progress::Ended) {
                Progress::Ended => return None,
                Progress::NotBegun if self.path.as_os_str().is_empty() => {
                    // Kubernetes: the loss of a log is reported in its place.
                    let name = &self.shared.runtime_name;
                    return Some(format!("unable to retrieve container logs for {name}://{}", self.id));
                }
                Progress::NotBegun => {
                    let (path, follows) = (self.path.clone(), self.follows);
                    let opened = tokio::task::spawn_blocking(move || open(&path, follows)).await.ok()?;
                    let Ok((position, lines)) = opened else {
                        self.progress = Progress::NotBegun;
                        return None;
                    };
                    self.progress = Progress::Open(position);
                    (self.options.render(&lines, self.shared.clock.now()), true)
                }
                Progress::Open(mut position) => {
                    let path = self.path.clone();
                    let read = tokio::task::spawn_blocking(move || {
                        let read = position.read(&path);
                        (position, read)
                    });
                    let (position, read) = read.await.ok()?;
                    self.progress = Progress::Open(position);
                    let (lines, is_moved) = read.ok()?;
                    (self.options.render_more(&lines), is_moved)
                }
            };
            if let Some(piece) = self.limited(text) {
                return Some(piece);
            }
            if !is_moved {
                return None;
            }
        }
        None
    }

    /// The parts of a line that the container left unfinished. Nothing is read after them.
    pub fn last_piece(&mut self) -> Option<String> {
        let Progress::Open(position) = std::mem::replace(&mut self.progress, Progress::Ended) else { return None };
        let text = self.options.render_more(&Vec::from_iter(position.unfinished));
        self.limited(text)
    }

    /// The part of a text that is still wanted, if any.
    fn limited(&mut self, mut text: String) -> Option<String> {
        if let Some(left) = &mut self.left {
            text.truncate(text.floor_char_boundary(*left));
            *left = left.saturating_sub(text.len());
        }
        (!text.is_empty()).then_some(text)
    }
}

/// Opens a log and reads the lines that it has.
fn open(path: &Path, follows: bool) -> std::io::Result<(Position, Vec<logs::Line>)> {
    // Between a rotation and the moment when the runtime begins a new file, there is only the old one.
    let mut file = File::open(path).or_else(|_| File::open(log_files::numbered(path, 1)))?;
    let (bytes, end) = log_files::end_of(&mut file)?;
    if !follows {
        let lines = log_files::parse(&String::from_utf8_lossy(&bytes));
        return Ok((Position { file, offset: end, unfinished: None }, lines));
    }
    let cut = bytes.len().saturating_sub(whole(&bytes));
    let mut position = Position { file, offset: end.saturating_sub(u64::try_from(cut).unwrap_or(0)), unfinished: None };
    let lines = position.parse(bytes);
    Ok((position, lines))
}

impl Position {
    /// Reads whole lines from where the last read ended; returns whether there may be more. A file that was rotated is read
    /// to its end first.
    fn read(&mut self, path: &Path) -> std::io::Result<(Vec<logs::Line>, bool)> {
        let metadata = self.file.metadata()?;
        // The runtime writes to the old file until it has begun the new one. The next file is looked up before the old one
        // is read, so that the read sees all of it.
        let next = log_files::after(path, &metadata);
        if metadata.len() < self.offset {
            self.offset = 0;
        }
        self.file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        (&self.file).take(PIECE_BYTES_MAX).read_to_end(&mut bytes)?;
        let whole = whole(&bytes);
        if whole > 0 {
            self.offset = self.offset.saturating_add(u64::try_from(whole).unwrap_or(0));
            return Ok((self.parse(bytes), true));
        }
        match next {
            Some(next) => {
                self.file = next;
                self.offset = 0;
                Ok((Vec::new(), true))
            }
            None => Ok((Vec::new(), false)),
        }
    }

    /// Parses the whole lines of bytes that follow those of the call before.
    fn parse(&mut self, mut bytes: Vec<u8>) -> Vec<logs::Line> {
        bytes.truncate(whole(&bytes));
        let mut lines = log_files::parse_after(&mut self.unfinished, &String::from_utf8_lossy(&bytes));
        lines.extend(self.unfinished.take_if(|line| line.text.len() > LINE_BYTES_MAX));
        lines
    }
}

/// The number of bytes up to the last end of a line: a line without an end is read when it is whole.
fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn line(tag: &str, text: &str) -> String {
        format!("2026-01-01T00:00:00Z stdout {tag} {text}\n")
    }

    fn texts(lines: Vec<logs::Line>) -> Vec<String> {
        lines.into_iter().map(|it| it.text).collect()
    }

    /// All lines that are there.
    fn rest(position: &mut Position, path: &Path) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let (lines, is_moved) = position.read(path).unwrap();
            all.extend(texts(lines));
            if !is_moved {
                return all;
            }
        }
    }

    #[test]
    fn new_lines_are_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        std::fs::write(&path, line("F", "a")).unwrap();
        let (mut position, lines) = open(&path, true).unwrap();
        assert_eq!(texts(lines), ["a"]);
        assert!(rest(&mut position, &path).is_empty());
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all((line("F", "b") + "2026-01-01T00:00:00Z stdout F unfin").as_bytes()).unwrap();
        assert_eq!(rest(&mut position, &path), ["b"]);
        file.write_all(b"ished\n").unwrap();
        assert_eq!(rest(&mut position, &path), ["unfinished"]);
    }

    #[test]
    fn rotated_files_are_read_to_their_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let rotated = |number| log_files::numbered(&path, number);
        std::fs::write(&path, line("F", "a")).unwrap();
        let mut old = File::options().append(true).open(&path).unwrap();
        let (mut position, lines) = open(&path, true).unwrap();
        assert_eq!(texts(lines), ["a"]);
        // Lines before the rotation, between it and the new file, and after the new file was created.
        old.write_all(line("F", "b").as_bytes()).unwrap();
        std::fs::rename(&path, rotated(1)).unwrap();
        old.write_all(line("F", "c").as_bytes()).unwrap();
        assert_eq!(rest(&mut position, &path), ["b", "c"]);
        File::create(&path).unwrap();
        old.write_all(line("F", "d").as_bytes()).unwrap();
        assert_eq!(rest(&mut position, &path), ["d"]);
        old.write_all(line("F", "e").as_bytes()).unwrap();
        std::fs::write(&path, line("F", "f")).unwrap();
        assert_eq!(rest(&mut position, &path), ["e", "f"]);
        // Two rotations between two reads.
        std::fs::rename(rotated(1), rotated(3)).unwrap();
        std::fs::rename(&path, rotated(2)).unwrap();
        std::fs::write(rotated(1), line("F", "g")).unwrap();
        std::fs::write(&path, line("F", "h")).unwrap();
        assert_eq!(rest(&mut position, &path), ["g", "h"]);
        // A log is also there in the moment without a current file.
        std::fs::rename(&path, rotated(1)).unwrap();
        assert_eq!(texts(open(&path, false).unwrap().1), ["h"]);
    }

    #[test]
    fn parts_of_a_line_are_joined_across_reads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let write = |text: &str| {
            let mut file = File::options().append(true).create(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        write(&(line("F", "a") + &line("P", "on")));
        let (mut position, lines) = open(&path, true).unwrap();
        assert_eq!(texts(lines), ["a"]);
        write(&line("P", "e li"));
        assert!(rest(&mut position, &path).is_empty());
        write(&(line("F", "ne") + &line("P", "left")));
        assert_eq!(rest(&mut position, &path), ["one line"]);
        assert_eq!(position.unfinished.map(|it| it.text).as_deref(), Some("left"));
        // A log that is not followed is shown as it is.
        assert_eq!(texts(open(&path, false).unwrap().1), ["a", "one line", "left"]);
    }

    #[test]
    fn line_cut_by_the_first_read_is_finished_by_the_second() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let both = line("F", "a") + &line("F", "whole");
        let (first, second) = both.split_at(both.len() - 4);
        std::fs::write(&path, first).unwrap();
        let (mut position, lines) = open(&path, true).unwrap();
        assert_eq!(texts(lines), ["a"]);
        File::options().append(true).open(&path).unwrap().write_all(second.as_bytes()).unwrap();
        assert_eq!(rest(&mut position, &path), ["whole"]);
    }
}
