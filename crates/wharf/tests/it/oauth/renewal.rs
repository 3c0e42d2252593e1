//! Tokens that end: renewed in time, once, by one of all who need them; and what is said when they cannot be.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use futures_util::future::join_all;
use serde_json::json;
use wharf::Error;
use wharf::connect::{LoginState, SealedFiles, TokenMemory};
use wharf_testkit::http::honest_modern;
use wharf_testkit::oauth::{Authority, Rules};
use wharf_testkit::{HttpPuppet, Recorded, Reply};

use super::{call, config, guarded, honest, host, host_with, log_in, shown};
use crate::support::{folder, soon, until};

#[tokio::test]
async fn l81_a_token_that_is_refused_is_renewed_once_however_many_calls_need_it() {
    let (authority, server) = honest();
    let host = host(&server).await;
    log_in(&host).await.unwrap();
    call(&host, "echo").await.unwrap();
    for round in 1..=3 {
        authority.end_access();
        let calls = join_all((0..16).map(|_| call(&host, "echo"))).await;
        calls.into_iter().for_each(|done| done.unwrap());
        // A refresh token that is used twice ends the login, so that twice would be seen twice.
        assert_eq!(authority.renewals(), round);
    }
}

#[tokio::test]
async fn l38_a_call_refused_for_its_token_is_sent_again_with_a_newer_one_and_runs_once() {
    let (authority, ran) = (Authority::start(), Arc::new(AtomicUsize::new(0)));
    let (guard, counted) = (authority.guard(), Arc::clone(&ran));
    let server = HttpPuppet::start(move |request| {
        let ran = Arc::clone(&counted);
        guard.clone().before(move |request: Recorded| {
            if request.rpc_method() == "tools/call" {
                ran.fetch_add(1, Ordering::SeqCst);
            }
            honest_modern(vec![json!({ "name": "echo", "inputSchema": { "type": "object" } })])(request)
        })(request)
    });
    let host = host(&server).await;
    log_in(&host).await.unwrap();
    call(&host, "echo").await.unwrap();
    authority.end_access();
    call(&host, "echo").await.unwrap();
    assert_eq!((shown(&server, "tools/call").len(), ran.load(Ordering::SeqCst)), (3, 2));
}

#[tokio::test]
async fn l81_a_token_that_is_about_to_end_is_renewed_before_it_is_refused() {
    let authority = Authority::with(Rules { life: Some(0), ..Rules::default() });
    let server = guarded(authority.guard());
    let host = host(&server).await;
    log_in(&host).await.unwrap();
    let before = server.requests().len();
    call(&host, "echo").await.unwrap();
    assert!(authority.renewals() >= 1);
    let later = &server.requests()[before..];
    assert!(later.iter().all(|request| request.header("authorization").is_some()));

    // The twin: a token that lives long is left alone.
    let (authority, server) = honest();
    let host = super::host(&server).await;
    log_in(&host).await.unwrap();
    call(&host, "echo").await.unwrap();
    assert_eq!(authority.renewals(), 0);
}

#[tokio::test]
async fn l81_a_login_survives_the_process_and_two_processes_renew_it_once() {
    let (authority, server) = honest();
    let place = folder();
    let store = || Arc::new(SealedFiles::new(place.path().join("logins")));
    let first = host_with(config(&server.url()), store()).await;
    log_in(&first).await.unwrap();
    first.close().await;

    let one = host_with(config(&server.url()), store()).await;
    let two = host_with(config(&server.url()), store()).await;
    call(&one, "echo").await.unwrap();
    call(&two, "echo").await.unwrap();
    assert_eq!(authority.renewals(), 0);
    for round in 1..=4 {
        authority.end_access();
        let calls = (0..8).flat_map(|_| [call(&one, "echo"), call(&two, "echo")]);
        join_all(calls).await.into_iter().for_each(|done| done.unwrap());
        assert_eq!(authority.renewals(), round, "the two renewed the same token");
    }
}

