//! The curve as a picture.

use super::scenario::{Order, SIZES};

/// A point of the plot: constraint, order, devices, count, cost of all, cost.
pub type Point = (&'static str, Order, usize, usize, u64, u64);

/// The costs of four devices over the number of devices, both axes logarithmic.
#[must_use]
pub fn plot(points: &[Point]) -> String {
    use std::fmt::Write as _;
    const SHOWN: [(&str, &str); 4] = [
        ("contiguous, even ids", "#1b6ca8"),
        ("contiguous, runs one too short", "#2a9d8f"),
        ("2×2 grid", "#e76f51"),
        ("2×2 grid, with holes", "#9b2226"),
    ];
    const WIDTH: f64 = 720.0;
    const HEIGHT: f64 = 420.0;
    let x = |devices: usize| 70.0 + (devices as f64 / 8.0).log2() / 4.0 * 480.0;
    let y = |cost: u64| HEIGHT - 50.0 - (cost.max(10) as f64).log10().clamp(1.0, 11.0) / 11.0 * 340.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for devices in SIZES {
        let at = x(devices);
        let _ = writeln!(svg, "<text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{devices}</text>", HEIGHT - 30.0);
    }
    for power in (2_u32..=10).step_by(2) {
        let at = y(10_u64.saturating_pow(power));
        let _ = writeln!(
            svg,
            "<line x1=\"70\" x2=\"550\" y1=\"{at}\" y2=\"{at}\" stroke=\"#ddd\"/><text x=\"60\" y=\"{}\" \
             text-anchor=\"end\">10^{power}</text>",
            at + 4.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"310\" y=\"{}\" text-anchor=\"middle\">devices; four are asked for</text>",
        HEIGHT - 8.0
    );
    let _ = writeln!(svg, "<text x=\"70\" y=\"20\">metered CEL cost (dashed: every set; solid: looking ahead)</text>");
    for (row, (name, color)) in SHOWN.into_iter().enumerate() {
        let of_name =
            points.iter().filter(|(of, order, _, count, ..)| *of == name && *order == Order::Text && *count == 4);
        let (mut all, mut ours) = (String::new(), String::new());
        for (_, _, devices, _, every, cost) in of_name {
            let _ = write!(all, "{:.1},{:.1} ", x(*devices), y(*every));
            let _ = write!(ours, "{:.1},{:.1} ", x(*devices), y(*cost));
        }
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-dasharray=\"5 4\" points=\"{all}\"/>\n\
             <polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" points=\"{ours}\"/>\n\
             <text x=\"560\" y=\"{}\" fill=\"{color}\">{name}</text>",
            60.0 + row as f64 * 18.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}
