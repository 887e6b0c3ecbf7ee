//! Why the program cannot go on, in words.

use gvmm::error::Error;
use std::fmt;

/// A message for people, and why it came to this.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<crate::trace::TraceError> for Failure {
    fn from(error: crate::trace::TraceError) -> Self {
        Self(error.to_string())
    }
}

impl Failure {
    /// A failed call, with what was being done.
    pub(crate) fn of_call(what: &str, error: &Error) -> Self {
        Self(format!("{what}: {error} ({:?})", error.kind))
    }
}

/// Says what was being done when a call failed.
pub(crate) trait Context<T> {
    fn during(self, what: &str) -> Result<T, Failure>;
}

impl<T> Context<T> for Result<T, Error> {
    fn during(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::of_call(what, &error))
    }
}
