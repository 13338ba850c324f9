//! Which component has which feature on that is off by default, in words.

use std::fmt::Write as _;

use api::features::Features;

/// A line for all features that are on everywhere, and one for each that is on in some components only.
pub(crate) fn lines(components: &[(&str, Features)]) -> String {
    let states = |features: Features| features.states().map(|(name, _, is_on)| (name, is_on));
    let (mut everywhere, mut text) = (Vec::new(), String::new());
    let Some((_, first)) = components.first() else { return text };
    let is_default = |gate: &str| states(Features::default()).any(|state| state == (gate, true));
    for (gate, _) in states(*first) {
        let has = |component: &&(&str, Features)| states(component.1).any(|state| state == (gate, true));
        let names = |list: Vec<&(&str, Features)>| list.iter().map(|it| it.0).collect::<Vec<_>>().join(", ");
        let (on, off): (Vec<_>, Vec<_>) = components.iter().partition(has);
        match (on.is_empty(), off.is_empty()) {
            (true, _) => {}
            (_, true) if is_default(gate) => {}
            (_, true) => everywhere.push(gate),
            // Writing to a string does not fail.
            _ => drop(writeln!(text, "Feature {gate} is on in {} and off in {}.", names(on), names(off))),
        }
    }
    match everywhere.as_slice() {
        [] => text,
        gates => format!("Features that are on: {}.\n{text}", gates.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use api::features::Gate;

    use super::*;

    #[test]
    fn what_differs_is_told_by_component() {
        let all = Features::none().with(Gate::TaintTolerationCEL, true).with(Gate::DRACELDeviceConstraint, true);
        let less = all.with(Gate::TaintTolerationCEL, false);
        let text = lines(&[("kube-apiserver", all), ("kube-scheduler", all), ("kubelet", less)]);
        assert_eq!(
            text,
            "Features that are on: DRACELDeviceConstraint.\n\
             Feature TaintTolerationCEL is on in kube-apiserver, kube-scheduler and off in kubelet.\n"
        );
        assert_eq!(lines(&[("kube-apiserver", Features::none())]), "");
    }
}
