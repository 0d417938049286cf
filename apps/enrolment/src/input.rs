//! The door: what comes from outside is checked here, once, with its limits. Inside, values are what they say.

use axum::extract::rejection::{FormRejection, JsonRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::{Form, Json};
use fencepost::Metadata;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::{IntoParams, ToSchema};

use crate::events::{CourseId, StudentId};
use crate::problem::Problem;

/// The largest body that is read, in bytes. The largest that is accepted has some 600.
pub const MAX_BODY: usize = 8 * 1024;
/// The longest name in addresses and tags.
pub const MAX_ID: usize = 40;
/// The longest title of a course and name of a student, in characters.
pub const MAX_TEXT: usize = 120;
/// The most seats of a course: all who are in it are read for each enrolment.
pub const MAX_CAPACITY: u32 = 1_000;
/// The longest key of a command and id of a conversation.
const MAX_HEADER: usize = 200;

/// A course to be offered.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCourse {
    /// Its name in addresses: small letters, digits and dashes.
    #[schema(example = "rust-101", min_length = 1, max_length = 40, pattern = "^[a-z0-9][a-z0-9-]*$")]
    pub id: String,
    /// What it is called.
    #[schema(example = "Rust for beginners", min_length = 1, max_length = 120)]
    pub title: String,
    /// How many students it takes.
    #[schema(example = 50, minimum = 1, maximum = 1000)]
    pub capacity: u32,
}

/// How many students a course takes.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCapacity {
    /// How many students it takes.
    #[schema(example = 60, minimum = 1, maximum = 1000)]
    pub capacity: u32,
}

/// Somebody who will enrol.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewStudent {
    /// The student's name in addresses: small letters, digits and dashes. It is stored in keys: nothing personal.
    #[schema(example = "s-17", min_length = 1, max_length = 40, pattern = "^[a-z0-9][a-z0-9-]*$")]
    pub id: String,
    /// What the student is called.
    #[schema(example = "Ada Lovelace", min_length = 1, max_length = 120)]
    pub name: String,
}

/// Who takes a seat.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEnrolment {
    /// The student.
    #[schema(example = "s-17", min_length = 1, max_length = 40, pattern = "^[a-z0-9][a-z0-9-]*$")]
    pub student: String,
}

/// Which part of a list.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Slice {
    /// Begin behind this one.
    pub after: Option<String>,
    /// At most so many.
    #[serde(default = "Slice::most")]
    #[param(minimum = 1, maximum = 500, default = 100)]
    pub limit: usize,
}

impl Slice {
    fn most() -> usize {
        100
    }
    /// The limit, if it is one.
    pub fn checked(self) -> Result<Self, Problem> {
        if (1..=500).contains(&self.limit) { Ok(self) } else { Err(Problem::invalid("limit", "must be between 1 and 500")) }
    }
}

/// The name of a course.
pub fn course_id(field: &'static str, text: &str) -> Result<CourseId, Problem> {
    id(field, text).map(CourseId)
}

/// The name of a student.
pub fn student_id(field: &'static str, text: &str) -> Result<StudentId, Problem> {
    id(field, text).map(StudentId)
}

fn id(field: &'static str, text: &str) -> Result<String, Problem> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || text.len() > MAX_ID || !text.chars().all(fits) || text.starts_with('-') {
        return Err(Problem::invalid(field, format!("must be 1 to {MAX_ID} small letters, digits and dashes, not beginning with a dash")));
    }
    Ok(text.into())
}

/// A title or name, without space around it.
pub fn text(field: &'static str, text: &str) -> Result<String, Problem> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > MAX_TEXT || text.chars().any(char::is_control) {
        return Err(Problem::invalid(field, format!("must be 1 to {MAX_TEXT} characters, none of them a control character")));
    }
    Ok(text.into())
}

/// How many seats.
pub fn capacity(capacity: u32) -> Result<u32, Problem> {
    if (1..=MAX_CAPACITY).contains(&capacity) {
        return Ok(capacity);
    }
    Err(Problem::invalid("capacity", format!("must be between 1 and {MAX_CAPACITY}")))
}

/// What the headers say of a command: run it once under this key, and as part of this conversation.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// `Idempotency-Key`.
    pub key: Option<String>,
    /// `X-Correlation-Id`.
    pub correlation: Option<String>,
}

impl Told {
    /// What the events say about their origin.
    pub fn meta(&self) -> Metadata {
        Metadata { correlation: self.correlation.clone(), ..Metadata::default() }
    }
}

impl<S: Sync> FromRequestParts<S> for Told {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self { key: header(parts, "idempotency-key")?, correlation: header(parts, "x-correlation-id")? })
    }
}

fn header(parts: &Parts, name: &'static str) -> Result<Option<String>, Problem> {
    let mut values = parts.headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str() {
        Ok(text) if values.next().is_none() => checked_key(name, text).map(Some),
        _ => Err(unfit(name)),
    }
}

/// A key, from a header or a form.
pub fn checked_key(field: &'static str, text: &str) -> Result<String, Problem> {
    let fits = (1..=MAX_HEADER).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(text.into()) } else { Err(unfit(field)) }
}

fn unfit(field: &'static str) -> Problem {
    Problem::invalid(field, format!("must be given once, with 1 to {MAX_HEADER} visible ASCII characters"))
}

/// A JSON body; what is wrong with it is said as JSON too.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::from_request(request, state).await {
            Ok(Json(value)) => Ok(Self(value)),
            Err(JsonRejection::JsonDataError(error)) => Err(Problem::new(error.status(), "invalid", error.body_text())),
            Err(other) => Err(Problem::unreadable(other.status(), other.body_text())),
        }
    }
}

/// The fields of a form of the page.
#[derive(Debug)]
pub struct Fields<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Fields<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        // A form needs no leave of the browser's to be sent here from any page of the web; the browser says so.
        let from = request.headers().get("sec-fetch-site").map(|site| site.as_bytes());
        if from.is_some_and(|site| site != b"same-origin" && site != b"none") {
            return Err(Problem::new(StatusCode::FORBIDDEN, "cross-site", "Forms are taken from this service's own pages only."));
        }
        match Form::from_request(request, state).await {
            Ok(Form(value)) => Ok(Self(value)),
            Err(FormRejection::FailedToDeserializeFormBody(error)) => Err(Problem::new(error.status(), "invalid", error.body_text())),
            Err(other) => Err(Problem::unreadable(other.status(), other.body_text())),
        }
    }
}

/// The variable parts of the address, as text.
#[derive(Debug)]
pub struct Place<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Place<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let place = Path::from_request_parts(parts, state).await;
        place.map(|Path(place)| Self(place)).map_err(|error| Problem::unreadable(error.status(), error.body_text()))
    }
}

/// What stands behind the question mark.
#[derive(Debug)]
pub struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let asked = Query::from_request_parts(parts, state).await;
        asked.map(|Query(asked)| Self(asked)).map_err(|error| Problem::unreadable(error.status(), error.body_text()))
    }
}
