//! Files: exported, cut, taken up again, imported.

use super::*;

#[tokio::test]
async fn an_export_comes_back_whole_and_a_second_import_records_nothing() {
    let from = store("feed=lanes-8").await;
    fill(&*from.log().expect("log"), &Env::seeded(13), 40).await;
    let file = exported(&from, None).await;
    let events = all(&*from.log().expect("log")).await;
    assert_eq!(file.iter().filter(|byte| **byte == b'\n').count(), events.len());
    for feed in ["lanes-1", "lanes-8", "streams"] {
        let to = store(&format!("feed={feed}")).await;
        let first = moving::import(&to, lines(&file), &quiet).await.expect("imports");
        assert_eq!((first.events, first.commits, first.repeated), (events.len() as u64, 40, 0), "{feed}");
        let again = moving::import(&to, lines(&file), &quiet).await.expect("imports");
        assert_eq!((again.events, again.repeated), (0, events.len() as u64), "{feed}");
        let tag = Query::tag("tag:2").expect("query");
        let there = to.log().expect("log").read_all(&tag, ReadOptions::default()).await.expect("reads");
        assert_eq!(held(&there)["tag:2"], held(&events)["tag:2"], "{feed}");
        if feed != "streams" {
            assert!(moving::compare(&from, &to, &quiet).await.expect("compares").is_equal(), "{feed}");
        }
    }
}

#[tokio::test]
async fn an_export_cut_anywhere_goes_on_to_the_same_file() {
    let from = store("feed=lanes-1").await;
    fill(&*from.log().expect("log"), &Env::seeded(14), 6).await;
    let whole = exported(&from, None).await;
    assert!(whole.len() < 60_000);
    let to = Memory::new();
    for cut in (0..=whole.len()).step_by(97).chain([whole.len()]) {
        let moving::Resume { length, place, query, .. } = moving::resume_at(&mut Cursor::new(&whole[..cut])).expect("resumes");
        assert_eq!(query.is_some(), length > 0, "{query:?}");
        let mut file = whole[..usize::try_from(length).expect("small")].to_vec();
        file.extend(exported(&from, place).await);
        assert!(file == whole, "cut at {cut}: {length} bytes kept, {} in all of {}", file.len(), whole.len());
        // And what is imported of a file cut short is not there twice once the whole is: nor is half a commit.
        let _ = moving::import(party(&to), lines(&whole[..cut]), &quiet).await;
    }
    moving::import(party(&to), lines(&whole), &quiet).await.expect("imports");
    assert_eq!(held(&all(&to).await), held(&all(&*from.log().expect("log")).await));
}

#[tokio::test]
async fn a_large_commit_is_found_whole_behind_many_blocks() {
    let from = Memory::new();
    let event = |n: usize| Event::new("T", vec![b'x'; 20_000]).and_then(|e| e.tag(format!("t{n}"))).expect("event");
    EventLog::append(&from, Append::new([event(0)])).await.expect("appends");
    EventLog::append(&from, Append::new((0..30).map(event))).await.expect("appends");
    let whole = exported(party(&from), None).await;
    let first = whole.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    let moving::Resume { length, place, .. } = moving::resume_at(&mut Cursor::new(&whole[..whole.len() - 30_000])).expect("resumes");
    assert_eq!(length, first as u64);
    assert_eq!(exported(party(&from), place).await.len(), whole.len() - first);
    assert_eq!(moving::resume_at(&mut Cursor::new(&whole[..first - 1])).expect("resumes"), moving::Resume::default());
}

#[tokio::test]
async fn a_wrong_line_is_named_and_what_stands_before_it_is_recorded() {
    let to = Memory::new();
    let good = r#"{"type":"T","data":1,"id":"0191d7a0-0000-7000-8000-000000000001"}"#;
    let cases = [
        ("{", "line 3: EOF"),
        (r#"{"type":"T","data":1}"#, "line 3: it has no id"),
        (r#"{"type":"T","id":"0191d7a0-0000-7000-8000-000000000002","part":[2,3]}"#, "line 3: it is event 2 of 3"),
        (r#"{"type":"T","id":"0191d7a0-0000-7000-8000-000000000002","part":[1,3]}"#, "it ends within a commit, 1 events"),
    ];
    for (line, expected) in cases {
        let error = moving::import(party(&to), lines(format!("{good}\n\n{line}\n").as_bytes()), &quiet).await.expect_err("refused");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(matches!(error, Error::Refused(Refused::Malformed { .. })));
    }
    assert_eq!(all(&to).await.len(), 1);
}
