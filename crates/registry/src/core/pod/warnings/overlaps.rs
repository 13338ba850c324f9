//! Paths and ports of a pod that overlap with others of the same pod.
//!
//! Each is looked up, not compared with all others, and no more than [`MAX`] overlaps are reported: the texts of that number fill
//! the response headers, and their number grows with the square of the object.

use std::collections::BTreeMap;

use api::go_text::quote;
use api::json::Value;

/// Number of overlaps that are reported.
const MAX: usize = 128;
/// Longer paths are not compared: no file can have them.
const PATH_BYTES_MAX: usize = 4096;
/// Paths with more parts are not compared.
const PATH_PARTS_MAX: usize = 64;

/// Paths of the files in a volume.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// For each path, its sources: the number of the first file, and its name.
    known: BTreeMap<String, Vec<(usize, String)>>,
    added: usize,
    reported: usize,
}

impl Paths {
    /// Adds a path; the paths that it hides, that hide it, or that are the same, in the order in which they were added.
    pub(super) fn add(&mut self, path: &str, from: &str) -> Vec<String> {
        let path = path.trim_end_matches('/');
        let number = self.added;
        self.added = number.saturating_add(1);
        let is_compared = path.len() <= PATH_BYTES_MAX && path.matches('/').count() < PATH_PARTS_MAX;
        if path.is_empty() || !is_compared || self.reported >= MAX {
            return Vec::new();
        }
        let shown = |path: &str, from: &str| {
            if from.is_empty() { quote(path) } else { format!("{} ({from})", quote(path)) }
        };
        let mut found: Vec<(usize, String)> = self
            .overlapping(path)
            .map(|(number, other, source)| (number, format!("{} with {}", shown(path, from), shown(other, source))))
            .take(MAX.saturating_sub(self.reported))
            .collect();
        found.sort_unstable();
        self.reported = self.reported.saturating_add(found.len());
        let sources = self.known.entry(path.to_owned()).or_default();
        // A second file of one source adds no other text.
        if sources.len() < MAX && !sources.iter().any(|(_, it)| it == from) {
            sources.push((number, from.to_owned()));
        }
        found.into_iter().map(|(_, text)| text).collect()
    }

    fn overlapping<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (usize, &'a str, &'a str)> {
        let inner = format!("{path}/");
        let below = self.known.range(inner.clone()..).take_while(move |(other, _)| other.starts_with(&inner));
        let outer = path.match_indices('/').filter_map(|(end, _)| self.known.get_key_value(path.get(..end)?));
        let same = self.known.get_key_value(path);
        let all = outer.chain(same).chain(below);
        all.flat_map(|(other, sources)| sources.iter().map(|(number, from)| (*number, other.as_str(), from.as_str())))
    }
}

/// Ports of the containers of a pod.
#[derive(Debug, Default)]
pub(super) struct Ports<'a> {
    /// Numbers of ports by number and protocol in the container, and by port and address of the host.
    known: BTreeMap<(i64, &'a str, i64, &'a str), Vec<usize>>,
    added: usize,
    reported: usize,
}

impl<'a> Ports<'a> {
    /// Adds a port; returns the indexes of the ports that it overlaps with, and the kind of overlap.
    pub(super) fn add(&mut self, port: &'a Value) -> Vec<(usize, &'static str)> {
        let (number, protocol) = (port.int("containerPort"), port.text("protocol"));
        let (host, address) = (port.int("hostPort"), port.text("hostIP"));
        let index = self.added;
        self.added = index.saturating_add(1);
        if self.reported >= MAX {
            return Vec::new();
        }
        let hosts =
            |host: i64| self.known.range((number, protocol, host, "")..(number, protocol, host.saturating_add(1), ""));
        let word = |other: (i64, &str)| {
            if other == (host, address) {
                Some("duplicate port definition")
            } else if host == 0 || other.0 == 0 {
                Some("overlapping port definition")
            } else if host == other.0 && address.is_empty() != other.1.is_empty() {
                Some("dangerously ambiguous port definition")
            } else {
                None
            }
        };
        // Only those that can overlap: all of them without a port of the host, else those without one, and those with the
        // same one that have the same address or none.
        let mut candidates: Vec<_> = Vec::new();
        if host == 0 {
            candidates.extend(self.known.range((number, protocol, i64::MIN, "")..=(number, protocol, i64::MAX, "")));
        } else {
            candidates.extend(hosts(0));
            if address.is_empty() {
                candidates.extend(hosts(host));
            } else {
                candidates.extend(
                    ["", address].iter().filter_map(|it| self.known.get_key_value(&(number, protocol, host, *it))),
                );
            }
        }
        let words =
            candidates.into_iter().filter_map(|((_, _, host, address), all)| Some((word((*host, address))?, all)));
        let mut found: Vec<(usize, &'static str)> = words
            .flat_map(|(word, all)| all.iter().map(move |other| (*other, word)))
            .take(MAX.saturating_sub(self.reported))
            .collect();
        found.sort_unstable();
        self.reported = self.reported.saturating_add(found.len());
        self.known.entry((number, protocol, host, address)).or_default().push(index);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_paths_are_found_in_order() {
        let mut paths = Paths::default();
        assert!(paths.add("a/b/c", "").is_empty());
        assert!(paths.add("a-b", "").is_empty());
        assert_eq!(paths.add("a/", "S"), [r#""a" (S) with "a/b/c""#]);
        assert_eq!(paths.add("a/b", ""), [r#""a/b" with "a/b/c""#, r#""a/b" with "a" (S)"#]);
        assert_eq!(paths.add("a-b", ""), [r#""a-b" with "a-b""#]);
        assert_eq!(paths.add("a-b", ""), [r#""a-b" with "a-b""#], "equal files are one");
        assert!(paths.add("", "").is_empty());
    }

    #[test]
    fn overlapping_ports_are_found_in_order() {
        let port = |number: i64, host: i64, address: &str| api::json!({"containerPort": number, "protocol": "TCP", "hostPort": host, "hostIP": address});
        let all = [
            port(1, 0, ""),
            port(1, 80, ""),
            port(1, 80, "1.1.1.1"),
            port(1, 80, "1.1.1.2"),
            port(1, 0, ""),
            port(2, 0, ""),
        ];
        let mut ports = Ports::default();
        let found: Vec<Vec<(usize, &str)>> = all.iter().map(|it| ports.add(it)).collect();
        let (overlapping, ambiguous) = ("overlapping port definition", "dangerously ambiguous port definition");
        assert_eq!(found[1], [(0, overlapping)]);
        assert_eq!(found[2], [(0, overlapping), (1, ambiguous)]);
        assert_eq!(found[3], [(0, overlapping), (1, ambiguous)]);
        let duplicate = (0, "duplicate port definition");
        assert_eq!(found[4], [duplicate, (1, overlapping), (2, overlapping), (3, overlapping)]);
        assert!(found[0].is_empty() && found[5].is_empty());
    }

    #[test]
    fn number_of_overlaps_is_bounded() {
        let mut paths = Paths::default();
        let found: usize = (0..2000).map(|number| paths.add("p", &number.to_string()).len()).sum();
        assert_eq!(found, MAX);
        let mut ports = Ports::default();
        let port = api::json!({"containerPort": 1, "protocol": "TCP"});
        assert_eq!((0..2000).map(|_| ports.add(&port).len()).sum::<usize>(), MAX);
    }
}
