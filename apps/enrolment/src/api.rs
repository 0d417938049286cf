//! The JSON API: routes, what they take and answer, and the document that says so.

use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use fencepost::Units;
use serde::Serialize;
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::decisions::{Course, MOST_COURSES, Student};
use crate::events::{CourseId, StudentId};
use crate::input::{self, Asked, Body, NewCapacity, NewCourse, NewEnrolment, NewStudent, Place, Slice, Told};
use crate::problem::{Problem, in_header};
use crate::service::{Command, Done, Service};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Enrolment",
        description = "Courses, students and enrolments: a sample service on fencepost. Writes take an `Idempotency-Key` (the same key \
                       again returns the first outcome) and an `X-Correlation-Id` (kept with the events), and answer with \
                       `x-fencepost-units`. What goes wrong is `application/problem+json`."
    ),
    tags(
        (name = "courses"), (name = "students"), (name = "enrolments"),
        (name = "service", description = "About the service itself"),
        (name = "page", description = "The same in HTML, for people")
    )
)]
struct Document;

/// The routes of the API and of the page, with their document.
pub(crate) fn routes() -> OpenApiRouter<Arc<Service>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(list_courses, define_course))
        .routes(routes!(get_course))
        .routes(routes!(change_capacity))
        .routes(routes!(enrol))
        .routes(routes!(leave))
        .routes(routes!(list_students, register_student))
        .routes(routes!(get_student))
        .routes(routes!(list_enrolments))
        .routes(routes!(health))
        .routes(routes!(document))
        .merge(crate::page::routes())
}

/// A course.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CourseBody {
    /// Its name in addresses.
    pub(crate) id: String,
    /// What it is called.
    pub(crate) title: String,
    /// How many students it takes.
    pub(crate) capacity: u32,
    /// How many seats are taken.
    pub(crate) taken: u32,
    /// And how many are not.
    pub(crate) free: u32,
    /// Who is in it.
    pub(crate) students: Vec<String>,
}

/// A student.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StudentBody {
    /// The student's name in addresses.
    pub(crate) id: String,
    /// What the student is called.
    pub(crate) name: String,
    /// Which courses the student is in.
    pub(crate) courses: Vec<String>,
    /// How many more courses are allowed.
    pub(crate) may_enrol: usize,
}

/// A seat that is taken.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EnrolmentBody {
    /// In which course.
    pub(crate) course: String,
    /// By whom.
    pub(crate) student: String,
}

/// A part of a list, and where the next begins.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Part<T> {
    /// What is in this part.
    pub(crate) items: Vec<T>,
    /// Give it as `after` for the next part; none at the end.
    pub(crate) next: Option<String>,
}

/// A command that was carried out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DoneBody {
    /// Whether anything was recorded: not where all was so already.
    pub(crate) recorded: bool,
    /// The commit.
    pub(crate) commit: Option<String>,
    /// Where its last event stands.
    pub(crate) position: Option<String>,
}

/// How the service is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, or `degraded` where the lists do not follow.
    pub(crate) status: &'static str,
    /// `following`, `catching-up`, `stuck`, or `none` on a store without a feed.
    pub(crate) lists: &'static str,
    /// Where the lists stand.
    pub(crate) position: Option<String>,
    /// What is wrong.
    pub(crate) detail: Option<String>,
}

fn course_body(id: &CourseId, course: &Course) -> Option<CourseBody> {
    let offer = course.offer.as_ref()?;
    Some(CourseBody {
        id: id.to_string(),
        title: offer.title.clone(),
        capacity: offer.capacity,
        taken: course.taken(),
        free: offer.capacity.saturating_sub(course.taken()),
        students: course.students.iter().map(ToString::to_string).collect(),
    })
}

fn student_body(id: &StudentId, student: &Student) -> Option<StudentBody> {
    Some(StudentBody {
        id: id.to_string(),
        name: student.name.clone()?,
        courses: student.courses.iter().map(ToString::to_string).collect(),
        may_enrol: MOST_COURSES.saturating_sub(student.courses.len()),
    })
}

/// The answer to a command: its status, where to find what was made, and what it cost.
fn answer(status: StatusCode, location: Option<String>, done: &Done) -> Response {
    let committed = done.committed.as_ref();
    let body = DoneBody {
        recorded: committed.is_some(),
        commit: committed.map(|committed| committed.commit.to_string()),
        position: committed.and_then(|committed| committed.last()).map(|position| position.to_string()),
    };
    let mut headers = vec![in_header(&done.units)];
    // Of letters, digits and dashes only.
    headers.extend(location.and_then(|location| HeaderValue::try_from(location).ok()).map(|location| (header::LOCATION, location)));
    if done.repeated {
        headers.push((HeaderName::from_static("idempotency-replayed"), HeaderValue::from_static("true")));
    }
    (status, AppendHeaders(headers), Json(body)).into_response()
}

