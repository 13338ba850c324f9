//! Lists of which some elements are known, and others are still to be drawn from candidates.
//!
//! Each candidate can be drawn once. What holds of such a list holds for every way to draw.

use std::ops::RangeInclusive;

use super::unknown::{FailureChance, Shape, Union, UnknownValue};
use super::{EvalError, Value, Verdict};

/// A list of which a part is known.
#[derive(Clone, Debug)]
pub struct PartialList<'a> {
    members: Vec<Member<'a>>,
    candidates: Vec<Member<'a>>,
    /// Minimum and maximum number of candidates that are drawn.
    open: (usize, usize),
    /// Number of members at the front, in their order.
    prefix: usize,
}

/// An element of the list, or what may become one.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// Its value; if it is not known, it does not fail.
    pub value: Value<'a>,
    /// The element of the host's list that it comes from.
    pub(crate) id: u32,
    /// Derivation of the value from that element alone; [`NO_CHAIN`] if it depends on more.
    pub(crate) chain: u32,
    /// Whether it is certainly in the list. Unused for candidates.
    pub(crate) is_certain: bool,
}

/// The chain of the host's own elements.
pub(crate) const FIRST_CHAIN: u32 = 0;

/// The value depends on something else, too.
pub(crate) const NO_CHAIN: u32 = u32::MAX;

impl<'a> Member<'a> {
    fn of_host((id, value): (u32, Value<'a>)) -> Self {
        Member { value, id, chain: FIRST_CHAIN, is_certain: true }
    }

    /// Whether it is certainly in the list.
    pub fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// A value that comes from no certain element.
    pub(crate) fn loose(value: Value<'a>, is_certain: bool) -> Self {
        Member { value, id: u32::MAX, chain: NO_CHAIN, is_certain }
    }
}

impl<'a> PartialList<'a> {
    /// The members, in their order and before all others; and how many of the candidates will follow.
    ///
    /// Each has a number of its own, which stands for one and the same value as long as a memory is used.
    pub fn new(
        members: impl IntoIterator<Item = (u32, Value<'a>)>,
        candidates: impl IntoIterator<Item = (u32, Value<'a>)>,
        open: RangeInclusive<usize>,
    ) -> Self {
        let members: Vec<_> = members.into_iter().map(Member::of_host).collect();
        let candidates = candidates.into_iter().map(Member::of_host).collect();
        let prefix = members.len();
        PartialList::from_parts(members, candidates, (*open.start(), *open.end()), prefix)
    }

    pub(crate) fn from_parts(
        members: Vec<Member<'a>>,
        candidates: Vec<Member<'a>>,
        (least, most): (usize, usize),
        prefix: usize,
    ) -> Self {
        let most = most.min(candidates.len());
        let certain = members.iter().take_while(|member| member.is_certain).count();
        PartialList { members, candidates, open: (least, most), prefix: prefix.min(certain) }
    }

    /// The same list; nothing is known about where the members stand.
    #[must_use]
    pub fn in_any_order(self) -> Self {
        self.with_front(0)
    }

    /// The same list; of the members only the first this many are known to stand at the front.
    #[must_use]
    pub fn with_front(mut self, count: usize) -> Self {
        self.prefix = self.prefix.min(count);
        self
    }

    /// The elements that are known.
    pub fn members(&self) -> &[Member<'a>] {
        &self.members
    }

    /// The candidates from which further members are drawn.
    pub fn candidates(&self) -> &[Member<'a>] {
        &self.candidates
    }

    /// Minimum and maximum number of candidates that are drawn.
    pub fn open(&self) -> (usize, usize) {
        self.open
    }

    /// Number of members at the front, in their order.
    pub fn prefix(&self) -> usize {
        self.prefix
    }

    /// Whether a completion exists.
    pub fn is_possible(&self) -> bool {
        self.open.0 <= self.open.1
    }

    /// The member is in the list for certain.
    pub fn certain_members(&self) -> impl Iterator<Item = &Member<'a>> {
        self.members.iter().filter(|member| member.is_certain)
    }

    /// All elements that the list can have.
    pub fn all(&self) -> impl Iterator<Item = &Member<'a>> {
        let drawable = if self.open.1 == 0 { &[] } else { self.candidates.as_slice() };
        self.members.iter().chain(drawable)
    }

    /// Whether all possible elements are of one kind that has an order.
    pub fn is_of_one_kind(&self) -> bool {
        let mut ranges = self.all().map(|member| member.value.range());
        match ranges.next() {
            None => true,
            Some(Some((first, _))) => {
                ranges.all(|range| range.is_some_and(|(other, _)| super::unknown::same_kind(&first, &other)))
            }
            Some(None) => false,
        }
    }

