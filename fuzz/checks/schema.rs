//! Any bytes as a schema, and after a line break arguments for it: the answer comes in time, is the same again, and says
//! what is wrong without repeating what could drive a terminal.

use std::time::{Duration, Instant};

use wharf::call::{Misfit, Validators};
use wharf::mcp::Tool;
use wharf::text::is_unsafe_to_show;
use wharf::wire::Json;

/// How long an answer may take. A machine that runs tests is slow.
const TIME: Duration = Duration::from_secs(1);

pub(crate) fn check(data: &[u8]) {
    let (schema, arguments) = match data.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &b"{}"[..]),
    };
    let Ok(schema) = Json::parse(schema.to_vec(), 127) else { return };
    // As it comes in: as a part of a tool's definition.
    let definition = [br#"{"name":"t","inputSchema":"#, schema.as_str().as_bytes(), b"}"].concat();
    // One that is as deep as can be is too deep inside of another.
    if let Some(tool) = Json::parse(definition, 127).ok().and_then(|raw| Tool::read(raw).ok()) {
        assert_eq!(tool.input_schema, schema, "the schema is kept byte for byte");
    }
    let Ok(arguments) = Json::parse(arguments.to_vec(), 127) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (first, second, took) = runtime.block_on(async {
        let validators = Validators::default().with_deadline(TIME);
        let since = Instant::now();
        let first = validators.check(&schema, &arguments).await;
        (first, validators.check(&schema, &arguments).await, since.elapsed())
    });
    assert!(took < 4 * TIME, "{took:?}");
    if took < TIME {
        assert_eq!(first, second, "the same question has the same answer");
    }
    let said = match &first {
        Ok(()) => return assert!(arguments.is_object(), "arguments are an object"),
        Err(Misfit::Schema { reason }) => vec![reason],
        Err(Misfit::Arguments { problems }) => problems.iter().collect(),
    };
    for words in said {
        assert!(words.len() < 4096, "it says too much: {} bytes", words.len());
        assert!(!words.chars().any(|c| is_unsafe_to_show(c) && c != '\n'), "{words:?}");
    }
}
