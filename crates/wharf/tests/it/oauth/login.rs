//! The way in, for every kind of client, and what is left afterwards.

use std::sync::Arc;

use serde_json::json;
use wharf::Error;
use wharf::connect::{LoggedOut, LoginState, TokenMemory};
use wharf::secret::Secret;
use wharf_testkit::oauth::{Authority, Rules};

use super::{Person, call, config, guarded, honest, host, host_with, log_in, shown, with};

#[tokio::test]
async fn l81_without_a_login_the_error_names_the_command_and_with_one_calls_work() {
    let (authority, server) = honest();
    let host = host(&server).await;
    assert_eq!(host.login_state("srv").unwrap(), LoginState::LoggedOut);
    let refused = call(&host, "echo").await.unwrap_err();
    assert!(matches!(refused, Error::Auth { .. }), "{refused:?}");
    assert!(refused.hint().unwrap().contains("wharf login srv"), "{:?}", refused.hint());

    let person = Person::new();
    let outline = host.login("srv", &person, &[]).await.unwrap();
    assert_eq!(outline.issuer, authority.issuer());
    assert!(outline.renewable && outline.expires.is_some());
    call(&host, "echo").await.unwrap();
    let calls = shown(&server, "tools/call");
    assert!(calls.iter().all(|shown| shown.as_ref().is_some_and(|s| s.starts_with("Bearer access-"))));
    assert!(matches!(host.login_state("srv").unwrap(), LoginState::LoggedIn(_)));

    // What the authorization server was told.
    assert_eq!(person.asked("resource").as_deref(), Some(server.url().as_str()));
    assert_eq!(person.asked("code_challenge_method").as_deref(), Some("S256"));
    assert_eq!(person.asked("scope"), None);
    let registered = &authority.registrations()[0];
    assert_eq!(registered["redirect_uris"], json!(["http://127.0.0.1:9/callback"]));
    assert_eq!(registered["grant_types"], json!(["authorization_code", "refresh_token"]));
    assert_eq!(registered["application_type"], "native");
}

#[tokio::test]
async fn l81_a_server_that_points_nowhere_is_found_by_the_usual_places() {
    let authority = Authority::start();
    let mut guard = authority.guard();
    guard.challenge = None;
    let server = guarded(guard);
    let host = host(&server).await;
    log_in(&host).await.unwrap();
    call(&host, "echo").await.unwrap();
}

#[tokio::test]
async fn l81_every_way_for_a_client_to_prove_itself() {
    for method in ["none", "client_secret_basic", "client_secret_post"] {
        // Registered now.
        let authority = Authority::with(Rules { methods: vec![method], ..Rules::default() });
        let server = guarded(authority.guard());
        let registered = host(&server).await;
        log_in(&registered).await.unwrap();
        call(&registered, "echo").await.unwrap();
        authority.end_access();
        call(&registered, "echo").await.unwrap();
        assert_eq!(authority.registrations().len(), 1, "{method}");

        // Registered by hand, with letters that must be encoded.
        let secret = (method != "none").then_some("s:e c+r%et");
        authority.add_client("by hand", secret, method);
        let mut by_hand = config(&server.url());
        by_hand.oauth.client_id = Some("by hand".into());
        by_hand.oauth.client_secret = secret.map(Secret::new);
        let by_hand = host_with(by_hand, Arc::new(TokenMemory::default())).await;
        log_in(&by_hand).await.unwrap();
        call(&by_hand, "echo").await.unwrap();
        assert_eq!(authority.registrations().len(), 1, "{method}");
    }
}

#[tokio::test]
async fn l81_a_document_is_the_clients_name_where_that_is_taken() {
    const DOCUMENT: &str = "https://wharf.example/client.json";
    for taken in [true, false] {
        let metadata = with("client_id_metadata_document_supported", json!(taken));
        let authority = Authority::with(Rules { metadata, ..Rules::default() });
        let server = guarded(authority.guard());
        let mut config = config(&server.url());
        config.oauth.client_metadata_url = Some(DOCUMENT.parse().unwrap());
        let host = host_with(config, Arc::new(TokenMemory::default())).await;
        let person = Person::new();
        host.login("srv", &person, &[]).await.unwrap();
        call(&host, "echo").await.unwrap();
        assert_eq!(person.asked("client_id").as_deref() == Some(DOCUMENT), taken);
        assert_eq!(authority.registrations().is_empty(), taken);
    }
}

