//! Ranges of versions: `>=1.28.0 <2.0.0 || =3.1.0`.
//!
//! The second argument of our CEL function `semver.compare`. Versions are read tolerantly; a comma or a space
//! means "and", `||` means "or" and binds less tightly; a version without comparator must be equal.

use std::cmp::Ordering;
use std::fmt;

use super::{ParseError, Version};

/// A set of versions, as a disjunction of conjunctions of comparisons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRange {
    /// INVARIANT: neither the list nor any of its lists is empty.
    alternatives: Box<[Box<[Comparison]>]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Comparison {
    comparator: Comparator,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// A reason why a text is not a range of versions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// A comparison is missing, possibly on one side of `||` or a comma.
    #[error("range has an empty part")]
    Empty,
    /// A comparator has no version behind it.
    #[error("comparator `{0}` has no version")]
    MissingVersion(&'static str),
    /// A version cannot be read.
    #[error("range holds a bad version")]
    Version(#[source] ParseError),
}

impl VersionRange {
    /// Reads a range.
    ///
    /// # Errors
    /// The first part that is empty or holds no version.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let alternatives = text.split("||").map(parse_conjunction).collect::<Result<_, _>>()?;
        Ok(Self { alternatives })
    }

    /// Whether the range contains `version`. Pre-releases are ordered like any version.
    #[must_use]
    pub fn matches(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|all| all.iter().all(|one| one.comparator.holds(version.cmp(&one.version))))
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, all) in self.alternatives.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { " || " })?;
            for (index, one) in all.iter().enumerate() {
                let separator = if index == 0 { "" } else { " " };
                write!(f, "{separator}{}{}", one.comparator.text(), one.version)?;
            }
        }
        Ok(())
    }
}

impl Comparator {
    /// Longer operators first, so that a prefix is not mistaken for the whole operator.
    const ALL: [Comparator; 6] = [
        Comparator::LessOrEqual,
        Comparator::GreaterOrEqual,
        Comparator::NotEqual,
        Comparator::Less,
        Comparator::Greater,
        Comparator::Equal,
    ];

    fn text(self) -> &'static str {
        match self {
            Comparator::Less => "<",
            Comparator::LessOrEqual => "<=",
            Comparator::Greater => ">",
            Comparator::GreaterOrEqual => ">=",
            Comparator::Equal => "=",
            Comparator::NotEqual => "!=",
        }
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Comparator::Less => order.is_lt(),
            Comparator::LessOrEqual => order.is_le(),
            Comparator::Greater => order.is_gt(),
            Comparator::GreaterOrEqual => order.is_ge(),
            Comparator::Equal => order.is_eq(),
            Comparator::NotEqual => order.is_ne(),
        }
    }
}

fn parse_conjunction(text: &str) -> Result<Box<[Comparison]>, RangeError> {
    let mut comparisons = Vec::new();
    for part in text.split(',') {
        let mut rest = part.trim_start();
        if rest.is_empty() {
            return Err(RangeError::Empty);
        }
        while !rest.is_empty() {
            let found = Comparator::ALL.into_iter().find_map(|it| rest.strip_prefix(it.text()).map(|rest| (it, rest)));
            let (comparator, after) = found.unwrap_or((Comparator::Equal, rest));
            let after = after.trim_start();
            let end = after.find(|c: char| c.is_whitespace() || "<>=!".contains(c)).unwrap_or(after.len());
            let (version, after) = after.split_at_checked(end).unwrap_or((after, ""));
            if version.is_empty() {
                return Err(RangeError::MissingVersion(comparator.text()));
            }
            let version = Version::parse_tolerant(version).map_err(RangeError::Version)?;
            comparisons.push(Comparison { comparator, version });
            rest = after.trim_start();
        }
    }
    Ok(comparisons.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(range: &str, version: &str, matches: bool) {
        let version = Version::parse_tolerant(version).unwrap();
        assert_eq!(VersionRange::parse(range).unwrap().matches(&version), matches, "{version} in {range}");
    }

    #[test]
    fn comparators_follow_precedence() {
        check(">=1.28.0", "1.28", true);
        check(">=1.28.0", "v1.28.0-rc.1", false);
        check("> v1.27", "1.28.0", true);
        check("<1.28", "1.28.0", false);
        check("<=1.28", "1.28.0+build", true);
        check("=1.2", "1.2.0", true);
        check("1.2", "1.2.1", false);
        check("!=1.2", "1.2.1", true);
    }

    #[test]
    fn comma_and_space_mean_and_while_bars_mean_or() {
        for range in [">=1.2.0 <2.0.0", ">=1.2.0,<2.0.0", ">=1.2.0, <2.0.0", ">=1.2.0<2.0.0"] {
            check(range, "1.9.0", true);
            check(range, "2.0.0", false);
        }
        check("<1.0.0 || >=2.0.0 !=2.1.0", "2.1.0", false);
        check("<1.0.0 || >=2.0.0 !=2.1.0", "2.2.0", true);
        check("<1.0.0||>=2.0.0", "0.1.0", true);
    }

    #[test]
    fn bad_ranges_are_errors() {
        for range in [
            "", "  ", "||", "1.0.0 ||", ">=1.0.0,", ",<1.0.0", ">", ">=>1.0.0", "~1.0.0", ">=1.0.x", "=>1.0.0",
            "==1.0.0",
        ] {
            assert!(VersionRange::parse(range).is_err(), "{range}");
        }
    }

    #[test]
    fn text_is_canonical() {
        assert_eq!(VersionRange::parse(" >= v1.2 ,<2||1").unwrap().to_string(), ">=1.2.0 <2.0.0 || =1.0.0");
    }
}
