//! Commit and date that the build script of the binary finds.

#[path = "../build.rs"]
#[allow(dead_code, reason = "a build script, of which functions are tested")]
mod script;

const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

#[test]
fn commit_is_read_from_loose_packed_and_detached_heads() {
    let folder = tempfile::tempdir().unwrap();
    let git = folder.path().join(".git");
    let found = || script::commit(&git).map(|(commit, _)| commit);
    assert_eq!(found(), None, "a tarball has no git directory");
    std::fs::create_dir_all(git.join("refs/heads")).unwrap();
    std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    assert_eq!(found(), None, "a branch without a commit");
    std::fs::write(git.join("packed-refs"), format!("# pack-refs\n{HASH} refs/heads/main\n")).unwrap();
    assert_eq!(found().as_deref(), Some(HASH));
    let loose = HASH.replace('0', "f");
    std::fs::write(git.join("refs/heads/main"), format!("{loose}\n")).unwrap();
    assert_eq!(found(), Some(loose));
    std::fs::write(git.join("HEAD"), format!("{HASH}\n")).unwrap();
    assert_eq!(found().as_deref(), Some(HASH));
    let linked = folder.path().join("linked");
    std::fs::write(&linked, "gitdir: .git\n").unwrap();
    assert_eq!(script::git_directory(&linked), Some(git));
}

#[test]
fn date_is_a_day_of_the_calendar() {
    for (seconds, day) in [(0, "1970-01-01"), (951_782_400, "2000-02-29"), (1_795_000_000, "2026-11-18")] {
        assert_eq!(script::date(seconds), day);
    }
}
