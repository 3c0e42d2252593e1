//! What Tab offers, against names and a schema made for it.

use std::sync::Arc;

use serde_json::json;
use wharf::mcp::Tool;
use wharf::wire::Json;

use super::{Known, Offered};

fn known() -> Known {
    let definition = json!({ "name": "paint", "inputSchema": {
        "type": "object",
        "properties": {
            "colour": { "enum": ["red", "dark red", "\u{1b}[31m"] },
            "count": { "type": "integer" },
            "shiny": { "type": "boolean" },
            "\u{1b}[2J": { "type": "string" },
            "two words": { "type": "string" },
        },
    }});
    let tool = Arc::new(Tool::read(Json::of(&definition)).unwrap());
    let offered = |server: &str, public: &str| Offered {
        server: server.to_owned(),
        public: public.into(),
        tool: Arc::clone(&tool),
    };
    Known {
        configured: vec!["demo".to_owned(), "docs".to_owned(), "brush".to_owned()],
        connected: vec!["brush".to_owned()],
        tools: vec![offered("brush", "brush_paint"), offered("brush", "my_own")],
    }
}

fn complete(line: &str) -> Vec<String> {
    let (start, found) = known().complete(line);
    found.into_iter().map(|word| format!("{}{word}", &line[..start])).collect()
}

#[test]
fn l101_commands_and_servers_are_completed() {
    assert_eq!(complete("/m"), ["/mcp "]);
    assert_eq!(complete("/mcp c"), ["/mcp connect "]);
    assert_eq!(complete("/mcp connect d"), ["/mcp connect demo ", "/mcp connect docs "]);
    assert_eq!(complete("/mcp connect b"), [""; 0], "it is connected");
    assert_eq!(complete("/mcp disconnect "), ["/mcp disconnect brush "]);
    assert_eq!(complete("/mcp tools b"), ["/mcp tools brush "]);
    assert_eq!(complete("/mcp connect demo --sh"), ["/mcp connect demo --shared "]);
    assert_eq!(complete("/help m"), [""; 0]);
}

#[test]
fn l101_tools_are_completed_by_either_name() {
    assert_eq!(complete("br"), ["brush.paint ", "brush.paint "]);
    assert_eq!(complete("brush_"), ["brush_paint "]);
    assert_eq!(complete("my"), ["my_own "]);
}

#[test]
fn l101_arguments_and_their_values_are_completed() {
    assert_eq!(complete("brush.paint c"), ["brush.paint colour=", "brush.paint count="]);
    assert_eq!(complete("my_own count=1 co"), ["my_own count=1 colour="]);
    assert_eq!(complete("my_own count:=1 cou"), [""; 0]);
    assert_eq!(complete("brush.paint shiny="), ["brush.paint shiny=true ", "brush.paint shiny=false "]);
    assert_eq!(complete("brush.paint colour=r"), ["brush.paint colour=red "]);
    assert_eq!(complete("brush.paint count="), [""; 0]);
    assert_eq!(complete("nothing.there c"), [""; 0]);
}

#[test]
fn l101_nothing_is_offered_that_could_drive_a_terminal() {
    let all = complete("brush.paint ");
    assert_eq!(all, ["brush.paint colour=", "brush.paint count=", "brush.paint shiny="]);
    let values = complete("brush.paint colour=");
    assert_eq!(values, ["brush.paint colour=red ", "brush.paint colour='dark red' "]);
}
