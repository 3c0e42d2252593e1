//! Servers and authorization servers that lie on the way to a token.

use std::sync::Arc;

use serde_json::{Value, json};
use wharf::connect::TokenMemory;
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::secret::Secret;
use wharf::{Error, Host};
use wharf_testkit::oauth::{Authority, Edit, Rules};
use wharf_testkit::{HttpPuppet, Reply};

use super::{Person, call, config, guarded, honest, host, host_with, log_in, with};

/// Addresses that no server leads to.
const INWARD: [&str; 9] = [
    "http://169.254.169.254/latest/meta-data",
    "https://169.254.169.254/",
    "https://[::ffff:169.254.169.254]/",
    "https://10.0.0.1/admin",
    "https://192.168.1.1/",
    "https://0.0.0.0/",
    "http://example.com/",
    "file:///etc/passwd",
    "https://user:pass@example.com/",
];

/// A login that must be refused before anybody is sent anywhere.
async fn refused(host: &Host) -> Error {
    let person = Person::new();
    let error = host.login("srv", &person, &[]).await.unwrap_err();
    assert!(person.pages().is_empty(), "somebody was sent to {:?}", person.pages());
    assert!(call(host, "echo").await.is_err());
    error
}

#[tokio::test]
async fn ssrf_10_no_address_on_the_way_leads_inward() {
    for inward in INWARD {
        // Where the refusal points to.
        let authority = Authority::start();
        let mut guard = authority.guard();
        guard.challenge = Some(format!("resource_metadata=\"{inward}\""));
        let error = refused(&host(&guarded(guard)).await).await;
        assert!(matches!(error, Error::Denied { .. }), "{inward}: {error:?}");
        // Who hands out tokens.
        let mut guard = authority.guard();
        guard.metadata = with("authorization_servers", json!([inward]));
        let error = refused(&host(&guarded(guard)).await).await;
        assert!(matches!(error, Error::Denied { .. }), "{inward}: {error:?}");
        assert!(authority.requests().is_empty());
        // And where.
        for endpoint in
            ["authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"]
        {
            let authority =
                Authority::with(Rules { metadata: with(endpoint, json!(inward)), ..Rules::default() });
            let error = refused(&host(&guarded(authority.guard())).await).await;
            assert!(matches!(error, Error::Denied { .. }), "{endpoint} {inward}: {error:?}");
            assert_eq!(authority.requests().len(), 1, "only its metadata were read");
        }
    }
    // What is only mentioned is not fetched.
    let canary = HttpPuppet::start(|_| std::future::ready(Reply::status(200)));
    let mentioned = canary.url();
    let metadata: Edit = Arc::new(move |metadata| {
        for name in ["jwks_uri", "service_documentation", "op_policy_uri", "logo_uri"] {
            metadata[name] = json!(mentioned);
        }
    });
    let authority = Authority::with(Rules { metadata, ..Rules::default() });
    let server = guarded(authority.guard());
    let twin = host(&server).await;
    log_in(&twin).await.unwrap();
    call(&twin, "echo").await.unwrap();
    assert_eq!(canary.accepts(), 0);
}

#[test]
fn ssrf_10_nobody_outside_leads_to_this_machine() {
    let name = ServerName::parse("srv").unwrap();
    let policy = Policy::strict();
    let may = |home: &str, found: &str| {
        policy.permit_found(&name, &home.parse().unwrap(), &found.parse().unwrap()).is_ok()
    };
    for found in ["http://127.0.0.1:80/", "http://localhost/", "https://[::1]/", "https://app.localhost/"] {
        assert!(!may("https://mcp.example/mcp", found), "{found}");
        assert!(may("http://127.0.0.1:9000/mcp", found), "{found}");
    }
    assert!(may("https://mcp.example/mcp", "https://auth.example/token"));
    assert!(!may("https://mcp.example/mcp", "http://auth.example/token"));
    // A network of the user's own: the server there may be spoken with, others there only encrypted.
    let own = policy.with_private_networks(true);
    let may = |home: &str, found: &str| {
        own.permit_found(&name, &home.parse().unwrap(), &found.parse().unwrap()).is_ok()
    };
    assert!(may("http://10.0.0.2/mcp", "http://10.0.0.2/.well-known/x"));
    assert!(may("http://10.0.0.2/mcp", "https://10.0.0.3/token"));
    assert!(!may("http://10.0.0.2/mcp", "http://10.0.0.3/token"));
    assert!(!may("http://10.0.0.2/mcp", "http://169.254.169.254/token"));
}

