//! Selector text → requirements.

use super::{Operator, Requirement, SelectorError};
use crate::field::{Error, ErrorType, Path};
use crate::json::Text;
use crate::names;

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { tokens: scan(text), position: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek_value() {
            Token::Identifier(_) | Token::Not => {
                let requirement = parser.requirement();
                let requirement =
                    requirement.map_err(|error| SelectorError::new(format!("unable to parse requirement: {error}")))?;
                requirements.push(requirement);
                match parser.next() {
                    Token::End => return Ok(requirements),
                    Token::Comma => match parser.peek_value() {
                        Token::Identifier(_) | Token::Not => {}
                        other => return Err(found(other, ", expected: identifier after ','")),
                    },
                    other => return Err(found(other, ", expected: ',' or 'end of string'")),
                }
            }
            Token::End => return Ok(requirements),
            other => return Err(found(other, ", expected: !, identifier, or 'end of string'")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
    Identifier(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::End => "",
            Token::Close => ")",
            Token::Comma => ",",
            Token::Not => "!",
            Token::DoubleEquals => "==",
            Token::Equals => "=",
            Token::Greater => ">",
            Token::In => "in",
            Token::Less => "<",
            Token::NotEquals => "!=",
            Token::NotIn => "notin",
            Token::Open => "(",
            Token::Identifier(text) => text,
        }
    }
}

fn found(token: Token<'_>, expected: &str) -> SelectorError {
    SelectorError::new(format!("found '{}'{expected}", token.text()))
}

fn scan(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let special = [
            ("==", Token::DoubleEquals),
            ("!=", Token::NotEquals),
            ("=", Token::Equals),
            ("!", Token::Not),
            ("(", Token::Open),
            (")", Token::Close),
            (",", Token::Comma),
            (">", Token::Greater),
            ("<", Token::Less),
        ];
        // Kubernetes takes a zero byte for the end of the text.
        if rest.is_empty() || rest.starts_with('\0') {
            tokens.push(Token::End);
            return tokens;
        }
        if let Some((after, token)) =
            special.into_iter().find_map(|(text, token)| Some((rest.strip_prefix(text)?, token)))
        {
            tokens.push(token);
            rest = after;
            continue;
        }
        let is_end = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<' | ' ' | '\t' | '\r' | '\n' | '\0');
        let (word, after) = rest.split_at_checked(rest.find(is_end).unwrap_or(rest.len())).unwrap_or((rest, ""));
        tokens.push(match word {
            "in" => Token::In,
            "notin" => Token::NotIn,
            _ => Token::Identifier(word),
        });
        rest = after.strip_prefix('\0').unwrap_or(after);
    }
}

struct Parser<'a> {
    /// INVARIANT: the last one is the end.
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.position).copied().unwrap_or(Token::End)
    }

    /// The next token at the place of a key or value: `in` and `notin` are ordinary words.
    fn peek_value(&self) -> Token<'a> {
        match self.peek() {
            token @ (Token::In | Token::NotIn) => Token::Identifier(token.text()),
            token => token,
        }
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.position = self.position.saturating_add(1);
        token
    }

    fn next_value(&mut self) -> Token<'a> {
        let token = self.peek_value();
        self.position = self.position.saturating_add(1);
        token
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let mut token = self.next_value();
        let negated = token == Token::Not;
        if negated {
            token = self.next_value();
        }
        let Token::Identifier(key) = token else {
            return Err(found(token, ", expected: identifier"));
        };
        let complaints = names::qualified_name(key);
        if !complaints.is_empty() {
            let error = Error::new(ErrorType::Invalid, &Path::NIL, key, complaints.join("; "));
            return Err(SelectorError::new(error.to_string()));
        }
        if negated || matches!(self.peek_value(), Token::End | Token::Comma) {
            let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
            return Requirement::new(key, operator, Vec::new());
        }
        let operator = match self.next() {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            other => return Err(found(other, ", expected: in, notin, =, ==, !=, gt, lt")),
        };
        let mut values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => self.exact_value()?,
        };
        values.sort_unstable();
        values.dedup();
        Requirement::new(key, operator, values)
    }

    fn exact_value(&mut self) -> Result<Vec<Text>, SelectorError> {
        if matches!(self.peek_value(), Token::End | Token::Comma) {
            return Ok(vec![Text::default()]);
        }
        match self.next_value() {
            Token::Identifier(value) => Ok(vec![value.into()]),
            other => Err(found(other, ", expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<Text>, SelectorError> {
        let open = self.next_value();
        if open != Token::Open {
            return Err(found(open, " expected: '('"));
        }
        let first = self.peek_value();
        match first {
            Token::Identifier(_) | Token::Comma => {
                let values = self.value_list()?;
                if self.next_value() == Token::Close { Ok(values) } else { Err(found(first, ", expected: ')'")) }
            }
            Token::Close => {
                self.next_value();
                Ok(vec![Text::default()])
            }
            other => Err(found(other, ", expected: ',', ')' or identifier")),
        }
    }

    /// Words separated by commas, any of which may be empty.
    fn value_list(&mut self) -> Result<Vec<Text>, SelectorError> {
        let mut values = Vec::new();
        loop {
            match self.next_value() {
                Token::Identifier(value) => {
                    values.push(value.into());
                    match self.peek_value() {
                        Token::Comma => {}
                        Token::Close => return Ok(values),
                        other => return Err(found(other, ", expected: ',' or ')'")),
                    }
                }
                Token::Comma => {
                    if values.is_empty() {
                        values.push(Text::default());
                    }
                    match self.peek_value() {
                        Token::Close => {
                            values.push(Text::default());
                            return Ok(values);
                        }
                        Token::Comma => values.push(Text::default()),
                        _ => {}
                    }
                }
                other => return Err(found(other, ", expected: ',', or identifier")),
            }
        }
    }
}
