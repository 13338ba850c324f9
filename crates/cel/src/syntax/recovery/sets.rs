//! Sets of token kinds, and how messages spell them.

use crate::syntax::lexer::Kind;

/// A set of token kinds, perhaps with "the rule may end here".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set(u64);

impl Set {
    pub(super) const EMPTY: Set = Set(0);
    /// The rule may end here, so that what follows the rule may come.
    pub(super) const END: Set = Set(1 << 63);

    pub(super) const fn of(kinds: &[Kind]) -> Set {
        let mut bits = 0u64;
        let mut rest = kinds;
        while let [kind, others @ ..] = rest {
            bits |= 1u64.wrapping_shl(*kind as u32);
            rest = others;
        }
        Set(bits)
    }

    pub(super) const fn or(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    pub(super) const fn without_end(self) -> Set {
        Set(self.0 & !Set::END.0)
    }

    pub(super) const fn has_end(self) -> bool {
        self.0 & Set::END.0 != 0
    }

    pub(super) const fn contains(self, kind: Kind) -> bool {
        self.0 & 1u64.wrapping_shl(kind as u32) != 0
    }
}

pub(super) const RELATION_OPERATORS: Set = Set::of(&[
    Kind::Equals,
    Kind::NotEquals,
    Kind::In,
    Kind::Less,
    Kind::LessEquals,
    Kind::GreaterEquals,
    Kind::Greater,
]);
pub(super) const PRODUCT_OPERATORS: Set = Set::of(&[Kind::Star, Kind::Slash, Kind::Percent]);
pub(super) const SUM_OPERATORS: Set = Set::of(&[Kind::Plus, Kind::Minus]);
pub(super) const CALC_OPERATORS: Set = PRODUCT_OPERATORS.or(SUM_OPERATORS);
/// Tokens that continue a member expression.
pub(super) const MEMBER_OPERATORS: Set = Set::of(&[Kind::Dot, Kind::LeftBracket]);

pub(super) const LITERAL: Set = Set::of(&[
    Kind::Minus,
    Kind::True,
    Kind::False,
    Kind::Null,
    Kind::Float,
    Kind::Int,
    Kind::Uint,
    Kind::String,
    Kind::Bytes,
]);
pub(super) const PRIMARY: Set =
    LITERAL.or(Set::of(&[Kind::LeftBracket, Kind::LeftBrace, Kind::LeftParen, Kind::Dot, Kind::Identifier]));
pub(super) const EXPR: Set = PRIMARY.or(Set::of(&[Kind::Exclamation]));
pub(super) const OPTIONAL_EXPR: Set = EXPR.or(Set::of(&[Kind::Question]));
pub(super) const FIELD_NAME: Set = Set::of(&[Kind::Identifier, Kind::QuotedIdentifier]);
pub(super) const OPTIONAL_FIELD: Set = FIELD_NAME.or(Set::of(&[Kind::Question]));

/// Every kind with its spelling in messages, in the order in which sets are spelled.
const SPELLINGS: &[(Kind, &str)] = &[
    (Kind::Eof, "<EOF>"),
    (Kind::Equals, "'=='"),
    (Kind::NotEquals, "'!='"),
    (Kind::In, "'in'"),
    (Kind::Less, "'<'"),
    (Kind::LessEquals, "'<='"),
    (Kind::GreaterEquals, "'>='"),
    (Kind::Greater, "'>'"),
    (Kind::LogicalAnd, "'&&'"),
    (Kind::LogicalOr, "'||'"),
    (Kind::LeftBracket, "'['"),
    (Kind::RightBracket, "']'"),
    (Kind::LeftBrace, "'{'"),
    (Kind::RightBrace, "'}'"),
    (Kind::LeftParen, "'('"),
    (Kind::RightParen, "')'"),
    (Kind::Dot, "'.'"),
    (Kind::Comma, "','"),
    (Kind::Minus, "'-'"),
    (Kind::Exclamation, "'!'"),
    (Kind::Question, "'?'"),
    (Kind::Colon, "':'"),
    (Kind::Plus, "'+'"),
    (Kind::Star, "'*'"),
    (Kind::Slash, "'/'"),
    (Kind::Percent, "'%'"),
    (Kind::True, "'true'"),
    (Kind::False, "'false'"),
    (Kind::Null, "'null'"),
    (Kind::Float, "NUM_FLOAT"),
    (Kind::Int, "NUM_INT"),
    (Kind::Uint, "NUM_UINT"),
    (Kind::String, "STRING"),
    (Kind::Bytes, "BYTES"),
    (Kind::Identifier, "IDENTIFIER"),
    (Kind::QuotedIdentifier, "ESC_IDENTIFIER"),
];

impl std::fmt::Display for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> =
            SPELLINGS.iter().filter(|(kind, _)| self.contains(*kind)).map(|(_, name)| *name).collect();
        match names.as_slice() {
            [name] => f.write_str(name),
            _ => write!(f, "{{{}}}", names.join(", ")),
        }
    }
}
