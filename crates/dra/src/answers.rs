//! Results of searches, cached for all equivalent nodes and for all pods with the same claims.
//!
//! A question consists of the claims without their names; an answer holds positions instead of names. Both are
//! numbered, and numbers are never reused: changed input has another number, so that cached answers never
//! become wrong.

use std::collections::HashMap;
use std::sync::Arc;

use crate::claims::Claims;
use crate::error::Error;
use crate::ids::{CandidateId, ClaimId};
use crate::inventory::ShapedPools;
use crate::search::Solution;

/// Identity of a search: the question, the devices that the node can use, and their allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SearchKey {
    pub(crate) question: u64,
    pub(crate) usable: u64,
    pub(crate) taken: u64,
}

/// Result of a search, without names of claims, nodes and pools.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Found(Arc<Solution>),
    Nothing,
    /// An error about the node: of which claim, on which devices.
    Fails(Error, ClaimId, Vec<CandidateId>),
}

/// Devices for all claims on a node.
#[derive(Debug, Clone)]
pub struct FoundDevices {
    pub(crate) shaped: ShapedPools,
    pub(crate) solution: Arc<Solution>,
}

impl Answer {
    /// The answer in the names of these claims, and of a node of this shape.
    pub(crate) fn on(&self, shaped: &ShapedPools, claims: &Claims) -> Result<Option<FoundDevices>, Error> {
        match self {
            Answer::Found(solution) => Ok(Some(FoundDevices { shaped: shaped.clone(), solution: solution.clone() })),
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

/// Numbers of texts. A text that was dropped gets another number, which only costs a search.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    known: HashMap<String, u64>,
    last: u64,
}

/// Maximum number of known texts.
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

/// Results of searches.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    questions: Numbers,
    answers: HashMap<SearchKey, Answer>,
}

/// Maximum number of cached answers.
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
