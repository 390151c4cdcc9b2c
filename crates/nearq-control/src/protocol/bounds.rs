//! How much of an answer is accepted: a process may send anything, and the client must stay small and quick.
//!
//! A text that is too long is cut; a list that is too long makes the answer invalid.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use nearq_topology::safe_text;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Bytes of a queue's name, and of every other name, that are read of an answer. The rest is cut.
pub const LONGEST_NAME: usize = 256;
/// Bytes of a function's name or a sentence that are read of an answer. The rest is cut.
pub const LONGEST_TEXT: usize = 4096;
/// Bytes of a setting's value or a list of CPUs that are read of an answer: 8192 CPUs, written in the longest way, take a
/// third of that.
pub const LONGEST_LIST: usize = 64 << 10;
/// Queues, pools, items or events in one answer.
pub const MOST_ROWS: usize = 1 << 16;
/// CPUs, pods of a scope, and the counts of a queue's limit.
pub(super) const MOST_CPUS: usize = 1 << 14;
/// Classes of a histogram: four times as many as there are.
pub(super) const MOST_BUCKETS: usize = 1 << 12;
/// Nodes: as many as Linux knows.
pub(super) const MOST_NODES: usize = 1 << 10;
/// Scopes, of which there are six, weights of homes, and settings of one owner.
pub(super) const MOST_FEW: usize = 256;

/// A name.
pub(super) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(CutText(LONGEST_NAME))
}

/// A sentence.
pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(CutText(LONGEST_TEXT))
}

/// A list of CPUs, or a value.
pub(super) fn list<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(CutText(LONGEST_LIST))
}

/// At most `MOST` of something.
pub(super) fn most<'de, const MOST: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(BoundedVec::<MOST, T>(PhantomData))
}

/// At most `MOST` names.
pub(super) fn names<'de, const MOST: usize, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<String>, D::Error> {
    let names: Vec<Name> = most::<MOST, _, _>(from)?;
    Ok(names.into_iter().map(|Name(name)| name).collect())
}

/// At most `MOST` of something, by name.
pub(super) fn by_name<'de, const MOST: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    from.deserialize_map(BoundedMap::<MOST, T>(PhantomData))
}

/// A name in a list, or of an entry.
#[derive(Deserialize)]
struct Name(#[serde(deserialize_with = "name")] String);

/// The beginning of a text.
struct CutText(usize);

impl Visitor<'_> for CutText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(safe_text::beginning(text, self.0).to_owned())
    }
}

struct BoundedVec<const MOST: usize, T>(PhantomData<T>);

impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for BoundedVec<MOST, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(next) = from.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            list.push(next);
        }
        Ok(list)
    }
}

struct BoundedMap<const MOST: usize, T>(PhantomData<T>);

impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for BoundedMap<MOST, T> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table of at most {MOST}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut table = BTreeMap::new();
        while let Some((Name(name), next)) = from.next_entry()? {
            table.insert(name, next);
            if table.len() > MOST {
                return Err(A::Error::invalid_length(table.len(), &self));
            }
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Dump, Histogram, QueueDump, Refusal, Statistics, TracedQueue};
    use super::*;
    use serde_json::{from_str, json};

    #[test]
    fn names_are_cut_between_characters() {
        let queue: TracedQueue = from_str(&json!({"id": 1, "name": "ö".repeat(1000)}).to_string())
            .expect("it is understood");
        assert_eq!(queue.name, "ö".repeat(LONGEST_NAME / 2));
    }

    #[test]
    fn names_in_lists_and_tables_are_cut_too() {
        let long = "x".repeat(10 * LONGEST_NAME);
        let mut dump = serde_json::to_value(Dump::default()).unwrap();
        dump["home_weights"] = json!({&long: 7});
        let dump: Dump = from_str(&dump.to_string()).unwrap();
        assert_eq!(dump.home_weights, [("x".repeat(LONGEST_NAME), 7)].into());
        for (error, text, list) in [
            ("NoSuchQueue", "queue", "queues"),
            ("Ambiguous", "queue", "numbers"),
            ("NoSuchKey", "key", "keys"),
        ] {
            let refusal = json!({"error": error, "parameters": {text: "", list: vec![&long; 20]}});
            let refusal: Refusal = from_str(&refusal.to_string()).unwrap();
            assert!(refusal.to_string().len() < 13 * LONGEST_NAME, "{error}: {refusal}");
        }
    }

    #[test]
    fn answers_with_overlong_lists_are_rejected() {
        let counts = |count: usize| json!({"samples": 0, "sum_ns": 0, "below_ns": vec![0; count], "counts": []});
        assert!(from_str::<Histogram>(&counts(MOST_BUCKETS).to_string()).is_ok());
        let refused = from_str::<Histogram>(&counts(MOST_BUCKETS + 1).to_string()).unwrap_err();
        assert!(refused.to_string().contains("a list of at most 4096"), "{refused}");
        let pools = vec![0; MOST_CPUS + 1];
        let queue = json!({"id": 0, "name": "", "kind": "", "cpu_pool": pools, "cpus": "",
            "max_active": 0, "min_active": 0, "limits": []});
        assert!(from_str::<QueueDump>(&queue.to_string()).is_err());
        let mut dump = serde_json::to_value(Dump::default()).unwrap();
        dump["nodes"] = json!(vec![json!({"id": 0, "cpus": ""}); MOST_NODES + 1]);
        assert!(from_str::<Dump>(&dump.to_string()).is_err());
        let weights = |count| {
            let mut dump = serde_json::to_value(Dump::default()).unwrap();
            let weights = (0..count).map(|number| (number.to_string(), json!(0)));
            dump["home_weights"] = json!(weights.collect::<BTreeMap<_, _>>());
            from_str::<Dump>(&dump.to_string())
        };
        assert!(weights(MOST_FEW).is_ok());
        let refused = weights(MOST_FEW + 1).unwrap_err();
        assert!(refused.to_string().contains("a table of at most 256"), "{refused}");
        let mut all = serde_json::to_value(Statistics::default()).unwrap();
        all["pods"] = json!(vec![0; MOST_ROWS + 1]);
        assert!(from_str::<Statistics>(&all.to_string()).is_err());
    }
}
