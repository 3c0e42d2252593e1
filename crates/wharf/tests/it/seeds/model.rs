//! A model for the examples that have one: it says what the example lets it say, in its provider's words, and keeps what
//! it was told.

use std::collections::VecDeque;

use serde_json::{Value, json};
use wharf::Host;
use wharf::provider::{Compiler, History, Provider, ToolMessage};
use wharf::registry::Route;

/// A call that a model makes: its id, the tool's public name, the arguments.
pub(crate) type Says<'a> = (&'a str, &'a str, Value);

pub(crate) struct Model {
    form: Provider,
    answers: VecDeque<Value>,
    /// The tools that it was given last.
    pub(crate) tools: Value,
    /// The messages that it was sent last.
    pub(crate) heard: Vec<Value>,
    /// The results of all turns, in the form that belongs to no provider.
    pub(crate) results: Vec<ToolMessage>,
}

impl Model {
    /// A model by its name: whose form it speaks is found out from that.
    pub(crate) fn named(name: &str) -> Self {
        let form = Provider::of_model(name).unwrap();
        Self { form, answers: VecDeque::new(), tools: Value::Null, heard: Vec::new(), results: Vec::new() }
    }

    /// Then it calls these tools.
    pub(crate) fn calls(mut self, calls: &[Says<'_>]) -> Self {
        let each =
            |one: fn(&Says<'_>) -> Value| -> Value { calls.iter().map(one).collect::<Vec<_>>().into() };
        self.answers.push_back(match self.form {
            Provider::Anthropic => {
                let content = each(
                    |(id, name, input)| json!({"type": "tool_use", "id": id, "name": name, "input": input}),
                );
                json!({"type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use"})
            }
            Provider::Gemini => {
                let parts = each(
                    |(id, name, args)| json!({"functionCall": {"id": id, "name": name, "args": args}}),
                );
                json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]})
            }
            _ => {
                let calls = each(|(id, name, arguments)| {
                    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}})
                });
                let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
                json!({"choices": [{"finish_reason": "tool_calls", "message": message}]})
            }
        });
        self
    }

    /// Then it says this.
    pub(crate) fn says(mut self, text: &str) -> Self {
        self.answers.push_back(match self.form {
            Provider::Anthropic => json!({"type": "message", "role": "assistant",
                "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}),
            Provider::Gemini => json!({"candidates": [{"finishReason": "STOP",
                "content": {"role": "model", "parts": [{"text": text}]}}]}),
            _ => json!({"choices": [{"finish_reason": "stop",
                "message": {"role": "assistant", "content": text}}]}),
        });
        self
    }

    /// Asks, and runs what it calls, until it has said something.
    pub(crate) async fn converse(&mut self, host: &Host, tools: &[Route], question: &str) -> String {
        let compiled = Compiler::new().compile(self.form, tools);
        assert!(compiled.left_out.is_empty(), "{:?}", compiled.left_out);
        self.tools = compiled.tools.to().unwrap();
        let mut history = History::default();
        history.say(match self.form {
            Provider::Gemini => json!({"role": "user", "parts": [{"text": question}]}),
            _ => json!({"role": "user", "content": question}),
        });
        loop {
            self.heard = history.messages(self.form).iter().map(|message| message.to().unwrap()).collect();
            let body = self.answers.pop_front().expect("the model has nothing more to say");
            let answer = self.form.answer(&body.into(), &compiled.toolset).unwrap();
            if answer.calls.is_empty() {
                return answer.text.raw().to_owned();
            }
            history.answer(&answer);
            let done = host.run_calls(answer.calls).await;
            let results: Vec<_> =
                done.iter().map(|(call, outcome)| ToolMessage::new(call, outcome)).collect();
            self.results.extend(results.iter().cloned());
            history.results(results);
        }
    }
}
