//! Plain wording: counts of comments, texts, test names and type names that break the rules of `docs/conventions.md`,
//! sections 3 and 4.
//!
//! Texts are string literals outside of tests. A text of Kubernetes is exempt if a comment that begins with
//! `// Kubernetes` precedes it, on the same line or the one before.
//!
//! The counts of each crate are recorded in [`COUNTS`] and may only shrink. A crate without a line has
//! reached zero and is locked. `cargo xtask tidy --update` lowers the recorded counts, never raises them.

use super::{Findings, Tree};
use anyhow::{Context, Result};
use std::collections::BTreeMap;

const COUNTS: &str = "xtask/wording_counts.txt";

const HEADER: &str =
    "# Wording that breaks docs/conventions.md, sections 3 and 4: crate, kind, count. The counts may only shrink:
# `cargo xtask tidy --update` lowers them. A crate and kind without a line has reached zero.
";

/// Words that must not begin the documentation of an item. `Whether` is allowed for a `bool`.
const QUESTION_WORDS: &[&str] =
    &["what", "whatever", "who", "whom", "whose", "whoever", "which", "where", "when", "how", "why", "so"];

/// Words that must not follow a leading preposition: "By which schema …".
const RELATIVE_WORDS: &[&str] = &["which", "whom", "what", "whose"];

/// Words that must not occur in the name of a test.
const NOT_IN_TEST_NAMES: &[&str] = &[
    "who", "whom", "whose", "whoever", "what", "whatever", "tell", "tells", "told", "hear", "hears", "heard", "nobody",
    "somebody", "anybody",
];

/// Phrases that must not occur in a comment or a text, in lower case.
const PHRASES: &[&str] = &[
    "tell",
    "tells",
    "told",
    "hear",
    "hears",
    "heard",
    "somebody",
    "nobody",
    "anybody",
    "whoever",
    "whom",
    "go on",
    "goes on",
    "so long",
    "is gone",
    "are gone",
    "anew",
    "come back",
    "comes back",
    "has a say",
    "have a say",
    "in vain",
];

/// Words that are no name of a type by themselves, besides participles in `-ed`: they lack the noun that they describe.
const BARE_TYPE_WORDS: &[&str] = &[
    "About",
    "Act",
    "Alike",
    "Anything",
    "Ask",
    "At",
    "Bad",
    "Bail",
    "Beside",
    "Bound",
    "Broken",
    "Built",
    "By",
    "Chosen",
    "Common",
    "Complete",
    "Custom",
    "Customs",
    "Done",
    "Drawn",
    "Due",
    "Empty",
    "Ending",
    "Ephemeral",
    "Everything",
    "Failing",
    "Follow",
    "Follows",
    "Found",
    "Gather",
    "Given",
    "Gone",
    "Held",
    "Incoming",
    "Initial",
    "Inside",
    "Kept",
    "Known",
    "Local",
    "Made",
    "Make",
    "Missing",
    "Mutating",
    "New",
    "Nothing",
    "Old",
    "Opaque",
    "Open",
    "Other",
    "Others",
    "Outgoing",
    "Outside",
    "Own",
    "Partial",
    "Pending",
    "Periodic",
    "Plainly",
    "Present",
    "Previous",
    "Read",
    "Ready",
    "Recent",
    "Regarding",
    "Remote",
    "Running",
    "Said",
    "Same",
    "Seen",
    "Serving",
    "Shown",
    "Similar",
    "Single",
    "Something",
    "Stay",
    "Stopping",
    "Tell",
    "Together",
    "Told",
    "Unclear",
    "Underway",
    "Unknown",
    "Unreachable",
    "Unread",
    "Until",
    "Unusable",
    "Validating",
    "Waiting",
    "When",
    "Written",
    "Yields",
];

/// Nouns that end as participles do.
const NOUNS_IN_ED: &[&str] = &["Bed", "Embed", "Feed", "Need", "Seed", "Speed"];

/// The counted violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    ItemDocs,
    TestNames,
    TypeNames,
    Phrases,
    Texts,
}

