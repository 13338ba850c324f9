//! Questions that the console passes on: explanations, simulations and expressions.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::json::Value;

use crate::map::NodeView;

/// The kind of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Explain where a pod can run.
    Why,
    /// Place all pending pods, before and after a change.
    Simulate,
    /// Compile and evaluate one expression.
    Evaluate,
    /// Names and signatures that can be typed in an expression.
    Complete,
    /// Evaluate one expression on all nodes.
    Match,
}

impl Topic {
    /// The topic at a path below `/c/`.
    pub(crate) fn find(name: &str) -> Option<Self> {
        Some(match name {
            "why" => Self::Why,
            "simulate" => Self::Simulate,
            "evaluate" => Self::Evaluate,
            "complete" => Self::Complete,
            "match" => Self::Match,
            _ => return None,
        })
    }

    /// The size of a question in bytes.
    pub(crate) fn body_max(self) -> usize {
        match self {
            Self::Why => 4 << 10,
            Self::Match => 16 << 10,
            Self::Evaluate | Self::Complete => 512 << 10,
            Self::Simulate => 1 << 20,
        }
    }

    /// The time after which a question is abandoned.
    pub(crate) fn deadline(self) -> Duration {
        Duration::from_secs(match self {
            Self::Why => 30,
            Self::Simulate => 60,
            Self::Evaluate | Self::Complete | Self::Match => 5,
        })
    }

    /// Whether an answer takes long: a session computes one of these at a time.
    pub(crate) fn is_heavy(self) -> bool {
        matches!(self, Self::Why | Self::Simulate)
    }
}

/// A question that cannot be answered.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The HTTP code of the response.
    pub code: u16,
    /// A sentence for the user.
    pub message: String,
}

impl Failure {
    /// The question itself is wrong.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { code: 422, message: message.into() }
    }
}

/// A future with the JSON text of an answer. Dropping it ends the work.
pub type Answer = Pin<Box<dyn Future<Output = Result<String, Failure>> + Send>>;

/// Computes answers. The console bounds their number and their time.
pub trait Engine: Send + Sync + 'static {
    /// Answers one question, a JSON object whose fields depend on the topic. `nodes` are those of the cluster for
    /// [`Topic::Match`], and none for other topics.
    fn answer(&self, topic: Topic, question: Value, nodes: Vec<Arc<NodeView>>) -> Answer;
}
