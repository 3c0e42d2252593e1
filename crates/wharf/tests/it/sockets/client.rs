//! Wharf as the client of a server behind a socket: eras, order, limits, losses, and what is left after the end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use wharf::Host;
use wharf::config::ServerConfig;
use wharf::event::{Event, State};
use wharf::names::ServerName;
use wharf::outcome::Outcome;
use wharf::wire::{Json, Limits};
use wharf_testkit::{Crash, Era, Puppet, Step, UnixPuppet, WsPuppet};

use super::{BOTH, Through};
use crate::support::{
    at, count, echo, effects, error, folder, is_alive, next_state, once, pid_in, quick, received, soon,
    until, within,
};

#[tokio::test]
async fn l30_each_era_is_spoken_over_each_socket() {
    for through in BOTH {
        for (era, revision) in [
            (Era::Legacy, "2025-11-25"),
            (Era::Modern, "2026-07-28"),
            (Era::Both, "2026-07-28"),
            (Era::DiesOnDiscover, "2025-11-25"),
        ] {
            let files = folder();
            let log = at(&files, "log");
            let server = through.listen(&Puppet::of(era).log(&log)).await;
            let host = server.host().await;
            let outcome = soon("a call", host.call("pup_echo", json!({"a": 1.50}))).await;
            assert!(outcome.success, "{through:?} {era:?}: {outcome:?}");
            let connection = host.berth("pup").unwrap().connection().await.unwrap();
            assert_eq!(connection.info().revision.as_str(), revision, "{through:?} {era:?}");
            assert_eq!(connection.transport(), server.config.transport_name());
            let handshakes = usize::from(revision == "2025-11-25");
            assert_eq!(count(&received(&log), "initialize"), handshakes, "{through:?} {era:?}");
            host.close().await;
        }
    }
}

#[tokio::test]
async fn l30_a_server_that_ignores_the_probe_is_shaken_hands_with() {
    for through in BOTH {
        let script = Puppet::of(Era::Legacy).on("server/discover", [Step::Hang]);
        let mut server = through.listen(&script).await;
        server.config.start_timeout = Duration::from_secs(3);
        let host = server.host().await;
        assert!(echo(&host).await.success, "{through:?}");
        host.close().await;
    }
}

#[tokio::test]
async fn l30_a_server_may_ask_and_is_answered() {
    for through in BOTH {
        let ask = Step::Ask { method: "ping".into(), params: json!({}) };
        let script = Puppet::of(Era::Legacy).on("tool:echo", [ask, Step::ReplyWithAnswer]);
        let server = through.listen(&script).await;
        let host = server.host().await;
        assert!(echo(&host).await.success, "{through:?}");
        host.close().await;
    }
}

#[tokio::test]
async fn l30_requests_leave_in_order_and_a_cancellation_after_its_request() {
    for through in BOTH {
        let files = folder();
        let log = at(&files, "log");
        let turns = Step::Turns(vec![vec![Step::Honest], vec![Step::Hang]]);
        let script = Puppet::new().log(&log).on("tool:echo", [turns]);
        let server = through.listen(&script).await;
        let host = server.host().await;
        assert!(
            echo(&host).await.success,
            "its schema is read now, so that calls are sent at their first poll"
        );
        let patience = Duration::from_millis(150);
        let calls = (0..40).map(|n| {
            host.call_with("pup_echo", Json::from(json!({ "n": n })), within(patience, Some(patience)))
        });
        for outcome in soon("all calls", futures_util::future::join_all(calls)).await {
            assert_eq!(error(&outcome).kind(), "timeout", "{through:?}");
        }
        until("all cancellations arrived", || count(&received(&log), "notifications/cancelled") == 40).await;
        let messages = received(&log);
        let calls: Vec<&Value> = messages.iter().filter(|m| m["method"] == "tools/call").skip(1).collect();
        let order: Vec<u64> = calls.iter().map(|m| m["params"]["arguments"]["n"].as_u64().unwrap()).collect();
        assert_eq!(order, (0..40).collect::<Vec<_>>(), "{through:?}");
        for call in calls {
            let at = |so: &dyn Fn(&Value) -> bool| messages.iter().position(so).unwrap();
            let asked = at(&|m| m["method"] == "tools/call" && m["id"] == call["id"]);
            let cancelled =
                at(&|m| m["method"] == "notifications/cancelled" && m["params"]["requestId"] == call["id"]);
            assert!(asked < cancelled, "{through:?}");
        }
        host.close().await;
    }
}