const KINDS: &[(Kind, &str)] = &[
    (Kind::ItemDocs, "item-docs"),
    (Kind::TestNames, "test-names"),
    (Kind::TypeNames, "type-names"),
    (Kind::Phrases, "phrases"),
    (Kind::Texts, "texts"),
];

impl Kind {
    fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    fn parse(name: &str) -> Option<Self> {
        KINDS.iter().find(|(_, own)| *own == name).map(|(kind, _)| *kind)
    }
}

/// Counts by crate and kind; a missing entry is zero.
type Counts = BTreeMap<(String, Kind), usize>;

/// One violation, with its line counted from one.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    kind: Kind,
    line: usize,
    text: String,
}

pub(super) fn check(tree: &Tree, findings: &mut Findings) -> Result<()> {
    let recorded = recorded(tree)?;
    let found = scan(tree)?;
    for (key, violations) in &found {
        let (member, kind) = key;
        let allowed = recorded.get(key).copied().unwrap_or(0);
        if violations.len() > allowed {
            // The last ones, since new violations cannot be distinguished from recorded ones.
            let listed =
                violations.iter().rev().take(EXAMPLES_MAX).map(String::as_str).collect::<Vec<_>>().join("\n    ");
            findings.errors.push(format!(
                "{member}: {} {} with wording to avoid, at most {allowed} ({COUNTS}; docs/conventions.md, sections 3 and 4); \
                 among them:\n    {listed}",
                violations.len(),
                kind.name(),
            ));
        }
    }
    Ok(())
}

/// Number of violations that an error lists.
const EXAMPLES_MAX: usize = 15;

/// Lowers the recorded counts to the present ones. Counts that have grown stay, so that the check still fails.
pub(super) fn update(tree: &Tree) -> Result<()> {
    let found = scan(tree)?;
    let lowered = lower(&recorded(tree)?, |key| found.get(key).map_or(0, Vec::len));
    std::fs::write(tree.root.join(COUNTS), write(&lowered)).with_context(|| format!("cannot write {COUNTS}"))
}

/// Returns the smaller of the recorded and the present count of each entry, without zeros.
fn lower(recorded: &Counts, present: impl Fn(&(String, Kind)) -> usize) -> Counts {
    let lowered = recorded.iter().map(|(key, count)| (key.clone(), present(key).min(*count)));
    lowered.filter(|(_, count)| *count > 0).collect()
}

fn recorded(tree: &Tree) -> Result<Counts> {
    parse(&tree.text(COUNTS)?).with_context(|| format!("{COUNTS}: not lines of crate, kind and count"))
}

fn parse(text: &str) -> Option<Counts> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let (member, kind, count) = (words.next()?, words.next()?, words.next()?);
            Some(((member.to_owned(), Kind::parse(kind)?), count.parse().ok()?))
        })
        .collect()
}

fn write(counts: &Counts) -> String {
    let mut text = HEADER.to_owned();
    for ((member, kind), count) in counts {
        text.push_str(&format!("{member} {} {count}\n", kind.name()));
    }
    text
}

/// Returns the violations of every crate, each as `file:line: text`.
fn scan(tree: &Tree) -> Result<BTreeMap<(String, Kind), Vec<String>>> {
    let mut found: BTreeMap<(String, Kind), Vec<String>> = BTreeMap::new();
    for file in tree.files.iter().filter(|file| file.ends_with(".rs") && !super::sources::is_data(file)) {
        let text = tree.text(file)?;
        if super::sources::is_generated(&text) {
            continue;
        }
        let in_texts = if is_test_file(file) { Vec::new() } else { texts(&text) };
        for violation in violations(&text).into_iter().chain(in_texts) {
            let line = format!("{file}:{}: {}", violation.line, violation.text);
            found.entry((member(file).to_owned(), violation.kind)).or_default().push(line);
        }
    }
    Ok(found)
}

/// The crate of a file: the folder below `crates/`, or the outermost folder.
fn member(file: &str) -> &str {
    let file = file.strip_prefix("crates/").unwrap_or(file);
    file.split('/').next().unwrap_or(file)
}

