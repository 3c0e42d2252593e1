//! What a caller can do with a server, one feature at a time. In: a caller whose gateway has the fixture behind it as
//! `fx`. Out: nothing if it works, or what was wrong.

use serde_json::{Value, json};

use super::caller::{Answer, Caller};

/// Why a feature does not work.
pub(super) type Checked = Result<(), String>;

/// Every feature, in the order of the table.
pub(super) const ALL: [&str; 15] = [
    "tools",
    "resources",
    "templates",
    "prompts",
    "completion",
    "progress",
    "logging",
    "cancellation",
    "list changes",
    "subscriptions",
    "elicitation, form",
    "elicitation, URL",
    "sampling",
    "roots",
    "pagination",
];

const WATCHED: &str = "test://watched-resource";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Tries one. What changes at the server is changed by the caller's own calls. `is_legacy` is the server's era.
pub(super) async fn check(feature: &str, caller: &mut Caller, is_legacy: bool) -> Checked {
    match feature {
        "tools" => tools(caller).await,
        "resources" => resources(caller).await,
        "templates" => templates(caller).await,
        "prompts" => prompts(caller).await,
        "completion" => completion(caller).await,
        "progress" => progress(caller).await,
        "logging" => logging(caller).await,
        "cancellation" => cancellation(caller).await,
        "list changes" => list_changes(caller).await,
        "subscriptions" => subscriptions(caller).await,
        "elicitation, form" => form(caller).await,
        "elicitation, URL" => url(caller, is_legacy).await,
        "sampling" => sampling(caller).await,
        "roots" => roots(caller).await,
        "pagination" => pagination(caller).await,
        other => Err(format!("there is no check of {other}")),
    }
}

/// That a value is as it should be.
fn same(what: &str, found: &Value, wanted: impl Into<Value>) -> Checked {
    let wanted = wanted.into();
    if *found == wanted { Ok(()) } else { Err(format!("{what}: {found} instead of {wanted}")) }
}

fn so(what: &str, is: bool, seen: impl std::fmt::Debug) -> Checked {
    if is { Ok(()) } else { Err(format!("not so: {what}: {seen:?}")) }
}

async fn call(caller: &mut Caller, tool: &str, arguments: Value) -> Answer {
    caller.ask("tools/call", json!({"name": format!("fx_{tool}"), "arguments": arguments})).await
}

/// What a tool says.
fn text(answer: &Answer) -> &Value {
    &answer.message["result"]["content"][0]["text"]
}

/// A whole list, page after page: each page, as the values of a member of its items.
async fn list(
    caller: &mut Caller,
    (method, list, key): (&str, &str, &str),
) -> Result<Vec<Vec<String>>, String> {
    let (mut pages, mut params) = (Vec::new(), json!({}));
    loop {
        let answer = caller.ask(method, params).await.message;
        let items = answer["result"][list].as_array().ok_or_else(|| format!("no {list}: {answer}"))?;
        pages.push(items.iter().map(|item| item[key].as_str().unwrap_or_default().to_owned()).collect());
        match &answer["result"]["nextCursor"] {
            Value::Null => return Ok(pages),
            cursor => params = json!({"cursor": cursor}),
        }
    }
}

async fn has(caller: &mut Caller, of: (&str, &str, &str), name: &str) -> Checked {
    let all = list(caller, of).await?.concat();
    so(name, all.iter().any(|one| one == name), all)
}

const TOOLS: (&str, &str, &str) = ("tools/list", "tools", "name");
const RESOURCES: (&str, &str, &str) = ("resources/list", "resources", "uri");
const PROMPTS: (&str, &str, &str) = ("prompts/list", "prompts", "name");

async fn tools(caller: &mut Caller) -> Checked {
    has(caller, TOOLS, "fx_test_structured_content").await?;
    let sum = call(caller, "test_structured_content", json!({"a": 20, "b": 22})).await.message;
    same("the result", &sum["result"]["structuredContent"], json!({"sum": 42}))?;
    let wrong = call(caller, "test_structured_content", json!({"a": "twenty"})).await.message;
    let refused = wrong["result"]["isError"] == true || wrong["error"]["code"] == -32602;
    so("wrong arguments are refused", refused, &wrong)?;
    let failed = call(caller, "test_error_handling", json!({})).await.message;
    same("a tool that fails", &failed["result"]["isError"], true)?;
    let unknown = call(caller, "no_such_tool", json!({})).await.message;
    same("an unknown tool", &unknown["error"]["code"], -32602)
}

