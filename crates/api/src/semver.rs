//! Semantic versions, strict and tolerant, and ranges of them.
//!
//! API fields, the Kubernetes CEL library and our own `semver.compare` read versions here, so that they agree.
//! Texts and rules follow `github.com/blang/semver/v4`; [`Version::parse_normalized`] follows the CEL library,
//! [`Version::parse_tolerant`] is what KEP-5721 uses.

mod range;

use std::cmp::Ordering;
use std::fmt;

pub use range::{RangeError, VersionRange};

use crate::go_text::quote;

/// A version. Order and equality follow precedence: pre-releases count, build metadata does not.
#[derive(Debug, Clone, Default)]
pub struct Version {
    /// The first number.
    pub major: u64,
    /// The second number.
    pub minor: u64,
    /// The third number.
    pub patch: u64,
    suffix: Option<Box<Suffix>>,
}

#[derive(Debug, Clone)]
struct Suffix {
    /// Dotted identifiers, empty if there are none.
    pre_release: Box<str>,
    build: Box<str>,
}

/// Invalid version. Users see the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl ParseError {
    /// The message for the field that holds `text`: it names no number that `text` does not contain, and no function
    /// of the reference.
    #[must_use]
    pub fn as_written(&self, text: &str) -> String {
        let message = self.0.as_str();
        if let Some(rest) = message.strip_prefix("strconv.ParseUint: parsing ") {
            return match rest.split_once(": ") {
                Some((number, "value out of range")) => format!("number {number} is out of range"),
                _ => "a number is missing".to_owned(),
            };
        }
        match message.split_once(" number \"0") {
            // The zero was put in front when the version was completed.
            Some((before, number)) if !text.contains(&format!("0{}", number.trim_end_matches('"'))) => {
                format!("{before} number \"{number}")
            }
            _ => message.to_owned(),
        }
    }
}

/// One of the three numbers, perhaps with a zero that normalization puts in front.
#[derive(Clone, Copy)]
struct Part<'a> {
    zero: bool,
    text: &'a str,
}

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.zero { "0" } else { "" })?;
        f.write_str(self.text)
    }
}

impl Version {
    /// Reads `MAJOR.MINOR.PATCH[-PRE][+BUILD]` and nothing else.
    ///
    /// # Errors
    /// The first rule that `text` breaks.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if let Some(version) = Self::parse_plain(text) {
            return Ok(version);
        }
        if text.is_empty() {
            return Err(ParseError("Version string empty".into()));
        }
        let mut parts = text.splitn(3, '.').map(|text| Part { zero: false, text });
        match (parts.next(), parts.next(), parts.next()) {
            (Some(major), Some(minor), Some(patch)) => Self::from_parts(major, minor, patch),
            _ => Err(ParseError("No Major.Minor.Patch elements found".into())),
        }
    }

    /// Reads a version as CEL's `semver(text, true)` does: a leading `v`, missing minor and patch, and leading zeros are fine.
    ///
    /// # Errors
    /// The first rule that the completed text breaks.
    pub fn parse_normalized(text: &str) -> Result<Self, ParseError> {
        Self::complete(text, "short version cannot contain PreRelease/Build meta data")
    }

    /// Reads a version as [`parse_normalized`](Self::parse_normalized) does, and ignores spaces around it.
    ///
    /// # Errors
    /// The first rule that the completed text breaks.
    pub fn parse_tolerant(text: &str) -> Result<Self, ParseError> {
        Self::complete(text.trim(), "Short version cannot contain PreRelease/Build meta data")
    }

    fn complete(text: &str, short_error: &str) -> Result<Self, ParseError> {
        const ZERO: Part<'static> = Part { zero: false, text: "0" };
        let text = text.strip_prefix('v').unwrap_or(text);
        if let Some(version) = Self::parse_plain(text) {
            return Ok(version);
        }
        let mut parts = text.splitn(3, '.');
        let (major, minor, patch) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        if patch.is_none() && minor.unwrap_or(major).contains(['+', '-']) {
            return Err(ParseError(short_error.into()));
        }
        Self::from_parts(
            without_leading_zeros(major),
            minor.map_or(ZERO, without_leading_zeros),
            patch.map_or(ZERO, without_leading_zeros),
        )
    }

    /// Reads three numbers with dots between, of few digits and without leading zeros: most versions are no more than that.
    fn parse_plain(text: &str) -> Option<Self> {
        const SAFE_DIGITS: usize = 18;
        let mut numbers = [0_u64; 3];
        let mut at = 0_usize;
        let mut digits = 0_usize;
        for byte in text.bytes() {
            let number = numbers.get_mut(at)?;
            match byte {
                b'0'..=b'9' if digits < SAFE_DIGITS && !(digits > 0 && *number == 0) => {
                    *number = number.wrapping_mul(10).wrapping_add(u64::from(byte & 0xf));
                    digits = digits.wrapping_add(1);
                }
                b'.' if digits > 0 => {
                    at = at.wrapping_add(1);
                    digits = 0;
                }
                _ => return None,
            }
        }
        let [major, minor, patch] = numbers;
        (at == 2 && digits > 0).then_some(Self { major, minor, patch, suffix: None })
    }

    fn from_parts(major: Part<'_>, minor: Part<'_>, patch: Part<'_>) -> Result<Self, ParseError> {
        let major = parse_number(major, "major", "Major")?;
        let minor = parse_number(minor, "minor", "Minor")?;
        let (rest, build) = split_once_or(patch.text, '+');
        let (number, pre_release) = split_once_or(rest, '-');
        let patch = parse_number(Part { zero: patch.zero, text: number }, "patch", "Patch")?;
        for identifier in pre_release.into_iter().flat_map(|text| text.split('.')) {
            check_pre_release(identifier)?;
        }
        for identifier in build.into_iter().flat_map(|text| text.split('.')) {
            check_build(identifier)?;
        }
        let suffix = (pre_release.is_some() || build.is_some()).then(|| {
            Box::new(Suffix {
                pre_release: pre_release.unwrap_or_default().into(),
                build: build.unwrap_or_default().into(),
            })
        });
        Ok(Self { major, minor, patch, suffix })
    }

    /// The pre-release identifiers with dots between, empty for a release.
    #[must_use]
    pub fn pre_release(&self) -> &str {
        self.suffix.as_deref().map_or("", |suffix| &suffix.pre_release)
    }

    /// The build metadata with dots between, empty if there is none.
    #[must_use]
    pub fn build(&self) -> &str {
        self.suffix.as_deref().map_or("", |suffix| &suffix.build)
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch));
        numbers.then_with(|| compare_pre_releases(self.pre_release(), other.pre_release()))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre_release().is_empty() {
            write!(f, "-{}", self.pre_release())?;
        }
        if !self.build().is_empty() {
            write!(f, "+{}", self.build())?;
        }
        Ok(())
    }
}

