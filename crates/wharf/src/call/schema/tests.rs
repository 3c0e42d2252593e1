//! What cannot be seen from outside: the bounds of the cache, and what runs aside.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::cache::{Cache, PLACES_MAX};
use super::{ASIDE, DEADLINE, Misfit, Validators};
use crate::wire::Json;

fn numbered(i: usize) -> Json {
    Json::from(json!({"type": "object", "title": i.to_string()}))
}

#[test]
fn the_cache_is_bounded_and_forgets_the_oldest_first() {
    let cache = Cache::default();
    let verdict = Err(Arc::from("unusable"));
    let schemas: Vec<Json> = (0..=PLACES_MAX).map(numbered).collect();
    for (i, schema) in schemas.iter().enumerate() {
        cache.put(schema, &verdict);
        assert_eq!(cache.len(), if i < PLACES_MAX { i + 1 } else { PLACES_MAX / 2 });
    }
    assert!(cache.get(&schemas[PLACES_MAX]).is_some());
    let held = Json::from(json!({"held": true}));
    assert!(cache.get(&held).is_none());
}

#[test]
fn the_cache_is_bounded_in_bytes() {
    let cache = Cache::default();
    let verdict = Err(Arc::from("unusable"));
    for i in 0..100 {
        let large = Json::from(json!({"title": i, "description": "x".repeat(200_000)}));
        cache.put(&large, &verdict);
        assert!(cache.len() <= 83, "{} of 200 kB are more than 16 MiB", cache.len());
    }
    let too_large = Json::from(json!({"description": "x".repeat(300_000)}));
    cache.put(&too_large, &verdict);
    assert!(cache.get(&too_large).is_none());
}

#[test]
fn equal_bytes_at_another_place_are_found_by_their_hash() {
    let cache = Cache::default();
    let verdict = Err(Arc::from("why"));
    let first = numbered(1);
    cache.put(&first, &verdict);
    let second = numbered(1);
    assert_ne!(first.bytes().as_ptr(), second.bytes().as_ptr());
    assert!(cache.get(&second).is_some_and(|v| v.is_err_and(|reason| &*reason == "why")));
    assert_eq!(cache.len(), 2);
    assert!(cache.get(&numbered(2)).is_none());
}

#[tokio::test(start_paused = true)]
async fn when_every_turn_is_taken_a_check_ends_at_its_deadline_and_others_go_on() {
    let validators = Validators::default();
    let known = numbered(1);
    assert!(validators.check(&known, &Json::empty_object()).await.is_ok());
    let turns = Arc::clone(&validators.aside).acquire_many_owned(ASIDE as u32).await.unwrap();
    let start = tokio::time::Instant::now();
    let late = validators.check(&numbered(2), &Json::empty_object()).await;
    assert!(matches!(late, Err(Misfit::Schema { reason }) if reason.contains("too long")));
    assert!(start.elapsed() >= DEADLINE && start.elapsed() < DEADLINE + Duration::from_secs(1));
    assert!(validators.check(&known, &Json::empty_object()).await.is_ok(), "the ordinary call needs no turn");
    drop(turns);
    assert!(
        validators.check(&numbered(2), &Json::empty_object()).await.is_ok(),
        "being late is not remembered"
    );
}

#[tokio::test]
async fn a_panic_aside_is_an_answer() {
    let validators = Validators::default();
    for _ in 0..=ASIDE {
        let failed: Result<(), _> = validators.run_aside(|| None, || panic!("on purpose")).await;
        assert!(matches!(failed, Err(Misfit::Schema { reason }) if reason.contains("failed")));
    }
}

