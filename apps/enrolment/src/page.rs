//! The page: the same commands and lists in HTML, for people. Works without JavaScript; a command that was carried out is answered with a
//! redirect, so that reloading repeats nothing, and one that was not with the form as it was typed.

mod html;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use maud::Markup;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::events::{CourseId, StudentId};
use crate::input::{self, Asked, Fields, Place, Told};
use crate::problem::Problem;
use crate::service::{Command, Service};

pub(crate) fn routes() -> OpenApiRouter<Arc<Service>> {
    OpenApiRouter::new()
        .routes(routes!(home))
        .routes(routes!(course))
        .routes(routes!(define_course))
        .routes(routes!(register_student))
        .routes(routes!(enrol))
        .routes(routes!(change_capacity))
        .routes(routes!(leave))
}

/// What was typed into the forms: shown again where it was not accepted.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Typed {
    /// The form's own: sent twice, it is carried out once.
    key: Option<String>,
    course: String,
    title: String,
    capacity: String,
    student: String,
    name: String,
}

/// What was done, for the page that a redirect leads to. A word and names, never a text: an address must not be able to put words on the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Note {
    done: String,
    course: String,
    student: String,
}

impl Note {
    fn sentence(&self) -> Option<String> {
        let course = || input::course_id("course", &self.course).ok();
        let student = || input::student_id("student", &self.student).ok();
        Some(match self.done.as_str() {
            "defined" => format!("Course {} is offered.", course()?),
            "registered" => format!("Student {} is registered.", student()?),
            "enrolled" => format!("Student {} is in course {}.", student()?, course()?),
            "changed" => format!("Course {} has another number of seats.", course()?),
            "left" => format!("Student {} has left course {}.", student()?, course()?),
            _ => return None,
        })
    }
}

impl Typed {
    fn course(&self) -> Result<CourseId, Problem> {
        input::course_id("course", self.course.trim())
    }
    fn student(&self) -> Result<StudentId, Problem> {
        input::student_id("student", self.student.trim())
    }
    fn capacity(&self) -> Result<u32, Problem> {
        let capacity = self.capacity.trim().parse().map_err(|_| Problem::invalid("capacity", "must be a number"))?;
        input::capacity(capacity)
    }
    fn told(&self) -> Result<Told, Problem> {
        let key = self.key.as_deref().map(|key| input::checked_key("key", key)).transpose()?;
        Ok(Told { key: key.map(|key| format!("form {key}")), correlation: None })
    }
}

/// The page
#[utoipa::path(get, path = "/", tag = "page", params(("done" = Option<String>, Query), ("course" = Option<String>, Query), ("student" = Option<String>, Query)),
    responses((status = 200, body = String, content_type = "text/html")))]
async fn home(State(service): State<Arc<Service>>, Asked(note): Asked<Note>) -> Response {
    show(StatusCode::OK, html::home(&service, &html::Message::of(note.sentence()), &html::Typing::default()))
}

/// One course, as it is now
#[utoipa::path(get, path = "/page/courses/{course}", tag = "page", params(("course" = String, Path)),
    responses((status = 200, body = String, content_type = "text/html"), (status = "4XX", body = String, content_type = "text/html"), (status = "5XX", body = String, content_type = "text/html")))]
async fn course(State(service): State<Arc<Service>>, Place(course): Place<String>, Asked(note): Asked<Note>) -> Response {
    match input::course_id("course", &course) {
        Ok(course) => show_course(&service, &course, StatusCode::OK, html::Message::of(note.sentence())).await,
        Err(problem) => show(problem.status(), html::nothing(&problem)),
    }
}

/// Offers a course
#[utoipa::path(post, path = "/page/courses", tag = "page", request_body(content = Typed, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303), (status = "4XX", body = String, content_type = "text/html"), (status = "5XX", body = String, content_type = "text/html")))]
async fn define_course(State(service): State<Arc<Service>>, Fields(typed): Fields<Typed>) -> Response {
    let command = || Ok((typed.course()?, input::text("title", &typed.title)?, typed.capacity()?));
    let command = command().map(|(course, title, capacity)| Command::DefineCourse { course, title, capacity });
    submit(&service, command, &typed, "defined", |typed| html::Typing { define: typed, ..Default::default() }).await
}

