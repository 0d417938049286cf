//! `copy`, `export` and `import`: what leaves one store arrives in another.

use serde_json::{Value, json};

use crate::{FileStore, run};

/// All kinds of bodies, and commits of several events.
fn source() -> FileStore {
    let store = FileStore::with_events(3);
    let odd = concat!(
        r#"{"type":"A","data":{"n":1.50, "s":"é"},"tags":["x","a"],"meta":{"user":"u","k":[1]},"id":"0191d7a0-0000-7000-8000-000000000001"}"#,
        "\n",
        r#"{"type":"B","data_base64":"AP8="}"#,
        "\n",
        r#"{"type":"C","data_base64":"ewoxfQ=="}"#,
        "\n",
        r#"{"type":"D","data_base64":"IDEK","tags":["a"]}"#,
        "\n"
    );
    store.run_with(&["append"], odd).ok();
    store
}

/// What must be the same on both sides.
fn events(store: &FileStore) -> Vec<Value> {
    let mut lines = store.run(&["export"]).ok().lines();
    for line in &mut lines {
        let happened = line["meta"]["occurred"].take();
        let recorded = line["recorded_at"].take();
        line["happened"] = if happened.is_null() { recorded } else { happened };
        let line = line.as_object_mut().expect("an object");
        line.retain(|name, _| !["checkpoint", "recorded_at"].contains(&name.as_str()));
        line["meta"].as_object_mut().expect("an object").remove("occurred");
    }
    lines
}

#[test]
fn a_copy_says_what_is_lost_copies_and_compares() {
    let (from, to) = (source(), FileStore::new());
    let dry = run(&["copy", "--from", &from.url, "--to", &to.url, "--dry-run"]).ok();
    assert!(dry.lines()[0]["losses"].as_array().is_some_and(|losses| losses.iter().any(|loss| loss["what"] == "recorded_at")));
    assert_eq!(to.run(&["read"]).ok().stdout(), "", "a dry run writes nothing");

    let copied = run(&["copy", "--from", &from.url, "--to", &to.url]).ok();
    assert!(copied.error()["plan"]["losses"].is_array(), "the plan comes on stderr");
    let result = &copied.lines()[0];
    assert_eq!((&result["events"], &result["commits"], &result["compared"]["equal"]), (&json!(7), &json!(2), &json!(7)));
    assert_eq!(events(&from), events(&to));

    from.run_with(&["append"], "{\"type\":\"T\",\"data\":9,\"tags\":[\"a\"]}").ok();
    let more = run(&["copy", "--from", &from.url, "--to", &to.url]).ok();
    assert_eq!((&more.lines()[0]["events"], &more.lines()[0]["total"]), (&json!(1), &json!(8)));
    assert_eq!(more.error()["plan"]["resumes_after"], 7);
    assert_eq!(events(&from), events(&to));
}

/// Streams of a ledger into Equinox's tables and back: what has no stream's name there is named before anything is copied.
#[test]
fn a_copy_goes_to_equinox_and_back() {
    let (from, back) = (FileStore::new(), FileStore::new());
    let equinox = FileStore::new();
    let equinox = FileStore { url: format!("{}?layout=equinox&tip_events=2", equinox.url), ..equinox };
    for n in 1..=5 {
        let line = format!("{{\"type\":\"Added\",\"data\":{{\"n\":{n}}}}}\n");
        from.run_with(&["append", "--stream", &format!("Cart-{}", n % 2)], &line).ok();
    }
    let there = run(&["copy", "--from", &from.url, "--to", &equinox.url]).ok();
    assert_eq!((&there.lines()[0]["events"], &there.lines()[0]["compared"]["equal"]), (&json!(5), &json!(5)));
    assert_eq!(equinox.run(&["read", "--stream", "Cart-1"]).ok().lines().len(), 3);
    equinox.run(&["index", "run", "--once"]).ok();
    let again = run(&["copy", "--from", &equinox.url, "--to", &back.url]).ok();
    assert_eq!((&again.lines()[0]["events"], &again.lines()[0]["compared"]["equal"]), (&json!(5), &json!(5)));
    let read = |store: &FileStore| -> Vec<Value> {
        let lines = store.run(&["read", "--stream", "Cart-1"]).ok().lines();
        lines.iter().map(|line| line["data"]["n"].clone()).collect()
    };
    assert_eq!((read(&from), read(&back)), (vec![json!(1), json!(3), json!(5)], read(&equinox)));
    from.run_with(&["append"], "{\"type\":\"T\",\"tags\":[\"nodash\"]}\n").ok();
    let refused = run(&["copy", "--from", &from.url, "--to", &equinox.url]);
    assert_ne!(refused.exit(), 0, "a tag that is no stream's name there");
}

