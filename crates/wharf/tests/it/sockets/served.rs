//! Wharf as the server of callers behind a socket: raw ones, and itself.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use wharf::Host;
use wharf::config::ServerConfig;
use wharf::gateway::{Gateway, GatewayBuilder, UnixDoor};
use wharf::names::ServerName;
use wharf_testkit::{Era, Puppet, Step};

use super::{BOTH, Through};
use crate::gateway::modern_body;
use crate::support::{at, count, error, folder, host, puppet, quick, received, soon, until};

/// A gateway that listens.
pub(super) struct Served {
    through: Through,
    pub(super) url: String,
    path: PathBuf,
    pub(super) host: Host,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    _files: tempfile::TempDir,
}

/// A caller that says what it is told to say.
pub(super) enum Raw {
    Unix(tokio::io::Lines<BufReader<tokio::net::unix::OwnedReadHalf>>, OwnedWriteHalf),
    Ws(Box<WebSocketStream<TcpStream>>),
}

impl Served {
    pub(super) async fn start(
        through: Through,
        host: Host,
        with: impl FnOnce(GatewayBuilder) -> GatewayBuilder,
    ) -> Self {
        let gateway = with(Gateway::builder(host.clone())).build().unwrap();
        let files = folder();
        let path = files.path().join("own").join("s");
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move { drop(stopped.await) };
        let (url, serving) = match through {
            Through::Unix => {
                let door = UnixDoor::bind(&path).await.unwrap();
                (String::new(), tokio::spawn(async move { gateway.serve_unix(door, stopped).await }))
            }
            Through::Ws => {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let url = format!("ws://{}/mcp", listener.local_addr().unwrap());
                let serving =
                    tokio::spawn(async move { gateway.serve_http(listener, stopped).await.unwrap() });
                (url, serving)
            }
        };
        Self { through, url, path, host, stop, serving, _files: files }
    }

    /// A gateway in front of one puppet, named `pup`.
    async fn puppet(through: Through, script: &Puppet) -> Self {
        Self::start(through, host([puppet("pup", script)]).await, |builder| builder).await
    }

    fn config(&self) -> ServerConfig {
        let name = ServerName::parse("all").unwrap();
        match self.through {
            Through::Unix => ServerConfig::unix(name, &self.path),
            Through::Ws => ServerConfig::websocket(name, &self.url).unwrap(),
        }
    }

    pub(super) async fn raw(&self) -> Raw {
        match self.through {
            Through::Unix => {
                let (input, output) = UnixStream::connect(&self.path).await.unwrap().into_split();
                Raw::Unix(BufReader::new(input).lines(), output)
            }
            Through::Ws => {
                let stream = TcpStream::connect(&self.url[5..self.url.len() - 4]).await.unwrap();
                let request = self.url.as_str().into_client_request().unwrap();
                let (socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
                Raw::Ws(Box::new(socket))
            }
        }
    }

    /// Asks it to stop, and waits until it has.
    async fn stop(self) -> Host {
        self.stop.send(()).unwrap();
        soon("the stop", self.serving).await.unwrap();
        self.host
    }
}

impl Raw {
    pub(super) async fn say(&mut self, message: &str) {
        match self {
            Self::Unix(_, output) => output.write_all(format!("{message}\n").as_bytes()).await.unwrap(),
            Self::Ws(socket) => socket.send(Message::text(message)).await.unwrap(),
        }
    }

    /// The next message; nothing if there is none any more.
    pub(super) async fn hear(&mut self) -> Option<Value> {
        let text = match self {
            Self::Unix(lines, _) => soon("a line", lines.next_line()).await.ok()??,
            Self::Ws(socket) => loop {
                match soon("a frame", socket.next()).await?.ok()? {
                    Message::Text(text) => break text.to_string(),
                    Message::Close(_) => return None,
                    _ => {}
                }
            },
        };
        Some(serde_json::from_str(&text).unwrap())
    }