fn is_test_file(file: &str) -> bool {
    file.contains("/tests/") || file.ends_with("/tests.rs")
}

fn violations(text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let (mut in_docs, mut is_test) = (false, false);
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().copied().enumerate() {
        if type_name(line).is_some_and(is_bare) {
            found.push(Violation { kind: Kind::TypeNames, line: number.saturating_add(1), text: line.to_owned() });
        }
        let line = line.trim();
        let mut add = |kind| found.push(Violation { kind, line: number.saturating_add(1), text: line.to_owned() });
        if let Some(comment) = line.strip_prefix("//") {
            let lower = comment.trim_start_matches(['/', '!']).trim().to_lowercase();
            let is_doc = comment.starts_with('/');
            let following = || lines.iter().skip(number);
            if is_doc && !in_docs && (begins_with_question(&lower) || begins_with_whether(&lower, following())) {
                add(Kind::ItemDocs);
            }
            for _ in 0..phrases(&lower) {
                add(Kind::Phrases);
            }
            in_docs = is_doc;
            continue;
        }
        in_docs = false;
        if let Some(attribute) = line.strip_prefix("#[") {
            let path = attribute.split(['(', ']']).next().unwrap_or_default();
            is_test |= path.rsplit("::").next() == Some("test");
        } else if let Some(name) = function(line) {
            if is_test && name.split('_').any(|word| NOT_IN_TEST_NAMES.contains(&word)) {
                add(Kind::TestNames);
            }
            is_test = false;
        }
    }
    found
}

fn begins_with_question(lower: &str) -> bool {
    let mut words = words(lower);
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_preposition = matches!(first, "by" | "for" | "from" | "in" | "of" | "on" | "to" | "at" | "with" | "under");
    QUESTION_WORDS.contains(&first) || (is_preposition && RELATIVE_WORDS.contains(&second))
}

/// Whether documentation begins with "whether" although its item is no `bool`. `lines` starts with the documentation.
fn begins_with_whether<'a>(lower: &str, lines: impl Iterator<Item = &'a &'a str>) -> bool {
    if words(lower).next() != Some("whether") {
        return false;
    }
    let mut item = String::new();
    let mut attribute_depth = 0_usize;
    for line in lines.map(|line| line.trim()).skip_while(|line| line.starts_with("//")) {
        if attribute_depth > 0 || line.starts_with("#[") {
            attribute_depth = attribute_depth.saturating_add(line.matches('[').count());
            attribute_depth = attribute_depth.saturating_sub(line.matches(']').count());
            continue;
        }
        // The arguments of a function may be on lines of their own, and contain a `bool` that is not its result.
        item.push_str(line);
        let ends = [" {", ";", "}", "),"].iter().any(|end| line.ends_with(end));
        if ends || (line.ends_with(',') && !item.contains("fn ")) {
            break;
        }
    }
    let declared = match item.rsplit_once("->") {
        Some((_, result)) => result,
        None => &item,
    };
    !declared.to_lowercase().contains("bool")
}

/// The texts with phrases to avoid, outside of tests.
fn texts(text: &str) -> Vec<Violation> {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines: Vec<&str> = code.lines().collect();
    let is_of_kubernetes = |number: usize| {
        let lines = lines.get(number.saturating_sub(2)..number).unwrap_or_default();
        lines.iter().any(|line| line.contains("// Kubernetes"))
    };
    let mut found = Vec::new();
    for (number, literal) in literals(code) {
        let lower = literal.to_lowercase();
        // A phrase by itself is data of a list, such as those above.
        if is_of_kubernetes(number) || PHRASES.contains(&lower.as_str()) {
            continue;
        }
        let line = lines.get(number.saturating_sub(1)).unwrap_or(&"").trim();
        let violation = || Violation { kind: Kind::Texts, line: number, text: line.to_owned() };
        found.extend((0..phrases(&lower)).map(|_| violation()));
    }
    found
}

