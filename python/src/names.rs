//! The names under which the command `nearq` shows calls: the `__qualname__` of what is called.
//!
//! nearq keeps the name of an item for the life of the process. So the number of names is bounded: a program that calls ever new functions
//! gets one name for all further ones, and each call then describes itself while it runs.

use std::collections::HashSet;
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use crate::lock;

/// The most names: each takes a few hundred bytes.
const MOST_NAMES: usize = 1024;
/// The longest name in bytes: more is on no screen.
const LONGEST: usize = 80;
/// The name of calls for which there is no space.
const OTHERS: &str = "(a Python call)";
/// How many functions may be wrapped in each other.
const MOST_WRAPPERS: usize = 8;

static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);

/// How a call is shown.
pub(crate) struct Shown {
    /// The name of its item.
    pub(crate) name: &'static str,
    /// What the item calls itself while it runs, if it has no name of its own.
    pub(crate) description: Option<String>,
}

/// How a call of `function` is shown.
pub(crate) fn of(function: &Bound<'_, PyAny>) -> Shown {
    let text = qualified_name(function);
    let end = text.floor_char_boundary(LONGEST);
    intern(&text[..end])
}

/// The function's own name; of a partial function, that of what it calls; of any other object, that of its type. An attribute may be
/// computed, and fail.
fn qualified_name(function: &Bound<'_, PyAny>) -> String {
    static PARTIAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let partial = PARTIAL.import(function.py(), "functools", "partial");
    let mut function = function.clone();
    for _ in 0..MOST_WRAPPERS {
        if let Some(name) = string_of(&function, "__qualname__") {
            return name;
        }
        let is_partial = partial.as_ref().is_ok_and(|it| function.is_instance(it).unwrap_or(false));
        match function.getattr("func") {
            Ok(inner) if is_partial => function = inner,
            _ => break,
        }
    }
    string_of(function.get_type().as_any(), "__qualname__").unwrap_or_else(|| OTHERS.to_owned())
}

fn string_of(object: &Bound<'_, PyAny>, attribute: &str) -> Option<String> {
    let value = object.getattr_opt(attribute).ok()??;
    value.cast::<PyString>().ok().map(|text| text.to_string_lossy().into_owned())
}

fn intern(text: &str) -> Shown {
    let mut names = lock(&NAMES);
    let names = names.get_or_insert_default();
    if let Some(name) = names.get(text) {
        return Shown { name, description: None };
    }
    if names.len() >= MOST_NAMES {
        return Shown { name: OTHERS, description: Some(text.to_owned()) };
    }
    let name: &'static str = Box::leak(text.to_owned().into_boxed_str());
    names.insert(name);
    Shown { name, description: None }
}
