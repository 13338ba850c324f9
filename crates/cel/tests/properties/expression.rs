//! Random expressions that check.

use super::input::Choices;

/// The type of an expression's value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int,
    Text,
    Ints,
    Texts,
    Map,
    /// Any of the others.
    Any,
}

/// Parts of the language to use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LanguageSubset {
    /// The whole language, as far as the generator supports it.
    Language,
    /// The part that the reference does not underestimate.
    Estimate,
}

const DEPTH_MAX: usize = 5;

/// Writes an expression, as random bytes decide. Zeros make it short.
pub(crate) struct Generator<'d> {
    choices: Choices<'d>,
    within: LanguageSubset,
    depth: usize,
    /// Variables of comprehensions around, with their types.
    locals: Vec<(String, Kind)>,
}

impl<'d> Generator<'d> {
    pub(crate) fn new(bytes: &'d [u8], within: LanguageSubset) -> Self {
        Generator { choices: Choices::new(bytes), within, depth: 0, locals: Vec::new() }
    }

    pub(crate) fn expression(&mut self, kind: Kind) -> String {
        if self.depth >= DEPTH_MAX {
            return self.leaf(kind);
        }
        self.depth += 1;
        let text = match kind {
            Kind::Any => {
                let kinds = [Kind::Bool, Kind::Int, Kind::Text, Kind::Ints, Kind::Texts, Kind::Map];
                let kind = self.choices.pick(&kinds);
                self.expression(kind)
            }
            Kind::Bool => self.bool(),
            Kind::Int => self.int(),
            Kind::Text => self.text(),
            Kind::Ints => self.list(Kind::Int),
            Kind::Texts => self.list(Kind::Text),
            Kind::Map => self.map(),
        };
        self.depth -= 1;
        text
    }

    fn leaf(&mut self, kind: Kind) -> String {
        let locals: Vec<&String> = self.locals.iter().filter(|(_, of)| *of == kind).map(|(name, _)| name).collect();
        if !locals.is_empty() && self.choices.below(3) > 0 {
            return locals[self.choices.below(locals.len())].clone();
        }
        // The estimate of what is read from a failed operand goes by its size, but the reference's meter counts 1.
        let leaves: &[&str] = match kind {
            Kind::Text if self.within == LanguageSubset::Estimate => &["'a'", "s", "t", "'é,a'", "'k'", "s"],
            Kind::Ints if self.within == LanguageSubset::Estimate => &["[1]", "l", "[1, 2, 3]", "l"],
            Kind::Bool => &["true", "b", "false", "b"],
            Kind::Int => &["1", "x", "y", "0", "-3", "9223372036854775807", "x"],
            Kind::Text => &["'a'", "s", "t", "''", "'é,a'", "'k'", "s"],
            // `[]` alone has a type that is open, and `x in []` is false for the reference whether `x` fails or not.
            Kind::Ints => &["[1]", "l", "l.slice(0, 0)", "[1, 2, 3]", "l"],
            Kind::Texts => &["['a']", "ls", "['k', 'é']", "ls"],
            Kind::Map | Kind::Any => &["{'a': 1}", "m", "m"],
        };
        self.choices.pick(leaves).to_owned()
    }

    fn unless_estimated(&self, text: String, instead: &str) -> String {
        if self.within == LanguageSubset::Estimate { instead.to_owned() } else { text }
    }

    fn bool(&mut self) -> String {
        use Kind::{Bool, Int, Ints, Map, Text, Texts};
        match self.choices.below(24) {
            0 => self.leaf(Bool),
            1 | 2 => format!("({} && {})", self.expression(Bool), self.expression(Bool)),
            3 | 4 => format!("({} || {})", self.expression(Bool), self.expression(Bool)),
            5 => format!("!{}", self.in_parentheses(Bool)),
            6 => format!("({} ? {} : {})", self.expression(Bool), self.expression(Bool), self.expression(Bool)),
            7 | 8 => {
                let kind = self.choices.pick(&[Int, Text, Bool, Ints, Texts, Map]);
                let operator = self.choices.pick(&["==", "!="]);
                format!("({} {operator} {})", self.expression(kind), self.expression(kind))
            }
            9 => {
                let kind = self.choices.pick(&[Int, Text]);
                let operator = self.choices.pick(&["<", "<=", ">", ">="]);
                format!("({} {operator} {})", self.expression(kind), self.expression(kind))
            }
            10 => format!("({} in {})", self.expression(Int), self.expression(Ints)),
            11 => format!("({} in {})", self.expression(Text), self.expression(Texts)),
            12 => format!("({} in {})", self.expression(Text), self.expression(Map)),
            13..=15 => {
                let (range, element) = self.choices.pick(&[(Ints, Int), (Texts, Text), (Map, Text)]);
                let name = self.choices.pick(&["all", "exists", "exists_one"]);
                self.comprehension(range, element, name, Bool)
            }
            16 => {
                let function = self.choices.pick(&["startsWith", "endsWith", "contains"]);
                format!("{}.{function}({})", self.in_parentheses(Text), self.expression(Text))
            }
            17 => {
                let pattern = self.choices.pick(&["^a", "[a-k]+", "é|a", ""]);
                format!("{}.matches('{pattern}')", self.in_parentheses(Text))
            }
            18 => self.choices.pick(&["has(m.a)", "has(ms.k)", "has(m.zz)"]).to_owned(),
            19 => {
                let function = self.choices.pick(&["contains", "equivalent", "intersects"]);
                format!("sets.{function}({}, {})", self.expression(Ints), self.expression(Ints))
            }
            20 => {
                let text = format!("(a == {})", self.expression(Kind::Any));
                self.unless_estimated(text, "b")
            }
            21 => {
                let text = self.choices.pick(&[
                    "a",
                    "has(a.k)",
                    "a.k",
                    "a[0]",
                    "(a in l)",
                    "(dyn(x) == d)",
                    "a.exists(e, e == x)",
                ]);
                let other = self.choices.pick(&["true", "1", "a"]);
                self.unless_estimated(format!("(dyn({text}) == dyn({other}))"), "b")
            }
            22 => {
                let text = self.choices.pick(&[
                    "l[?0].hasValue()",
                    "m.?a.hasValue()",
                    "optional.of(x).hasValue()",
                    "(m[?s].orValue(x) > y)",
                ]);
                self.unless_estimated(text.to_owned(), "b")
            }
            _ => {
                let (range, kind) = self.choices.pick(&[("l", Int), ("ls", Text)]);
                let name = self.choices.pick(&["all", "exists", "existsOne"]);
                self.two_variables(range, kind, name, Bool)
            }
        }
    }

