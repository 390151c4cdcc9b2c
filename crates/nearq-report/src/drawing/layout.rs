//! Where the boxes of the picture go: CPUs in cores in caches in nodes and packages, flowed into rows, with the devices of a node below its
//! CPUs.

use super::tree::{Block, blocks, cache_label, devices_nowhere, shown};
use nearq_topology::Topology;

/// Sizes in pixels.
const CPU_HEIGHT: f64 = 20.0;
const CORE_PADDING: f64 = 3.0;
/// Space for the kind of a core, on hybrid machines.
const KIND_HEIGHT: f64 = 10.0;
const PADDING: f64 = 8.0;
const GAP: f64 = 4.0;
const BLOCK_GAP: f64 = 12.0;
pub(super) const LABEL_HEIGHT: f64 = 18.0;
/// Width of a character of a label, a little more than that of most.
pub(super) const CHARACTER: f64 = 7.0;

/// The ratio of a picture's width to its height, approximately.
const ASPECT: f64 = 1.7;

/// More devices of one node than this are not all drawn.
const DEVICES_SHOWN: usize = 32;

/// What a box shows.
#[derive(Debug)]
pub(super) enum Content {
    /// A CPU, by its number.
    Cpu(usize),
    /// A core, by its index.
    Core(usize),
    /// A last-level cache domain.
    Llc(String),
    /// A device, by its name.
    Device(String),
    /// A package, node or die; the number is its nesting depth.
    Block(String, usize),
}

/// A box, with the boxes inside at their places relative to it.
#[derive(Debug)]
pub(super) struct Shape {
    pub width: f64,
    pub height: f64,
    pub content: Content,
    pub inside: Vec<(f64, f64, Shape)>,
}

/// Boxes at their places, and the width and height of all.
type Placed = (Vec<(f64, f64, Shape)>, f64, f64);

/// The outermost boxes.
pub(super) fn layout(machine: &Topology) -> Placed {
    // Numbers of up to three digits all get the same space, so that machines of similar size look
    // alike.
    let digits = machine.possible().last().unwrap_or(0).to_string().len().max(2);
    let cpu_width = digits as f64 * CHARACTER + 8.0;
    let mut shapes: Vec<Shape> =
        blocks(machine).iter().map(|block| block_shape(machine, block, 0, cpu_width)).collect();
    let nowhere = devices_nowhere(machine);
    if !nowhere.is_empty() {
        let label = "devices near no known node";
        shapes.push(framed(Content::Block(label.into(), 0), label, devices(&nowhere)));
    }
    flow(shapes, BLOCK_GAP, ASPECT)
}

fn block_shape(machine: &Topology, block: &Block, depth: usize, cpu_width: f64) -> Shape {
    let mut shapes: Vec<Shape> = block
        .blocks
        .iter()
        .map(|inner| block_shape(machine, inner, depth + 1, cpu_width))
        .collect();
    shapes.extend(block.llcs.iter().map(|llc| llc_shape(machine, *llc, cpu_width)));
    let near = block.devices(machine);
    let mut inside = flow(shapes, BLOCK_GAP, ASPECT);
    if !near.is_empty() {
        inside = below(inside, devices(&near), BLOCK_GAP);
    }
    framed(Content::Block(block.label.clone(), depth), &block.label, inside)
}

/// A box for each device.
fn devices(names: &[String]) -> Placed {
    let shape = |name: String| Shape {
        width: name.chars().count() as f64 * CHARACTER + 12.0,
        height: CPU_HEIGHT,
        content: Content::Device(name),
        inside: Vec::new(),
    };
    let shapes = shown(names, DEVICES_SHOWN).into_iter().map(shape).collect();
    // Wide rows: they are below CPUs.
    flow(shapes, GAP, 4.0 * ASPECT)
}

/// One group of boxes below another.
fn below(
    (mut all, width, height): Placed,
    (lower, lower_width, lower_height): Placed,
    gap: f64,
) -> Placed {
    let top = if all.is_empty() { 0.0 } else { height + gap };
    all.extend(lower.into_iter().map(|(x, y, shape)| (x, y + top, shape)));
    (all, width.max(lower_width), top + lower_height)
}

fn llc_shape(machine: &Topology, llc: usize, cpu_width: f64) -> Shape {
    let cores = machine.llcs()[llc]
        .core_indices
        .iter()
        .map(|core| core_shape(machine, *core, cpu_width))
        .collect();
    let label = cache_label(machine, llc);
    framed(Content::Llc(label.clone()), &label, flow(cores, GAP, ASPECT))
}

