//! Any schema whatever: what is sent keeps the provider's rules, and a tool that lost nothing means what it meant.

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, contextualize_config};
use serde_json::{Map, Value, json};
use wharf::provider::{Compiler, Provider, Strict};

use super::provider_checker::{as_json_schema, problems, sent};
use super::provider_support::{one, snapshot, tool, with_argument};

/// The same cases every time. Others, and more of them, with `PROPTEST_RNG_SEED=1 PROPTEST_CASES=5000`.
fn cases(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(71);
    contextualize_config(ProptestConfig {
        cases,
        rng_seed,
        failure_persistence: None,
        ..ProptestConfig::default()
    })
}

/// A schema of ordinary keywords in any combination, sensible or not.
fn schemas() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        Just(json!("a")),
        Just(json!("")),
        Just(json!(3)),
        Just(json!(2.5)),
        Just(json!("b\u{200b}")),
        Just(json!({"k": 1})),
    ];
    let ty = prop::sample::select(vec!["string", "number", "integer", "boolean", "array", "object", "null"]);
    let leaf = prop_oneof![
        4 => ty.clone().prop_map(|ty| json!({ "type": ty })),
        2 => prop::collection::vec(ty, 1..3).prop_map(|mut list| { list.dedup(); json!({ "type": list }) }),
        2 => prop::collection::vec(scalar.clone(), 1..4).prop_map(|list| json!({ "enum": list })),
        1 => scalar.prop_map(|value| json!({ "const": value })),
        2 => (0..4u8).prop_map(|n| json!({ "$ref": format!("#/$defs/d{n}") })),
        1 => Just(json!({ "$ref": "#" })),
        1 => any::<bool>().prop_map(Value::Bool),
        2 => (-3..4i32, -3..4i32).prop_map(|(a, b)| json!({ "type": "integer", "exclusiveMinimum": a, "maximum": b })),
        1 => (0..3u8).prop_map(|n| json!({ "type": "string", "minLength": n, "pattern": "^[a-z]*$", "format": "email" })),
        1 => Just(json!({ "type": "number", "multipleOf": 2, "default": 4, "x-own": 1, "$comment": "c" })),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let named = prop::collection::vec((prop::sample::select(vec!["a", "b", "c-d", "__proto__", "$ref"]), inner.clone()), 0..3);
        let list = prop::collection::vec(inner.clone(), 1..4);
        let keyword = prop_oneof![
            4 => (named.clone(), prop::collection::vec(prop::sample::select(vec!["a", "b", "z"]), 0..3)).prop_map(|(named, mut required)| {
                required.sort_unstable();
                required.dedup();
                json!({ "type": "object", "properties": map(named), "required": required })
            }),
            2 => inner.clone().prop_map(|items| json!({ "type": "array", "items": items, "uniqueItems": true })),
            1 => list.clone().prop_map(|list| json!({ "type": "array", "prefixItems": list, "items": false })),
            2 => list.clone().prop_map(|list| json!({ "anyOf": list })),
            2 => list.clone().prop_map(|list| json!({ "oneOf": list })),
            2 => list.prop_map(|list| json!({ "allOf": list })),
            1 => inner.clone().prop_map(|rest| json!({ "additionalProperties": rest })),
            1 => Just(json!({ "additionalProperties": false })),
            1 => inner.clone().prop_map(|not| json!({ "not": not })),
            1 => named.prop_map(|named| json!({ "patternProperties": map(named) })),
            1 => inner.prop_map(|cond| json!({ "if": cond, "then": { "minimum": 1 } })),
        ];
        // Two keywords side by side, so that they meet.
        (keyword.clone(), prop::option::of(keyword)).prop_map(|(mut one, other)| {
            if let (Value::Object(one), Some(Value::Object(other))) = (&mut one, other) {
                one.extend(other);
            }
            one
        })
    })
}