#[tokio::test]
async fn l30_a_message_of_the_limit_is_taken_and_one_more_byte_is_not() {
    let limit = 100_000;
    for through in BOTH {
        for (bytes, fits) in [(limit - 1, true), (limit, true), (limit + 1, false), (40 * limit, false)] {
            let script = Puppet::of(Era::Legacy)
                .on("tool:echo", once(Step::LongLine { bytes, id: true, newline: true }));
            let server = through.listen(&script).await;
            let limits = Limits { line: limit, ..Limits::default() };
            let host = quick().limits(limits).server(server.config.clone()).start().await.unwrap();
            let outcome = echo(&host).await;
            assert_eq!(outcome.success, fits, "{through:?} {bytes} bytes: {:?}", outcome.error);
            if !fits {
                let said = outcome.reason.clone().unwrap();
                assert!(said.contains(&bytes.to_string()) && said.contains(&limit.to_string()), "{said}");
                assert_eq!(error(&outcome).kind(), "protocol", "{through:?}");
            }
            if through == Through::Unix {
                assert!(echo(&host).await.success, "the line after a long one is intact");
            }
            host.close().await;
        }
    }
}

#[tokio::test]
async fn l30_a_request_larger_than_any_buffer_arrives_whole() {
    for through in BOTH {
        let server = through.listen(&Puppet::new()).await;
        let host = server.host().await;
        let text = "x".repeat(1024 * 1024);
        let outcome = soon("a large call", host.call("pup_echo", json!({ "text": text }))).await;
        assert!(outcome.success, "{through:?}: {:?}", outcome.error);
        assert!(outcome.to_text().contains(&text), "{through:?}");
        host.close().await;
    }
}

#[tokio::test]
async fn l30_what_becomes_of_a_call_whose_server_dies_is_unknown_and_it_is_not_made_again() {
    for through in BOTH {
        let files = folder();
        let (done, starts) = (at(&files, "done"), at(&files, "starts"));
        let crash = Crash { file: starts.clone(), times: 0, code: 0 };
        let dying = vec![Step::Count(done.clone()), Step::Kill];
        let turns = Step::TurnsIn { file: at(&files, "turns"), turns: vec![dying, vec![Step::Honest]] };
        let script = Puppet::new().on("tool:echo", [turns]).with(|s| s.crash = Some(crash));
        let server = through.listen(&script).await;
        let host = server.host().await;
        assert_eq!(error(&echo(&host).await).kind(), "unknown_outcome", "{through:?}");
        assert_eq!(effects(&done), 1, "{through:?}: it was run once");
        assert!(echo(&host).await.success, "{through:?}: the next call makes a new connection");
        host.close().await;
    }
}

#[tokio::test]
async fn l30_a_lost_connection_is_made_again_by_itself() {
    for through in BOTH {
        let files = folder();
        let pid = at(&files, "pid");
        let server = through.listen(&Puppet::new().pid(&pid)).await;
        let host = server.host().await;
        let mut events = host.events().subscribe();
        assert!(echo(&host).await.success);
        let first = pid_in(&pid).await;
        std::fs::remove_file(&pid).unwrap();
        kill(first);
        let mut states = Vec::new();
        while states.iter().filter(|state| **state == State::Connected).count() < 2 {
            states.push(next_state(&mut events).await.0);
        }
        assert!(states.contains(&State::Reconnecting), "{through:?}: {states:?}");
        assert_ne!(pid_in(&pid).await, first);
        assert!(echo(&host).await.success, "{through:?}");
        host.close().await;
    }
}

#[tokio::test]
async fn l30_nothing_is_left_after_the_end() {
    for through in BOTH {
        let files = folder();
        let pid = at(&files, "pid");
        let server = through.listen(&Puppet::new().pid(&pid)).await;
        let host = server.host().await;
        assert!(echo(&host).await.success);
        let process = pid_in(&pid).await;
        host.close().await;
        until("the server saw the end", || !is_alive(process)).await;
        assert!(!host.berth("pup").unwrap().connected());
        drop(host);

        let host = server.host().await;
        std::fs::remove_file(&pid).unwrap();
        assert!(echo(&host).await.success);
        let process = pid_in(&pid).await;
        drop(host);
        until("the server saw the end of a host that was dropped", || !is_alive(process)).await;
    }
}

#[tokio::test]
async fn l30_headers_go_with_the_upgrade() {
    let mut server = Through::Ws.listen(&Puppet::new()).await;
    let wharf::config::Transport::WebSocket(remote) = &mut server.config.transport else { panic!() };
    remote.headers.insert("Authorization".into(), wharf::secret::Secret::new("Bearer abc"));
    let host = server.host().await;
    assert!(echo(&host).await.success);
    host.close().await;
    let heads = server.ws.as_ref().unwrap().heads();
    let value = |name: &str| {
        heads[0].iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()).unwrap_or_default()
    };
    assert_eq!(value("authorization"), "Bearer abc");
    assert_eq!(value("sec-websocket-protocol"), "mcp");
    assert_eq!(value("sec-websocket-extensions"), "", "no compression is offered");
    assert_eq!(value("host"), server.ws.as_ref().unwrap().url()[5..].trim_end_matches("/mcp"));
}

