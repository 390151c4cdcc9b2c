//! How to connect to a server, and how a connection that was lost is made again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use tokio::sync::mpsc::UnboundedReceiver;

/// How long the first connection to one address may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How often the server is asked whether it is there: a connection that delivers nothing is given up after twice that time.
const PING: Duration = Duration::from_secs(10);

/// How long an answer may take.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// How long the client may take to accept a message: when the server has been away for long, its queue is full.
pub(crate) const SEND: Duration = Duration::from_secs(1);

/// How many different errors of a connection are told.
const MOST_SAID: usize = 20;

/// A server, and who we are there.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// One address or several with commas between them, as in `nats://host:4222`; `tls://` asks for TLS. It may have a user and password, or
    /// a token: `nats://user:password@host`.
    pub url: String,
    /// A file with credentials, as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// A file with certificates of authorities to trust besides those of the system; it asks for TLS.
    pub authorities: Option<PathBuf>,
    /// Files with our own certificate and its key; they ask for TLS.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Server {
    /// The address without the password in it.
    pub fn shown(&self) -> String {
        let parts: Vec<&str> = self.url.split(',').collect();
        // What follows may be the rest of a name or a password with a comma in it.
        let is_cut = |number: usize| {
            let mut rest = parts[number + 1..].iter().take_while(|part| !part.contains("://"));
            rest.any(|part| part.contains('@'))
        };
        let each =
            parts.iter().enumerate().map(|(number, url)| match (url.find("://"), url.rfind('@')) {
                (_, None) if is_cut(number) => "...".to_owned(),
                (Some(scheme), Some(at)) if at > scheme => {
                    format!("{}://{}", &url[..scheme], &url[at + 1..])
                }
                (None, Some(at)) => url[at + 1..].to_owned(),
                (scheme, None) => {
                    // A password with a comma in it is cut in two; its first part stands where a port would.
                    let host = &url[scheme.map_or(0, |scheme| scheme + 3)..];
                    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
                    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
                    let shown = if is_port || host.ends_with(']') { url } else { "..." };
                    shown.to_owned()
                }
                _ => (*url).to_owned(),
            });
        each.collect::<Vec<_>>().join(",")
    }

    /// Connects, and tells `events` when the connection is lost and made again.
    ///
    /// # Errors
    /// In words, with the address and what to do.
    pub(crate) async fn connect(
        &self,
        events: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Client, String> {
        let mut options = ConnectOptions::new()
            .name("nearq")
            .connection_timeout(CONNECT)
            .request_timeout(Some(ANSWER))
            .ping_interval(PING)
            .max_reconnects(None)
            .reconnect_delay_callback(backoff)
            .event_callback(move |event| {
                events(event);
                std::future::ready(())
            });
        if let Some(file) = &self.credentials {
            options = options.credentials_file(file).await.map_err(|error| {
                let file = file.display();
                format!("--creds {file}: cannot be used: {error}; give a file as `nsc generate creds` writes it")
            })?;
        }
        if let Some(file) = &self.authorities {
            options = options.add_root_certificates(file.clone()).require_tls(true);
        }
        if let Some((certificate, key)) = &self.certificate {
            options =
                options.add_client_certificate(certificate.clone(), key.clone()).require_tls(true);
        }
        let addresses: Vec<&str> = self.url.split(',').collect();
        // The client leaves it to its caller to read who we are from the address.
        let parsed = addresses.iter().filter_map(|address| address.parse::<ServerAddr>().ok());
        if let Some(address) = parsed.into_iter().find(|address| address.username().is_some()) {
            let user = address.username().map(decoded).unwrap_or_default();
            options = match address.password().map(decoded) {
                Some(password) => options.user_and_password(user, password),
                None => options.token(user),
            };
        }
        // An address at which nobody answers must not use up the time of the next one.
        let most = CONNECT * addresses.len().try_into().unwrap_or(1) + CONNECT / 2;
        let connected = tokio::time::timeout(most, options.connect(addresses)).await;
        let (why, what) = match connected {
            Ok(Ok(client)) => return Ok(client),
            Err(_) => ("it does not answer".to_owned(), "check the address and the network"),
            Ok(Err(error)) => {
                let what = match error.kind() {
                    ConnectErrorKind::ServerParse => {
                        "give an address such as nats://host:4222, or several with commas between them"
                    }
                    ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                        "give a user and password in the address, or credentials with --creds FILE"
                    }
                    ConnectErrorKind::Tls => {
                        "give the certificates of its authority with --ca FILE, and your own with --cert and --key"
                    }
                    _ => "check the address, and that a server runs there",
                };
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                (format!("{}{}", error.kind(), cause.unwrap_or_default()), what)
            }
        };
        Err(format!("{}: no connection: {why}; {what}", self.shown()))
    }
}

