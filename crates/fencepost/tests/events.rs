//! Events as an application's own types, by the derive: bodies, tags, names, versions, and what is said of those that do not decode.

use std::collections::{BTreeSet, VecDeque};

use fencepost::{
    About, Append, Codec, DomainEvent, Env, Error, Event, EventLog, IntoEvent, IntoEvents, Json, Memory, MessagePack, Metadata, Query,
    Recorded, about,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

/// The events, stored and read back.
async fn stored(events: impl IntoEvents) -> Vec<Recorded> {
    let log = Memory::with_env(Env::seeded(1));
    log.append(Append::new(events.into_events().expect("events"))).await.expect("an append");
    log.source(&Query::all(), None).await.expect("a read").events
}

fn tags(event: &Event) -> Vec<&str> {
    event.tags().iter().map(fencepost::Tag::as_str).collect()
}

fn json_body(event: &Event) -> Value {
    serde_json::from_slice(event.data()).expect("a body in JSON")
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Level {
    Beginner,
    Expert,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Extra {
    note: String,
    room: Option<u8>,
}

/// The same events under each codec.
macro_rules! shapes {
    ($module:ident, $codec:ty) => {
        mod $module {
            use super::*;

            #[derive(Debug, Clone, PartialEq, Event, Serialize, Deserialize)]
            #[serde(rename_all = "snake_case")]
            #[event(prefix = "shape.", codec = $codec)]
            pub(super) enum Shape {
                Fields {
                    #[tag("course")]
                    course: String,
                    #[serde(rename = "seats")]
                    capacity: u32,
                    level: Level,
                },
                #[serde(rename = "zzz")]
                Tuple(#[tag("course")] String, i64, Option<Uuid>),
                Newtype(#[tag("course")] String),
                #[event(untagged)]
                Inner(Extra),
                #[event(untagged)]
                Unit,
                #[event(untagged)]
                Flat {
                    id: Uuid,
                    #[serde(flatten)]
                    extra: Extra,
                },
                #[event(name = "Given")]
                #[serde(rename_all = "camelCase")]
                Named {
                    #[tag("student")]
                    r#type: u8,
                    list_of_lists: Vec<Vec<u64>>,
                },
            }

            #[derive(Debug, PartialEq, Event, Serialize, Deserialize)]
            #[event(codec = $codec)]
            pub(super) struct Whole {
                #[tag("course")]
                pub(super) course: String,
                pub(super) capacity: u32,
            }
            #[derive(Debug, PartialEq, Event, Serialize, Deserialize)]
            #[event(codec = $codec, name = "Pair")]
            #[tag("pair:{0}-{1}")]
            pub(super) struct Tuple(pub(super) u8, pub(super) String);
            #[derive(Debug, PartialEq, Event, Serialize, Deserialize)]
            #[event(codec = $codec)]
            pub(super) struct Newtype(#[tag("course")] pub(super) String);
            #[derive(Debug, PartialEq, Event, Serialize, Deserialize)]
            #[event(codec = $codec, untagged)]
            pub(super) struct Unit;

            pub(super) fn one_of_each() -> Vec<Shape> {
                let course = || "c1".to_owned();
                vec![
                    Shape::Fields { course: course(), capacity: 3, level: Level::Expert },
                    Shape::Tuple(course(), -7, Some(Uuid::from_u128(9))),
                    Shape::Newtype(course()),
                    Shape::Inner(Extra { note: "n".into(), room: None }),
                    Shape::Unit,
                    Shape::Flat { id: Uuid::from_u128(8), extra: Extra { note: "n".into(), room: Some(2) } },
                    Shape::Named { r#type: 4, list_of_lists: vec![vec![], vec![u64::MAX]] },
                ]
            }

            fn random(env: &Env) -> Shape {
                let text =
                    || (0..1 + env.below(12)).filter_map(|_| char::from_u32(env.below(0xffff) as u32)).chain(['x']).collect::<String>();
                let extra = || Extra { note: text(), room: (env.below(2) == 0).then(|| env.below(256) as u8) };
                let level = if env.below(2) == 0 { Level::Beginner } else { Level::Expert };
                match env.below(7) {
                    0 => Shape::Fields { course: text(), capacity: env.below(1 << 32) as u32, level },
                    1 => Shape::Tuple(text(), env.below(u64::MAX) as i64, (env.below(2) == 0).then(|| env.new_id())),
                    2 => Shape::Newtype(text()),
                    3 => Shape::Inner(extra()),
                    4 => Shape::Unit,
                    5 => Shape::Flat { id: env.new_id(), extra: extra() },
                    _ => Shape::Named {
                        r#type: env.below(256) as u8,
                        list_of_lists: (0..env.below(4)).map(|_| (0..env.below(4)).map(|_| env.below(u64::MAX)).collect()).collect(),
                    },
                }
            }

            #[tokio::test]
            async fn what_is_written_is_read_as_an_equal_value() {
                let shapes = one_of_each();
                let read: Vec<_> = stored(shapes.clone()).await.iter().map(|event| event.decode::<Shape>().expect("an event")).collect();
                assert_eq!(read, shapes);
                for seed in 0..400 {
                    let shape = random(&Env::seeded(seed));
                    assert_eq!(stored([shape.clone()]).await[0].decode::<Shape>().expect("an event"), shape, "seed {seed}");
                }
            }

            #[tokio::test]
            async fn structs_are_events_too() {
                let whole = Whole { course: "c1".into(), capacity: 3 };
                let events =
                    (vec![whole], vec![Tuple(1, "x".into())], vec![Newtype("c2".into())], vec![Unit]).into_events().expect("events");
                let names: Vec<_> = events.iter().map(|event| event.event_type().as_str()).collect();
                assert_eq!(names, ["Whole", "Pair", "Newtype", "Unit"]);
                let all: Vec<_> = events.iter().flat_map(tags).collect();
                assert_eq!(all, ["course:c1", "pair:1-x", "course:c2"]);
                let stored = stored(events).await;
                assert_eq!(stored[0].decode::<Whole>().expect("a struct"), Whole { course: "c1".into(), capacity: 3 });
                assert_eq!(stored[1].decode::<Tuple>().expect("a tuple"), Tuple(1, "x".into()));
                assert_eq!(stored[2].decode::<Newtype>().expect("a newtype"), Newtype("c2".into()));
                assert_eq!(stored[3].decode::<Unit>().expect("a unit"), Unit);
            }
        }
    };
}
shapes!(as_json, Json);
shapes!(as_message_pack, MessagePack);

#[test]
fn a_body_is_the_fields_alone() {
    let events = as_json::one_of_each().into_events().expect("events");
    let bodies: Vec<_> = events.iter().map(json_body).collect();
    let id = |n| Uuid::from_u128(n).to_string();
    assert_eq!(
        bodies,
        [
            json!({"course": "c1", "seats": 3, "level": "Expert"}),
            json!(["c1", -7, id(9)]),
            json!("c1"),
            json!({"note": "n", "room": null}),
            json!({}),
            json!({"id": id(8), "note": "n", "room": 2}),
            json!({"type": 4, "listOfLists": [[], [u64::MAX]]}),
        ]
    );
    let names: Vec<_> = events.iter().map(|event| event.event_type().as_str()).collect();
    assert_eq!(
        names,
        ["shape.Fields", "shape.Tuple", "shape.Newtype", "shape.Inner", "shape.Unit", "shape.Flat", "shape.Given"],
        "the prefix stands before the variant's name and a given one, and serde's names do not count"
    );
    let whole = as_json::Whole { course: "c1".into(), capacity: 3 }.into_event().expect("an event");
    assert_eq!(whole.data().as_ref(), br#"{"course":"c1","capacity":3}"#);
    assert_eq!(as_json::Unit.into_event().expect("an event").data().as_ref(), b"{}");
    assert!(whole.metadata().is_empty(), "a first version takes no room");
    let packed = as_message_pack::Unit.into_event().expect("an event");
    assert_eq!(packed.data().as_ref(), [0x80], "an empty map");
}

type Tutors = VecDeque<u8>;

#[derive(Debug, PartialEq, Event, Serialize, Deserialize)]
enum Tagged {
    Moved {
        #[tag("course")]
        from: String,
        #[tag("course")]
        #[tag("target")]
        to: String,
        #[tag("student")]
        students: Vec<u32>,
        #[tag("tutor")]
        tutor: Option<u8>,
    },
    Listed {
        #[tag("set")]
        set: BTreeSet<u8>,
        #[tag("pair")]
        pair: [char; 2],
        #[tag("deep")]
        deep: Option<Vec<Option<u8>>>,
        #[tag("tutor", each)]
        aliased: Tutors,
    },
    #[tag("seat:{course}-{row}")]
    #[tag("all:{{seats}}")]
    SeatTaken {
        #[tag("course")]
        course: String,
        row: u32,
        serializer: u8,
    },
    #[tag("line:{1}/{0}")]
    Numbered(u8, #[tag("course")] String),
    #[event(untagged)]
    YearClosed { year: u32 },
}

fn tags_of(event: Tagged) -> Vec<String> {
    tags(&event.into_event().expect("an event")).into_iter().map(str::to_owned).collect()
}

#[test]
fn tags_are_rendered_from_fields() {
    let moved = |to: &str, students: Vec<u32>, tutor| Tagged::Moved { from: "c1".into(), to: to.into(), students, tutor };
    assert_eq!(tags_of(moved("c2", vec![1, 2], Some(7))), ["course:c1", "course:c2", "target:c2", "student:1", "student:2", "tutor:7"]);
    assert_eq!(tags_of(moved("c1", vec![3, 3], None)), ["course:c1", "target:c1", "student:3"], "once each, and none of what is not there");
    let listed = |deep| Tagged::Listed { set: [2, 1].into(), pair: ['a', 'b'], deep, aliased: [5, 6].into() };
    assert_eq!(tags_of(listed(None)), ["set:1", "set:2", "pair:a", "pair:b", "tutor:5", "tutor:6"]);
    assert_eq!(tags_of(listed(Some(vec![Some(1), None, Some(2)])))[4..6], ["deep:1", "deep:2"]);
    let seat = Tagged::SeatTaken { course: "c1".into(), row: 4, serializer: 0 };
    assert_eq!(tags_of(seat), ["course:c1", "seat:c1-4", "all:{seats}"]);
    assert_eq!(tags_of(Tagged::Numbered(1, "x".into())), ["course:x", "line:x/1"]);
    assert!(tags_of(Tagged::YearClosed { year: 2026 }).is_empty());
}

#[test]
fn a_kind_lists_the_keys_that_it_may_carry() {
    let keys: Vec<_> = Tagged::KINDS.iter().map(|kind| kind.keys).collect();
    let expected: [&[&str]; 5] = [
        &["course", "target", "student", "tutor"],
        &["set", "pair", "deep", "tutor"],
        &["course", "seat", "all"],
        &["course", "line"],
        &[],
    ];
    assert_eq!(keys, expected);
}

#[test]
fn a_tag_that_renders_empty_or_too_long_is_refused_by_its_field_and_type() {
    let said = |event: Tagged| event.into_event().expect_err("no event").to_string();
    let moved = |to: String| said(Tagged::Moved { from: "c1".into(), to, students: vec![], tutor: None });
    assert!(moved(String::new()).contains("the field to of Moved renders empty"), "{}", moved(String::new()));
    let long = moved("x".repeat(1018));
    assert!(long.contains("from to of Moved") && long.contains("1025 bytes") && long.contains("1024"), "{long}");
    let seat = said(Tagged::Numbered(1, String::new()));
    assert!(seat.contains("the field 1 of Numbered renders empty"), "{seat}");
    let composed = said_of_composed();
    assert!(composed.contains("the field b of Composed renders empty") && composed.contains("ab:{a}{b}"), "{composed}");
}

fn said_of_composed() -> String {
    #[derive(Event, Serialize, Deserialize)]
    #[tag("ab:{a}{b}")]
    struct Composed {
        a: u8,
        b: String,
    }
    Composed { a: 1, b: String::new() }.into_event().expect_err("no event").to_string()
}

// ---- evolution ----

/// Three programs, one after the other, under each codec.
macro_rules! programs {
    ($module:ident, $codec:ty) => {
        mod $module {
            use super::*;

            /// The first program.
            mod old {
                use super::*;
                #[derive(Event, Serialize, Deserialize)]
                #[event(codec = $codec)]
                pub(super) enum Enrolment {
                    Enrolled {
                        #[tag("course")]
                        course: String,
                        id: Uuid,
                        student: u32,
                    },
                }
            }

            /// The second: students have names, and the type has another.
            mod middle {
                use super::*;
                #[derive(Serialize, Deserialize)]
                pub(super) struct V1 {
                    course: String,
                    id: Uuid,
                    student: u32,
                }
                #[derive(Event, Serialize, Deserialize)]
                #[event(codec = $codec, name = "StudentEnrolled", alias = "Enrolled", version = 2, upcast(1 = named))]
                pub(super) struct V2 {
                    #[tag("course")]
                    pub(super) course: String,
                    pub(super) id: Uuid,
                    pub(super) student: String,
                }
                pub(super) fn named(old: V1) -> V2 {
                    V2 { course: old.course, id: old.id, student: format!("s{}", old.student) }
                }
            }

            /// The third: there are seats.
            #[derive(Debug, PartialEq, Event, Serialize, Deserialize)]
            #[event(codec = $codec, prefix = "Student")]
            enum Enrolment {
                #[event(untagged)]
                Before,
                #[event(name = "Enrolled", alias = "Enrolled", version = 3, upcast(1 = middle::named, 2 = Self::seated))]
                Joined {
                    #[tag("course")]
                    course: String,
                    id: Uuid,
                    student: String,
                    seats: Vec<u8>,
                },
            }

            #[derive(Serialize)]
            struct Seated {
                #[serde(flatten)]
                old: middle::V2,
                seats: [u8; 1],
            }
            impl Enrolment {
                fn seated(old: middle::V2) -> Seated {
                    Seated { old, seats: [1] }
                }
            }

            #[tokio::test]
            async fn what_an_old_program_wrote_is_brought_up_by_the_chain() {
                let (course, id) = ("c1".to_owned(), Uuid::from_u128(77));
                let events = (
                    [old::Enrolment::Enrolled { course: course.clone(), id, student: 7 }],
                    [middle::V2 { course: course.clone(), id, student: "ada".into() }],
                    [Enrolment::Joined { course: course.clone(), id, student: "bob".into(), seats: vec![2, 3] }],
                );
                let events = stored(events).await;
                let written: Vec<_> = events.iter().map(|event| (event.event_type.as_str(), event.meta.schema)).collect();
                assert_eq!(written, [("Enrolled", None), ("StudentEnrolled", Some(2)), ("StudentEnrolled", Some(3))]);
                let read: Vec<_> = events.iter().map(|event| event.decode::<Enrolment>().expect("an event")).collect();
                let joined = |student: &str, seats| Enrolment::Joined { course: course.clone(), id, student: student.into(), seats };
                assert_eq!(read, [joined("s7", vec![1]), joined("ada", vec![1]), joined("bob", vec![2, 3])]);
            }

            #[tokio::test]
            async fn a_newer_version_is_refused_naming_both() {
                let events = stored([Enrolment::Joined { course: "c".into(), id: Uuid::nil(), student: "SECRET".into(), seats: vec![] }]).await;
                let said = events[0].decode::<middle::V2>().err().expect("no event").to_string();
                assert!(said.contains("its version is 3, and this program knows up to 2"), "{said}");
                assert_names_the_event_only(&said, &events[0]);
            }

            #[tokio::test]
            async fn a_step_that_fails_is_named_without_the_body() {
                let bad = <$codec>::encode(&json!({"course": "c1", "student": "SECRET"})).expect("a body");
                let event = Event::new("StudentEnrolled", bad).expect("an event");
                let first = stored(vec![event.clone()]).await.remove(0);
                let said = first.decode::<Enrolment>().expect_err("no event").to_string();
                assert!(said.contains(&format!("from version 1 to 2: {}", <$codec>::NAME)), "{said}");
                assert_names_the_event_only(&said, &first);
                let second = stored(vec![event.meta(Metadata { schema: Some(2), ..Metadata::default() })]).await.remove(0);
                let said = second.decode::<Enrolment>().expect_err("no event").to_string();
                assert!(said.contains("from version 2 to 3"), "{said}");
                assert_names_the_event_only(&said, &second);
            }

            #[tokio::test]
            async fn a_condition_by_type_sees_every_name_and_version() {
                let query = about("course", "c1").query::<Enrolment>().expect("a query");
                assert_eq!(query, Query::item(["Enrolled", "StudentEnrolled"], ["course:c1"]).expect("a query"));
            }
        }
    };
}
programs!(evolution_in_json, Json);
programs!(evolution_in_message_pack, MessagePack);

#[track_caller]
fn assert_names_the_event_only(said: &str, event: &Recorded) {
    for part in [event.event_type.to_string(), event.id.to_string(), format!("at {} ", event.position)] {
        assert!(said.contains(&part), "{part} is not in: {said}");
    }
    assert!(!said.contains("SECRET"), "the body is in: {said}");
}

#[tokio::test]
async fn a_body_that_does_not_decode_names_the_event_and_never_the_body() {
    let json: [&[u8]; 9] = [
        b"{\"course\":\"SECRET",
        b"{\"course\":\"c1\",\"seats\":\"SECRET\",\"level\":\"Expert\"}",
        b"{\"course\":\"c1\",\"seats\":1,\"level\":\"SECRET\"}",
        b"{\"course\":\"c1\",\"SECRET\":1}",
        b"{\"course\":\"c1\",\"seats\":1,\"level\":\"Expert\"} SECRET",
        b"{\"course\":\"SECRET\xff\",\"seats\":1,\"level\":\"Expert\"}",
        b"SECRET",
        b"[\"SECRET\"]",
        b"",
    ];
    for body in json {
        let event = stored(vec![Event::new("shape.Fields", body).expect("an event")]).await.remove(0);
        let said = event.decode::<as_json::Shape>().expect_err("no event").to_string();
        assert_names_the_event_only(&said, &event);
        assert!(said.contains("JSON"), "{said}");
    }
    let packed = |value: Value| MessagePack::encode(&value).expect("a body");
    let good = packed(json!({"course": "SECRET", "seats": 1, "level": "Expert"}));
    let mut bad_utf8 = good.clone();
    let at = bad_utf8.windows(6).position(|bytes| bytes == b"SECRET").expect("the text");
    bad_utf8[at] = 0xff;
    let bodies = [
        good[..good.len() - 3].to_vec(),
        [good.as_slice(), b"SECRET"].concat(),
        bad_utf8,
        packed(json!({"course": "c1", "seats": "SECRET", "level": "Expert"})),
        packed(json!({"course": "c1", "seats": 1, "level": "SECRET"})),
        packed(json!({"course": "c1", "SECRET": 1})),
        packed(json!("SECRET")),
        Vec::new(),
    ];
    for body in bodies {
        let event = stored(vec![Event::new("shape.Fields", body).expect("an event")]).await.remove(0);
        let said = event.decode::<as_message_pack::Shape>().expect_err("no event").to_string();
        assert_names_the_event_only(&said, &event);
        assert!(said.contains("MessagePack"), "{said}");
    }
}

#[tokio::test]
async fn an_unknown_type_is_skipped_or_refused() {
    let event = stored(vec![Event::new("Else", "SECRET").expect("an event")]).await.remove(0);
    assert_eq!(event.decode_known::<Tagged>().expect("skipped"), None);
    let said = event.decode::<Tagged>().expect_err("no event").to_string();
    assert_names_the_event_only(&said, &event);
    assert!(said.contains("known are Moved, Listed, SeatTaken, Numbered, YearClosed"), "{said}");
}

// ---- queries ----

#[test]
fn about_fills_in_the_types_that_carry_all_keys() {
    let query = |about: About| about.query::<Tagged>().expect("a query");
    let item = |types: &[&str], tags: &[&str]| Query::item(types, tags).expect("a query");
    assert_eq!(query(about("course", "c1")), item(&["Moved", "SeatTaken", "Numbered"], &["course:c1"]));
    assert_eq!(query(about("course", "c1").and("student", 7)), item(&["Moved"], &["course:c1", "student:7"]));
    assert_eq!(query(about("tutor", 7)), item(&["Moved", "Listed"], &["tutor:7"]), "an optional key counts");
    assert_eq!(query(about("seat", "c1-4")), item(&["SeatTaken"], &["seat:c1-4"]));
    assert_eq!(query(about("course", "c1").only(["Numbered"])), item(&["Numbered"], &["course:c1"]));
    let either = about("seat", "c1-4").or(("tutor", 7));
    assert_eq!(query(either), item(&["SeatTaken"], &["seat:c1-4"]).or(item(&["Moved", "Listed"], &["tutor:7"])));
    assert_eq!(query(About::every()), item(&["Moved", "Listed", "SeatTaken", "Numbered", "YearClosed"], &[]));
}

#[test]
fn about_refuses_what_no_event_carries() {
    let said = |about: About| match about.query::<Tagged>() {
        Err(Error::Refused(refused)) => refused.to_string(),
        other => panic!("not refused: {other:?}"),
    };
    let unknown_key = said(about("curse", "c1"));
    assert!(unknown_key.contains("curse") && unknown_key.contains("course, deep, line"), "{unknown_key}");
    assert!(said(about("course", "c1").and("set", 1)).contains("course and set"));
    let unknown_type = said(about("course", "c1").only(["Moved", "Mooved"]));
    assert!(unknown_type.contains("Mooved") && unknown_type.contains("YearClosed"), "{unknown_type}");
    assert!(said(about("course", "c1").only(["YearClosed"])).contains("carries these tags"));
    assert!(said(about("course", "")).contains("empty"));
    let ready = || About::from(Query::types(["Moved"]).expect("a query"));
    assert!(said(ready().and("course", "c1")).contains("`and` behind a ready query"), "dropped, it would widen the query");
    assert!(said(ready().only(["Moved"])).contains("`only` behind a ready query"));
    assert!(said(about("course", "c1").or(ready()).and("course", "c1")).contains("`and`"));
}

#[test]
fn lists_options_and_tuples_are_events() {
    let year = |year| Tagged::YearClosed { year };
    let names = |events: fencepost::Result<Vec<Event>>| -> Vec<Value> { events.expect("events").iter().map(json_body).collect() };
    assert_eq!(names(vec![year(1), year(2)].into_events()), [json!({"year": 1}), json!({"year": 2})]);
    assert_eq!(names([year(1)].into_events()), [json!({"year": 1})]);
    assert_eq!(names(Some(year(1)).into_events()), [json!({"year": 1})]);
    assert!(names(None::<Tagged>.into_events()).is_empty() && names(().into_events()).is_empty());
    let raw = Event::new("Raw", "7").expect("an event");
    let mixed = (Some(year(1)), (), ([year(2), year(3)], vec![raw], [as_json::Unit])).into_events();
    assert_eq!(names(mixed), [json!({"year": 1}), json!({"year": 2}), json!({"year": 3}), json!(7), json!({})]);
    let bad = ([year(1)], [Tagged::Numbered(1, String::new())]).into_events();
    assert!(bad.is_err(), "one that is no event refuses all");
}

// ---- what the derive writes ----

/// Everything that generated code could trip over, in scope under other meanings.
mod hygiene {
    use ::std::fmt::Display;

    pub(super) mod elsewhere {
        pub(crate) use ::fencepost as store;
    }
    #[allow(dead_code, reason = "in the way on purpose")]
    mod in_the_way {
        pub(super) struct Vec;
        pub(super) struct Result;
        pub(super) struct Kind;
        pub(super) trait Serialize {}
        pub(super) mod fencepost {}
        pub(super) mod std {}
        pub(super) mod core {}
    }
    #[allow(unused_imports, reason = "in the way on purpose")]
    use in_the_way::*;

    #[derive(::fencepost::Event, ::serde::Serialize, ::serde::Deserialize)]
    #[event(crate = elsewhere::store)]
    pub(super) enum Hygiene<T: Display, const N: usize = 3>
    where
        T: Clone,
    {
        #[tag("n:{tags}-{kind}-{__field_0}")]
        Ok {
            tags: u8,
            kind: u8,
            __field_0: u8,
            #[tag("t")]
            __value: ::std::vec::Vec<T>,
        },
        #[event(untagged)]
        Err { deserializer: [T; 1] },
    }
}

#[test]
fn generated_code_minds_nothing_around_it() {
    let event: hygiene::Hygiene<u64> = hygiene::Hygiene::Ok { tags: 1, kind: 2, __field_0: 3, __value: vec![4, 5] };
    assert_eq!(tags(&event.into_event().expect("an event")), ["t:4", "t:5", "n:1-2-3"]);
    let event: hygiene::Hygiene<String> = hygiene::Hygiene::Err { deserializer: ["x".into()] };
    assert_eq!(json_body(&event.into_event().expect("an event")), json!({"deserializer": ["x"]}));
}

#[derive(Event, Serialize, Deserialize)]
#[event(untagged, prefix = "")]
enum OfStreams {
    Opened { owner: String },
    Closed(#[tag("by")] u8),
}

#[test]
fn an_enum_may_leave_tags_to_its_streams() {
    let events = [OfStreams::Opened { owner: "o".into() }, OfStreams::Closed(1)].into_events().expect("events");
    assert_eq!(events.iter().map(|event| event.tags().len()).collect::<Vec<_>>(), [0, 1]);
}
