//! Loops over lists that are still being drawn.

use super::super::fold::or_error;
use super::super::machine::{EvalResult, Machine, TestResult};
use super::super::node::{Base, CollectNode, Fold, FoldStep, Kind, Node, Quantifier};
use super::super::trace::Tracer;
use super::closed::can_end;
use crate::value::drawn::{Element, Member, NO_CHAIN, PartialList};
use crate::value::unknown::Union;
use crate::value::{EvalError, FailureChance, Map, Shape, UnknownValue, Value, Verdict};

/// Slots for the element, and for its index if the loop has a second variable.
#[derive(Clone, Copy)]
struct Variables {
    element: usize,
    index: Option<usize>,
}

impl Variables {
    fn new(variable: usize, second: Option<usize>) -> Self {
        match second {
            Some(second) => Variables { element: second, index: Some(variable) },
            None => Variables { element: variable, index: None },
        }
    }
}

/// Replaces a range that cannot be iterated, a map with unknown entries, by an unknown value.
pub(in super::super) fn closed_range(range: Value<'_>) -> Value<'_> {
    match &range {
        Value::Map(map) if Map::is_partial(map) => Value::Unknown(UnknownValue::anything()),
        _ => range,
    }
}

impl<'a, T: Tracer<'a>> Machine<'_, 'a, T> {
    /// The list as seen by the enclosing bodies: their elements are already drawn.
    #[cold]
    pub(in super::super) fn as_seen_here(&mut self, unknown: UnknownValue<'a>) -> Value<'a> {
        let drawn: &[u32] = self.tracer().recall().map_or(&[], |recall| &recall.drawn);
        match unknown.as_drawn() {
            Some(list) if !drawn.is_empty() => match list.assuming(drawn) {
                Some(list) => list.into_value().after(&unknown),
                None => Value::of_verdict(Verdict::NONE),
            },
            _ => Value::Unknown(unknown),
        }
    }

    /// Evaluates a loop body for an element of a list; a non-fatal error is returned as a value.
    fn eval_body(
        &mut self,
        body: &'a Node,
        list: &PartialList<'a>,
        (element, member): (Element, &Member<'a>),
        variables: Variables,
    ) -> EvalResult<'a> {
        self.set_slot(variables.element, member.value.clone());
        if let Some(index) = variables.index {
            self.set_slot(index, index_of(element, list));
        }
        let program = self.program;
        let mut question = None;
        let is_candidate = matches!(element, Element::Candidate);
        let mut is_quick = false;
        if let Some(recall) = self.tracer().recall() {
            recall.bind(variables.element, (member.chain != NO_CHAIN).then_some((member.chain, member.id)));
            if let Some(index) = variables.index {
                recall.bind(index, None);
            }
            question = recall.question(program, body);
            if let Some(answer) = question.as_ref().and_then(|question| recall.answer(question)) {
                return Ok(answer);
            }
            is_quick = recall.is_quick;
            if is_candidate {
                recall.drawn.push(member.id);
            }
        }
        let value = if is_quick && is_candidate && question.is_none() {
            Value::Unknown(UnknownValue::anything())
        } else {
            self.charge(1)?;
            self.count_round()?;
            or_error(self.test(body).map(Value::from))?
        };
        if let Some(recall) = self.tracer().recall() {
            recall.count_body();
            if is_candidate {
                recall.drawn.pop();
            }
            if let Some(question) = question {
                recall.remember(question, &value);
            }
        }
        Ok(value)
    }

    /// `all` and `exists` over a range that is not known.
    #[cold]
    pub(in super::super) fn test_unknown_quantifier(
        &mut self,
        quantifier: &'a Quantifier,
        range: &UnknownValue<'a>,
    ) -> Result<TestResult<'a>, EvalError> {
        let verdict = match range.shape() {
            Some(Shape::Drawn(list)) => {
                let variables = Variables::new(quantifier.variable, quantifier.second_variable);
                let doubted = self.doubted(list, &quantifier.predicate);
                let list = doubted.as_ref().unwrap_or(list);
                list.quantify(quantifier.decisive, |element, member| {
                    self.eval_body(&quantifier.predicate, list, (element, member), variables)
                        .map(|value| value.verdict())
                })?
            }
            Some(Shape::OneOf(ranges)) => {
                let mut all = Verdict::NONE;
                for range in ranges {
                    all |= match self.quantify(quantifier, range) {
                        Ok(tested) => Value::from(tested).verdict(),
                        Err(fatal) if fatal.is_fatal() => return Err(fatal),
                        Err(_) => Verdict::ERROR,
                    };
                }
                all
            }
            _ => Verdict::TRUE | Verdict::FALSE | Verdict::FATAL,
        };
        Ok(Value::of_verdict(verdict).after(range).into())
    }

    /// A member decides a loop only if nothing before it can end the evaluation. Where that is possible and nothing is known about the
    /// order, no member is certain to decide.
    fn doubted(&mut self, list: &PartialList<'a>, body: &'a Node) -> Option<PartialList<'a>> {
        if list.prefix() == list.members().len() {
            return None;
        }
        let program = self.program;
        let can_end = match self.tracer().recall() {
            Some(recall) => recall.can_end(program, body),
            None => can_end(program, body),
        };
        can_end.then(|| list.doubted())
    }

    /// Any other loop over a range that is not known: `exists_one` counts.
    #[cold]
    pub(in super::super) fn fold_unknown(&mut self, fold: &'a Fold, range: &UnknownValue<'a>) -> EvalResult<'a> {
        let (Some(condition), Some(list)) = (counted(fold), range.as_drawn()) else {
            return Ok(Value::Unknown(UnknownValue::anything()).after(range));
        };
        let variables = Variables::new(fold.variable, fold.second_variable);
        let (mut least, mut most, mut failing) = (0_usize, 0_usize, FailureChance::Never);
        let (mut drawable, mut certain, mut possible) = (0_usize, 0_usize, 0_usize);
        for (element, member) in elements(list) {
            let found = self.eval_body(condition, list, (element, member), variables)?.verdict().as_operand();
            failing = failing.max(failing_of(found));
            let (is_hit, can_hit) = (found == Verdict::TRUE, found.can_be(Verdict::TRUE));
            match element {
                Element::Member(_) => {
                    least = least.saturating_add(usize::from(is_hit && member.is_certain));
                    most = most.saturating_add(usize::from(can_hit));
                }
                Element::Candidate => {
                    drawable = drawable.saturating_add(usize::from(found != Verdict::NONE));
                    certain = certain.saturating_add(usize::from(is_hit));
                    possible = possible.saturating_add(usize::from(can_hit));
                }
            }
        }
        let (open_least, open_most) = list.open();
        if open_least > drawable && open_most > 0 {
            return Ok(Value::of_verdict(Verdict::NONE));
        }
        least = least.saturating_add(open_least.saturating_sub(drawable.saturating_sub(certain)));
        most = most.saturating_add(possible.min(open_most));
        let mut verdict = verdict_of(failing);
        if least <= 1 && most >= 1 {
            verdict |= Verdict::TRUE;
        }
        if (least, most) != (1, 1) {
            verdict |= Verdict::FALSE;
        }
        Ok(Value::of_verdict(verdict).after(range))
    }

    /// `map` and `filter` over a range that is not known.
    #[cold]
    pub(in super::super) fn collect_unknown(
        &mut self,
        collect: &'a CollectNode,
        range: &UnknownValue<'a>,
    ) -> EvalResult<'a> {
        let value = match range.shape() {
            Some(Shape::Drawn(list)) => self.collect_drawn(collect, list)?,
            Some(Shape::OneOf(ranges)) => {
                let mut union = Union::new();
                for range in ranges {
                    match self.collect_from(collect, range) {
                        Ok(value) => union.add(value),
                        Err(fatal) if fatal.is_fatal() => return Err(fatal),
                        Err(_) => union.fail(FailureChance::Perhaps),
                    }
                }
                union.finish()
            }
            _ => Value::Unknown(UnknownValue::anything()),
        };
        Ok(value.after(range))
    }

    fn collect_drawn(&mut self, collect: &'a CollectNode, list: &PartialList<'a>) -> EvalResult<'a> {
        let mut failing = FailureChance::Never;
        let (mut members, mut candidates) = (Vec::new(), Vec::new());
        let (mut prefix, mut is_prefix) = (0_usize, true);
        // Of the candidates: those that can be drawn without an error, and those of them that need not add an element.
        let (mut drawable, mut silent) = (0_usize, 0_usize);
        for (element, member) in elements(list) {
            let (passes, value) = self.collect_one(collect, list, (element, member))?;
            failing = failing.max(failing_of(passes));
            let (can_pass, can_miss) = (passes.can_be(Verdict::TRUE), passes.can_be(Verdict::FALSE));
            let is_certain = member.is_certain && passes == Verdict::TRUE;
            let is_member = matches!(element, Element::Member(_));
            let chain = self.chain_of(collect, member);
            let added = match value {
                _ if !can_pass => {
                    if is_member && member.is_certain && passes == Verdict::ERROR {
                        return Err(EvalError::no_such_overload());
                    }
                    None
                }
                Value::Error(error) => {
                    if is_member && is_certain {
                        return Err(error);
                    }
                    failing = failing.max(FailureChance::Perhaps);
                    None
                }
                Value::Unknown(unknown) => {
                    failing = failing.max(unknown.failing());
                    Some(Value::Unknown(unknown.if_any()))
                }
                value => Some(value),
            };
            let is_added = added.is_some();
            let added = added.map(|value| Member { value, id: member.id, chain, is_certain });
            match element {
                Element::Member(index) => {
                    is_prefix &= index < list.prefix() && (!is_added || is_certain);
                    prefix = prefix.saturating_add(usize::from(is_prefix && is_added));
                    members.extend(added);
                }
                Element::Candidate => {
                    drawable = drawable.saturating_add(usize::from(is_added || can_miss));
                    silent = silent.saturating_add(usize::from(can_miss));
                    candidates.extend(added);
                }
            }
        }
        let (least, most) = list.open();
        if most > 0 && least > drawable {
            return match failing {
                FailureChance::Never => Ok(Value::of_verdict(Verdict::NONE)),
                _ => Err(EvalError::no_such_overload()),
            };
        }
        let open = (least.saturating_sub(silent), most);
        let value = PartialList::from_parts(members, candidates, open, prefix).into_value();
        Ok(match failing {
            FailureChance::Never => value,
            failing => value.after(&UnknownValue::new(failing, Shape::OneOf(Vec::new()))),
        })
    }

    /// Evaluates the filter for an element. Returns the verdict, and the element to add if it passes.
    fn collect_one(
        &mut self,
        collect: &'a CollectNode,
        list: &PartialList<'a>,
        (element, member): (Element, &Member<'a>),
    ) -> Result<(Verdict, Value<'a>), EvalError> {
        let variables = Variables::new(collect.variable, collect.second_variable);
        let passes = match &collect.condition {
            Some(condition) => self.eval_body(condition, list, (element, member), variables)?.verdict().as_operand(),
            None => Verdict::TRUE,
        };
        let value = match collect.element() {
            _ if !passes.can_be(Verdict::TRUE) => Value::Null,
            _ if collect.adds_variable && collect.second_variable.is_none() => member.value.clone(),
            Some(body) => self.eval_body(body, list, (element, member), variables)?,
            None => Value::Unknown(UnknownValue::anything()),
        };
        Ok((passes, value))
    }

    /// Returns the derivation by which an element of the collected list was computed from an element of the
    /// host's list.
    fn chain_of(&mut self, collect: &'a CollectNode, member: &Member<'a>) -> u32 {
        if collect.adds_variable && collect.second_variable.is_none() {
            return member.chain;
        }
        let program = self.program;
        let variable = Variables::new(collect.variable, collect.second_variable).element;
        match (collect.element(), self.tracer().recall()) {
            (Some(body), Some(recall)) if member.chain != NO_CHAIN => match recall.closed(program, body) {
                Some(closed) if closed.slots.iter().flatten().all(|slot| *slot == variable) => {
                    recall.chain(member.chain, body.id)
                }
                _ => NO_CHAIN,
            },
            _ => NO_CHAIN,
        }
    }
}

