//! The same tables as text: for Terraform, CloudFormation and the AWS CLI, with deletion protection and point-in-time recovery on.
//! The same input gives the same bytes, and names and values are quoted as each language has it.

use std::fmt::Write;

use super::{Billing, IndexSpec, KeySpec, Projection, StreamView, TableOptions, TableSpec};
use crate::error::Result;

/// For whom tables are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// HCL, for the provider `hashicorp/aws`.
    Terraform,
    /// A template in YAML.
    CloudFormation,
    /// Commands for a shell.
    AwsCli,
}

/// The definition of these tables. Refused where a layout's stream would be switched off.
pub(crate) fn print(specs: &[TableSpec], options: &TableOptions, format: Format) -> Result<String> {
    let tables = specs.iter().map(|spec| Ok((spec, spec.view(options)?))).collect::<Result<Vec<_>>>()?;
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = match format {
        Format::Terraform => terraform(&mut text, &tables, options),
        Format::CloudFormation => cloudformation(&mut text, &tables, options),
        Format::AwsCli => aws_cli(&mut text, &tables, options),
    };
    Ok(text)
}

type Tables<'a> = [(&'a TableSpec, Option<StreamView>)];

fn terraform(out: &mut String, tables: &Tables<'_>, options: &TableOptions) -> std::fmt::Result {
    let quoted = |text: &str| json(text).replace("${", "$${").replace("%{", "%%{");
    let list = |names: &[String]| names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let mut labels = Vec::new();
    for (place, (spec, view)) in tables.iter().enumerate() {
        let label = spec.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect::<String>();
        let label = if label.starts_with(|c: char| c.is_ascii_alphabetic()) { label } else { format!("table_{label}") };
        let label = unique(&mut labels, label);
        let units = |out: &mut String, indent: &str| match options.billing {
            Billing::OnDemand => Ok(()),
            Billing::Provisioned { read, write } => writeln!(out, "{indent}read_capacity  = {read}\n{indent}write_capacity = {write}"),
        };
        if place > 0 {
            writeln!(out)?;
        }
        writeln!(out, "resource \"aws_dynamodb_table\" \"{label}\" {{")?;
        writeln!(out, "  name         = {}", quoted(&spec.name))?;
        writeln!(out, "  billing_mode = \"{}\"", mode(options.billing))?;
        units(out, "  ")?;
        writeln!(out, "  hash_key     = {}", quoted(&spec.hash.name))?;
        if let Some(range) = &spec.range {
            writeln!(out, "  range_key    = {}", quoted(&range.name))?;
        }
        if let Some(view) = view {
            writeln!(out, "\n  stream_enabled   = true\n  stream_view_type = \"{}\"", view.wire())?;
        }
        writeln!(out, "\n  deletion_protection_enabled = true")?;
        for key in spec.attributes() {
            writeln!(out, "\n  attribute {{\n    name = {}\n    type = \"{}\"\n  }}", quoted(&key.name), key.kind.wire())?;
        }
        for index in &spec.indexes {
            writeln!(out, "\n  global_secondary_index {{\n    name            = {}", quoted(&index.name))?;
            writeln!(out, "    hash_key        = {}", quoted(&index.hash.name))?;
            if let Some(range) = &index.range {
                writeln!(out, "    range_key       = {}", quoted(&range.name))?;
            }
            units(out, "    ")?;
            writeln!(out, "    projection_type = \"{}\"", index.projection.wire())?;
            if let Projection::Include(names) = &index.projection {
                writeln!(out, "    non_key_attributes = [{}]", list(names))?;
            }
            writeln!(out, "  }}")?;
        }
        if let Some(ttl) = &spec.ttl {
            writeln!(out, "\n  ttl {{\n    attribute_name = {}\n    enabled        = true\n  }}", quoted(ttl))?;
        }
        writeln!(out, "\n  point_in_time_recovery {{\n    enabled = true\n  }}")?;
        if let Some(key) = &options.kms_key {
            writeln!(out, "\n  server_side_encryption {{\n    enabled     = true\n    kms_key_arn = {}\n  }}", quoted(key))?;
        }
        if !options.tags.is_empty() {
            writeln!(out, "\n  tags = {{")?;
            for (key, value) in &options.tags {
                writeln!(out, "    {} = {}", quoted(key), quoted(value))?;
            }
            writeln!(out, "  }}")?;
        }
        writeln!(out, "}}")?;
    }
    Ok(())
}

