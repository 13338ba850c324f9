//! The file that audit events are written to, one a line, and its rotation.
//!
//! A thread of its own writes. Who has an event waits while too many are under way, so that none is lost. A file that has
//! become too long gets the time into its name, as Kubernetes' logs do: `audit-2026-01-02T15-04-05.000.log`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, oneshot};
use tracing::error;

/// How long files become, and how long they are kept.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// A file that would become longer is put aside; 0 for a hundred MiB.
    pub file_bytes_max: u64,
    /// How many files that were put aside are kept; 0 for all.
    pub files_max: usize,
    /// Files that were put aside longer ago are deleted; zero for never.
    pub age_max: Duration,
}

const FILE_BYTES_DEFAULT: u64 = 100 << 20;
/// How many events may wait to be written.
const WAITING: usize = 4096;
/// How often the log says that events cannot be written.
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
            Box::new(Standard)
        } else {
            Box::new(Rotated::open(path.to_owned(), rotation)?)
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
                    error!(err = %error, "Could not write audit events");
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
        // An error means that the thread is gone, and the process is about to be.
        let _ = self.sender.send(Entry::Line(line)).await;
    }

    /// The same where nobody can wait.
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

struct Standard;

impl Output for Standard {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        io::stdout().write_all(lines)
    }
}

struct Rotated {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    length: u64,
    /// When a file was last put aside: no two have the same time.
    last: Duration,
}

impl Rotated {
    fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        let file = append_to(&path)?;
        let length = file.metadata()?.len();
        Ok(Self { path, rotation, file, length, last: Duration::ZERO })
    }

    /// Puts the file aside, begins a new one, and deletes what is too old or too many.
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

    /// The name of a file that is put aside so long after 1970.
    fn aside(&self, since: Duration) -> PathBuf {
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let time = api::time::Timestamp { seconds, nanos: 0 }.to_string().replace(':', "-");
        let time = time.strip_suffix('Z').unwrap_or(&time).to_owned();
        let (stem, extension) = self.stem_and_extension();
        self.path.with_file_name(format!("{stem}-{time}.{:03}{extension}", since.subsec_millis()))
    }

    /// The files that were put aside.
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

impl Output for Rotated {
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
        let mut log = Rotated::open(path.clone(), rotation).unwrap();
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
        let mut log = Rotated::open(path, rotation).unwrap();
        log.write(&[b'x'; 90]).unwrap();
        assert_eq!(directory.path().read_dir().unwrap().count(), 2, "all that is old is gone");
    }
}
