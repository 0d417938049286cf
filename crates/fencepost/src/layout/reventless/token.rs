//! Tokens and bases of this layout, sealed. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::fence::Seen;
use super::place::Cover;
use crate::error::{Refused, Result};
use crate::position::{Base, Token};

const LAYOUT: &str = "reventless";

/// What a decision read stands on: each cover's fence as it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) table: String,
    /// Of the query that was read.
    pub(super) fingerprint: u64,
    pub(super) covers: BTreeMap<Cover, Seen>,
}

impl Held {
    pub(super) fn seal(&self) -> Token {
        Token::seal(LAYOUT, self)
    }
    pub(super) fn open(token: &Token, table: &str) -> Result<Held> {
        let held: Held = token.open(LAYOUT)?;
        at_home("token", &held.table, table)?;
        Ok(held)
    }
}

/// Where a try put the first event of its commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Began {
    pub(super) table: String,
    pub(super) id: String,
    pub(super) stamp: u64,
    /// Whether the caller had given the commit id.
    pub(super) once: bool,
}

impl Began {
    pub(super) fn seal(&self) -> Base {
        Base::seal(LAYOUT, self)
    }
    pub(super) fn open(base: &Base, table: &str) -> Result<Began> {
        let began: Began = base.open(LAYOUT)?;
        at_home("base", &began.table, table)?;
        Ok(began)
    }
}

fn at_home(what: &'static str, table: &str, here: &str) -> Result<()> {
    if table == here {
        return Ok(());
    }
    Err(Refused::Foreign { what, of: format!("table {table}"), here: format!("table {here}") }.into())
}
