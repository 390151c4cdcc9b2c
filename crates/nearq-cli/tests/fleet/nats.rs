//! A server of a test's own, and a client that knows no more than a test needs.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Folder, nearq, skipped};

/// A server with an empty store.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) folder: Folder,
    more: Vec<String>,
    process: Option<Child>,
}

impl Server {
    /// Starts a server; none if there is no such program here. Only one test may use `name`.
    pub(crate) fn start(name: &str) -> Option<Self> {
        Self::with(name, &[])
    }

    /// The same, with lines of configuration, in which FOLDER is its folder.
    pub(crate) fn with(name: &str, lines: &[&str]) -> Option<Self> {
        if Command::new("nats-server").arg("--version").output().is_err() {
            skipped(
                "jobs from NATS JetStream",
                "there is no nats-server",
                "apt-get install nats-server",
            );
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let more = lines.iter().map(|line| (*line).to_owned()).collect();
        let mut server = Self { port, folder: Folder::new(name), more, process: None };
        server.run();
        Some(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Starts it again with what it has stored.
    pub(crate) fn run(&mut self) {
        let (config, store) = (self.folder.path("nats.conf"), self.folder.path("store"));
        let mut text = format!(
            "listen: \"127.0.0.1:{}\"\njetstream {{ store_dir: \"{store}\" }}\n",
            self.port
        );
        for line in &self.more {
            let folder = self.folder.path("");
            let _ = writeln!(text, "{}", line.replace("FOLDER", folder.trim_end_matches('/')));
        }
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("nats-server");
        command.args(["-c", &config, "-l", &self.folder.path("log")]).stdin(Stdio::null());
        self.process = Some(command.spawn().expect("nats-server starts"));
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = std::fs::read_to_string(self.folder.path("log")).unwrap_or_default();
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "nats-server does not listen:\n{log}"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal to its process.
    pub(crate) fn signal(&self, number: i32) {
        signal(self.process.as_ref().expect("it runs").id(), number);
    }

    /// Ends it in an orderly way.
    pub(crate) fn end(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // SAFETY: numbers only; the process is a child that has not been waited for.
        unsafe { libc::kill(process.id().cast_signed(), libc::SIGTERM) };
        let _ = process.wait();
    }

    /// Submits lines to the stream JOBS, which is made.
    pub(crate) fn submit(&self, lines: &str, more: &[&str]) {
        let file = self.folder.path("lines");
        std::fs::write(&file, lines).unwrap();
        let mut command = nearq();
        command.args([
            "submit",
            "--to",
            &self.url(),
            "--stream",
            "JOBS",
            "--create",
            "--input",
            &file,
        ]);
        let output = command.args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// `nearq run` as a worker of the stream JOBS.
    pub(crate) fn worker(&self, arguments: &[&str]) -> Command {
        let mut command = nearq();
        command
            .args(["run", "--from", &self.url(), "--stream", "JOBS", "--consumer", "w"])
            .args(arguments);
        command
    }

    /// What `nearq jobs --json` says.
    pub(crate) fn jobs(&self) -> Value {
        let output = nearq()
            .args(["jobs", "--of", &self.url(), "--stream", "JOBS", "--json"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Asks the API of JetStream.
    pub(crate) fn ask(&self, what: &str, request: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let request = request.to_string();
        let length = request.len();
        write!(stream, "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB $JS.API.{what} answer {length}\r\n{request}\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            assert!(reader.read_line(&mut line).unwrap() > 0, "{what}: no answer");
            if line.starts_with("MSG ") {
                let length = line.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                return serde_json::from_slice(&body).unwrap();
            }
        }
    }

    /// Publishes a message to a subject of a stream, and waits until the stream JOBS has one more.
    pub(crate) fn publish(&self, subject: &str, headers: &str, body: &str) {
        let jobs = self.jobs()["jobs"].as_u64().unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let (head, all) = (headers.len(), headers.len() + body.len());
        let options = "{\"verbose\":false,\"headers\":true}";
        write!(stream, "CONNECT {options}\r\nHPUB {subject} {head} {all}\r\n{headers}{body}\r\n")
            .unwrap();
        until("the stream has it", || self.jobs()["jobs"] == jobs + 1);
    }

    /// The messages of a stream: headers and body.
    pub(crate) fn messages(&self, stream: &str) -> Vec<(String, String)> {
        let info = self.ask(&format!("STREAM.INFO.{stream}"), &Value::Null);
        let last = info["state"]["last_seq"].as_u64().unwrap();
        let messages = (1..=last).map(|sequence| {
            let request = serde_json::json!({ "seq": sequence });
            let message = &self.ask(&format!("STREAM.MSG.GET.{stream}"), &request)["message"];
            let text = |name: &str| decoded(message[name].as_str().unwrap_or_default());
            (text("hdrs"), text("data"))
        });
        messages.collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Decodes base64.
fn decoded(text: &str) -> String {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        bits = bits << 6 | u32::from(digit(byte));
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Sends a process a signal.
pub(crate) fn signal(process: u32, signal: i32) {
    // SAFETY: numbers only.
    unsafe { libc::kill(process.cast_signed(), signal) };
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_mins(1), "not within a minute: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The lines of a file; none if there is no such file.
pub(crate) fn lines(path: &str) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}
