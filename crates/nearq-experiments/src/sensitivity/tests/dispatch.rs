//! Tests of the conclusions of `dispatch` with an issuer on each CPU.

use super::*;

fn ask(machine: &str) -> Result<Answer, Error> {
    let machine = Machine::named(machine).unwrap();
    (DISPATCH.ask)(&Setting { machine: &machine, parameter: None, seed: 1, quick: true })
}

#[test]
fn the_conclusions_depend_on_the_shape() {
    let names = |machine| -> Vec<String> {
        let answer = ask(machine).unwrap();
        assert!(answer.conclusions.iter().all(|one| one.value > 0.0), "{answer:?}");
        answer.conclusions.into_iter().map(|one| one.name).collect()
    };
    let shards = names("l3:1 core:16");
    assert!(shards.len() == 2 && shards[0].starts_with("cache_shard does"), "{shards:?}");
    assert_eq!(names("l3:2 core:2"), ["cache does at least as many items as system"]);
    let error = DISPATCH.check(&Machine::named("l3:1 core:2").unwrap()).unwrap_err();
    assert!(error.exit_status() == 2 && error.to_string().contains("l3:1 core:2"), "{error}");
}
