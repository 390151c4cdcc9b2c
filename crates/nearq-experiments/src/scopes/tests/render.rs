//! Tests of `render`: the tables of `scopes`, beside the document's figures.

use super::*;

#[test]
fn differences_are_printed_as_the_document_prints_them() {
    // The document's own column "vs. SYSTEM BW (%)".
    assert_eq!(published_cells("HIGH", "system")[2], "0.00");
    assert_eq!(published_cells("HIGH", "cache")[2], "+0.60");
    assert_eq!(published_cells("MED", "cache+local")[2], "-10.46");
    assert_eq!(published_cells("LOW", "cache+strict"), ["828.20 ±4.49", "66.84 ±0.29", "-16.65"]);
    assert_eq!(published_cells("LOW", "cpu+strict")[0], "-");
}
