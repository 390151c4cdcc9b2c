//! Tests of `payload`: the work of a run on a simulated machine.

use super::*;
use nearq_platform::LockPlatform as _;
use nearq_sim::Simulation;
use nearq_topology::Topology;

fn simulated<R: 'static>(program: impl FnOnce() -> R + 'static) -> R {
    Simulation::new(Topology::from_synthetic("core:2").unwrap(), 1).run(program).expect()
}

#[test]
fn costs_follow_from_the_inputs() {
    let costs = Declared::at(3800);
    assert_eq!(costs.hash().as_nanos(), 32768 * 7250 / 3800);
    assert_eq!(costs.generate().as_nanos(), 32768 * 440 / 3800);
    let issuer = costs.generate() + 2 * costs.hash();
    assert_eq!(costs.item() * 2, issuer * 4, "two items, four times the issuer's work");
    let speeds = costs.speeds();
    let ratio = speeds.items_us_per_block() / speeds.issuer_us_per_block();
    assert!((ratio - 4.0).abs() < 1e-9, "{ratio}");
}

#[test]
fn a_block_verifies_if_each_item_ran_once_on_it() {
    simulated(|| {
        let mut blocks = Declared::at(3000).blocks(5);
        let cipher = blocks.cipher();
        let mut data = Buffer::new();
        let before = Sim::now();
        let proof = blocks.generate(&mut data);
        assert!(Sim::now() - before >= Declared::at(3000).hash(), "work takes time");
        let check = |twice: usize, once: usize, sector: u64, data: &mut Buffer| {
            set_word(data, proof);
            (0..twice).for_each(|_| cipher.encrypt(data, 64));
            (0..once).for_each(|_| cipher.decrypt(data, sector));
            blocks.verify(data, &proof)
        };
        assert!(check(1, 1, 64, &mut data));
        for (encrypted, decrypted, sector) in
            [(1, 0, 64), (0, 1, 64), (2, 1, 64), (1, 2, 64), (1, 1, 128)]
        {
            assert!(
                !check(encrypted, decrypted, sector, &mut data),
                "{encrypted} {decrypted} {sector}"
            );
        }
        assert_ne!(blocks.generate(&mut data), proof, "the next block is another one");
    });
}
