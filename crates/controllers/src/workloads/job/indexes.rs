//! Indexes of a Job as text: `1,3-5,7`.

use std::fmt;

/// Indexes as intervals, first and last included. INVARIANT: sorted, and at least one index apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Intervals(Vec<(i32, i32)>);

impl Intervals {
    /// Parses indexes below `completions`; invalid parts are ignored.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut indexes = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) else { continue };
            let last = last.min(completions.saturating_sub(1));
            if first >= 0 && first <= last {
                indexes.0.push((first, last));
            }
        }
        indexes.normalized()
    }

    fn normalized(mut self) -> Self {
        self.0.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::new();
        for (first, last) in self.0 {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// With more indexes.
    pub(super) fn with(&self, indexes: impl IntoIterator<Item = i32>) -> Self {
        let mut all = self.clone();
        all.0.extend(indexes.into_iter().map(|index| (index, index)));
        all.normalized()
    }

    /// Returns the union with another set.
    pub(super) fn merged(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.0.extend(&other.0);
        all.normalized()
    }

    pub(super) fn has(&self, index: i32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&index))
    }

    pub(super) fn total(&self) -> i32 {
        let size = |(first, last): &(i32, i32)| last.saturating_sub(*first).saturating_add(1);
        self.0.iter().map(size).fold(0, i32::saturating_add)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of indexes in both.
    pub(super) fn overlap(&self, other: &Self) -> i32 {
        let shared =
            |a: &(i32, i32), b: &(i32, i32)| a.1.min(b.1).saturating_sub(a.0.max(b.0)).saturating_add(1).max(0);
        let pairs = self.0.iter().flat_map(|a| other.0.iter().map(move |b| shared(a, b)));
        pairs.fold(0, i32::saturating_add)
    }

    /// The first indexes below `completions` that are not here.
    pub(super) fn missing(&self, count: usize, completions: i32) -> Vec<i32> {
        let mut found = Vec::new();
        let mut candidate = 0_i32;
        for (first, last) in &self.0 {
            let room = count.saturating_sub(found.len());
            found.extend((candidate..(*first).min(completions)).take(room));
            candidate = candidate.max(last.saturating_add(1));
        }
        let room = count.saturating_sub(found.len());
        found.extend((candidate..completions).take(room));
        found
    }
}

impl fmt::Display for Intervals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (first, last)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            // Kubernetes: two neighbors are not worth a dash.
            match last.saturating_sub(*first) {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_merged_and_written() {
        let check = |text: &str, more: &[i32], expected: &str| {
            let indexes = Intervals::parse(text, 10).with(more.iter().copied());
            assert_eq!(indexes.to_string(), expected, "{text} {more:?}");
            assert_eq!(Intervals::parse(expected, 10), indexes);
        };
        check("", &[3], "3");
        check("0-2,5", &[3], "0-3,5");
        check("0,1", &[], "0,1");
        check("0-2,4-99", &[3], "0-9");
        check("x,5-3,2", &[], "2");
    }

    #[test]
    fn missing_indexes_come_from_the_gaps() {
        let indexes = Intervals::parse("1,3-4", 10);
        assert_eq!(indexes.missing(3, 10), [0, 2, 5]);
        assert_eq!(indexes.missing(9, 5), [0, 2]);
        assert_eq!((indexes.total(), indexes.has(3), indexes.has(2)), (3, true, false));
        assert_eq!(indexes.overlap(&Intervals::parse("3-9", 10)), 2);
    }
}
