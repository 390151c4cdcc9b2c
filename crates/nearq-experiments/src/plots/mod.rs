//! Pictures of results, as SVG.

pub mod bars;
pub mod curves;
pub mod heat;