/// The string literals of a source file, each with the number of the line that it begins on.
fn literals(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut number, mut rest) = (1_usize, code);
    while let Some(at) = rest.find(['"', '\'', '/', 'r']) {
        let (before, from) = rest.split_at(at);
        let follows_word = before.ends_with(|c: char| c.is_alphanumeric() && c != 'b' || c == '_');
        number = number.saturating_add(before.matches('\n').count());
        let marks = from.strip_prefix('r').map_or(0, |raw| raw.bytes().take_while(|byte| *byte == b'#').count());
        let raw = from.strip_prefix('r').and_then(|raw| raw.trim_start_matches('#').strip_prefix('"'));
        let end = if let Some(raw) = raw.filter(|_| !follows_word) {
            let length = raw.find(&format!("\"{}", "#".repeat(marks))).unwrap_or(raw.len());
            found.push((number, raw.get(..length).unwrap_or_default()));
            marks.saturating_mul(2).saturating_add(length).saturating_add(3)
        } else if let Some(literal) = from.strip_prefix('"') {
            let length = closing_quote(literal);
            found.push((number, literal.get(..length).unwrap_or_default()));
            length.saturating_add(2)
        } else if from.starts_with("//") {
            from.find('\n').unwrap_or(from.len())
        } else if let Some(character) = from.strip_prefix('\'') {
            character_length(character).saturating_add(1)
        } else {
            1
        };
        let (skipped, following) = from.split_at_checked(end).unwrap_or((from, ""));
        number = number.saturating_add(skipped.matches('\n').count());
        rest = following;
    }
    found
}

/// The position of the quote that ends a literal, or the length if none does.
fn closing_quote(literal: &str) -> usize {
    let mut is_escaped = false;
    let end = literal.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.unwrap_or(literal.len())
}

/// The length of the rest of a character literal; 0 for a lifetime.
fn character_length(rest: &str) -> usize {
    let mut chars = rest.char_indices();
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, _))) => {
            let from = at.saturating_add(1);
            let end = rest.get(from..).and_then(|rest| rest.find('\''));
            end.map_or(0, |end| from.saturating_add(end).saturating_add(1))
        }
        (Some(_), Some((at, '\''))) => at.saturating_add(1),
        _ => 0,
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_').filter(|word| !word.is_empty())
}

/// Counts the phrases in a comment, each bounded by characters that are not part of a word.
fn phrases(lower: &str) -> usize {
    let words: Vec<&str> = words(lower).collect();
    let occurrences = |phrase: &str| {
        let parts: Vec<&str> = phrase.split(' ').collect();
        words.windows(parts.len()).filter(|window| *window == parts).count()
    };
    PHRASES.iter().map(|phrase| occurrences(phrase)).sum()
}

/// The name of the function that a line declares.
fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// The name of the type that a line declares. Indented aliases belong to a trait, which chose their names.
fn type_name(line: &str) -> Option<&str> {
    let (trimmed, is_indented) = (line.trim_start(), line.starts_with(' '));
    let declaration = match trimmed.strip_prefix("pub(") {
        Some(restricted) => restricted.split_once(") ")?.1,
        None => trimmed.strip_prefix("pub ").unwrap_or(trimmed),
    };
    let mut words = declaration.split(' ');
    let is_type = match words.next()? {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !is_indented,
        _ => false,
    };
    let name = words.next().filter(|_| is_type)?;
    name.split(|character: char| !character.is_alphanumeric()).next()
}

