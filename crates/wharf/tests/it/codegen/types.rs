//! The generated types, used: what is written fits the schema, what is read loses nothing, and calls carry both.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wharf::call::Validators;
use wharf::wire::Json;
use wharf_testkit::{Era, Puppet, Step};

use super::corpus;
use super::odd::{
    Combined, CombinedBase, CombinedListOrObject, CombinedMerged, CombinedResult, CombinedResultListOrObject,
    CombinedResultShape, CombinedResultSimple, CombinedResultTold, CombinedResultWordsOrText, CombinedShape,
    CombinedShapeSquare, CombinedSimple, Enums, EnumsOdd, EnumsPlain, Foo, FooStdProcessAbort, Keys, Kinds,
    KindsNested, KindsNestedInner, KindsResult, KindsTwo, ListResultResultItem, Odd, Refs, RefsJson,
    RefsPing, RefsPong, RefsTree,
};
use crate::support::{at, folder, host, puppet, received};

fn schema(tool: &str) -> Json {
    let tools = corpus();
    Json::of(&tools.iter().find(|t| t["name"] == tool).unwrap()["inputSchema"])
}

/// A value as it is written, which must fit the schema of the tool and be read as the same value.
async fn written<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    tool: &str,
    value: &T,
) -> Value {
    let json = Json::of(value);
    Validators::default()
        .check(&schema(tool), &json)
        .await
        .unwrap_or_else(|e| panic!("{tool}: {e:?}: {json}"));
    assert_eq!(json.to::<T>().unwrap(), *value);
    json.to().unwrap()
}

fn kinds() -> Kinds {
    let nested = KindsNested { inner: KindsNestedInner { value: -3 } };
    Kinds {
        text: "t".into(),
        number: Some(1.5),
        whole: Some(-7),
        natural: Some(u64::MAX),
        any: json!([1, {"a": null}]),
        matrix: Some(vec![vec![1.0], vec![]]),
        point: (2.5, "north".into()),
        map: Some(BTreeMap::from([("k".to_owned(), "v".to_owned())])),
        nested: Some(nested),
        two: Some(KindsTwo::Integer(4)),
        ..Kinds::default()
    }
}

#[tokio::test]
async fn l57_arguments_are_written_as_their_schema_wants_them() {
    let value = written("kinds", &kinds()).await;
    let expected = json!({
        "text": "t", "number": 1.5, "whole": -7, "natural": u64::MAX, "nothing": null, "any": [1, {"a": null}],
        "matrix": [[1.0], []], "point": [2.5, "north"], "map": {"k": "v"}, "nested": {"inner": {"value": -3}},
        "nullable": null, "two": 4,
    });
    assert_eq!(value, expected, "what is optional is left out, what is required and null is null");
    let two: KindsTwo = serde_json::from_value(json!("four")).unwrap();
    assert_eq!(two, KindsTwo::Text("four".into()));
    let unknown = serde_json::from_value::<Kinds>(
        json!({"text": "", "any": 1, "nothing": null, "nullable": null, "point": [1, ""], "oops": 1}),
    );
    assert!(unknown.unwrap_err().to_string().contains("unknown field `oops`"));

    let keys = Keys {
        evil: Some("1".into()),
        r#type: Some("2".into()),
        self_: "3".into(),
        _2fa: "4".into(),
        a_b3: Some("5".into()),
        extra: Some("6".into()),
        extra2: BTreeMap::from([("other".to_owned(), 7)]),
        ..Keys::default()
    };
    let expected = json!({
        "\"; evil": "1", "type": "2", "self": "3", "2fa": "4", "a_b": "5", "extra": "6", "not_described": 0, "other": 7,
    });
    assert_eq!(written("keys", &keys).await, expected);

    for (word, text) in
        [(EnumsOdd::N1, "+1"), (EnumsOdd::N12, "-1"), (EnumsOdd::Empty, ""), (EnumsOdd::Evil, "\"; evil")]
    {
        let enums = Enums { odd: Some(word), plain: Some(EnumsPlain::Closed), ..Enums::default() };
        assert_eq!(written("enums", &enums).await, json!({"plain": "closed", "odd": text, "one": "only"}));
    }
}

#[tokio::test]
async fn l57_references_and_alternatives_have_types() {
    let leaf = RefsTree { name: "leaf".into(), ..RefsTree::default() };
    let tree =
        RefsTree { children: Some(vec![leaf.clone()]), parent: Some(Box::new(leaf)), ..RefsTree::default() };
    let list =
        RefsJson::List(vec![None, Some(RefsJson::Flag(true)), Some(RefsJson::Map(BTreeMap::default()))]);
    let pong = RefsPong { ping: Some(Box::new(RefsPing::default())) };
    let refs = Refs {
        tree: Some(tree),
        json: Some(list),
        ping: Some(RefsPing { pong: Box::new(pong) }),
        root: Some(Box::default()),
        ..Refs::default()
    };
    let expected = json!({
        "tree": {"name": "", "children": [{"name": "leaf"}], "parent": {"name": "leaf"}},
        "json": [null, true, {}], "ping": {"pong": {"ping": {"pong": {}}}}, "root": {},
    });
    assert_eq!(written("refs", &refs).await, expected);

    let combined = Combined {
        merged: Some(CombinedMerged { id: 1, name: "n".into() }),
        shape: Some(CombinedShape::Square(CombinedShapeSquare { side: 2.0, ..Default::default() })),
        simple: Some(CombinedSimple::List(vec!["a".into()])),
        optional: Some(CombinedBase { id: 2 }),
        list_or_object: Some(CombinedListOrObject::List(vec!["x".into(), "y".into()])),
        ..Combined::default()
    };
    let expected = json!({
        "merged": {"id": 1, "name": "n"}, "shape": {"kind": "square", "side": 2.0}, "simple": ["a"], "optional": {"id": 2},
        "list_or_object": ["x", "y"],
    });
    assert_eq!(written("combined", &combined).await, expected);
}

