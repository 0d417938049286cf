//! How a command ends when it does not go well: the exit code, and what is said on stderr, to people or to programs.

use std::io;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;
use fencepost::{Base, CommitId, Error, Reason, Refused, Token};
use serde::Serialize;

use crate::args::Cli;
use crate::json::EventLine;
use crate::output::{Format, Paint};

/// What commands return.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// What kind of failure: its name in JSON, and its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Failure,
    Usage,
    Malformed,
    Refused,
    Conflict,
    NotFound,
    Corrupt,
    Throttled,
    Unavailable,
    InDoubt,
    Denied,
    MissingTable,
    DifferingTable,
}

impl Code {
    fn name(self) -> &'static str {
        match self {
            Code::Failure => "failure",
            Code::Usage => "usage",
            Code::Malformed => "malformed",
            Code::Refused => "refused",
            Code::Conflict => "conflict",
            Code::NotFound => "not-found",
            Code::Corrupt => "corrupt",
            Code::Throttled => "throttled",
            Code::Unavailable => "unavailable",
            Code::InDoubt => "in-doubt",
            Code::Denied => "denied",
            Code::MissingTable => "missing-table",
            Code::DifferingTable => "differing-table",
        }
    }
    pub(crate) fn exit(self) -> u8 {
        match self {
            Code::Failure => 1,
            Code::Usage | Code::Malformed | Code::Refused => 2,
            Code::Conflict => 3,
            Code::NotFound => 4,
            Code::Corrupt => 5,
            Code::Throttled | Code::Unavailable => 6,
            Code::InDoubt => 7,
            Code::Denied | Code::MissingTable | Code::DifferingTable => 8,
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    code: &'static str,
    exit: u8,
    message: String,
    retryable: bool,
    hint: Option<String>,
    #[serde(flatten)]
    conflict: Option<Again<'a>>,
    #[serde(flatten)]
    doubt: Option<Doubt<'a>>,
}

/// What deciding again needs.
#[derive(Serialize)]
struct Again<'a> {
    events: Vec<EventLine<'a>>,
    token: Option<&'a Token>,
}

