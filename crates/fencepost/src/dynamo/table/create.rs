//! Creating, verifying and describing tables: the talking half.

use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata};
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::operation::update_time_to_live::UpdateTimeToLiveError;
use aws_sdk_dynamodb::types::{
    self as sdk, AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, PointInTimeRecoveryStatus,
    ProjectionType, ProvisionedThroughput, ScalarAttributeType, SseSpecification, SseType, StreamSpecification, StreamViewType,
    TableDescription, TableStatus, Tag, TimeToLiveSpecification, TimeToLiveStatus,
};

use super::{
    Billing, Created, Described, Difference, IndexSpec, KeyKind, KeySpec, Projection, StreamSpec, StreamView, TableOptions, TableSpec,
};
use crate::dynamo::{Dynamo, Op};
use crate::error::{Error, Reason, Result};

/// Looks at a table that is not ready, the pauses between them growing to 2 s: some ten minutes. The operation may end sooner.
const LOOKS: u32 = 600;

impl Dynamo {
    /// Makes the table unless it is there, waits until it can be used, and verifies it. Whoever calls it how often and from
    /// how many places, there is one table afterwards, and a caller that fails half-way leaves nothing that another cannot finish.
    ///
    /// Deletion protection and point-in-time recovery stay off: what is created by a call is as often a test's, which must be able
    /// to delete it, on an engine that knows neither, and recovery is billed by the GB. The printed definitions, for tables that
    /// stay, have both.
    pub(crate) async fn create_table(&self, op: &Op, spec: &TableSpec, options: &TableOptions) -> Result<Created> {
        let view = spec.view(options)?;
        let mut created = Created::Existed;
        let mut last = String::new();
        for look in 0..LOOKS {
            match self.table(op, &spec.name).await? {
                None => {
                    if self.send_create(op, spec, options, view).await? {
                        created = Created::Created;
                    }
                    last = "not there yet".into();
                }
                Some(table) => match table.table_status {
                    // An update changes capacity or settings, and leaves the table usable.
                    Some(TableStatus::Active | TableStatus::Updating) | None => {
                        let mut found = described(table);
                        // Expiry is no part of CreateTable: whoever sees it missing sets it, for its creator may have died before.
                        if spec.ttl.is_some() {
                            found.ttl = self.expiry(op, &spec.name).await?.or_as(&spec.ttl);
                        }
                        match &spec.ttl {
                            Some(by) if found.ttl.is_none() && look + 1 < LOOKS => {
                                last = self.set_expiry(op, &spec.name, by).await?;
                            }
                            _ => {
                                let differences = spec.differences(&found, view);
                                return if differences.is_empty() { Ok(created) } else { Err(Difference::error(&differences)) };
                            }
                        }
                    }
                    // Once a table that is being deleted is gone, the name is free.
                    Some(TableStatus::Creating | TableStatus::Deleting) => {
                        last = table.table_status.map_or(String::new(), |status| status.as_str().to_owned());
                    }
                    Some(other) => return Err(unusable(&spec.name, other.as_str())),
                },
            }
            let pause = self.pause(look, Reason::Throttled);
            if op.left(std::time::Duration::MAX) <= pause {
                break;
            }
            self.env().sleep(pause).await;
        }
        Err(Error::unavailable(Reason::Unreachable, format!("table {} did not become usable in time: {last}; ask again", spec.name)))
    }

    /// In what the table is not as needed; a table that is not there is an error of its own.
    pub(crate) async fn verify_table(&self, op: &Op, spec: &TableSpec) -> Result<Vec<Difference>> {
        let table = self.table(op, &spec.name).await?.ok_or_else(|| missing(&spec.name))?;
        let mut found = described(table);
        if spec.ttl.is_some() {
            found.ttl = self.expiry(op, &spec.name).await?.or_as(&spec.ttl);
        }
        let needed = match spec.stream {
            StreamSpec::Needed(view) => Some(view),
            StreamSpec::Never | StreamSpec::OnRequest => None,
        };
        Ok(spec.differences(&found, needed))
    }

