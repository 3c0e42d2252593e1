//! What callers say, and whether what they hear is the answer to it.
//!
//! In: what is asked, and the era it is asked in. Out: messages, with their HTTP heads. Answers are told by their id and
//! by what they must hold; an answer to another question, or half of one, would make every figure worthless.

use std::io::Write as _;

use crate::bytes::{find, members, number_after, text_after};

/// In which era a caller speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// What is asked for, again and again.
#[derive(Clone)]
pub(crate) enum Ask {
    /// A tool is called with a message of 100 bytes.
    Echo(String),
    /// A tool is called for so much text.
    Blob(String, usize),
    /// Every tool is listed; there must be so many bytes of them.
    List(usize),
}

/// Where HTTP is spoken.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// The host and the port.
    pub(crate) authority: String,
    pub(crate) path: String,
}

/// How messages are written.
#[derive(Clone)]
pub(crate) struct Speech {
    era: Era,
    address: Address,
    /// What a legacy server wants to see again.
    revision: String,
    session: Option<String>,
    pub(crate) id: u64,
    pub(crate) message: Vec<u8>,
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
/// A hundred bytes, the first of which are the number of the call.
const FILLING: &str =
    "abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz abcdef";
const GREETING: &[u8] = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}"#;
const GREETED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

// === impl Era ===

impl Era {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy caller",
            Self::Modern => "modern caller",
        }
    }
}

// === impl Address ===

impl Address {
    pub(crate) fn local(port: u16) -> Self {
        Self { authority: format!("127.0.0.1:{port}"), path: "/mcp".to_owned() }
    }

    /// Of a plain `http://` URL.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("http://")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = if authority.contains(':') { "" } else { ":80" };
        Some(Self { authority: format!("{authority}{port}"), path: format!("/{path}") })
    }
}

// === impl Speech ===

impl Speech {
    pub(crate) fn new(era: Era, address: Address) -> Self {
        Self { era, address, revision: String::new(), session: None, id: 0, message: Vec::new() }
    }

