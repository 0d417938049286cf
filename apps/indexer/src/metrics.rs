//! What CloudWatch makes metrics of: a line in its embedded metric format, on stdout like every log. It costs no call and no right.

use std::io::Write;
use std::time::Duration;

use fencepost::IndexProgress;
use serde_json::{Value, json};

/// Where the metrics lie, by the name of the function.
const NAMESPACE: &str = "Fencepost";

pub(crate) struct Metrics {
    lag: Duration,
    waiting: u64,
    late: u64,
    trimmed: bool,
}

impl Metrics {
    pub(crate) fn of(progress: &IndexProgress, lag: Duration) -> Self {
        Self { lag, waiting: progress.waiting, late: progress.late, trimmed: progress.trimmed }
    }

    fn line(&self, function: &str, now: u64) -> Value {
        let metric = |name: &str, unit: &str| json!({ "Name": name, "Unit": unit });
        let metrics = [metric("IndexLag", "Milliseconds"), metric("Waiting", "Count"), metric("Late", "Count"), metric("Trimmed", "Count")];
        json!({
            "_aws": {
                "Timestamp": now,
                "CloudWatchMetrics": [{ "Namespace": NAMESPACE, "Dimensions": [["FunctionName"]], "Metrics": metrics }],
            },
            "FunctionName": function,
            "IndexLag": u64::try_from(self.lag.as_millis()).unwrap_or(u64::MAX),
            "Waiting": self.waiting,
            "Late": self.late,
            "Trimmed": u64::from(self.trimmed),
        })
    }

    pub(crate) fn print(&self, function: &str, now: u64) {
        // Where stdout is closed there is nobody to tell.
        let _ = writeln!(std::io::stdout().lock(), "{}", self.line(function, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_that_is_named_is_there() {
        let line = Metrics { lag: Duration::from_millis(70), waiting: 2, late: 0, trimmed: true }.line("indexer", 9);
        let directive = &line["_aws"]["CloudWatchMetrics"][0];
        let names: Vec<_> = directive["Metrics"].as_array().expect("a list").iter().map(|metric| metric["Name"].as_str()).collect();
        assert_eq!(names, ["IndexLag", "Waiting", "Late", "Trimmed"].map(Some));
        assert!(names.iter().flatten().all(|name| line[name].is_u64()), "{line}");
        assert_eq!(line["FunctionName"], "indexer");
        assert_eq!((&line["IndexLag"], &line["Trimmed"]), (&json!(70), &json!(1)));
    }
}