fn map(named: Vec<(&str, Value)>) -> Map<String, Value> {
    named.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn tools() -> impl Strategy<Value = Value> {
    (schemas(), prop::collection::vec(schemas(), 4), any::<bool>()).prop_map(|(root, defs, in_property)| {
        let mut schema = if in_property || !root.is_object() {
            json!({ "properties": { "x": root }, "required": ["x"] })
        } else {
            root
        };
        schema["type"] = json!("object");
        schema["$defs"] =
            defs.into_iter().enumerate().map(|(i, def)| (format!("d{i}"), def)).collect::<Map<_, _>>().into();
        schema
    })
}

/// Values that come close to a schema, and some that do not.
struct Sampler<'a> {
    root: &'a Value,
    random: fastrand::Rng,
}

impl Sampler<'_> {
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if depth > 6 || self.random.u8(..) < 12 {
            return self.anything();
        }
        if let Some(target) = schema["$ref"].as_str().and_then(|r| self.root.pointer(&r[1..])) {
            return self.value(target, depth + 1);
        }
        if let Some(list) = schema["enum"].as_array() {
            return list[self.random.usize(..list.len())].clone();
        }
        if let Some(only) = schema.get("const") {
            return only.clone();
        }
        if let Some(list) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            let at = self.random.usize(..list.len());
            let mut picked = self.value(&list[at], depth + 1);
            let beside = self.typed(schema, depth);
            if let (Value::Object(picked), Value::Object(beside)) = (&mut picked, beside) {
                picked.extend(beside);
            }
            return picked;
        }
        if let Some(list) = schema["allOf"].as_array() {
            let mut all = self.typed(schema, depth);
            for part in list {
                let part = self.value(part, depth + 1);
                match (&mut all, part) {
                    (Value::Object(all), Value::Object(part)) => all.extend(part),
                    (all, part) => *all = part,
                }
            }
            return all;
        }
        self.typed(schema, depth)
    }

    fn typed(&mut self, schema: &Value, depth: usize) -> Value {
        let ty = match &schema["type"] {
            Value::Array(list) => list[self.random.usize(..list.len())].clone(),
            other => other.clone(),
        };
        match ty.as_str() {
            Some("string") => json!(["", "a", "ab", "A b"][self.random.usize(..4)]),
            Some("integer") => json!(self.random.i32(-4..5)),
            Some("number") => json!([0.5, 2.0, 3.0, 4.0, -1.5][self.random.usize(..5)]),
            Some("boolean") => json!(self.random.bool()),
            Some("null") => Value::Null,
            Some("array") => {
                let first = schema["prefixItems"].as_array().cloned().unwrap_or_default();
                let mut list: Vec<Value> = first.iter().map(|s| self.value(s, depth + 1)).collect();
                for _ in 0..self.random.usize(..3) {
                    list.push(self.value(&schema["items"], depth + 1));
                }
                list.into()
            }
            Some("object") => {
                let mut object = Map::new();
                let required = schema["required"].as_array().cloned().unwrap_or_default();
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    if required.contains(&json!(name)) || self.random.bool() {
                        object.insert(name.clone(), self.value(property, depth + 1));
                    }
                }
                if self.random.u8(..) < 40 {
                    object.insert("more".into(), self.anything());
                }
                object.into()
            }
            _ => self.anything(),
        }
    }

    fn anything(&mut self) -> Value {
        let values = [
            json!(null),
            json!("a"),
            json!(3),
            json!(2.5),
            json!(true),
            json!([]),
            json!({}),
            json!({"a": 1}),
        ];
        values[self.random.usize(..values.len())].clone()
    }
}

fn validator(schema: &Value) -> Option<jsonschema::Validator> {
    jsonschema::options()
        .offline()
        .with_draft(jsonschema::Draft::Draft202012)
        .should_validate_formats(false)
        .build(schema)
        .ok()
}