// A text in double quotes means the same in YAML as in JSON.
fn cloudformation(out: &mut String, tables: &Tables<'_>, options: &TableOptions) -> std::fmt::Result {
    fn schema(out: &mut String, indent: &str, hash: &KeySpec, range: &Option<KeySpec>) -> std::fmt::Result {
        writeln!(out, "{indent}KeySchema:")?;
        for (key, part) in std::iter::once((hash, "HASH")).chain(range.iter().map(|key| (key, "RANGE"))) {
            writeln!(out, "{indent}  - AttributeName: {}\n{indent}    KeyType: {part}", json(&key.name))?;
        }
        Ok(())
    }
    let units = |out: &mut String, indent: &str| match options.billing {
        Billing::OnDemand => Ok(()),
        Billing::Provisioned { read, write } => {
            writeln!(out, "{indent}ProvisionedThroughput:\n{indent}  ReadCapacityUnits: {read}\n{indent}  WriteCapacityUnits: {write}")
        }
    };
    writeln!(out, "AWSTemplateFormatVersion: \"2010-09-09\"\nDescription: The tables of a fencepost event store\nResources:")?;
    let mut labels = Vec::new();
    for (spec, view) in tables {
        let words = spec.name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let label = words.map(|word| word[..1].to_ascii_uppercase() + &word[1..]).collect::<String>();
        let label = unique(&mut labels, format!("{label}Table"));
        writeln!(
            out,
            "  {label}:\n    Type: AWS::DynamoDB::Table\n    DeletionPolicy: Retain\n    UpdateReplacePolicy: Retain\n    Properties:"
        )?;
        writeln!(out, "      TableName: {}\n      BillingMode: {}", json(&spec.name), mode(options.billing))?;
        units(out, "      ")?;
        writeln!(out, "      AttributeDefinitions:")?;
        for key in spec.attributes() {
            writeln!(out, "        - AttributeName: {}\n          AttributeType: {}", json(&key.name), json(key.kind.wire()))?;
        }
        schema(out, "      ", &spec.hash, &spec.range)?;
        if !spec.indexes.is_empty() {
            writeln!(out, "      GlobalSecondaryIndexes:")?;
        }
        for index in &spec.indexes {
            writeln!(out, "        - IndexName: {}", json(&index.name))?;
            schema(out, "          ", &index.hash, &index.range)?;
            writeln!(out, "          Projection:\n            ProjectionType: {}", index.projection.wire())?;
            if let Projection::Include(names) = &index.projection {
                writeln!(out, "            NonKeyAttributes:")?;
                names.iter().try_for_each(|name| writeln!(out, "              - {}", json(name)))?;
            }
            units(out, "          ")?;
        }
        if let Some(view) = view {
            writeln!(out, "      StreamSpecification:\n        StreamViewType: {}", view.wire())?;
        }
        if let Some(ttl) = &spec.ttl {
            writeln!(out, "      TimeToLiveSpecification:\n        AttributeName: {}\n        Enabled: true", json(ttl))?;
        }
        writeln!(out, "      DeletionProtectionEnabled: true")?;
        writeln!(out, "      PointInTimeRecoverySpecification:\n        PointInTimeRecoveryEnabled: true")?;
        if let Some(key) = &options.kms_key {
            writeln!(
                out,
                "      SSESpecification:\n        SSEEnabled: true\n        SSEType: KMS\n        KMSMasterKeyId: {}",
                json(key)
            )?;
        }
        if !options.tags.is_empty() {
            writeln!(out, "      Tags:")?;
            for (key, value) in &options.tags {
                writeln!(out, "        - Key: {}\n          Value: {}", json(key), json(value))?;
            }
        }
    }
    Ok(())
}