fn is_bare(name: &str) -> bool {
    let is_one_word = !name.chars().skip(1).any(char::is_uppercase);
    let is_participle = name.ends_with("ed") && is_one_word && !NOUNS_IN_ED.contains(&name);
    is_participle || BARE_TYPE_WORDS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        violations(text).into_iter().map(|violation| violation.kind).collect()
    }

    #[test]
    fn item_docs_must_not_begin_with_a_question() {
        assert_eq!(kinds("/// What is stored.\nstruct A;"), [Kind::ItemDocs]);
        assert_eq!(kinds("/// By which schema it is matched.\nstruct A;"), [Kind::ItemDocs]);
        assert_eq!(kinds("/// The stored bytes.\n/// What follows is free text.\nstruct A;"), []);
        assert_eq!(kinds("/// Whether it is stored.\nis_stored: bool,"), []);
        assert_eq!(kinds("/// Whether it is stored.\n#[must_use]\nfn is_stored(\n    of: u8,\n) -> bool {"), []);
        assert_eq!(kinds("/// Whether it is stored.\nstruct Flag(AtomicBool);"), []);
        assert_eq!(kinds("/// Whether it is stored.\nstruct A;"), [Kind::ItemDocs]);
        assert_eq!(kinds("/// Whether it is stored.\nfn check(is_old: bool) -> Result<()> {"), [Kind::ItemDocs]);
        assert_eq!(kinds("//! What a header may begin with.\n// Which a reason may, too.\n"), []);
    }

    #[test]
    fn phrases_count_in_every_comment() {
        let planted = concat!("//! Nobody is to", "ld.\n// Retried until the node comes back.\nlet nobody = 1;");
        assert_eq!(kinds(planted), [Kind::Phrases, Kind::Phrases, Kind::Phrases]);
        assert_eq!(kinds("// Intelligent shears in the same hearing.\n"), []);
    }

    #[test]
    fn phrases_count_in_texts_outside_of_tests() {
        let lines = |text: &str| texts(text).into_iter().map(|violation| violation.line).collect::<Vec<_>>();
        assert_eq!(lines("fn f() {\n    bail!(\"nobody {} waits\")\n}\n"), [2]);
        assert_eq!(lines("const A: &str = r#\"it \"is gone\" now\"#;\nconst B: &str = \"so\n long ago\";\n"), [1, 2]);
        assert!(lines("// Kubernetes: its words.\nconst A: &str = \"nobody waits\";\n").is_empty());
        let data = "f(\"nobody\", '\"', 'a', b'\\'', \"so\"); // \"nobody waits\"\nfn g<'a>(a: &'a str) {}\n";
        assert!(lines(data).is_empty());
        assert_eq!(
            lines("f(\"\\\"\", \"is gone now\");\nlet other = \"\";\n#[cfg(test)]\nmod tests {\n\"told so\"\n"),
            [1]
        );
        assert!(is_test_file("crates/client/src/queue/tests.rs") && is_test_file("crates/cel/tests/main.rs"));
    }

    #[test]
    fn test_names_count_with_any_test_attribute() {
        let planted = "#[tokio::test(start_paused = true)]\nasync fn a_watcher_is_told() {}\n";
        let found = violations(planted);
        assert_eq!(
            found.iter().map(|violation| (violation.kind, violation.line)).collect::<Vec<_>>(),
            [(Kind::TestNames, 2)]
        );
        assert_eq!(kinds("#[test]\nfn watchers_resume() {}\nfn told() {}\n"), []);
    }

    #[test]
    fn type_names_need_a_noun() {
        assert_eq!(kinds("pub(in super::super) struct Seen<'a> {\n"), [Kind::TypeNames]);
        assert_eq!(kinds("pub(super) enum Refused {\n"), [Kind::TypeNames]);
        assert_eq!(kinds("    pub trait Kept: Send {\n"), [Kind::TypeNames]);
        assert_eq!(kinds("type Found = u8;\n"), [Kind::TypeNames]);
        assert_eq!(kinds("    type Read = u8;\n    Seen,\nlet seen = Seen::new();\n"), []);
        assert_eq!(kinds("struct ObservedState;\nstruct Feed;\nstruct Binding(u8);\nenum IsolatedRed {}\n"), []);
    }

    #[test]
    fn counts_shrink_and_never_grow() {
        let recorded = parse("# comment\ncel item-docs 5\ncel phrases 2\napi test-names 1\n").unwrap();
        let present = |key: &(String, Kind)| match (key.0.as_str(), key.1) {
            ("cel", Kind::ItemDocs) => 3,
            ("cel", Kind::Phrases) => 9,
            _ => 0,
        };
        let lowered = lower(&recorded, present);
        assert_eq!(write(&lowered), format!("{HEADER}cel item-docs 3\ncel phrases 2\n"));
        assert_eq!(parse("cel item-docs\n"), None);
    }
}