/// Whether a schema leads back to itself without going into a value, which no validator survives.
fn is_vacuous(schema: &Value) -> bool {
    fn beside<'v>(schema: &'v Value, root: &'v Value, left: usize) -> bool {
        if left == 0 {
            return true;
        }
        let Value::Object(map) = schema else { return false };
        let target = map.get("$ref").and_then(Value::as_str).and_then(|r| root.pointer(&r[1..]));
        let lists = ["allOf", "anyOf", "oneOf"].iter().filter_map(|k| map.get(*k)?.as_array()).flatten();
        let singles = ["not", "if", "then"].iter().filter_map(|k| map.get(*k));
        target.into_iter().chain(lists).chain(singles).any(|inner| beside(inner, root, left - 1))
    }
    let defs = schema["$defs"].as_object().into_iter().flatten().map(|(_, def)| def);
    defs.chain([schema]).any(|def| beside(def, schema, 12))
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 500, ..cases(100) })]

    #[test]
    fn l71_any_schema_becomes_one_that_the_provider_takes(schema in tools(), seed in any::<u64>()) {
        let snapshot = snapshot("s", vec![tool("good", json!({"type": "object"})), tool("any", schema.clone())]);
        let original = (!is_vacuous(&schema)).then(|| validator(&schema)).flatten();
        for strict in [Strict::Usual, Strict::Never, Strict::Lossless] {
            for provider in Provider::ALL {
                let compiled = Compiler::new().with_strict(strict).compile(provider, snapshot.tools());
                let tools: Value = compiled.tools.to().unwrap();
                prop_assert_eq!(problems(provider, &tools), Vec::<String>::new(), "{}", tools);
                let sent = sent(provider, &tools);
                prop_assert_eq!(sent.len() + compiled.left_out.len(), 2);
                prop_assert_eq!(&sent[0].name, "s_good");
                let widens = compiled.losses.iter().any(|tool| tool.losses.iter().any(|loss| loss.widens));
                let (Some(any), Some(original), false) = (sent.get(1), &original, widens) else { continue };
                let Some(as_sent) = &any.schema else { continue };
                let Some(as_sent) = Some(as_json_schema(as_sent)) else { continue };
                let Some(accepts) = validator(&as_sent) else {
                    prop_assert!(false, "what was sent is no schema: {}", as_sent);
                    continue;
                };
                let mut sampler = Sampler { root: &as_sent, random: fastrand::Rng::with_seed(seed) };
                for _ in 0..24 {
                    let value = sampler.value(&as_sent, 0);
                    if accepts.is_valid(&value) {
                        prop_assert!(original.is_valid(&value), "{}: {} became {}, which takes {}", provider, schema, as_sent, value);
                    }
                }
            }
        }
    }
}

/// Small schemas about the same few values, so that what is joined has much in common.
fn alike() -> impl Strategy<Value = Value> {
    let number = (prop::sample::select(vec!["integer", "number"]), -2..3i32, 0..4i32);
    let leaf = prop_oneof![
        1 => number.clone().prop_map(|(ty, low, high)| json!({"type": ty, "minimum": low, "maximum": high})),
        1 => number.prop_map(|(ty, low, high)| json!({"type": ty, "exclusiveMinimum": low, "exclusiveMaximum": high})),
        1 => (0..3u8, 1..4u8).prop_map(|(low, high)| json!({"type": "string", "minLength": low, "maxLength": high})),
        1 => prop::sample::subsequence(vec![json!("a"), json!("ab"), json!(1), json!(1.0), json!(2), json!(null)], 1..4)
            .prop_map(|list| json!({"enum": list})),
        1 => prop::sample::subsequence(vec!["string", "integer", "null", "object", "array"], 1..4)
            .prop_map(|list| json!({"type": list})),
        1 => (0..2u8, 0..3u8).prop_map(|(low, high)| json!({"type": "array", "items": {"type": "integer"}, "minItems": low, "maxItems": high})),
        2 => (prop::sample::select(vec!["a", "b"]), prop::sample::select(vec![json!(false), json!(true), json!({"type": "integer"})])).prop_map(
            |(name, rest)| json!({"type": "object", "properties": {name: {"type": ["integer", "null"]}}, "additionalProperties": rest})
        ),
        1 => Just(json!({"type": "array", "prefixItems": [{"type": "integer"}], "items": false})),
        1 => any::<bool>().prop_map(|rest| json!({"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": rest})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let names = || prop::sample::subsequence(vec!["a", "b"], 0..=2);
        let rest = prop_oneof![
            Just(None),
            Just(Some(json!(false))),
            Just(Some(json!(true))),
            Just(Some(json!({"type": "integer"})))
        ];
        let ty = prop_oneof![
            3 => Just(Some(json!("object"))),
            1 => Just(Some(json!(["object", "null"]))),
            1 => Just(None),
        ];
        let object =
            (ty, names(), names(), inner.clone(), rest).prop_map(|(ty, named, required, inner, rest)| {
                let properties: Vec<_> = named.into_iter().map(|name| (name, inner.clone())).collect();
                let mut schema = json!({"properties": map(properties), "required": required});
                if let Some(ty) = ty {
                    schema["type"] = ty;
                }
                if let Some(rest) = rest {
                    schema["additionalProperties"] = rest;
                }
                schema
            });
        let list = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            3 => object,
            3 => list().prop_map(|list| json!({"allOf": list})),
            2 => list().prop_map(|list| json!({"anyOf": list})),
            2 => list().prop_map(|list| json!({"oneOf": list})),
            1 => (inner.clone(), list()).prop_map(|(mut one, list)| {
                one["anyOf"] = list.into();
                one
            }),
        ]
    })
}

