//! Tests of `ways`: a file that is read bypassing the page cache.

use super::*;

#[test]
fn every_page_is_found_where_it_was_written() {
    let Ok(disk) = Disk::make(&std::env::temp_dir()) else { return };
    for _ in 0..200 {
        disk.read().unwrap();
    }
    assert!(disk.read_us().unwrap() > 0.0);
}

#[test]
fn the_stride_visits_every_page() {
    assert!(PAGES.is_power_of_two() && STRIDE % 2 == 1);
}

#[test]
fn a_missing_folder_is_named() {
    let error = Disk::make(Path::new("/no such folder")).unwrap_err();
    assert!(error.contains("/no such folder"), "{error}");
}