fn found<T: Serialize>(body: Option<T>, units: &Units) -> Response {
    (AppendHeaders([in_header(units)]), Json(body)).into_response()
}

/// The part of a list behind `after`.
fn part<T>(slice: Slice, items: impl Iterator<Item = (String, T)>) -> Result<Json<Part<T>>, Problem> {
    let Slice { after, limit } = slice.checked()?;
    let mut behind = items.skip_while(|(key, _)| after.as_ref().is_some_and(|after| key <= after)).peekable();
    let (mut items, mut last) = (Vec::new(), None);
    for (key, item) in behind.by_ref().take(limit) {
        items.push(item);
        last = Some(key);
    }
    let next = behind.peek().and(last);
    Ok(Json(Part { items, next }))
}

/// All courses, a moment ago.
#[utoipa::path(get, path = "/courses", tag = "courses", params(Slice),
    responses((status = 200, body = Part<CourseBody>), (status = "4XX", body = Problem), (status = 501, body = Problem, description = "The store has no feed")))]
async fn list_courses(State(service): State<Arc<Service>>, Asked(slice): Asked<Slice>) -> Result<Json<Part<CourseBody>>, Problem> {
    let lists = service.view()?.lists();
    part(slice, lists.courses.iter().filter_map(|(id, course)| Some((id.0.clone(), course_body(id, course)?))))
}

