//! Warnings for successful requests: `Warning` headers.
//!
//! Whatever handles a request adds texts here; they are sent with the answer, also with a refusal, each once.

use std::cell::RefCell;
use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;

/// Characters of all warnings of a response. Beyond this, each is truncated to [`ITEM_CHARACTERS_MAX`], and the rest is dropped.
const CHARACTERS_MAX: usize = 4096;
const ITEM_CHARACTERS_MAX: usize = 256;

tokio::task_local! {
    static WARNINGS: RefCell<WarningTexts>;
}

/// Texts in the order in which they were added, each once. Follows the `recorder` of Kubernetes' `WithWarningRecorder`.
#[derive(Default)]
struct WarningTexts {
    texts: Vec<String>,
    seen: HashSet<String>,
    characters: usize,
    is_truncating: bool,
}

impl WarningTexts {
    fn add(&mut self, mut text: String) {
        let is_full = self.is_truncating && self.characters >= CHARACTERS_MAX;
        if is_full || text.is_empty() || !self.seen.insert(text.clone()) {
            return;
        }
        if self.is_truncating {
            truncate(&mut text);
        }
        self.characters = self.characters.saturating_add(text.chars().count());
        self.texts.push(text);
        if !self.is_truncating && self.characters > CHARACTERS_MAX {
            self.is_truncating = true;
            self.texts.iter_mut().for_each(truncate);
            self.characters = self.texts.iter().map(|it| it.chars().count()).sum();
        }
    }
}

fn truncate(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(ITEM_CHARACTERS_MAX) {
        text.truncate(end);
    }
}

/// Runs what answers a request; gives back its result and what was added meanwhile.
pub(crate) async fn collect<T>(work: Pin<&mut impl Future<Output = T>>) -> (T, Vec<String>) {
    WARNINGS
        .scope(RefCell::default(), async {
            let result = work.await;
            (result, WARNINGS.with(RefCell::take).texts)
        })
        .await
}

/// Adds warnings without duplicates. Outside of a request they are dropped.
pub(crate) fn add(texts: impl IntoIterator<Item = String>) {
    // An error means that no request is being handled.
    let _ = WARNINGS.try_with(|warnings| {
        let mut warnings = warnings.borrow_mut();
        texts.into_iter().for_each(|text| warnings.add(text));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(texts: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut all = WarningTexts::default();
        texts.into_iter().for_each(|text| all.add(text));
        all.texts
    }

    #[test]
    fn few_warnings_are_kept_whole_and_once() {
        let long = "ä".repeat(4000);
        let texts = ["a".to_owned(), long.clone(), "a".to_owned(), String::new()];
        assert_eq!(collected(texts), ["a".to_owned(), long]);
    }

    #[test]
    fn many_warnings_are_truncated_and_dropped() {
        let texts: Vec<String> = (0..50_000).map(|number| format!("{number} {}", "ä".repeat(300))).collect();
        let kept = collected(texts.clone());
        assert_eq!(kept.len(), CHARACTERS_MAX / ITEM_CHARACTERS_MAX);
        assert!(kept.iter().zip(&texts).all(|(kept, text)| text.starts_with(kept) && kept.chars().count() == 256));
    }
}
