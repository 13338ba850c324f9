//! Reads a manifest and a quantity, and prints both in canonical form.

use std::error::Error;

use celplane_api::{Quantity, yaml};

fn main() -> Result<(), Box<dyn Error>> {
    let text = "
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: main, image: web, resources: {requests: {memory: 1.5Gi}}}
";
    let (documents, error) = yaml::parse_documents(text);
    if let Some(error) = error {
        return Err(error.into());
    }
    for document in &documents {
        println!("{}", yaml::to_string(&document.value));
    }
    let memory: Quantity = "1.5Gi".parse()?;
    println!("{memory}");
    Ok(())
}
