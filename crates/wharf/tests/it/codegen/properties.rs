//! What holds for the module of any tools, however they are described.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::inert::is_inert;
use super::{generate, unformatted};

/// Words that mean something in a schema, in Rust or to rustdoc; one a place.
const KNOWN: &str = "type self Self crate fn async _ a A a_b aB a-b Option String Box extra new host 1 \" \\ */ // ``` \
                     \u{1} #![x] 日本 \u{202e}x ();evil() null # #/$defs/a #/$defs/a_b #/properties/a date";

fn word() -> BoxedStrategy<String> {
    let known: Vec<&str> = KNOWN.split(' ').chain(["", "\n", "\r", "a b"]).collect();
    let known = proptest::sample::select(known).prop_map(str::to_owned);
    prop_oneof![known, ".{0,12}", "[a-zA-Z_ -]{0,120}"].boxed()
}

fn leaf() -> BoxedStrategy<Value> {
    let kinds = ["string", "number", "integer", "boolean", "null", "array", "object", "odd"];
    let kind = proptest::sample::select(kinds.to_vec());
    prop_oneof![
        kind.clone().prop_map(|kind| json!({ "type": kind })),
        vec(kind, 0..4).prop_map(|kinds| json!({ "type": kinds })),
        word().prop_map(|word| json!({ "const": word })),
        vec(word(), 0..5).prop_map(|words| json!({ "enum": words })),
        vec(any::<Option<i8>>(), 0..4).prop_map(|values| json!({ "enum": values })),
        word().prop_map(|to| json!({ "$ref": to })),
        (word(), word())
            .prop_map(|(format, default)| json!({"type": "string", "format": format, "default": default})),
        any::<bool>().prop_map(Value::Bool),
        Just(json!({})),
        Just(json!({"type": "integer", "minimum": 0})),
        any::<i8>().prop_map(Value::from),
    ]
    .boxed()
}

fn object(of: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let properties = vec((word(), of.clone()), 0..5).prop_map(|all| all.into_iter().collect::<Map<_, _>>());
    (properties, vec(word(), 0..3), proptest::option::of(of), word()).prop_map(|(properties, required, rest, said)| {
        let mut object = json!({"type": "object", "properties": properties, "required": required, "description": said});
        if let Some(rest) = rest {
            object["additionalProperties"] = rest;
        }
        object
    })
    .boxed()
}

fn schema() -> BoxedStrategy<Value> {
    leaf().prop_recursive(4, 48, 5, |of| {
        let some = vec(of.clone(), 0..4);
        prop_oneof![
            3 => object(of.clone()),
            1 => of.clone().prop_map(|of| json!({"type": "array", "items": of})),
            1 => some.clone().prop_map(|of| json!({"type": "array", "prefixItems": of, "minItems": of.len(), "items": false})),
            1 => of.clone().prop_map(|of| json!({"type": "object", "additionalProperties": of})),
            1 => (word(), of.clone()).prop_map(|(key, of)| json!({"type": "object", "patternProperties": {key: of}})),
            1 => some.clone().prop_map(|of| json!({ "anyOf": of })),
            1 => some.clone().prop_map(|of| json!({ "oneOf": of, "properties": {"a": {"type": "string"}} })),
            1 => some.prop_map(|of| json!({ "allOf": of })),
            1 => of.prop_map(|of| json!({"nullable": true, "allOf": [of]})),
        ]
    })
    .boxed()
}

/// A tool whose schemas may refer to definitions beside them.
fn tool() -> impl Strategy<Value = Value> {
    let name =
        word().prop_filter("a tool has a name", |name| !name.is_empty() && !name.contains(char::is_control));
    let root = (object(schema()), vec((word(), schema()), 0..3)).prop_map(|(mut root, defs)| {
        let mut all: Map<String, Value> = defs.into_iter().collect();
        all.insert(
            "a".to_owned(),
            json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/a"}}]}),
        );
        root["$defs"] = Value::Object(all);
        root
    });
    let root = root.boxed();
    (name, word(), root.clone(), proptest::option::of(prop_oneof![root, schema()])).prop_map(
        |(name, said, input, output)| {
            let mut tool = json!({"name": name, "description": said, "inputSchema": input});
            if let Some(output) = output {
                tool["outputSchema"] = output;
            }
            tool
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn l57_any_tools_become_a_module_that_is_nothing_more(tools in vec(tool(), 0..5)) {
        let module = generate("dock", &tools);
        prop_assert_eq!(is_inert(&module.source), Ok(()), "{}", module.source);
        prop_assert!(module.source.chars().all(|c| c == '\n' || !wharf::text::is_unsafe_to_show(c)));
        prop_assert_eq!(&generate("dock", &tools).source, &module.source);
    }
}

proptest! {
    // Each case is a process.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn l57_rustfmt_leaves_any_module_as_it_is(tools in vec(tool(), 1..8)) {
        let module = generate("dock", &tools);
        prop_assert_eq!(unformatted(&module.source, "2024"), "", "{}", module.source);
    }
}
