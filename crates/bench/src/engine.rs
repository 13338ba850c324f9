//! Interface of an engine for comparisons: compile a case, evaluate a case.

use crate::cases::Case;
use std::fmt;
use std::hint::black_box;

/// Work that can be repeated: called with a count, it does the work that often.
///
/// The loop is inside, so that a call through the box is paid once per sample, not once per repetition.
pub type Batch = Box<dyn FnMut(u64)>;

/// Makes a [`Batch`] of something to do once; the result is kept from being optimized away.
pub fn batch<T>(mut once: impl FnMut() -> T + 'static) -> Batch {
    Box::new(move |count| {
        for _ in 0..count {
            black_box(once());
        }
    })
}

/// A compiled case: what it answered, and the same evaluation to be repeated.
pub struct Evaluation {
    /// Verdict of the engine.
    pub verdict: bool,
    /// Evaluates the compiled program against variables that stand ready.
    pub batch: Batch,
}

/// An engine in the comparison. `None` from either function: it cannot run that case.
pub struct Engine {
    /// Name in the table.
    pub name: &'static str,
    /// Repeats everything from text to something that can be evaluated.
    pub compile: fn(&Case) -> Option<Batch>,
    /// Compiles and binds once, then repeats the evaluation.
    pub evaluate: fn(&Case) -> Option<Evaluation>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evaluation").field("verdict", &self.verdict).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_batch_does_its_work_as_often_as_asked() {
        let done = Rc::new(Cell::new(0_u32));
        let mut batch = batch({
            let done = Rc::clone(&done);
            move || done.set(done.get().saturating_add(1))
        });
        batch(5);
        batch(2);
        assert_eq!(done.get(), 7);
    }
}
