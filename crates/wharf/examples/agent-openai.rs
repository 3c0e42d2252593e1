//! An agent on OpenAI's Chat Completions, or anything that speaks them: `agent-openai QUESTION [CONFIG]`.
//!
//! `OPENAI_API_KEY` and `OPENAI_MODEL` are needed; `OPENAI_BASE_URL` is `https://api.openai.com/v1` unless it is set.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program reads its environment and speaks to its user"
)]

mod agent;

use std::process::ExitCode;

use agent::{Model, Result, TURNS};
use serde::Serialize;
use serde_json::json;
use wharf::Host;
use wharf::provider::{Compiler, History, Provider, ToolMessage};
use wharf::secret::Secret;
use wharf::wire::Json;

const FORM: Provider = Provider::OpenAiChat;

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    messages: Vec<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a Json>,
}

fn main() -> ExitCode {
    agent::run(answer)
}

async fn answer(host: &Host, question: &str) -> Result<String> {
    let key = Secret::new(format!("Bearer {}", agent::variable("OPENAI_API_KEY")?));
    let model = Model::new("OPENAI", "https://api.openai.com/v1", vec![("authorization", key)])?;
    let compiled = Compiler::new().compile(FORM, agent::tools(host).await.snapshot.tools());
    let mut history = History::default();
    history.say(json!({ "role": "user", "content": question }));
    for _ in 0..TURNS {
        let request = Request {
            model: &model.name,
            messages: history.messages(FORM),
            tools: (!compiled.toolset.is_empty()).then_some(&compiled.tools),
        };
        let body = model.ask("/chat/completions", &request).await?;
        let answer = FORM.answer(&body, &compiled.toolset)?;
        if answer.calls.is_empty() {
            return agent::said(&answer);
        }
        history.answer(&answer);
        let done = host.run_calls(answer.calls).await;
        history.results(done.iter().map(|(call, outcome)| ToolMessage::new(call, outcome)));
    }
    Err(format!("no answer after {TURNS} turns").into())
}
