//! Clients and a server over real sockets: what is asked, answered, refused and taken back.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

mod common;

use std::collections::BTreeMap;
use std::io::Write;

use common::{Folder, Raw, Shared, serve, until};
use nearq_control::client::{Client, ClientError};
use nearq_control::protocol::{
    Access, GetDump, GetProcess, GetSettings, GetStatistics, Keep, Refusal, Set, Trace,
};

fn set(queue: Option<&str>, changes: &[(&str, &str)], until_closed: bool) -> Set {
    let changes: BTreeMap<_, _> =
        changes.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    Set { queue: queue.map(str::to_owned), changes, until_closed }
}

#[test]
fn each_call_has_its_answer() {
    let (folder, shared) = (Folder::new("each"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut client = Client::connect_to(server.path()).unwrap();
    let process = client.call(&GetProcess {}).unwrap().process;
    assert_eq!((process.pid, process.control), (std::process::id(), Access::Full));
    assert_eq!(process.allowed, Access::Full);
    let statistics = client.call(&GetStatistics::default()).unwrap().statistics;
    assert_eq!(statistics.queues.len(), 2);
    assert!(statistics.control_cpu_ns > 0);
    assert_eq!(client.call(&GetDump::default()).unwrap().dump.allowed, "0-3");
    let settings = client.call(&GetSettings::default()).unwrap().settings;
    assert_eq!(settings.process.unwrap().settings.len(), 2);
    let changed = client.call(&set(Some("crypt"), &[("nice", "5")], false)).unwrap().settings;
    assert_eq!(changed.queues[0].settings[2].configured, "5");
    client.call(&Keep {}).unwrap();
}

#[test]
fn a_trace_tells_until_it_is_closed() {
    let (folder, shared) = (Folder::new("trace"), Shared::new());
    let server = serve(&folder, &shared, Access::Read);
    let client = Client::connect_to(server.path()).unwrap();
    let mut batches = client.stream(&Trace::default()).unwrap();
    let mut seen = 0;
    while seen < 30 {
        let batch = batches.next().unwrap().unwrap();
        assert_eq!(batch.events[0].at_ns, seen);
        seen += batch.events.len() as u64;
    }
    assert_eq!(shared.world().traces, 1);
    drop(batches);
    until("the trace has ended", || shared.world().traces == 0);
}

#[test]
fn items_are_timed_while_somebody_wants_it() {
    let (folder, shared) = (Folder::new("timing"), Shared::new());
    let server = serve(&folder, &shared, Access::Read);
    let mut one = Client::connect_to(server.path()).unwrap();
    let mut other = Client::connect_to(server.path()).unwrap();
    for client in [&mut one, &mut other] {
        for _ in 0..2 {
            assert!(client.call(&GetStatistics { timing: true }).unwrap().statistics.timing);
        }
    }
    drop(one);
    assert!(other.call(&GetStatistics::default()).unwrap().statistics.timing);
    drop(other);
    until("nobody wants it", || !shared.world().timing);
    assert_eq!(shared.world().timing_changes, 2);
}

#[test]
fn what_was_set_until_the_end_is_set_back() {
    let (folder, shared) = (Folder::new("undo"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut client = Client::connect_to(server.path()).unwrap();
    client.call(&set(Some("crypt"), &[("nice", "1"), ("max_active", "4")], true)).unwrap();
    client.call(&set(None, &[("spin", "9")], true)).unwrap();
    client.call(&set(Some("crypt"), &[("nice", "2")], true)).unwrap();
    client.call(&set(Some("crypt"), &[("affinity_scope", "numa")], false)).unwrap();
    assert_eq!(shared.value("crypt", "nice"), "2");
    shared.world().log.clear();
    drop(client);
    until("set back", || shared.value("crypt", "nice") == "0");
    let log = shared.world().log.clone();
    assert_eq!(log, [".spin=512", "crypt.max_active=16", "crypt.nice=0"]);
    assert_eq!(shared.value("crypt", "affinity_scope"), "numa");
}

#[test]
fn what_is_kept_stays() {
    let (folder, shared) = (Folder::new("keep"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut client = Client::connect_to(server.path()).unwrap();
    client.call(&set(Some("crypt"), &[("nice", "1")], true)).unwrap();
    client.call(&Keep {}).unwrap();
    client.call(&set(None, &[("spin", "9")], true)).unwrap();
    drop(client);
    until("the other is set back", || shared.value("", "spin") == "512");
    assert_eq!(shared.value("crypt", "nice"), "1");
}

#[test]
fn the_end_of_the_server_sets_back_and_removes_the_socket() {
    let (folder, shared) = (Folder::new("end"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut client = Client::connect_to(server.path()).unwrap();
    client.call(&set(Some("crypt"), &[("nice", "1")], true)).unwrap();
    let path = server.path().to_owned();
    assert!(path.exists());
    drop(server);
    assert_eq!(shared.value("crypt", "nice"), "0");
    assert!(!path.exists());
}

#[test]
fn refusals_come_in_words() {
    let (folder, shared) = (Folder::new("refusals"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut client = Client::connect_to(server.path()).unwrap();
    let refusal = |error: ClientError| match error {
        ClientError::Refused(refusal) => refusal,
        other => panic!("{other}"),
    };
    let error = client.call(&set(Some("nobody"), &[("nice", "1")], true)).unwrap_err();
    assert!(matches!(refusal(error), Refusal::NoSuchQueue { .. }));
    let error = client.call(&set(Some("crypt"), &[("nicer", "1")], true)).unwrap_err();
    assert!(matches!(refusal(error), Refusal::NoSuchKey { .. }));
    let error = client.call(&set(None, &[("spin", "bad")], true)).unwrap_err();
    assert!(matches!(refusal(error), Refusal::BadValue { .. }));
    let error = client.call(&GetSettings { queue: Some("panics".into()) }).unwrap_err();
    assert!(refusal(error).to_string().contains("an invented mistake"));
    drop(client);
    // The thread is still there, and nothing was changed.
    let mut client = Client::connect_to(server.path()).unwrap();
    client.call(&GetProcess {}).unwrap();
    assert_eq!(shared.world().log, [""; 0]);
}

#[test]
fn varlinks_own_errors() {
    let (folder, shared) = (Folder::new("varlink"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut raw = Raw::connect(&server);
    for (call, error, parameters) in [
        (
            r#"{"method":"nearq.control1.Nothing"}"#,
            "MethodNotFound",
            r#"{"method":"nearq.control1.Nothing"}"#,
        ),
        (r#"{"method":"Nothing"}"#, "MethodNotFound", r#"{"method":"Nothing"}"#),
        (
            r#"{"method":"nearq.control9.GetDump"}"#,
            "InterfaceNotFound",
            r#"{"interface":"nearq.control9"}"#,
        ),
        (
            r#"{"method":"nearq.control1.GetDump","parameters":{"items":3}}"#,
            "InvalidParameter",
            r#"{"parameter":"items"}"#,
        ),
        (
            r#"{"method":"nearq.control1.Set","parameters":{"queue":"crypt"}}"#,
            "InvalidParameter",
            r#"{"parameter":"changes"}"#,
        ),
        (
            r#"{"method":"nearq.control1.Set","parameters":[]}"#,
            "InvalidParameter",
            r#"{"parameter":"parameters"}"#,
        ),
        (r#"{"method":"nearq.control1.Trace"}"#, "ExpectedMore", "{}"),
        (
            r#"{"method":"nearq.control1.Trace","more":true,"parameters":{"every":3}}"#,
            "InvalidParameter",
            r#"{"parameter":"every"}"#,
        ),
        (
            r#"{"method":"org.varlink.service.GetInterfaceDescription","parameters":{"interface":"a.b"}}"#,
            "InterfaceNotFound",
            r#"{"interface":"a.b"}"#,
        ),
    ] {
        let answer = raw.ask(call);
        assert_eq!(answer["error"], format!("org.varlink.service.{error}"), "{call}");
        assert_eq!(answer["parameters"].to_string(), parameters, "{call}");
    }
    // Without answer, and with nothing where parameters could be.
    raw.send(
        r#"{"method":"nearq.control1.Set","parameters":{"changes":{"spin":"3"}},"oneway":true}"#,
    );
    let answer =
        raw.ask(r#"{"method":"nearq.control1.GetProcess","parameters":null,"more":false}"#);
    assert_eq!(answer["parameters"]["process"]["allowed"], "full");
    assert_eq!(shared.value("", "spin"), "3");
    let info = raw.ask(r#"{"method":"org.varlink.service.GetInfo"}"#);
    assert_eq!(info["parameters"]["interfaces"][1], "nearq.control1");
}

#[test]
fn calls_in_one_go_and_in_pieces() {
    let (folder, shared) = (Folder::new("pieces"), Shared::new());
    let server = serve(&folder, &shared, Access::Read);
    let mut raw = Raw::connect(&server);
    let call = "{\"method\":\"nearq.control1.GetProcess\"}\0";
    raw.0.write_all(call.repeat(50).as_bytes()).unwrap();
    for _ in 0..50 {
        assert!(raw.receive().unwrap().get("error").is_none());
    }
    for byte in call.bytes() {
        raw.0.write_all(&[byte]).unwrap();
    }
    assert!(raw.receive().unwrap().get("error").is_none());
    // Who says that nothing comes any more still gets the answers.
    raw.0.write_all(call.repeat(3).as_bytes()).unwrap();
    raw.0.shutdown(std::net::Shutdown::Write).unwrap();
    for _ in 0..3 {
        assert!(raw.receive().unwrap().get("error").is_none());
    }
    assert_eq!(raw.receive(), None);
}

#[test]
fn a_process_is_found_by_its_number() {
    // Through the directories that the process itself has: the test's are its own.
    let shared = Shared::new();
    let own = std::process::id();
    let error = Client::connect(u32::MAX - 1).unwrap_err();
    assert!(error.to_string().contains("there is no process"), "{error}");
    let error = Client::connect(own).unwrap_err();
    assert!(error.to_string().contains("does not listen"), "{error}");
    drop(shared);
}