#[tokio::test]
async fn l81_who_cannot_register_is_told_what_to_write() {
    let authority =
        Authority::with(Rules { metadata: with("registration_endpoint", json!(null)), ..Rules::default() });
    let server = guarded(authority.guard());
    let host = host(&server).await;
    let refused = log_in(&host).await.unwrap_err();
    assert!(refused.hint().unwrap().contains("[mcp.srv.oauth]"), "{:?}", refused.hint());
}

#[tokio::test]
async fn l81_more_rights_are_asked_for_with_those_of_before_and_not_twice() {
    let authority = Authority::start();
    let mut guard = authority.guard();
    guard.challenge = Some("scope=\"read\", resource_metadata=\"{prm}\"".into());
    guard.scope_of.insert("write".into(), "write".into());
    guard.scope_of.insert("echo".into(), "read".into());
    let server = guarded(guard);
    let store = Arc::new(TokenMemory::default());
    let host = host_with(config(&server.url()), store.clone()).await;
    call(&host, "echo").await.unwrap_err();
    let person = Person::new();
    host.login("srv", &person, &[]).await.unwrap();
    assert_eq!(person.asked("scope").as_deref(), Some("read"));
    call(&host, "echo").await.unwrap();

    let refused = call(&host, "write").await.unwrap_err();
    assert!(refused.to_string().contains("insufficient_scope"), "{refused}");
    assert!(refused.hint().unwrap().contains("wharf login srv"));
    // Another process logs in: what was missing is written down.
    let LoginState::LoggedIn(outline) = host.login_state("srv").unwrap() else { panic!() };
    assert_eq!(outline.wanted, ["write"]);
    let other = host_with(config(&server.url()), store).await;
    other.login("srv", &person, &[]).await.unwrap();
    assert_eq!(person.asked("scope").as_deref(), Some("read write"));
    call(&other, "write").await.unwrap();
    call(&other, "echo").await.unwrap();
    // The first process takes the new login when its own is not enough any more.
    authority.end_access();
    call(&other, "write").await.unwrap();
    call(&host, "write").await.unwrap();
}

#[tokio::test]
async fn l81_a_server_that_is_never_content_is_not_asked_for_ever() {
    // It hands out less than was asked for, and the server insists.
    let tokens = with("scope", json!("nothing"));
    let authority = Authority::with(Rules { tokens, ..Rules::default() });
    let mut guard = authority.guard();
    guard.scope_of.insert("write".into(), "impossible".into());
    let metadata = guard.metadata.clone();
    guard.metadata = Arc::new(move |prm| {
        metadata(prm);
        prm["scopes_supported"] = json!(["other"]);
    });
    let server = guarded(guard);
    let host = host(&server).await;
    let person = Person::who(|back| back);
    host.login("srv", &person, &[]).await.unwrap();
    assert_eq!(person.asked("scope").as_deref(), Some("other"));
    let mut logins = 0;
    while call(&host, "write").await.is_err() && host.login("srv", &person, &[]).await.is_ok() {
        logins += 1;
        authority.end_access();
        assert!(logins < 3, "it goes on for ever");
    }
    assert_eq!(logins, 1);
}

#[tokio::test]
async fn l81_logging_out_forgets_and_hands_the_token_back() {
    let (authority, server) = honest();
    let host = host(&server).await;
    assert_eq!(host.logout("srv").await.unwrap(), LoggedOut::WasNot);
    log_in(&host).await.unwrap();
    call(&host, "echo").await.unwrap();
    assert_eq!(host.logout("srv").await.unwrap(), LoggedOut::Revoked);
    assert!(authority.revoked()[0].starts_with("refresh-"));
    assert!(authority.secrets().is_empty());
    assert_eq!(host.login_state("srv").unwrap(), LoginState::LoggedOut);
    assert!(matches!(call(&host, "echo").await, Err(Error::Auth { .. })));
    assert_eq!(shown(&server, "tools/call").last().unwrap(), &None);
}

#[tokio::test]
async fn l81_a_credential_in_the_config_is_not_replaced() {
    let (authority, server) = honest();
    let mut config = config(&server.url());
    let wharf::config::Transport::Http(remote) = &mut config.transport else { panic!() };
    remote.headers.insert("authorization".into(), Secret::new("Bearer of-the-config"));
    let host = host_with(config, Arc::new(TokenMemory::default())).await;
    assert_eq!(host.login_state("srv").unwrap(), LoginState::NotUsed);
    let refused = log_in(&host).await.unwrap_err();
    assert!(refused.to_string().contains("`Authorization` of its own"), "{refused}");
    call(&host, "echo").await.unwrap_err();
    assert!(server.requests().iter().all(|r| r.header("authorization") == Some("Bearer of-the-config")));
    assert!(authority.requests().is_empty());
}
