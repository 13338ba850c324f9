//! `celplane scan`: uses of gated fields, before a gate is disabled; and objects that exceed the limits on
//! expressions.
//!
//! For each use: the required gate, and the effect of disabling it, according to the proposals' sections on
//! rollback. Exit code 1 if something would break, 2 if some input is unreadable.

mod limits;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;

use api::features::{Features, Gate};
use limits::Excess;
use registry::annotations;
use registry::expressions::Environments;
use serde_json::json;

use crate::connection::ConnectionArguments;
use crate::gated_uses::{self, Field, Needs};
use crate::live;
use crate::manifests::{self, Manifest, Source};
use crate::output::{Report, complain_line};
use crate::style::{ColorChoice, Style};

/// List uses of gated fields with the effect of turning the gates off, and objects above the limits on expressions.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files, directories, or `-` for standard input, such as the output of `kubectl get -A -o yaml`; without
    /// them, the cluster named by the kubeconfig is read.
    #[arg(short, long = "filename", value_name = "FILE")]
    filenames: Vec<String>,

    #[command(flatten)]
    connection: ConnectionArguments,

    /// Feature gates to assume; by default all gates that can be disabled are.
    #[arg(long, default_value = "", value_name = "GATES")]
    feature_gates: String,

    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Report,

    /// Use of color in the output.
    #[arg(long, value_enum, default_value = "auto")]
    color: ColorChoice,
}

/// A use that a gate would close.
struct UseLocation {
    file: String,
    line: usize,
    object: String,
    path: String,
    text: String,
    needs: Needs,
    effect: Effect,
}

impl UseLocation {
    /// File and line; nothing for objects of a running cluster, which their names lead to.
    fn place(&self) -> String {
        if self.file == live::CLUSTER { String::new() } else { format!("{}:{}: ", self.file, self.line) }
    }
}

/// Effect of a disabled gate on an object.
#[derive(Clone, Copy)]
struct Effect {
    text: &'static str,
    /// Whether the finding stops something from working.
    breaks: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let features = match Features::default().with_flag(&self.feature_gates) {
            Ok(features) => features,
            Err(error) => {
                complain_line!("error: {error}");
                return Ok(ExitCode::from(2));
            }
        };
        let sources = match manifests::sources(&self.filenames) {
            Ok(sources) => sources,
            Err(error) => {
                complain_line!("error: {error:#}");
                return Ok(ExitCode::from(2));
            }
        };
        let environments = Environments::new()?;
        let mut found = Vec::new();
        let mut excesses = Vec::new();
        let mut is_readable = true;
        let live =
            (self.connection.is_given() || self.filenames.is_empty()).then(|| self.connection.read(&live::gated()));
        for file in sources.iter().map(Source::read).chain(live) {
            match file {
                Ok(file) => {
                    for manifest in &file.objects {
                        let contents = match manifest.is_built_in() {
                            true => annotations::contents(manifest.kind(), &manifest.value),
                            false => Vec::new(),
                        };
                        let mut uses = gated_uses::find(&manifest.value);
                        uses.extend(contents.iter().flat_map(gated_uses::find_in));
                        excesses.extend(limits::exceeded(&uses, &environments).map(|message| Excess {
                            file: file.name.clone(),
                            line: file.position(manifest.start()).line,
                            object: manifest.title(),
                            message,
                            effect: limits::effect(manifest.kind()),
                        }));
                        found.extend(uses.into_iter().filter(|it| !it.needs.are_met(features)).map(|it| UseLocation {
                            file: file.name.clone(),
                            line: file.position_of(manifest, &it.path).line,
                            object: manifest.title(),
                            effect: if it.path.contains(annotations::PATH) {
                                IN_ANNOTATION
                            } else {
                                effect(manifest, it.field, &it.path)
                            },
                            text: it.text.to_owned(),
                            needs: it.needs,
                            path: it.path,
                        }));
                    }
                    if let Some(error) = &file.error {
                        is_readable = false;
                        complain_line!("error: {}:{}: {}", file.name, file.position(error.offset).line, error.message);
                    }
                }
                Err(error) => {
                    is_readable = false;
                    complain_line!("error: {error:#}");
                }
            }
        }
        match self.output {
            // An empty result is meaningful only if everything was read.
            Report::Text if found.is_empty() && excesses.is_empty() && !is_readable => {}
            Report::Text => print_text(&found, &excesses, Style::of_stdout(self.color))?,
            Report::Json => print_json(&found, &excesses)?,
        }
        Ok(match (is_readable, !excesses.is_empty() || found.iter().any(|it| it.effect.breaks)) {
            (false, _) => ExitCode::from(2),
            (true, true) => ExitCode::FAILURE,
            (true, false) => ExitCode::SUCCESS,
        })
    }
}

/// Effect of a disabled gate on an annotation of any object: it is never stored as a field.
const IN_ANNOTATION: Effect = Effect {
    text: "the object stays; a component that reads annotations rejects this one while its gate is off: pods stay Pending, columns are not shown",
    breaks: true,
};

