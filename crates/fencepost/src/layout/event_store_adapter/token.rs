//! Tokens and bases of this layout: where a stream stood, sealed. Pure.

use serde::{Deserialize, Serialize};

use crate::error::{Refused, Result};
use crate::event::StreamName;
use crate::position::{Base, Token};

/// Where a stream ends: its last event's number, and what its lock says. In v5 the two are one; v3 counts writes in the lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) version: u64,
    pub(super) lock: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Held {
    stream: String,
    end: End,
}

pub(super) fn seal(layout: &str, stream: &StreamName, end: End) -> Token {
    Token::seal(layout, &Held { stream: stream.as_str().into(), end })
}

pub(super) fn open(layout: &str, token: &Token, stream: &StreamName) -> Result<End> {
    let held: Held = token.open(layout)?;
    at_home("token", &held.stream, stream)?;
    Ok(held.end)
}

/// Where an append began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Began {
    stream: String,
    /// The version behind which it was first tried.
    pub(super) version: u64,
    /// Whether the caller had given the commit id.
    pub(super) once: bool,
}

impl Began {
    pub(super) fn new(stream: &StreamName, version: u64, once: bool) -> Self {
        Self { stream: stream.as_str().into(), version, once }
    }
    pub(super) fn seal(&self, layout: &str) -> Base {
        Base::seal(layout, self)
    }
    pub(super) fn open(layout: &str, base: &Base, stream: &StreamName) -> Result<Began> {
        let began: Began = base.open(layout)?;
        at_home("base", &began.stream, stream)?;
        Ok(began)
    }
}

fn at_home(what: &'static str, of: &str, here: &StreamName) -> Result<()> {
    if of == here.as_str() {
        return Ok(());
    }
    Err(Refused::Foreign { what, of: format!("stream {of}"), here: format!("stream {here}") }.into())
}
