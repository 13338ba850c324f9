//! The paths of nodes, in one buffer.
//!
//! Paths that grew from the same one share their beginning, and, as in the reference, sometimes their end: a path is
//! extended in place while its length is not a power of two, so the second extension of one path overwrites the first.
//! `k` and `v` in `a.b.c.all(k, v, …)` both lead to the values of the map, for instance, and estimates depend on it.

use super::PathStep;

/// A path in [`Paths`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    start: u32,
    len: u32,
}

impl Path {
    /// Leads nowhere.
    pub(super) const EMPTY: Path = Path { start: 0, len: 0 };
}

/// All paths of an expression.
#[derive(Debug)]
pub(super) struct Paths<'a> {
    steps: Vec<PathStep<'a>>,
}

impl<'a> Paths<'a> {
    /// Room for some short paths.
    pub(super) fn new() -> Self {
        Paths { steps: Vec::with_capacity(16) }
    }

    /// The path with this one step.
    pub(super) fn root(&mut self, step: PathStep<'a>) -> Path {
        self.extend(Path::EMPTY, step)
    }

    /// The path's steps.
    pub(super) fn steps(&self, path: Path) -> &[PathStep<'a>] {
        let start = path.start as usize;
        self.steps.get(start..start.saturating_add(path.len as usize)).unwrap_or(&[])
    }

    /// The path, and one step more.
    pub(super) fn extend(&mut self, path: Path, step: PathStep<'a>) -> Path {
        let start = path.start as usize;
        let end = start.saturating_add(path.len as usize);
        let len = path.len.saturating_add(1);
        if path.len > 0 && !path.len.is_power_of_two() {
            if let Some(free) = self.steps.get_mut(end) {
                *free = step;
            }
            return Path { start: path.start, len };
        }
        // INVARIANT: a path has room for as many steps as the next power of two.
        let copy = self.steps.len();
        self.steps.extend_from_within(start..end);
        self.steps.resize(copy.saturating_add(len.next_power_of_two() as usize), step);
        Path { start: u32::try_from(copy).unwrap_or(u32::MAX), len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_extension_overwrites_the_first_where_there_was_room() {
        let mut paths = Paths::new();
        let one = paths.root(PathStep::Variable("self"));
        let two = paths.extend(one, PathStep::Field("spec"));
        let (keys, values) = (paths.extend(two, PathStep::Keys), paths.extend(two, PathStep::Values));
        assert_eq!(paths.steps(keys).last(), Some(&PathStep::Keys));
        assert_eq!(paths.steps(values), [PathStep::Variable("self"), PathStep::Field("spec"), PathStep::Values]);
        let three = paths.extend(two, PathStep::Field("labels"));
        let (keys, values) = (paths.extend(three, PathStep::Keys), paths.extend(three, PathStep::Values));
        assert_eq!(paths.steps(keys), paths.steps(values));
    }
}