/// All that a list can have.
fn elements<'l, 'a>(list: &'l PartialList<'a>) -> impl Iterator<Item = (Element, &'l Member<'a>)> {
    let candidates = if list.open().1 == 0 { &[] } else { list.candidates() };
    let members = list.members().iter().enumerate().map(|(index, member)| (Element::Member(index), member));
    members.chain(candidates.iter().map(|candidate| (Element::Candidate, candidate)))
}

/// The index of an element, as far as it is known.
fn index_of<'a>(element: Element, list: &PartialList<'a>) -> Value<'a> {
    let int = |index: usize| Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
    match element {
        Element::Member(index) if index < list.prefix() => int(index),
        _ => Value::between(int(list.prefix()), int(list.length().1.saturating_sub(1))),
    }
}

/// Returns the condition of `exists_one`: a loop that counts the elements that satisfy it and tests for exactly
/// one.
fn counted(fold: &Fold) -> Option<&Node> {
    match &fold.step {
        FoldStep::Assign(Node { kind: Kind::Attribute(step), .. }) if fold.counts => match &step.base {
            Base::Conditional(conditional) => Some(&conditional.condition),
            _ => None,
        },
        _ => None,
    }
}

fn failing_of(verdict: Verdict) -> FailureChance {
    match (verdict.can_end(), verdict.can_be(Verdict::ERROR)) {
        (true, _) => FailureChance::Fatally,
        (false, true) => FailureChance::Perhaps,
        (false, false) => FailureChance::Never,
    }
}

fn verdict_of(failing: FailureChance) -> Verdict {
    match failing {
        FailureChance::Never => Verdict::NONE,
        FailureChance::Perhaps => Verdict::ERROR,
        FailureChance::Fatally => Verdict::FATAL,
    }
}
