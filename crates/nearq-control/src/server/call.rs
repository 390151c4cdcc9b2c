//! Calls and refusals in varlink's format, as data.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::protocol::{INTERFACE, Refusal};

/// The interface that every varlink service has.
pub(super) const SERVICE: &str = "org.varlink.service";

/// A call as it is received. Unknown fields are not kept, so it takes no more memory than its text. Parameters are parsed once their type
/// is known.
#[derive(Debug, Deserialize)]
pub(super) struct Call<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    parameters: Option<&'a RawValue>,
    #[serde(default)]
    more: Option<bool>,
    #[serde(default)]
    oneway: Option<bool>,
    #[serde(default)]
    upgrade: Option<bool>,
}

impl<'a> Call<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(|error| {
            let why = format!("not a varlink call, which is one JSON object: {error}");
            Error::Refused(Refusal::BadCall { why })
        })
    }

    /// Interface and method.
    pub(super) fn name(&self) -> (&str, &str) {
        self.method.rsplit_once('.').unwrap_or(("", &self.method))
    }

    pub(super) fn method(&self) -> &str {
        &self.method
    }

    /// Whether the caller accepts several answers.
    pub(super) fn more(&self) -> bool {
        self.more == Some(true)
    }

    /// Whether the caller wants no answer.
    pub(super) fn oneway(&self) -> bool {
        self.oneway == Some(true)
    }

    pub(super) fn upgrade(&self) -> bool {
        self.upgrade == Some(true)
    }

    pub(super) fn parameters<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let text = self.parameters.map_or("{}", RawValue::get);
        // No parameters at all, as some clients send it.
        let text = if text == "null" { "{}" } else { text };
        serde_json::from_str(text).map_err(|error| {
            let parameter = invalid_parameter::<T>(text).unwrap_or_else(|| missing(&error));
            Error::InvalidParameter { parameter }
        })
    }
}

/// The parameter whose own value is wrong.
fn invalid_parameter<T: DeserializeOwned>(text: &str) -> Option<String> {
    let each: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(text).ok()?;
    let wrong = each.into_iter().find(|(name, value)| {
        let alone = serde_json::to_string(&BTreeMap::from([(name, value)])).unwrap_or_default();
        let read = serde_json::from_str::<T>(&alone);
        read.is_err_and(|error| !error.to_string().starts_with("missing field"))
    });
    wrong.map(|(name, _)| name.into_owned())
}

/// The missing parameter, as the message names it; or the name that stands for all parameters.
fn missing(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let name = text.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    name.unwrap_or("parameters").to_owned()
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum Error {
    MethodNotFound { method: String },
    InterfaceNotFound { interface: String },
    InvalidParameter { parameter: String },
    PermissionDenied,
    ExpectedMore,
    Refused(Refusal),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::Refused(refusal)
    }
}

impl Error {
    /// The refusal as it is sent.
    pub(super) fn message(&self) -> Vec<u8> {
        let own = |name: &str, parameters| (format!("{SERVICE}.{name}"), parameters);
        let (error, parameters) = match self {
            Error::MethodNotFound { method } => {
                own("MethodNotFound", serde_json::json!({ "method": method }))
            }
            Error::InterfaceNotFound { interface } => {
                own("InterfaceNotFound", serde_json::json!({ "interface": interface }))
            }
            Error::InvalidParameter { parameter } => {
                own("InvalidParameter", serde_json::json!({ "parameter": parameter }))
            }
            Error::PermissionDenied => own("PermissionDenied", serde_json::json!({})),
            Error::ExpectedMore => own("ExpectedMore", serde_json::json!({})),
            Error::Refused(refusal) => parts(refusal),
        };
        #[derive(Serialize)]
        struct Message {
            error: String,
            parameters: serde_json::Value,
        }
        message(&Message { error, parameters })
    }
}

/// A refusal's name and parameters.
fn parts(refusal: &Refusal) -> (String, serde_json::Value) {
    let mut value = serde_json::to_value(refusal).unwrap_or_default();
    let name = format!("{INTERFACE}.{}", value["error"].as_str().unwrap_or("Failed"));
    (name, value["parameters"].take())
}

/// An answer as it is sent.
pub(super) fn reply(parameters: &impl Serialize, continues: bool) -> Vec<u8> {
    #[derive(Serialize)]
    struct Message<'a, T> {
        parameters: &'a T,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        continues: bool,
    }
    message(&Message { parameters, continues })
}

fn message(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    match serde_json::to_writer(&mut bytes, message) {
        Ok(()) => bytes.push(0),
        // Our data has no keys that JSON does not allow, and writing to a vector cannot fail.
        Err(_) => bytes.clear(),
    }
    bytes
}