    async fn ask(&mut self, message: &Value) -> Value {
        self.say(&message.to_string()).await;
        self.hear().await.unwrap()
    }
}

fn call() -> Value {
    modern_body("tools/call", json!({"name": "pup_echo", "arguments": {"a": 1}}))
}

#[tokio::test]
async fn l30_callers_of_either_era_are_served_over_each_socket() {
    for through in BOTH {
        let served = Served::puppet(through, &Puppet::new()).await;
        let mut modern = served.raw().await;
        let found = modern.ask(&modern_body("server/discover", json!({}))).await;
        assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]), "{through:?}");
        let answer = modern.ask(&call()).await;
        assert_eq!(answer["id"], 7, "{answer}");
        assert_eq!(answer["result"]["content"][0]["text"], r#"{"a":1}"#, "{answer}");

        let mut legacy = served.raw().await;
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let hello = json!({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": params});
        assert_eq!(legacy.ask(&hello).await["result"]["protocolVersion"], "2025-06-18", "{through:?}");
        legacy.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        assert_eq!(legacy.ask(&list).await["result"]["tools"][0]["name"], "pup_echo", "{through:?}");
        let params = json!({"name": "pup_echo", "arguments": {"b": 2}});
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
        assert_eq!(legacy.ask(&call).await["result"]["content"][0]["text"], r#"{"b":2}"#);
        served.stop().await.close().await;
    }
}

#[tokio::test]
async fn l30_wharf_is_a_server_of_wharf_over_each_socket() {
    for through in BOTH {
        let served = Served::puppet(through, &Puppet::of(Era::Legacy)).await;
        let outer = quick().server(served.config()).start().await.unwrap();
        let outcome = soon("a call", outer.call("all_pup_echo", json!({"a": "ü"}))).await;
        assert!(outcome.success && outcome.to_text() == r#"{"a":"ü"}"#, "{through:?}: {outcome:?}");
        let connection = outer.berth("all").unwrap().connection().await.unwrap();
        assert_eq!(connection.info().revision.as_str(), "2026-07-28", "{through:?}");
        let large = "x".repeat(200_000);
        let calls = (0..8).map(|n| outer.call("all_pup_echo", json!({"n": n, "text": large})));
        for (n, outcome) in soon("calls", futures_util::future::join_all(calls)).await.iter().enumerate() {
            assert!(
                outcome.success && outcome.to_text().starts_with(&format!("{{\"n\":{n},")),
                "{through:?}"
            );
        }
        outer.close().await;
        served.stop().await.close().await;
    }
}

#[tokio::test]
async fn l30_a_call_whose_caller_hangs_up_is_cancelled() {
    for through in BOTH {
        let files = folder();
        let log = at(&files, "log");
        let script = Puppet::new().log(&log).on("tool:echo", [Step::Hang]);
        let served = Served::puppet(through, &script).await;
        let outer = quick().server(served.config()).start().await.unwrap();
        outer.tools().await;
        let call = outer.call("all_pup_echo", json!({}));
        let leaving = async {
            until("the call is under way", || count(&received(&log), "tools/call") == 1).await;
            let inner = served.host.clone();
            // With its caller gone, the server is told that nobody waits.
            outer.berth("all").unwrap().disconnect().await;
            until("it is cancelled", || count(&received(&log), "notifications/cancelled") == 1).await;
            inner
        };
        let (outcome, inner) = soon("both", async { tokio::join!(call, leaving) }).await;
        assert_eq!(error(&outcome).kind(), "unknown_outcome", "{through:?}: {outcome:?}");
        outer.close().await;
        served.stop().await;
        inner.close().await;
    }
}

#[tokio::test]
async fn l30_at_the_stop_calls_under_way_end_and_idle_callers_are_let_go() {
    for through in BOTH {
        let files = folder();
        let (go, log) = (at(&files, "go"), at(&files, "log"));
        let script = Puppet::new().log(&log).on("tool:echo", [Step::WaitFor(go.clone()), Step::Honest]);
        let served = Served::puppet(through, &script).await;
        let (mut busy, mut idle) = (served.raw().await, served.raw().await);
        idle.ask(&modern_body("server/discover", json!({}))).await;
        busy.say(&call().to_string()).await;
        until("the call is under way", || count(&received(&log), "tools/call") == 1).await;
        let path = served.path.clone();
        let stopping = tokio::spawn(served.stop());
        assert_eq!(idle.hear().await, None, "{through:?}: who waits for nothing is let go");
        if through == Through::Unix {
            assert!(!path.exists(), "the socket is gone");
        }
        let mut late = call();
        late["id"] = json!(8);
        let told = busy.ask(&late).await;
        let data = &told["error"]["data"];
        assert!(told["id"] == 8 && data["kind"] == "unavailable" && data["retryable"] == true, "{told}");
        std::fs::write(&go, "").unwrap();
        let answer = busy.hear().await.unwrap_or_else(|| panic!("{through:?}: the call was cut off"));
        assert_eq!(answer["id"], 7);
        assert_eq!(busy.hear().await, None, "{through:?}");
        assert_eq!(count(&received(&log), "tools/call"), 1, "{through:?}: the late one was not begun");
        soon("the stop", stopping).await.unwrap().close().await;
    }
}

#[tokio::test]
async fn p6_what_has_arrived_over_each_socket_when_the_stop_begins_and_was_not_read_is_told_so() {
    for through in BOTH {
        let files = folder();
        let log = at(&files, "log");
        let served = Served::puppet(through, &Puppet::new().log(&log)).await;
        let mut caller = served.raw().await;
        caller.ask(&modern_body("server/discover", json!({}))).await;
        // All in one go, so that nobody reads before the stop has begun.
        let Served { host, stop, serving, .. } = served;
        stop.send(()).unwrap();
        caller.say(&call().to_string()).now_or_never().expect("there is room");
        let told = caller.hear().await.unwrap_or_else(|| panic!("{through:?}: nothing was said"));
        let data = &told["error"]["data"];
        assert!(told["id"] == 7 && data["kind"] == "unavailable" && data["mayHaveRun"] == false, "{told}");
        assert_eq!(caller.hear().await, None, "{through:?}");
        soon("the stop", serving).await.unwrap();
        assert_eq!(count(&received(&log), "tools/call"), 0, "{through:?}");
        host.close().await;
    }
}

#[tokio::test]
async fn p6_calls_that_outlast_the_stop_are_cancelled_and_told_so_over_each_socket() {
    for through in BOTH {
        let files = folder();
        let log = at(&files, "log");
        let host = host([puppet("pup", &Puppet::new().log(&log).on("tool:echo", [Step::Hang]))]).await;
        let drain = Duration::from_millis(100);
        let served = Served::start(through, host, |builder| builder.drain(drain)).await;
        let (mut modern, mut legacy) = (served.raw().await, served.raw().await);
        modern.say(&call().to_string()).await;
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}});
        legacy.ask(&hello).await;
        let params = json!({"name": "pup_echo", "arguments": {}});
        legacy
            .say(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string())
            .await;
        until("the calls are under way", || count(&received(&log), "tools/call") == 2).await;
        let host = served.stop().await;
        for caller in [&mut modern, &mut legacy] {
            let told = caller.hear().await.unwrap_or_else(|| panic!("{through:?}: nothing was said"));
            assert_eq!(
                (&told["id"], &told["error"]["data"]["kind"]),
                (&json!(7), &json!("cancelled")),
                "{told}"
            );
            assert_eq!(caller.hear().await, None, "{through:?}");
        }
        until("they are cancelled", || count(&received(&log), "notifications/cancelled") == 2).await;
        host.close().await;
    }
}