#[tokio::test]
async fn l81_a_login_that_has_ended_says_how_to_log_in_again() {
    // It can be renewed, but the authorization server does not want to.
    let (authority, server) = honest();
    let host_one = host(&server).await;
    log_in(&host_one).await.unwrap();
    call(&host_one, "echo").await.unwrap();
    authority.end_logins();
    let ended = call(&host_one, "echo").await.unwrap_err();
    assert!(matches!(&ended, Error::Auth { reason, .. } if reason.contains("invalid_grant")), "{ended:?}");
    assert!(ended.hint().unwrap().contains("wharf login srv"));
    assert!(matches!(host_one.login_state("srv").unwrap(), LoginState::Expired(_)));
    // The refresh token is not tried again and again.
    let tries = || authority.requests().iter().filter(|r| r.path == "/token").count();
    let before = tries();
    call(&host_one, "echo").await.unwrap_err();
    assert_eq!(tries(), before);
    log_in(&host_one).await.unwrap();
    call(&host_one, "echo").await.unwrap();

    // It cannot be renewed at all.
    let authority = Authority::with(Rules { renewable: false, ..Rules::default() });
    let server = guarded(authority.guard());
    let host_two = host(&server).await;
    log_in(&host_two).await.unwrap();
    call(&host_two, "echo").await.unwrap();
    authority.end_access();
    let ended = call(&host_two, "echo").await.unwrap_err();
    assert!(matches!(ended, Error::Auth { .. }), "{ended:?}");
    assert!(ended.hint().unwrap().contains("wharf login srv"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn l81_a_renewal_goes_on_though_its_caller_gave_up() {
    let (release, gate) = mpsc::channel::<()>();
    let (gate, turn) = (Mutex::new(gate), Mutex::new(0));
    // The second time tokens are handed out takes until the test says so.
    let tokens = Arc::new(move |_: &mut serde_json::Value| {
        let mut turn = turn.lock().unwrap();
        *turn += 1;
        if *turn == 2 {
            let _ = gate.lock().unwrap().recv();
        }
    });
    let authority = Authority::with(Rules { tokens, ..Rules::default() });
    let server = guarded(authority.guard());
    let host = host(&server).await;
    log_in(&host).await.unwrap();
    call(&host, "echo").await.unwrap();
    authority.end_access();
    let impatient = {
        let host = host.clone();
        tokio::spawn(async move { call(&host, "echo").await })
    };
    let asked = || authority.requests().iter().filter(|r| r.path == "/token").count();
    until("the renewal is under way", || asked() == 2).await;
    impatient.abort();
    assert!(impatient.await.unwrap_err().is_cancelled());
    release.send(()).unwrap();
    soon("the next call", call(&host, "echo")).await.unwrap();
    assert_eq!(authority.renewals(), 1);
}

#[tokio::test]
async fn l81_a_server_that_refuses_every_token_is_asked_twice_and_no_more() {
    let (authority, server) = honest();
    let host = host(&server).await;
    log_in(&host).await.unwrap();
    call(&host, "echo").await.unwrap();
    let stubborn = {
        let guard = authority.guard();
        HttpPuppet::start(move |request| {
            // It refuses calls only, whatever it is shown.
            let honest = guard
                .clone()
                .before(honest_modern(vec![json!({ "name": "echo", "inputSchema": { "type": "object" } })]));
            async move {
                if request.rpc_method() == "tools/call" { Reply::status(401) } else { honest(request).await }
            }
        })
    };
    let host = host_with(config(&stubborn.url()), Arc::new(TokenMemory::default())).await;
    log_in(&host).await.unwrap();
    assert!(matches!(call(&host, "echo").await, Err(Error::Auth { .. })));
    let calls = shown(&stubborn, "tools/call");
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0], calls[1]);
}

#[tokio::test]
async fn l81_an_authorization_server_that_is_away_does_not_end_the_login() {
    let place = folder();
    let store = Arc::new(SealedFiles::new(place.path()));
    let authority = Authority::start();
    let server = guarded(authority.guard());
    let host = host_with(config(&server.url()), store).await;
    log_in(&host).await.unwrap();
    call(&host, "echo").await.unwrap();
    authority.end_access();
    drop(authority);
    let lost = call(&host, "echo").await.unwrap_err();
    assert!(lost.is_retryable(), "{lost:?}");
    assert!(matches!(host.login_state("srv").unwrap(), LoginState::LoggedIn(_)));
}

#[tokio::test]
async fn l16_tokens_are_erased_from_what_a_server_says() {
    let (authority, _) = honest();
    let guard = authority.guard();
    let telling = HttpPuppet::start(move |request| {
        let honest = guard
            .clone()
            .before(honest_modern(vec![json!({ "name": "echo", "inputSchema": { "type": "object" } })]));
        async move {
            let told = request.header("authorization").unwrap_or_default().to_owned();
            match request.rpc_method().as_str() {
                "tools/call" => Reply::Raw(500, "text/plain".into(), told.into_bytes()),
                _ => honest(request).await,
            }
        }
    });
    let mut config = config(&telling.url());
    config.debug = true;
    let bus = wharf::event::Bus::default();
    let mut events = bus.subscribe();
    let host = wharf::Host::builder().server(config).events(bus).start().await.unwrap();
    let outline = log_in(&host).await.unwrap();
    let told = call(&host, "echo").await.unwrap_err();
    // The control: the server did say it.
    assert!(told.to_string().contains("500") && told.to_string().contains("***"), "{told}");
    host.close().await;
    let mut all = format!("{told} {told:?} {outline:?} {host:?}");
    while let Ok(event) = events.try_recv() {
        all.push_str(&format!("{event:?}"));
    }
    let secrets = authority.secrets();
    assert!(secrets.len() >= 2);
    for secret in secrets {
        assert!(!all.contains(&secret), "{secret} is in {all}");
    }
}
