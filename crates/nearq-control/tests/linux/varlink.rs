//! Checks that other implementations understand the protocol: an independent client, the interface's description, and `varlinkctl` if it is
//! installed.

use std::collections::BTreeMap;
use std::future::Future;
use std::process::Command;

use crate::common::{Folder, Shared, serve, until};
use crate::skipped::skipped;
use nearq_control::protocol::{
    Access, AdaptiveLock, Bucket, Dump, DumpReply, GetDump, GetProcess, GetSettings, GetStatistics,
    Histogram, HomeDump, Keep, KeepReply, Locks, MachineNode, NodeHomes, NodeLimit, PodDump,
    PodStatistics, PoolDump, Process, ProcessReply, ProcessSettings, QueueDump, QueueSettings,
    QueueStatistics, Refusal, Request, RescuerDump, RowedLock, RunningItem, ScopeDump, Set,
    Setting, Settings, SettingsReply, Statistics, StatisticsReply, Trace, TraceBatch, TraceEvent,
    TraceKind, TracedQueue, WaitingItems,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zlink::idl::{CustomType, Field, Interface, Type};
use zlink::varlink_service::Proxy as _;

const DESCRIPTION: &str = include_str!("../../nearq.control1.varlink");

/// One value of every type, with no field left out: a field that is added to a type must be added here.
mod samples {
    use super::*;

    fn text() -> String {
        "text".into()
    }

    pub(crate) fn process() -> ProcessReply {
        let process = Process {
            pid: 1,
            command: text(),
            version: text(),
            control: Access::Read,
            allowed: Access::Full,
            since_ns: 1,
            runtime: true,
            queues: 1,
            workers: 1,
        };
        ProcessReply { process }
    }

    fn histogram() -> Histogram {
        Histogram { samples: 1, sum_ns: 1, buckets: vec![Bucket { below_ns: 1, count: 1 }] }
    }

    pub(crate) fn statistics() -> StatisticsReply {
        let queue = QueueStatistics {
            id: 1,
            name: text(),
            kind: text(),
            scope: text(),
            started: 1,
            completed: 1,
            panicked: 1,
            running: 1,
            waiting: 1,
            inactive: 1,
            cpu_ns: 1,
            cpu_intensive: 1,
            concurrency_wakeups: 1,
            repatriated: 1,
            helped: 1,
            rescuer: true,
            mayday: 1,
            rescued: 1,
            at_home: 1,
            away: 1,
            thieves: 1,
            stolen: 1,
            max_active: 1,
            wait: Some(histogram()),
            run: Some(histogram()),
        };
        let pod = PodStatistics {
            pool: 1,
            cpus: text(),
            nice: -1,
            workers: 1,
            idle: 1,
            ready: 1,
            completed: 1,
            cpu_ns: 1,
        };
        let statistics = Statistics {
            at_ns: 1,
            cpu_ns: 1,
            control_cpu_ns: 1,
            workers: 1,
            idle: 1,
            parallelism: 1,
            timing: true,
            samples: 1,
            queues: vec![queue],
            pods: vec![pod],
        };
        StatisticsReply { statistics }
    }

    fn locks() -> Locks {
        Locks {
            mode: text(),
            counting: true,
            slots_used: 1,
            slots: 1,
            contended: 1,
            in_turn: 1,
            within: 1,
            across: 1,
            switched: 1,
            switched_back: 1,
            slept_in_turn: 1,
            slept_in_queue: 1,
            gave_up: 1,
            adaptive: vec![AdaptiveLock { slot: 1, held: true, caches: 1 }],
            rwlocks: vec![RowedLock { row: 1, readers: 1 }],
        }
    }

    fn pool() -> PoolDump {
        PoolDump {
            id: 1,
            references: 1,
            nice: 1,
            idle_class: true,
            slice_ns: 1,
            workers: 1,
            idle: 1,
            per_cpu: true,
            strict: true,
            no_helping: true,
            cpus: text(),
            pod_cpus: text(),
            ready: 1,
        }
    }

    fn queue() -> QueueDump {
        QueueDump {
            id: 1,
            name: text(),
            kind: text(),
            cpu_pool: vec![-1],
            cpus: text(),
            max_active: 1,
            min_active: 1,
            limits: vec![NodeLimit {
                domain: text(),
                number: -1,
                active: 1,
                limit: 1,
                inactive: 1,
            }],
            home: Some(HomeDump { node: -1, follows: true, why: text() }),
            memory: text(),
            at_home: 1,
            away: 1,
            rescuer: Some(RescuerDump { thread: 1, cpus: text() }),
        }
    }

    pub(crate) fn dump() -> DumpReply {
        let scope = ScopeDump {
            name: text(),
            default: true,
            pods: vec![PodDump { cpus: text(), node: -1 }],
            cpu_pod: vec![-1],
        };
        let running = RunningItem {
            queue: text(),
            queue_id: 1,
            function: text(),
            description: text(),
            worker: text(),
            thread: 1,
            pool: 1,
            rescuer: true,
            at_most_ns: 1,
        };
        let waiting = WaitingItems {
            queue: text(),
            queue_id: 1,
            pool: 1,
            function: text(),
            count: 1,
            inactive: true,
            oldest_ns: 1,
        };
        let dump = Dump {
            at_ns: 1,
            allowed: text(),
            online: text(),
            possible: text(),
            scopes: vec![scope],
            pools: vec![pool()],
            queues: vec![queue()],
            nodes: vec![MachineNode { id: 1, cpus: text() }],
            running: vec![running],
            waiting: vec![waiting],
            more_waiting: true,
            homes: vec![NodeHomes { node: 1, cpus: text(), homes: 1, others: 1 }],
            home_weights: [(text(), 1)].into(),
            locks: Some(locks()),
        };
        DumpReply { dump }
    }

    pub(crate) fn settings() -> SettingsReply {
        let setting =
            || Setting { key: text(), configured: text(), effective: text(), writable: true };
        let settings = Settings {
            process: Some(ProcessSettings { settings: vec![setting()] }),
            queues: vec![QueueSettings { id: 1, name: text(), settings: vec![setting()] }],
        };
        SettingsReply { settings }
    }

    pub(crate) fn batch() -> TraceBatch {
        let event = TraceEvent {
            at_ns: 1,
            kind: TraceKind::Start,
            queue: 1,
            item: 1,
            function: text(),
            cpu: 1,
            thread: 1,
            pool: 1,
            took_ns: 1,
        };
        TraceBatch {
            queues: vec![TracedQueue { id: 1, name: text() }],
            events: vec![event],
            dropped: 1,
            every: 1,
        }
    }

    pub(crate) fn set() -> Set {
        let changes = BTreeMap::from([(text(), text())]);
        Set { queue: Some(text()), changes, until_closed: true }
    }

    pub(crate) fn refusals() -> Vec<Refusal> {
        let (list, why) = (|| vec![text()], text);
        let all = vec![
            Refusal::NoSuchQueue { queue: text(), queues: list() },
            Refusal::Ambiguous { queue: text(), numbers: list() },
            Refusal::NoSuchKey { key: text(), keys: list() },
            Refusal::BadValue { key: text(), value: text(), why: why() },
            Refusal::NotPermitted { why: why() },
            Refusal::NotHere { why: why() },
            Refusal::Busy { why: why() },
            Refusal::BadCall { why: why() },
            Refusal::Failed { why: why() },
        ];
        for refusal in &all {
            // A new variant does not compile here; it belongs in the list above, too.
            match refusal {
                Refusal::NoSuchQueue { .. }
                | Refusal::Ambiguous { .. }
                | Refusal::NoSuchKey { .. }
                | Refusal::BadValue { .. }
                | Refusal::NotPermitted { .. }
                | Refusal::NotHere { .. }
                | Refusal::Busy { .. }
                | Refusal::BadCall { .. }
                | Refusal::Failed { .. } => {}
            }
        }
        all
    }
}

/// Compares a value with the fields that are described, by name and type, in both directions.
fn compare<'a>(
    interface: &Interface<'_>,
    place: &str,
    fields: impl Iterator<Item = &'a Field<'a>>,
    value: &Value,
) {
    let value = value.as_object().unwrap_or_else(|| panic!("{place} is no object"));
    let mut described = Vec::new();
    for field in fields {
        let (name, place) = (field.name().to_string(), format!("{place}.{}", field.name()));
        let value = value.get(&name).unwrap_or_else(|| panic!("{place} is described and missing"));
        compare_type(interface, &place, field.ty(), value);
        assert!(field.comments().next().is_some(), "{place} has no comment");
        described.push(name);
    }
    for name in value.keys() {
        assert!(described.contains(name), "{place}.{name} is not described");
    }
}

