//! Leases: who does a piece of work, among several who could. Held by writing, lost by silence, and never by comparing clocks of two machines.
//!
//! Here the contract, which is one compare-and-set, and the one who takes, keeps and hands over by it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::env::Env;
use crate::error::Result;

/// A lease as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it; none: it was given up.
    pub holder: Option<String>,
    /// Raised by every taking, renewal and giving up.
    pub beat: u64,
    /// Raised by everyone who found it taken and wants the holder to look once more.
    pub marks: u64,
}

/// Where leases are.
#[async_trait]
pub trait Leases: Debug + Send + Sync {
    /// The lease of this name, if it was ever taken.
    async fn load(&self, name: &str) -> Result<Option<Lease>>;

    /// Stores it, if there still is what `expect` says; whether it was stored.
    async fn save(&self, name: &str, lease: &Lease, expect: Option<&Lease>) -> Result<bool>;
}

/// One who wants to hold a lease: takes it, renews it, gives it up.
///
/// A holder renews by writing. Another takes over once it has itself watched the same beat for the lease's length, by its own clock alone;
/// a holder that wakes up late finds that its compare-and-set fails, and must stop.
#[derive(Debug)]
pub struct Lessee {
    leases: Arc<dyn Leases>,
    name: String,
    me: String,
    length: Duration,
    env: Env,
    /// As this one holds it.
    held: Option<Lease>,
    /// As another one holds it, and since when it was seen so.
    watched: Option<(Lease, Instant)>,
}

/// What became of giving up a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// It is free.
    Done,
    /// Somebody left a mark since this one last looked: it is still held, and there may be more to do.
    Marked,
    /// Another one has taken it.
    Lost,
}

/// What became of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marked {
    /// The holder will see it before it gives up.
    Left,
    /// Nobody holds it: take it.
    Free,
}

impl Lessee {
    /// `me` must be another one for everybody who wants it, processes that follow each other included.
    pub fn new(leases: Arc<dyn Leases>, name: impl Into<String>, me: impl Into<String>, length: Duration, env: Env) -> Self {
        Self { leases, name: name.into(), me: me.into(), length, env, held: None, watched: None }
    }

    /// The lease's name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Whether it was held when it was last written.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }
    /// A holder must have renewed within this.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Looks once; takes it if it is free, or was not renewed for as long as this one has watched it, if that is the lease's length.
    pub async fn try_take(&mut self) -> Result<bool> {
        let there = self.leases.load(&self.name).await?;
        if !self.may_take(there.as_ref(), Instant::now()) {
            return Ok(false);
        }
        let before = there.clone().unwrap_or_default();
        let mine = Lease { holder: Some(self.me.clone()), beat: before.beat + 1, marks: before.marks };
        let taken = self.leases.save(&self.name, &mine, there.as_ref()).await?;
        if taken {
            (self.held, self.watched) = (Some(mine), None);
        }
        Ok(taken)
    }

    /// Waits until it is held.
    pub async fn take(&mut self) -> Result<()> {
        while !self.try_take().await? {
            // A few looks within the length; not in step with others.
            let third = u64::try_from(self.length.as_micros() / 3).unwrap_or(u64::MAX).max(2);
            self.env.sleep(Duration::from_micros(third / 2 + self.env.below(third / 2))).await;
        }
        Ok(())
    }

    fn may_take(&mut self, there: Option<&Lease>, now: Instant) -> bool {
        let Some(lease) = there.filter(|lease| lease.holder.is_some()) else { return true };
        match &self.watched {
            Some((seen, since)) if seen.beat == lease.beat && seen.holder == lease.holder => now.duration_since(*since) >= self.length,
            _ => {
                self.watched = Some((lease.clone(), now));
                false
            }
        }
    }

    /// Writes that it is still held; false: it is not, and whatever it guards must stop.
    pub async fn renew(&mut self) -> Result<bool> {
        loop {
            let Some(held) = self.held.clone() else { return Ok(false) };
            let mine = Lease { beat: held.beat + 1, ..held.clone() };
            if self.leases.save(&self.name, &mine, Some(&held)).await? {
                self.held = Some(mine);
                return Ok(true);
            }
            // Only marks may have come: they stay, since giving up compares with what was looked at.
            let there = self.leases.load(&self.name).await?;
            self.held = there.filter(|there| self.is_mine(Some(there)));
        }
    }

    /// How many marks there are: look before the work, so that giving up knows what came since.
    pub async fn look(&mut self) -> Result<Option<u64>> {
        let there = self.leases.load(&self.name).await?;
        if !self.is_mine(there.as_ref()) {
            self.held = None;
            return Ok(None);
        }
        Ok(there.map(|lease| lease.marks))
    }

    /// Gives it up, if no mark came since there were this many.
    pub async fn give_up(&mut self, marks: u64) -> Result<GivenUp> {
        loop {
            let Some(held) = self.held.clone() else { return Ok(GivenUp::Lost) };
            let there = self.leases.load(&self.name).await?;
            if !self.is_mine(there.as_ref()) {
                self.held = None;
                return Ok(GivenUp::Lost);
            }
            let there = there.unwrap_or(held);
            if there.marks != marks {
                return Ok(GivenUp::Marked);
            }
            let free = Lease { holder: None, beat: there.beat + 1, marks };
            if self.leases.save(&self.name, &free, Some(&there)).await? {
                self.held = None;
                return Ok(GivenUp::Done);
            }
        }
    }

    /// Tells the holder to look once more before it gives up.
    pub async fn mark(&mut self) -> Result<Marked> {
        loop {
            let Some(there) = self.leases.load(&self.name).await?.filter(|lease| lease.holder.is_some()) else { return Ok(Marked::Free) };
            let marked = Lease { marks: there.marks + 1, ..there.clone() };
            if self.leases.save(&self.name, &marked, Some(&there)).await? {
                return Ok(Marked::Left);
            }
        }
    }

    /// Whether the stored lease is the one that this one wrote, whatever marks came.
    fn is_mine(&self, there: Option<&Lease>) -> bool {
        self.held.as_ref().zip(there).is_some_and(|(held, there)| held.beat == there.beat && held.holder == there.holder)
    }
}