/// Follows the events of a connection: whether it is lost, and what to say.
#[derive(Debug)]
pub(crate) struct Link {
    /// The address without the password in it.
    server: String,
    /// What goes on while the connection is lost.
    meanwhile: &'static str,
    is_lost: bool,
    /// What the server has said of the connection, each once.
    said: BTreeSet<String>,
}

impl Link {
    /// A connection that has just been made.
    pub(crate) fn new(server: &Server, meanwhile: &'static str) -> Self {
        Self { server: server.shown(), meanwhile, is_lost: false, said: BTreeSet::new() }
    }

    /// Whether the connection is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Takes note of an event; returns what a user should know of it.
    pub(crate) fn follow(&mut self, event: &Event) -> Option<String> {
        let server = &self.server;
        match event {
            // The first one is that of the beginning.
            Event::Connected if std::mem::take(&mut self.is_lost) => {
                Some(format!("connected to {server} again"))
            }
            Event::Disconnected => {
                self.is_lost = true;
                Some(format!(
                    "the connection to {server} is lost; {}, and it is made again as soon as that is possible",
                    self.meanwhile
                ))
            }
            Event::ServerError(error) => {
                let error = error.to_string();
                // Not more than a user reads: a subject may be another one each time.
                let is_new = self.said.len() < MOST_SAID && self.said.insert(error.clone());
                is_new.then(|| format!("{server}: {error}"))
            }
            Event::Connected
            | Event::ClientError(_)
            | Event::LameDuckMode
            | Event::Draining
            | Event::Closed
            | Event::SlowConsumer(_) => None,
        }
    }
}

/// The subject to which the server does not let us publish, if the event says that.
pub(crate) fn denied(event: &Event) -> Option<String> {
    let Event::ServerError(error) = event else { return None };
    let text = error.to_string();
    let (_, subject) = text.split_once("ermissions Violation for Publish to \"")?;
    Some(subject.split('"').next()?.to_owned())
}

/// Why something failed, with what the server has said of the connection meanwhile: it does not answer a request that it does not allow, and
/// says separately that the permission is missing.
pub(crate) fn with_refusals(why: String, events: &mut UnboundedReceiver<Event>) -> String {
    let mut all = why;
    let mut said = BTreeSet::new();
    while let Ok(event) = events.try_recv() {
        if let Event::ServerError(error) = event
            && said.insert(error.to_string())
        {
            all = format!("{all}; the server has said: {error}");
        }
    }
    all
}

/// A part of an address, in which `%40` stands for `@`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let code = behind.get(..2).filter(|_| first == b'%');
        let code = code.and_then(|code| str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How long until the next attempt to connect: 100 ms after the first failure, and at most 8 s. Attempts of many workers are spread by
/// their process numbers, so that they do not all come at once when a server has restarted.
fn backoff(attempts: usize) -> Duration {
    let base = 100_u64 << attempts.min(6);
    let spread = u64::from(std::process::id()) % 256;
    Duration::from_millis(base + base * spread / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let shown = |url: &str| Server { url: url.into(), ..Server::default() }.shown();
        assert_eq!(shown("nats://a:b@h:4222,tls://i"), "nats://h:4222,tls://i");
        assert_eq!(shown("u:p@h"), "h");
        assert_eq!(shown("h:4222"), "h:4222");
        assert_eq!(
            shown("nats://[::1]:4222,nats://[fe80::1]"),
            "nats://[::1]:4222,nats://[fe80::1]"
        );
        assert_eq!(shown("nats://u:a,b@h:4222"), "...,h:4222");
        assert_eq!(shown("nats://u:12,34@h:4222"), "...,h:4222");
        assert_eq!(shown("nats://token,en@h"), "...,h");
        assert_eq!(shown("nats://u:1,2,3@h,nats://i"), "...,...,h,nats://i");
    }

    #[test]
    fn passwords_may_have_any_character() {
        assert_eq!(decoded("a%40b%2Fc%"), "a@b/c%");
        assert_eq!(decoded("100%zz"), "100%zz");
    }

    #[test]
    fn attempts_to_connect_become_rarer_up_to_a_limit() {
        assert!(
            backoff(0) < Duration::from_millis(130) && backoff(3) >= Duration::from_millis(800)
        );
        assert!(backoff(1000) < Duration::from_secs(9));
    }
}