/// Everything that such schemas tell apart.
fn values() -> Vec<Value> {
    let mut values = vec![json!(null), json!(true), json!(0.5), json!(-1.5), json!(2.5)];
    values.extend((-4..6).map(Value::from));
    values.extend(["", "a", "ab", "abc", "abcd"].map(Value::from));
    values.extend([json!([]), json!([1]), json!(["a"]), json!([1, 2]), json!([1, 2, 3]), json!([1, "a"])]);
    let parts = [None, Some(json!(1)), Some(json!(2)), Some(json!("a")), Some(json!(null)), Some(json!([1]))];
    for a in &parts {
        for b in &parts {
            for c in [None, Some(json!(1)), Some(json!("a"))] {
                let named = [("a", a.clone()), ("b", b.clone()), ("c", c)];
                values.push(
                    named
                        .into_iter()
                        .filter_map(|(name, part)| Some((name.to_owned(), part?)))
                        .collect::<Map<_, _>>()
                        .into(),
                );
            }
        }
    }
    values
}

/// Each dialect once. OpenAI's two APIs have the same ones, and Bedrock has Mistral's.
const DIALECTS: [(Provider, Strict); 8] = [
    (Provider::OpenAiChat, Strict::Never),
    (Provider::OpenAiChat, Strict::Lossless),
    (Provider::Anthropic, Strict::Never),
    (Provider::Anthropic, Strict::Lossless),
    (Provider::Gemini, Strict::Never),
    (Provider::GeminiOpenApi, Strict::Never),
    (Provider::Mistral, Strict::Never),
    (Provider::Ollama, Strict::Never),
];