fn aws_cli(out: &mut String, tables: &Tables<'_>, options: &TableOptions) -> std::fmt::Result {
    let throughput = match options.billing {
        Billing::OnDemand => None,
        Billing::Provisioned { read, write } => Some((read, write)),
    };
    let index = |index: &IndexSpec| {
        let range =
            index.range.as_ref().map_or(String::new(), |key| format!(",{{\"AttributeName\":{},\"KeyType\":\"RANGE\"}}", json(&key.name)));
        let included: Vec<_> = index.projection.included().iter().map(|name| json(name)).collect();
        let included = if included.is_empty() { String::new() } else { format!(",\"NonKeyAttributes\":[{}]", included.join(",")) };
        let units = throughput.map_or(String::new(), |(read, write)| {
            format!(",\"ProvisionedThroughput\":{{\"ReadCapacityUnits\":{read},\"WriteCapacityUnits\":{write}}}")
        });
        format!(
            "{{\"IndexName\":{},\"KeySchema\":[{{\"AttributeName\":{},\"KeyType\":\"HASH\"}}{range}],\"Projection\":{{\"ProjectionType\":\"{}\"{included}}}{units}}}",
            json(&index.name),
            json(&index.hash.name),
            index.projection.wire()
        )
    };
    writeln!(out, "set -eu")?;
    for (spec, view) in tables {
        let name = shell(&spec.name);
        let mut words = vec![format!("--table-name {name}")];
        let attributes = spec.attributes();
        let attributes = attributes.iter().map(|key| shell(&format!("AttributeName={},AttributeType={}", key.name, key.kind.wire())));
        words.push(format!("--attribute-definitions {}", attributes.collect::<Vec<_>>().join(" ")));
        let keys = std::iter::once((&spec.hash, "HASH")).chain(spec.range.iter().map(|key| (key, "RANGE")));
        let keys = keys.map(|(key, part)| shell(&format!("AttributeName={},KeyType={part}", key.name)));
        words.push(format!("--key-schema {}", keys.collect::<Vec<_>>().join(" ")));
        words.push(format!("--billing-mode {}", mode(options.billing)));
        if let Some((read, write)) = throughput {
            words.push(format!("--provisioned-throughput ReadCapacityUnits={read},WriteCapacityUnits={write}"));
        }
        if !spec.indexes.is_empty() {
            let indexes: Vec<_> = spec.indexes.iter().map(index).collect();
            words.push(format!("--global-secondary-indexes {}", shell(&format!("[{}]", indexes.join(",")))));
        }
        if let Some(view) = view {
            words.push(format!("--stream-specification StreamEnabled=true,StreamViewType={}", view.wire()));
        }
        if let Some(key) = &options.kms_key {
            words.push(format!("--sse-specification {}", shell(&format!("Enabled=true,SSEType=KMS,KMSMasterKeyId={key}"))));
        }
        if !options.tags.is_empty() {
            let tags = options.tags.iter().map(|(key, value)| format!("{{\"Key\":{},\"Value\":{}}}", json(key), json(value)));
            words.push(format!("--tags {}", shell(&format!("[{}]", tags.collect::<Vec<_>>().join(",")))));
        }
        words.push("--deletion-protection-enabled".into());
        writeln!(out, "aws dynamodb create-table \\\n  {}", words.join(" \\\n  "))?;
        writeln!(out, "aws dynamodb wait table-exists --table-name {name}")?;
        if let Some(ttl) = &spec.ttl {
            let expiry = shell(&format!("Enabled=true,AttributeName={ttl}"));
            writeln!(out, "aws dynamodb update-time-to-live --table-name {name} --time-to-live-specification {expiry}")?;
        }
        writeln!(
            out,
            "aws dynamodb update-continuous-backups --table-name {name} \\\n  --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true"
        )?;
    }
    Ok(())
}

fn mode(billing: Billing) -> &'static str {
    match billing {
        Billing::OnDemand => "PAY_PER_REQUEST",
        Billing::Provisioned { .. } => "PROVISIONED",
    }
}

/// Two names may come to the same label: the later one gets a number.
fn unique(known: &mut Vec<String>, label: String) -> String {
    let mut free = label.clone();
    let mut number = 2;
    while known.contains(&free) {
        free = format!("{label}{number}");
        number += 1;
    }
    known.push(free.clone());
    free
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// One word of a POSIX shell.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.=,:/@".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