    /// Everything that the service tells of a table.
    pub(crate) async fn describe(&self, op: &Op, name: &str) -> Result<Described> {
        let mut found = described(self.table(op, name).await?.ok_or_else(|| missing(name))?);
        found.ttl = self.expiry(op, name).await?.or_as(&None);
        found.pitr = self.recovery(op, name).await?;
        Ok(found)
    }

    /// About how many items these tables have together, where they tell: DynamoDB counts every six hours or so. By one request for
    /// each, which its readers may make.
    pub(crate) async fn about_items(&self, op: &Op, tables: &[&str]) -> Option<u64> {
        let mut about = 0;
        for table in tables {
            about += u64::try_from(described(self.table(op, table).await.ok()??).items).ok()?;
        }
        // A table that was filled since tells none.
        Some(about).filter(|about| *about > 0)
    }

    /// Its own region, as its name in the account tells, and those of its replicas; by one request, which its writers may make.
    pub(crate) async fn replicas(&self, op: &Op, name: &str) -> Result<(Option<String>, Vec<String>)> {
        let found = described(self.table(op, name).await?.ok_or_else(|| missing(name))?);
        let here = found.arn.as_deref().and_then(|arn| arn.split(':').nth(3)).map(str::to_owned);
        let others = found.replicas.into_iter().filter(|region| Some(region) != here.as_ref());
        Ok((here.clone(), others.collect()))
    }

    /// The name of its stream and what that holds, where it has one: by one request, which its readers may make.
    #[cfg_attr(not(feature = "streams"), expect(dead_code, reason = "only the indexer reads streams"))]
    pub(crate) async fn stream_name(&self, op: &Op, name: &str) -> Result<Option<(String, StreamView)>> {
        let found = described(self.table(op, name).await?.ok_or_else(|| missing(name))?);
        Ok(found.stream_arn.zip(found.stream))
    }

    async fn table(&self, op: &Op, name: &str) -> Result<Option<TableDescription>> {
        let request = self.client().describe_table().table_name(name);
        let own = |e: &DescribeTableError| matches!(e, DescribeTableError::ResourceNotFoundException(_));
        let (answer, _) = self.repeat(op, || request.clone().send(), own).await?;
        Ok(answer.ok().and_then(|found| found.table))
    }