#[test]
fn l57_a_result_is_read_as_what_it_is_and_loses_nothing() {
    let read = |value: Value| {
        let result: CombinedResult = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&result).unwrap(), value);
        result
    };
    let result =
        read(json!({"shape": {"kind": "square", "side": 1.0}, "told": {"a": "1", "b": "2"}, "simple": 3}));
    assert!(matches!(result.shape, Some(CombinedResultShape::Square(_))), "{result:?}");
    assert!(matches!(result.told, Some(CombinedResultTold::Object(_))), "{result:?}");
    assert_eq!(result.simple, Some(CombinedResultSimple::Integer(3)));
    let result = read(
        json!({"told": {"a": "1"}, "simple": 3.5, "words_or_text": "auto", "list_or_object": ["1", "2"]}),
    );
    assert!(matches!(result.told, Some(CombinedResultTold::Object2(_))), "{result:?}");
    assert_eq!(result.simple, Some(CombinedResultSimple::Number(3.5)));
    assert!(matches!(result.words_or_text, Some(CombinedResultWordsOrText::Word(_))), "{result:?}");
    assert!(matches!(result.list_or_object, Some(CombinedResultListOrObject::List(_))), "{result:?}");
    // Alternatives that one could take for another stay as they came.
    assert_eq!(read(json!({"untold": {"b": "kept"}})).untold, Some(json!({"b": "kept"})));
    // A server may send more than its schema says.
    let more: KindsResult =
        serde_json::from_value(json!({"text": "t", "nullable": null, "news": 1})).unwrap();
    assert_eq!(more, KindsResult { text: "t".into(), ..KindsResult::default() });
}

#[tokio::test]
async fn l57_calls_go_through_the_generated_functions() {
    for era in [Era::Legacy, Era::Modern] {
        let folder = folder();
        let log = at(&folder, "log");
        let structured = |value: Value| vec![Step::Reply(json!({"content": [], "structuredContent": value}))];
        let script = Puppet::of(era)
            .with(|s| s.tools = corpus())
            .on("tool:kinds", structured(json!({"text": "t", "nullable": "n", "point": [1, "x"]})))
            .on("tool:list_result", structured(json!([{"id": 1}, {"id": 2}])))
            .on("tool:text_result", structured(json!("hello")))
            .on("tool:any_result", structured(json!({"a": [1.5]})))
            .log(&log);
        let odd = Odd::new(host([puppet("odd", &script)]).await);

        let outcome = odd.foo(&Foo { message: Some("hi".into()) }).await;
        assert_eq!((outcome.success, outcome.to_text()), (true, "{\"message\":\"hi\"}".into()));
        let outcome = odd.foo_std_process_abort(&FooStdProcessAbort::default()).await;
        assert!(outcome.success, "{outcome:?}");
        let expected =
            KindsResult { text: "t".into(), nullable: Some("n".into()), point: Some((1.0, "x".into())) };
        assert_eq!(odd.kinds(&kinds()).await.unwrap(), expected);
        let items = odd.list_result().await.unwrap();
        assert_eq!(items, [ListResultResultItem { id: 1 }, ListResultResultItem { id: 2 }]);
        assert_eq!(odd.text_result().await.unwrap(), "hello");
        assert_eq!(odd.any_result().await.unwrap(), json!({"a": [1.5]}));
        assert!(odd.no_arguments().await.success);
        let numbers = BTreeMap::from([("one".to_owned(), 1)]);
        assert_eq!(odd.map_arguments(&numbers).await.to_text(), "{\"one\":1}");

        let names: Vec<Value> = received(&log)
            .iter()
            .filter(|m| m["method"] == "tools/call")
            .map(|m| m["params"]["name"].clone())
            .collect();
        let expected =
            ["foo", "foo(); std::process::abort(); //", "kinds", "list_result", "text_result", "any_result"];
        assert_eq!(names[..6], expected.map(Value::from));
        odd.host().close().await;
    }
}

#[tokio::test]
async fn l57_what_goes_wrong_is_told() {
    let tools = corpus();
    let kinds_tool = tools.iter().find(|tool| tool["name"] == "kinds").unwrap();
    let turn = |result: Value| vec![Step::Reply(result)];
    let turns = vec![
        turn(json!({"content": [{"type": "text", "text": "no more room"}], "isError": true})),
        turn(json!({"content": [], "structuredContent": {"text": 5, "nullable": null}})),
        turn(json!({"content": [{"type": "text", "text": "just words"}]})),
        turn(json!({"content": [{"type": "text", "text": "{\"text\": \"t\", \"nullable\": null}"}]})),
    ];
    let script = Puppet::new().tool(kinds_tool.clone()).on("tool:kinds", [Step::Turns(turns)]);
    let odd = Odd::named(host([puppet("pup", &script)]).await, "pup");
    let error = odd.kinds(&kinds()).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("no more room")), ("tool_failed", true), "{error}");
    for words in ["does not fit its `outputSchema`", "has no structured content"] {
        let error = odd.kinds(&kinds()).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string().contains(words)), ("protocol", true), "{error}");
    }
    assert_eq!(odd.kinds(&kinds()).await.unwrap().text, "t", "text that is JSON stands in");
    let error = Odd::new(odd.host().clone()).kinds(&kinds()).await.unwrap_err();
    assert_eq!(error.kind(), "unknown_server");
    odd.host().close().await;
}
