//! What the library will offer and this build does not have yet, in its shape: removed when it lands.

use crate::failure::{Code, Failure, Outcome};
use fencepost::Builder;

fn not_yet<T>() -> Outcome<T> {
    Err(Failure::new(Code::Failure, "this build of the library does not offer that yet"))
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