/// Offers a course.
#[utoipa::path(post, path = "/courses", tag = "courses", request_body = NewCourse,
    params(("Idempotency-Key" = Option<String>, Header), ("X-Correlation-Id" = Option<String>, Header)),
    responses((status = 201, body = DoneBody), (status = 409, body = Problem, description = "course-exists, lost-race"), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
async fn define_course(State(service): State<Arc<Service>>, told: Told, Body(new): Body<NewCourse>) -> Result<Response, Problem> {
    let (course, title) = (input::course_id("id", &new.id)?, input::text("title", &new.title)?);
    let capacity = input::capacity(new.capacity)?;
    let location = format!("/courses/{course}");
    let done = service.run(Command::DefineCourse { course, title, capacity }, &told).await?;
    Ok(answer(StatusCode::CREATED, Some(location), &done))
}

/// A course, as it is now.
#[utoipa::path(get, path = "/courses/{course}", tag = "courses", params(("course" = String, Path)),
    responses((status = 200, body = CourseBody), (status = 404, body = Problem, description = "no-such-course"), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
async fn get_course(State(service): State<Arc<Service>>, Place(course): Place<String>) -> Result<Response, Problem> {
    let id = input::course_id("course", &course)?;
    let (course, units) = service.course(&id).await?;
    Ok(found(course_body(&id, &course), &units))
}

/// Changes how many students a course takes.
#[utoipa::path(put, path = "/courses/{course}/capacity", tag = "courses", request_body = NewCapacity,
    params(("course" = String, Path), ("Idempotency-Key" = Option<String>, Header), ("X-Correlation-Id" = Option<String>, Header)),
    responses((status = 200, body = DoneBody), (status = 404, body = Problem, description = "no-such-course"), (status = 409, body = Problem, description = "seats-taken, lost-race"), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
async fn change_capacity(
    State(service): State<Arc<Service>>,
    Place(course): Place<String>,
    told: Told,
    Body(new): Body<NewCapacity>,
) -> Result<Response, Problem> {
    let (course, capacity) = (input::course_id("course", &course)?, input::capacity(new.capacity)?);
    let done = service.run(Command::ChangeCapacity { course, capacity }, &told).await?;
    Ok(answer(StatusCode::OK, None, &done))
}

/// Gives a student a seat.
#[utoipa::path(post, path = "/courses/{course}/students", tag = "enrolments", request_body = NewEnrolment,
    params(("course" = String, Path), ("Idempotency-Key" = Option<String>, Header), ("X-Correlation-Id" = Option<String>, Header)),
    responses((status = 201, body = DoneBody), (status = 404, body = Problem, description = "no-such-course, no-such-student"), (status = 409, body = Problem, description = "full, already-enrolled, too-many-courses, lost-race"), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
async fn enrol(
    State(service): State<Arc<Service>>,
    Place(course): Place<String>,
    told: Told,
    Body(new): Body<NewEnrolment>,
) -> Result<Response, Problem> {
    let (course, student) = (input::course_id("course", &course)?, input::student_id("student", &new.student)?);
    let location = format!("/courses/{course}/students/{student}");
    let done = service.run(Command::Enrol { course, student }, &told).await?;
    Ok(answer(StatusCode::CREATED, Some(location), &done))
}

/// Gives the seat back.
#[utoipa::path(delete, path = "/courses/{course}/students/{student}", tag = "enrolments",
    params(("course" = String, Path), ("student" = String, Path), ("Idempotency-Key" = Option<String>, Header), ("X-Correlation-Id" = Option<String>, Header)),
    responses((status = 200, body = DoneBody), (status = 409, body = Problem, description = "not-enrolled, lost-race"), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
async fn leave(
    State(service): State<Arc<Service>>,
    Place((course, student)): Place<(String, String)>,
    told: Told,
) -> Result<Response, Problem> {
    let (course, student) = (input::course_id("course", &course)?, input::student_id("student", &student)?);
    let done = service.run(Command::Leave { course, student }, &told).await?;
    Ok(answer(StatusCode::OK, None, &done))
}

/// All students, a moment ago.
#[utoipa::path(get, path = "/students", tag = "students", params(Slice),
    responses((status = 200, body = Part<StudentBody>), (status = "4XX", body = Problem), (status = 501, body = Problem, description = "The store has no feed")))]
async fn list_students(State(service): State<Arc<Service>>, Asked(slice): Asked<Slice>) -> Result<Json<Part<StudentBody>>, Problem> {
    let lists = service.view()?.lists();
    part(slice, lists.students.iter().filter_map(|(id, student)| Some((id.0.clone(), student_body(id, student)?))))
}

/// Lets somebody enrol from now on.
#[utoipa::path(post, path = "/students", tag = "students", request_body = NewStudent,
    params(("Idempotency-Key" = Option<String>, Header), ("X-Correlation-Id" = Option<String>, Header)),
    responses((status = 201, body = DoneBody), (status = 409, body = Problem, description = "student-exists, lost-race"), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
async fn register_student(State(service): State<Arc<Service>>, told: Told, Body(new): Body<NewStudent>) -> Result<Response, Problem> {
    let (student, name) = (input::student_id("id", &new.id)?, input::text("name", &new.name)?);
    let location = format!("/students/{student}");
    let done = service.run(Command::RegisterStudent { student, name }, &told).await?;
    Ok(answer(StatusCode::CREATED, Some(location), &done))
}

/// A student, as of now.
#[utoipa::path(get, path = "/students/{student}", tag = "students", params(("student" = String, Path)),
    responses((status = 200, body = StudentBody), (status = 404, body = Problem, description = "no-such-student"), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
async fn get_student(State(service): State<Arc<Service>>, Place(student): Place<String>) -> Result<Response, Problem> {
    let id = input::student_id("student", &student)?;
    let (student, units) = service.student(&id).await?;
    Ok(found(student_body(&id, &student), &units))
}

/// All seats that are taken, a moment ago.
#[utoipa::path(get, path = "/enrolments", tag = "enrolments", params(Slice),
    responses((status = 200, body = Part<EnrolmentBody>), (status = "4XX", body = Problem), (status = 501, body = Problem, description = "The store has no feed")))]
async fn list_enrolments(State(service): State<Arc<Service>>, Asked(slice): Asked<Slice>) -> Result<Json<Part<EnrolmentBody>>, Problem> {
    let lists = service.view()?.lists();
    let seats = lists.courses.iter().flat_map(|(course, seen)| seen.students.iter().map(move |student| (course, student)));
    // A comma stands in no name, and sorts before all that may.
    part(
        slice,
        seats.map(|(course, student)| {
            (format!("{course},{student}"), EnrolmentBody { course: course.to_string(), student: student.to_string() })
        }),
    )
}

/// How the service is. Asks the store nothing, so that probes cost nothing.
#[utoipa::path(get, path = "/health", tag = "service", responses((status = 200, body = Health), (status = 503, body = Health, description = "The lists do not follow")))]
async fn health(State(service): State<Arc<Service>>) -> (StatusCode, Json<Health>) {
    let health = match service.view().map(|view| view.progress()) {
        Err(problem) => Health { status: "ok", lists: "none", position: None, detail: Some(problem.detail) },
        Ok(progress) => {
            let (status, lists) = match (&progress.trouble, progress.caught_up) {
                (Some(_), _) => ("degraded", "stuck"),
                (None, false) => ("ok", "catching-up"),
                (None, true) => ("ok", "following"),
            };
            Health { status, lists, position: progress.at.map(|at| at.to_string()), detail: progress.trouble }
        }
    };
    let status = if health.status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health))
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "service", responses((status = 200, body = Object)))]
async fn document() -> impl IntoResponse {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| serde_json::to_string(routes().get_openapi()).unwrap_or_default());
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}
