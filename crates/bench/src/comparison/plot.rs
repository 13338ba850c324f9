//! A group as a picture: one bar per contestant and measurement.

use std::fmt::Write as _;

use super::figures::{Figure, Group};

/// Colors of contestants.
const COLORS: [&str; 3] = ["#1b6ca8", "#e76f51", "#2a9d8f"];

const WIDTH: f64 = 760.0;
/// Left end of the bars, and length of the longest.
const BARS_AT: f64 = 250.0;
const BARS_LENGTH: f64 = 300.0;
const BAR_HEIGHT: f64 = 12.0;
const GAP: f64 = 10.0;
const TOP: f64 = 56.0;

/// Draws a group: bars are medians, lines the spread. Each measurement has its own scale.
#[must_use]
pub fn plot(group: &Group) -> String {
    let contestants = group.contestants.len() as f64;
    let row = contestants * BAR_HEIGHT + GAP;
    let height = TOP + row * group.figures.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let _ = writeln!(svg, "<text x=\"10\" y=\"20\" font-size=\"14\">{}</text>", escaped(group.title));
    for (index, (name, color)) in group.contestants.iter().zip(COLORS).enumerate() {
        let x = BARS_AT + index as f64 * 150.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"31\" width=\"12\" height=\"12\" fill=\"{color}\"/><text x=\"{}\" y=\"41\">{}</text>",
            x + 18.0,
            escaped(name)
        );
    }
    for (index, figure) in group.figures.iter().enumerate() {
        bars(&mut svg, figure, group.contestants.len(), TOP + row * index as f64);
    }
    svg.push_str("</svg>\n");
    svg
}

fn bars(svg: &mut String, figure: &Figure, contestants: usize, top: f64) {
    let spreads: Vec<_> = (0..contestants).map(|contestant| figure.spread(contestant)).collect();
    let longest = spreads.iter().flatten().map(|spread| spread.max).fold(f64::MIN_POSITIVE, f64::max);
    let middle = top + contestants as f64 * BAR_HEIGHT / 2.0 + 4.0;
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
        BARS_AT - 10.0,
        escaped(&figure.name)
    );
    for (index, (spread, color)) in spreads.iter().zip(COLORS).enumerate() {
        let Some(spread) = spread else { continue };
        let y = top + index as f64 * BAR_HEIGHT;
        let length = |value: f64| value / longest * BARS_LENGTH;
        let center = y + BAR_HEIGHT / 2.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{BARS_AT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\" fill=\"{color}\"/>\
             <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{center:.1}\" y2=\"{center:.1}\" stroke=\"#333\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\">{}</text>",
            y + 1.0,
            length(spread.median),
            BAR_HEIGHT - 2.0,
            BARS_AT + length(spread.min),
            BARS_AT + length(spread.max),
            BARS_AT + length(spread.max) + 6.0,
            center + 4.0,
            escaped(&figure.unit.show(spread.median))
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::figures::Unit;

    #[test]
    fn the_longest_bar_has_full_length_and_texts_are_escaped() {
        let mut group = Group::new("g", "A & B", &["ours".to_owned(), "theirs".to_owned()]);
        group.add("rate", Unit::PerSecond, 0, 40.0);
        group.add("rate", Unit::PerSecond, 1, 10.0);
        let svg = plot(&group);
        assert!(svg.contains("A &amp; B") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("width=\"300.0\"") && svg.contains("width=\"75.0\""), "{svg}");
        assert!(svg.contains(">40/s</text>") && svg.contains(">10/s</text>"), "{svg}");
    }
}