    /// The next message.
    pub(crate) fn say(&mut self, ask: &Ask) -> &mut Vec<u8> {
        self.id += 1;
        let (id, out) = (self.id, &mut self.message);
        out.clear();
        let method = ask.method();
        write!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{").unwrap();
        match ask {
            Ask::Echo(tool) => {
                write!(out, r#""name":"{tool}","arguments":{{"message":"{id:<12} {FILLING}"}}"#).unwrap();
            }
            Ask::Blob(tool, bytes) => {
                write!(out, r#""name":"{tool}","arguments":{{"bytes":{bytes}}}"#).unwrap();
            }
            Ask::List(_) => {}
        }
        if self.era == Era::Modern {
            let comma = if out.ends_with(b"{") { "" } else { "," };
            write!(out, "{comma}{META}").unwrap();
        }
        out.extend_from_slice(b"}}");
        out
    }

    /// The next message with its head.
    pub(crate) fn post(&mut self, ask: &Ask, out: &mut Vec<u8>) {
        self.say(ask);
        self.head(Some(ask), out);
    }

    fn head(&self, ask: Option<&Ask>, out: &mut Vec<u8>) {
        let Address { authority, path } = &self.address;
        out.clear();
        write!(out, "POST {path} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n").unwrap();
        match (self.era, ask) {
            (Era::Modern, Some(ask)) => {
                let method = ask.method();
                write!(out, "mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n").unwrap();
                if let Ask::Echo(tool) | Ask::Blob(tool, _) = ask {
                    write!(out, "mcp-name: {tool}\r\n").unwrap();
                }
            }
            _ if self.revision.is_empty() => {}
            _ => write!(out, "mcp-protocol-version: {}\r\n", self.revision).unwrap(),
        }
        if let Some(session) = &self.session {
            write!(out, "mcp-session-id: {session}\r\n").unwrap();
        }
        write!(out, "content-length: {}\r\n\r\n", self.message.len()).unwrap();
        out.extend_from_slice(&self.message);
    }

    /// The first message, where the era has one; over HTTP with its head.
    pub(crate) fn greeting(&mut self, post: Option<&mut Vec<u8>>) -> Option<&[u8]> {
        if self.era == Era::Modern {
            return None;
        }
        self.message = GREETING.to_vec();
        post.into_iter().for_each(|out| self.head(None, out));
        Some(&self.message)
    }

    /// What is said to the answer.
    pub(crate) fn greeted(
        &mut self,
        answer: &[u8],
        session: Option<&str>,
        post: Option<&mut Vec<u8>>,
    ) -> &[u8] {
        let revision = text_after(answer, b"\"protocolVersion\":").unwrap_or(b"2025-11-25");
        self.revision = String::from_utf8_lossy(revision).into_owned();
        self.session = session.map(str::to_owned);
        self.message = GREETED.to_vec();
        post.into_iter().for_each(|out| self.head(None, out));
        &self.message
    }
}

// === impl Ask ===

impl Ask {
    fn method(&self) -> &'static str {
        match self {
            Self::Echo(_) | Self::Blob(..) => "tools/call",
            Self::List(_) => "tools/list",
        }
    }

    /// Whether this answers the question with this id.
    pub(crate) fn check(&self, id: u64, answer: &[u8]) -> Result<(), String> {
        let fits = id_of(answer) == Some(id)
            && match self {
                Self::Echo(_) => {
                    let said = text_after(answer, b"\"text\":").unwrap_or_default();
                    said.len() == 100 && number_after(said, b"") == Some(id)
                }
                Self::Blob(_, bytes) => answer.len() > *bytes,
                Self::List(bytes) => find(answer, b"\"tools\":").is_some() && answer.len() >= *bytes,
            };
        let shown = || String::from_utf8_lossy(&answer[..answer.len().min(600)]).into_owned();
        if fits { Ok(()) } else { Err(format!("not the answer to {id}: {}", shown())) }
    }
}

/// The id of an answer. It stands at its beginning or at its end.
pub(crate) fn id_of(answer: &[u8]) -> Option<u64> {
    let beginning = &answer[..answer.len().min(64)];
    let end = &answer[answer.len().saturating_sub(64)..];
    number_after(beginning, b"\"id\":").or_else(|| number_after(end, b"\"id\":"))
}

/// The names of the tools in the answer to a list.
pub(crate) fn names(answer: &[u8]) -> Vec<String> {
    let member = |of: &'_ [u8], wanted: &[u8]| -> Vec<u8> {
        members(of).find(|(name, _)| *name == wanted).map(|(_, value)| value.to_vec()).unwrap_or_default()
    };
    let tools = member(&member(answer, b"result"), b"tools");
    let (mut rest, mut names) = (&tools[..], Vec::new());
    // Properties of arguments may be called so too, but their values are no strings.
    while let Some(at) = find(rest, b"\"name\":") {
        rest = &rest[at..];
        names.extend(text_after(rest, b"\"name\":").map(|name| String::from_utf8_lossy(name).into_owned()));
        rest = &rest[b"\"name\":".len()..];
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_other_questions_are_told() {
        let text = format!("{:<12} {FILLING}", 7);
        assert_eq!(text.len(), 100);
        let echo = Ask::Echo("echo".into());
        let good = format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
        );
        let turned = format!(
            r#"{{"result":{{"content":[{{"type":"text","text":"{text}"}}]}},"jsonrpc":"2.0","id":7}}"#
        );
        assert!(echo.check(7, good.as_bytes()).is_ok() && echo.check(7, turned.as_bytes()).is_ok());
        let others =
            [good.replace("\"id\":7", "\"id\":8"), good.replace("\"7 ", "\"8 "), good.replace("abc ", "ab ")];
        for other in others.iter().chain([&good.replace("\"text\":", "\"x\":")]) {
            assert!(*other == good || echo.check(7, other.as_bytes()).is_err(), "{other}");
        }
    }

    #[test]
    fn urls_are_taken_apart() {
        let parsed = |url| Address::parse(url).map(|a| (a.authority, a.path));
        assert_eq!(parsed("http://h:1/a/b"), Some(("h:1".into(), "/a/b".into())));
        assert_eq!(parsed("http://h"), Some(("h:80".into(), "/".into())));
        assert_eq!(parsed("https://h/"), None);
    }

    #[test]
    fn tools_are_found_by_how_their_names_end() {
        let list = br#"{"id":1,"result":{"_meta":{"name":"an echo"},"tools":[{"name":"up_echo","inputSchema":{"properties":{"name":{}}}},{"title":"d","name": "up_blob"}]}}"#;
        assert_eq!(names(list), ["up_echo", "up_blob"]);
    }
}
