//! Sockets as they are written: in each format, by transport or by address alone, and by `add`.

use std::path::Path;

use wharf::config::edit::{Format, NewServer, add};
use wharf::config::{ServerConfig, Transport};

use crate::config::{explicit, server};

/// What a server is, in a word.
fn said(server: &ServerConfig) -> String {
    match &server.transport {
        Transport::Unix(socket) => format!("unix {}", socket.path.display()),
        Transport::WebSocket(remote) => {
            let headers: Vec<String> =
                remote.headers.iter().map(|(name, value)| format!(" {name}={}", value.expose())).collect();
            format!("ws {}{}", remote.url.expose(), headers.concat())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn l30_sockets_are_read_from_each_format() {
    let forms = [
        (
            "wharf.toml",
            "[mcp.a]\npath = \"/run/x.sock\"\n[mcp.b]\ntransport = \"unix\"\npath = \"/run/x.sock\"\n\
             [mcp.c]\nurl = \"unix:///run/x.sock\"\n\
             [mcp.d]\nurl = \"wss://h/${P}\"\nheaders = { A = \"env:K\" }\n\
             [mcp.e]\ntype = \"websocket\"\nurl = \"${WS}\"\nheaders = { A = \"k-12345678\" }\n\
             [mcp.f]\nurl = \"${WS}\"\nheaders = { A = \"k-12345678\" }\n",
        ),
        (
            ".mcp.json",
            r#"{"mcpServers": {
                "a": {"path": "/run/x.sock"}, "b": {"type": "unix", "path": "/run/x.sock"},
                "c": {"type": "unix", "url": "unix:///run/x.sock"},
                "d": {"type": "ws", "url": "wss://h/${P}", "headers": {"A": "${K}"}},
                "e": {"type": "ws", "serverUrl": "${WS}", "headers": {"A": "k-12345678"}},
                "f": {"url": "${WS}", "headers": {"A": "k-12345678"}}}}"#,
        ),
        (
            "other/mcp.json",
            r#"{"servers": {
                "a": {"path": "/run/x.sock"}, "b": {"type": "unix", "path": "/run/x.sock"},
                "c": {"url": "unix:///run/x.sock"},
                "d": {"type": "websocket", "url": "wss://h/${env:P}", "headers": {"A": "${env:K}"}},
                "e": {"type": "ws", "url": "wss://h/mcp", "headers": {"A": "k-12345678"}},
                "f": {"url": "wss://h/mcp", "headers": {"A": "k-12345678"}}}}"#,
        ),
    ];
    let variables = [("P", "mcp"), ("K", "k-12345678"), ("WS", "wss://h/mcp")];
    for (file, text) in forms {
        let config = explicit(&[(file, text)], &variables).unwrap();
        assert!(config.problems.is_empty() && config.warnings.is_empty(), "{file}: {config:#?}");
        for name in ["a", "b", "c"] {
            assert_eq!(said(server(&config, name)), "unix /run/x.sock", "{file} {name}");
        }
        for name in ["d", "e", "f"] {
            assert_eq!(said(server(&config, name)), "ws wss://h/mcp A=k-12345678", "{file} {name}");
        }
        assert_eq!(server(&config, "a").transport_name(), "unix");
        assert_eq!(server(&config, "d").transport_name(), "ws");
        assert_eq!(server(&config, "d").redactor().redact("k-12345678 is out"), "*** is out");
    }
}

#[test]
fn l30_sockets_are_added_to_each_format() {
    for (format, file) in [(Format::Toml, "wharf.toml"), (Format::Json, ".mcp.json")] {
        for (url, meant) in
            [("unix:///run/x.sock", "unix /run/x.sock"), ("ws://127.0.0.1:9/mcp", "ws ws://127.0.0.1:9/mcp")]
        {
            let entry = NewServer { url: Some(url.into()), ..NewServer::default() };
            let text = add("", format, "new", &entry).unwrap();
            let config = explicit(&[(file, &text)], &[]).unwrap();
            assert!(config.problems.is_empty() && config.warnings.is_empty(), "{text}: {config:#?}");
            assert_eq!(said(server(&config, "new")), meant, "{text}");
        }
    }
}

#[test]
fn l30_two_sockets_are_two_connections() {
    let unix =
        |path: &str| ServerConfig::unix(wharf::names::ServerName::parse("a").unwrap(), Path::new(path));
    assert_eq!(unix("/a").identity(), unix("/a").identity());
    assert_ne!(unix("/a").identity(), unix("/b").identity());
}
