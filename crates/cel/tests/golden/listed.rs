//! An evaluation whose list goes to a sink, put together again.

use cel::program::{Activation, Evaluation, Limits, ListSink, Program};
use cel::value::Value;

/// The lists that are not complete, the innermost last.
#[derive(Default)]
struct Lists(Vec<Vec<Value<'static>>>);

impl ListSink for Lists {
    fn begin(&mut self) {
        self.0.push(Vec::new());
    }

    fn element(&mut self, value: &Value<'_>) {
        self.0.last_mut().unwrap().push(value.clone().into_owned());
    }

    fn end(&mut self) {
        // The outermost list stays.
        if self.0.len() > 1 {
            let list = Value::list(self.0.pop().unwrap());
            self.0.last_mut().unwrap().push(list);
        }
    }
}

/// Must be what an evaluation without a sink is.
pub(crate) fn evaluate(program: &Program, input: &dyn Activation, limits: Limits<'_>) -> Evaluation<'static> {
    let mut lists = Lists::default();
    let listed = program.eval_list(input, limits, &mut lists);
    let result = match listed.result {
        Ok(Some(value)) => Ok(value.into_owned()),
        Ok(None) => Ok(Value::list(lists.0.pop().unwrap())),
        Err(error) => Err(error),
    };
    Evaluation { result, cost: listed.cost }
}
