//! The lists: everything that happened, followed by the feed into memory. A moment behind; single courses and students are read from
//! the log itself ([`crate::service`]).

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use fencepost::{About, Delivery, Env, Feed, From, Index, IndexOptions, Position, Store};
use futures::StreamExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::decisions::{Course, Student};
use crate::events::{CourseId, Enrolment, StudentId};

/// After trouble with the feed: asked again after this, twice as long each time …
const SOON: Duration = Duration::from_millis(200);
/// … up to this.
const LATE: Duration = Duration::from_secs(10);

/// All courses and students, a moment ago. Cheap to clone.
#[derive(Debug, Clone)]
pub struct View {
    lists: Arc<RwLock<Lists>>,
    progress: watch::Receiver<Progress>,
}

/// What the lists are made of.
#[derive(Debug, Default)]
pub struct Lists {
    /// By name.
    pub courses: BTreeMap<CourseId, Course>,
    /// By name.
    pub students: BTreeMap<StudentId, Student>,
}

/// How far the view has come.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// The furthest event that was taken in.
    pub at: Option<Position>,
    /// Whether all that was there had been taken in, at least once.
    pub caught_up: bool,
    /// What keeps it from following, until it follows again.
    pub trouble: Option<String>,
}

/// The view, or why this store has none.
#[derive(Debug)]
pub enum Following {
    /// It follows, until it is dropped.
    Lists(View, [Option<Task>; 2]),
    /// There is no feed to follow, and why.
    NoFeed(String),
}

/// The task that follows. Ends when dropped.
#[derive(Debug)]
pub struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Following {
    /// Begins with the first event.
    pub fn start(store: &Store, env: Env) -> Self {
        let feed = match store.feed() {
            Ok(feed) => feed,
            Err(error) => return Self::NoFeed(error.to_string()),
        };
        let lists = Arc::new(RwLock::new(Lists::default()));
        let (report, progress) = watch::channel(Progress::default());
        // In `streams` mode the feed is an index: this service builds it. Several instances do no harm to each other.
        let indexer = store.index().ok().map(|index| Task(tokio::spawn(build(index, env.clone()))));
        let follower = Task(tokio::spawn(follow(feed, env, lists.clone(), report)));
        Self::Lists(View { lists, progress }, [Some(follower), indexer])
    }

    /// The view, where there is one.
    pub fn view(&self) -> Result<&View, &str> {
        match self {
            Self::Lists(view, _) => Ok(view),
            Self::NoFeed(why) => Err(why),
        }
    }
}

impl View {
    /// The lists as they are. Not to be held over an await.
    pub fn lists(&self) -> RwLockReadGuard<'_, Lists> {
        self.lists.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Waits until what stands at this position shows, though not for long: what is shown is for looking, and decides nothing.
    pub async fn shows(&self, position: Position, env: &Env) {
        let mut progress = self.progress.clone();
        let reached = progress.wait_for(|progress| progress.at.is_some_and(|at| at >= position));
        tokio::select! {
            _ = reached => {}
            () = env.sleep(Duration::from_secs(1)) => {}
        }
    }
}

impl Lists {
    fn apply(&mut self, event: &Enrolment) {
        match event {
            Enrolment::CourseDefined { course, .. } | Enrolment::CourseCapacityChanged { course, .. } => self.course(course, event),
            Enrolment::StudentRegistered { student, .. } => self.student(student, event),
            Enrolment::StudentEnrolled { course, student } | Enrolment::StudentLeft { course, student } => {
                self.course(course, event);
                self.student(student, event);
            }
        }
    }
    fn course(&mut self, id: &CourseId, event: &Enrolment) {
        self.courses.entry(id.clone()).or_default().apply(event);
    }
    fn student(&mut self, id: &StudentId, event: &Enrolment) {
        self.students.entry(id.clone()).or_default().apply(event);
    }
}

/// Builds the index for ever; after trouble, from where it ends.
async fn build(index: Index, env: Env) {
    loop {
        if let Err(error) = index.run(&IndexOptions::default(), &|_| ()).await {
            tracing::warn!("the index is not built: {error}");
        }
        env.sleep(LATE).await;
    }
}

/// Follows for ever; after trouble, from where it had come.
async fn follow(feed: Arc<dyn Feed>, env: Env, lists: Arc<RwLock<Lists>>, report: watch::Sender<Progress>) {
    let mut from = From::Start;
    let mut pause = SOON;
    loop {
        if let Err(error) = deliveries(&*feed, &mut from, &lists, &report).await {
            tracing::warn!("the lists do not follow: {error}");
            report.send_modify(|progress| progress.trouble = Some(error.to_string()));
        }
        env.sleep(pause).await;
        pause = if report.borrow().trouble.is_some() { (pause * 2).min(LATE) } else { SOON };
    }
}

async fn deliveries(feed: &dyn Feed, from: &mut From, lists: &RwLock<Lists>, report: &watch::Sender<Progress>) -> fencepost::Result<()> {
    let mut deliveries = feed.subscribe(from.clone(), About::every().query::<Enrolment>()?);
    while let Some(delivery) = deliveries.next().await {
        let (at, checkpoint) = match delivery? {
            Delivery::Event { event, checkpoint } => {
                // What other programs record in this store is none of ours.
                if let Some(known) = event.decode_known::<Enrolment>()? {
                    lists.write().unwrap_or_else(PoisonError::into_inner).apply(&known);
                }
                (Some(event.position), checkpoint)
            }
            Delivery::CaughtUp { checkpoint } => (None, checkpoint),
            _ => continue,
        };
        *from = From::Checkpoint(checkpoint);
        report.send_modify(|progress| {
            progress.caught_up |= at.is_none();
            progress.at = progress.at.max(at);
            progress.trouble = None;
        });
    }
    Ok(())
}
