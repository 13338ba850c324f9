//! The engines behind a pattern, each built when it is first needed.
//!
//! A yes-or-no match uses a small DFA, which needs neither scratch space nor locks. If that would grow too
//! large, and for positions, `regex-automata` chooses among its engines; patterns that are too large or too
//! deep for these run as a [`Program`]. So building takes milliseconds at most for any pattern, and all
//! searches take time linear in the text.

use std::sync::OnceLock;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::primitives::{NonMaxUsize, StateID};
use regex_automata::{Input, meta};

use super::hir;
use super::parser::ParsedPattern;
use super::program::Program;
use super::tree::NodeKind;
use super::weight::weight;

/// The weight up to which a DFA is tried, and the memory of it.
const DFA_WEIGHT_MAX: u64 = 256;
const DFA_SIZE_MAX: usize = 128 << 10;

/// The weight up to which automata are built, and the memory that they cannot reach then.
const AUTOMATA_WEIGHT_MAX: u64 = 4000;
const NFA_SIZE_MAX: usize = 10 << 20;

/// Some engines set aside room for all groups at every state.
const AUTOMATA_GROUPS_MAX: usize = 32;

/// The levels of nesting up to which automata are built: that recurses, and must be safe on any thread's stack.
const AUTOMATA_HEIGHT_MAX: u32 = 100;

/// No engine fits into its limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct TooLarge;

/// Start and end of a match, followed by those of its groups, as far as they took part.
pub(super) type Slots = Vec<Option<usize>>;

pub(super) struct Engines {
    parsed: ParsedPattern,
    /// `None` where `finder` is the better choice.
    matcher: OnceLock<Option<Matcher>>,
    finder: OnceLock<Result<Engine, TooLarge>>,
    capturer: OnceLock<Result<Engine, TooLarge>>,
}

/// A DFA for whole texts, with the state in which it starts: texts are short, and the general search spends more time
/// before the first byte than on the text.
struct Matcher {
    automaton: dense::DFA<Vec<u32>>,
    start: StateID,
}

impl Matcher {
    fn new(automaton: dense::DFA<Vec<u32>>) -> Option<Self> {
        let start = automaton.start_state_forward(&Input::new("")).ok()?;
        Some(Self { automaton, start })
    }

    /// Whether there is a match anywhere in the text; none if the automaton gives up.
    fn is_match(&self, text: &str) -> Option<bool> {
        let Self { automaton, start } = self;
        if automaton.has_empty() {
            // An empty match inside a character does not count, which only the general search knows.
            return automaton.try_search_fwd(&Input::new(text).earliest(true)).ok().map(|found| found.is_some());
        }
        let mut state = *start;
        for byte in text.bytes() {
            state = automaton.next_state(state, byte);
            if automaton.is_special_state(state) {
                // Matches are found one byte late.
                if automaton.is_match_state(state) {
                    return Some(true);
                }
                if automaton.is_dead_state(state) {
                    return Some(false);
                }
                if automaton.is_quit_state(state) {
                    return None;
                }
            }
        }
        Some(automaton.is_match_state(automaton.next_eoi_state(state)))
    }
}

#[derive(Debug)]
pub(super) enum Engine {
    Automata(meta::Regex),
    Program(Program),
}

impl Engines {
    pub(super) fn new(parsed: ParsedPattern) -> Self {
        Self { parsed, matcher: OnceLock::new(), finder: OnceLock::new(), capturer: OnceLock::new() }
    }

    pub(super) fn parsed(&self) -> &ParsedPattern {
        &self.parsed
    }

    pub(super) fn is_match(&self, text: &str) -> Result<bool, TooLarge> {
        if let Some(matcher) = self.matcher.get_or_init(|| self.build_matcher()) {
            // It always completes: no byte makes it quit.
            if let Some(is_match) = matcher.is_match(text) {
                return Ok(is_match);
            }
        }
        Ok(match self.finder()? {
            Engine::Automata(automata) => automata.is_match(text),
            Engine::Program(program) => program.is_match(text),
        })
    }