    /// Whether it was this request that made it; else somebody was first, and the next look tells what they made.
    async fn send_create(&self, op: &Op, spec: &TableSpec, options: &TableOptions, view: Option<StreamView>) -> Result<bool> {
        let bad = |e: BuildError| Error::unavailable(Reason::Rejected, e.to_string());
        let attribute = |key: &&KeySpec| AttributeDefinition::builder().attribute_name(&key.name).attribute_type(scalar(key.kind)).build();
        let attributes = spec.attributes().iter().map(attribute).collect::<Result<Vec<_>, _>>().map_err(bad)?;
        let indexes = spec.indexes.iter().map(|i| index(i, options.billing)).collect::<Result<Vec<_>, _>>().map_err(bad)?;
        let tags = options.tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build());
        let tags = tags.collect::<Result<Vec<_>, _>>().map_err(bad)?;
        let stream = view.map(|view| StreamSpecification::builder().stream_enabled(true).stream_view_type(view.wire().into()).build());
        let key = options.kms_key.as_ref();
        let encryption = key.map(|key| SseSpecification::builder().enabled(true).sse_type(SseType::Kms).kms_master_key_id(key).build());
        let request = self
            .client()
            .create_table()
            .table_name(&spec.name)
            .set_attribute_definitions(Some(attributes))
            .set_key_schema(Some(schema(&spec.hash, &spec.range).map_err(bad)?))
            .set_global_secondary_indexes((!indexes.is_empty()).then_some(indexes))
            .billing_mode(match options.billing {
                Billing::OnDemand => BillingMode::PayPerRequest,
                Billing::Provisioned { .. } => BillingMode::Provisioned,
            })
            .set_provisioned_throughput(throughput(options.billing).map_err(bad)?)
            .set_stream_specification(stream.transpose().map_err(bad)?)
            .set_sse_specification(encryption)
            .set_tags((!tags.is_empty()).then_some(tags));
        let own = |e: &CreateTableError| matches!(e, CreateTableError::ResourceInUseException(_));
        let (answer, _) = self.repeat(op, || request.clone().send(), own).await?;
        Ok(answer.is_ok())
    }

    async fn expiry(&self, op: &Op, name: &str) -> Result<Expiry> {
        let request = self.client().describe_time_to_live().table_name(name);
        let (answer, _) = self.repeat(op, || request.clone().send(), untold).await?;
        let Ok(told) = answer else { return Ok(Expiry::Untold) };
        let told = told.time_to_live_description;
        let on = told.filter(|told| matches!(told.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)));
        Ok(Expiry::Told(on.and_then(|told| told.attribute_name)))
    }

    /// Whether it worked shows at the next look: a refusal may mean that somebody else was first, or that the table is in change.
    async fn set_expiry(&self, op: &Op, name: &str, by: &str) -> Result<String> {
        let expiry = TimeToLiveSpecification::builder().enabled(true).attribute_name(by).build();
        let expiry = expiry.map_err(|e| Error::unavailable(Reason::Rejected, e.to_string()))?;
        let request = self.client().update_time_to_live().table_name(name).time_to_live_specification(expiry);
        let perhaps = |e: &UpdateTimeToLiveError| matches!(e.code(), Some("ValidationException" | "ResourceInUseException"));
        let (answer, _) = self.repeat(op, || request.clone().send(), perhaps).await?;
        let refusal = answer.err().and_then(|refused| refused.message().map(str::to_owned)).unwrap_or_default();
        Ok(format!("expiry (TTL) by {by} is not on yet {refusal}").trim_end().to_owned())
    }

    async fn recovery(&self, op: &Op, name: &str) -> Result<Option<bool>> {
        let request = self.client().describe_continuous_backups().table_name(name);
        let (answer, _) = self.repeat(op, || request.clone().send(), untold).await?;
        let told =
            answer.ok().and_then(|told| told.continuous_backups_description).and_then(|told| told.point_in_time_recovery_description);
        Ok(told.map(|told| told.point_in_time_recovery_status == Some(PointInTimeRecoveryStatus::Enabled)))
    }
}

/// What is known of a table's expiry: by an attribute or not at all; or nothing, since nobody tells.
enum Expiry {
    Told(Option<String>),
    Untold,
}

impl Expiry {
    /// The attribute; where nobody tells, this one.
    fn or_as(self, assumed: &Option<String>) -> Option<String> {
        match self {
            Expiry::Told(by) => by,
            Expiry::Untold => assumed.clone(),
        }
    }
}

/// An engine that lacks the operation, or rights that do: neither keeps the rest from being told.
fn untold(e: &impl ProvideErrorMetadata) -> bool {
    !matches!(e.code(), Some("ThrottlingException" | "Throttling" | "RequestLimitExceeded" | "InternalServerError"))
}

fn missing(name: &str) -> Error {
    Error::unavailable(Reason::Missing, format!("table {name} does not exist: create it with `init`, or by its printed definition"))
}

fn unusable(name: &str, status: &str) -> Error {
    Error::unavailable(Reason::Rejected, format!("table {name} is {status}"))
}

fn scalar(kind: KeyKind) -> ScalarAttributeType {
    kind.wire().into()
}

fn schema(hash: &KeySpec, range: &Option<KeySpec>) -> Result<Vec<KeySchemaElement>, BuildError> {
    let element = |key: &KeySpec, kind| KeySchemaElement::builder().attribute_name(&key.name).key_type(kind).build();
    std::iter::once(element(hash, KeyType::Hash)).chain(range.iter().map(|key| element(key, KeyType::Range))).collect()
}

fn throughput(billing: Billing) -> Result<Option<ProvisionedThroughput>, BuildError> {
    match billing {
        Billing::OnDemand => Ok(None),
        Billing::Provisioned { read, write } => {
            let units = ProvisionedThroughput::builder().read_capacity_units(read.into()).write_capacity_units(write.into());
            units.build().map(Some)
        }
    }
}