    /// Minimum and maximum length of the list.
    pub fn length(&self) -> (usize, usize) {
        let least = self.certain_members().count().saturating_add(self.open.0);
        (least, self.members.len().saturating_add(self.open.1))
    }

    /// The list as a value: one that is known, if nothing is open.
    pub fn into_value(self) -> Value<'a> {
        if !self.is_possible() {
            return Value::of_verdict(Verdict::NONE);
        }
        let is_known = |member: &Member<'_>| !matches!(member.value, Value::Unknown(_));
        if self.open.1 == 0 && self.prefix == self.members.len() && self.members.iter().all(is_known) {
            return Value::list(self.members.into_iter().map(|member| member.value).collect());
        }
        Value::Unknown(UnknownValue::new(FailureChance::Never, Shape::Drawn(self)))
    }

    /// The same list, where these candidates have been drawn; nothing if they cannot be.
    pub(crate) fn assuming(&self, drawn: &[u32]) -> Option<PartialList<'a>> {
        let mut list = self.clone();
        for id in drawn {
            if let Some(at) = list.candidates.iter().position(|candidate| candidate.id == *id) {
                let candidate = list.candidates.remove(at);
                list.members.push(candidate);
                list.open = (list.open.0.saturating_sub(1), list.open.1.checked_sub(1)?);
            }
        }
        list.open.1 = list.open.1.min(list.candidates.len());
        list.is_possible().then_some(list)
    }

    /// The same list; none of its members is certain.
    pub(crate) fn doubted(&self) -> PartialList<'a> {
        let mut list = self.clone();
        list.members.iter_mut().for_each(|member| member.is_certain = false);
        list.prefix = 0;
        list
    }

    /// The element at an index; nothing if the list is shorter for certain.
    pub(crate) fn get(&self, index: usize) -> Option<Value<'a>> {
        if index < self.prefix {
            return self.members.get(index).map(|member| member.value.clone());
        }
        let (least, most) = self.length();
        if index >= most {
            return None;
        }
        let mut union = Union::new();
        if index >= least {
            union.fail(FailureChance::Perhaps);
        }
        for member in self.all().skip(self.prefix) {
            union.add(member.value.clone());
        }
        Some(union.finish())
    }

    /// Searches for an element that equals this one.
    pub fn holds(&self, element: &Value<'a>) -> Verdict {
        let found = self.quantify(true, |_, member| Ok(element.can_equal(&member.value)));
        found.unwrap_or(Verdict::ANY | Verdict::FATAL)
    }

    /// `exists` where `decisive` is true, `all` where it is false, of a predicate that each element can come to.
    pub(crate) fn quantify(
        &self,
        decisive: bool,
        mut test: impl FnMut(Element, &Member<'a>) -> Result<Verdict, EvalError>,
    ) -> Result<Verdict, EvalError> {
        let (yes, no) = (Verdict::of(decisive), Verdict::of(!decisive));
        let mut all = Verdict::NONE;
        let mut can_be_no = true;
        for (index, member) in self.members.iter().enumerate() {
            let found = test(Element::Member(index), member)?.as_operand();
            if member.is_certain && found == yes {
                return Ok(if all.can_end() { yes | Verdict::FATAL } else { yes });
            }
            all |= found.without(no);
            can_be_no &= !member.is_certain || found.can_be(no);
        }
        if self.open.1 > 0 {
            let (mut drawable, mut certain, mut others) = (0_usize, 0_usize, 0_usize);
            for candidate in &self.candidates {
                let found = test(Element::Candidate, candidate)?.as_operand();
                if found == Verdict::NONE {
                    continue;
                }
                drawable = drawable.saturating_add(1);
                certain = certain.saturating_add(usize::from(found == yes));
                others = others.saturating_add(usize::from(found.can_be(no)));
                all |= found.without(no);
            }
            if self.open.0 > drawable {
                return Ok(Verdict::NONE);
            }
            // However it is drawn, one of those is drawn that decide.
            if self.open.0 > drawable.saturating_sub(certain) {
                return Ok(if all.can_end() { yes | Verdict::FATAL } else { yes });
            }
            can_be_no &= others >= self.open.0;
        }
        Ok(if can_be_no { all | no } else { all })
    }
}

/// Selects an element of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Element {
    /// The member at an index of the members.
    Member(usize),
    /// One of the candidates.
    Candidate,
}
