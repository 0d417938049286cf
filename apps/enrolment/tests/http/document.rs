//! The OpenAPI document against the routes as they are: each documented one answers as it says, and there is no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use enrolment::service::{Patience, Service};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{Answer, App};

const METHODS: [&str; 5] = ["get", "post", "put", "delete", "patch"];

async fn document(app: &App) -> Value {
    app.get("/openapi.json").await.expect(200).body
}

fn operations(document: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let paths = document["paths"].as_object().expect("paths");
    let methods = |item: &Value| METHODS.iter().filter(|method| item.get(**method).is_some()).map(|method| method.to_uppercase()).collect();
    paths.iter().map(|(path, item)| (path.clone(), methods(item))).collect()
}

/// The paths that the router holds. It lists them nowhere but in its `Debug`; should that change, the first assertion below says so.
async fn paths_of_router() -> BTreeSet<String> {
    let store = fencepost::open("memory:").await.expect("store");
    let router = enrolment::router(Arc::new(Service::start(store, Patience::default())));
    let shown = format!("{router:?}");
    shown.split('"').filter(|part| part.starts_with('/') && !part.contains("{*")).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_document_names_every_route_and_no_other() {
    let app = App::start().await;
    let documented = operations(&document(&app).await);
    let paths = paths_of_router().await;
    assert_eq!(documented.keys().cloned().collect::<BTreeSet<_>>(), paths);
    for (path, methods) in documented {
        let path = path.replace('{', "x").replace('}', "");
        // No route takes this method, so each tells which it takes.
        let answer = Answer::of(app.request(Method::TRACE, &path)).await.expect_problem(405, "method");
        let allowed: BTreeSet<_> = answer.header("allow").expect("allow").split(',').filter(|m| *m != "HEAD").map(str::to_owned).collect();
        assert_eq!(allowed, methods, "{path}");
    }
}

#[tokio::test]
async fn each_route_answers_with_what_the_document_says() {
    let app = App::start().await;
    let document = document(&app).await;
    app.register("s-1").await;
    let json_body = |body: Value| (Some("application/json"), body.to_string());
    let form = |body: &str| (Some("application/x-www-form-urlencoded"), body.to_owned());
    let none = || (None, String::new());
    let mut left = operations(&document);
    for (method, route, address, (media, body), status) in [
        ("POST", "/courses", "/courses", json_body(json!({ "id": "rust", "title": "Rust", "capacity": 9 })), 201),
        ("POST", "/students", "/students", json_body(json!({ "id": "s-2", "name": "Ada" })), 201),
        ("POST", "/courses/{course}/students", "/courses/rust/students", json_body(json!({ "student": "s-1" })), 201),
        ("PUT", "/courses/{course}/capacity", "/courses/rust/capacity", json_body(json!({ "capacity": 8 })), 200),
        ("GET", "/courses", "/courses", none(), 200),
        ("GET", "/courses/{course}", "/courses/rust", none(), 200),
        ("GET", "/students", "/students", none(), 200),
        ("GET", "/students/{student}", "/students/s-1", none(), 200),
        ("GET", "/enrolments", "/enrolments", none(), 200),
        ("DELETE", "/courses/{course}/students/{student}", "/courses/rust/students/s-1", none(), 200),
        ("GET", "/health", "/health", none(), 200),
        ("GET", "/openapi.json", "/openapi.json", none(), 200),
        ("GET", "/", "/", none(), 200),
        ("GET", "/page/courses/{course}", "/page/courses/rust", none(), 200),
        ("POST", "/page/courses", "/page/courses", form("course=go&title=Go&capacity=3"), 303),
        ("POST", "/page/students", "/page/students", form("student=s-3&name=Bob"), 303),
        ("POST", "/page/enrolments", "/page/enrolments", form("course=go&student=s-3"), 303),
        ("POST", "/page/capacity", "/page/capacity", form("course=go&capacity=5"), 303),
        ("POST", "/page/leave", "/page/leave", form("course=go&student=s-3"), 303),
    ] {
        let request = app.request(method.parse().expect("method"), address);
        let request = media.iter().fold(request, |request, media| request.header("content-type", *media)).body(body);
        let answer = Answer::of(request).await.expect(status);
        let operation = &document["paths"][route][method.to_lowercase()];
        let response = &operation["responses"][status.to_string()];
        assert!(response.is_object(), "{method} {route} answers {status}, which is not documented");
        match response["content"].as_object() {
            None => assert_eq!(answer.text, "", "{method} {route}"),
            Some(content) => {
                let media = answer.header("content-type").expect("content-type").split(';').next().expect("media").to_owned();
                let schema =
                    &content.get(&media).unwrap_or_else(|| panic!("{method} {route} answers {media}, which is not documented"))["schema"];
                fits(&document, schema, &answer.body).unwrap_or_else(|why| panic!("{method} {route}: {why}"));
            }
        }
        left.get_mut(route).expect("a route").remove(method);
    }
    left.retain(|_, methods| !methods.is_empty());
    assert!(left.is_empty(), "documented, and not tried: {left:?}");
}

/// Whether an object has the properties that its schema requires, and no other; no more of JSON Schema than the document uses for answers.
fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = document.pointer(name.trim_start_matches('#')).ok_or_else(|| format!("{name} leads nowhere"))?;
        return fits(document, schema, value);
    }
    if let (Some(properties), Some(object)) = (schema["properties"].as_object(), value.as_object()) {
        let known: BTreeSet<_> = properties.keys().collect();
        if let Some(unknown) = object.keys().find(|key| !known.contains(key)) {
            return Err(format!("{unknown} is not documented"));
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if let Some(missing) = required.into_iter().find(|key| !object.contains_key(*key)) {
            return Err(format!("{missing} is missing"));
        }
        return object.iter().try_for_each(|(key, value)| fits(document, &properties[key], value));
    }
    if let Some(items) = value.as_array() {
        return items.iter().try_for_each(|item| fits(document, &schema["items"], item));
    }
    Ok(())
}

#[tokio::test]
async fn every_reference_of_the_document_leads_somewhere() {
    let app = App::start().await;
    let document = document(&app).await;
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")), "{}", document["openapi"]);
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str));
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
}
