//! Reports as JUnit XML: a suite for each file, a case for each object.

use std::io::Write;

use super::judge::{FileReport, ObjectReport};

/// Writes the report.
pub(super) fn write(reports: &[FileReport], out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<testsuites name=\"celplane check\">")?;
    for report in reports {
        let refused = report.objects.iter().filter(|object| !object.findings.is_empty()).count();
        let errors = usize::from(report.unreadable.is_some());
        let tests = report.objects.len().saturating_add(errors);
        let name = escaped(&report.name);
        writeln!(out, "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{refused}\" errors=\"{errors}\">")?;
        for object in &report.objects {
            case(report, object, out)?;
        }
        if let Some((_, error)) = &report.unreadable {
            let error = escaped(error);
            writeln!(out, "    <testcase name=\"file\" classname=\"{name}\"><error message=\"{error}\"/></testcase>")?;
        }
        writeln!(out, "  </testsuite>")?;
    }
    writeln!(out, "</testsuites>")
}

fn case(report: &FileReport, object: &ObjectReport, out: &mut dyn Write) -> std::io::Result<()> {
    let (title, file) = (escaped(&object.title), escaped(&report.name));
    let line = object.position.line;
    write!(out, "    <testcase name=\"{title}\" classname=\"{file}\" file=\"{file}\" line=\"{line}\"")?;
    if object.findings.is_empty() && object.warnings.is_empty() {
        return writeln!(out, "/>");
    }
    writeln!(out, ">")?;
    for finding in &object.findings {
        let place = format!("{}:{}:{}", report.name, finding.position.line, finding.position.column);
        let path = if finding.path.is_empty() { String::new() } else { format!("{}: ", finding.path) };
        let message = escaped(&format!("{path}{}", finding.message));
        let (kind, place) = (finding.reason, escaped(&place));
        writeln!(out, "      <failure type=\"{kind}\" message=\"{message}\">{place}</failure>")?;
    }
    if !object.warnings.is_empty() {
        let warnings: Vec<&str> = object.warnings.iter().map(|it| it.message.as_str()).collect();
        writeln!(out, "      <system-out>{}</system-out>", escaped(&warnings.join("\n")))?;
    }
    writeln!(out, "    </testcase>")
}

/// Text as XML takes it; characters that XML cannot hold are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_attributes() {
        assert_eq!(escaped("a<b & \"c\">\n\u{1}"), "a&lt;b &amp; &quot;c&quot;&gt;&#10;\u{fffd}");
    }
}