fn core_shape(machine: &Topology, core: usize, cpu_width: f64) -> Shape {
    let cpus = machine.cores()[core].cpus.iter();
    let inside: Vec<(f64, f64, Shape)> = cpus
        .enumerate()
        .map(|(place, cpu)| {
            let shape = Shape {
                width: cpu_width,
                height: CPU_HEIGHT,
                content: Content::Cpu(cpu),
                inside: Vec::new(),
            };
            (CORE_PADDING + place as f64 * (cpu_width + 2.0), CORE_PADDING, shape)
        })
        .collect();
    let width = inside.len() as f64 * (cpu_width + 2.0) - 2.0 + 2.0 * CORE_PADDING;
    let kind = if machine.cores()[core].kind.is_some() { KIND_HEIGHT } else { 0.0 };
    Shape {
        width,
        height: CPU_HEIGHT + 2.0 * CORE_PADDING + kind,
        content: Content::Core(core),
        inside,
    }
}

/// A frame with a label above what is inside.
fn framed(content: Content, label: &str, (inside, width, height): Placed) -> Shape {
    let inside = inside
        .into_iter()
        .map(|(x, y, shape)| (x + PADDING, y + LABEL_HEIGHT + 4.0, shape))
        .collect();
    let label_width = label.chars().count() as f64 * CHARACTER;
    let height = height + LABEL_HEIGHT + 4.0 + PADDING;
    Shape { width: width.max(label_width) + 2.0 * PADDING, height, content, inside }
}

/// Rows of equally many shapes, as many in a row as come nearest to the `aspect` wanted.
fn flow(shapes: Vec<Shape>, gap: f64, aspect: f64) -> Placed {
    let size = |columns: usize| {
        let rows = shapes.chunks(columns);
        let widths = rows.clone().map(|row| row.iter().map(|shape| shape.width + gap).sum::<f64>());
        let heights =
            rows.map(|row| row.iter().map(|shape| shape.height).fold(0.0, f64::max) + gap);
        (widths.fold(0.0, f64::max) - gap, heights.sum::<f64>() - gap)
    };
    let badness = |columns: usize| {
        let (width, height) = size(columns);
        // A last row that is not full looks as if something were missing.
        let ragged = if shapes.len().is_multiple_of(columns) { 1.0 } else { 1.4 };
        width.max(height * aspect) * ragged
    };
    let Some(columns) = (1..=shapes.len()).min_by(|a, b| badness(*a).total_cmp(&badness(*b)))
    else {
        return (Vec::new(), 0.0, 0.0);
    };
    let (width, height) = size(columns);
    let mut placed = Vec::with_capacity(shapes.len());
    let (mut x, mut y, mut row_height) = (0.0, 0.0, 0.0_f64);
    for (index, shape) in shapes.into_iter().enumerate() {
        if index > 0 && index % columns == 0 {
            y += row_height + gap;
            (x, row_height) = (0.0, 0.0);
        }
        row_height = row_height.max(shape.height);
        let at = x;
        x += shape.width + gap;
        placed.push((at, y, shape));
    }
    (placed, width, height)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every box lies inside the one around it and overlaps none beside it.
    fn check(inside: &[(f64, f64, Shape)], width: f64, height: f64) -> usize {
        let mut cpus = 0;
        for (index, (x, y, shape)) in inside.iter().enumerate() {
            assert!(
                *x >= 0.0
                    && *y >= 0.0
                    && x + shape.width <= width + 0.01
                    && y + shape.height <= height + 0.01
            );
            for (ox, oy, other) in &inside[..index] {
                let apart = ox + other.width <= *x
                    || x + shape.width <= *ox
                    || oy + other.height <= *y
                    || y + shape.height <= *oy;
                assert!(apart, "{shape:?} {other:?}");
            }
            cpus += usize::from(matches!(shape.content, Content::Cpu(_)));
            cpus += check(&shape.inside, shape.width, shape.height);
        }
        cpus
    }

    #[test]
    fn boxes_do_not_overlap_and_every_cpu_is_drawn_once() {
        for (text, cpus) in [
            ("core:2", 2),
            ("pack:2 numa:2 l3:2 core:4 pu:2", 64),
            ("pack:3 l3:7 core:5 pu:4", 420),
        ] {
            let machine = Topology::from_synthetic(text).unwrap();
            let (shapes, width, height) = layout(&machine);
            assert_eq!(check(&shapes, width, height), cpus);
            assert!((0.5..4.0).contains(&(width / height)), "{text}: {width} x {height}");
        }
    }
}
