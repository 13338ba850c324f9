//! Hands commit and date of a build to `celplane version`.
//!
//! `CELPLANE_COMMIT` and `CELPLANE_DATE` win; else a release build reads the commit from the git directory, if there is one,
//! and the date from `SOURCE_DATE_EPOCH` or the clock. Other builds have neither: they would be linked again for every
//! commit.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in ["CELPLANE_COMMIT", "CELPLANE_DATE", "SOURCE_DATE_EPOCH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let git = manifest.ancestors().map(|folder| folder.join(".git")).find_map(|path| git_directory(&path));
    if std::env::var_os("CELPLANE_COMMIT").is_none()
        && let Some((commit, files)) = git.and_then(|git| commit(&git))
    {
        println!("cargo:rustc-env=CELPLANE_COMMIT={}", commit.get(..12).unwrap_or(&commit));
        files.iter().for_each(|file| println!("cargo:rerun-if-changed={}", file.display()));
    }
    if std::env::var_os("CELPLANE_DATE").is_none() {
        let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        println!("cargo:rustc-env=CELPLANE_DATE={}", date(given.unwrap_or_else(now)));
    }
}

/// The git directory that `.git` is, or that it names as a file.
pub(crate) fn git_directory(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    let text = std::fs::read_to_string(path).ok()?;
    let named = text.strip_prefix("gitdir:")?.trim();
    Some(path.parent()?.join(named))
}

/// The commit that is checked out, and the files that change with it.
pub(crate) fn commit(git: &Path) -> Option<(String, Vec<PathBuf>)> {
    let head = git.join("HEAD");
    let text = std::fs::read_to_string(&head).ok()?;
    let Some(name) = text.trim().strip_prefix("ref: ") else {
        return is_hash(text.trim()).then(|| (text.trim().to_owned(), vec![head]));
    };
    // A worktree keeps branches in the directory that it shares.
    let shared = std::fs::read_to_string(git.join("commondir")).ok();
    let shared = shared.map_or_else(|| git.to_owned(), |text| git.join(text.trim()));
    let file = shared.join(name);
    let loose = std::fs::read_to_string(&file).ok().map(|text| text.trim().to_owned());
    let packed = || {
        let all = std::fs::read_to_string(shared.join("packed-refs")).ok()?;
        let line = all.lines().find(|line| line.split_whitespace().nth(1) == Some(name))?;
        line.split_whitespace().next().map(ToOwned::to_owned)
    };
    let found = loose.or_else(packed).filter(|it| is_hash(it))?;
    Some((found, vec![head, file]))
}

fn is_hash(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The day of a time, as `2026-01-31`.
#[allow(clippy::arithmetic_side_effects, reason = "seconds of any plausible build are far from the bounds")]
pub(crate) fn date(seconds: u64) -> String {
    // The calendar of Howard Hinnant's `civil_from_days`, for days after 1970.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