    fn int(&mut self) -> String {
        use Kind::{Bool, Int, Ints, Map, Text, Texts};
        match self.choices.below(9) {
            0 => self.leaf(Int),
            1 | 2 => {
                let operator = self.choices.pick(&["+", "-", "*", "/", "%"]);
                format!("({} {operator} {})", self.expression(Int), self.expression(Int))
            }
            3 => {
                let kind = self.choices.pick(&[Text, Ints, Texts, Map]);
                format!("size({})", self.expression(kind))
            }
            4 => format!("({} ? {} : {})", self.expression(Bool), self.expression(Int), self.expression(Int)),
            5 => format!("l[{}]", self.expression(Int)),
            6 => format!("m[{}]", self.expression(Text)),
            7 => format!("int({})", self.expression(Text)),
            _ => format!("{}.indexOf({})", self.in_parentheses(Text), self.expression(Text)),
        }
    }

    fn text(&mut self) -> String {
        use Kind::{Bool, Int, Text, Texts};
        match self.choices.below(9) {
            0 => self.leaf(Text),
            1 => format!("({} + {})", self.expression(Text), self.expression(Text)),
            2 => format!("({} ? {} : {})", self.expression(Bool), self.expression(Text), self.expression(Text)),
            3 => format!("string({})", self.expression(Int)),
            4 => format!("ls[{}]", self.expression(Int)),
            5 => format!("{}.substring({})", self.in_parentheses(Text), self.expression(Int)),
            6 => format!("{}.upperAscii()", self.in_parentheses(Text)),
            7 => format!("ms[{}]", self.expression(Text)),
            _ => {
                let text = format!("{}.join({})", self.in_parentheses(Texts), self.expression(Text));
                self.unless_estimated(text, "s")
            }
        }
    }

    fn list(&mut self, element: Kind) -> String {
        let kind = if element == Kind::Int { Kind::Ints } else { Kind::Texts };
        match self.choices.below(10) {
            0 | 1 => self.leaf(kind),
            2 => format!("[{}, {}]", self.expression(element), self.expression(element)),
            3 => format!("({} + {})", self.expression(kind), self.expression(kind)),
            4 => self.comprehension(kind, element, "filter", Kind::Bool),
            5 => self.comprehension(Kind::Ints, Kind::Int, "map", element),
            6 => self.comprehension(Kind::Map, Kind::Text, "map", element),
            // The reference's estimate takes the elements for numbers, which weigh less than text.
            7 if kind == Kind::Ints || self.within == LanguageSubset::Language => {
                format!("{}.distinct()", self.in_parentheses(kind))
            }
            7 | 8 => format!("{}.sort()", self.in_parentheses(kind)),
            _ => self.two_variables("l", Kind::Int, "transformList", element),
        }
    }

    fn map(&mut self) -> String {
        match self.choices.below(4) {
            0 | 1 => self.leaf(Kind::Map),
            2 => format!("{{{}: {}}}", self.expression(Kind::Text), self.expression(Kind::Int)),
            _ => {
                let key = self.fresh(Kind::Text);
                let value = self.fresh(Kind::Int);
                let body = self.expression(Kind::Int);
                self.locals.truncate(self.locals.len() - 2);
                format!("m.transformMap({key}, {value}, {body})")
            }
        }
    }

    fn in_parentheses(&mut self, kind: Kind) -> String {
        format!("({})", self.expression(kind))
    }

    fn fresh(&mut self, kind: Kind) -> String {
        let name = format!("v{}", self.locals.len());
        self.locals.push((name.clone(), kind));
        name
    }

    fn comprehension(&mut self, range: Kind, element: Kind, name: &str, body: Kind) -> String {
        let range = self.in_parentheses(range);
        let variable = self.fresh(element);
        let body = self.expression(body);
        self.locals.pop();
        format!("{range}.{name}({variable}, {body})")
    }

    fn two_variables(&mut self, range: &str, element: Kind, name: &str, body: Kind) -> String {
        let first = self.fresh(Kind::Int);
        let second = self.fresh(element);
        let body = self.expression(body);
        self.locals.truncate(self.locals.len() - 2);
        format!("{range}.{name}({first}, {second}, {body})")
    }
}
