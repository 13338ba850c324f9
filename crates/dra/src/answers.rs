//! What searches came to, remembered for all nodes that look alike and for all pods that ask the same.
//!
//! A question is what claims ask for, without their names; an answer holds positions instead of names. Both are numbered, and
//! numbers are never given twice: what has changed has another number, and nothing has to be forgotten for an answer to be right.

use std::collections::HashMap;
use std::sync::Arc;

use crate::claims::Claims;
use crate::error::Error;
use crate::ids::{CandidateId, ClaimId};
use crate::inventory::Shaped;
use crate::search::Solution;

/// What a search was about: the question, what can be used from the node, and what of that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SearchKey {
    pub(crate) question: u64,
    pub(crate) usable: u64,
    pub(crate) taken: u64,
}

/// What a search came to, without names of claims, nodes and pools.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Found(Arc<Solution>),
    Nothing,
    /// An error about the node: of which claim, on which devices.
    Fails(Error, ClaimId, Vec<CandidateId>),
}

/// Devices for all claims on a node.
#[derive(Debug, Clone)]
pub struct Found {
    pub(crate) shaped: Shaped,
    pub(crate) solution: Arc<Solution>,
}

impl Answer {
    /// The answer in the names of these claims, and of a node of this shape.
    pub(crate) fn on(&self, shaped: &Shaped, claims: &Claims) -> Result<Option<Found>, Error> {
        match self {
            Answer::Found(solution) => Ok(Some(Found { shaped: shaped.clone(), solution: solution.clone() })),
            Answer::Nothing => Ok(None),
            Answer::Fails(Error::ConstraintFails { index, error, .. }, claim, set) => Err(Error::ConstraintFails {
                node: shaped.pools.node.to_string(),
                claim: claims.claims.get(*claim).map(|it| it.key.clone()).unwrap_or_default(),
                index: *index,
                devices: shaped.pools.few_names(set),
                error: error.clone(),
            }),
            Answer::Fails(error, ..) => Err(error.clone()),
        }
    }
}

/// Texts by number. A text that was forgotten gets another number, which only costs a search.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    known: HashMap<String, u64>,
    last: u64,
}

/// How many texts are known at a time.
const TEXTS_MAX: usize = 16_384;

impl Numbers {
    /// A number that no text has.
    fn next(&mut self) -> u64 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    pub(crate) fn of(&mut self, text: String) -> u64 {
        if let Some(number) = self.known.get(&text) {
            return *number;
        }
        if self.known.len() >= TEXTS_MAX {
            self.known.clear();
        }
        let number = self.next();
        self.known.insert(text, number);
        number
    }
}

/// What searches came to.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    questions: Numbers,
    answers: HashMap<SearchKey, Answer>,
}

/// How many answers are known at a time.
const ANSWERS_MAX: usize = 16_384;

impl Answers {
    pub(crate) fn question(&mut self, claims: &Claims) -> u64 {
        self.questions.of(claims.question())
    }

    pub(crate) fn new_question(&mut self) -> u64 {
        self.questions.next()
    }

    pub(crate) fn get(&self, key: &SearchKey) -> Option<&Answer> {
        self.answers.get(key)
    }

    pub(crate) fn remember(&mut self, key: SearchKey, answer: Answer) {
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.clear();
        }
        self.answers.insert(key, answer);
    }
}
