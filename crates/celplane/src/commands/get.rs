//! `celplane get`: custom resources with columns by expression, on any cluster.
//!
//! The columns are those of the definition, those in its annotation `columns.celplane.dev/VERSION`, or those of a file; the
//! cells are computed by the code of the API server, and printed as kubectl prints tables.

mod columns;
mod rows;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use api::json::Value;
use client::informer::Change;
use client::objects::Selection;
use client::{Client, Informers, Resource};

use self::columns::PrintedResource;
use self::rows::Rows;
use crate::connection::ConnectionArguments;
use crate::output::{complain_line, print_text};

/// Print custom resources with their columns, also those by expression
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Custom resource: `widgets`, `widget`, a short name, or `widgets.example.com`
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// Names of objects; without, all
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Namespace; by default that of the kubeconfig's context
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// Print the objects of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Label selector
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "", conflicts_with = "names")]
    selector: String,
    /// Field selector
    #[arg(long, value_name = "SELECTOR", default_value = "", conflicts_with = "names")]
    field_selector: String,
    /// Sort by a JSON path, such as `.spec.size`
    #[arg(long, value_name = "PATH", conflicts_with = "watch")]
    sort_by: Option<String>,
    /// Print changes until interrupted
    #[arg(short, long)]
    watch: bool,
    /// `wide` adds the columns of lower priority
    #[arg(short, long, value_name = "FORMAT", value_parser = ["wide"])]
    output: Option<String>,
    /// Print no headers
    #[arg(long)]
    no_headers: bool,
    /// File with columns: a list of additionalPrinterColumns, or a CustomResourceDefinition
    #[arg(short = 'f', long = "columns", value_name = "FILE")]
    columns: Option<String>,
}

impl Arguments {
    /// Prints the table.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.print())
    }

    async fn print(self) -> Result<ExitCode> {
        let client = self.connection.connect().await?;
        let shown = PrintedResource::load(&client, &self.resource, self.columns.as_deref()).await?;
        let namespace = match (&self.namespace, shown.is_namespaced && !self.all_namespaces) {
            (_, false) => String::new(),
            (Some(namespace), true) => namespace.clone(),
            (None, true) => self.connection.namespace()?.unwrap_or_else(|| "default".to_owned()),
        };
        let with_namespace = shown.is_namespaced && self.all_namespaces;
        let mut rows = Rows::new(&shown, self.output.is_some(), with_namespace, self.no_headers);
        let selection = Selection {
            namespace: namespace.clone(),
            labels: self.selector.clone(),
            fields: self.field_selector.clone(),
        };
        if self.watch {
            return self.follow(&client, &shown.resource, &selection, rows).await;
        }
        let (mut objects, mut code) = (Vec::new(), ExitCode::SUCCESS);
        let documents = client.documents(shown.resource.clone());
        if self.names.is_empty() {
            objects = documents.list(&selection).await?.items;
        } else if with_namespace {
            bail!("a resource cannot be retrieved by name across all namespaces");
        }
        for name in &self.names {
            match documents.get(&namespace, name).await {
                Ok(object) => objects.push(object),
                Err(error) => {
                    complain_line!("error: {error}");
                    code = ExitCode::FAILURE;
                }
            }
        }
        if objects.is_empty() && self.names.is_empty() {
            // kubectl ends only one of the two sentences with a period.
            if namespace.is_empty() {
                complain_line!("No resources found");
            } else {
                complain_line!("No resources found in {namespace} namespace.");
            }
            return Ok(code);
        }
        if let Some(path) = &self.sort_by {
            rows::sort(&mut objects, path)?;
        }
        let text = rows.render(&objects);
        print_text!("{text}")?;
        for warning in rows.warnings() {
            complain_line!("Warning: {warning}");
        }
        Ok(code)
    }

    /// Prints the objects, and then every change.
    async fn follow(
        &self,
        client: &Client,
        resource: &Resource,
        selection: &Selection,
        mut rows: Rows<'_>,
    ) -> Result<ExitCode> {
        // An informer retries in silence: a right that is missing is an error at once.
        client.documents(resource.clone()).list(selection).await?;
        let informer = Informers::new(client.clone()).of_documents(resource, selection);
        let is_named = |object: &Value| {
            let name = object.text_at(&["metadata", "name"]);
            self.names.is_empty() || self.names.iter().any(|it| it == name)
        };
        let mut changes = informer.changes();
        informer.synced().await;
        let mut first = Vec::new();
        while let Some((_, change)) = changes.try_next() {
            first.push(change.newest().as_ref().clone());
        }
        first.retain(is_named);
        rows::sort(&mut first, ".metadata.name")?;
        print_text!("{}", rows.render(&first))?;
        crate::output::stdout().flush()?;
        loop {
            let change: Change<Value> = tokio::select! {
                (_, change) = changes.next() => change,
                interrupted = tokio::signal::ctrl_c() => {
                    interrupted.context("cannot wait for signals")?;
                    return Ok(ExitCode::SUCCESS);
                }
            };
            if is_named(change.newest()) {
                print_text!("{}", rows.render(std::slice::from_ref(change.newest().as_ref())))?;
                crate::output::stdout().flush()?;
            }
        }
    }
}

/// The one definition that a word means.
fn one<T>(mut found: Vec<T>, word: &str) -> Result<T> {
    match found.len() {
        0 => Err(anyhow!("the server has no custom resource \"{word}\"")),
        1 => found.pop().context("one was found"),
        _ => Err(anyhow!("several custom resources are called \"{word}\": add the group, as in PLURAL.GROUP")),
    }
}