/// Returns the effect of a disabled gate on a use.
fn effect(manifest: &Manifest, field: Field<'_>, path: &str) -> Effect {
    let breaks = |text| Effect { text, breaks: true };
    let stays = |text| Effect { text, breaks: false };
    let is_preferred = path.contains(".preferredDuringScheduling");
    match (manifest.kind(), field) {
        ("CustomResourceDefinition", _) => breaks(
            "the definition is kept, but the column is not shown; new and changed columns with expressions are rejected",
        ),
        ("PersistentVolume", _) => breaks("the term matches no node: new pods that use the volume stay Pending"),
        ("ResourceClaim", _) if manifest.value.at(&["status", "allocation"]).is_some() => {
            stays("the claim stays allocated; once released, it is not allocated again")
        }
        ("ResourceClaim", _) => breaks("the claim is not allocated: pods that use it stay Pending"),
        ("ResourceClaimTemplate", _) => {
            breaks("claims created from the template are rejected: pods that use it stay Pending")
        }
        ("Pod", _) => pod_effect(manifest, field, is_preferred),
        ("RuntimeClass", _) => breaks("new pods of the class are rejected"),
        ("ControllerRevision", _) => breaks("a rollback to this revision creates no pods"),
        ("ResourceSlice", _) => breaks("the term matches no node: the devices of the slice are not allocated"),
        ("PodTemplate", _) => breaks("pods created from the template are rejected"),
        ("DaemonSet", _) => breaks(
            "the controller cannot create new pods and keeps retrying; rolling updates fail, and nodes whose taints are tolerated only by this expression get no pod",
        ),
        _ => breaks("the controller cannot create new pods and keeps retrying; rolling updates fail"),
    }
}

fn pod_effect(manifest: &Manifest, field: Field<'_>, is_preferred: bool) -> Effect {
    let phase = manifest.value.text_at(&["status", "phase"]);
    let is_scheduled = manifest.value.str_at(&["spec", "nodeName"]).is_some_and(|name| !name.is_empty());
    let (text, breaks) = match field {
        _ if matches!(phase, "Succeeded" | "Failed") => ("the pod has ended: no effect", false),
        Field::TolerationExpression | Field::TolerationOperator if is_scheduled => {
            ("the pod keeps running, unless this toleration is needed for a NoExecute taint: then it is evicted", true)
        }
        _ if is_scheduled => ("the pod keeps running", false),
        _ if is_preferred => ("new pods are rejected; for an existing pod, the term no longer affects the score", true),
        Field::TolerationExpression | Field::TolerationOperator => {
            ("new pods are rejected; an existing pending pod no longer tolerates the taints and stays Pending", true)
        }
        _ => {
            ("new pods are rejected; for an existing pending pod the term matches no node, and it stays Pending", true)
        }
    };
    Effect { text, breaks }
}

fn print_text(found: &[UseLocation], excesses: &[Excess], style: Style) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(crate::output::stdout());
    if !excesses.is_empty() {
        writeln!(out, "{}", style.bold(format!("above the limits on expressions: {} objects", excesses.len())))?;
    }
    for Excess { file, line, object, message, effect } in excesses {
        writeln!(out, "  {file}:{line}: {object}: {message}")?;
        writeln!(out, "    {}", style.bad(effect))?;
    }
    if found.is_empty() {
        return writeln!(out, "{}", style.good("no object uses a field that these gates disable"));
    }
    let mut by_gate: BTreeMap<Needs, Vec<&UseLocation>> = BTreeMap::new();
    for it in found {
        by_gate.entry(it.needs).or_default().push(it);
    }
    for (needs, uses) in &by_gate {
        writeln!(out, "{}", style.bold(format!("needs {}: {}", needs.text(), counted(uses.len()))))?;
        for it in uses {
            writeln!(out, "  {}{}: {}", it.place(), it.object, it.path)?;
            writeln!(out, "    {}", style.dim(it.text.trim()))?;
            let effect = if it.effect.breaks { style.bad(it.effect.text) } else { style.good(it.effect.text) };
            writeln!(out, "    {effect}")?;
        }
    }
    let breaking = found.iter().filter(|it| it.effect.breaks).count();
    writeln!(out, "{}, {breaking} of them would break", counted(found.len()))?;
    out.flush()
}

fn counted(uses: usize) -> String {
    if uses == 1 { "1 use".to_owned() } else { format!("{uses} uses") }
}

fn print_json(found: &[UseLocation], excesses: &[Excess]) -> std::io::Result<()> {
    let gates = |needs: Needs| needs.0.iter().map(|gate: &Gate| gate.name()).collect::<Vec<_>>();
    let uses: Vec<_> = found
        .iter()
        .map(|it| {
            let line = (it.file != live::CLUSTER).then_some(it.line);
            json!({
                "file": it.file, "line": line, "object": it.object, "path": it.path, "text": it.text,
                "gates": gates(it.needs), "breaks": it.effect.breaks, "effect": it.effect.text,
            })
        })
        .collect();
    let limits: Vec<_> = excesses
        .iter()
        .map(|Excess { file, line, object, message, effect }| {
            json!({ "file": file, "line": line, "object": object, "message": message, "effect": effect })
        })
        .collect();
    let mut out = crate::output::stdout();
    serde_json::to_writer_pretty(&mut out, &json!({ "uses": uses, "limits": limits }))?;
    writeln!(out)
}
