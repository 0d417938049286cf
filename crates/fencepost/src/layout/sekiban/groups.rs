//! Tags by group, and what is on each: from the rows that the table of tags, or its index, shows, and of large commits all or none.

use std::collections::{BTreeMap, HashSet};

use futures::TryStreamExt;
use futures::stream::{self, BoxStream, StreamExt};
use jiff::Timestamp;
use uuid::Uuid;

use super::Sekiban;
use super::item::{self, GROUP, HASH, INDEX, TAG};
use super::suid::SortableId;
use crate::dynamo::item::{Attributes, Item, text};
use crate::dynamo::{Find, Freshness, Op};
use crate::error::{Error, Result};
use crate::event::CommitId;

/// A tag, and what is on it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct TagInfo {
    /// The tag.
    pub tag: String,
    /// Everything before its first colon.
    pub group: String,
    /// How many events carry it.
    pub events: u64,
    /// The first of them.
    pub first: SortableId,
    /// The last.
    pub last: SortableId,
    /// When the first was.
    pub first_at: Timestamp,
    /// When the last was.
    pub last_at: Timestamp,
}

impl TagInfo {
    fn first(tag: String, at: SortableId) -> TagInfo {
        let group = item::group_of(&tag).to_owned();
        TagInfo { tag, group, events: 1, first: at, last: at, first_at: at.timestamp(), last_at: at.timestamp() }
    }
    fn add(&mut self, at: SortableId) {
        self.events += 1;
        (self.first, self.last) = (self.first.min(at), self.last.max(at));
        (self.first_at, self.last_at) = (self.first.timestamp(), self.last.timestamp());
    }
    fn of(tag: String, all: impl IntoIterator<Item = SortableId>) -> Option<TagInfo> {
        let mut all = all.into_iter();
        let mut info = TagInfo::first(tag, all.next()?);
        all.for_each(|at| info.add(at));
        Some(info)
    }
}

/// Large commits beside rows: those that were on the list in the beginning are counted from their events, and rows of any are passed over.
#[derive(Debug, Default)]
struct Apart {
    commits: HashSet<CommitId>,
    events: HashSet<Uuid>,
    /// By tag, where their events stand.
    whole: BTreeMap<String, Vec<SortableId>>,
}

impl Apart {
    /// What they put on a tag.
    fn on(&mut self, tag: &str) -> Vec<SortableId> {
        self.whole.remove(tag).unwrap_or_default()
    }
    /// Tags before this one that only they are on; all that are left where there is none.
    fn before(&mut self, tag: Option<&str>) -> Vec<TagInfo> {
        let rest = tag.map_or_else(BTreeMap::new, |tag| self.whole.split_off(tag));
        std::mem::replace(&mut self.whole, rest).into_iter().filter_map(|(tag, all)| TagInfo::of(tag, all)).collect()
    }
}

