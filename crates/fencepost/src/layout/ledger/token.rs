//! Tokens, checkpoints and bases of the ledger: positions only, sealed. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::series::{End, Series};
use crate::error::Result;
use crate::position::{Base, Checkpoint, Token};
use crate::side::reached::at_home;

const LAYOUT: &str = "ledger";

/// What a decision read stands on: for each cover, how far it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) namespace: String,
    pub(crate) incarnation: u64,
    /// Of the query that was read.
    pub(crate) fingerprint: u64,
    pub(crate) covers: BTreeMap<Series, End>,
}

impl Held {
    pub(crate) fn seal(&self) -> Token {
        Token::seal(LAYOUT, self)
    }
    pub(crate) fn open(token: &Token, namespace: &str, incarnation: u64) -> Result<Held> {
        let held: Held = token.open(LAYOUT)?;
        at_home("token", &held.namespace, held.incarnation, namespace, incarnation)?;
        Ok(held)
    }
}

/// How far a consumer has come: for each lane its last whole commit, and how many events of one commit more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reached {
    pub(crate) namespace: String,
    pub(crate) incarnation: u64,
    pub(crate) lanes: BTreeMap<u8, u64>,
    /// Lane, sequence, and the index of the last event handed over.
    pub(crate) within: Option<(u8, u64, u32)>,
}

impl Reached {
    pub(crate) fn seal(&self) -> Checkpoint {
        Checkpoint::seal(LAYOUT, self)
    }
    pub(crate) fn open(checkpoint: &Checkpoint, namespace: &str, incarnation: u64) -> Result<Reached> {
        let reached: Reached = checkpoint.open(LAYOUT)?;
        at_home("checkpoint", &reached.namespace, reached.incarnation, namespace, incarnation)?;
        Ok(reached)
    }
}

/// Where an append began: the first version that it tried of its first series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Began {
    pub(crate) namespace: String,
    pub(crate) series: Series,
    pub(crate) version: u64,
    /// Whether the caller had given the commit id.
    pub(crate) once: bool,
}

impl Began {
    pub(crate) fn seal(&self) -> Base {
        Base::seal(LAYOUT, self)
    }
    pub(crate) fn open(base: &Base, namespace: &str) -> Result<Began> {
        let began: Began = base.open(LAYOUT)?;
        at_home("base", &began.namespace, 0, namespace, 0)?;
        Ok(began)
    }
}
