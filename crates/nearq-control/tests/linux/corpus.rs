//! Runs the fuzzer's initial inputs, and changed ones, with the stable compiler, in every run of the tests.

#[path = "../../../../fuzz/corpus.rs"]
mod files;

use crate::common::answering;
use crate::common::speaking::check;
use files::corpus;
use proptest::prelude::*;
use proptest::sample::Index;

#[test]
fn every_file_of_the_corpus_gets_the_expected_answer() {
    let corpus = corpus("calls");
    assert!(corpus.len() >= 20, "{} files", corpus.len());
    for sent in corpus {
        check(&sent, &[sent.len()]);
        check(&sent, &[1, 7, 300]);
    }
}

#[test]
fn every_answer_of_the_corpus_is_accepted_or_refused() {
    let answers = corpus("answers");
    assert!(answers.len() >= 15, "{} files", answers.len());
    for answer in &answers {
        answering::check(answer);
    }
}

/// A change of the bytes that are sent.
#[derive(Clone, Debug)]
enum Change {
    /// A byte becomes another one.
    Flip(Index, u8),
    /// Bytes are inserted.
    Insert(Index, Vec<u8>),
    /// A part is left out.
    Remove(Index, Index),
    /// A part is repeated, once or often.
    Repeat(Index, Index, usize),
    /// The end of another file takes the place of this one's.
    Splice(Index, Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        (index(), any::<u8>()).prop_map(|(at, byte)| Change::Flip(at, byte)),
        (index(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (index(), index()).prop_map(|(one, other)| Change::Remove(one, other)),
        (index(), index(), 2_usize..200)
            .prop_map(|(one, other, times)| Change::Repeat(one, other, times)),
        (index(), index(), index()).prop_map(|(file, at, from)| Change::Splice(file, at, from)),
    ]
}

fn apply(change: &Change, mut sent: Vec<u8>, corpus: &[Vec<u8>]) -> Vec<u8> {
    let length = sent.len() + 1;
    let range = |one: &Index, other: &Index| {
        let (one, other) = (one.index(length), other.index(length));
        one.min(other)..one.max(other)
    };
    match change {
        Change::Flip(at, byte) => {
            if !sent.is_empty() {
                let at = at.index(sent.len());
                sent[at] = *byte;
            }
        }
        Change::Insert(at, bytes) => {
            let at = at.index(length);
            sent.splice(at..at, bytes.iter().copied());
        }
        Change::Remove(one, other) => {
            sent.drain(range(one, other));
        }
        Change::Repeat(one, other, times) => {
            let range = range(one, other);
            let part = sent[range.clone()].repeat(*times);
            sent.splice(range, part);
        }
        Change::Splice(file, at, from) => {
            let other = &corpus[file.index(corpus.len())];
            sent.truncate(at.index(length));
            sent.extend(&other[from.index(other.len() + 1)..]);
        }
    }
    // As long as two calls that are too long.
    sent.truncate(150_000);
    sent
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn mutated_calls_get_valid_answers(
        file in any::<Index>(),
        changes in prop::collection::vec(change(), 0..6),
        lengths in prop::collection::vec(1_usize..5000, 1..4),
    ) {
        let corpus = corpus("calls");
        let first = file.index(corpus.len());
        let sent = changes
            .iter()
            .fold(corpus[first].clone(), |sent, change| apply(change, sent, &corpus));
        check(&sent, &lengths);
    }
}
