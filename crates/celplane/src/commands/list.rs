//! `celplane list`: the control planes of this user, by name.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use client::kubeconfig::Kubeconfig;
use controlplane::data_directory;

use crate::output::Output;

/// List the control planes of this user that `celplane up` has started, named ones included
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
}

/// One control plane.
struct Cluster {
    name: String,
    process: Option<i32>,
    server: String,
    directory: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let clusters = find()?;
        let mut rows = vec![["NAME", "STATUS", "SERVER", "DATA"].map(ToOwned::to_owned)];
        rows.extend(clusters.iter().map(|it| {
            let status = it.process.map_or_else(|| "stopped".to_owned(), |process| format!("running ({process})"));
            [it.name.clone(), status, it.server.clone(), it.directory.display().to_string()]
        }));
        let text = if clusters.is_empty() { "No control planes found.".to_owned() } else { columns(&rows) };
        self.output.print(&text, || {
            let items = clusters.iter().map(|it| {
                let (name, server) = (it.name.as_str(), it.server.as_str());
                let directory = it.directory.display().to_string();
                api::json!({"name": name, "process": (it.process), "server": server, "dataDirectory": directory})
            });
            api::json!({"clusters": (items.collect::<Vec<_>>())})
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn find() -> anyhow::Result<Vec<Cluster>> {
    let mut clusters = Vec::new();
    let default = data_directory::default_path();
    if data_directory::is_used(&default) {
        clusters.push(Cluster::of("(default)", &default)?);
    }
    let mut named: Vec<PathBuf> = match std::fs::read_dir(data_directory::named_root()) {
        Ok(entries) => entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect(),
        Err(_) => Vec::new(),
    };
    named.sort();
    for path in named.iter().filter(|path| data_directory::is_used(path)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        clusters.push(Cluster::of(&name, path)?);
    }
    Ok(clusters)
}

impl Cluster {
    fn of(name: &str, path: &Path) -> anyhow::Result<Self> {
        let kubeconfig = Kubeconfig::read_all(&[path.join("admin.kubeconfig")], None);
        Ok(Self {
            name: name.to_owned(),
            process: data_directory::holder(path)?,
            server: kubeconfig.map(|it| it.server).unwrap_or_default(),
            directory: path.to_owned(),
        })
    }
}

fn columns(rows: &[[String; 4]]) -> String {
    let mut widths = [0_usize; 4];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 4]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