#[test]
fn a_copy_into_something_else_is_refused_and_what_differs_is_named() {
    let (from, to) = (source(), FileStore::with_events(1));
    let refused = run(&["copy", "--from", &from.url, "--to", &to.url]).fails(2);
    assert_eq!(refused.error()["code"], "refused");
    run(&["copy", "--from", &from.url, "--to", &to.url, "--into-existing"]).ok();
    assert_eq!(to.run(&["read"]).ok().lines().len(), 8);
    // Without leave for others the one that was there is a difference, by its id and without its body.
    let differs = run(&["copy", "--from", &from.url, "--to", &to.url]).fails(1);
    assert_eq!(differs.lines()[0]["compared"]["differences"][0]["fields"], json!(["extra"]));
    assert!(!differs.stdout().contains("data"));
    run(&["copy", "--from", &from.url, "--to", &from.url]).fails(2);
    run(&["copy", "--from", &from.url]).fails(2);
}

#[test]
fn an_export_and_an_import_go_round() {
    let (from, to) = (source(), FileStore::new());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("events.ndjson");
    let file = path.to_str().expect("UTF-8");
    assert_eq!(from.run(&["export", file]).ok().lines()[0]["events"], 7);
    assert_eq!(from.run(&["export", file]).fails(2).error()["code"], "refused", "a file is not overwritten");
    assert_eq!(to.run(&["import", file]).ok().lines()[0], json!({ "events": 7, "commits": 2, "split": 0, "repeated": 0 }));
    assert_eq!(to.run(&["import", file]).ok().lines()[0], json!({ "events": 0, "commits": 0, "split": 0, "repeated": 7 }));
    assert_eq!(events(&from), events(&to));
    // By pipe it is the same.
    let piped = FileStore::new();
    piped.run_with(&["import"], &from.run(&["export"]).ok().stdout()).ok();
    assert_eq!(events(&from), events(&piped));
}

#[test]
fn an_export_goes_on_behind_a_torn_line() {
    let from = source();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("events.ndjson");
    let file = path.to_str().expect("UTF-8");
    from.run(&["export", file, "--resume"]).ok();
    let whole = std::fs::read(&path).expect("a file");
    std::fs::write(&path, &whole[..whole.len() - 20]).expect("writes");
    let to = FileStore::new();
    assert_eq!(to.run(&["import", file]).fails(2).error()["code"], "malformed");
    assert_eq!(to.run(&["read"]).ok().lines().len(), 3, "what stands before it is recorded");
    let resumed = from.run(&["export", file, "--resume"]).ok();
    assert_eq!(resumed.lines()[0]["events"], 4, "the last commit is written anew");
    assert!(std::fs::read(&path).expect("a file") == whole);
    // What stands behind the last whole line goes, also where nothing is written in its place.
    std::fs::write(&path, [&whole[..], b"{\"position\":\"8"].concat()).expect("writes");
    assert_eq!(from.run(&["export", file, "--resume"]).ok().lines()[0]["events"], 0);
    assert!(std::fs::read(&path).expect("a file") == whole);
    assert_eq!(to.run(&["import", file]).ok().lines()[0]["events"], 4);
    assert_eq!(events(&from), events(&to));
    // The store that it came from has it all, in commits of its own.
    assert_eq!(from.run(&["import", file]).ok().lines()[0]["events"], 0);
}

#[test]
fn an_export_can_be_of_one_tag() {
    let lines = source().run(&["export", "--tag", "x"]).ok().lines();
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["type"], &lines[0]["part"]), (&json!("A"), &json!(null)));
}

