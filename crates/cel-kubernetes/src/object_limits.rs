//! Limits on all expressions of one object together: their number, and the sum of their estimated costs.
//!
//! Each expression also has its own limit, in its environment. Validation, `celplane scan` and the scheduler's
//! configuration share these two limits, so that many expressions just below that limit cannot request
//! unbounded work.

/// Number of expressions that a pod, pod template, volume, runtime class or added affinity may hold.
pub const EXPRESSIONS_MAX: usize = 64;

/// Sum of the estimated costs that the expressions of one object may reach.
pub const ESTIMATES_MAX: u64 = 4_000_000;

/// Number of expressions that reach [`ESTIMATES_MAX`] only together with one more: each may cost 1,000,000 at most.
pub const ALWAYS_FIT: usize = 4;

/// Length in characters from which messages shorten an expression.
const SHOWN_CHARS: usize = 120;

/// The expressions of one object, counted and added up.
#[derive(Debug, Clone, Default)]
pub struct Tally<'e> {
    count: usize,
    estimates: u64,
    costliest: Option<(u64, &'e str)>,
}

impl<'e> Tally<'e> {
    /// Adds an expression with its estimated cost; one without an estimate counts, and costs nothing.
    pub fn add(&mut self, expression: &'e str, estimate: Option<u64>) {
        self.count = self.count.saturating_add(1);
        let Some(estimate) = estimate else { return };
        self.estimates = self.estimates.saturating_add(estimate);
        if self.costliest.is_none_or(|(known, _)| estimate > known) {
            self.costliest = Some((estimate, expression));
        }
    }

    /// Number of expressions.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Sum of the estimated costs.
    pub fn estimates(&self) -> u64 {
        self.estimates
    }

    /// The expression with the highest estimate, the first of several.
    pub fn costliest(&self) -> Option<&'e str> {
        self.costliest.map(|(_, expression)| expression)
    }

    /// Message for an object with more than [`EXPRESSIONS_MAX`] expressions.
    pub fn too_many(&self) -> Option<String> {
        (self.count > EXPRESSIONS_MAX).then(|| {
            let count = self.count;
            format!("must have at most {EXPRESSIONS_MAX} expressions in total, has {count}{}", self.costliest_text())
        })
    }

    /// Message for an object whose estimates exceed [`ESTIMATES_MAX`].
    pub fn too_costly(&self) -> Option<String> {
        (self.estimates > ESTIMATES_MAX).then(|| {
            let Tally { count, estimates, .. } = self;
            let costliest = self.costliest_text();
            format!("estimated costs of {count} expressions add up to {estimates}, exceeds limit of {ESTIMATES_MAX}{costliest}")
        })
    }

    fn costliest_text(&self) -> String {
        let Some((estimate, expression)) = self.costliest else { return String::new() };
        format!("; the costliest is `{}` with an estimated cost of {estimate}", shortened(expression))
    }
}

fn shortened(expression: &str) -> String {
    match expression.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", expression.get(..end).unwrap_or_default()),
        None => expression.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_inclusive() {
        let mut tally = Tally::default();
        for _ in 0..EXPRESSIONS_MAX {
            tally.add("a", Some(ESTIMATES_MAX / EXPRESSIONS_MAX as u64));
        }
        assert_eq!((tally.too_many(), tally.too_costly()), (None, None));
        tally.add("b", None);
        assert!(tally.too_many().is_some() && tally.too_costly().is_none());
    }

    #[test]
    fn messages_name_number_limit_and_costliest_expression() {
        let mut tally = Tally::default();
        tally.add("cheap", Some(1));
        tally.add("dear", Some(4_000_000));
        assert_eq!(
            tally.too_costly().unwrap(),
            "estimated costs of 2 expressions add up to 4000001, exceeds limit of 4000000; the costliest is `dear` with an estimated cost of 4000000"
        );
        let long = "ä".repeat(200);
        let mut tally = Tally::default();
        (0..65).for_each(|_| tally.add(&long, Some(7)));
        let shown = format!("`{}…`", "ä".repeat(120));
        assert_eq!(
            tally.too_many().unwrap(),
            format!(
                "must have at most 64 expressions in total, has 65; the costliest is {shown} with an estimated cost of 7"
            )
        );
    }
}
