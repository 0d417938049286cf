//! The HTML of the page. Everything that comes from elsewhere is escaped by `maud`.

use fencepost::Units;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Typed;
use crate::decisions::{Course, MOST_COURSES, Offer};
use crate::events::CourseId;
use crate::input::{MAX_CAPACITY, MAX_ID, MAX_TEXT};
use crate::problem::{Problem, WasRecorded};
use crate::service::Service;
use crate::view::Lists;

const STYLE: &str = include_str!("page.css");
/// How many of a list the page shows. The API has all.
const MOST: usize = 100;
const ID_PATTERN: &str = "[a-z0-9][a-z0-9-]*";

/// What was typed into the forms of the first page.
#[derive(Debug, Default)]
pub(super) struct Typing {
    pub(super) enrol: Typed,
    pub(super) define: Typed,
    pub(super) register: Typed,
}

/// What the page has to say first.
#[derive(Debug)]
pub(super) enum Message<'a> {
    Nothing,
    Done(String),
    Trouble(&'a Problem),
}

impl Message<'_> {
    pub(super) fn of(sentence: Option<String>) -> Self {
        sentence.map_or(Self::Nothing, Self::Done)
    }
}

fn page(title: &str, message: &Message<'_>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { a href="/" { "Enrolment" } }
                    p.dim { "Courses and seats, decided on fencepost. The same as JSON: " a href="/openapi.json" { "the API" } "." }
                    @match message {
                        Message::Nothing => {}
                        Message::Done(sentence) => p.message role="status" { (sentence) }
                        Message::Trouble(problem) => div.message.trouble role="alert" data-code=(problem.code) {
                            p { (problem.detail) }
                            @if let Some(changed) = &problem.changed {
                                p.dim {
                                    "Meanwhile came: "
                                    @for (n, event) in changed.iter().enumerate() {
                                        @if n > 0 { ", " }
                                        (event.event_type) " at " (event.position)
                                    }
                                    ". Nothing was recorded: try again."
                                }
                            }
                            @if problem.recorded == WasRecorded::Unknown { p.dim { "Look whether it is there before trying again." } }
                        }
                    }
                }
                main { (content) }
            }
        }
    }
}

/// Where there is nothing to show but what went wrong.
pub(super) fn nothing(problem: &Problem) -> Markup {
    page("Enrolment", &Message::Trouble(problem), &html! { p { a href="/" { "All courses" } } })
}

/// All courses and students, and the forms.
pub(super) fn home(service: &Service, message: &Message<'_>, typed: &Typing) -> Markup {
    let key = service.env.new_id().to_string();
    let content = match service.view() {
        Err(problem) => html! {
            div.columns {
                div.stack { section { h2 { "Courses" } p { (problem.detail) } } }
                div.stack { (forms(&key, typed, &Lists::default())) }
            }
        },
        Ok(view) => {
            let behind = !view.progress().caught_up;
            let lists = view.lists();
            html! {
                div.columns {
                    div.stack {
                        (courses(&lists, behind))
                        (students(&lists))
                    }
                    div.stack { (forms(&key, typed, &lists)) }
                }
            }
        }
    };
    page("Enrolment", message, &content)
}

fn courses(lists: &Lists, behind: bool) -> Markup {
    let offered = || lists.courses.iter().filter_map(|(id, course)| Some((id, course, course.offer.as_ref()?)));
    let count = offered().count();
    html! {
        section #courses {
            h2 { "Courses" }
            @if behind { p.dim { "The list is still being made; reload in a moment." } }
            @if count == 0 { p.dim { "None yet. Define the first one." } }
            ul {
                @for (id, course, offer) in offered().take(MOST) {
                    li data-course=(id) {
                        div.row { h3 { a href={ "/page/courses/" (id) } { (offer.title) } } span.dim { (id) } }
                        (seats(course, offer))
                    }
                }
            }
            @if count > MOST { p.dim { "And " (count - MOST) " more: " a href={ "/courses?limit=500" } { "as JSON" } "." } }
        }
    }
}

fn seats(course: &Course, offer: &Offer) -> Markup {
    let (taken, capacity) = (course.taken(), offer.capacity.max(1));
    let percent = (u64::from(taken) * 100).div_ceil(u64::from(capacity)).min(100);
    let full = taken >= offer.capacity;
    html! {
        div.bar.full[full] role="img" aria-label={ (taken) " of " (offer.capacity) " seats taken" } { i style={ "width:" (percent) "%" } {} }
        p.dim.row {
            span { (taken) " of " (offer.capacity) " taken" }
            @if full { span.full { "full" } } @else { span { (offer.capacity - taken) " free" } }
        }
    }
}

