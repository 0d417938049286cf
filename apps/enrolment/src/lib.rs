//! A sample service on fencepost: courses, students, enrolments, as a JSON API and as a page.
//!
//! What a developer writes is in [`events`] and [`decisions`]; the rest is what every HTTP service has.

#![forbid(unsafe_code)]

mod api;
pub mod decisions;
pub mod events;
pub mod input;
mod page;
pub mod problem;
pub mod service;
pub mod view;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use tokio::net::TcpListener;

use problem::Problem;
use service::Service;

/// How long requests under way may take once the service was asked to end.
const GRACE: Duration = Duration::from_secs(30);

/// All routes, over this service.
pub fn router(service: Arc<Service>) -> Router {
    let (router, _) = api::routes().split_for_parts();
    router
        .fallback(async || {
            Problem::new(StatusCode::NOT_FOUND, "no-such-route", "There is nothing here; /openapi.json lists what there is.")
        })
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "This address takes other methods: see the header `allow`.")
        })
        .layer(DefaultBodyLimit::max(input::MAX_BODY))
        .with_state(service)
}

/// Answers requests until `ended`, and then finishes those under way.
pub async fn serve(listener: TcpListener, service: Arc<Service>, ended: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let (env, (tell, told)) = (service.env.clone(), tokio::sync::oneshot::channel());
    let serving = axum::serve(listener, router(service)).with_graceful_shutdown(async move {
        ended.await;
        // Whoever waits for it may have gone.
        let _ = tell.send(());
    });
    let out_of_patience = async {
        match told.await {
            Ok(()) => env.sleep(GRACE).await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        served = serving => served,
        () = out_of_patience => Err(io::Error::new(io::ErrorKind::TimedOut, "requests were still under way 30 s after the end was asked for")),
    }
}
