//! Projection of the input onto the parts that an expression reads, as bytes: inputs with equal projections
//! share a verdict.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use cel_kubernetes::compile::CompiledExpression;
use cel_kubernetes::environments::node_affinity::Labels;
use cel_kubernetes::environments::toleration::Taint;
use cel_kubernetes::reads::{Keys, Reads};

/// The fields of a taint that an expression reads.
#[derive(Debug, Clone, Copy)]
pub struct TaintProjection {
    key: bool,
    value: bool,
    effect: bool,
    time_added: bool,
}

/// The labels of a node that an expression reads.
#[derive(Debug)]
pub enum LabelProjection {
    /// These labels, whether they exist or not.
    Some(Box<[Box<str>]>),
    /// Any of them can matter.
    All,
}

impl TaintProjection {
    pub(super) fn of(compiled: &CompiledExpression) -> Self {
        let reads = Reads::of(compiled.typed());
        match reads.keys_of(&["taint"]) {
            Keys::All => TaintProjection { key: true, value: true, effect: true, time_added: true },
            Keys::Some(fields) => TaintProjection {
                key: fields.contains("key"),
                value: fields.contains("value"),
                effect: fields.contains("effect"),
                time_added: fields.contains("timeAdded"),
            },
        }
    }

    /// Whether it reads when a taint was added.
    pub(super) fn reads_time(self) -> bool {
        self.time_added
    }

    pub(super) fn with<R>(self, taint: &Taint<'_>, then: impl FnOnce(&[u8]) -> R) -> R {
        let mut bytes = Bytes::default();
        for text in [(self.key, taint.key), (self.value, taint.value), (self.effect, taint.effect)] {
            if let (true, text) = text {
                bytes.push_text(text);
            }
        }
        if self.time_added {
            match taint.time_added {
                Some(time) => {
                    bytes.push(&[1]);
                    bytes.push(&time.seconds().to_le_bytes());
                    bytes.push(&time.subsecond_nanoseconds().to_le_bytes());
                }
                None => bytes.push_missing(),
            }
        }
        then(bytes.as_slice())
    }
}

impl LabelProjection {
    pub(super) fn of(compiled: &CompiledExpression) -> Self {
        let reads = Reads::of(compiled.typed());
        match reads.keys_of(&["node", "labels"]) {
            Keys::All => LabelProjection::All,
            Keys::Some(keys) => LabelProjection::Some(keys.into_iter().map(Into::into).collect()),
        }
    }

    pub(super) fn with<R>(&self, labels: &Labels, then: impl FnOnce(&[u8]) -> R) -> R {
        let LabelProjection::Some(keys) = self else { return then(&digest(labels)) };
        let mut bytes = Bytes::default();
        for key in keys {
            match labels.get(key) {
                Some(value) => bytes.push_text(value),
                None => bytes.push_missing(),
            }
        }
        then(bytes.as_slice())
    }
}

/// All labels in a few bytes: nodes have kilobytes of them, and each node its own.
fn digest(labels: &Labels) -> [u8; 16] {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        for (key, value) in labels.iter() {
            (key, value).hash(&mut hasher);
        }
        hasher.finish().to_le_bytes()
    };
    // Two hashes, so that labels which agree in one by chance or intent differ in the other.
    let [low, high] = [half(0), half(1)];
    let mut both = [0; 16];
    for (to, from) in both.iter_mut().zip(low.into_iter().chain(high)) {
        *to = from;
    }
    both
}

/// Bytes on the stack, and on the heap only when there are many: a valid taint takes at most 400.
struct Bytes {
    inline: [u8; 256],
    length: usize,
    heap: Vec<u8>,
}

impl Default for Bytes {
    fn default() -> Self {
        Bytes { inline: [0; 256], length: 0, heap: Vec::new() }
    }
}

impl Bytes {
    /// Appends a text with its length first, so that the encoding of a list of texts is unambiguous.
    fn push_text(&mut self, text: &str) {
        // The length plus one, because zero means "missing".
        let mut rest = text.len().saturating_add(1);
        while rest >= 0x80 {
            self.push(&[(rest & 0x7f) as u8 | 0x80]);
            rest >>= 7;
        }
        self.push(&[rest as u8]);
        self.push(text.as_bytes());
    }

    fn push_missing(&mut self) {
        self.push(&[0]);
    }

    fn push(&mut self, more: &[u8]) {
        let end = self.length.saturating_add(more.len());
        if self.heap.is_empty()
            && let Some(room) = self.inline.get_mut(self.length..end)
        {
            room.copy_from_slice(more);
            self.length = end;
            return;
        }
        if self.heap.is_empty() {
            self.heap.extend_from_slice(self.inline.get(..self.length).unwrap_or_default());
        }
        self.heap.extend_from_slice(more);
    }

    fn as_slice(&self) -> &[u8] {
        if self.heap.is_empty() { self.inline.get(..self.length).unwrap_or_default() } else { &self.heap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(texts: &[Option<&str>]) -> Vec<u8> {
        let mut bytes = Bytes::default();
        for text in texts {
            match text {
                Some(text) => bytes.push_text(text),
                None => bytes.push_missing(),
            }
        }
        bytes.as_slice().to_vec()
    }

    #[test]
    fn different_lists_are_written_differently() {
        let long = "x".repeat(300);
        let lists: [&[Option<&str>]; 7] = [
            &[Some("a"), Some("b")],
            &[Some("ab"), Some("")],
            &[Some(""), Some("ab")],
            &[Some("ab"), None],
            &[None, Some("ab")],
            &[Some(&long), Some("a")],
            &[Some("a"), Some(&long)],
        ];
        for (index, left) in lists.iter().enumerate() {
            for right in &lists[..index] {
                assert_ne!(written(left), written(right), "{left:?} {right:?}");
            }
        }
        assert_eq!(written(lists[5]).len(), 2 + 300 + 2);
    }
}