/// Checks what becomes of an argument's schema with every value there is.
fn means_the_same(schema: Value) -> Result<(), TestCaseError> {
    let schema = json!({"type": "object", "properties": {"x": schema}, "required": ["x"]});
    let original = validator(&schema).unwrap();
    let snapshot = snapshot("s", vec![tool("t", schema.clone())]);
    for (provider, strict) in DIALECTS {
        let compiled = Compiler::new().with_strict(strict).compile(provider, snapshot.tools());
        let tools: Value = compiled.tools.to().unwrap();
        prop_assert_eq!(problems(provider, &tools), Vec::<String>::new(), "{}", tools);
        let losses: Vec<_> = compiled.losses.iter().flat_map(|tool| tool.losses.iter()).collect();
        let sent = sent(provider, &tools);
        let Some(as_sent) = sent.first().and_then(|tool| tool.schema.as_ref()).map(as_json_schema) else {
            // Left out, because nothing fits: then nothing did.
            for value in values() {
                prop_assert!(
                    !original.is_valid(&json!({"x": value})),
                    "{}: {} was left out and takes {}",
                    provider,
                    schema,
                    value
                );
            }
            continue;
        };
        let accepts = validator(&as_sent).unwrap();
        for value in values() {
            let arguments = json!({"x": value});
            let (before, after) = (original.is_valid(&arguments), accepts.is_valid(&arguments));
            let widened = losses.iter().any(|loss| loss.widens);
            prop_assert!(
                before || !after || widened,
                "{}: {} became {}, which takes {}",
                provider,
                schema,
                as_sent,
                value
            );
            // Strict objects take nothing that is not declared, and OpenAPI cannot say "anything"; otherwise nothing
            // that fitted is refused now.
            let strict = sent[0].strict == Some(true) || provider == Provider::GeminiOpenApi;
            prop_assert!(
                after || !before || strict,
                "{}: {} became {}, which refuses {}",
                provider,
                schema,
                as_sent,
                value
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn l71_what_is_joined_means_the_same(schema in alike()) {
        means_the_same(schema)?;
    }
}

/// Schemas with alternatives that nothing fits, which showed once that those were the end of the others too.
#[test]
fn l71_an_alternative_that_nothing_fits_leaves_the_others() {
    let object = json!({"type": "object", "properties": {"a": {"type": ["integer", "null"]}}, "additionalProperties": false});
    let zero = json!({"type": "integer", "minimum": 0, "maximum": 0});
    let beside = |alternatives: Value| {
        let mut schema = object.clone();
        schema["additionalProperties"] = json!(true);
        schema["anyOf"] = alternatives;
        schema
    };
    let never =
        json!({"type": "array", "prefixItems": [{"type": "integer"}], "items": false, "anyOf": [zero, zero]});
    let impossible = json!({"properties": {"a": false}, "required": ["a"]});
    let fitting = [
        beside(json!([never, object])),
        beside(json!([object, never])),
        json!({"type": ["object", "null"], "allOf": [impossible]}),
        json!({"type": "object", "anyOf": [impossible, {"properties": {"a": {"type": "integer"}}}]}),
        json!({"type": ["string", "null"], "anyOf": [{"enum": [1]}, {"enum": [null]}]}),
    ];
    for schema in fitting {
        for provider in Provider::ALL {
            let sent = one(provider, with_argument(schema.clone()));
            assert!(sent.is_ok(), "{provider}: {schema}: {sent:?}");
        }
        means_the_same(schema).unwrap();
    }
    // With none left, there is nothing to call the tool with.
    let at_odds = json!({"allOf": [{"type": "array"}, {"type": "integer"}]});
    for (provider, schema) in [
        (Provider::GeminiOpenApi, beside(json!([never, never]))),
        (Provider::GeminiOpenApi, json!({"anyOf": [at_odds, at_odds]})),
        (Provider::Gemini, json!({"anyOf": [at_odds, at_odds]})),
        (Provider::Ollama, json!({"anyOf": [at_odds, at_odds]})),
    ] {
        let reason = one(provider, with_argument(schema)).unwrap_err();
        assert_eq!(reason, "no arguments can fit its schema", "{provider}");
    }
}

#[test]
fn l71_every_pair_joined_means_the_same() {
    let mut all = vec![
        json!({"type": "integer", "minimum": 0, "maximum": 3}),
        json!({"type": "number", "exclusiveMinimum": 1, "maximum": 2.5}),
        json!({"type": "string", "minLength": 1, "maxLength": 2}),
        json!({"type": ["string", "null"], "maxLength": 1}),
        json!({"enum": ["a", 1, null]}),
        json!({"enum": [1.0, 2.5]}),
        json!({"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": false}),
        json!({"type": "array", "items": {"type": "integer"}, "maxItems": 2}),
        json!({"anyOf": [{"type": "integer"}, {"type": "string", "minLength": 2}]}),
    ];
    for name in ["a", "b"] {
        for rest in [json!(true), json!(false), json!({"type": "integer"}), json!({"type": "string"})] {
            all.push(json!({"type": "object", "properties": {name: {"type": ["integer", "null"]}}, "additionalProperties": rest}));
        }
        all.push(json!({"type": "object", "properties": {name: {"minimum": 2}}, "required": [name]}));
    }
    for one in &all {
        for other in &all {
            means_the_same(json!({"allOf": [one, other]})).unwrap();
            let mut beside = one.clone();
            beside["$ref"] = json!("#/properties/x/$defs/d");
            beside["$defs"] = json!({"d": other});
            means_the_same(beside).unwrap();
        }
    }
}
