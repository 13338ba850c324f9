//! Software bill of materials in CycloneDX 1.5.

use super::dependencies::{Dependencies, Package};
use anyhow::Result;
use serde_json::{Value, json};

/// Returns the bill as JSON. It has no serial number and no time, so that equal content has equal bytes.
pub(super) fn render(dependencies: &Dependencies) -> Result<String> {
    let program = format!("celplane@{}", dependencies.version);
    let libraries = dependencies.crates.iter().filter(|package| package.identifier() != program);
    let graph: Vec<Value> = dependencies
        .crates
        .iter()
        .map(|package| json!({"ref": package.identifier(), "dependsOn": package.uses}))
        .collect();
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "application", "bom-ref": program, "name": "celplane", "version": dependencies.version,
            "licenses": [{"expression": "Apache-2.0"}],
        }},
        "components": libraries.map(component).collect::<Vec<_>>(),
        "dependencies": graph,
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&bill)?))
}

fn component(package: &Package) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": package.identifier(),
        "name": package.name,
        "version": package.version,
        // Old manifests separate alternatives with a slash, which SPDX does not know.
        "licenses": [{"expression": package.license.replace('/', " OR ")}],
    });
    if let (Some(checksum), Some(fields)) = (&package.checksum, component.as_object_mut()) {
        fields.insert("purl".to_owned(), json!(format!("pkg:cargo/{}@{}", package.name, package.version)));
        fields.insert("hashes".to_owned(), json!([{"alg": "SHA-256", "content": checksum}]));
    }
    component
}
