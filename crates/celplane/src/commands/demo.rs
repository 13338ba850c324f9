//! `celplane demo`: the five proposals, story by story, on a control plane that is thrown away.
//!
//! The manifests are those of `examples/`. For each story: what is written, what becomes of each pod, claim and column, and
//! why. Exit code 1 if a story does not end as it should.

mod show;
mod stories;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use api::core::v1::Pod;
use api::features::Features;
use client::objects::Selection;
use client::{Client, Resource};
use controlplane::TemporaryPlane;

use self::show::StoryResult;
use self::stories::{STORIES, Story};
use crate::manifests::{self, Manifests};
use crate::style::{ColorChoice, Style};

/// Time limit of a story.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the state is checked.
const PAUSE: Duration = Duration::from_millis(20);

const DEFINITIONS: Resource =
    Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition");

/// Demonstrate the five proposals on a temporary cluster
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only this story; may be repeated
    #[arg(long, value_name = "NAME")]
    story: Vec<String>,

    /// List the stories
    #[arg(long)]
    list: bool,

    /// Use of color in the output
    #[arg(long, value_enum, default_value = "auto")]
    color: ColorChoice,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.list {
            for story in STORIES {
                show::say(&format!("{:<16} {}: {}\n", story.name, story.proposal, story.title))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(unknown) = self.story.iter().find(|name| STORIES.iter().all(|story| story.name != **name)) {
            bail!("unknown story `{unknown}`; `celplane demo --list` lists the stories");
        }
        let is_reported = |story: &&Story| self.story.is_empty() || self.story.iter().any(|name| name == story.name);
        let reported: Vec<&Story> = STORIES.iter().filter(is_reported).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(8 << 20).build()?;
        let failed = runtime.block_on(report(&reported, Style::of_stdout(self.color)))?;
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Runs stories; returns the number of failures.
async fn report(reported: &[&Story], style: Style) -> Result<usize> {
    let started = Instant::now();
    let cluster = TemporaryPlane::start(Features::all_proposals()).await?;
    let client = cluster.admin();
    apply(client, "cluster/nodes.yaml", stories::NODES).await?;
    show::say(&format!("A control plane is ready after {} ms.\n\n", started.elapsed().as_millis()))?;
    let mut failed = 0_usize;
    for story in reported {
        show::say(&show::title(story, style))?;
        let ended = async {
            for (name, text) in story.files {
                apply(client, name, text).await?;
            }
            wait(client, story).await
        };
        match tokio::time::timeout(TIMEOUT, ended).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error).with_context(|| format!("story `{}`", story.name)),
            Err(_) => show::say(&format!(
                "  {}\n",
                style.bad(format!("did not reach the expected state within {} s", TIMEOUT.as_secs()))
            ))?,
        }
        let shown = StoryResult::collect(client, story).await?;
        show::say(&shown.text(style))?;
        if !shown.is_as_expected(story) {
            failed = failed.saturating_add(1);
        }
    }
    cluster.end().await?;
    let count = if reported.len() == 1 { "1 story".to_owned() } else { format!("{} stories", reported.len()) };
    let seconds = started.elapsed().as_secs_f64();
    show::say(&match failed {
        0 => format!("{count} passed in {seconds:.1} s.\n"),
        failed => format!("{failed} of {count} failed in {seconds:.1} s.\n"),
    })?;
    Ok(failed)
}

/// Creates the objects of a manifest. A definition is served before the next object is processed.
async fn apply(client: &Client, name: &str, text: &str) -> Result<()> {
    for manifest in manifests::readable(Manifests::parse(name.to_owned(), text.to_owned()))? {
        let discovery = client.discover().await?;
        let served = discovery.find(manifest.api_version(), manifest.kind()).cloned();
        let served = served.with_context(|| format!("{name}: {} is not served", manifest.kind()))?;
        let namespace = if served.namespaced { "default" } else { "" };
        let created = client.documents(served.resource).create(namespace, &manifest.value).await;
        let created = match created {
            Err(error) if error.is_already_exists() => continue,
            created => created.with_context(|| format!("{name}: {}", manifest.title()))?,
        };
        if manifest.kind() == "CustomResourceDefinition" {
            established(client, created.text_at(&["metadata", "name"])).await?;
        }
    }
    Ok(())
}

async fn established(client: &Client, name: &str) -> Result<()> {
    loop {
        let definition = client.documents(DEFINITIONS).get("", name).await?;
        let conditions = definition.list_at(&["status", "conditions"]);
        if conditions
            .iter()
            .any(|it| it.str_at(&["type"]) == Some("Established") && it.str_at(&["status"]) == Some("True"))
        {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until the story has ended as it should.
async fn wait(client: &Client, story: &Story) -> Result<()> {
    loop {
        let pods = client.objects::<Pod>().list(&Selection::default()).await?;
        let has_ended = |(name, expected): &(&str, &[&str])| {
            pods.items.iter().find(|pod| pod.metadata.name == *name).is_some_and(|pod| match expected {
                [] => show::refusal(pod).is_some(),
                nodes => pod.status.phase == "Running" && nodes.contains(&pod.spec.node_name.as_str()),
            })
        };
        if story.pods.iter().all(has_ended) {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
