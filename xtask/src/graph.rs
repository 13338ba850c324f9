//! `cargo xtask graph CRATE`: draws the modules of a crate, layer by layer, with what each uses.

use anyhow::{Result, bail};

use crate::modules::Modules;
use crate::tidy::{Tree, layers};

pub(crate) const ABOUT: &str = "draw the modules of a crate and what each uses: graph CRATE";

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let [name] = arguments else { bail!("one crate is needed, such as `cargo xtask graph apiserver`") };
    let tree = Tree::read()?;
    if !tree.crates.iter().any(|member| member.name == *name) {
        bail!("there is no crate `{name}`");
    }
    let modules = Modules::read(&tree.root, &tree.files, name)?;
    print!("{}", text(&modules, &layers::of_crate(&tree, name)?));
    Ok(())
}

/// The modules from the top layer to the lowest, then those outside the table, then the circles.
fn text(modules: &Modules, layers: &[Vec<String>]) -> String {
    let mut text = String::new();
    let mut line = |module: &str| {
        let used: Vec<String> =
            modules.used_by(module).iter().map(|(used, files)| format!("{used} ({files})")).collect();
        text.push_str(&format!("  {module:<20} {}\n", used.join(", ")));
    };
    for layer in layers.iter().rev() {
        layer.iter().filter(|module| modules.names.contains(*module)).for_each(|module| line(module));
    }
    let listed: Vec<&String> = layers.iter().flatten().collect();
    modules.names.iter().filter(|module| !listed.contains(module)).for_each(|module| line(module));
    for cycle in modules.cycles() {
        text.push_str(&format!("circle: {}\n", cycle.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_drawn_from_the_top() {
        let files = [("lib.rs", "mod low;\nmod high;\n"), ("high.rs", "use crate::low;\n"), ("low.rs", "")];
        let files: Vec<(String, String)> = files.map(|(file, text)| (file.to_owned(), text.to_owned())).to_vec();
        let layers = [vec!["low".to_owned()], vec!["high".to_owned()]];
        let drawn = text(&Modules::parse(&files), &layers);
        assert_eq!(drawn, "  high                 low (1)\n  low                  \n");
    }
}
