//! The file that audit events are written to, one a line, and its rotation.
//!
//! A separate thread writes. Callers wait while too many events are pending, so that none is lost. A rotated
//! file gets the time into its name, as in Kubernetes' logs: `audit-2026-01-02T15-04-05.000.log`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use telemetry::logs::chain;
use tokio::sync::{mpsc, oneshot};
use tracing::error;

/// Rotation and retention of files.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// Size at which a file is rotated; 0 for a hundred MiB.
    pub file_bytes_max: u64,
    /// Number of rotated files to keep; 0 for all.
    pub files_max: usize,
    /// Age at which rotated files are deleted; zero for never.
    pub age_max: Duration,
}

const FILE_BYTES_DEFAULT: u64 = 100 << 20;
/// Maximum number of pending events.
const WAITING: usize = 4096;
/// Interval at which write errors are logged.
const ERROR_EVERY: Duration = Duration::from_secs(60);

/// Takes events.
#[derive(Debug, Clone)]
pub struct Log {
    sender: mpsc::Sender<Entry>,
}

#[derive(Debug)]
enum Entry {
    Line(String),
    Flush(oneshot::Sender<()>),
}

impl Log {
    /// Writes to a file, or to standard output if the path is `-`.
    ///
    /// # Errors
    /// Those of opening the file.
    pub fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let mut output: Box<dyn Output> = if path.as_os_str() == "-" {
            Box::new(StandardOutput)
        } else {
            Box::new(RotatedFile::open(path.to_owned(), rotation)?)
        };
        let (sender, mut receiver) = mpsc::channel(WAITING);
        let write = move || {
            let mut complained: Option<Instant> = None;
            let mut lines = String::new();
            while let Some(first) = receiver.blocking_recv() {
                let mut next = Some(first);
                let mut waiting = Vec::new();
                while let Some(entry) = next {
                    match entry {
                        Entry::Line(line) => lines.push_str(&line),
                        Entry::Flush(done) => waiting.push(done),
                    }
                    next = if lines.len() > 1 << 20 { None } else { receiver.try_recv().ok() };
                }
                if let Err(error) = output.write(lines.as_bytes())
                    && complained.is_none_or(|at| at.elapsed() > ERROR_EVERY)
                {
                    complained = Some(Instant::now());
                    error!(err = %chain(&error), "Could not write audit events");
                }
                lines.clear();
                for done in waiting {
                    let _ = done.send(());
                }
            }
        };
        std::thread::Builder::new().name("audit-log".to_owned()).spawn(write)?;
        Ok(Self { sender })
    }

    /// Writes an event, which is one line with its end.
    pub(super) async fn write(&self, line: String) {
        // An error means that the thread has ended, and the process is about to.
        let _ = self.sender.send(Entry::Line(line)).await;
    }

    /// Like `write`, for callers that cannot wait.
    pub(super) fn write_later(&self, line: String) {
        if let Err(mpsc::error::TrySendError::Full(entry)) = self.sender.try_send(Entry::Line(line)) {
            let sender = self.sender.clone();
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { sender.send(entry).await });
            }
        }
    }

    /// Waits until everything is written that came before.
    pub(super) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.sender.send(Entry::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

trait Output: Send {
    fn write(&mut self, lines: &[u8]) -> io::Result<()>;
}

struct StandardOutput;

impl Output for StandardOutput {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        io::stdout().write_all(lines)
    }
}

struct RotatedFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    length: u64,
    /// Time of the last rotation: all rotated files have distinct times.
    last: Duration,
}

impl RotatedFile {
    fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        let file = append_to(&path)?;
        let length = file.metadata()?.len();
        Ok(Self { path, rotation, file, length, last: Duration::ZERO })
    }

    /// Rotates the file, and deletes rotated ones that are too old or too many.
    fn rotate(&mut self) -> io::Result<()> {
        let now = SystemTime::now();
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last = since.max(self.last.saturating_add(Duration::from_millis(1)));
        std::fs::rename(&self.path, self.aside(self.last))?;
        self.file = append_to(&self.path)?;
        self.length = 0;
        let mut old = self.put_aside()?;
        // Names sort by time.
        old.sort();
        old.reverse();
        for (index, path) in old.iter().enumerate() {
            let is_surplus = self.rotation.files_max > 0 && index >= self.rotation.files_max;
            let age = path.metadata().and_then(|data| data.modified()).ok().and_then(|at| now.duration_since(at).ok());
            let is_old = !self.rotation.age_max.is_zero() && age.is_some_and(|age| age > self.rotation.age_max);
            if is_surplus || is_old {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn stem_and_extension(&self) -> (String, String) {
        let text =
            |part: Option<&std::ffi::OsStr>| part.map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let extension = text(self.path.extension());
        let extension = if extension.is_empty() { extension } else { format!(".{extension}") };
        (text(self.path.file_stem()), extension)
    }

    /// Name of a file that is rotated at this time since 1970.
    fn aside(&self, since: Duration) -> PathBuf {
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let time = api::time::Timestamp { seconds, nanos: 0 }.to_string().replace(':', "-");
        let time = time.strip_suffix('Z').unwrap_or(&time).to_owned();
        let (stem, extension) = self.stem_and_extension();
        self.path.with_file_name(format!("{stem}-{time}.{:03}{extension}", since.subsec_millis()))
    }

    /// The rotated files.
    fn put_aside(&self) -> io::Result<Vec<PathBuf>> {
        let (stem, extension) = self.stem_and_extension();
        let directory = self.path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut found = Vec::new();
        for entry in directory.read_dir()? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let time = name.strip_prefix(&format!("{stem}-")).and_then(|rest| rest.strip_suffix(&extension));
            let is_time =
                |time: &str| time.len() == 23 && time.bytes().all(|it| it.is_ascii_digit() || b"-T.".contains(&it));
            if time.is_some_and(is_time) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

impl Output for RotatedFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let max = if self.rotation.file_bytes_max == 0 { FILE_BYTES_DEFAULT } else { self.rotation.file_bytes_max };
        let bytes = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if self.length > 0 && self.length.saturating_add(bytes) > max {
            self.rotate()?;
        }
        self.file.write_all(lines)?;
        self.length = self.length.saturating_add(bytes);
        Ok(())
    }
}

/// Only the owner can read what all others do.
fn append_to(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    if let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_put_aside_and_few_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        std::fs::write(directory.path().join("audit-of-another.log"), "x").unwrap();
        let rotation = Rotation { file_bytes_max: 100, files_max: 2, age_max: Duration::ZERO };
        let mut log = RotatedFile::open(path.clone(), rotation).unwrap();
        for n in 0..10 {
            log.write(format!("{n:059}\n").as_bytes()).unwrap();
        }
        let mut names: Vec<String> =
            directory.path().read_dir().unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names.len(), 4, "{names:?}");
        assert_eq!(names[2..], ["audit-of-another.log", "audit.log"]);
        let texts: Vec<String> =
            names.iter().map(|name| std::fs::read_to_string(directory.path().join(name)).unwrap()).collect();
        let last = |text: &String| text.trim().chars().last().unwrap();
        assert_eq!((last(&texts[0]), last(&texts[1]), last(&texts[3])), ('7', '8', '9'));
        let rotation = Rotation { file_bytes_max: 100, files_max: 0, age_max: Duration::from_nanos(1) };
        let mut log = RotatedFile::open(path, rotation).unwrap();
        log.write(&[b'x'; 90]).unwrap();
        assert_eq!(directory.path().read_dir().unwrap().count(), 2, "all that is old is gone");
    }
}
