//! What the library will offer and this build does not have yet, in its shape: removed when it lands.

use crate::failure::{Code, Failure, Outcome};
use fencepost::Builder;

fn not_yet<T>() -> Outcome<T> {
    Err(Failure::new(Code::Failure, "this build of the library does not offer that yet"))
}

#[derive(Debug)]
pub(crate) struct Tables;
#[derive(Debug, Clone, Copy)]
pub(crate) enum Definition {
    Terraform,
    CloudFormation,
    AwsCli,
}
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Billing {
    #[default]
    OnDemand,
    #[expect(dead_code)]
    Provisioned { read: i64, write: i64 },
}
#[derive(Debug, Clone, Copy)]
pub(crate) enum StreamSetting {
    Off,
    New,
    NewAndOld,
}
#[derive(Debug, Default)]
#[expect(dead_code)]
pub(crate) struct TableOptions {
    pub(crate) billing: Billing,
    pub(crate) kms_key: Option<String>,
    pub(crate) tags: Vec<(String, String)>,
    pub(crate) stream: Option<StreamSetting>,
}
pub(crate) fn tables(_: &Builder) -> Tables {
    Tables
}
impl Tables {
    pub(crate) async fn create(&self, _: &TableOptions) -> Outcome<Vec<(String, bool)>> {
        not_yet()
    }
    pub(crate) async fn verify(&self) -> Outcome<Vec<String>> {
        not_yet()
    }
    pub(crate) fn print(&self, _: Definition, _: &TableOptions) -> String {
        String::new()
    }
    pub(crate) fn iam(&self) -> String {
        String::new()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(dead_code)]
pub(crate) enum Status {
    Ok,
    Warning,
    Failed,
}
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) detail: String,
    pub(crate) hint: Option<String>,
}
pub(crate) async fn doctor(_: &Builder) -> Outcome<Vec<Check>> {
    not_yet()
}

#[derive(Debug)]
pub(crate) struct Engine;
impl Engine {
    pub(crate) fn memory() -> Outcome<Self> {
        not_yet()
    }
    pub(crate) fn file(_: &std::path::Path) -> Outcome<Self> {
        not_yet()
    }
    pub(crate) async fn serve(&self, _: tokio::net::TcpListener, _: impl Future<Output = ()> + Send + 'static) -> Outcome {
        not_yet()
    }
}
