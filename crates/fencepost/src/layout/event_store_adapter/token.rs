//! Tokens of this layout: where a stream stood, sealed. Pure.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::event::StreamName;
use crate::position::Token;
use crate::side::began::at_stream;

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
    at_stream("token", &held.stream, stream)?;
    Ok(held.end)
}
