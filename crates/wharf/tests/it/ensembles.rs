//! A server as a value, and one tool as a function value.

use serde::{Deserialize, Serialize};
use serde_json::json;
use wharf::wire::Json;
use wharf::{Error, Outcome};
use wharf_testkit::{Era, Puppet, Step};

use crate::support::{at, count, error, folder, host, puppet, received};

#[derive(Serialize)]
struct Add {
    a: i64,
    b: i64,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Sum {
    sum: i64,
}

/// A server with a tool `add` that always answers with this.
fn adder(era: Era, result: serde_json::Value) -> Puppet {
    let number = json!({"type": "integer"});
    let input = json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]});
    let tool = json!({"name": "add", "description": "Adds.", "inputSchema": input});
    Puppet::of(era).tool(tool).plain_tool("other").on("tool:add", [Step::Reply(result)])
}

#[tokio::test]
async fn l58_an_ensemble_has_everything_of_its_server_by_its_own_names() {
    for era in [Era::Legacy, Era::Modern] {
        let script = adder(era, json!({"content": []})).with(|s| s.instructions = Some("be kind".into()));
        let host = host([puppet("pup", &script), puppet("other", &Puppet::new())]).await;
        let ensemble = host.ensemble("pup").await.unwrap();
        let names: Vec<&str> = ensemble.tools().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["add", "other"], "its own tools only, not those of its neighbour");
        assert_eq!(ensemble.config().name.as_str(), "pup");
        assert_eq!(ensemble.info().implementation.name.raw(), "puppet");
        assert_eq!(ensemble.info().instructions.as_ref().unwrap().raw(), "be kind");
        assert!(ensemble.connection().is_open());
        let add = ensemble.tool("add").unwrap();
        assert_eq!((add.tool().name.as_str(), add.public_name()), ("add", "pup_add"));
        assert!(ensemble.tool("echo").is_none() && ensemble.tool("pup_add").is_none());
        assert!(host.ensemble("nobody").await.is_err());
        host.close().await;
    }
}

#[tokio::test]
async fn l58_a_tool_is_a_function_value() {
    let folder = folder();
    let log = at(&folder, "log");
    let script = adder(Era::Both, json!({"content": [{"type": "text", "text": "3"}]})).log(&log);
    let host = host([puppet("pup", &script)]).await;
    let add = host.callable("pup", "add").await.unwrap().into_fn();
    // It can be kept, shared, cloned, sent to a task, and used as any other function.
    fn keep(
        function: impl Fn(Json) -> futures::Outcomes + Clone + Send + Sync + 'static,
    ) -> futures::Function {
        Box::new(function)
    }
    let functions = [keep(add.clone()), keep(add.clone())];
    let calls = functions.iter().map(|function| function(json!({"a": 1, "b": 2}).into()));
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(tokio::spawn(call).await.unwrap().to_text(), "3");
    }
    let refused: Outcome = add(json!({"a": "one"}).into()).await;
    assert_eq!(error(&refused).kind(), "arguments");
    assert_eq!(count(&received(&log), "tools/call"), 2, "what does not fit is not sent");
    host.ensemble("pup").await.unwrap().disconnect().await.unwrap();
    assert_eq!(add(json!({"a": 1, "b": 2}).into()).await.to_text(), "3", "it outlives the connection");
    host.close().await;
}

mod futures {
    use std::pin::Pin;

    use wharf::Outcome;
    use wharf::wire::Json;

    pub(super) type Outcomes = Pin<Box<dyn Future<Output = Outcome> + Send>>;
    pub(super) type Function = Box<dyn Fn(Json) -> Outcomes + Send + Sync>;
}

#[tokio::test]
async fn l58_a_tool_is_called_with_types() {
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let cases = [
        (json!({"content": [], "structuredContent": {"sum": 3, "more": true}}), Ok(3)),
        (json!({"content": text("{\"sum\": 4}")}), Ok(4)),
        (json!({"content": text("{\"sum\": 4}"), "structuredContent": null}), Ok(4)),
        // The structured result counts, even where the text would do.
        (json!({"content": text("{\"sum\": 4}"), "structuredContent": {"sum": "four"}}), Err("protocol")),
        (json!({"content": text("four")}), Err("protocol")),
        (json!({"content": text("too large"), "isError": true}), Err("tool_failed")),
    ];
    for (result, expected) in cases {
        let host = host([puppet("pup", &adder(Era::Both, result.clone()))]).await;
        let add = host.callable("pup", "add").await.unwrap();
        let answer: wharf::Result<Sum> = add.call_as(&Add { a: 1, b: 2 }).await;
        assert_eq!(
            answer.as_ref().map(|answer| answer.sum).map_err(Error::kind),
            expected,
            "{result}: {answer:?}"
        );
        let misfit: wharf::Result<Sum> = add.call_as(&json!({"a": 1})).await;
        assert_eq!(misfit.unwrap_err().kind(), "arguments");
        host.close().await;
    }
}

#[tokio::test]
async fn l58_arguments_that_are_no_json_are_not_sent() {
    let folder = folder();
    let log = at(&folder, "log");
    let host = host([puppet("pup", &Puppet::new().plain_tool("any").log(&log))]).await;
    let any = host.callable("pup", "any").await.unwrap();
    let odd_keys = std::collections::BTreeMap::from([(vec![1], 2)]);
    let error = any.call_as::<_, serde_json::Value>(&odd_keys).await.unwrap_err();
    assert_eq!(error.kind(), "arguments");
    assert_eq!(count(&received(&log), "tools/call"), 0);
    let plain_keys = std::collections::BTreeMap::from([("a", 2)]);
    assert_eq!(any.call_as::<_, serde_json::Value>(&plain_keys).await.unwrap(), json!({"a": 2}));
    host.close().await;
}