fn compare_type(interface: &Interface<'_>, place: &str, described: &Type<'_>, value: &Value) {
    match described {
        Type::Bool => assert!(value.is_boolean(), "{place} is no bool"),
        Type::Int => assert!(value.is_i64() || value.is_u64(), "{place} is no int"),
        Type::String => assert!(value.is_string(), "{place} is no string"),
        Type::Optional(inner) => compare_type(interface, place, inner, value),
        Type::Array(inner) => {
            let values = value.as_array().unwrap_or_else(|| panic!("{place} is no array"));
            assert!(!values.is_empty(), "{place}: the sample is empty");
            for value in values {
                compare_type(interface, place, inner, value);
            }
        }
        Type::Map(inner) => {
            let values = value.as_object().unwrap_or_else(|| panic!("{place} is no map"));
            for value in values.values() {
                compare_type(interface, place, inner, value);
            }
        }
        Type::Custom(name) => {
            let named = interface.custom_types().find(|custom| custom.name() == name);
            match named.unwrap_or_else(|| panic!("{place}: there is no type {name}")) {
                CustomType::Object(object) => compare(interface, place, object.fields(), value),
                CustomType::Enum(words) => {
                    let known = words.variants().any(|word| *value == word.name().to_string());
                    assert!(known, "{place}: {value} is not described");
                }
            }
        }
        other => panic!("{place}: {other} is not used here"),
    }
}

