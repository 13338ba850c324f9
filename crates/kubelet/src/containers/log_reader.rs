//! Reading a log piece by piece, also while it is written.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::core::v1::Pod;
use cri::messages as m;

use super::{Containers, SharedState, log_files};
use crate::logs;

/// The most that is read at once after the first piece.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// A log that is being read.
pub struct LogReader {
    shared: Arc<SharedState>,
    id: String,
    path: PathBuf,
    options: logs::Options,
    /// The file and the place in it up to which it was read; nothing before the first piece.
    read: Option<(u64, u64)>,
    left: Option<usize>,
}

impl Containers {
    /// Opens the log of a container.
    ///
    /// # Errors
    /// Why there is no log, as `kubectl logs` shows it.
    pub async fn open_log(&self, pod: &Pod, container: &str, options: logs::Options) -> Result<LogReader, String> {
        let (id, path) = self.shared.log_file(pod, container, options.previous).await?;
        let left = options.limit();
        Ok(LogReader { shared: self.shared.clone(), id, path, options, read: None, left })
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
        if self.is_exhausted() {
            return None;
        }
        if self.path.as_os_str().is_empty() {
            // Kubernetes: the loss of a log is reported in its place.
            let is_first = self.read.replace((0, 0)).is_none();
            let name = &self.shared.runtime_name;
            return is_first.then(|| format!("unable to retrieve container logs for {name}://{}", self.id));
        }
        let (path, known) = (self.path.clone(), self.read);
        let (place, lines) = tokio::task::spawn_blocking(move || read(&path, known)).await.ok()?.ok()?;
        let mut text = match self.read {
            None => self.options.render(&lines, self.shared.clock.now()),
            Some(_) => self.options.render_more(&lines),
        };
        self.read = Some(place);
        if let Some(left) = &mut self.left {
            text.truncate(text.floor_char_boundary(*left));
            *left = left.saturating_sub(text.len());
        }
        (!text.is_empty()).then_some(text)
    }
}

/// Reads whole lines from where the last read ended. A file that was rotated is read from its beginning.
fn read(path: &Path, known: Option<(u64, u64)>) -> std::io::Result<((u64, u64), Vec<logs::Line>)> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let Some((node, offset)) = known else {
        let end = metadata.len();
        return Ok(((metadata.ino(), end), log_files::read_until(path, end)?));
    };
    let offset = if node == metadata.ino() && offset <= metadata.len() { offset } else { 0 };
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(PIECE_BYTES_MAX).read_to_end(&mut bytes)?;
    // A line without an end is read when it is whole.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at.saturating_add(1));
    bytes.truncate(whole);
    let end = offset.saturating_add(u64::try_from(whole).unwrap_or(0));
    Ok(((metadata.ino(), end), log_files::parse(&String::from_utf8_lossy(&bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_lines_are_read_once_and_rotation_begins_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let line = |text: &str| format!("2026-01-01T00:00:00Z stdout F {text}\n");
        std::fs::write(&path, line("a")).unwrap();
        let texts = |lines: Vec<logs::Line>| lines.into_iter().map(|it| it.text).collect::<Vec<_>>();
        let (place, lines) = read(&path, None).unwrap();
        assert_eq!(texts(lines), ["a"]);
        std::fs::write(&path, line("a") + &line("b") + "2026-01-01T00:00:00Z stdout F unfin").unwrap();
        let (place, lines) = read(&path, Some(place)).unwrap();
        assert_eq!(texts(lines), ["b"]);
        std::fs::rename(&path, directory.path().join("0.log.1")).unwrap();
        std::fs::write(&path, line("c")).unwrap();
        let (place, lines) = read(&path, Some(place)).unwrap();
        assert_eq!(texts(lines), ["c"]);
        assert!(read(&path, Some(place)).unwrap().1.is_empty());
    }
}