/// A file of one tag that is gone on with as one of all would be neither.
#[test]
fn an_export_goes_on_with_the_query_that_it_began_with_and_no_other() {
    let from = source();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (one, all) = (path("one.ndjson"), path("all.ndjson"));
    from.run(&["export", &one, "--tag", "x"]).ok();
    from.run(&["export", &all]).ok();
    from.run_with(&["append"], "{\"type\":\"T\",\"data\":8,\"tags\":[\"a\"]}\n{\"type\":\"T\",\"data\":9,\"tags\":[\"x\"]}\n").ok();
    let before = std::fs::read(&one).expect("a file");
    for other in [&["export", &one, "--resume", "--tag", "a"][..], &["export", &all, "--resume", "--tag", "x"]] {
        let refused = from.run(other).fails(2);
        assert!(refused.error()["message"].as_str().is_some_and(|said| said.contains("began with")), "{}", refused.stderr());
    }
    assert_eq!(std::fs::read(&one).expect("a file"), before, "nothing is cut or written");
    // Without being told, and told the same.
    assert_eq!(from.run(&["export", &one, "--resume"]).ok().lines()[0]["events"], 1);
    assert_eq!(from.run(&["export", &one, "--resume", "--tag", "x"]).ok().lines()[0]["events"], 0);
    assert_eq!(from.run(&["export", &all, "--resume"]).ok().lines()[0]["events"], 2);
    let to = FileStore::new();
    assert_eq!(to.run(&["import", &one]).ok().lines()[0]["events"], 2);
    assert_eq!(to.run(&["import", &all]).ok().lines()[0]["events"], 7);
    // A file of before does not say: whoever goes on has to.
    let text = std::fs::read_to_string(&one).expect("a file");
    let (first, rest) = text.split_once('\n').expect("lines");
    let mut first: Value = serde_json::from_str(first).expect("JSON");
    first.as_object_mut().expect("an object").remove("query").expect("it says");
    std::fs::write(&one, format!("{first}\n{rest}")).expect("writes");
    assert_eq!(from.run(&["export", &one, "--resume", "--tag", "x"]).ok().lines()[0]["events"], 0);
    assert_eq!(FileStore::new().run(&["import", &one]).ok().lines()[0]["events"], 2);
}

/// Into a table of Reventless' and out of it again, with every comparison; a feed that nobody has built yet is no difference.
#[test]
fn a_copy_into_the_layout_of_reventless_and_back_is_the_same() {
    let from = FileStore::new();
    let tagged: String =
        (1..=4).map(|n| format!("{{\"type\":\"T\",\"data\":{{\"n\":{n}}},\"tags\":[\"order:{}\",\"product:{n}\"]}}\n", n % 2)).collect();
    from.run_with(&["append"], &tagged).ok();
    from.run_with(&["append"], "{\"type\":\"U\",\"data\":9,\"tags\":[\"order:1\"]}").ok();
    let folder = tempfile::tempdir().expect("a folder");
    for parameters in ["partition=order&cross=product", "partition=order&cross=product&untagged=scan"] {
        let file = folder.path().join(format!("{}.db", parameters.len()));
        let there = format!("file:{}?layout=reventless&{parameters}", file.display());
        let copied = run(&["copy", "--from", &from.url, "--to", &there]).ok().lines();
        assert_eq!((&copied[0]["events"], &copied[0]["compared"]["differing"]), (&json!(5), &json!(0)), "{copied:?}");
        let read = run(&["--store", &there, "read", "--tag", "order:1"]).ok().lines();
        assert_eq!(read.iter().map(|line| &line["data"]).collect::<Vec<_>>(), [&json!({ "n": 1 }), &json!({ "n": 3 }), &json!(9)]);
        run(&["--store", &there, "verify"]).ok();
        run(&["--store", &there, "index", "run", "--once"]).ok();
        let back = FileStore::new();
        let copied = run(&["copy", "--from", &there, "--to", &back.url]).ok().lines();
        assert_eq!((&copied[0]["events"], &copied[0]["compared"]["equal"]), (&json!(5), &json!(5)), "{copied:?}");
        let of = |store: &FileStore, tag: &str| {
            store.run(&["read", "--tag", tag]).ok().lines().iter().map(|line| line["id"].clone()).collect::<Vec<_>>()
        };
        for tag in ["order:0", "order:1", "product:3"] {
            assert_eq!(of(&from, tag), of(&back, tag), "{tag}");
        }
    }
}
