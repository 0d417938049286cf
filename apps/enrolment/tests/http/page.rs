//! The page, as a browser without JavaScript would use it. In a browser it is tried by `tests/page/run`.

use enrolment::service::Patience;
use reqwest::Method;

use crate::{Answer, App};

async fn submit(app: &App, path: &str, fields: &str) -> Answer {
    let form = app.request(Method::POST, path).header("content-type", "application/x-www-form-urlencoded");
    Answer::of(form.body(fields.to_owned())).await
}

#[tokio::test]
async fn a_form_leads_to_the_page_that_shows_what_it_did() {
    let app = App::start().await;
    for (path, fields, shows) in [
        ("/page/courses", "course=rust&title=Rust+for+all&capacity=2", "Rust for all"),
        ("/page/students", "student=s-1&name=Ada", "<h3>Ada</h3>"),
        ("/page/enrolments", "student=s-1&course=rust", "1 of 2 taken"),
        ("/page/capacity", "course=rust&capacity=1", "1 of 1 taken"),
        ("/page/leave", "student=s-1&course=rust", "0 of 1 taken"),
    ] {
        let led = submit(&app, path, fields).await.expect(303);
        let page = app.get(led.header("location").expect("location")).await.expect(200);
        assert!(page.text.contains("role=\"status\""), "{path} says what it did");
        assert!(page.text.contains(shows), "{path} shows {shows}: {}", page.text);
        assert!(app.get("/").await.text.contains(if path == "/page/capacity" { "1 of 1 taken" } else { shows }), "{path}");
    }
}

#[tokio::test]
async fn what_is_not_accepted_comes_back_as_it_was_typed_with_the_reason() {
    let app = App::start().await;
    let page = submit(&app, "/page/courses", "course=Not+good&title=Kept&capacity=7").await.expect(422);
    assert!(page.text.contains("data-code=\"invalid\"") && page.text.contains("value=\"Kept\""), "{}", page.text);
    app.define("rust", 1).await;
    app.register("s-1").await;
    app.register("s-2").await;
    app.enrol("rust", "s-1").await.expect(201);
    let page = submit(&app, "/page/enrolments", "student=s-2&course=rust").await.expect(409);
    assert!(page.text.contains("Course rust is full: its only seat is taken.") && page.text.contains("value=\"s-2\""), "{}", page.text);
    let register = page.text.split("id=\"register\"").nth(1).expect("the form");
    assert!(!register.contains("s-2"), "only the form that was sent keeps what was typed: {register}");
}

#[tokio::test]
async fn a_form_sent_twice_is_carried_out_once() {
    let app = App::start().await;
    let fields = "key=f1&student=s-1&name=Ada";
    let (one, two) = (submit(&app, "/page/students", fields).await.expect(303), submit(&app, "/page/students", fields).await.expect(303));
    assert_eq!(one.header("location"), two.header("location"));
    submit(&app, "/page/students", "key=f2&student=s-1&name=Ada").await.expect(409);
}

#[tokio::test]
async fn nothing_that_was_typed_or_stands_in_an_address_becomes_html() {
    let app = App::start().await;
    let evil = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%27";
    submit(&app, "/page/courses", &format!("course=rust&title={evil}&capacity=3")).await.expect(303);
    submit(&app, "/page/students", &format!("student=s-1&name={evil}")).await.expect(303);
    submit(&app, "/page/enrolments", "student=s-1&course=rust").await.expect(303);
    let refused = submit(&app, "/page/enrolments", &format!("student={evil}&course=rust")).await.expect(422);
    let pages = [
        "/",
        "/page/courses/rust",
        &format!("/?done=enrolled&course={evil}&student={evil}"),
        &format!("/?done={evil}"),
        &format!("/page/courses/{evil}"),
    ];
    let mut texts = vec![refused.text];
    for page in pages {
        texts.push(app.get(page).await.text);
    }
    assert!(texts.iter().filter(|text| text.contains("&lt;script&gt;")).count() >= 3, "the titles and names are shown");
    for text in texts {
        assert!(!text.contains("<script"), "{text}");
    }
    let page = app.get("/").await;
    assert!(page.header("content-security-policy").is_some_and(|policy| policy.contains("default-src 'none'")));
}

#[tokio::test]
async fn forms_of_other_sites_are_refused() {
    let app = App::start().await;
    let form = || app.request(Method::POST, "/page/students").header("content-type", "application/x-www-form-urlencoded");
    Answer::of(form().header("sec-fetch-site", "cross-site").body("student=s-1&name=Ada")).await.expect_problem(403, "cross-site");
    Answer::of(form().header("sec-fetch-site", "same-origin").body("student=s-1&name=Ada")).await.expect(303);
}

#[tokio::test]
async fn in_streams_mode_the_service_builds_the_index_that_its_lists_follow() {
    let app = App::on(fencepost::open("memory:?feed=streams").await.expect("store"), Patience::default()).await;
    app.define("rust", 1).await;
    app.register("s-1").await;
    app.enrol("rust", "s-1").await.expect(201);
    assert_eq!(app.get("/courses/rust").await.expect(200).body["taken"], 1);
    assert!(app.get("/page/courses/rust").await.expect(200).text.contains("1 of 1 taken"));
    let mut listed = false;
    for _ in 0..100 {
        listed = app.get("/enrolments").await.expect(200).text.contains("s-1");
        if listed {
            break;
        }
        fencepost::Env::system().sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(listed, "the enrolment never came through the index");
    assert_eq!(app.get("/health").await.expect(200).body["lists"], "following");
}
