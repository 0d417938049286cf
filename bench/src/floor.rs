//! The bare SDK as a contender: the fewest requests that hold what the row asks for, with the ledger's items, and nothing around them.

use aws_smithy_http_client::Builder;
use fencepost::Units;
use fencepost::testing::Meter;
use fencepost_contest::{Fault, Row, Scenario, Speed, Stream, Task, Writer, body, first, grow, race, run_id, say, state};

use crate::bare::{Bare, Streamed};
use crate::ground::Ground;

/// `streamed`: on a table with a stream, as the ledger's in `streams` mode.
pub(crate) async fn contend(ground: &Ground, task: Task, streamed: Streamed) -> Result<(), Fault> {
    let meter = Meter::new(Builder::new().build_http());
    let metered = |of: &str| Bare::by(meter.http_client(), Some(ground.endpoint()), &format!("bare-{of}-{}", run_id()));
    let plain = |table: &str| Bare::by(Builder::new().build_http(), Some(ground.endpoint()), table);
    match task {
        Task::Prepare(table) => plain(&table).create(streamed).await,
        Task::Units(rows) => {
            let bare = metered("units");
            bare.create(streamed).await;
            for row in rows {
                let cannot = match row.as_str() {
                    "thousand" => Some("100 items a transaction"),
                    "feed" | "idle" | "consumer" | "index" | "idle-index" => Some("no feed"),
                    _ => None,
                };
                say(&match cannot {
                    Some(why) => Row::cannot(&row, why),
                    None => Row::of(&row, measure(&bare, &meter, &row).await?),
                })?;
            }
        }
        Task::Speed(speed) => {
            let bare = plain(&speed.table);
            let mut writers = Vec::new();
            for number in 0..speed.writers {
                writers.push(Direct::new(bare.clone(), speed.clone(), number).await);
            }
            say(&race(writers, speed.scenario, speed.lasts).await?)?;
        }
        Task::First(table) => {
            plain(&table).put("first", u64::from(std::process::id()), &body(0)).await;
            say(&first())?;
        }
        Task::Growth(lengths, lasts) => {
            let bare = metered("growth");
            bare.create(streamed).await;
            grow(&mut Growing { bare, meter, version: 0 }, &lengths, lasts).await?;
        }
    }
    Ok(())
}

async fn measure(bare: &Bare, meter: &Meter, row: &str) -> Result<Units, Fault> {
    let of = row.strip_prefix("append-").or(row.strip_prefix("load-"));
    let length = match row {
        "two-tags" | "twenty" => 0,
        "snapshot" => 100,
        _ => of.map_or(Ok(100), str::parse)?,
    };
    // As long as the ledger's name of its stream, since the name is in every item.
    let of = of.unwrap_or(row);
    let named = ["1", "100", "10000", "two-tags", "twenty", "snapshot", "cold", "warm", "conflict"].iter().position(|name| *name == of);
    let stream = format!("order-{}", named.ok_or("no such row")?);
    for version in bare.since(&stream, 0).await..length {
        bare.put(&stream, version + 1, &body(version)).await;
    }
    let tags: Vec<String> = (0..20).map(|n| format!("customer:{row}-{n}")).collect();
    let text = body(length);
    if row == "snapshot" {
        bare.put("order-snapshot-state", 98, &state()).await;
    }
    meter.take();
    match row {
        "append-1" | "append-100" | "append-10000" => bare.put(&stream, length + 1, &text).await,
        "load-100" | "load-10000" => assert_eq!(bare.since(&stream, 0).await, length),
        "two-tags" => bare.try_transact(&[(&tags[0], 1, &text), (&tags[1], 1, &text)]).await.map_err(|_| "a conflict")?,
        "twenty" => {
            // The shared tag's item has twenty pointers, the others the bodies.
            let pointers = tags.join(" ");
            let slots = tags.iter().map(|tag| (tag.as_str(), 1, text.as_str())).chain([("order:twenty", 1, pointers.as_str())]);
            bare.try_transact(&slots.collect::<Vec<_>>()).await.map_err(|_| "a conflict")?;
        }
        "snapshot" => {
            assert_eq!(bare.since("order-snapshot-state", 97).await, 1);
            assert_eq!(bare.since(&stream, 98).await, 2);
        }
        "cold" | "warm" => {
            assert_eq!(bare.since(&stream, if row == "warm" { length } else { 0 }).await, if row == "warm" { 0 } else { length });
            bare.put(&stream, length + 1, &text).await;
        }
        "conflict" => {
            assert!(!bare.try_put(&stream, length, &text).await);
            bare.put(&stream, length + 1, &text).await;
        }
        other => return Err(format!("no row {other}").into()),
    }
    Ok(meter.take())
}

