//! What went wrong, as JSON (`application/problem+json`): a code for programs, a sentence for people, and whether anything was recorded.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fencepost::{Conflict, Error, Units};
use serde::Serialize;
use utoipa::ToSchema;

use crate::decisions::Rejection;

/// Why a request was not carried out.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// For programs: `full`, `invalid`, `lost-race` …
    #[schema(example = "full")]
    pub code: &'static str,
    /// For people.
    #[schema(example = "Course rust-101 is full: all 50 seats are taken.")]
    pub detail: String,
    /// Which part of the input, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<&'static str>,
    /// Whether anything was recorded.
    pub recorded: WasRecorded,
    /// Whether the same request may succeed later, unchanged.
    pub retry: bool,
    /// After a lost race: what came in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Vec<Changed>>,
    /// What finding out cost: a header.
    #[serde(skip)]
    pub units: Option<Units>,
}

/// Whether anything was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WasRecorded {
    /// Certainly not.
    Nothing,
    /// Nobody can tell: repeat the request under its `Idempotency-Key`.
    Unknown,
}

/// An event that came in between: what and where, and not what it says.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Changed {
    /// Its type.
    #[serde(rename = "type")]
    #[schema(example = "StudentEnrolled")]
    pub event_type: String,
    /// Its position.
    #[schema(example = "17")]
    pub position: String,
}

impl Problem {
    /// Nothing was recorded, and the same again will not help.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let (status, detail) = (status.as_u16(), detail.into());
        Self { status, code, detail, field: None, recorded: WasRecorded::Nothing, retry: false, changed: None, units: None }
    }

    /// An input that does not keep to its limits.
    pub fn invalid(field: &'static str, rule: impl AsRef<str>) -> Self {
        let detail = format!("{field} {}.", rule.as_ref());
        Self { field: Some(field), ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail) }
    }

    /// A request that cannot be read.
    pub fn unreadable(status: StatusCode, detail: impl Into<String>) -> Self {
        let code = match status {
            StatusCode::PAYLOAD_TOO_LARGE => "too-large",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "media-type",
            _ => "malformed",
        };
        Self::new(status, code, detail)
    }

    /// Lists are made from the feed, and this store has none.
    pub fn no_feed(why: &str) -> Self {
        let detail = format!("There are no lists on this store: they follow its feed ({why}). Single courses and students work.");
        Self::new(StatusCode::NOT_IMPLEMENTED, "no-feed", detail)
    }

    /// As HTTP has it.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let status = match &rejection {
            Rejection::NoSuchCourse(_) | Rejection::NoSuchStudent(_) => StatusCode::NOT_FOUND,
            _ => StatusCode::CONFLICT,
        };
        Self::new(status, rejection.code(), rejection.to_string())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (status, code) = match &error {
            Error::Conflict(_) => (StatusCode::CONFLICT, "lost-race"),
            Error::Refused(_) => (StatusCode::BAD_REQUEST, "refused"),
            Error::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Error::InDoubt(_) => (StatusCode::SERVICE_UNAVAILABLE, "in-doubt"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "corrupt"),
        };
        if status.is_server_error() {
            tracing::error!(code, "{error}");
        }
        let recorded = if error.recorded_nothing() { WasRecorded::Nothing } else { WasRecorded::Unknown };
        let problem = Self { recorded, retry: error.is_retryable(), ..Self::new(status, code, error.to_string()) };
        match error {
            Error::Conflict(conflict) => Self { retry: true, changed: Some(changed(&conflict)), units: Some(conflict.units), ..problem },
            _ => problem,
        }
    }
}

fn changed(conflict: &Conflict) -> Vec<Changed> {
    let changed = conflict.events.iter();
    changed.map(|event| Changed { event_type: event.event_type.to_string(), position: event.position.to_string() }).collect()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (self.status(), [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        if self.status() == StatusCode::SERVICE_UNAVAILABLE && self.retry {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(units) = self.units {
            response.headers_mut().extend([in_header(&units)]);
        }
        response
    }
}

/// What a request cost, as a header: `x-fencepost-units: read=1.5, write=8, requests=2`.
pub fn in_header(units: &Units) -> (HeaderName, HeaderValue) {
    let text = format!("read={}, write={}, requests={}", units.read, units.write, units.requests);
    (HeaderName::from_static("x-fencepost-units"), HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("")))
}
