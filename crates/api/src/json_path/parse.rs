//! Text → tree.

use super::{Filter, Node, Operator, PathError, Slice};

pub(super) fn parse_template(text: &str) -> Result<Box<[Node]>, PathError> {
    let mut parser = Parser { input: text, start: 0, position: 0 };
    let mut root = Vec::new();
    loop {
        let rest = parser.rest();
        let end = rest.find('{').unwrap_or(rest.len());
        parser.position = parser.position.saturating_add(end);
        if end > 0 {
            root.push(Node::Text(parser.consume().into()));
        }
        if parser.next().is_none() {
            return Ok(root.into());
        }
        parser.consume();
        root.push(Node::List(parser.action()?.into()));
    }
}

/// Parses the text between braces; the text may close them itself, and then only its first list counts.
fn parse_action(text: &str) -> Result<Box<[Node]>, PathError> {
    let nodes = parse_template(&format!("{{{text}}}"))?;
    match nodes.into_iter().next() {
        Some(Node::List(nodes)) => Ok(nodes),
        _ => Ok(Box::default()),
    }
}

fn error(message: impl Into<String>) -> PathError {
    PathError(message.into())
}

struct Parser<'a> {
    input: &'a str,
    /// Start of the text that [`Parser::consume`] returns.
    start: usize,
    /// INVARIANT: both are character boundaries, and `start <= position <= input.len()`.
    position: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.input.get(self.position..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.position = self.position.saturating_add(c.len_utf8());
        Some(c)
    }

    fn skip(&mut self, bytes: usize) {
        self.position = self.position.saturating_add(bytes);
    }

    fn consume(&mut self) -> &'a str {
        let text = self.input.get(self.start..self.position).unwrap_or_default();
        self.start = self.position;
        text
    }

    /// Whether the byte before the character that was just read (a single byte) is a backslash.
    fn follows_backslash(&self) -> bool {
        let before = self.position.checked_sub(2);
        before.and_then(|at| self.input.as_bytes().get(at)) == Some(&b'\\')
    }

    /// Reads up to and including the closing brace.
    fn action(&mut self) -> Result<Vec<Node>, PathError> {
        let mut nodes = Vec::new();
        loop {
            let rest = self.rest();
            if rest.starts_with("[?(") {
                self.skip(3);
                self.consume();
                nodes.push(self.filter()?);
                continue;
            }
            if rest.starts_with("..") {
                if nodes.last() == Some(&Node::Recursive) {
                    return Err(error("invalid multiple recursive descent"));
                }
                self.skip(2);
                self.consume();
                nodes.push(Node::Recursive);
                if self.peek().is_some_and(is_alphanumeric) {
                    nodes.push(self.field());
                }
                continue;
            }
            match self.peek() {
                Some('}') => {
                    self.skip(1);
                    self.consume();
                    return Ok(nodes);
                }
                None | Some('\r' | '\n') => return Err(error("unclosed action")),
                Some(' ' | '@' | '$') => {
                    self.skip(1);
                    self.consume();
                }
                Some('[') => {
                    self.skip(1);
                    self.array(&mut nodes)?;
                }
                Some(quote @ ('"' | '\'')) => {
                    self.skip(1);
                    nodes.push(self.quoted(quote)?);
                }
                Some('.') => {
                    self.skip(1);
                    nodes.push(self.field());
                }
                Some(c) if c == '+' || c == '-' || c.is_numeric() => nodes.push(self.number()?),
                Some(c) if is_alphanumeric(c) => nodes.push(self.identifier()),
                Some(c) => {
                    let code = u32::from(c);
                    return Err(error(format!("unrecognized character in action: U+{code:04X} '{c}'")));
                }
            }
        }
    }

    fn identifier(&mut self) -> Node {
        while self.peek().is_some_and(|c| !is_terminator(c)) {
            self.next();
        }
        match self.consume() {
            "true" => Node::Bool(true),
            "false" => Node::Bool(false),
            name => Node::Identifier(name.into()),
        }
    }

    fn number(&mut self) -> Result<Node, PathError> {
        if let Some('+' | '-') = self.peek() {
            self.skip(1);
        }
        while self.peek().is_some_and(|c| c == '.' || c.is_numeric()) {
            self.next();
        }
        let text = self.consume();
        if let Ok(value) = text.parse() {
            return Ok(Node::Int(value));
        }
        text.parse().map(Node::Float).map_err(|_| error(format!("cannot parse number {text}")))
    }

    /// Reads a field's name; the point before it has been read.
    fn field(&mut self) -> Node {
        self.consume();
        while let Some(c) = self.peek() {
            if is_terminator(c) {
                break;
            }
            self.next();
            if c == '\\' {
                self.next();
            }
        }
        match self.consume() {
            "*" => Node::Wildcard,
            name => Node::Field(name.replace('\\', "").into()),
        }
    }

    /// Reads an index, a slice, a key or several of them; the bracket has been read.
    fn array(&mut self, nodes: &mut Vec<Node>) -> Result<(), PathError> {
        loop {
            match self.next() {
                None | Some('\n') => return Err(error("unterminated array")),
                Some(']') => break,
                Some(_) => {}
            }
        }
        let text = self.consume();
        let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or_default();
        if text.contains(',') {
            let parts = text.split(',').map(|part| parse_action(&format!("[{}]", part.trim_matches(' '))));
            nodes.push(Node::Union(parts.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).filter(|key| !key.contains('\''));
        if let Some(key) = key {
            nodes.extend(parse_action(&format!(".{key}"))?);
            return Ok(());
        }
        nodes.push(Node::Slice(parse_slice(if text == "*" { ":" } else { text })?));
        Ok(())
    }

    /// Reads a filter; its opening `[?(` has been read.
    fn filter(&mut self) -> Result<Node, PathError> {
        let mut open_quote = None;
        let mut closed = false;
        loop {
            match self.next() {
                None | Some('\n') => return Err(error("unterminated filter")),
                Some(quote @ ('"' | '\'')) => match open_quote {
                    None => open_quote = Some(quote),
                    Some(open) if open == quote && !self.follows_backslash() => closed = true,
                    Some(_) => {}
                },
                Some(')') if open_quote.is_some() == closed => break,
                Some(_) => {}
            }
        }
        if self.next() != Some(']') {
            return Err(error("unclosed array expect ]"));
        }
        let text = self.consume().strip_suffix(")]").unwrap_or_default();
        let Some((left, operator, right)) = split_comparison(text) else {
            let left = parse_action(text)?;
            return Ok(Node::Filter(Box::new(Filter { left, operator: Operator::Exists, right: Box::default() })));
        };
        let operator = match operator {
            "<" => Operator::Less,
            ">" => Operator::Greater,
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<=" => Operator::LessOrEqual,
            ">=" => Operator::GreaterOrEqual,
            other => Operator::Unknown(other.into()),
        };
        Ok(Node::Filter(Box::new(Filter { left: parse_action(left)?, operator, right: parse_action(right)? })))
    }

    /// Reads a string; its opening quote has been read.
    fn quoted(&mut self, quote: char) -> Result<Node, PathError> {
        loop {
            match self.next() {
                None | Some('\n') => return Err(error("unterminated quoted string")),
                Some(c) if c == quote && !self.follows_backslash() => break,
                Some(_) => {}
            }
        }
        let text = self.consume();
        let inner = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
        let unquoted = inner.and_then(|inner| unquote(inner, quote));
        let unquoted = unquoted.ok_or_else(|| error(format!("unquote string {text} error invalid syntax")))?;
        Ok(Node::Text(unquoted.into()))
    }
}

/// Splits at the first run of `!<>=` that has something on both sides.
fn split_comparison(text: &str) -> Option<(&str, &str, &str)> {
    let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let start = text.find(is_operator).filter(|start| *start > 0)?;
    let (left, rest) = text.split_at_checked(start)?;
    let run = rest.find(|c| !is_operator(c)).unwrap_or(rest.len());
    // Without a right side, the last character of the run is one.
    let length = if run == rest.len() { run.checked_sub(1)? } else { run };
    let (operator, right) = rest.split_at_checked(length)?;
    (!operator.is_empty()).then_some((left, operator, right))
}

fn parse_slice(text: &str) -> Result<Slice, PathError> {
    let mut parts = text.split(':');
    let start = parts.next().unwrap_or_default();
    let (end, step, more) = (parts.next(), parts.next(), parts.next());
    let is_number = |part: &str| part.strip_prefix('-').unwrap_or(part).bytes().all(|byte| byte.is_ascii_digit());
    if more.is_some() || ![Some(start), end, step].into_iter().flatten().all(is_number) {
        return Err(error(format!("invalid array index {text}")));
    }
    let number = |part: Option<&str>| match part {
        None | Some("") => Ok(None),
        Some(part) => part.parse::<i64>().map(Some).map_err(|_| error(format!("array index {part} is not a number"))),
    };
    let start = number(Some(start))?;
    let end_is_derived = end.is_none();
    let end = if end_is_derived { Some(start.unwrap_or(0).saturating_add(1)) } else { number(end)? };
    Ok(Slice { start, end, end_is_derived, step: number(step)? })
}

/// Resolves Go's escapes.
fn unquote(text: &str, quote: char) -> Option<String> {
    let mut out: Vec<u8> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == quote {
            return None;
        }
        if c != '\\' {
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            continue;
        }
        let simple = match chars.next()? {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '\\' => b'\\',
            c @ ('\'' | '"') if c == quote => u8::try_from(c).ok()?,
            'x' => u8::try_from(digits(&mut chars, 2, 16)?).ok()?,
            c @ ('u' | 'U') => {
                let code = digits(&mut chars, if c == 'u' { 4 } else { 8 }, 16)?;
                out.extend(char::from_u32(code)?.encode_utf8(&mut [0; 4]).bytes());
                continue;
            }
            c @ '0'..='7' => {
                let high = c.to_digit(8)?;
                u8::try_from((high << 6) | digits(&mut chars, 2, 8)?).ok()?
            }
            _ => return None,
        };
        out.push(simple);
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

fn digits(chars: &mut std::str::Chars<'_>, count: usize, radix: u32) -> Option<u32> {
    (0..count).try_fold(0_u32, |code, _| code.checked_mul(radix)?.checked_add(chars.next()?.to_digit(radix)?))
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
