//! Tests which texts are accepted, how values are shown, and the text of each refusal.

use nearq_topology::{AffinityScope, CpuSet, MAX_CPU_COUNT};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;

fn cpus(text: &str) -> Result<String, String> {
    parse_cpus(text).map(|cpus| cpus.map_or_else(|| "all".to_owned(), |cpus| cpus.to_list()))
}

#[test]
fn plain_cpu_values_are_lists_and_masks_are_recognized() {
    for (text, list) in [
        ("0-3,8", "0-3,8"),
        ("10", "10"),
        ("00010", "10"),
        ("0-31:2/4", "0-1,4-5,8-9,12-13,16-17,20-21,24-25,28-29"),
        ("0x10", "4"),
        ("0xff,00000001", "0,32-39"),
        ("0x1ffffffff", "0-32"),
        ("00000010", "4"),
        ("000000ff\n", "0-7"),
        ("000000ff,ffffffff", "0-39"),
        ("f,00000000", "32-35"),
        // Eight digits are not a CPU, so a list cannot have been meant.
        ("1,00000001", "0,32"),
        ("1,0000001", "1"),
        ("0-3,8 (0000010f)", "0-3,8"),
        ("0(0x1)", "0"),
        ("", "all"),
        (" \n", "all"),
        ("all", "all"),
    ] {
        assert_eq!(cpus(text).as_deref(), Ok(list), "{text}");
    }
}

#[test]
fn impossible_cpus_are_refused_with_what_is_allowed() {
    for (text, why) in [
        ("ff", "not a number or a range of numbers; give a list of CPUs such as"),
        ("0,x", "\"x\": not a number or a range of numbers; give"),
        ("3-1", "runs backwards"),
        ("99999", "must be below 65536"),
        ("0x", "not a hexadecimal number"),
        ("0xg", "not a hexadecimal number"),
        ("0x1,123456789", "more than 8 digits"),
        ("0x0", "it names no CPU"),
        ("00000000,00000000", "it names no CPU"),
        ("0-3:0/4", "it names no CPU"),
        ("0-3 (1)", "different CPUs"),
        ("0-3 (f", "not a number"),
        ("All", "not a number"),
    ] {
        let error = cpus(text).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
        assert!(error.ends_with(CPUS), "{text}: {error}");
    }
    let huge = format!("0x1{}", "0".repeat(65536 / 4));
    assert!(cpus(&huge).unwrap_err().starts_with("longer than"));
    let large = format!("0x1{}", "0".repeat(65536 / 4 - 4));
    assert_eq!(cpus(&large).as_deref(), Ok("65520"));
    let endless = "0-65535,".repeat(8 * 1024);
    assert!(cpus(&endless).unwrap_err().starts_with("longer than"));
}

#[test]
fn cpus_are_shown_as_a_list_and_as_a_kernel_mask() {
    let shown = |list: &str| show_cpus(&CpuSet::parse_list(list).unwrap());
    assert_eq!(shown("0-3,8"), "0-3,8 (0000010f)");
    assert_eq!(shown("0-31"), "0-31 (ffffffff)");
    assert_eq!(shown("0,64"), "0,64 (00000001,00000000,00000001)");
    assert_eq!(shown(""), "none");
}

#[test]
fn switches_are_numbers_or_words() {
    for text in ["1", "on", "yes", "true", "ON", "7", "-1", "+2", " 1\n", "99999999999999999999999"]
    {
        assert_eq!(parse_switch(text), Ok(true), "{text}");
    }
    for text in ["0", "off", "no", "False", "-0", "000"] {
        assert_eq!(parse_switch(text), Ok(false), "{text}");
    }
    for text in ["", "-", "enabled", "1x", "0.5", "0x1"] {
        let error = parse_switch(text).unwrap_err();
        assert!(error.ends_with("give 0, off, no or false, or 1, on, yes or true"), "{text}");
    }
}

#[test]
fn numbers_have_bounds() {
    assert_eq!(parse_nice("-20"), Ok(-20));
    assert_eq!(parse_nice(" 19\n"), Ok(19));
    for text in ["-21", "20", "", "x", "1.5"] {
        assert!(parse_nice(text).unwrap_err().contains("from -20 (most favoured) to 19"), "{text}");
    }
    assert_eq!(parse_number("0", 0..=2048, ""), Ok(0));
    for text in ["2049", "-1", "", "99999999999999999999", "1e3"] {
        let error = parse_number(text, 0..=2048, "").unwrap_err();
        assert_eq!(error, "not allowed; give a whole number from 0 to 2048", "{text}");
    }
}

#[test]
fn scope_names_must_match_exactly() {
    assert_eq!(parse_scope("default", true), Ok(None));
    assert_eq!(parse_scope("cache_shard\n", false), Ok(Some(AffinityScope::CacheShard)));
    for (text, allowed) in [("Cache", true), ("cach", true), ("default (cache)", true), ("", true)]
    {
        assert!(
            parse_scope(text, allowed)
                .unwrap_err()
                .ends_with("one of default, cpu, smt, cache_shard, cache, numa, system"),
            "{text}"
        );
    }
    assert!(parse_scope("default", false).unwrap_err().contains("give one of cpu, smt"));
}

#[test]
fn words_are_parsed_by_their_index() {
    assert_eq!(parse_word("plain", &["off", "auto", "plain"]), Ok(2));
    assert_eq!(
        parse_word("Plain", &["off", "plain"]).unwrap_err(),
        "not allowed; give one of off, plain"
    );
}

fn some_cpus() -> impl Strategy<Value = CpuSet> {
    prop_oneof![btree_set(0_usize..100, 1..60), btree_set(0..MAX_CPU_COUNT, 1..2000)]
        .prop_map(|cpus| cpus.into_iter().collect())
}

proptest! {
    #[test]
    fn shown_values_can_be_parsed(cpus in some_cpus()) {
        for text in [show_cpus(&cpus), show_mask(&cpus), cpus.to_list()] {
            prop_assert_eq!(parse_cpus(&text), Ok(Some(cpus.clone())), "{}", text);
        }
        let one_word = format!("0x{}", show_mask(&cpus).replace(',', ""));
        prop_assert_eq!(parse_cpus(&one_word), Ok(Some(cpus)), "{}", one_word);
    }

    #[test]
    fn shown_numbers_and_scopes_can_be_parsed(nice in -20_i32..20, number in 0_u64..5000, scope in 0_usize..6) {
        prop_assert_eq!(parse_nice(&nice.to_string()), Ok(nice));
        prop_assert_eq!(parse_number(&number.to_string(), 16..=2048, "").is_ok(), (16..=2048).contains(&number));
        let scope = AffinityScope::ALL[scope];
        prop_assert_eq!(parse_scope(scope.name(), false), Ok(Some(scope)));
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in prop_oneof![".{0,40}", "[-0-9a-fx,:/() ]{0,60}", vec("[0-9a-f]{0,9}", 0..6).prop_map(|words| words.join(","))]) {
        let refused = [
            parse_cpus(&text).err(),
            parse_switch(&text).err(),
            parse_nice(&text).err(),
            parse_scope(&text, true).err(),
            parse_number(&text, 1..=9, "CPUs").err(),
            parse_word(&text, &["a", "b"]).err(),
        ];
        for refusal in refused.into_iter().flatten() {
            prop_assert!(refusal.contains("give "), "{}", refusal);
        }
    }
}
