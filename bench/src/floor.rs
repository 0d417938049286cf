//! The bare SDK as a contender: the fewest requests that hold what the row asks for, with the ledger's items, and nothing around them.

use aws_smithy_http_client::Builder;
use fencepost::Units;
use fencepost::testing::Meter;
use fencepost_contest::{Fault, Row, Scenario, Speed, Stream, Task, Writer, body, first, grow, race, say};

use crate::bare::Bare;
use crate::ground::Ground;

pub(crate) async fn contend(ground: &Ground, task: Task) -> Result<(), Fault> {
    let meter = Meter::new(Builder::new().build_http());
    let metered = || Bare::by(meter.http_client(), Some(ground.endpoint()));
    let plain = || Bare::by(Builder::new().build_http(), Some(ground.endpoint()));
    match task {
        Task::Prepare(_) => plain().create().await,
        Task::Units(rows) => {
            let bare = metered();
            bare.create().await;
            for row in rows {
                let cannot = match row.as_str() {
                    "thousand" => Some("100 items a transaction"),
                    "feed" | "idle" => Some("no feed"),
                    _ => None,
                };
                let units = if cannot.is_none() { Some(measure(&bare, &meter, &row).await?) } else { None };
                say(&Row { row, units, cannot: cannot.map(str::to_owned) })?;
            }
        }
        Task::Speed(speed) => {
            let bare = plain();
            let mut writers = Vec::new();
            for number in 0..speed.writers {
                writers.push(Direct::new(bare.clone(), speed.clone(), number).await);
            }
            say(&race(writers, speed.scenario, speed.lasts).await?)?;
        }
        Task::First(_) => {
            plain().put("first", u64::from(std::process::id()), &body(0)).await;
            say(&first())?;
        }
        Task::Growth(lengths, lasts) => {
            let bare = metered();
            bare.create().await;
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
    let stream = format!("order-{}", of.unwrap_or(row));
    for version in bare.since(&stream, 0).await..length {
        bare.put(&stream, version + 1, &body(version)).await;
    }
    let tags: Vec<String> = (0..20).map(|n| format!("customer:{row}-{n}")).collect();
    let text = body(length);
    if row == "snapshot" {
        bare.put("order-snapshot-state", 98, &"s".repeat(2_000)).await;
    }
    meter.take();
    match row {
        "append-1" | "append-100" | "append-10000" => bare.put(&stream, length + 1, &text).await,
        "load-100" | "load-10000" => assert_eq!(bare.since(&stream, 0).await, length),
        "two-tags" => assert!(bare.try_transact(&[(&tags[0], 1, &text), (&tags[1], 1, &text)]).await),
        "twenty" => {
            // The shared tag's item has twenty pointers, the others the bodies.
            let pointers = tags.join(" ");
            let slots = tags.iter().map(|tag| (tag.as_str(), 1, text.as_str())).chain([("order:twenty", 1, pointers.as_str())]);
            assert!(bare.try_transact(&slots.collect::<Vec<_>>()).await);
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
    /// How far each tag was read: of orders, then of customers.
    read: [[u64; 4]; 2],
    turn: usize,
}

impl Direct {
    async fn new(bare: Bare, speed: Speed, number: usize) -> Direct {
        let stream = format!("{}-{}", speed.scenario, speed.stream(number));
        let version = if speed.scenario == Scenario::Boundaries { 0 } else { bare.since(&stream, 0).await };
        Direct { bare, speed, stream, version, read: [[0; 4]; 2], turn: number * 7 }
    }

    async fn decide(&mut self) -> u64 {
        let at = self.turn * 5 % 16;
        let (tags, text, places) = (self.speed.boundary(at), body(self.turn as u64), [at % 4, at / 4 % 4]);
        for conflicts in 0.. {
            let [order, customer] = [0, 1].map(|n| self.read[n][places[n]]);
            let (new_orders, new_customers) = tokio::join!(self.bare.since(&tags[0], order), self.bare.since(&tags[1], customer));
            let (order, customer) = (order + new_orders, customer + new_customers);
            let done = self.bare.try_transact(&[(&tags[0], order + 1, &text), (&tags[1], customer + 1, &text)]).await;
            self.read[0][places[0]] = order + u64::from(done);
            self.read[1][places[1]] = customer + u64::from(done);
            if done {
                return conflicts;
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
            if self.bare.try_put(&self.stream, self.version + 1, &body(self.turn as u64)).await {
                self.version += 1;
                return Ok(conflicts);
            }
            self.version += self.bare.since(&self.stream, self.version).await;
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
}