struct Direct {
    bare: Bare,
    speed: Speed,
    stream: String,
    version: u64,
    /// Of each boundary, as everybody remembers it: how far its order was read, and its customer.
    read: [[u64; 2]; 16],
    turn: usize,
}

impl Direct {
    async fn new(bare: Bare, speed: Speed, number: usize) -> Direct {
        let stream = format!("{}-{}", speed.scenario, speed.stream(number));
        let version = if speed.scenario == Scenario::Boundaries { 0 } else { bare.since(&stream, 0).await };
        Direct { bare, speed, stream, version, read: [[0; 2]; 16], turn: number * 7 }
    }

    async fn decide(&mut self) -> u64 {
        let at = self.turn * 5 % 16;
        let (tags, text, [order, customer]) = (self.speed.boundary(at), body(self.turn as u64), self.read[at]);
        let (new_orders, new_customers) = tokio::join!(self.bare.since(&tags[0], order), self.bare.since(&tags[1], customer));
        let mut ends = [order + new_orders, customer + new_customers];
        for conflicts in 0.. {
            match self.bare.try_transact(&[(&tags[0], ends[0] + 1, &text), (&tags[1], ends[1] + 1, &text)]).await {
                Ok(()) => {
                    self.read[at] = ends.map(|end| end + 1);
                    return conflicts;
                }
                // The winner's event came with the refusal, and it goes on behind that; two that met go again as they are.
                Err(taken) => taken.into_iter().zip(&mut ends).for_each(|(taken, end)| *end += u64::from(taken)),
            }
            // The second time it reads on: others are faster than one event a try.
            if conflicts > 0 {
                let new = tokio::join!(self.bare.since(&tags[0], ends[0]), self.bare.since(&tags[1], ends[1]));
                ends = [ends[0] + new.0, ends[1] + new.1];
            }
        }
        0
    }
}

impl Writer for Direct {
    async fn act(&mut self, scenario: Scenario) -> Result<u64, Fault> {
        self.turn += 1;
        if scenario == Scenario::Boundaries {
            return Ok(self.decide().await);
        }
        for conflicts in 0.. {
            // Whether it won or lost, it knows the event that is there now.
            self.version += 1;
            if self.bare.try_put(&self.stream, self.version, &body(self.turn as u64)).await {
                return Ok(conflicts);
            }
            // The second time it reads on: others are faster than one event a try.
            if conflicts > 0 {
                self.version += self.bare.since(&self.stream, self.version).await;
            }
        }
        Ok(0)
    }
}

struct Growing {
    bare: Bare,
    meter: Meter,
    version: u64,
}

impl Stream for Growing {
    async fn append(&mut self) -> Result<(), Fault> {
        self.version += 1;
        self.bare.put("growing", self.version, &body(self.version)).await;
        Ok(())
    }
    async fn load(&mut self) -> Result<u64, Fault> {
        Ok(self.bare.since("growing", 0).await)
    }
    fn consumed(&mut self) -> Units {
        self.meter.take()
    }
    fn is_eventual(&self) -> bool {
        false
    }
}
