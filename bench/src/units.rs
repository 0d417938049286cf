//! Units and requests of the same work, on each of our layouts and with each peer that can be run here, in one run.

use std::collections::BTreeMap;

use fencepost::{Result, Units};
use serde_json::{Value, json};

use crate::ground::{self, Ground};
use crate::ours::{Found, LAYOUTS};
use crate::peers::{self, PEERS};
use crate::report::Report;
use crate::work::ROWS;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ground: ground::Place,
    /// Only these rows, by name: append-1, load-100 …
    #[arg(long = "row")]
    rows: Vec<String>,
    /// Only our own layouts: builds no other crates.
    #[arg(long)]
    without_peers: bool,
}

/// `4 w + 0.5 r, 2 req`
fn shown(found: &Found) -> Value {
    let units = match found {
        Found::Units(units) => units,
        Found::Cannot(why) => return json!(why),
    };
    let part = |units: f64, name: &str| (units > 0.0).then(|| format!("{units} {name}"));
    let Units { write, read, requests } = *units;
    let parts: Vec<String> = [part(write, "w"), part(read, "r")].into_iter().flatten().collect();
    let parts = if parts.is_empty() { "0".to_owned() } else { parts.join(" + ") };
    json!(format!("{parts}, {requests} req"))
}

pub(crate) async fn run(args: &Args) -> Result<Report> {
    let ground = Ground::new(&args.ground).await?;
    let wanted: Vec<_> = ROWS.iter().filter(|row| args.rows.is_empty() || args.rows.iter().any(|name| name == row.name)).collect();
    let mut columns = vec!["units of write (w) and read (r), and requests".to_owned()];
    let mut cells: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for layout in LAYOUTS {
        columns.push(layout.name.to_owned());
        for row in &wanted {
            eprintln!("{}: {}", layout.name, row.says);
            let found = layout.measure(&ground, row.name).await?;
            cells.entry(row.name).or_default().push(shown(&found));
        }
    }
    for peer in PEERS.iter().filter(|_| !args.without_peers) {
        eprintln!("{peer}: all rows");
        let (endpoint, rows) = (ground.endpoint().to_owned(), wanted.iter().map(|row| row.name).collect::<Vec<_>>());
        let measured = tokio::task::spawn_blocking(move || peers::measure(peer, &endpoint, &rows)).await;
        match measured.map_err(|error| error.to_string()).flatten() {
            Ok(mut found) => {
                columns.push((*peer).to_owned());
                for row in &wanted {
                    let found = found.remove(row.name).unwrap_or_else(|| Found::Cannot("not done".into()));
                    cells.entry(row.name).or_default().push(shown(&found));
                }
            }
            Err(why) => eprintln!("{peer} is left out: {why}"),
        }
    }
    let rows = wanted.iter().filter_map(|row| Some([vec![json!(row.says)], cells.remove(row.name)?].concat()));
    Ok(Report { rows: rows.collect(), columns })
}
