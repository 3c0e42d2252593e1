//! Arguments are checked before anything is sent, whatever the schema.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wharf::Error;
use wharf::call::{Misfit, Validators, limits};
use wharf::names::{ServerName, ToolName};
use wharf::wire::Json;

/// These tests are about what is refused for its shape, not about how busy the machine is.
fn patient() -> Validators {
    Validators::default().with_deadline(Duration::from_secs(120))
}

async fn check(schema: &Value, arguments: Value) -> Result<(), Misfit> {
    patient().check(&Json::from(schema), &Json::from(arguments)).await
}

async fn problems(schema: &Value, arguments: Value) -> Vec<String> {
    match check(schema, arguments).await {
        Err(Misfit::Arguments { problems }) => problems,
        other => panic!("wrong arguments were expected, got {other:?}"),
    }
}

async fn unusable(schema: &Value) -> String {
    match patient().usable(&Json::from(schema)).await {
        Err(Misfit::Schema { reason }) => reason,
        other => panic!("an unusable schema was expected, got {other:?}"),
    }
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[tokio::test]
async fn sch_08_wrong_arguments_are_told_in_words() {
    let schema = json!({"type": "object", "additionalProperties": false, "required": ["owner", "title"], "properties": {
        "owner": {"type": "string"}, "title": {"type": "string", "maxLength": 5}, "count": {"type": "number", "minimum": 1, "maximum": 9},
        "state": {"enum": ["open", "closed"]}, "kind": {"const": "issue"}, "page": {"type": ["integer", "null"]},
        "tags": {"type": "array", "maxItems": 2, "items": {"type": "string", "pattern": "^[a-z]+$"}},
        "a": {"type": "object", "properties": {"b": {"type": "array", "items": {"type": "number"}}}},
    }});
    let fine = json!({"owner": "o", "title": "t", "count": 2, "state": "open", "kind": "issue", "page": null, "tags": ["x"], "a": {"b": [1]}});
    assert_eq!(check(&schema, fine).await, Ok(()));
    let with = |more: Value| {
        let mut arguments = json!({"owner": "o", "title": "t"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let cases = [
        (json!({"title": "t"}), "missing required field `owner`"),
        (with(json!({"a": {"b": [1, 2, "x"]}})), r#"field `a.b[2]`: expected a number, got the string "x""#),
        (with(json!({"titel": "t"})), "unknown field `titel`; did you mean `title`?"),
        (
            with(json!({"zzz": 1})),
            "unknown field `zzz`; the known ones are `owner`, `title`, `count`, `state`, `kind`, `page`, `tags`, `a`",
        ),
        (
            with(json!({"state": "opened"})),
            r#"field `state`: expected one of "open", "closed", got the string "opened""#,
        ),
        (with(json!({"kind": 3})), r#"field `kind`: expected "issue", got 3"#),
        (with(json!({"count": 0})), "field `count`: expected at least 1, got 0"),
        (with(json!({"count": 10})), "field `count`: expected at most 9, got 10"),
        (with(json!({"title": "longer"})), "field `title`: expected at most 5 characters, got 6"),
        (with(json!({"tags": ["a", "b", "c"]})), "field `tags`: expected at most 2 items, got 3"),
        (
            with(json!({"tags": ["A"]})),
            r#"field `tags[0]`: expected a text that matches the pattern `^[a-z]+$`, got the string "A""#,
        ),
        (with(json!({"page": []})), "field `page`: expected null or a whole number, got an empty list"),
        (with(json!({"owner": null})), "field `owner`: expected a string, got null"),
    ];
    for (arguments, said) in cases {
        assert_eq!(problems(&schema, arguments).await, [said]);
    }
}

#[tokio::test]
async fn sch_08_the_closest_branch_is_explained() {
    let schema = object(json!({"target": {"oneOf": [
        {"type": "string"},
        {"type": "object", "required": ["kind", "url"], "properties": {"kind": {"const": "link"}, "url": {"type": "string"}}},
        {"type": "object", "required": ["kind", "path"], "properties": {"kind": {"const": "file"}, "path": {"type": "string"}}},
    ]}, "id": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}));
    assert_eq!(check(&schema, json!({"target": {"kind": "file", "path": "/x"}, "id": 1})).await, Ok(()));
    let said = problems(&schema, json!({"target": {"kind": "file", "path": 7}})).await;
    assert_eq!(
        said,
        [
            "field `target`: fits none of the 3 allowed forms; for the closest (number 3): field `target.path`: expected a string, got 7"
        ]
    );
    let said = problems(&schema, json!({"id": true})).await;
    assert_eq!(said, ["field `id`: expected a string or a whole number, got true"]);
    let both = object(json!({"x": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}));
    assert_eq!(
        problems(&both, json!({"x": 1})).await,
        ["field `x`: fits more than one of the allowed forms and must fit exactly one, got 1"]
    );
}

#[tokio::test]
async fn l54_conditionals_and_combinations() {
    let schema = json!({"type": "object", "properties": {"mode": {"enum": ["file", "text"]}},
        "if": {"properties": {"mode": {"const": "file"}}, "required": ["mode"]}, "then": {"required": ["path"]}, "else": {"required": ["text"]},
        "allOf": [{"not": {"required": ["forbidden"]}}], "dependentRequired": {"a": ["b"]}});
    assert_eq!(check(&schema, json!({"mode": "file", "path": "p"})).await, Ok(()));
    assert_eq!(problems(&schema, json!({"mode": "file"})).await, ["missing required field `path`"]);
    assert_eq!(problems(&schema, json!({"mode": "text"})).await, ["missing required field `text`"]);
    assert_eq!(problems(&schema, json!({"text": "", "a": 1})).await, ["missing required field `b`"]);
    assert!(problems(&schema, json!({"text": "", "forbidden": 1})).await[0].contains("not allowed"));
}

#[tokio::test]
async fn l54_values_are_cut_and_escaped_and_problems_counted() {
    let schema =
        object(json!({"n": {"type": "number"}, "list": {"type": "array", "items": {"type": "number"}}}));
    let said = &problems(&schema, json!({"n": format!("\u{1b}[31m{}", "x".repeat(500))})).await[0];
    assert!(!said.contains('\u{1b}') && said.chars().count() < 160 && said.ends_with('…'), "{said}");
    let twelve: Vec<&str> = vec!["x"; 12];
    let said = problems(&schema, json!({"list": twelve})).await;
    assert_eq!((said.len(), said[10].as_str()), (11, "and 2 more"));
    assert_eq!(problems(&schema, json!({"list": &twelve[..10]})).await.len(), 10);
    let odd = json!({"type": "object", "properties": {"a b\u{202e}": {"type": "number"}}});
    assert_eq!(
        problems(&odd, json!({"a b\u{202e}": "x"})).await,
        [r#"field `["a b\u{202e}"]`: expected a number, got the string "x""#]
    );
}

#[tokio::test]
async fn l54_draft_07_and_2020_12_are_told_apart() {
    // `items` as a list is a tuple in draft-07; in 2020-12 that is `prefixItems`, and beside a `$ref` others count.
    let seven = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "properties": {"t": {"type": "array", "items": [{"type": "string"}, {"type": "number"}], "additionalItems": false}}});
    assert_eq!(check(&seven, json!({"t": ["a", 1]})).await, Ok(()));
    assert!(check(&seven, json!({"t": ["a", "b"]})).await.is_err());
    assert_eq!(
        problems(&seven, json!({"t": ["a", 1, 2]})).await,
        ["field `t`: expected at most 2 items, got 3"]
    );
    let new = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "$defs": {"s": {"type": "string"}}, "properties": {"t": {"prefixItems": [{"type": "string"}], "items": false}, "r": {"$ref": "#/$defs/s", "maxLength": 2}}});
    assert_eq!(check(&new, json!({"t": ["a"], "r": "ab"})).await, Ok(()));
    assert!(check(&new, json!({"t": ["a", 1]})).await.is_err());
    assert_eq!(
        problems(&new, json!({"r": "abc"})).await,
        ["field `r`: expected at most 2 characters, got 3"]
    );
    // No `$schema` means 2020-12.
    let silent = object(json!({"t": {"prefixItems": [{"type": "string"}]}}));
    assert!(check(&silent, json!({"t": [1]})).await.is_err());
}

#[tokio::test]
async fn l54_references_within_the_schema_work() {
    let schema = json!({"type": "object", "$id": "https://example.com/tool.json", "$defs": {
        "a~b": {"type": "string"}, "named": {"$anchor": "here", "type": "number"}, "part": {"$id": "part.json", "$defs": {"x": {"type": "boolean"}}, "$ref": "#/$defs/x"}},
        "properties": {"p": {"$ref": "#/$defs/a~0b"}, "n": {"$ref": "#here"}, "i": {"$ref": "part.json"}, "w": {"$ref": "https://example.com/tool.json#/$defs/named"}}});
    assert_eq!(check(&schema, json!({"p": "x", "n": 1, "i": true, "w": 2})).await, Ok(()));
    for wrong in [json!({"p": 1}), json!({"n": "x"}), json!({"i": 1}), json!({"w": "x"})] {
        assert_eq!(problems(&schema, wrong).await.len(), 1);
    }
    let tree = json!({"type": "object", "$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["name"], "additionalProperties": false,
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}});
    assert_eq!(check(&tree, json!({"name": "a", "children": [{"name": "b"}]})).await, Ok(()));
    assert_eq!(
        problems(&tree, json!({"name": "a", "children": [{"nam": "b", "name": "c"}]})).await,
        ["unknown field `children[0].nam`; did you mean `name`?"]
    );
    assert!(unusable(&object(json!({"p": {"$ref": "#/$defs/nowhere"}}))).await.contains("leads to nothing"));
}

#[tokio::test]
async fn sch_01_no_reference_leaves_the_schema() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let http = format!("http://{}/schema.json", listener.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let canary = folder.path().join("canary.json");
    std::fs::write(&canary, r#"{"type":"string"}"#).unwrap();
    let file = format!("file://{}", canary.display());
    for address in [&*http, &file, "file:///etc/passwd", "other.json", "//example.com/x", "urn:x:y"] {
        let used = object(json!({"p": {"$ref": address}}));
        assert!(unusable(&used).await.contains("leads outside"), "{address}");
        let unused = json!({"type": "object", "$defs": {"u": {"$ref": address}}});
        assert!(unusable(&unused).await.contains("leads outside"), "{address}");
        assert!(
            unusable(&json!({"type": "object", "$schema": address})).await.contains("dialect"),
            "{address}"
        );
        let inner = object(json!({"p": {"$id": "x.json", "$schema": address}}));
        let _ = patient().usable(&Json::from(&inner)).await;
        let dynamic = object(json!({"p": {"$dynamicRef": address}}));
        assert!(unusable(&dynamic).await.contains("leads outside"), "{address}");
    }
    // An address of its own is only a name, and a reference in data or in a field's name is no reference.
    let named = json!({"type": "object", "$id": http, "properties": {"$ref": {"type": "string"}, "p": {"$ref": "#/$defs/s"}, "q": {"const": {"$ref": http}}},
        "$defs": {"s": {"type": "string"}}});
    assert_eq!(check(&named, json!({"$ref": http, "p": "x", "q": {"$ref": http}})).await, Ok(()));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nobody called");
}

#[tokio::test]
async fn sch_02_loops_end_and_do_not_accept_everything() {
    let endless = [
        json!({"$ref": "#"}),
        json!({"type": "object", "$ref": "#"}),
        json!({"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"type": "object", "allOf": [{"anyOf": [{"$ref": "#"}]}]}),
        json!({"type": "object", "$dynamicAnchor": "m", "$dynamicRef": "#m"}),
        json!({"type": "object", "$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true, "$recursiveRef": "#"}),
        json!({"type": "object", "not": {"$ref": "#"}}),
        json!({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}),
    ];
    for schema in endless {
        assert!(unusable(&schema).await.contains("without an end"), "{schema}");
    }
    let twin = json!({"type": "object", "$dynamicAnchor": "m", "properties": {"child": {"$dynamicRef": "#m"}}, "additionalProperties": false});
    assert_eq!(check(&twin, json!({"child": {"child": {}}})).await, Ok(()));
    assert_eq!(problems(&twin, json!({"child": {"child": {"x": 1}}})).await.len(), 1);
}

#[tokio::test]
async fn sch_03_branches_that_multiply_are_refused_at_once() {
    let levels = |count: usize| {
        let mut defs = serde_json::Map::new();
        defs.insert("l0".into(), json!({"type": "string"}));
        for i in 1..=count {
            let below = format!("#/$defs/l{}", i - 1);
            defs.insert(format!("l{i}"), json!({"anyOf": [{"$ref": below}, {"$ref": below}]}));
        }
        json!({"type": "object", "properties": {"x": {"$ref": format!("#/$defs/l{count}")}}, "$defs": defs})
    };
    let too_many = levels(24);
    let refused = check(&too_many, json!({"x": 1})).await;
    assert!(matches!(&refused, Err(Misfit::Schema { reason }) if reason.contains("multiply")), "{refused:?}");
    assert!(
        unusable(&json!({"type": "object", "$ref": "#/$defs/l24", "$defs": too_many["$defs"]}))
            .await
            .contains("multiply")
    );
    assert_eq!(check(&levels(6), json!({"x": "y"})).await, Ok(()));
    // Branches that multiply with each level of the arguments: fine while these are shallow.
    let tree = json!({"type": "object", "properties": {"c": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}}, "required": ["z"]});
    let deep = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({"c": inner}));
    assert!(matches!(check(&tree, deep(2)).await, Err(Misfit::Arguments { .. })));
    assert!(matches!(check(&tree, deep(60)).await, Err(Misfit::Schema { .. })));
    // A schema of any JSON value recurs in two branches, but only one of them fits a value.
    let any = json!({"type": "object", "additionalProperties": {"$ref": "#/$defs/v"}, "$defs": {"v": {"anyOf": [{"type": ["string", "number", "null", "boolean"]},
        {"type": "array", "items": {"$ref": "#/$defs/v"}}, {"type": "object", "additionalProperties": {"$ref": "#/$defs/v"}}]}}});
    assert_eq!(check(&any, deep(100)).await, Ok(()));
}

#[tokio::test]
async fn sch_04_size_limits_hold_at_their_edges() {
    // Bytes.
    let of_bytes = |bytes: usize| {
        let frame = json!({"type": "object", "description": ""}).to_string().len();
        json!({"type": "object", "description": "x".repeat(bytes - frame)})
    };
    edge(limits::BYTES_MAX, of_bytes, "too large").await;
    // Nodes: the root, `type`, `enum` and what is in it.
    let of_nodes = |nodes: usize| json!({"type": "object", "enum": (0..nodes - 3).collect::<Vec<_>>()});
    edge(limits::NODES_MAX, of_nodes, "too many parts").await;
    // Depth: the root, then `properties` or `a` at each level.
    let of_depth = |depth: usize| (1..depth).fold(json!({}), |inner, _| json!([inner]));
    let of_depth = |depth: usize| json!({"type": "object", "default": of_depth(depth - 1)});
    edge(limits::DEPTH_MAX, of_depth, "too deeply").await;
    // Chains of references.
    let of_chain = |length: usize| {
        let last = length - 2;
        let mut defs = serde_json::Map::new();
        (0..last)
            .for_each(|i| drop(defs.insert(format!("d{i}"), json!({"$ref": format!("#/$defs/d{}", i + 1)}))));
        defs.insert(format!("d{last}"), json!({"type": "object"}));
        json!({"type": "object", "$ref": "#/$defs/d0", "$defs": defs})
    };
    edge(limits::CHAIN_MAX, of_chain, "too long a chain").await;
}

#[tokio::test]
async fn sch_05_pattern_limits_hold_at_their_edges() {
    let of_count = |count: usize| {
        let each = (0..count).map(|i| (format!("p{i}"), json!({"pattern": "^a$"})));
        object(each.collect::<serde_json::Map<_, _>>().into())
    };
    edge(limits::PATTERNS_MAX, of_count, "too many patterns").await;
    let of_length = |length: usize| json!({"type": "object", "patternProperties": {"a".repeat(length): {}}});
    edge(limits::PATTERN_LEN_MAX, of_length, "too long").await;
}

/// Usable at the limit and just below it, refused just above.
async fn edge(limit: usize, schema: impl Fn(usize) -> Value, said: &str) {
    for below in [limit - 1, limit] {
        assert_eq!(patient().usable(&Json::from(schema(below))).await, Ok(()), "{said} at {below}");
    }
    let reason = unusable(&schema(limit + 1)).await;
    assert!(reason.contains(said), "{reason}");
}

#[tokio::test]
async fn sch_04_monsters_are_refused_and_nothing_aborts() {
    let nots = |count: usize| {
        format!(r#"{{"type":"object","not":{}{{}}{}}}"#, r#"{"not":"#.repeat(count), "}".repeat(count))
    };
    for (text, depth) in [(nots(20_000), 127), (nots(100), 127)] {
        // The reader refuses the first, the measure the second.
        if let Ok(schema) = Json::parse(text, depth) {
            let reason = patient().usable(&schema).await.unwrap_err();
            assert!(matches!(&reason, Misfit::Schema { reason } if reason.contains("deeply")), "{reason:?}");
        }
    }
    let wide = json!({"type": "object", "allOf": vec![json!({}); 50_000]});
    assert!(unusable(&wide).await.contains("too many parts"));
    let large = json!({"type": "object", "description": "x".repeat(5_000_000)});
    assert!(unusable(&large).await.contains("too large"));
    // The longest chain through fields, and the deepest arguments: recursion fits the stack.
    let each = (0..2000).map(|i| {
        (format!("d{i}"), json!({"properties": {"x": {"$ref": format!("#/$defs/d{}", (i + 1) % 2000)}}}))
    });
    let defs: serde_json::Map<_, _> = each.collect();
    let long = json!({"type": "object", "$ref": "#/$defs/d0", "$defs": defs});
    let deep = (0..126).fold(json!({}), |inner, _| json!({"x": inner}));
    assert_eq!(check(&long, deep.clone()).await, Ok(()));
    let chained =
        (0..29).fold(json!({"properties": {"x": {"$ref": "#"}}}), |inner, _| json!({"allOf": [inner]}));
    assert_eq!(check(&chained, deep).await, Ok(()));
}

#[tokio::test]
async fn sch_05_patterns_are_bounded() {
    let with = |pattern: &str| object(json!({"p": {"type": "string", "pattern": pattern}}));
    let start = Instant::now();
    let evil = format!("{}!", "a".repeat(30_000));
    for pattern in ["^(a+)+$", "^(a|a)*$", "^(?:(a+)+)(?=b)$", r"^(a+)+\1$"] {
        assert!(
            matches!(check(&with(pattern), json!({"p": evil})).await, Err(Misfit::Arguments { .. })),
            "{pattern}"
        );
    }
    let nested = (0..4).fold("a".to_owned(), |inner, _| format!("({inner}){{1,100}}"));
    assert!(unusable(&with(&nested)).await.contains("not a valid schema"));
    assert!(start.elapsed() < Duration::from_secs(60));
    // The twins: a back-reference and look-around that are honest.
    assert_eq!(check(&with(r"^(a|b)\1$"), json!({"p": "bb"})).await, Ok(()));
    assert_eq!(check(&with("^(?!x)[a-z]+$"), json!({"p": "abc"})).await, Ok(()));
    assert!(check(&with("^(?!x)[a-z]+$"), json!({"p": "xabc"})).await.is_err());
}

#[tokio::test]
async fn sch_06_an_unknown_dialect_is_refused_with_its_name() {
    let reason = unusable(&json!({"$schema": "https://example.com/my-dialect", "type": "object"})).await;
    assert!(reason.contains("dialect") && reason.contains("example.com/my-dialect"), "{reason}");
    assert!(unusable(&json!({"$schema": 7, "type": "object"})).await.contains("$schema"));
    for known in [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        let schema = json!({"$schema": known, "type": "object", "properties": {"a": {"type": "number"}}});
        assert_eq!(check(&schema, json!({"a": 1})).await, Ok(()), "{known}");
        assert_eq!(problems(&schema, json!({"a": "1"})).await.len(), 1);
    }
}

#[tokio::test]
async fn sch_07_what_is_no_schema_is_refused() {
    for nonsense in [
        json!(true),
        json!(false),
        json!([]),
        json!("x"),
        json!({"type": "objekt"}),
        json!({"type": "object", "properties": []}),
        json!({"type": "object", "required": "a"}),
        json!({"type": "object", "properties": {"a": {"pattern": "("}}}),
    ] {
        assert!(!unusable(&nonsense).await.is_empty(), "{nonsense}");
    }
    let twice = Json::parse(r#"{"type":"object","required":["a"],"required":[]}"#, 127).unwrap();
    assert!(
        matches!(patient().usable(&twice).await, Err(Misfit::Schema { reason }) if reason.contains("twice"))
    );
}

#[tokio::test]
async fn l54_arguments_are_an_object_read_strictly() {
    let validators = patient();
    let schema = Json::from(object(json!({"a": {}})));
    let check =
        async |text: &str| validators.check(&schema, &Json::parse(text.to_owned(), 127).unwrap()).await;
    assert_eq!(check("{}").await, Ok(()));
    assert_eq!(check(r#"{"a":1,"b":{"a":2}}"#).await, Ok(()));
    for (wrong, said) in [
        ("[]", "must be an object"),
        ("null", "must be an object"),
        (r#"{"a":1,"a":2}"#, "twice"),
        (r#"{"a":{"b":1,"\u0062":2}}"#, "twice"),
        (r#"{"a":1e999}"#, "cannot be read"),
    ] {
        let Err(Misfit::Arguments { problems }) = check(wrong).await else { panic!("{wrong} was accepted") };
        assert!(problems[0].contains(said), "{problems:?}");
    }
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    assert_eq!(check(&nested(126)).await, Ok(()));
    assert_eq!(check(&nested(127)).await, Ok(()));
    assert!(Json::parse(nested(128), 127).is_err());
}

#[tokio::test]
async fn l54_large_arguments_are_checked_aside() {
    let schema = json!({"type": "object", "required": ["path", "text"], "properties": {"path": {"type": "string"}, "text": {"type": "string"}}});
    let text = "x".repeat(1 << 20);
    assert_eq!(check(&schema, json!({"path": "p", "text": text})).await, Ok(()));
    assert_eq!(problems(&schema, json!({"text": text})).await, ["missing required field `path`"]);
    let many = object(
        json!({"list": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}),
    );
    let said = problems(&many, json!({"list": vec!["x"; 300_000]})).await;
    assert!(said[0].contains("too large to say where"), "{said:?}");
    assert_eq!(check(&many, json!({"list": vec![1; 300_000]})).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn l54_a_paused_clock_does_not_make_a_check_late() {
    assert_eq!(check(&object(json!({"a": {"type": "number"}})), json!({"a": 1})).await, Ok(()));
}

#[tokio::test]
async fn l54_one_cache_serves_equal_schemas_and_tells_others_apart() {
    let validators = patient();
    let number = object(json!({"a": {"type": "number"}}));
    let string = object(json!({"a": {"type": "string"}}));
    let arguments = Json::from(json!({"a": 1}));
    for _ in 0..3 {
        assert!(validators.check(&Json::from(&number), &arguments).await.is_ok());
        assert!(validators.check(&Json::from(&string), &arguments).await.is_err());
    }
}

#[test]
fn l54_a_misfit_becomes_the_error_of_its_tool() {
    let (server, tool) = (ServerName::parse("s").unwrap(), ToolName::parse("t").unwrap());
    let wrong = Misfit::Arguments { problems: vec!["missing required field `a`".into()] };
    let error = wrong.into_error(server.clone(), tool.clone());
    assert_eq!(error.to_string(), "server `s`, tool `t`: missing required field `a`");
    let error = Misfit::Schema { reason: "it is too large".into() }.into_error(server, tool);
    assert!(matches!(error, Error::Schema { .. }));
}

/// The rules that a tool with this property schema is mirrored by, or why it is not.
fn header_rules(properties: serde_json::Value) -> Result<Vec<String>, String> {
    let tool = json!({"name": "t", "inputSchema": {"type": "object", "properties": properties}});
    let tool = wharf::mcp::Tool::read(tool.into()).unwrap();
    tool.headers.map(|rules| rules.into_iter().map(|rule| rule.name).collect())
}

#[test]
fn sch_09_a_header_annotation_that_could_harm_is_refused_and_a_good_one_is_read() {
    let bad = [
        json!({"a": {"type": "string", "x-mcp-header": "Evil\r\nHost: x"}}),
        json!({"a": {"type": "string", "x-mcp-header": ""}}),
        json!({"a": {"type": "string", "x-mcp-header": 7}}),
        json!({"a": {"type": "number", "x-mcp-header": "Size"}}),
        json!({"a": {"type": "string", "x-mcp-header": "Twin"}, "b": {"type": "string", "x-mcp-header": "TWIN"}}),
        json!({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "Inner"}}}),
        json!({"a": {"anyOf": [{"type": "string", "x-mcp-header": "Branch"}]}}),
    ];
    for properties in bad {
        assert!(header_rules(properties.clone()).is_err(), "{properties} was taken");
    }
    let good = json!({"region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "Depth"}}}});
    assert_eq!(header_rules(good).unwrap(), ["Region", "Depth"]);
    // Whatever it is called, it goes out behind a prefix of its own: no header of ours can be set by a server.
    let named = json!({"a": {"type": "string", "x-mcp-header": "Authorization"}});
    assert_eq!(header_rules(named).unwrap(), ["Authorization"]);
}
