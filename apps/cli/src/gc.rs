//! `gc`: deletes chunks that no commit names.

use std::time::Duration;

use jiff::SignedDuration;

use crate::args::Place;
use crate::failure::Outcome;
use crate::output::Output;

/// Delete chunks that no commit names
///
/// What an append left behind that never came to its commit. A set is marked dead before its chunks go, so that a commit still under way
/// notices and writes them anew (in Sekiban's tables it is refused, and records nothing): nothing is lost, however young it is.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fencepost gc
  fencepost gc --older-than 7d12h")]
pub(crate) struct Args {
    /// Only what is older than this, such as 36h or 90m
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    older_than: Duration,
}

/// A duration as people write it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let days_as_hours = text.split_once('d').and_then(|(days, rest)| Some((days.trim().parse::<i64>().ok()?.checked_mul(24)?, rest)));
    let (hours, rest) = days_as_hours.unwrap_or((0, text));
    let rest = match rest.trim() {
        "" if hours > 0 => SignedDuration::ZERO,
        rest => rest.parse().map_err(|_| "expected a duration such as 36h, 90m or 7d")?,
    };
    let whole = SignedDuration::from_secs(hours.saturating_mul(3600)).checked_add(rest).ok_or("too long")?;
    Duration::try_from(whole).map_err(|_| "a duration is not negative".into())
}

pub(crate) async fn run(args: Args, place: &Place, out: &mut Output) -> Outcome {
    let store = place.open().await?;
    let collected = store.collect_garbage(args.older_than).await?;
    Ok(out.result(&collected, |paint| {
        let removed = paint.bold(format!("{} chunks of {} sets deleted", collected.chunks, collected.sets));
        format!("{removed}, {} sets seen; {}", collected.seen, collected.units)
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in [("36h", 129_600), ("90m", 5_400), ("7d", 604_800), ("1d 12h", 129_600), ("0s", 0), ("1h30m", 5_400)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "7", "-1h", "soon", "d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