/// Registers a student
#[utoipa::path(post, path = "/page/students", tag = "page", request_body(content = Typed, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303), (status = "4XX", body = String, content_type = "text/html"), (status = "5XX", body = String, content_type = "text/html")))]
async fn register_student(State(service): State<Arc<Service>>, Fields(typed): Fields<Typed>) -> Response {
    let command = || Ok((typed.student()?, input::text("name", &typed.name)?));
    let command = command().map(|(student, name)| Command::RegisterStudent { student, name });
    submit(&service, command, &typed, "registered", |typed| html::Typing { register: typed, ..Default::default() }).await
}

/// Gives a student a seat
#[utoipa::path(post, path = "/page/enrolments", tag = "page", request_body(content = Typed, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303), (status = "4XX", body = String, content_type = "text/html"), (status = "5XX", body = String, content_type = "text/html")))]
async fn enrol(State(service): State<Arc<Service>>, Fields(typed): Fields<Typed>) -> Response {
    let command = || Ok((typed.course()?, typed.student()?));
    let command = command().map(|(course, student)| Command::Enrol { course, student });
    submit(&service, command, &typed, "enrolled", |typed| html::Typing { enrol: typed, ..Default::default() }).await
}

/// Changes how many students a course takes
#[utoipa::path(post, path = "/page/capacity", tag = "page", request_body(content = Typed, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303), (status = "4XX", body = String, content_type = "text/html"), (status = "5XX", body = String, content_type = "text/html")))]
async fn change_capacity(State(service): State<Arc<Service>>, Fields(typed): Fields<Typed>) -> Response {
    let command = || Ok((typed.course()?, typed.capacity()?));
    let command = command().map(|(course, capacity)| Command::ChangeCapacity { course, capacity });
    submit_on_course(&service, command, &typed, "changed").await
}

/// Gives the seat back
#[utoipa::path(post, path = "/page/leave", tag = "page", request_body(content = Typed, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303), (status = "4XX", body = String, content_type = "text/html"), (status = "5XX", body = String, content_type = "text/html")))]
async fn leave(State(service): State<Arc<Service>>, Fields(typed): Fields<Typed>) -> Response {
    let command = || Ok((typed.course()?, typed.student()?));
    let command = command().map(|(course, student)| Command::Leave { course, student });
    submit_on_course(&service, command, &typed, "left").await
}

/// Carries it out and leads to the first page, which shows it; else the first page with what was typed, in the form that it was typed into.
async fn submit(
    service: &Service,
    command: Result<Command, Problem>,
    typed: &Typed,
    done: &str,
    into: impl Fn(Typed) -> html::Typing,
) -> Response {
    match run(service, command, typed).await {
        Ok(()) => lead("/", done, typed),
        Err(problem) => show(problem.status(), html::home(service, &html::Message::Trouble(&problem), &into(typed.clone()))),
    }
}

/// The same from the page of a course.
async fn submit_on_course(service: &Service, command: Result<Command, Problem>, typed: &Typed, done: &str) -> Response {
    let problem = match run(service, command, typed).await {
        Ok(()) => return lead(&format!("/page/courses/{}", typed.course.trim()), done, typed),
        Err(problem) => problem,
    };
    match typed.course() {
        Ok(course) => show_course(service, &course, problem.status(), html::Message::Trouble(&problem)).await,
        Err(_) => show(problem.status(), html::nothing(&problem)),
    }
}

async fn run(service: &Service, command: Result<Command, Problem>, typed: &Typed) -> Result<(), Problem> {
    let done = service.run(command?, &typed.told()?).await?;
    // The lists follow a moment behind; who is led to them should see what they did.
    if let (Some(position), Ok(view)) = (done.committed.as_ref().and_then(|committed| committed.last()), service.view()) {
        view.shows(position, &service.env).await;
    }
    Ok(())
}

/// Names that were accepted hold letters, digits and dashes: nothing in them needs escaping.
fn lead(to: &str, done: &str, typed: &Typed) -> Response {
    let course = typed.course().map(|course| format!("&course={course}")).unwrap_or_default();
    let student = typed.student().map(|student| format!("&student={student}")).unwrap_or_default();
    Redirect::to(&format!("{to}?done={done}{course}{student}")).into_response()
}

async fn show_course(service: &Service, id: &CourseId, status: StatusCode, message: html::Message<'_>) -> Response {
    match service.course(id).await {
        Ok((course, units)) => show(status, html::course(service, id, &course, &units, &message)),
        Err(problem) => show(problem.status(), html::nothing(&problem)),
    }
}

/// With headers that let the page load nothing, run nothing and be framed by nobody.
fn show(status: StatusCode, page: Markup) -> Response {
    const POLICY: &str =
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    let mut response = (status, Html(page.into_string())).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