impl Sekiban {
    /// The tags of a group, by name, lazily. Reads every row of the group in the index, which may hold the keys alone.
    pub fn tags_of_group(&self, group: &str) -> BoxStream<'_, Result<TagInfo>> {
        let find = Find::new(&self.options().tags, GROUP, text(self.keys().group(group)));
        let find = Find { index: Some(INDEX.into()), freshness: Freshness::Eventual, ..find };
        let group = group.to_owned();
        let begin = async move {
            let mut apart = self.apart(&self.dynamo().long_op()).await?;
            apart.whole.retain(|tag, _| item::group_of(tag) == group);
            Ok::<_, Error>((Some(None), None::<TagInfo>, apart))
        };
        let pages = stream::once(begin).map_ok(move |begun| {
            let find = find.clone();
            stream::try_unfold(begun, move |(next, mut open, mut apart)| {
                let find = find.clone();
                async move {
                    let Some(start) = next else {
                        let rest: Vec<_> = open.take().into_iter().chain(apart.before(None)).map(Ok).collect();
                        return Ok::<_, Error>((!rest.is_empty()).then(|| (stream::iter(rest), (None, None, apart))));
                    };
                    let op = self.dynamo().long_op();
                    let (items, after) = self.dynamo().page(&op, &find, start).await?;
                    self.more_apart(&op, &mut apart).await?;
                    let mut whole = Vec::new();
                    for item in items.iter().filter(|item| self.keys().owns(item)) {
                        let Some((tag, at)) = self.named(item, &apart)? else { continue };
                        match &mut open {
                            Some(info) if info.tag == tag => info.add(at),
                            _ => {
                                whole.extend(open.take().into_iter().chain(apart.before(Some(&tag))).map(Ok));
                                let all = std::iter::once(at).chain(apart.on(&tag));
                                open = TagInfo::of(tag, all);
                            }
                        }
                    }
                    Ok(Some((stream::iter(whole), (after.map(Some), open, apart))))
                }
            })
        });
        pages.try_flatten().try_flatten().boxed()
    }

    /// All tags of the service, by group and name. Scans the whole table of tags, which services share.
    pub async fn scan_tags(&self) -> Result<Vec<TagInfo>> {
        let op = self.dynamo().long_op();
        let mut apart = self.apart(&op).await?;
        let mut tags: BTreeMap<(String, String), TagInfo> = BTreeMap::new();
        let mut add = |tag: String, at| {
            let key = (item::group_of(&tag).to_owned(), tag.clone());
            tags.entry(key).and_modify(|info| info.add(at)).or_insert_with(|| TagInfo::first(tag, at));
        };
        let mut start = None;
        loop {
            let (items, next) = self.dynamo().scan_page(&op, &self.options().tags, start).await?;
            self.more_apart(&op, &mut apart).await?;
            for item in items.iter().filter(|item| self.keys().owns(item)) {
                if let Some((tag, at)) = self.named(item, &apart)? {
                    add(tag, at);
                }
            }
            match next {
                Some(key) => start = Some(key),
                None => break,
            }
        }
        for (tag, all) in apart.whole {
            all.into_iter().for_each(|at| add(tag.clone(), at));
        }
        Ok(tags.into_values().collect())
    }

    /// The large commits on the list, from their events.
    async fn apart(&self, op: &Op) -> Result<Apart> {
        let mut apart = Apart::default();
        for one in self.listed_in_rows(op).await?.into_iter().filter(|one| !one.is_open()) {
            let places = self.places_of(op, one.commit).await?.unwrap_or_default();
            let ids: Vec<Uuid> = places.iter().map(|(_, id)| *id).collect();
            for some in ids.chunks(self.options().batch_get) {
                for stored in self.stored_events(op, some).await? {
                    for tag in &stored.event.tags {
                        apart.whole.entry(tag.as_str().to_owned()).or_default().push(stored.at);
                    }
                }
            }
            apart.commits.insert(one.commit);
            apart.events.extend(ids);
        }
        Ok(apart)
    }

    /// After a page: rows of commits that were published since may be on it, some of them.
    async fn more_apart(&self, op: &Op, apart: &mut Apart) -> Result<()> {
        for one in self.listed(op).await? {
            if apart.commits.insert(one.commit)
                && let Some(record) = self.record(op, one.commit).await?
            {
                apart.events.extend(record.event_ids());
            }
        }
        Ok(())
    }

    /// A row's tag and place; none for what is no row of a tag, or one of a commit that is counted apart.
    fn named(&self, item: &Item, apart: &Apart) -> Result<Option<(String, SortableId)>> {
        let is_row = item.text(HASH).is_ok_and(|pk| self.keys().rest(pk).starts_with("TAG#"));
        match item.maybe_text(TAG).ok().flatten() {
            Some(tag) if is_row => {
                let row = item::tag_row(item)?;
                let is_apart = row.event.parse().is_ok_and(|id| apart.events.contains(&id));
                Ok((!is_apart).then(|| (tag.to_owned(), row.at)))
            }
            _ => Ok(None),
        }
    }
}