fn index(index: &IndexSpec, billing: Billing) -> Result<GlobalSecondaryIndex, BuildError> {
    let included = index.projection.included();
    let projection = sdk::Projection::builder()
        .projection_type(index.projection.wire().into())
        .set_non_key_attributes((!included.is_empty()).then(|| included.to_vec()));
    GlobalSecondaryIndex::builder()
        .index_name(&index.name)
        .set_key_schema(Some(schema(&index.hash, &index.range)?))
        .projection(projection.build())
        .set_provisioned_throughput(throughput(billing)?)
        .build()
}

/// From the service's words to ours.
fn described(table: TableDescription) -> Described {
    let kinds = table.attribute_definitions.unwrap_or_default();
    let key = |schema: &[KeySchemaElement], part: KeyType| {
        let element = schema.iter().find(|element| element.key_type == part)?;
        let kind = kinds.iter().find(|attribute| attribute.attribute_name == element.attribute_name)?;
        let kind = match kind.attribute_type {
            ScalarAttributeType::N => KeyKind::N,
            ScalarAttributeType::B => KeyKind::B,
            _ => KeyKind::S,
        };
        Some(KeySpec { name: element.attribute_name.clone(), kind })
    };
    let index = |name: Option<String>, schema: Option<Vec<KeySchemaElement>>, projection: Option<sdk::Projection>| {
        let schema = schema.unwrap_or_default();
        let projection = match projection.as_ref().and_then(|projection| projection.projection_type.as_ref()) {
            Some(ProjectionType::All) => Projection::All,
            Some(ProjectionType::Include) => Projection::Include(projection.and_then(|p| p.non_key_attributes).unwrap_or_default()),
            _ => Projection::KeysOnly,
        };
        Some(IndexSpec { name: name?, hash: key(&schema, KeyType::Hash)?, range: key(&schema, KeyType::Range), projection })
    };
    let global = table.global_secondary_indexes.unwrap_or_default().into_iter().map(|i| (i.index_name, i.key_schema, i.projection));
    let local = table.local_secondary_indexes.unwrap_or_default().into_iter().map(|i| (i.index_name, i.key_schema, i.projection));
    let mut indexes: Vec<_> = global.chain(local).filter_map(|(name, schema, projection)| index(name, schema, projection)).collect();
    indexes.sort_by(|a, b| a.name.cmp(&b.name));
    let schema = table.key_schema.unwrap_or_default();
    let on_demand = table.billing_mode_summary.and_then(|summary| summary.billing_mode) == Some(BillingMode::PayPerRequest);
    let units = |units: Option<i64>| units.and_then(|units| u32::try_from(units).ok()).unwrap_or(0);
    let billing = match table.provisioned_throughput {
        // Provisioned tables of old tell no billing mode; those on demand tell 0 units.
        Some(throughput) if !on_demand && units(throughput.read_capacity_units) > 0 => {
            Billing::Provisioned { read: units(throughput.read_capacity_units), write: units(throughput.write_capacity_units) }
        }
        _ => Billing::OnDemand,
    };
    let stream = table.stream_specification.filter(|stream| stream.stream_enabled);
    Described {
        name: table.table_name.unwrap_or_default(),
        status: table.table_status.map_or("ACTIVE".into(), |status| status.as_str().to_owned()),
        items: table.item_count.unwrap_or(0),
        bytes: table.table_size_bytes.unwrap_or(0),
        billing,
        hash: key(&schema, KeyType::Hash),
        range: key(&schema, KeyType::Range),
        indexes,
        stream_arn: stream.as_ref().and(table.latest_stream_arn),
        stream: stream.map(|stream| match stream.stream_view_type {
            Some(StreamViewType::NewImage) => StreamView::NewImage,
            Some(StreamViewType::OldImage) => StreamView::OldImage,
            Some(StreamViewType::NewAndOldImages) => StreamView::NewAndOldImages,
            _ => StreamView::KeysOnly,
        }),
        ttl: None,
        pitr: None,
        deletion_protection: table.deletion_protection_enabled,
        kms_key: table.sse_description.and_then(|sse| sse.kms_master_key_arn),
        replicas: table.replicas.unwrap_or_default().into_iter().filter_map(|replica| replica.region_name).collect(),
        table_id: table.table_id,
        arn: table.table_arn,
    }
}
