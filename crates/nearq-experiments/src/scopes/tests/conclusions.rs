//! Tests of `judgement`: one short run of what the judgements need, with one seed.

use super::*;

#[test]
fn each_parameter_changes_its_part_of_the_work() {
    let plain = Declared::at(3000);
    let with = |name| varied(plain, Some((name, 150)));
    assert_eq!(varied(plain, None), plain);
    assert_eq!(with("item_work").item_percent, plain.item_percent * 3 / 2);
    assert_eq!(with("sha512").sha512_centicycles, plain.sha512_centicycles * 3 / 2);
    assert_eq!(with("generate").generate_centicycles, plain.generate_centicycles * 3 / 2);
    let all = PARAMETERS.map(with);
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
}
