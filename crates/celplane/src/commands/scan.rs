//! `celplane scan`: who uses gated fields, before a gate is turned off.
//!
//! For each use: the gate it needs, and what happens to the object without it, as the proposals' sections on rollback say.
//! Exit code 1 when something would break, 2 when something could not be read.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;

use api::features::{Features, Gate};
use serde_json::json;

use crate::connection::ConnectionArguments;
use crate::gated_uses::{self, Field, Needs};
use crate::live;
use crate::manifests::{self, Manifest, Source};
use crate::output::Report;
use crate::style::{Style, When};

/// Find out who uses gated fields, and what happens to them when the gates are turned off.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files, directories, or `-` for standard input, such as the output of `kubectl get -A -o yaml`.
    #[arg(short, long = "filename", required_unless_present_any = ["kubeconfig", "context"], value_name = "FILE")]
    filenames: Vec<String>,

    #[command(flatten)]
    connection: ConnectionArguments,

    /// The gates as they will be; by default all that can be are off.
    #[arg(long, default_value = "", value_name = "GATES")]
    feature_gates: String,

    /// How to print.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Report,

    /// When to use color.
    #[arg(long, value_enum, default_value = "auto")]
    color: When,
}

/// A use that a gate would close.
struct Found {
    file: String,
    line: usize,
    object: String,
    path: String,
    text: String,
    needs: Needs,
    effect: Effect,
}

/// What happens to an object without the gate.
#[derive(Clone, Copy)]
struct Effect {
    text: &'static str,
    /// Something stops working that works now.
    breaks: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let features = match Features::default().with_flag(&self.feature_gates) {
            Ok(features) => features,
            Err(error) => {
                eprintln!("error: {error}");
                return Ok(ExitCode::from(2));
            }
        };
        let sources = match manifests::sources(&self.filenames) {
            Ok(sources) => sources,
            Err(error) => {
                eprintln!("error: {error:#}");
                return Ok(ExitCode::from(2));
            }
        };
        let mut found = Vec::new();
        let mut is_readable = true;
        let live = self.connection.is_given().then(|| self.connection.read(live::GATED));
        for file in sources.iter().map(Source::read).chain(live) {
            match file {
                Ok(file) => {
                    for manifest in &file.objects {
                        let uses = gated_uses::find(&manifest.value);
                        found.extend(uses.into_iter().filter(|it| !it.needs.are_met(features)).map(|it| Found {
                            file: file.name.clone(),
                            line: file.position_of(manifest, &it.path).line,
                            object: manifest.title(),
                            effect: effect(manifest, it.field, &it.path),
                            text: it.text.to_owned(),
                            needs: it.needs,
                            path: it.path,
                        }));
                    }
                    if let Some(error) = &file.error {
                        is_readable = false;
                        eprintln!("error: {}:{}: {}", file.name, file.position(error.offset).line, error.message);
                    }
                }
                Err(error) => {
                    is_readable = false;
                    eprintln!("error: {error:#}");
                }
            }
        }
        match self.output {
            // That nothing was found says something only where everything was read.
            Report::Text if found.is_empty() && !is_readable => {}
            Report::Text => print_text(&found, Style::of_stdout(self.color))?,
            Report::Json => print_json(&found)?,
        }
        Ok(match (is_readable, found.iter().any(|it| it.effect.breaks)) {
            (false, _) => ExitCode::from(2),
            (true, true) => ExitCode::FAILURE,
            (true, false) => ExitCode::SUCCESS,
        })
    }
}

/// What happens to a use without its gate.
fn effect(manifest: &Manifest, field: Field<'_>, path: &str) -> Effect {
    let breaks = |text| Effect { text, breaks: true };
    let stays = |text| Effect { text, breaks: false };
    let is_preferred = path.contains(".preferredDuringScheduling");
    match (manifest.kind(), field) {
        ("CustomResourceDefinition", _) => breaks(
            "the definition stays, but the column is not shown, and changes of the definition that add such columns are refused",
        ),
        ("PersistentVolume", _) => breaks("the term matches no node: new pods that use the volume stay Pending"),
        ("ResourceClaim", _) if manifest.value.at(&["status", "allocation"]).is_some() => {
            stays("the claim stays allocated; once released, it is not allocated again")
        }
        ("ResourceClaim", _) => breaks("the claim is not allocated: pods that use it stay Pending"),
        ("ResourceClaimTemplate", _) => {
            breaks("claims made from the template are refused: pods that use it stay Pending")
        }
        ("Pod", _) => pod_effect(manifest, field, is_preferred),
        ("PodTemplate", _) => breaks("pods made from the template are refused"),
        ("DaemonSet", _) => breaks(
            "the controller cannot create new pods and tries again and again; rolling updates fail, and nodes whose taints only this tolerates get no pod",
        ),
        _ => breaks("the controller cannot create new pods and tries again and again; rolling updates fail"),
    }
}

fn pod_effect(manifest: &Manifest, field: Field<'_>, is_preferred: bool) -> Effect {
    let phase = manifest.value.str_at(&["status", "phase"]).unwrap_or_default();
    let is_scheduled = manifest.value.str_at(&["spec", "nodeName"]).is_some_and(|name| !name.is_empty());
    let (text, breaks) = match field {
        _ if matches!(phase, "Succeeded" | "Failed") => ("the pod has ended, nothing happens", false),
        Field::TolerationExpression | Field::TolerationOperator if is_scheduled => {
            ("the pod keeps running, unless this is what tolerates a NoExecute taint: then it is evicted", true)
        }
        _ if is_scheduled => ("the pod keeps running", false),
        _ if is_preferred => ("a new pod is refused; in a pod that is there, the term adds nothing to the score", true),
        Field::TolerationExpression | Field::TolerationOperator => {
            ("a new pod is refused; a pending one no longer tolerates the taints and stays Pending", true)
        }
        _ => ("a new pod is refused; for a pending one the term matches no node, and it stays Pending", true),
    };
    Effect { text, breaks }
}

fn print_text(found: &[Found], style: Style) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if found.is_empty() {
        return writeln!(out, "{}", style.good("no object uses a field that these gates close"));
    }
    let mut by_gate: BTreeMap<Needs, Vec<&Found>> = BTreeMap::new();
    for it in found {
        by_gate.entry(it.needs).or_default().push(it);
    }
    for (needs, uses) in &by_gate {
        writeln!(out, "{}", style.bold(format!("needs {}: {} uses", needs.text(), uses.len())))?;
        for it in uses {
            writeln!(out, "  {}:{}: {}: {}", it.file, it.line, it.object, it.path)?;
            writeln!(out, "    {}", style.dim(it.text.trim()))?;
            let effect = if it.effect.breaks { style.bad(it.effect.text) } else { style.good(it.effect.text) };
            writeln!(out, "    {effect}")?;
        }
    }
    let breaking = found.iter().filter(|it| it.effect.breaks).count();
    writeln!(out, "{} uses, {breaking} of them would break", found.len())?;
    out.flush()
}

fn print_json(found: &[Found]) -> std::io::Result<()> {
    let gates = |needs: Needs| needs.0.iter().map(|gate: &Gate| gate.name()).collect::<Vec<_>>();
    let uses: Vec<_> = found
        .iter()
        .map(|it| {
            json!({
                "file": it.file, "line": it.line, "object": it.object, "path": it.path, "text": it.text,
                "gates": gates(it.needs), "breaks": it.effect.breaks, "effect": it.effect.text,
            })
        })
        .collect();
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &json!({ "uses": uses }))?;
    writeln!(out)
}