    /// The engine for the position of a match.
    pub(super) fn finder(&self) -> Result<&Engine, TooLarge> {
        self.finder.get_or_init(|| self.build(0)).as_ref().map_err(|error| *error)
    }

    /// The engine for the groups of a match.
    pub(super) fn capturer(&self) -> Result<&Engine, TooLarge> {
        let build = || self.build(self.parsed.group_names.len());
        self.capturer.get_or_init(build).as_ref().map_err(|error| *error)
    }

    /// Whether a match test uses a DFA.
    #[cfg(test)]
    pub(super) fn has_matcher(&self) -> bool {
        self.build_matcher().is_some()
    }

    fn build_matcher(&self) -> Option<Matcher> {
        let ParsedPattern { tree, root, .. } = &self.parsed;
        // Nothing finds a plain text faster than a search for that text.
        let plain = matches!(tree.get(*root)?.kind, NodeKind::Literal { fold: false, .. });
        if plain || !self.suits_automata(DFA_WEIGHT_MAX) {
            return None;
        }
        let config = thompson::Config::new().which_captures(WhichCaptures::None).nfa_size_limit(Some(NFA_SIZE_MAX));
        let nfa = NFA::compiler().configure(config).build_from_hir(&hir::build(tree, *root, false)).ok()?;
        let config = dense::Config::new()
            .start_kind(StartKind::Unanchored)
            .determinize_size_limit(Some(DFA_SIZE_MAX))
            .dfa_size_limit(Some(DFA_SIZE_MAX));
        Matcher::new(dense::Builder::new().configure(config).build_from_nfa(&nfa).ok()?)
    }

    fn build(&self, groups: usize) -> Result<Engine, TooLarge> {
        let automata = self.build_automata(groups).map(Engine::Automata);
        let program = || Program::compile(&self.parsed.tree, self.parsed.root, groups).map(Engine::Program);
        automata.or_else(program).ok_or(TooLarge)
    }

    fn build_automata(&self, groups: usize) -> Option<meta::Regex> {
        if groups > AUTOMATA_GROUPS_MAX || !self.suits_automata(AUTOMATA_WEIGHT_MAX) {
            return None;
        }
        let captures = if groups == 0 { WhichCaptures::Implicit } else { WhichCaptures::All };
        let config = meta::Config::new().which_captures(captures).nfa_size_limit(Some(NFA_SIZE_MAX));
        let hir = hir::build(&self.parsed.tree, self.parsed.root, groups > 0);
        meta::Builder::new().configure(config).build_from_hir(&hir).ok()
    }

    fn suits_automata(&self, weight_max: u64) -> bool {
        let ParsedPattern { tree, root, .. } = &self.parsed;
        tree.get(*root).is_some_and(|node| node.height <= AUTOMATA_HEIGHT_MAX) && weight(tree, *root) <= weight_max
    }
}

impl Engine {
    /// The leftmost match that starts at `start` or later.
    pub(super) fn find_at(&self, text: &str, start: usize) -> Option<(usize, usize)> {
        if start > text.len() {
            return None;
        }
        match self {
            Self::Automata(automata) => {
                let found = automata.find(Input::new(text).range(start..))?;
                Some((found.start(), found.end()))
            }
            Self::Program(program) => {
                let slots = program.search(text, start)?;
                Some(((*slots.first()?)?, (*slots.get(1)?)?))
            }
        }
    }

    /// The groups of the leftmost match that starts at `start` or later.
    pub(super) fn captures_at(&self, text: &str, start: usize) -> Option<Slots> {
        if start > text.len() {
            return None;
        }
        match self {
            Self::Automata(automata) => {
                let mut slots = vec![None; automata.group_info().slot_len()];
                automata.search_slots(&Input::new(text).range(start..), &mut slots)?;
                Some(slots.into_iter().map(|slot| slot.map(NonMaxUsize::get)).collect())
            }
            Self::Program(program) => program.search(text, start),
        }
    }
}
