//! Random expressions over `devices`.

/// Decisions: from bytes as long as there are any, then from a seed.
pub(crate) struct Choices {
    state: u64,
    bytes: Vec<u8>,
}

impl Choices {
    pub(crate) fn new(seed: u64) -> Self {
        Choices { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03, bytes: Vec::new() }
    }

    /// Decides by these bytes first.
    #[allow(dead_code, reason = "the fuzz target's way in")]
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Choices { bytes: bytes.iter().rev().copied().collect(), ..Choices::new(1) }
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        if let Some(byte) = self.bytes.pop() {
            return usize::from(byte) % count;
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state >> 33).unwrap() % count
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A predicate.
pub(crate) fn expression(choices: &mut Choices) -> String {
    Generator { choices, depth: 0, elements: Vec::new(), fresh: 0 }.bool()
}

struct Generator<'c> {
    choices: &'c mut Choices,
    depth: usize,
    /// Variables for devices.
    elements: Vec<String>,
    fresh: usize,
}

const DEPTH_MAX: usize = 6;

impl Generator<'_> {
    fn deeper<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        self.depth += 1;
        let made = make(self);
        self.depth -= 1;
        made
    }

    fn name(&mut self) -> String {
        self.fresh += 1;
        format!("v{}", self.fresh)
    }

    fn with_element(&mut self, make: impl FnOnce(&mut Self) -> String) -> (String, String) {
        let name = self.name();
        self.elements.push(name.clone());
        let body = self.deeper(make);
        self.elements.pop();
        (name, body)
    }

    fn device(&mut self) -> String {
        match self.choices.below(if self.elements.is_empty() { 3 } else { 12 }) {
            0 => "devices[0]".to_owned(),
            1 => "devices[1]".to_owned(),
            2 => format!("{}[0]", self.devices()),
            _ => {
                let index = self.choices.below(self.elements.len());
                self.elements[index].clone()
            }
        }
    }

    /// A list of devices.
    fn devices(&mut self) -> String {
        if self.depth >= DEPTH_MAX {
            return "devices".to_owned();
        }
        match self.choices.below(12) {
            0 | 1 => {
                let (name, body) = self.with_element(Self::bool);
                format!("devices.filter({name}, {body})")
            }
            2 => format!("({} ? {} : devices)", self.deeper(Self::bool), self.deeper(Self::devices)),
            3 => format!("({} + {})", self.deeper(Self::devices), self.deeper(Self::devices)),
            4 => "devices.reverse()".to_owned(),
            5 => {
                let (name, body) = self.with_element(Self::int);
                format!("devices.sortBy({name}, {body})")
            }
            _ => "devices".to_owned(),
        }
    }

    /// A list of numbers.
    fn ints(&mut self) -> String {
        if self.depth >= DEPTH_MAX {
            return "[1, 2]".to_owned();
        }
        match self.choices.below(12) {
            0 => "[0, 1, 2]".to_owned(),
            1 => format!("{}.distinct()", self.deeper(Self::ints)),
            2 => format!("{}.sort()", self.deeper(Self::ints)),
            3 => format!("[{}, {}]", self.deeper(Self::int), self.deeper(Self::int)),
            4 => {
                let name = self.name();
                format!("{}.filter({name}, {name} > {})", self.deeper(Self::ints), self.deeper(Self::int))
            }
            5 => {
                let index = self.name();
                let (name, body) = self.with_element(Self::int);
                format!("devices.transformList({index}, {name}, {index} + {body})")
            }
            6 => {
                let range = self.devices();
                let condition = self.with_element(Self::bool);
                let body = condition.0.clone();
                format!("{range}.map({}, {}, {body}.attributes['a'].id)", condition.0, condition.1)
            }
            _ => {
                let range = self.devices();
                let (name, body) = self.with_element(Self::int);
                format!("{range}.map({name}, {body})")
            }
        }
    }

    fn int(&mut self) -> String {
        if self.depth >= DEPTH_MAX {
            return self.choices.pick(&["0", "1", "2", "3"]).to_owned();
        }
        match self.choices.below(20) {
            0 | 1 => self.choices.pick(&["0", "1", "2", "3", "-1"]).to_owned(),
            2 => format!("size({})", self.deeper(Self::devices)),
            3 => format!("{}.size()", self.deeper(Self::ints)),
            4 | 5 => {
                let function = self.choices.pick(&["sum", "min", "max"]);
                format!("{}.{function}()", self.deeper(Self::ints))
            }
            6 => {
                let operator = self.choices.pick(&["+", "-", "*", "/", "%"]);
                format!("({} {operator} {})", self.deeper(Self::int), self.deeper(Self::int))
            }
            7 => format!("({} ? {} : {})", self.deeper(Self::bool), self.deeper(Self::int), self.deeper(Self::int)),
            8 => format!("{}.capacity['a'].m.asInteger()", self.device()),
            9 => format!("{}.attributes['a'].?x.orValue({})", self.device(), self.deeper(Self::int)),
            10 => format!("-{}", self.deeper(Self::int)),
            11 => format!("{}[{}]", self.deeper(Self::ints), self.choices.pick(&["0", "1", "2"])),
            12 => format!("{}.indexOf({})", self.deeper(Self::ints), self.deeper(Self::int)),
            13 => {
                let name = self.name();
                let value = self.deeper(Self::int);
                format!("cel.bind({name}, {value}, {name} + {name})")
            }
            _ => {
                let attribute = self.choices.pick(&["id", "x", "y", "x", "id"]);
                format!("{}.attributes['a'].{attribute}", self.device())
            }
        }
    }

    fn bool(&mut self) -> String {
        if self.depth >= DEPTH_MAX {
            return self.choices.pick(&["true", "false", "size(devices) > 1"]).to_owned();
        }
        match self.choices.below(32) {
            30 => {
                let name = self.name();
                let value = self.deeper(Self::ints);
                let range = self.devices();
                let (element, body) = self.with_element(Self::int);
                format!(
                    "cel.bind({name}, {value}, {range}.all({element}, {name}.exists(i, i >= {body})) || {name}.size() < 2)"
                )
            }
            31 => {
                let name = self.name();
                let value = self.deeper(Self::devices);
                let (element, body) = self.with_element(Self::bool);
                format!(
                    "cel.bind({name}, {value}, devices.exists({element}, {name}.size() > 1 && {body}) && {name}.size() < 3)"
                )
            }
            0..=2 => format!("({} && {})", self.deeper(Self::bool), self.deeper(Self::bool)),
            3 | 4 => format!("({} || {})", self.deeper(Self::bool), self.deeper(Self::bool)),
            5 => format!("!({})", self.deeper(Self::bool)),
            6..=10 => {
                let range = self.devices();
                let macro_name = self.choices.pick(&["all", "exists", "exists_one", "all"]);
                let (name, body) = self.with_element(Self::bool);
                format!("{range}.{macro_name}({name}, {body})")
            }
            11 => {
                let index = self.name();
                let macro_name = self.choices.pick(&["all", "exists", "existsOne"]);
                let (name, body) = self.with_element(Self::bool);
                format!("devices.{macro_name}({index}, {name}, {index} < 2 || {body})")
            }
            12..=16 => {
                let operator = self.choices.pick(&["==", "!=", "<", "<=", ">", ">="]);
                format!("{} {operator} {}", self.deeper(Self::int), self.deeper(Self::int))
            }
            17 => format!("{} in {}", self.deeper(Self::int), self.deeper(Self::ints)),
            18 => {
                let function = self.choices.pick(&["contains", "equivalent", "intersects"]);
                format!("sets.{function}({}, {})", self.deeper(Self::ints), self.deeper(Self::ints))
            }
            19 => format!("{}.isSorted()", self.deeper(Self::ints)),
            20 => format!("{} == {}", self.deeper(Self::ints), self.deeper(Self::ints)),
            21 => format!("has({}.attributes['a'].x)", self.device()),
            22 => format!("{}.attributes['a'].f", self.device()),
            23 => {
                let function = self.choices.pick(&["startsWith", "contains"]);
                format!("{}.attributes['a'].s.{function}('a')", self.device())
            }
            24 => format!("{} {} {}", self.device(), self.choices.pick(&["==", "!="]), self.device()),
            25 => format!("{}.driver == 'a.example.com'", self.device()),
            26 => format!("({} ? {} : {})", self.deeper(Self::bool), self.deeper(Self::bool), self.deeper(Self::bool)),
            27 => format!("{}.capacity['a'].m.isGreaterThan(quantity('1'))", self.device()),
            28 => format!("{}.includes({})", self.deeper(Self::ints), self.deeper(Self::int)),
            _ => {
                let name = self.name();
                let value = self.deeper(Self::ints);
                format!("cel.bind({name}, {value}, {name}.size() > 0 && {name}.max() < 3)")
            }
        }
    }
}
