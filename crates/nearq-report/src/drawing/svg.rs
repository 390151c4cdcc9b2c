//! The machine as a picture (SVG): packages, nodes and caches as nested frames, cores and CPUs as boxes in
//! them, devices below the CPUs of their node, pods in colour, and what this process may not use in pale colours.

use super::layout::{CHARACTER, Content, LABEL_HEIGHT, Shape, layout};
use super::{View, summary};
use nearq_topology::safe_text::is_unsafe;
use nearq_topology::{CpuSet, Limits, Pod, Topology};
use std::fmt::Write as _;

const MARGIN: f64 = 16.0;

/// Fill colours of pods, light enough for dark text; neighbours in the list are easy to tell apart, even for
/// most people with a colour vision deficiency.
const PALETTE: [&str; 8] =
    ["#8ec5f0", "#fdc07a", "#9bd8a0", "#d3b8ea", "#f6a6a0", "#f2e27d", "#8fdcd3", "#f3b6d9"];

/// More pods than this are not all in the legend.
const LEGEND_PODS: usize = 16;

/// More nodes than this have no table of distances in the picture.
const TABLE_NODES: usize = 16;

/// The side of a cell of the table of distances, in pixels.
const CELL: f64 = 30.0;

/// The machine as a picture: nested frames, the pods of the view's scope coloured, the CPUs that the process
/// may not use pale, offline CPUs dashed.
pub fn svg(view: &View<'_>) -> String {
    let machine = view.topology;
    let pods = view.topology.groups(view.scope, view.shard_size);
    let allowed = view.limits.map_or_else(|| machine.possible().clone(), Limits::effective);
    let (shapes, width, height) = layout(machine);
    let mut picture =
        Picture { out: String::new(), machine, colours: colours(machine, &pods), allowed };

    let title = machine.model_name().unwrap_or("Machine");
    picture.label(MARGIN, 30.0, title, "t");
    picture.label(MARGIN, 50.0, &summary(machine), "s");
    let top = 64.0;
    for (x, y, shape) in &shapes {
        picture.shape(MARGIN + x, top + y, shape);
    }
    let widest = [title.len() as f64 * 10.0, summary(machine).len() as f64 * CHARACTER, 420.0];
    let width = widest.into_iter().fold(width, f64::max);
    let bottom = picture.legend(top + height + 24.0, width, view, &pods);
    let bottom = picture.distances(bottom + 8.0);
    let (width, height) = (width + 2.0 * MARGIN, bottom + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
         <style>.t{{font-size:18px;font-weight:bold}}.s{{fill:#555}}.b{{font-weight:bold}}\
         .c{{text-anchor:middle}}.n{{text-anchor:middle;fill:#999}}.k{{text-anchor:middle;font-size:9px;fill:#555}}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
        picture.out
    )
}

/// For each CPU number the colour of its pod.
fn colours(machine: &Topology, pods: &[Pod]) -> Vec<&'static str> {
    let mut colours = vec!["#ddd"; machine.possible().last().map_or(0, |last| last + 1)];
    for (index, pod) in pods.iter().enumerate() {
        for cpu in &pod.cpus {
            colours[cpu] = PALETTE[index % PALETTE.len()];
        }
    }
    colours
}

struct Picture<'a> {
    out: String,
    machine: &'a Topology,
    colours: Vec<&'static str>,
    allowed: CpuSet,
}

impl Picture<'_> {
    fn label(&mut self, x: f64, y: f64, text: &str, class: &str) {
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>",
            escaped(text)
        );
    }

    fn rect(&mut self, (x, y, width, height): (f64, f64, f64, f64), style: &str) {
        let _ = writeln!(
            self.out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\" {style}/>"
        );
    }

    fn shape(&mut self, x: f64, y: f64, shape: &Shape) {
        let place = (x, y, shape.width, shape.height);
        match &shape.content {
            Content::Cpu(cpu) => self.cpu(place, *cpu),
            Content::Core(_) => self.rect(place, "fill=\"white\" stroke=\"#777\""),
            Content::Device(name) => {
                let colour = if name.starts_with("gpu:") { "#d6efd2" } else { "white" };
                self.rect(place, &format!("fill=\"{colour}\" stroke=\"#5b7f58\""));
                self.label(x + shape.width / 2.0, y + shape.height / 2.0 + 4.0, name, "c");
            }
            Content::Llc(label) => {
                self.rect(place, "fill=\"#eceff3\" stroke=\"#8a94a6\"");
                self.label(x + 8.0, y + LABEL_HEIGHT - 3.0, label, "");
            }
            Content::Block(label, depth) => {
                let fill = if depth % 2 == 0 { "#fbf8f1" } else { "#f1ece0" };
                self.rect(
                    place,
                    &format!("fill=\"{fill}\" stroke=\"#b3a582\" stroke-width=\"1.5\""),
                );
                self.label(x + 8.0, y + LABEL_HEIGHT - 3.0, label, "b");
            }
        }
        for (inner_x, inner_y, inner) in &shape.inside {
            self.shape(x + inner_x, y + inner_y, inner);
        }
        if let Content::Core(core) = shape.content
            && let Some(kind) = &self.machine.cores()[core].kind
        {
            let (middle, foot) = (x + shape.width / 2.0, y + shape.height - 3.0);
            self.label(middle, foot, kind.trim_start_matches("Intel"), "k");
        }
    }

    fn cpu(&mut self, place: (f64, f64, f64, f64), cpu: usize) {
        let online = self.machine.cpu(cpu).is_some_and(|cpu| cpu.online);
        let allowed = self.allowed.contains(cpu);
        self.swatch(place, self.colours[cpu], online, allowed);
        let (x, y, width, height) = place;
        let class = if online && allowed { "c" } else { "n" };
        self.label(x + width / 2.0, y + height / 2.0 + 4.0, &cpu.to_string(), class);
    }

    fn swatch(&mut self, place: (f64, f64, f64, f64), colour: &str, online: bool, allowed: bool) {
        let style = match (online, allowed) {
            (true, true) => format!("fill=\"{colour}\" stroke=\"#444\""),
            (true, false) => format!("fill=\"{colour}\" fill-opacity=\"0.25\" stroke=\"#ccc\""),
            (false, _) => "fill=\"white\" stroke=\"#999\" stroke-dasharray=\"2 2\"".to_owned(),
        };
        self.rect(place, &style);
    }

    /// What the colours mean. Returns where it ends.
    fn legend(&mut self, top: f64, width: f64, view: &View<'_>, pods: &[Pod]) -> f64 {
        let more = if pods.len() > PALETTE.len() { "; colours repeat" } else { "" };
        let plural = if pods.len() == 1 { "pod" } else { "pods" };
        self.label(
            MARGIN,
            top,
            &format!("{} {plural} of scope {}{more}", pods.len(), view.scope),
            "b",
        );
        let mut entries: Vec<(&str, bool, bool, String)> = Vec::new();
        for (index, pod) in pods.iter().take(LEGEND_PODS).enumerate() {
            let text = if pods.len() == 1 {
                "all CPUs".to_owned()
            } else {
                format!("CPUs {}", cut(&pod.cpus.to_list()))
            };
            entries.push((PALETTE[index % PALETTE.len()], true, true, text));
        }
        if pods.len() > LEGEND_PODS {
            entries.push(("white", true, true, format!("and {} more", pods.len() - LEGEND_PODS)));
        }
        if !self.machine.online().is_subset(&self.allowed) {
            entries.push((PALETTE[0], true, false, "pale: this process may not use it".into()));
        }
        if self.machine.online() != self.machine.possible() {
            entries.push(("white", false, true, "dashed: offline".into()));
        }
        let (mut x, mut bottom) = (MARGIN, top + 10.0);
        for (colour, online, allowed, text) in entries {
            let label_width = text.chars().count() as f64 * CHARACTER + 36.0;
            if x > MARGIN && x + label_width > width + MARGIN {
                (x, bottom) = (MARGIN, bottom + 22.0);
            }
            self.swatch((x, bottom, 18.0, 14.0), colour, online, allowed);
            self.label(x + 24.0, bottom + 11.5, &text, "");
            x += label_width;
        }
        if let Some(limits) = view.limits {
            bottom += 36.0;
            let words = limits.explain().pop().unwrap_or_default();
            self.label(MARGIN, bottom, &format!("Limits: {}", words.trim_start_matches("so ")), "");
        }
        bottom + 20.0
    }

    /// The distances between nodes as a table, darker where they are farther. Returns where it ends.
    fn distances(&mut self, top: f64) -> f64 {
        let nodes = self.machine.nodes();
        if !(2..=TABLE_NODES).contains(&nodes.len()) {
            return top;
        }
        self.label(MARGIN, top + 14.0, "Distances between nodes", "b");
        let all = (0..nodes.len()).flat_map(|a| (0..nodes.len()).map(move |b| (a, b)));
        let largest = all.clone().map(|(a, b)| self.machine.distance(a, b)).max().unwrap_or(1);
        let (left, top) = (MARGIN + CELL, top + 24.0 + CELL * 0.7);
        for (index, node) in nodes.iter().enumerate() {
            let middle = (index as f64 + 0.5) * CELL;
            self.label(left + middle, top - 6.0, &node.id.to_string(), "n");
            self.label(left - CELL / 2.0, top + middle + 4.0, &node.id.to_string(), "n");
        }
        for (a, b) in all {
            let distance = self.machine.distance(a, b);
            let (x, y) = (left + b as f64 * CELL, top + a as f64 * CELL);
            let share = f64::from(distance.saturating_sub(10))
                / f64::from(largest.saturating_sub(10).max(1));
            let shade = 250.0 - 90.0 * share;
            self.rect(
                (x, y, CELL, CELL),
                &format!("fill=\"rgb({shade:.0},{shade:.0},250)\" stroke=\"white\""),
            );
            self.label(x + CELL / 2.0, y + CELL / 2.0 + 4.0, &distance.to_string(), "c");
        }
        top + nodes.len() as f64 * CELL
    }
}