#[test]
fn the_description_has_every_method_and_every_field() {
    let interface: Interface<'_> = DESCRIPTION.try_into().expect("it can be parsed");
    assert_eq!(interface.name().to_string(), nearq_control::protocol::INTERFACE);
    fn sample<R: Request>(request: R, reply: impl Serialize) -> (&'static str, Value, Value) {
        let value = |value: &dyn erased::Value| value.value();
        (R::METHOD, value(&request), value(&reply))
    }
    let text = || Some("text".to_owned());
    let methods = [
        sample(GetProcess {}, samples::process()),
        sample(GetStatistics { timing: true }, samples::statistics()),
        sample(GetDump { items: true, locks: true }, samples::dump()),
        sample(GetSettings { queue: text() }, samples::settings()),
        sample(samples::set(), samples::settings()),
        sample(Keep {}, KeepReply {}),
        sample(Trace { queue: text(), every: Some(1) }, samples::batch()),
    ];
    for method in interface.methods() {
        let name = method.name().to_string();
        assert!(method.comments().next().is_some(), "{name} has no comment");
        let known = methods.iter().find(|(known, ..)| *known == name);
        let (_, request, reply) = known.unwrap_or_else(|| panic!("there is no method {name}"));
        compare(&interface, &name, method.inputs(), request);
        compare(&interface, &name, method.outputs(), reply);
    }
    assert_eq!(interface.methods().count(), methods.len());
    let refusals = samples::refusals();
    for refusal in &refusals {
        let value = serde_json::to_value(refusal).unwrap();
        let name = value["error"].as_str().unwrap();
        let error = interface.errors().find(|error| *error.name() == name);
        let error = error.unwrap_or_else(|| panic!("{name} is not described"));
        assert!(error.comments().next().is_some(), "{name} has no comment");
        compare(&interface, name, error.fields(), &value["parameters"]);
    }
    assert_eq!(interface.errors().count(), refusals.len());
}

mod erased {
    pub(crate) trait Value {
        fn value(&self) -> serde_json::Value;
    }

    impl<T: serde::Serialize> Value for T {
        fn value(&self) -> serde_json::Value {
            serde_json::to_value(self).unwrap()
        }
    }
}

#[test]
fn all_enumeration_values_are_described() {
    let interface: Interface<'_> = DESCRIPTION.try_into().unwrap();
    let words = |name: &str| -> Vec<String> {
        let custom = interface.custom_types().find(|custom| *custom.name() == name);
        let words = custom.unwrap().as_enum().unwrap();
        words.variants().map(|word| word.name().to_string()).collect()
    };
    // Each belongs to the interface, and none is missing.
    let access: Vec<Access> = words("Access").iter().map(|word| word.parse().unwrap()).collect();
    assert_eq!(access, [Access::Off, Access::Read, Access::Full]);
    for (access, word) in access.into_iter().zip(words("Access")) {
        let process = Process { control: access, ..samples::process().process };
        let sent = serde_json::to_value(&process).unwrap();
        assert_eq!(sent["control"], Value::from(word));
        assert_eq!(serde_json::from_value::<Process>(sent).unwrap().control, access);
    }
    let kinds = words("TraceKind").into_iter().map(Value::from);
    let kinds: Vec<TraceKind> = kinds.map(|word| serde_json::from_value(word).unwrap()).collect();
    assert_eq!(kinds, [TraceKind::Queue, TraceKind::Start, TraceKind::End]);
    for kind in kinds {
        match kind {
            TraceKind::Queue | TraceKind::Start | TraceKind::End => {}
        }
    }
}