#[tokio::test]
async fn l30_a_caller_that_closes_its_half_of_a_socket_is_answered() {
    let served = Served::puppet(Through::Unix, &Puppet::new()).await;
    for request in [modern_body("server/discover", json!({})), modern_body("tools/list", json!({})), call()] {
        let mut caller = served.raw().await;
        caller.say(&request.to_string()).await;
        let Raw::Unix(_, output) = &mut caller else { panic!("a Unix socket") };
        output.shutdown().await.unwrap();
        let answer = caller.hear().await.unwrap_or_else(|| panic!("{request}: nothing was said"));
        assert!(answer["id"] == 7 && answer["result"].is_object(), "{answer}");
        assert_eq!(caller.hear().await, None);
    }
    served.stop().await.close().await;
}

#[tokio::test]
async fn l30_what_is_no_message_is_answered_as_such_and_the_next_one_is_heard() {
    for through in BOTH {
        let served = Served::puppet(through, &Puppet::new()).await;
        let mut caller = served.raw().await;
        caller.say("{nonsense").await;
        assert_eq!(caller.hear().await.unwrap()["error"]["code"], -32700, "{through:?}");
        assert_eq!(caller.ask(&call()).await["id"], 7, "{through:?}");
        served.stop().await.close().await;
    }
}
