//! Formats the enabled non-default features by component.

use std::fmt::Write as _;

use api::features::Features;

/// Lists the enabled features: one line for those enabled in all components, and one for each that only some have.
pub fn lines(components: &[(&str, Features)]) -> String {
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
        [] if text.is_empty() => "Enabled feature gates: none.\n".to_owned(),
        [] => text,
        gates => format!("Enabled feature gates: {}.\n{text}", gates.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use api::features::Gate;

    use super::*;

    #[test]
    fn differing_gates_are_listed_by_component() {
        let all = Features::none().with(Gate::TaintTolerationCEL, true).with(Gate::DRACELDeviceConstraint, true);
        let less = all.with(Gate::TaintTolerationCEL, false);
        let text = lines(&[("kube-apiserver", all), ("kube-scheduler", all), ("kubelet", less)]);
        assert_eq!(
            text,
            "Enabled feature gates: DRACELDeviceConstraint.\n\
             Feature TaintTolerationCEL is on in kube-apiserver, kube-scheduler and off in kubelet.\n"
        );
        assert_eq!(lines(&[("kube-apiserver", Features::none())]), "Enabled feature gates: none.\n");
    }
}