#[tokio::test]
async fn l30_a_socket_that_is_not_there_yet_is_an_error_that_may_be_tried_again() {
    let server = Through::Unix.listen(&Puppet::new()).await;
    let mut config = server.config.clone();
    config.transport =
        wharf::config::Transport::Unix(wharf::config::UnixSocket { path: at(&server.files, "none") });
    let host = quick().server(config).start().await.unwrap();
    let failure = soon("connecting", host.berth("pup").unwrap().connect()).await.unwrap_err();
    assert!(matches!(&failure, wharf::Error::Connection { retryable: true, .. }), "{failure:?}");
    assert!(failure.to_string().contains("there is no socket at"), "{failure}");
    host.close().await;
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Starts a call with so many bytes.
fn call(host: &Host, bytes: usize) -> JoinHandle<Outcome> {
    let (host, arguments) = (host.clone(), json!({ "text": "x".repeat(bytes) }));
    tokio::spawn(async move { host.call("pup_echo", arguments).await })
}

/// Waits until so many calls were handed to their connections.
async fn handed_over(events: &mut broadcast::Receiver<Event>, calls: usize) {
    let mut seen = 0;
    while seen < calls {
        let event = soon("a call is sent", events.recv()).await;
        if let Ok(Event::Traffic { sent: true, message, .. }) = event {
            seen += usize::from(message.raw().contains("tools/call"));
        }
    }
}

#[tokio::test]
async fn l30_a_call_that_never_left_for_a_unix_socket_is_made_again_and_one_that_did_is_not() {
    let files = folder();
    let pid = at(&files, "pid");
    // Deaf after the handshake and the list.
    let deaf = Puppet::of(Era::Legacy).pid(&pid).with(|s| s.deaf_after = Some(4));
    let mut server = Through::Unix.listen(&deaf).await;
    server.config.debug = true;
    let host = server.host().await;
    soon("the list", host.tools()).await;
    let mut events = host.events().subscribe();
    let large = call(&host, 4 * 1024 * 1024);
    handed_over(&mut events, 1).await;
    let small = call(&host, 1);
    handed_over(&mut events, 1).await;
    // The next connection finds one that hears.
    let (path, log) = (at(&server.files, "s"), at(&files, "log"));
    std::fs::remove_file(&path).unwrap();
    server.unix = Some(UnixPuppet::listen(&path, &Puppet::new().log(&log)));
    kill(pid_in(&pid).await);
    let (large, small) = (soon("a call", large).await.unwrap(), soon("a call", small).await.unwrap());
    assert_eq!(error(&large).kind(), "unknown_outcome", "a part of it left");
    assert!(small.success, "{small:?}");
    assert_eq!(count(&received(&log), "tools/call"), 1, "the small one, and no other");
    host.close().await;
}

#[tokio::test]
async fn l30_a_call_that_never_left_for_a_websocket_is_made_again_and_one_that_did_is_not() {
    let (read, mut was_read) = tokio::sync::mpsc::channel::<()>(1);
    let (hang_up, hung_up) = tokio::sync::watch::channel(false);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::clone(&heard);
    let server = WsPuppet::acting(Arc::new(move |mut socket| {
        let (read, mut hung_up, calls) = (read.clone(), hung_up.clone(), Arc::clone(&calls));
        let first = !*hung_up.borrow();
        Box::pin(async move {
            while let Some(Ok(Message::Text(text))) = socket.next().await {
                let asked: Value = serde_json::from_str(&text).unwrap();
                let result = match asked["method"].as_str().unwrap() {
                    "server/discover" => {
                        json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
                    }
                    "tools/list" => json!({"resultType": "complete", "tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
                    _ => {
                        calls.lock().unwrap().push(text.len());
                        if first {
                            break;
                        }
                        json!({"resultType": "complete", "content": []})
                    }
                };
                let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
                socket.send(Message::text(answer.to_string())).await.unwrap();
            }
            // From the first call on the first connection is read no more.
            let _ = read.send(()).await;
            let _ = hung_up.wait_for(|so| *so).await;
        })
    }))
    .await;
    let mut config = ServerConfig::websocket(ServerName::parse("pup").unwrap(), &server.url()).unwrap();
    config.debug = true;
    let host = quick().server(config).start().await.unwrap();
    soon("the list", host.tools()).await;
    let mut events = host.events().subscribe();
    let first = call(&host, 1);
    soon("the first is read", was_read.recv()).await.unwrap();
    // More than any socket takes: what comes after it cannot have left.
    let second = call(&host, 16 * 1024 * 1024);
    handed_over(&mut events, 2).await;
    let third = call(&host, 1);
    handed_over(&mut events, 1).await;
    hang_up.send(true).unwrap();
    let ended = [first, second, third];
    let mut outcomes = Vec::new();
    for call in ended {
        outcomes.push(soon("a call", call).await.unwrap());
    }
    assert_eq!(error(&outcomes[0]).kind(), "unknown_outcome", "it was read");
    assert!(outcomes[2].success, "{:?}", outcomes[2].error);
    // The second may have left in part or not at all; then it came once more. None came twice.
    let large = heard.lock().unwrap().iter().filter(|bytes| **bytes > 1_000_000).count();
    assert_eq!(large, usize::from(outcomes[1].success), "{:?}", outcomes[1].error);
    assert_eq!(heard.lock().unwrap().len(), 2 + large);
    host.close().await;
}