async fn resources(caller: &mut Caller) -> Checked {
    has(caller, RESOURCES, "test://static-text").await?;
    let read = caller.ask("resources/read", json!({"uri": "test://static-text"})).await.message;
    let content = &read["result"]["contents"][0];
    same("what is read", &content["text"], "This is the content of the static text resource.")?;
    same("its address", &content["uri"], "test://static-text")?;
    let read = caller.ask("resources/read", json!({"uri": "test://static-binary"})).await.message;
    so("bytes", read["result"]["contents"][0]["blob"].is_string(), &read)?;
    let missing = caller.ask("resources/read", json!({"uri": "test://no-such"})).await.message;
    let code = if caller.kind.is_modern() { -32602 } else { -32002 };
    same("what is not there", &missing["error"]["code"], code)
}

async fn templates(caller: &mut Caller) -> Checked {
    let of = ("resources/templates/list", "resourceTemplates", "uriTemplate");
    has(caller, of, "test://template/{id}/data").await?;
    let read = caller.ask("resources/read", json!({"uri": "test://template/7/data"})).await.message;
    let text = read["result"]["contents"][0]["text"].as_str().unwrap_or_default();
    so("the data of this id", text.contains("Data for ID: 7"), &read)
}

async fn prompts(caller: &mut Caller) -> Checked {
    has(caller, PROMPTS, "fx_test_prompt_with_arguments").await?;
    let params =
        json!({"name": "fx_test_prompt_with_arguments", "arguments": {"arg1": "ebb", "arg2": "flow"}});
    let got = caller.ask("prompts/get", params).await.message;
    let text = &got["result"]["messages"][0]["content"]["text"];
    same("the prompt", text, "Prompt with arguments: arg1='ebb', arg2='flow'")?;
    let unknown = caller.ask("prompts/get", json!({"name": "fx_no_such"})).await.message;
    same("an unknown prompt", &unknown["error"]["code"], -32602)
}

async fn completion(caller: &mut Caller) -> Checked {
    let prompt = json!({"type": "ref/prompt", "name": "fx_test_prompt_with_arguments"});
    let template = json!({"type": "ref/resource", "uri": "test://template/{id}/data"});
    for (of, argument, begun, wanted) in [
        (prompt, "arg1", "par", json!(["paris", "park", "party"])),
        (template, "id", "12", json!(["12", "123"])),
    ] {
        let params = json!({"ref": of, "argument": {"name": argument, "value": begun}});
        let found = caller.ask("completion/complete", params).await.message;
        so("it completes", found["result"]["completion"]["values"] == wanted, &found)?;
    }
    Ok(())
}