fn students(lists: &Lists) -> Markup {
    let registered = || lists.students.iter().filter_map(|(id, student)| Some((id, student, student.name.as_ref()?)));
    let count = registered().count();
    html! {
        section #students {
            h2 { "Students" }
            @if count == 0 { p.dim { "None yet. Register the first one." } }
            ul {
                @for (id, student, name) in registered().take(MOST) {
                    li data-student=(id) {
                        div.row { h3 { (name) } span.dim { (id) } }
                        p.dim {
                            @if student.courses.is_empty() { "in no course" }
                            @for (n, course) in student.courses.iter().enumerate() {
                                @if n > 0 { ", " }
                                a href={ "/page/courses/" (course) } { (course) }
                            }
                            @if student.courses.len() >= MOST_COURSES { " (the most there may be)" }
                        }
                    }
                }
            }
            @if count > MOST { p.dim { "And " (count - MOST) " more: " a href="/students?limit=500" { "as JSON" } "." } }
        }
    }
}

fn forms(key: &str, typed: &Typing, lists: &Lists) -> Markup {
    html! {
        section {
            h2 { "Enrol" }
            form #enrol method="post" action="/page/enrolments" {
                input type="hidden" name="key" value=(key);
                label { "Student" input name="student" list="known-students" required maxlength=(MAX_ID) pattern=(ID_PATTERN) autocapitalize="none" autocomplete="off" value=(typed.enrol.student); }
                label { "Course" input name="course" list="known-courses" required maxlength=(MAX_ID) pattern=(ID_PATTERN) autocapitalize="none" autocomplete="off" value=(typed.enrol.course); }
                button { "Enrol" }
            }
            datalist #known-students { @for (id, student) in lists.students.iter().take(MOST) { option value=(id) { @if let Some(name) = &student.name { (name) } } } }
            datalist #known-courses { @for (id, course) in lists.courses.iter().take(MOST) { option value=(id) { @if let Some(offer) = &course.offer { (offer.title) } } } }
        }
        section {
            h2 { "Define a course" }
            form #define method="post" action="/page/courses" {
                input type="hidden" name="key" value=(key);
                label { "Name in addresses, such as rust-101" input name="course" required maxlength=(MAX_ID) pattern=(ID_PATTERN) title="small letters, digits and dashes" autocapitalize="none" autocomplete="off" value=(typed.define.course); }
                label { "Title" input name="title" required maxlength=(MAX_TEXT) value=(typed.define.title); }
                label { "Seats" input name="capacity" type="number" inputmode="numeric" required min="1" max=(MAX_CAPACITY) value=(typed.define.capacity); }
                button { "Define" }
            }
        }
        section {
            h2 { "Register a student" }
            form #register method="post" action="/page/students" {
                input type="hidden" name="key" value=(key);
                label { "Name in addresses, such as s-17: nothing personal" input name="student" required maxlength=(MAX_ID) pattern=(ID_PATTERN) title="small letters, digits and dashes" autocapitalize="none" autocomplete="off" value=(typed.register.student); }
                label { "Name" input name="name" required maxlength=(MAX_TEXT) autocomplete="off" value=(typed.register.name); }
                button { "Register" }
            }
        }
    }
}

/// One course: who is in it, and what may be changed.
pub(super) fn course(service: &Service, id: &CourseId, course: &Course, units: &Units, message: &Message<'_>) -> Markup {
    let Some(offer) = &course.offer else { return page("Enrolment", message, &html! {}) };
    let key = service.env.new_id().to_string();
    let view = service.view().ok();
    let lists = view.map(|view| view.lists());
    let name = |student| lists.as_ref()?.students.get(student)?.name.clone();
    let content = html! {
        div.columns {
            div.stack {
                section {
                    div.row { h2 { (offer.title) } span.dim { (id) } }
                    (seats(course, offer))
                    p.dim { "As it is now (read units: " (units.read) ")." }
                }
                section #students {
                    h2 { "Students" }
                    @if course.students.is_empty() { p.dim { "Nobody yet." } }
                    ul {
                        @for student in &course.students {
                            li.row data-student=(student) {
                                span { @if let Some(name) = name(student) { (name) " " } span.dim { (student) } }
                                form method="post" action="/page/leave" {
                                    input type="hidden" name="key" value={ (key) "-" (student) };
                                    input type="hidden" name="course" value=(id);
                                    input type="hidden" name="student" value=(student);
                                    button.quiet { "Leave" }
                                }
                            }
                        }
                    }
                }
            }
            div.stack {
                section {
                    h2 { "Change the seats" }
                    form #capacity method="post" action="/page/capacity" {
                        input type="hidden" name="key" value=(key);
                        input type="hidden" name="course" value=(id);
                        label { "Seats" input name="capacity" type="number" inputmode="numeric" required min=(course.taken().max(1)) max=(MAX_CAPACITY) value=(offer.capacity); }
                        button { "Change" }
                    }
                }
                p { a href="/" { "All courses" } }
            }
        }
    };
    page(&offer.title, message, &content)
}
