//! Bodies in every format, patches and queries.

use http::Method;

use super::{Input, JSON, MAPS, Shape, YAML, joined, nest};

pub(super) fn json_body(shape: &Shape, size: usize) -> Input {
    let head = r#""apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cost-{n}"}"#;
    let key = "k".repeat(size / 2 / shape.depth.max(1));
    let rest = match shape.form {
        // Many fields.
        0 => format!(r#""data":{{{}}}"#, joined(&shape.texts(size, 8), |it| format!(r#""{it}":"""#))),
        // Duplicates at a long path.
        1 => {
            let open = format!(r#"{{"{key}":"#);
            let twice = joined(&vec![String::new(); size / 2 / 8], |_| r#""a":0"#.into());
            format!(r#""z":{}"#, nest(shape, &open, &format!("{{{twice}}}"), "}"))
        }
        // Unknown fields.
        2 => joined(&shape.texts(size, 6), |it| format!(r#""{it}":0"#)),
        // Empty lists and objects, deep.
        3 => format!(r#""z":{}"#, nest(shape, "[", &joined(&vec![String::new(); size / 3], |_| "{}".into()), "]")),
        // Many small numbers.
        4 => format!(r#""z":[{}]"#, joined(&vec![String::new(); size / 5], |_| "1e9".into())),
        // Errors that repeat a long value.
        _ => format!(r#""data":{{{}}}"#, joined(&shape.texts(size, 8), |it| format!(r#""{it}/{it}":"""#))),
    };
    let input = Input::text(Method::POST, MAPS, JSON, format!("{{{head},{rest}}}"));
    Input { created: format!("{MAPS}/cost-{{n}}"), ..input }
}

pub(super) fn yaml_body(shape: &Shape, size: usize) -> Input {
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"cost-{n}\"}\n";
    let long = "x".repeat((size / 2).min(shape.length * 64));
    let many = |text: &str, bytes: usize| vec![text; bytes / (text.len() + 1)].join(",");
    let rest = match shape.form {
        0 => format!("z: &a {long}\ny: [{}]\n", many("*a", size - long.len().min(size))),
        1 => {
            let mut text = "a0: &a0 [x,x,x,x]\n".to_owned();
            for level in 1..shape.depth.min(size / 30) {
                let inner = many(&format!("*a{}", level - 1), size / shape.depth / 2);
                text.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
            }
            text + "y: [*a0]\n"
        }
        2 => format!(
            "y: {}\n",
            (0..shape.depth.min(300)).map(|level| format!("&a{level} [")).collect::<String>()
                + &long
                + &"]".repeat(shape.depth.min(300))
        ),
        3 => {
            let document = format!("a: &a {long}\nb: [{}]\n---\n", many("*a", shape.length * 8));
            format!("y: [1]\n---\n{}", document.repeat((size / document.len()).max(1)))
        }
        4 => {
            let key = "k".repeat(size / 4 / shape.depth.max(1));
            let depth = shape.depth.min(100);
            format!("y: {}{{{}}}{}\n", format!("{{{key}: ").repeat(depth), many("a: 1", size / 2), "}".repeat(depth))
        }
        5 => format!(
            "z: &a {{{}}}\ny: [{}]\n",
            joined(&shape.texts(size / 2, 4), |it| format!("{it}: 1")),
            many("{<<: *a}", size / 2)
        ),
        _ => format!("y: [{}]\n", many(&nest(shape, "[", "", "]"), size)),
    };
    let input = Input::text(Method::POST, MAPS, YAML, format!("{head}{rest}"));
    Input { created: format!("{MAPS}/cost-{{n}}"), ..input }
}

pub(super) fn apply(shape: &Shape, size: usize) -> Input {
    let rest = match shape.form {
        0 => format!("data: {{{}}}", joined(&shape.texts(size, 8), |it| format!("{it}: \"\""))),
        1 => format!("metadata: {{labels: {{{}}}}}", joined(&shape.texts(size, 8), |it| format!("{it}: a"))),
        2 => format!("metadata: {{finalizers: [{}]}}", joined(&shape.texts(size, 16), |it| format!("a.example/{it}"))),
        _ => format!("z: &a {}\ndata: {{y: [{}]}}", "x".repeat(size / 2), vec!["*a"; size / 8].join(",")),
    };
    let body = format!("apiVersion: v1\nkind: ConfigMap\n{rest}\n");
    Input::text(
        Method::PATCH,
        &format!("{MAPS}/applied?fieldManager=m&force=true"),
        "application/apply-patch+yaml",
        body,
    )
}

pub(super) fn json_patch(shape: &Shape, size: usize) -> Input {
    let long = "x".repeat(size / 2);
    let many =
        |operation: String, bytes: usize| vec![operation.clone(); (bytes / (operation.len() + 1)).max(1)].join(",");
    let rest = match shape.form {
        0 => {
            let add = format!(r#"{{"op":"add","path":"/data/a","value":"{long}"}}"#);
            let copies: Vec<String> = (0..size / 2 / 60)
                .map(|index| format!(r#"{{"op":"copy","from":"/data/a","path":"/data/b{index}"}}"#))
                .collect();
            format!("{add},{}", copies.join(","))
        }
        1 => {
            let double = |index: usize| format!(r#"{{"op":"copy","from":"/metadata","path":"/metadata/x{index}"}}"#);
            (0..size / 60).map(double).collect::<Vec<_>>().join(",")
        }
        2 => many(r#"{"op":"test","path":"/data","value":{}}"#.to_owned(), size),
        _ => joined(&shape.texts(size, 50), |it| format!(r#"{{"op":"add","path":"/data/{it}","value":"v"}}"#)),
    };
    Input::text(
        Method::PATCH,
        &format!("{MAPS}/kube-root-ca.crt?dryRun=All"),
        "application/json-patch+json",
        format!("[{rest}]"),
    )
}

pub(super) fn merge_patch(shape: &Shape, size: usize) -> Input {
    let rest = match shape.form {
        0 => format!(r#""data":{{{}}}"#, joined(&shape.texts(size, 8), |it| format!(r#""{it}":null"#))),
        _ => format!(r#""z":{}"#, nest(shape, r#"{"a":"#, &"1".repeat(size / 2), "}")),
    };
    Input::text(
        Method::PATCH,
        &format!("{MAPS}/kube-root-ca.crt?dryRun=All"),
        "application/merge-patch+json",
        format!("{{{rest}}}"),
    )
}

pub(super) fn strategic_patch(shape: &Shape, size: usize) -> Input {
    let rest = match shape.form {
        0 => format!(
            r#""metadata":{{"ownerReferences":[{}]}}"#,
            joined(&shape.texts(size, 60), |it| format!(r#"{{"uid":"{it}","name":"a","kind":"K","apiVersion":"v1"}}"#))
        ),
        1 => format!(r#""metadata":{{"finalizers":[{}]}}"#, joined(&shape.texts(size, 4), |it| format!(r#""{it}""#))),
        _ => format!(
            r#""metadata":{{"$deleteFromPrimitiveList/finalizers":[{}]}}"#,
            joined(&shape.texts(size, 4), |it| format!(r#""{it}""#))
        ),
    };
    Input::text(
        Method::PATCH,
        &format!("{MAPS}/kube-root-ca.crt?dryRun=All"),
        "application/strategic-merge-patch+json",
        format!("{{{rest}}}"),
    )
}

pub(super) fn selector(shape: &Shape, size: usize) -> Input {
    let texts = shape.texts(size, 8);
    let query = match shape.form {
        0 => format!("labelSelector={}", texts.join("%2C")),
        1 => format!("labelSelector=a+in+({})", texts.join("%2C")),
        2 => format!(
            "fieldSelector={}",
            texts.iter().map(|it| format!("metadata.name%21%3D{it}")).collect::<Vec<_>>().join("%2C")
        ),
        3 => format!("labelSelector=a+notin+({})", texts.join("%2C")),
        4 => format!("limit=1&continue={}", "eyJ2".repeat(size / 4)),
        _ => format!("labelSelector={}", texts.iter().map(|it| format!("!{it}")).collect::<Vec<_>>().join("%2C")),
    };
    Input::get(format!("/api/v1/pods?{query}"))
}
