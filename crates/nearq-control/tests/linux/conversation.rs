//! Clients and a server over real sockets: calls, answers, refusals, and what is undone.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Folder, Raw, Shared, serve, until};
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
fn each_call_gets_its_answer() {
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
fn a_trace_sends_events_until_it_is_closed() {
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
fn items_are_timed_while_a_client_requests_it() {
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
    until("no client requests timing", || !shared.world().timing);
    assert_eq!(shared.world().timing_changes, 2);
}

#[test]
fn temporary_changes_are_undone_on_close() {
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
    until("the change is undone", || shared.value("crypt", "nice") == "0");
    let log = shared.world().log.clone();
    assert_eq!(log, [".spin=512", "crypt.max_active=16", "crypt.nice=0"]);
    assert_eq!(shared.value("crypt", "affinity_scope"), "numa");
}

#[test]
fn permanent_changes_stay() {
    let (folder, shared) = (Folder::new("keep"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut client = Client::connect_to(server.path()).unwrap();
    client.call(&set(Some("crypt"), &[("nice", "1")], true)).unwrap();
    client.call(&Keep {}).unwrap();
    client.call(&set(None, &[("spin", "9")], true)).unwrap();
    drop(client);
    until("the temporary change is undone", || shared.value("", "spin") == "512");
    assert_eq!(shared.value("crypt", "nice"), "1");
}

#[test]
fn closing_the_server_undoes_changes_and_removes_the_socket() {
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
fn refusals_are_readable() {
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
fn standard_varlink_errors_are_returned() {
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
    // Without an answer, and without parameters.
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
fn calls_can_arrive_together_and_in_pieces() {
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
    // A client that shuts down its sending side still gets the answers.
    raw.0.write_all(call.repeat(3).as_bytes()).unwrap();
    raw.0.shutdown(std::net::Shutdown::Write).unwrap();
    for _ in 0..3 {
        assert!(raw.receive().unwrap().get("error").is_none());
    }
    assert_eq!(raw.receive(), None);
}

#[test]
fn a_process_can_be_found_by_its_number() {
    // The client uses the directories of the process itself: those of the test belong to the test alone.
    let shared = Shared::new();
    let own = std::process::id();
    let error = Client::connect(u32::MAX - 1).unwrap_err();
    assert!(error.to_string().contains("there is no process"), "{error}");
    let error = Client::connect(own).unwrap_err();
    assert!(error.to_string().contains("does not listen"), "{error}");
    drop(shared);
}

const PROCESS: &str = r#"{"method":"nearq.control1.GetProcess"}"#;

fn is_answer(answer: &serde_json::Value) -> bool {
    answer.get("error").is_none()
}

#[test]
fn a_seventeenth_connection_replaces_an_idle_one() {
    let (folder, shared) = (Folder::new("sixteen"), Shared::new());
    let server = serve(&folder, &shared, Access::Read);
    // Connections that never called are replaced first, the oldest first.
    let mut raws: Vec<Raw> = (0..16).map(|_| Raw::connect(&server)).collect();
    for raw in &mut raws[8..] {
        assert!(is_answer(&raw.ask(PROCESS)));
    }
    let mut client = Client::connect_to(server.path()).unwrap();
    client.call(&GetProcess {}).unwrap();
    let answer = raws[0].receive().expect("the refusal is received");
    assert_eq!(answer["error"], "nearq.control1.Busy");
    assert_eq!(raws[0].receive(), None);
    // Then those that called longest ago. The others are still connected.
    for raw in &mut raws[1..8] {
        assert!(is_answer(&raw.ask(PROCESS)));
    }
    let mut client = Client::connect_to(server.path()).unwrap();
    client.call(&GetProcess {}).unwrap();
    assert_eq!(raws[8].receive().expect("the refusal is received")["error"], "nearq.control1.Busy");
    for raw in
        raws.iter_mut().enumerate().filter(|(at, _)| ![0, 8].contains(at)).map(|(_, raw)| raw)
    {
        assert!(is_answer(&raw.ask(PROCESS)));
    }
}

#[test]
fn constantly_asking_clients_do_not_lock_others_out() {
    let (folder, shared) = (Folder::new("asking"), Shared::new());
    let server = serve(&folder, &shared, Access::Read);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut asking: Vec<Raw> = (0..16).map(|_| Raw::connect(&server)).collect();
        for raw in &mut asking {
            assert!(is_answer(&raw.ask(PROCESS)));
        }
        for mut raw in asking {
            let over = &over;
            scope.spawn(move || {
                let calls = format!("{PROCESS}\0").repeat(100);
                // Relaxed: nothing is published with it.
                while !over.load(Ordering::Relaxed)
                    && raw.0.write_all(calls.as_bytes()).is_ok()
                    && (0..100).all(|_| raw.receive().as_ref().is_some_and(is_answer))
                {
                }
            });
        }
        let mut client = Client::connect_to(server.path()).unwrap();
        let answer = client.call(&GetProcess {});
        over.store(true, Ordering::Relaxed);
        answer.unwrap();
    });
}

#[test]
fn connections_that_hold_changes_are_not_replaced() {
    let (folder, shared) = (Folder::new("holds"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut tries = Client::connect_to(server.path()).unwrap();
    tries.call(&set(Some("crypt"), &[("nice", "1")], true)).unwrap();
    let mut times = Client::connect_to(server.path()).unwrap();
    times.call(&GetStatistics { timing: true }).unwrap();
    let mut raws = Vec::new();
    for _ in 0..40 {
        let mut raw = Raw::connect(&server);
        assert!(is_answer(&raw.ask(PROCESS)));
        raws.push(raw);
    }
    assert_eq!(shared.value("crypt", "nice"), "1");
    assert!(times.call(&GetStatistics::default()).unwrap().statistics.timing);
    tries.call(&Keep {}).unwrap();
}

#[test]
fn some_connections_are_reserved_for_short_calls() {
    let (folder, shared) = (Folder::new("places"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut clients: Vec<Client> =
        (0..14).map(|_| Client::connect_to(server.path()).unwrap()).collect();
    let outcomes: Vec<bool> = clients
        .iter_mut()
        .map(|client| client.call(&GetStatistics { timing: true }).is_ok())
        .collect();
    assert_eq!(outcomes.iter().filter(|&&answered| answered).count(), 12);
    // The other connections may not hold values until they close either.
    let other = outcomes.iter().position(|answered| !answered).unwrap();
    let refused = clients[other].call(&set(Some("crypt"), &[("nice", "1")], true)).unwrap_err();
    assert!(refused.to_string().contains("12 other connections"), "{refused}");
    assert_eq!(shared.value("crypt", "nice"), "0");
    // A connection that holds nothing is answered.
    for client in &mut clients {
        client.call(&GetStatistics::default()).unwrap();
    }
    // When one of them closes, another may hold values.
    let first = clients.remove(0);
    drop(first);
    until("a connection is free", || {
        clients.last_mut().unwrap().call(&GetStatistics { timing: true }).is_ok()
    });
}

#[test]
fn at_most_four_clients_can_trace() {
    let (folder, shared) = (Folder::new("four"), Shared::new());
    let server = serve(&folder, &shared, Access::Read);
    let mut traces: Vec<_> = (0..5)
        .map(|_| {
            let client = Client::connect_to(server.path()).unwrap();
            client.stream(&Trace::default()).unwrap()
        })
        .collect();
    let answered: Vec<bool> =
        traces.iter_mut().map(|trace| trace.next().unwrap().is_ok()).collect();
    assert_eq!(answered.iter().filter(|&&answered| answered).count(), 4);
}

#[test]
fn an_overlong_or_invalid_call_ends_the_connection() {
    let (folder, shared) = (Folder::new("long"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let ends = |sent: &[u8]| {
        let mut raw = Raw::connect(&server);
        // The server may have closed the connection before everything was written.
        let _ = raw.0.write_all(sent);
        let answer = raw.receive().expect("the refusal is received");
        assert_eq!(answer["error"], "nearq.control1.BadCall", "{answer}");
        assert_eq!(raw.receive(), None);
    };
    ends(&vec![b'x'; 64 * 1024]);
    ends(b"garbage\0");
    ends(b"\0");
    // As long as a call may be.
    let mut raw = Raw::connect(&server);
    let call = r#"{"method":"nearq.control1.GetProcess","parameters":{"x":""#;
    let filled = format!("{call}{}\"}}}}", "x".repeat(64 * 1024 - call.len() - 4));
    assert_eq!(filled.len(), 64 * 1024 - 1);
    assert!(raw.ask(&filled).get("error").is_none());
}

#[test]
fn an_incomplete_call_times_out_but_an_idle_connection_stays() {
    let (folder, shared) = (Folder::new("time"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut idle = Raw::connect(&server);
    let mut slow = Raw::connect(&server);
    let begin = Instant::now();
    slow.0.write_all(b"{\"method\":").unwrap();
    let answer = slow.receive().expect("the refusal is received");
    assert_eq!(answer["error"], "nearq.control1.BadCall");
    assert!(begin.elapsed() >= Duration::from_secs(4), "{:?}", begin.elapsed());
    assert!(idle.ask(r#"{"method":"nearq.control1.GetProcess"}"#).get("error").is_none());
}

#[test]
fn a_client_that_does_not_read_does_not_block_others() {
    let (folder, shared) = (Folder::new("unread"), Shared::new());
    shared.world().queues = 300;
    let server = serve(&folder, &shared, Access::Full);
    let mut stuck: Vec<Raw> = (0..4).map(|_| Raw::connect(&server)).collect();
    for raw in &mut stuck {
        raw.send(r#"{"method":"nearq.control1.GetStatistics"}"#);
    }
    shared.world().queues = 1;
    // One or two answers are unread, as many as fit; no client is served until the server closes the connections of their readers.
    let mut client = Client::connect_to(server.path()).unwrap();
    client.call(&GetProcess {}).unwrap();
}

#[test]
fn a_client_that_reads_slowly_does_not_block_others() {
    let (folder, shared) = (Folder::new("drip"), Shared::new());
    shared.world().queues = 1000;
    let server = serve(&folder, &shared, Access::Read);
    let mut drip = Raw::connect(&server);
    drip.send(r#"{"method":"nearq.control1.GetStatistics"}"#);
    drip.0.read_exact(&mut [0]).unwrap();
    let answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: nothing is published with it.
            while !answered.load(Ordering::Relaxed) && drip.0.read_exact(&mut [0]).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let begin = Instant::now();
        let mut client = Client::connect_to(server.path()).unwrap();
        let answer = client.call(&GetProcess {});
        answered.store(true, Ordering::Relaxed);
        answer.unwrap();
        // The call must have waited, or this test shows nothing.
        assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_key_is_held_by_one_connection_at_a_time() {
    let (folder, shared) = (Folder::new("two"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut one = Client::connect_to(server.path()).unwrap();
    let mut other = Client::connect_to(server.path()).unwrap();
    one.call(&set(Some("crypt"), &[("nice", "1")], true)).unwrap();
    let refused = other.call(&set(Some("crypt"), &[("nice", "2")], true)).unwrap_err();
    assert!(
        refused.to_string().contains("another connection has set nice temporarily"),
        "{refused}"
    );
    assert_eq!(shared.value("crypt", "nice"), "1");
    // Another key may be tried.
    other.call(&set(Some("crypt"), &[("max_active", "4")], true)).unwrap();
    drop(one);
    until("the old value is restored", || shared.value("crypt", "nice") == "0");
    other.call(&set(Some("crypt"), &[("nice", "2")], true)).unwrap();
    drop(other);
    until("the old value is restored", || shared.value("crypt", "nice") == "0");
}

#[test]
fn undoing_temporary_changes_keeps_permanent_ones() {
    let (folder, shared) = (Folder::new("stays"), Shared::new());
    let server = serve(&folder, &shared, Access::Full);
    let mut tries = Client::connect_to(server.path()).unwrap();
    let mut user = Client::connect_to(server.path()).unwrap();
    tries.call(&set(Some("crypt"), &[("nice", "1"), ("max_active", "4")], true)).unwrap();
    tries.call(&set(None, &[("spin", "9")], true)).unwrap();
    user.call(&set(Some("crypt"), &[("nice", "5")], false)).unwrap();
    let before = shared.value("crypt", "max_active");
    drop(tries);
    until("the temporary changes are undone", || shared.value("crypt", "max_active") != before);
    assert_eq!(shared.value("crypt", "nice"), "5");
}