/// A list of CPUs short enough for the legend.
fn cut(list: &str) -> String {
    const ROOM: usize = 24;
    if list.len() <= ROOM {
        return list.to_owned();
    }
    let end = list[..ROOM].rfind(',').unwrap_or(ROOM);
    format!("{},...", &list[..end])
}

fn escaped(text: &str) -> String {
    // These two are not valid XML characters.
    let legal = |c: &char| !is_unsafe(*c) && !matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .chars()
        .filter(legal)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::AffinityScope;

    fn is_xml(text: &str) {
        roxmltree::Document::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    }

    #[test]
    fn pods_are_coloured_and_forbidden_cpus_are_pale() {
        let machine = Topology::from_synthetic("l3:2 core:2").unwrap().with_model_name("A & <B>");
        let limits = Limits::unlimited(CpuSet::all(3));
        let text =
            svg(&View { scope: AffinityScope::Cache, ..View::new(&machine).with_limits(&limits) });
        is_xml(&text);
        // Two CPUs of the first pod and its legend; one of the second, its legend; one pale.
        assert_eq!(text.matches("fill=\"#8ec5f0\" stroke=\"#444\"").count(), 3);
        assert_eq!(text.matches("fill=\"#fdc07a\" stroke=\"#444\"").count(), 2);
        assert_eq!(text.matches("fill=\"#fdc07a\" fill-opacity=\"0.25\"").count(), 1);
        assert!(text.contains("A &amp; &lt;B&gt;") && text.contains("2 pods of scope cache"));
        assert!(text.contains("may not use it"));
    }

    #[test]
    fn large_and_small_machines_are_well_formed() {
        for description in ["core:1", "pack:2 numa:8 l3:3 core:8 pu:2", "core:4096"] {
            let machine = Topology::from_synthetic(description).unwrap();
            is_xml(&svg(&View::new(&machine)));
        }
    }

    #[test]
    fn long_lists_are_cut_at_a_comma() {
        assert_eq!(cut("0-3,8"), "0-3,8");
        assert_eq!(cut("0,2,4,6,8,10,12,14,16,18,20,22"), "0,2,4,6,8,10,12,14,16,...");
    }
}