/// The interface as declared for `zlink`: written as a user of `zlink` would write it, from the description alone.
#[zlink::proxy("nearq.control1")]
trait Control {
    async fn get_process(&mut self) -> zlink::Result<Result<ForeignProcess, ForeignError>>;
    async fn get_settings(
        &mut self,
        queue: Option<&str>,
    ) -> zlink::Result<Result<Value, ForeignError>>;
    async fn set(
        &mut self,
        queue: Option<&str>,
        changes: BTreeMap<&str, &str>,
        until_closed: Option<bool>,
    ) -> zlink::Result<Result<Value, ForeignError>>;
}

#[derive(Debug, Deserialize)]
struct ForeignProcess {
    process: ForeignProcessFields,
}

#[derive(Debug, Deserialize)]
struct ForeignProcessFields {
    pid: u32,
    allowed: String,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "error", content = "parameters")]
enum ForeignError {
    #[serde(rename = "nearq.control1.NoSuchQueue")]
    NoSuchQueue { queue: String, queues: Vec<String> },
    #[serde(rename = "nearq.control1.NotPermitted")]
    NotPermitted { why: String },
}

#[derive(Debug, Serialize)]
#[serde(tag = "method", content = "parameters")]
enum ForeignTrace {
    #[serde(rename = "nearq.control1.Trace")]
    Trace { every: u32 },
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().build().unwrap().block_on(future)
}

#[test]
fn an_independent_varlink_client_works() {
    let (folder, shared) = (Folder::new("zlink"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    block_on(async {
        let mut connection = zlink::tokio::unix::connect(server.path()).await.unwrap();
        let info = connection.get_info().await.unwrap().unwrap();
        assert_eq!(info.product, "nearq");
        let interfaces: Vec<String> = info.interfaces.iter().map(ToString::to_string).collect();
        assert_eq!(interfaces, ["org.varlink.service", "nearq.control1"]);
        for name in interfaces {
            let wanted = name.as_str().try_into().unwrap();
            let description = connection.get_interface_description(wanted).await.unwrap().unwrap();
            assert_eq!(description.parse().unwrap().name().to_string(), name);
        }
        let process = connection.get_process().await.unwrap().unwrap().process;
        assert_eq!((process.pid, process.allowed.as_str()), (std::process::id(), "full"));
        let changes = BTreeMap::from([("nice", "7")]);
        connection.set(Some("crypt"), changes, Some(true)).await.unwrap().unwrap();
        assert_eq!(shared.value("crypt", "nice"), "7");
        let error = connection.get_settings(Some("nobody")).await.unwrap().unwrap_err();
        let ForeignError::NoSuchQueue { queue, queues } = error else { panic!("{error:?}") };
        assert_eq!((queue.as_str(), queues), ("nobody", vec!["crypt".to_owned()]));
        let call = zlink::Call::new(ForeignTrace::Trace { every: 4 }).set_more(true);
        connection.send_call(&call, Vec::new()).await.unwrap();
        for _ in 0..3 {
            let (reply, _) = connection.receive_reply::<Value, ForeignError>().await.unwrap();
            let reply = reply.unwrap();
            assert_eq!(reply.continues(), Some(true));
            assert_eq!(reply.parameters().unwrap()["events"].as_array().unwrap().len(), 3);
        }
    });
    until("the settings are restored", || {
        shared.value("crypt", "nice") == "0" && shared.world().traces == 0
    });
}

#[test]
fn a_read_only_client_learns_how_to_get_more_rights() {
    let call =
        "{\"method\":\"nearq.control1.Set\",\"parameters\":{\"changes\":{\"spin\":\"1\"}}}\0";
    let shared = Shared::new();
    let mut answer =
        nearq_control::server::converse(shared.target(), Access::Read, [call.as_bytes()]);
    assert_eq!(answer.pop(), Some(0));
    let error: ForeignError = serde_json::from_slice(&answer).unwrap();
    let ForeignError::NotPermitted { why } = error else { panic!("{error:?}") };
    assert!(why.contains("NEARQ_CONTROL=full"), "{why}");
    assert_eq!(shared.value("", "spin"), "512");
}

#[test]
fn varlinkctl_works() {
    if Command::new("varlinkctl").arg("--version").output().is_err() {
        return skipped("varlinkctl", "it is not installed", "systemd 257 or newer");
    }
    let (folder, shared) = (Folder::new("varlinkctl"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let path = server.path().to_str().unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new("varlinkctl").args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&["info", path]).contains("nearq.control1"));
    assert!(run(&["introspect", path, "nearq.control1"]).contains("method GetProcess"));
    let answer = run(&["call", "--json=short", path, "nearq.control1.GetProcess", "{}"]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["process"]["pid"], std::process::id());
}
