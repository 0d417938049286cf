//! umadb in the process, on a file in the temporary directory: boundaries without a network, as a reference.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use fencepost_contest::{Fault, Scenario, Speed, Task, Writer, body, first, race, say};
use umadb_core::db::UmaDb;
use umadb_core::mvcc::{Mvcc, StorageOptions};
use umadb_dcb::{DcbAppendCondition, DcbError, DcbEvent, DcbEventStoreSync, DcbQuery, DcbQueryItem};

fn folder(table: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{table}.umadb"))
}

/// It says on stdout what it opened; those lines are no JSON, and are passed over.
fn opened(table: &str) -> Result<UmaDb, Fault> {
    let options = StorageOptions { db_path: folder(table).join("uma.db"), ..StorageOptions::default() };
    Ok(UmaDb::from_arc(Arc::new(Mvcc::new(false, options)?)))
}

pub async fn contend(task: Task) -> Result<(), Fault> {
    match task {
        Task::Prepare(table) => {
            // A run of its own: what an earlier one left is not grown on.
            let _ = std::fs::remove_dir_all(folder(&table));
            Ok(std::fs::create_dir_all(folder(&table))?)
        }
        Task::Speed(speed) => {
            // One writer at a time, as the thread of its server; without that thread's batches.
            let db = Arc::new((opened(&speed.table)?, Mutex::new(())));
            let writers =
                (0..speed.writers).map(|number| Local { db: db.clone(), speed: speed.clone(), turn: number * 7, read: [None; 16] });
            say(&race(writers.collect(), speed.scenario, speed.lasts).await?)
        }
        Task::First(table) => {
            let db = opened(&table)?;
            let event = DcbEvent {
                event_type: "OrderPlaced".into(),
                data: body(0).into_bytes(),
                tags: vec!["first".into()],
                ..DcbEvent::default()
            };
            db.append(vec![event], None, None)?;
            say(&first())
        }
        Task::Units(_) | Task::Growth(..) => Err("no units: it is a file".into()),
    }
}

struct Local {
    db: Arc<(UmaDb, Mutex<()>)>,
    speed: Speed,
    turn: usize,
    /// How far each boundary was read.
    read: [Option<u64>; 16],
}

impl Writer for Local {
    async fn act(&mut self, _: Scenario) -> Result<u64, Fault> {
        self.turn += 1;
        let at = self.turn * 5 % 16;
        let (db, tags, turn, mut after) = (self.db.clone(), self.speed.boundary(at), self.turn as u64, self.read[at]);
        // It blocks until its file is flushed.
        let (conflicts, done) = tokio::task::spawn_blocking(move || -> Result<(u64, u64), DcbError> {
            let query = DcbQuery::with_items(tags.iter().map(|tag| DcbQueryItem::new().tags([tag.as_str()])));
            for conflicts in 0.. {
                let (_, head) = db.0.read_with_head(Some(query.clone()), after.map(|after| after + 1), false, None)?;
                after = head.or(after);
                let event = DcbEvent {
                    event_type: "OrderPlaced".into(),
                    data: body(turn).into_bytes(),
                    tags: tags.to_vec(),
                    ..DcbEvent::default()
                };
                let condition = DcbAppendCondition { fail_if_events_match: query.clone(), after };
                let turn = db.1.lock().unwrap_or_else(PoisonError::into_inner);
                let appended = db.0.append(vec![event], Some(condition), None);
                drop(turn);
                match appended {
                    Ok(done) => return Ok((conflicts, done)),
                    Err(DcbError::IntegrityError(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok((0, 0))
        })
        .await??;
        self.read[at] = Some(done);
        Ok(conflicts)
    }
}