async fn progress(caller: &mut Caller) -> Checked {
    let params =
        json!({"name": "fx_test_tool_with_progress", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let answer = caller.ask("tools/call", params).await;
    same("its answer", text(&answer), "Tool with progress executed successfully")?;
    let steps: Vec<&Value> =
        answer.told.iter().filter(|told| told["method"] == "notifications/progress").collect();
    let wanted = [0, 50, 100].map(|step| json!({"progressToken": "mine", "progress": step, "total": 100, "message": format!("Completed step {step} of 100")}));
    let shown = |told: &Value| {
        let mut params = told["params"].clone();
        params.as_object_mut().map(|params| params.remove("_meta"));
        params
    };
    so("three steps in their order", steps.iter().map(|told| shown(told)).eq(wanted), &answer)
}

async fn logging(caller: &mut Caller) -> Checked {
    for (level, wanted) in [("info", 3), ("error", 0)] {
        let mut params = json!({"name": "fx_test_tool_with_logging", "arguments": {}});
        if caller.kind.is_modern() {
            params["_meta"] = json!({"io.modelcontextprotocol/logLevel": level});
        } else {
            let set = caller.ask("logging/setLevel", json!({"level": level})).await.message;
            same("the level is set", &set["result"], json!({}))?;
        }
        let answer = caller.ask("tools/call", params).await;
        same("its answer", text(&answer), "Tool with logging executed successfully")?;
        let said: Vec<&Value> =
            answer.told.iter().filter(|told| told["method"] == "notifications/message").collect();
        so(&format!("{wanted} messages at {level}"), said.len() == wanted, &answer)?;
        if let Some(first) = said.first() {
            same("what is logged", &first["params"]["data"], "Tool execution started")?;
        }
    }
    Ok(())
}

async fn cancellation(caller: &mut Caller) -> Checked {
    let before = waits(caller).await?;
    let params = json!({"name": "fx_test_wait", "arguments": {}, "_meta": {"progressToken": "wait"}});
    let id = caller.begin("tools/call", params).await;
    // It is under way as soon as it says so.
    while caller.hear("notifications/progress").await["params"]["progressToken"] != "wait" {}
    caller.cancel(id).await;
    loop {
        let now = waits(caller).await?;
        if now["waiting"] == 0 && now["cancelled"].as_u64() > before["cancelled"].as_u64() {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
}

/// How many calls wait at the server, and how many were cancelled.
async fn waits(caller: &mut Caller) -> Result<Value, String> {
    let answer = call(caller, "test_waits", json!({})).await.message;
    let waits = answer["result"]["structuredContent"].clone();
    so("it counts", waits["waiting"].is_u64(), &answer).map(|()| waits)
}

/// Listens in the way of the modern era; a legacy caller does so anyway.
async fn listen(caller: &mut Caller, wanted: Value) -> Result<Option<u64>, String> {
    if !caller.kind.is_modern() {
        return Ok(None);
    }
    let id = caller.begin("subscriptions/listen", json!({"notifications": wanted.clone()})).await;
    let agreed = caller.hear("notifications/subscriptions/acknowledged").await;
    same("what is listened to", &agreed["params"]["notifications"], wanted)?;
    Ok(Some(id))
}

/// That a notification belongs to what was asked for.
fn belongs(told: &Value, listening: Option<u64>) -> Checked {
    match listening {
        Some(id) => same("whose it is", &told["params"]["_meta"][SUBSCRIPTION], id),
        None => Ok(()),
    }
}

async fn list_changes(caller: &mut Caller) -> Checked {
    let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let listening = listen(caller, all).await?;
    for (trigger, of, extra) in [
        ("test_trigger_tool_change", TOOLS, "fx_test_extra_tool"),
        ("test_trigger_prompt_change", PROMPTS, "fx_test_extra_prompt"),
        ("test_trigger_resource_change", RESOURCES, "test://extra"),
    ] {
        let before = list(caller, of).await?.concat();
        so("the extra one is not there yet", !before.iter().any(|one| one == extra), &before)?;
        caller.heard.clear();
        call(caller, trigger, json!({})).await;
        let told = caller.hear(&format!("notifications/{}_changed", of.0)).await;
        belongs(&told, listening)?;
        let asked = std::time::Instant::now();
        let listed = has(caller, of, extra).await;
        listed.map_err(|why| format!("after {:?}: {why}", asked.elapsed()))?;
    }
    if let Some(id) = listening {
        caller.cancel(id).await;
    }
    Ok(())
}

async fn subscriptions(caller: &mut Caller) -> Checked {
    let watch = json!({"uri": WATCHED});
    let listening = listen(caller, json!({"resourceSubscriptions": [WATCHED]})).await?;
    if listening.is_none() {
        let agreed = caller.ask("resources/subscribe", watch.clone()).await.message;
        so("it is watched", agreed["result"].is_object(), &agreed)?;
    }
    for uri in ["test://another", WATCHED] {
        call(caller, "test_trigger_resource_update", json!({"uri": uri})).await;
    }
    let told = caller.hear("notifications/resources/updated").await;
    same("what changed", &told["params"]["uri"], WATCHED)?;
    belongs(&told, listening)?;
    match listening {
        Some(id) => caller.cancel(id).await,
        None => {
            let agreed = caller.ask("resources/unsubscribe", watch.clone()).await.message;
            so("it is watched no more", agreed["result"].is_object(), &agreed)?;
        }
    }
    caller.heard.clear();
    Ok(())
}

async fn form(caller: &mut Caller) -> Checked {
    let usual = caller.elicited.clone();
    for (answer, said) in [
        (
            usual.clone(),
            r#"User response: action="accept", content={"username":"ada","email":"ada@example.org"}"#,
        ),
        (json!({"action": "decline"}), r#"User response: action="decline", content=null"#),
    ] {
        caller.elicited = answer;
        caller.asked.clear();
        let told = call(caller, "test_elicitation", json!({"message": "Who is it?"})).await;
        same("what the server got", text(&told), said)?;
        let [(method, params)] = caller.asked.as_slice() else {
            return Err(format!("one question: {:?}", caller.asked));
        };
        so("a form", method == "elicitation/create" && params["message"] == "Who is it?", params)?;
        so("its fields", params["requestedSchema"]["properties"]["email"].is_object(), params)?;
    }
    caller.elicited = usual;
    Ok(())
}

async fn url(caller: &mut Caller, is_legacy: bool) -> Checked {
    caller.asked.clear();
    caller.heard.clear();
    let told = call(caller, "test_elicitation_url", json!({})).await;
    same("what the server got", text(&told), r#"Sign-in: action="accept""#)?;
    let [(method, params)] = caller.asked.as_slice() else {
        return Err(format!("one question: {:?}", caller.asked));
    };
    so("a page", method == "elicitation/create" && params["mode"] == "url", params)?;
    same("its address", &params["url"], "https://example.org/sign-in?for=fixture")?;
    // Each visit has an id in the legacy era, and none in the modern one.
    so("its id", params["elicitationId"].is_string() != caller.kind.is_modern(), params)?;
    // That it was visited is told in the legacy era only.
    if is_legacy && !caller.kind.is_modern() {
        let id = params["elicitationId"].clone();
        let told = caller.hear("notifications/elicitation/complete").await;
        same("which visit", &told["params"]["elicitationId"], id)?;
    }
    Ok(())
}

async fn sampling(caller: &mut Caller) -> Checked {
    caller.asked.clear();
    let told = call(caller, "test_sampling", json!({"prompt": "How is the tide?"})).await;
    same("what the server got", text(&told), "LLM response: high tide")?;
    let [(method, params)] = caller.asked.as_slice() else {
        return Err(format!("one question: {:?}", caller.asked));
    };
    so("a sample", method == "sampling/createMessage", params)?;
    same("what it is of", &params["messages"][0]["content"]["text"], "How is the tide?")
}

async fn roots(caller: &mut Caller) -> Checked {
    caller.asked.clear();
    let told = call(caller, "test_input_required_result_list_roots", json!({})).await;
    same("what the server got", text(&told), r#"Roots: [{"uri":"file:///quay","name":"quay"}]"#)?;
    so("one question", caller.asked.len() == 1 && caller.asked[0].0 == "roots/list", &caller.asked)
}

/// The server's pages have two members, ours a thousand; of both the caller sees every member once.
async fn pagination(caller: &mut Caller) -> Checked {
    let pages = list(caller, TOOLS).await?;
    so("more than one page", pages.len() == 2 && pages[0].len() == 1000, pages.len())?;
    let mut all = pages.concat();
    let count = all.len();
    all.sort();
    all.dedup();
    so("each once", all.len() == count, count)?;
    let of = |server: &str| all.iter().filter(|name| name.starts_with(server)).count();
    so("all of both servers", of("many_") == super::MANY && of("fx_") > 40, (of("many_"), of("fx_")))?;
    for (method, members, key) in [RESOURCES, PROMPTS] {
        let all = list(caller, (method, members, key)).await?.concat();
        so("more than the server has on a page", all.len() > 2, all)?;
        let wrong = caller.ask(method, json!({"cursor": "2"})).await.message;
        same("the server's own cursor", &wrong["error"]["code"], -32602)?;
    }
    Ok(())
}