fn split_once_or(text: &str, separator: char) -> (&str, Option<&str>) {
    text.split_once(separator).map_or((text, None), |(before, after)| (before, Some(after)))
}

fn without_leading_zeros(text: &str) -> Part<'_> {
    if text.len() <= 1 {
        return Part { zero: false, text };
    }
    let text = text.trim_start_matches('0');
    Part { zero: !text.starts_with(|c: char| c.is_ascii_digit()), text }
}

fn parse_number(part: Part<'_>, name: &str, capital_name: &str) -> Result<u64, ParseError> {
    if !part.text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParseError(format!("Invalid character(s) found in {name} number {}", quote(&part.to_string()))));
    }
    if part.zero && part.text.is_empty() {
        return Ok(0);
    }
    if part.text.len() > 1 && part.text.starts_with('0') {
        return Err(ParseError(format!("{capital_name} number must not contain leading zeroes {}", quote(part.text))));
    }
    parse_u64(part.text)
}

fn parse_u64(digits: &str) -> Result<u64, ParseError> {
    digits.parse().map_err(|_| {
        let reason = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
        ParseError(format!("strconv.ParseUint: parsing {}: {reason}", quote(digits)))
    })
}

fn is_number(identifier: &str) -> bool {
    identifier.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_identifier(identifier: &str) -> bool {
    identifier.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn check_pre_release(identifier: &str) -> Result<(), ParseError> {
    if identifier.is_empty() {
        return Err(ParseError("Prerelease is empty".into()));
    }
    if is_number(identifier) {
        if identifier.len() > 1 && identifier.starts_with('0') {
            return Err(ParseError(format!(
                "Numeric PreRelease version must not contain leading zeroes {}",
                quote(identifier)
            )));
        }
        return parse_u64(identifier).map(|_| ());
    }
    if is_identifier(identifier) {
        return Ok(());
    }
    Err(ParseError(format!("Invalid character(s) found in prerelease {}", quote(identifier))))
}

fn check_build(identifier: &str) -> Result<(), ParseError> {
    if identifier.is_empty() {
        return Err(ParseError("Build meta data is empty".into()));
    }
    if is_identifier(identifier) {
        return Ok(());
    }
    Err(ParseError(format!("Invalid character(s) found in build meta data {}", quote(identifier))))
}

fn compare_pre_releases(left: &str, right: &str) -> Ordering {
    if left.is_empty() || right.is_empty() {
        // A release comes after its pre-releases.
        return left.is_empty().cmp(&right.is_empty());
    }
    // A longer list of identifiers follows its own prefix, as when comparing iterators.
    left.split('.').map(Identifier).cmp(right.split('.').map(Identifier))
}

struct Identifier<'a>(&'a str);

impl Ord for Identifier<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (is_number(self.0), is_number(other.0)) {
            // INVARIANT: numbers have no leading zeros, so that the longer one is the larger.
            (true, true) => self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(other.0)),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.0.cmp(other.0),
        }
    }
}

impl PartialOrd for Identifier<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Identifier<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Identifier<'_> {}