/// What appending again needs.
#[derive(Serialize)]
struct Doubt<'a> {
    commit: CommitId,
    base: &'a Base,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store said no.
    Store(Box<Error>),
    /// The reader of our output went away: no failure at all.
    Closed,
    /// Anything of our own.
    Own { code: Code, message: String, hint: Option<String> },
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(Box::new(error))
    }
}
impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Error::from(refused).into()
    }
}
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            io::ErrorKind::NotFound => Failure::new(Code::NotFound, error.to_string()),
            _ => Failure::new(Code::Failure, error.to_string()),
        }
    }
}
impl From<serde_json::Error> for Failure {
    /// Only ever from writing: what is read is judged where it is read.
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(kind) => io::Error::from(kind).into(),
            None => Failure::new(Code::Failure, error.to_string()),
        }
    }
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Failure::Own { code, message: message.into(), hint: None }
    }

    pub(crate) fn hint(self, text: impl Into<String>) -> Self {
        match self {
            Failure::Own { code, message, .. } => Failure::Own { code, message, hint: Some(text.into()) },
            other => other,
        }
    }

    pub(crate) fn no_store() -> Self {
        Failure::new(Code::Usage, "no store is named").hint(
            "give --store URL or set FENCEPOST_STORE: memory:, file:orders.db, dynamodb://eu-west-1/orders, http://127.0.0.1:8000/orders",
        )
    }

    /// What clap found wrong with the arguments.
    pub(crate) fn usage(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let message = text.strip_prefix("error: ").unwrap_or(&text);
        let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|mark| message.find(mark)).min().unwrap_or(message.len());
        let message = message[..end].split_whitespace().collect::<Vec<_>>().join(" ");
        if matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand) {
            let commands = Cli::command().get_subcommands().map(|c| c.get_name().to_string()).collect::<Vec<_>>().join(", ");
            return Failure::new(Code::Usage, "no command is given").hint(format!("one of {commands}; more with --help"));
        }
        let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
        let usage = usage.map_or_else(String::new, |usage| format!("usage: {usage}; "));
        Failure::new(Code::Usage, message).hint(format!("{usage}more with --help"))
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            Failure::Closed => Code::Failure,
            Failure::Own { code, .. } => *code,
            Failure::Store(error) => match &**error {
                Error::Conflict(_) => Code::Conflict,
                Error::Refused(Refused::Malformed { .. }) => Code::Malformed,
                Error::Refused(_) => Code::Refused,
                Error::InDoubt(_) => Code::InDoubt,
                Error::Corrupt(_) => Code::Corrupt,
                Error::Unavailable(unavailable) => match unavailable.reason {
                    Reason::Throttled => Code::Throttled,
                    Reason::Unreachable => Code::Unavailable,
                    Reason::Denied => Code::Denied,
                    Reason::Missing => Code::MissingTable,
                    Reason::Differs => Code::DifferingTable,
                    _ => Code::Failure,
                },
                _ => Code::Failure,
            },
        }
    }

    fn message(&self) -> String {
        match self {
            Failure::Closed => String::new(),
            Failure::Own { message, .. } => message.clone(),
            Failure::Store(error) => error.to_string(),
        }
    }

    fn retryable(&self) -> bool {
        matches!(self, Failure::Store(error) if error.is_retryable())
    }

    fn hint_text(&self) -> Option<String> {
        if let Failure::Own { hint, .. } = self {
            return hint.clone();
        }
        let hint = match self.code() {
            Code::Conflict => {
                "fold the new events, decide again, and append with the token of this conflict (or read again with --with-token)"
            }
            Code::InDoubt => "run the same append again with the --commit and --base given here: it is recorded once, whatever happened",
            Code::Throttled => "nothing was recorded: try again later, or give the table more capacity",
            Code::Unavailable => "nothing was recorded: check the endpoint and the network, and try again; `fencepost doctor` looks closer",
            Code::Denied => {
                "check the credentials and the policy: `fencepost init --print iam` prints what is needed, `fencepost doctor` looks closer"
            }
            Code::MissingTable => "create it with `fencepost init`, or check --store",
            Code::DifferingTable => "`fencepost init --no-create` says what differs",
            Code::Corrupt => "`fencepost verify` lists everything that is wrong; nothing was changed",
            _ => return None,
        };
        Some(hint.into())
    }

    /// One line of JSON, as programs read it. A conflict's events come whole: they are folded next.
    fn to_json(&self) -> String {
        let code = self.code();
        let mut line = Line {
            code: code.name(),
            exit: code.exit(),
            message: self.message(),
            retryable: self.retryable(),
            hint: self.hint_text(),
            conflict: None,
            doubt: None,
        };
        if let Failure::Store(error) = self {
            match &**error {
                Error::Conflict(conflict) => {
                    line.conflict =
                        Some(Again { events: conflict.events.iter().map(EventLine::of).collect(), token: conflict.token.as_ref() });
                }
                Error::InDoubt(doubt) => line.doubt = Some(Doubt { commit: doubt.commit, base: &doubt.base }),
                _ => {}
            }
        }
        serde_json::to_string(&line).unwrap_or_else(|_| format!(r#"{{"code":"{}","exit":{}}}"#, code.name(), code.exit()))
    }

    /// For people: no bodies, since terminals are logged too.
    fn to_text(&self, paint: Paint) -> String {
        let mut text = format!("{} {}\n", paint.bad("error:"), self.message());
        if let Failure::Store(error) = self {
            match &**error {
                Error::Conflict(conflict) => {
                    for event in conflict.events.iter().take(10) {
                        let tags = event.tags.iter().map(|tag| crate::output::printable(tag.as_str())).collect::<Vec<_>>().join(" ");
                        let event_type = crate::output::printable(event.event_type.as_str());
                        text += &format!("  {} {event_type} {}\n", event.position, paint.dim(&tags));
                    }
                    if conflict.events.len() > 10 {
                        text += &format!("  … and {} more\n", conflict.events.len() - 10);
                    }
                    if let Some(token) = &conflict.token {
                        text += &format!("  token {token}\n");
                    }
                }
                Error::InDoubt(doubt) => text += &format!("  --commit {} --base {}\n", doubt.commit, doubt.base),
                _ => {}
            }
        }
        if let Some(hint) = self.hint_text() {
            text += &format!("{} {hint}\n", paint.good("hint:"));
        }
        text
    }

    /// Says it on stderr, and gives the exit code.
    pub(crate) fn report(&self, format: Format) -> ExitCode {
        if matches!(self, Failure::Closed) {
            return ExitCode::SUCCESS;
        }
        let text = match format {
            Format::Table => self.to_text(Paint::stderr()),
            Format::Json | Format::Ndjson => format!("{}\n", self.to_json()),
        };
        // Where stderr is closed there is nobody left to tell.
        let _ = io::Write::write_all(&mut io::stderr().lock(), text.as_bytes());
        ExitCode::from(self.code().exit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost::InDoubt;
    use serde_json::{Value, json};

    fn code(error: Error) -> u8 {
        Failure::from(error).code().exit()
    }

    #[test]
    fn every_kind_of_error_has_the_exit_code_that_says_who_acts() {
        assert_eq!(code(Error::conflict(vec![], None)), 3);
        assert_eq!(code(Refused::Empty { what: "append" }.into()), 2);
        assert_eq!(code(Refused::Url { why: "?".into() }.into()), 2);
        assert_eq!(code(Error::corrupt("ledger", "item x")), 5);
        let reasons = [
            (Reason::Throttled, 6),
            (Reason::Unreachable, 6),
            (Reason::Denied, 8),
            (Reason::Missing, 8),
            (Reason::Differs, 8),
            (Reason::Rejected, 1),
        ];
        for (reason, exit) in reasons {
            assert_eq!(code(Error::unavailable(reason, "x")), exit, "{reason:?}");
        }
        assert_eq!(code(in_doubt()), 7);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::NotFound)).code().exit(), 4);
        assert!(matches!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)), Failure::Closed));
    }

    fn in_doubt() -> Error {
        let commit = CommitId("0191d7a0-0000-7000-8000-000000000001".parse().expect("uuid"));
        Error::InDoubt(Box::new(InDoubt { commit, base: Base::seal("ledger", &1u64), message: "no answer".into() }))
    }

    #[test]
    fn a_json_error_brings_what_the_next_step_needs() {
        let token = Token::seal("ledger", &7u64);
        let parse = |error: Error| -> Value { serde_json::from_str(&Failure::from(error).to_json()).expect("one line of JSON") };
        let line = parse(Error::conflict(vec![], Some(token.clone())));
        assert_eq!(line["code"], "conflict");
        assert_eq!(line["retryable"], false);
        assert_eq!(line["token"], token.to_string());
        assert_eq!(line["events"], json!([]));
        assert!(line["hint"].is_string());
        let line = parse(in_doubt());
        assert_eq!(line["commit"], "0191d7a0-0000-7000-8000-000000000001");
        assert_eq!(line["base"], Base::seal("ledger", &1u64).to_string());
        assert_eq!(line["retryable"], true);
    }
}
