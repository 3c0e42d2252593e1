//! The `oauth` table of a server, in both formats.

use crate::config::{explicit, server};

#[test]
fn l81_the_settings_of_a_login_are_read_in_both_formats() {
    let toml = r#"
        [mcp.srv]
        url = "https://mcp.example/mcp"
        [mcp.srv.oauth]
        client_id = "me"
        client_secret = "env:SECRET"
        issuer = "https://auth.example"
        scopes = ["read", "write"]
        callback_port = 8123
        client_metadata_url = "https://me.example/client.json"
    "#;
    let json = r#"{"mcpServers": {"srv": {"url": "https://mcp.example/mcp", "oauth": {
        "clientId": "me", "clientSecret": "${SECRET}", "issuer": "https://auth.example", "scope": "read write",
        "callbackPort": 8123, "clientMetadataUrl": "https://me.example/client.json", "xaa": true
    }}}}"#;
    let secret = [("SECRET", "hunter2-hunter2")];
    let read = [("wharf.toml", toml), (".mcp.json", json)].map(|file| {
        let config = explicit(&[file], &secret).unwrap();
        let server = server(&config, "srv").clone();
        assert!(!format!("{server:?}").contains("hunter2"), "{server:?}");
        assert_eq!(server.redactor().redact("a hunter2-hunter2 b"), "a *** b");
        server.oauth
    });
    assert_eq!(read[0], read[1]);
    let oauth = &read[0];
    assert_eq!(oauth.client_id.as_deref(), Some("me"));
    assert_eq!(oauth.client_secret.as_ref().unwrap().expose(), "hunter2-hunter2");
    assert_eq!((oauth.scopes.len(), oauth.callback_port), (2, Some(8123)));
    // Other clients only switch it on or off.
    let off = r#"{"mcpServers": {"srv": {"url": "https://mcp.example/mcp", "oauth": false}}}"#;
    let config = explicit(&[(".mcp.json", off)], &[]).unwrap();
    assert_eq!(server(&config, "srv").oauth, wharf::config::OAuth::default());
}

#[test]
fn l81_settings_that_cannot_be_meant_are_placed() {
    let wrong = [
        ("client_secret = \"x\"", "client_id"),
        ("client_metadata_url = \"http://me.example/c.json\"", "https:"),
        ("client_metadata_url = \"https://me.example/\"", "https:"),
        ("scopes = [\"two words\"]", "not a scope"),
        ("scopes = 1", "list of strings"),
        ("callback_port = 0", "callback_port"),
        ("callback_port = 70000", "callback_port"),
        ("clientId = \"x\"", "unknown field"),
    ];
    for (line, says) in wrong {
        let text = format!("[mcp.srv]\nurl = \"https://mcp.example/mcp\"\n[mcp.srv.oauth]\n{line}\n");
        let config = explicit(&[("wharf.toml", &text)], &[]).unwrap();
        let problems: Vec<String> = config.problems.iter().map(ToString::to_string).collect();
        assert!(problems.iter().any(|p| p.contains(says) && p.contains(":4")), "{line}: {problems:?}");
        assert!(!config.servers.contains_key("srv"), "{line}");
    }
    let program = "[mcp.srv]\ncommand = \"npx\"\noauth = { client_id = \"x\" }\n";
    let config = explicit(&[("wharf.toml", program)], &[]).unwrap();
    assert!(config.problems[0].to_string().contains("means nothing"), "{:?}", config.problems);
}