#[tokio::test]
async fn ssrf_10_redirects_and_floods_on_the_way_are_refused() {
    let (authority, _) = honest();
    let canary = HttpPuppet::start(|_| std::future::ready(Reply::ok(json!({}))));
    let elsewhere = canary.url();
    let flood = vec![b' '; 300 * 1024];
    for status in [301, 302, 303, 307, 308, 200] {
        let (elsewhere, flood) = (elsewhere.clone(), flood.clone());
        let guard = authority.guard();
        let server = HttpPuppet::start(move |request| {
            let reply = match (request.path.starts_with("/.well-known"), status) {
                (true, 200) => Reply::Raw(200, "application/json".into(), flood.clone()),
                (true, status) => Reply::Redirect(status, elsewhere.clone()),
                (false, _) => guard.judge(&request).unwrap_or_else(|| Reply::status(404)),
            };
            std::future::ready(reply)
        });
        refused(&host(&server).await).await;
    }
    assert_eq!(canary.accepts(), 0);
}

#[tokio::test]
async fn ssrf_11_only_an_address_is_opened() {
    let hostile = [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://x/$(calc)",
        "https://x.example/$(calc)",
        "https://x.example/`calc`",
        "https://x.example/a';calc;'",
        "https://x.example/a\"b",
        "https://x.example/a|b",
        "https://x.example/a b",
        "https://x.example/a\\b",
        "https://x.example/a#b",
        "--flag",
        "-oProxyCommand=calc",
        "data:text/html,x",
        "vscode://x/y",
        "https://user@x.example/",
        "https://x.example/\u{202e}",
        "",
    ];
    for page in hostile {
        let authority = Authority::with(Rules {
            metadata: with("authorization_endpoint", json!(page)),
            ..Rules::default()
        });
        let error = refused(&host(&guarded(authority.guard())).await).await;
        assert!(matches!(error, Error::Denied { .. } | Error::Login { .. }), "{page}: {error:?}");
    }
    // The twin: a page with a query of its own, which it keeps.
    let metadata: Edit = Arc::new(|metadata| {
        let page = metadata["authorization_endpoint"].as_str().unwrap().to_owned();
        metadata["authorization_endpoint"] = json!(format!("{page}?tenant=a%20b"));
    });
    let authority = Authority::with(Rules { metadata, ..Rules::default() });
    let server = guarded(authority.guard());
    let host = host(&server).await;
    let person = Person::new();
    host.login("srv", &person, &[]).await.unwrap();
    assert_eq!(person.asked("tenant").as_deref(), Some("a b"));
    let page = person.pages()[0].as_str().to_owned();
    assert!(page.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~:/?&=%+".contains(&b)), "{page}");
}

#[tokio::test]
async fn ssrf_13_an_authorization_server_that_is_not_what_it_must_be_is_refused() {
    let lies: [(&str, Value); 6] = [
        ("issuer", json!("https://other.example")),
        ("issuer", json!(null)),
        ("code_challenge_methods_supported", json!(null)),
        ("code_challenge_methods_supported", json!(["plain"])),
        ("token_endpoint", json!(null)),
        ("authorization_endpoint", json!(null)),
    ];
    for (name, value) in lies {
        let authority = Authority::with(Rules { metadata: with(name, value.clone()), ..Rules::default() });
        refused(&host(&guarded(authority.guard())).await).await;
        assert_eq!(authority.requests().len(), 1, "{name} {value}: it was asked for more than its metadata");
    }
    // The issuer is compared letter by letter.
    let metadata: Edit = Arc::new(|metadata| {
        metadata["issuer"] = json!(format!("{}/", metadata["issuer"].as_str().unwrap()));
    });
    let authority = Authority::with(Rules { metadata, ..Rules::default() });
    refused(&host(&guarded(authority.guard())).await).await;
    // A server that speaks for another one.
    for resource in ["https://other.example/mcp", "http://127.0.0.1:1/mcp"] {
        let (authority, _) = honest();
        let mut guard = authority.guard();
        guard.metadata = with("resource", json!(resource));
        refused(&host(&guarded(guard)).await).await;
        assert!(authority.requests().is_empty());
    }
}

#[tokio::test]
async fn ssrf_13_an_answer_of_somebody_else_is_refused() {
    let edits: [fn(&mut Value); 6] = [
        |back| back["iss"] = json!("https://evil.example"),
        |back| drop(back.as_object_mut().unwrap().remove("iss")),
        |back| back["iss"] = json!(format!("{}/", back["iss"].as_str().unwrap())),
        |back| back["state"] = json!("another"),
        |back| drop(back.as_object_mut().unwrap().remove("state")),
        |back| drop(back.as_object_mut().unwrap().remove("code")),
    ];
    for edit in edits {
        let authority = Authority::with(Rules { returned: Arc::new(edit), ..Rules::default() });
        let server = guarded(authority.guard());
        let host = host(&server).await;
        let error = log_in(&host).await.unwrap_err();
        assert!(matches!(error, Error::Login { .. }), "{error:?}");
        assert!(!authority.requests().iter().any(|r| r.path == "/token"), "the code was used");
    }
    // An error is believed only from whom it should come; and shown as what it is.
    let returned: Edit = Arc::new(|back| back["error"] = json!("access_denied\u{1b}[2J"));
    let authority = Authority::with(Rules { returned, ..Rules::default() });
    let server = guarded(authority.guard());
    let error = log_in(&host(&server).await).await.unwrap_err().to_string();
    assert!(error.contains("access_denied") && !error.contains('\u{1b}'), "{error}");
    // Twice is never.
    let twice = Person::who(|back| format!("{back}&code=another"));
    let (authority, server) = honest();
    assert!(host(&server).await.login("srv", &twice, &[]).await.is_err());
    assert!(!authority.requests().iter().any(|r| r.path == "/token"));
}

#[tokio::test]
async fn ssrf_13_credentials_of_one_authorization_server_never_reach_another() {
    let (first, second) = (Authority::start(), Authority::start());
    // The server changes its mind after the first login.
    let guards = [first.guard(), second.guard()];
    let now = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let turn = Arc::clone(&now);
    let server = HttpPuppet::start(move |request| {
        let guard = &guards[turn.load(std::sync::atomic::Ordering::SeqCst)];
        let honest = wharf_testkit::http::honest_modern(vec![
            json!({ "name": "echo", "inputSchema": { "type": "object" } }),
        ]);
        let handler = guard.clone().before(honest);
        async move { handler(request).await }
    });
    let registered = host(&server).await;
    log_in(&registered).await.unwrap();
    call(&registered, "echo").await.unwrap();
    let mut by_hand = config(&server.url());
    by_hand.oauth.client_id = Some("by-hand".into());
    by_hand.oauth.client_secret = Some(Secret::new("only-for-the-first"));
    first.add_client("by-hand", Some("only-for-the-first"), "client_secret_basic");
    let by_hand = host_with(by_hand, Arc::new(TokenMemory::default())).await;
    log_in(&by_hand).await.unwrap();
    let handed_out = first.secrets();

    now.store(1, std::sync::atomic::Ordering::SeqCst);
    // A secret from the config is not for somebody new.
    let error = by_hand.login("srv", &Person::new(), &[]).await.unwrap_err();
    assert!(error.hint().unwrap().contains("issuer ="), "{error:?}");
    // A client that was registered is registered anew, and renewals go to whom they belong.
    call(&registered, "echo").await.unwrap_err();
    log_in(&registered).await.unwrap();
    call(&registered, "echo").await.unwrap();
    assert_eq!(second.registrations().len(), 1);
    for request in second.requests() {
        let all = format!("{} {:?} {:?}", request.path, request.headers, request.body);
        assert!(!all.contains("by-hand") && !all.contains("only-for-the-first"), "{all}");
        assert!(handed_out.iter().all(|secret| !all.contains(secret.as_str())), "{all}");
    }
}

#[tokio::test]
async fn ssrf_13_tokens_that_are_none_are_refused() {
    let edits: [fn(&mut Value); 5] = [
        |tokens| tokens["token_type"] = json!("DPoP"),
        |tokens| tokens["access_token"] = json!("two words\r\nx: y"),
        |tokens| tokens["access_token"] = json!(""),
        |tokens| tokens["access_token"] = json!(null),
        |tokens| *tokens = json!([]),
    ];
    for edit in edits {
        let authority = Authority::with(Rules { tokens: Arc::new(edit), ..Rules::default() });
        let server = guarded(authority.guard());
        let host = host(&server).await;
        let error = log_in(&host).await.unwrap_err();
        assert!(authority.secrets().iter().all(|secret| !format!("{error} {error:?}").contains(secret)));
        assert!(matches!(call(&host, "echo").await, Err(Error::Auth { .. })));
    }
}
