//! The columns of a custom resource: of its definition, of an annotation, or of a file.

use anyhow::{Context as _, Result, anyhow, bail};
use api::features::Features;
use api::json::Value;
use client::objects::Selection;
use client::{Client, Resource};
use registry::custom_resource::printer_columns::Columns;
use registry::definition_status::compare_versions;
use registry::expressions::{Environments, Languages};
use registry::strategy::Context;

const DEFINITIONS: Resource =
    Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition");

/// A custom resource, and its columns.
pub(super) struct PrintedResource {
    pub(super) resource: Resource,
    pub(super) is_namespaced: bool,
    pub(super) columns: Columns,
}

impl PrintedResource {
    /// Finds the definition that a word means, and its columns.
    pub(super) async fn load(client: &Client, word: &str, file: Option<&str>) -> Result<Self> {
        let mut definition = find(client, word).await?;
        let given = file.map(read_file).transpose()?;
        if let Some(Value::Object(_)) = &given {
            // The file is a definition: its columns count, not those of the server.
            definition = given.clone().unwrap_or_default();
        }
        let environments = Environments::new()?;
        let context = Context::without_request(Features::all_proposals(), &environments);
        if let Err(errors) = registry::annotations::merge("CustomResourceDefinition", &mut definition, &context) {
            bail!("{}", errors.message());
        }
        let name = preferred(&definition).context("the definition serves no version")?;
        let version = version_mut(&mut definition, &name).context("the definition has no such version")?;
        if let (Some(Value::Array(more)), Some(fields)) = (given, version.as_object_mut()) {
            let list = fields.get_or_insert("additionalPrinterColumns", || Value::Array(Vec::new()));
            list.as_array_mut().context("additionalPrinterColumns is not a list")?.extend(more);
        }
        let (columns, failure) = Columns::of_version(version, true, &Languages::default());
        if let Some(failure) = failure {
            bail!("{failure}");
        }
        let text = |path: &[&str]| definition.text_at(path).to_owned();
        let resource = Resource {
            group: text(&["spec", "group"]).into(),
            version: name.into(),
            plural: text(&["spec", "names", "plural"]).into(),
            kind: text(&["spec", "names", "kind"]).into(),
        };
        Ok(Self { resource, is_namespaced: text(&["spec", "scope"]) != "Cluster", columns })
    }
}

/// The definition that a word means: the plural with the group, or any name of the kind.
async fn find(client: &Client, word: &str) -> Result<Value> {
    let definitions = client.documents(DEFINITIONS);
    if word.contains('.') {
        return match definitions.get("", word).await {
            Err(error) if error.is_not_found() => Err(anyhow!("the server has no custom resource \"{word}\"")),
            definition => Ok(definition?),
        };
    }
    let is_it = |definition: &Value| {
        let names = definition.at(&["spec", "names"]);
        let name = |field: &str| names.and_then(|names| names.str_at(&[field])).unwrap_or_default();
        let short = names.and_then(|names| names.get("shortNames")).and_then(Value::as_array).unwrap_or_default();
        [name("plural"), name("singular"), name("kind")].iter().any(|name| name.eq_ignore_ascii_case(word))
            || short.iter().any(|name| name.as_str() == Some(word))
    };
    let all = definitions.list(&Selection::default()).await?.items;
    super::one(all.into_iter().filter(is_it).collect(), word)
}

/// The served version that discovery lists first.
fn preferred(definition: &Value) -> Option<String> {
    let versions = definition.list_at(&["spec", "versions"]);
    let served = versions.iter().filter(|it| it.get("served").and_then(Value::as_bool) == Some(true));
    let mut names: Vec<&str> = served.filter_map(|it| it.str_at(&["name"])).collect();
    names.sort_by(|left, right| compare_versions(left, right));
    names.first().map(|name| (*name).to_owned())
}

fn version_mut<'d>(definition: &'d mut Value, name: &str) -> Option<&'d mut Value> {
    let versions = definition.get_mut("spec")?.get_mut("versions")?.as_array_mut()?;
    versions.iter_mut().find(|it| it.str_at(&["name"]) == Some(name))
}

/// Reads a list of columns, or a definition.
fn read_file(name: &str) -> Result<Value> {
    let text =
        crate::input_file::read_text(std::path::Path::new(name)).with_context(|| format!("cannot read `{name}`"))?;
    let (documents, error) = api::yaml::parse_documents(&text);
    if let Some(error) = error {
        bail!("`{name}`: {}", error.message);
    }
    let is_usable =
        |value: &Value| matches!(value, Value::Array(_)) || value.str_at(&["kind"]) == Some("CustomResourceDefinition");
    let found = documents.into_iter().map(|document| document.value).find(is_usable);
    found.ok_or_else(|| anyhow!("`{name}` holds neither a list of columns nor a CustomResourceDefinition"))
}