#[tokio::test]
async fn what_is_checked_is_what_is_sent() {
    let validators = Validators::default();
    let schema = Json::from(json!({"type": "object", "required": ["a"]}));
    let inner = r#""$serde_json::private::RawValue":"{\"a\":1,\"b\":2}""#;
    let cases = [
        (r#"{"a":1,"b":[{"a":{"a":":"}}]}"#.to_owned(), true),
        (r#"{"a":1,"$b":"\n","\u0063":{}}"#.to_owned(), true),
        (r#"{"a":1,"b":[{"a":1,"a":2}]}"#.to_owned(), false),
        (r#"{"a":1,"$b":1,"\u0061":2}"#.to_owned(), false),
        (format!("{{{inner}}}"), false),
        (format!("{{{}}}", inner.replace('$', "\\u0024")), false),
        (format!(r#"{{"a":1,"a":2,"c":{{{inner}}}}}"#), false),
    ];
    for (text, fits) in cases {
        let arguments = Json::parse(text.clone(), 127).unwrap();
        assert_eq!(validators.check(&schema, &arguments).await.is_ok(), fits, "{text}");
    }
}

/// The short way may only say yes where the long way does: any plain schema, any arguments.
mod short_way {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::super::build::compile;
    use super::super::flat::Flat;
    use crate::wire::Json;

    fn schema() -> impl Strategy<Value = Value> {
        let kind = prop::sample::select(vec!["string", "integer", "number", "boolean"]);
        let properties = prop::collection::btree_map("[a-c]{1,2}", kind, 0..5);
        (properties, any::<bool>(), any::<[bool; 5]>()).prop_map(|(properties, open, needed)| {
            let names: Vec<&String> = properties.keys().collect();
            let required: Vec<&String> = names.iter().zip(needed).filter(|(_, n)| *n).map(|(n, _)| *n).collect();
            let shapes: Map<String, Value> =
                properties.iter().map(|(name, kind)| (name.clone(), json!({"type": kind, "title": "t"}))).collect();
            json!({"type": "object", "properties": shapes, "required": required, "additionalProperties": open})
        })
    }

    fn arguments() -> impl Strategy<Value = String> {
        let value = prop::sample::select(vec![
            "\"x\"",
            "1",
            "-2",
            "1.5",
            "2.0",
            "1e3",
            "true",
            "false",
            "null",
            "[]",
            "{}",
            "\"\\u0061\"",
        ]);
        prop::collection::vec(("[a-c]{1,2}|\\\\\\\\u0061", value), 0..5).prop_map(|members| {
            let members: Vec<String> =
                members.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
            format!("{{{}}}", members.join(", "))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn it_never_says_yes_where_the_long_way_says_no(schema in schema(), arguments in arguments()) {
            let flat = Flat::of(schema.as_object().unwrap()).unwrap();
            let Ok(arguments) = Json::parse(arguments, 64) else { return Ok(()) };
            if flat.fits(&arguments) {
                let compiled = compile(&Json::of(&schema)).unwrap();
                let value = super::super::read(&arguments).unwrap();
                let load = compiled.weigh(&value, arguments.bytes().len());
                prop_assert!(compiled.judge(&value, &load).is_ok());
            }
        }
    }

    #[test]
    fn it_says_yes_to_what_is_plain_and_knows_its_limits() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}, "required": ["n"]});
        let flat = Flat::of(schema.as_object().unwrap()).unwrap();
        let fits = |text: &str| flat.fits(&Json::parse(text.to_owned(), 64).unwrap());
        assert!(fits(r#"{"n": 5}"#) && fits(r#"{"s": "x", "n": -5}"#));
        for unsure in
            [r#"{}"#, r#"{"n": 1.0}"#, r#"{"n": 1, "n": 2}"#, r#"{"n": 1, "x": 2}"#, r#"{"n": "1"}"#, "[]"]
        {
            assert!(!fits(unsure), "{unsure}");
        }
        for more in [
            json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}}),
            json!({"type": "object", "properties": {}, "minProperties": 1}),
            json!({"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}),
            json!({"type": "object", "properties": {"n": {}}}),
            json!({"type": "object", "properties": {"n": true}}),
            json!({"type": "object", "properties": {}, "required": ["n"]}),
            json!({"type": "object"}),
        ] {
            assert!(Flat::of(more.as_object().unwrap()).is_none(), "{more}");
        }
    }
}
