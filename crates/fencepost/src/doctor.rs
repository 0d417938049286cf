//! The doctor: looks at what a store needs to work, and says what to do where it does not.

use std::time::Duration;

use crate::dynamo::table::{Described, TableOptions};
use crate::dynamo::{Dynamo, Freshness, Op, Place};
use crate::error::{Error, Reason};
use crate::layout::Choice;
use crate::layout::ledger::{Ledger, Settings};
use crate::store::Builder;

/// One thing that was looked at.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it is.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// What to do, where something is to be done.
    pub hint: Option<String>,
}

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, but should be looked at.
    Warning,
    /// It does not work.
    Failed,
}

fn check(name: impl Into<String>, status: Status, detail: impl Into<String>, hint: Option<&str>) -> Check {
    Check { name: name.into(), status, detail: detail.into(), hint: hint.map(Into::into) }
}

/// More than this between the machine's clock and the service's is worth a warning; stamping is refused at thirty minutes.
const CLOCK: Duration = Duration::from_secs(30);

impl Builder {
    /// Looks at credentials, region, clock, tables, replicas and rights. Never fails: what fails is one of the checks.
    pub async fn doctor(&self) -> Vec<Check> {
        let mut checks = vec![self.where_it_is()];
        let dynamo = match self.connect().await {
            Ok(dynamo) => dynamo,
            Err(error) => {
                checks.push(failed("connection", &error));
                return checks;
            }
        };
        // In memory the tables are made on opening, and nowhere else. Elsewhere the doctor makes nothing: it only looks.
        if self.creates()
            && matches!(self.place(), Place::Memory)
            && let Err(error) = self.tables().create_on(&dynamo, &TableOptions::default()).await
        {
            checks.push(failed("tables", &error));
        }
        let op = dynamo.op();
        let mut reachable = true;
        for spec in self.tables().specs() {
            match dynamo.describe(&op, &spec.name).await {
                Ok(described) => {
                    checks.push(check("credentials", Status::Ok, "accepted", None));
                    self.table(&described, &mut checks);
                    match dynamo.verify_table(&op, &spec).await {
                        Ok(differences) if differences.is_empty() => {
                            checks.push(check(
                                format!("table {}", spec.name),
                                Status::Ok,
                                "keys, indexes, stream and expiry are as needed",
                                None,
                            ));
                        }
                        Ok(differences) => {
                            let detail = differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                            checks.push(check(
                                format!("table {}", spec.name),
                                Status::Failed,
                                detail,
                                Some("make a table with `fencepost init`, and copy"),
                            ));
                        }
                        Err(error) => checks.push(failed(format!("table {}", spec.name), &error)),
                    }
                }
                Err(error) => {
                    reachable = false;
                    checks.push(failed(format!("table {}", spec.name), &error));
                }
            }
        }
        checks.push(clock(&dynamo));
        if reachable {
            self.rights(&dynamo, &op, &mut checks).await;
        }
        // Said once, however many tables there are.
        let mut seen = std::collections::BTreeSet::new();
        checks.retain(|check| check.name != "credentials" || seen.insert(check.name.clone()));
        checks
    }

    fn where_it_is(&self) -> Check {
        match self.place() {
            Place::Memory => check("store", Status::Ok, "the embedded engine, in memory: gone when the process ends", None),
            Place::File(path) => check("store", Status::Ok, format!("the embedded engine, in {path}"), None),
            Place::Region(region) => check("region", Status::Ok, region.clone(), None),
            Place::Endpoint(endpoint) => check("endpoint", Status::Ok, endpoint.clone(), None),
        }
    }

    fn table(&self, table: &Described, checks: &mut Vec<Check>) {
        let name = |what: &str| format!("{what} of {}", table.name);
        if !table.replicas.is_empty() {
            let detail = format!("replicas in {}", table.replicas.join(", "));
            checks.push(check(
                name("replicas"),
                Status::Warning,
                detail,
                Some("write in one region only: put-if-absent does not hold across regions"),
            ));
        }
        if matches!(self.place(), Place::Region(_)) {
            if table.pitr == Some(false) {
                checks.push(check(
                    name("recovery"),
                    Status::Warning,
                    "point-in-time recovery is off",
                    Some("turn it on: an event store has no other copy"),
                ));
            }
            if table.deletion_protection == Some(false) {
                checks.push(check(name("protection"), Status::Warning, "deletion protection is off", Some("turn it on")));
            }
        }
    }

    async fn rights(&self, dynamo: &Dynamo, op: &Op, checks: &mut Vec<Check>) {
        let Choice::Ledger(options) = self.choice() else {
            checks.push(match self.choice().clone().open(dynamo.clone()).await {
                Ok(_) => check("reading", Status::Ok, "allowed", None),
                Err(error) => failed("reading", &error),
            });
            return;
        };
        let reads = dynamo.get(op, &options.table, Settings::key(&options.namespace), Freshness::Strong).await;
        checks.push(match reads {
            Ok(Some(_)) => check("reading", Status::Ok, "allowed", None),
            Ok(None) => {
                let detail = format!("namespace {} is not there", options.namespace);
                check("namespace", Status::Failed, detail, Some("create it with `fencepost init`"))
            }
            Err(error) => failed("reading", &error),
        });
        match Ledger::open(dynamo.clone(), options.clone()).await {
            Ok(ledger) => {
                let settings = ledger.settings();
                checks.push(check("namespace", Status::Ok, format!("{}, feed {}", settings.namespace, settings.feed), None));
                // Put if absent over the namespace's own item: allowed or not, it writes nothing.
                let probe = Ledger::create(dynamo, options).await;
                checks.push(match probe {
                    Ok(_) => check("writing", Status::Ok, "allowed", None),
                    Err(error) => failed("writing", &error),
                });
            }
            Err(Error::Unavailable(unavailable)) if unavailable.reason == Reason::Missing => {}
            Err(error) => checks.push(failed("namespace", &error)),
        }
    }
}

fn clock(dynamo: &Dynamo) -> Check {
    match dynamo.clock_off() {
        None => check("clock", Status::Ok, "the endpoint tells no time to compare with", None),
        Some(off) if off > CLOCK => check("clock", Status::Warning, format!("{off:?} off the service's"), Some("set this machine's clock")),
        Some(off) => check("clock", Status::Ok, format!("within {off:?} of the service's"), None),
    }
}

fn failed(name: impl Into<String>, error: &Error) -> Check {
    let hint = match error {
        Error::Unavailable(unavailable) => match unavailable.reason {
            Reason::Denied => Some("check credentials and rights: `fencepost init --print iam` prints what each role needs"),
            Reason::Missing => Some("create it with `fencepost init`"),
            Reason::Unreachable => Some("check the address and the network"),
            Reason::Throttled => Some("raise the capacity, or try later"),
            _ => None,
        },
        _ => None,
    };
    check(name, Status::Failed, error.to_string(), hint)
}
