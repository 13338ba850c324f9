//! The automata behind a pattern, each built when it is first needed.
//!
//! A yes or no comes from a small DFA, which needs neither scratch space nor locks; where that would grow too large, and
//! for positions, `regex-automata`'s own choice of engines is used. All of them take time linear in the text.

use std::sync::OnceLock;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::captures::Captures;
use regex_automata::{Input, Match, meta};
use regex_syntax::hir::Hir;

use super::hir;
use super::parser::Parsed;
use super::tree::NodeKind;

/// The memory of an NFA. Far above what patterns use: even `\pL{1000}` stays below.
const NFA_SIZE_MAX: usize = 64 << 20;

/// The states of an NFA from which a DFA is tried, and the memory of that DFA: built in at most a millisecond or two.
const DFA_NFA_STATES_MAX: usize = 256;
const DFA_SIZE_MAX: usize = 128 << 10;

/// The positions that a search for groups may have to remember: states times groups.
const SLOTS_MAX: usize = 8 << 20;

/// The levels of nesting that are safe to recurse into on any thread's stack.
const HEIGHT_MAX_ON_STACK: u32 = 100;

/// A stack for the deepest nesting that the parser lets through.
const DEEP_STACK_SIZE: usize = 64 << 20;

/// An engine could not be built within the limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct TooLarge;

pub(super) struct Engines {
    parsed: Parsed,
    /// `None` where `finder` is the better choice.
    matcher: OnceLock<Option<Matcher>>,
    finder: OnceLock<Result<meta::Regex, TooLarge>>,
    capturer: OnceLock<Result<meta::Regex, TooLarge>>,
}

type Matcher = dense::DFA<Vec<u32>>;

impl Engines {
    pub(super) fn new(parsed: Parsed) -> Self {
        Self { parsed, matcher: OnceLock::new(), finder: OnceLock::new(), capturer: OnceLock::new() }
    }

    pub(super) fn parsed(&self) -> &Parsed {
        &self.parsed
    }

    pub(super) fn is_match(&self, text: &str) -> Result<bool, TooLarge> {
        if let Some(matcher) = self.matcher.get_or_init(|| self.build_matcher()) {
            let input = Input::new(text).earliest(true);
            // It never gives up: no byte makes it quit.
            if let Ok(found) = matcher.try_search_fwd(&input) {
                return Ok(found.is_some());
            }
        }
        Ok(self.finder()?.is_match(text))
    }

    /// The leftmost match that starts at `start` or later.
    pub(super) fn find_at(&self, text: &str, start: usize) -> Result<Option<Match>, TooLarge> {
        let finder = self.finder()?;
        Ok(if start <= text.len() { finder.find(Input::new(text).range(start..)) } else { None })
    }

    /// The groups of the leftmost match that starts at `start` or later.
    pub(super) fn captures_at(&self, text: &str, start: usize) -> Result<Option<Captures>, TooLarge> {
        let capturer = self.capturer()?;
        if start > text.len() {
            return Ok(None);
        }
        let mut captures = capturer.create_captures();
        capturer.captures(Input::new(text).range(start..), &mut captures);
        Ok(captures.is_match().then_some(captures))
    }

    pub(super) fn finder(&self) -> Result<&meta::Regex, TooLarge> {
        let build = || self.with_stack(|| build_meta(&self.hir(false), WhichCaptures::Implicit));
        self.finder.get_or_init(build).as_ref().map_err(|error| *error)
    }

    pub(super) fn capturer(&self) -> Result<&meta::Regex, TooLarge> {
        let build = || {
            self.with_stack(|| {
                let hir = self.hir(true);
                let states = build_nfa(&hir, WhichCaptures::All)?.states().len();
                let slots = self.parsed.group_names.len().saturating_add(1).saturating_mul(2);
                if states.saturating_mul(slots) > SLOTS_MAX {
                    return Err(TooLarge);
                }
                build_meta(&hir, WhichCaptures::All)
            })
        };
        self.capturer.get_or_init(build).as_ref().map_err(|error| *error)
    }

    fn build_matcher(&self) -> Option<Matcher> {
        let root = self.parsed.tree.get(self.parsed.root)?;
        // Nothing finds a plain text faster than a search for that text.
        let plain = matches!(root.kind, NodeKind::Literal { fold: false, .. });
        if plain || root.size > DFA_NFA_STATES_MAX as u64 {
            return None;
        }
        let build = || {
            let nfa = build_nfa(&self.hir(false), WhichCaptures::None)?;
            if nfa.states().len() > DFA_NFA_STATES_MAX {
                return Err(TooLarge);
            }
            let config = dense::Config::new()
                .start_kind(StartKind::Unanchored)
                .determinize_size_limit(Some(DFA_SIZE_MAX))
                .dfa_size_limit(Some(DFA_SIZE_MAX));
            dense::Builder::new().configure(config).build_from_nfa(&nfa).map_err(|_| TooLarge)
        };
        self.with_stack(build).ok()
    }

    fn hir(&self, captures: bool) -> Hir {
        hir::build(&self.parsed.tree, self.parsed.root, captures)
    }

    /// Runs `build`, which recurses as deeply as the pattern nests, where the stack suffices.
    fn with_stack<T: Send>(&self, build: impl FnOnce() -> Result<T, TooLarge> + Send) -> Result<T, TooLarge> {
        let height = self.parsed.tree.get(self.parsed.root).map_or(0, |node| node.height);
        if height <= HEIGHT_MAX_ON_STACK {
            return build();
        }
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(DEEP_STACK_SIZE).spawn_scoped(scope, build);
            thread.map_err(|_| TooLarge)?.join().map_err(|_| TooLarge)?
        })
    }
}

fn build_nfa(hir: &Hir, captures: WhichCaptures) -> Result<NFA, TooLarge> {
    let config = thompson::Config::new().which_captures(captures).nfa_size_limit(Some(NFA_SIZE_MAX));
    NFA::compiler().configure(config).build_from_hir(hir).map_err(|_| TooLarge)
}

fn build_meta(hir: &Hir, captures: WhichCaptures) -> Result<meta::Regex, TooLarge> {
    let config = meta::Config::new().which_captures(captures).nfa_size_limit(Some(NFA_SIZE_MAX));
    meta::Builder::new().configure(config).build_from_hir(hir).map_err(|_| TooLarge)
}
