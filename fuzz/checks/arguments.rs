//! Any bytes as the arguments of a call: what reaches the server is what was checked, byte for byte, and where a call is
//! refused nothing reaches it. The call goes all the way: a host, a socket, a server of its own.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{LazyLock, Mutex};

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use wharf::names::ServerName;
use wharf::wire::{Message, parse_message};
use wharf::{Host, ServerConfig};

/// A host with one server, which tells which arguments reached it.
struct Way {
    runtime: Runtime,
    host: Host,
    arrived: Receiver<String>,
}

/// One for all: it is made once, and calls go over it one at a time.
static WAY: LazyLock<Mutex<Way>> = LazyLock::new(|| Mutex::new(Way::new()));

impl Way {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // A folder that nobody else can write to, or it would not be connected to.
        let folder = std::env::temp_dir().join(format!("wharf-arguments-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("s");
        let _ = std::fs::remove_file(&path);
        let (tell, arrived) = channel();
        let host = runtime.block_on(async {
            let listener = UnixListener::bind(&path).unwrap();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, tell.clone()));
                }
            });
            let server = ServerConfig::unix(ServerName::parse("s").unwrap(), path);
            let host = Host::builder().server(server).start().await.unwrap();
            assert!(host.call("s_t", serde_json::json!({})).await.success);
            host
        });
        std::fs::remove_dir_all(&folder).unwrap();
        arrived.recv().unwrap();
        Self { runtime, host, arrived }
    }
}

/// The least that a server can be. It takes requests apart by another's parser.
async fn serve(stream: UnixStream, tell: std::sync::mpsc::Sender<String>) {
    #[derive(serde::Deserialize)]
    struct Request<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        method: String,
        #[serde(borrow)]
        params: Option<Params<'a>>,
    }
    #[derive(serde::Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
    }
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while matches!(stream.read_line(&mut line).await, Ok(1..)) {
        let request: Request<'_> = serde_json::from_str(&line).expect("a request can be read");
        let result = match request.method.as_str() {
            "initialize" => {
                r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#
            }
            "tools/list" => r#""result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#,
            "tools/call" => {
                let arguments = request.params.and_then(|params| params.arguments);
                tell.send(arguments.map_or("", RawValue::get).to_owned()).unwrap();
                r#""result":{"content":[]}"#
            }
            _ => r#""error":{"code":-32601,"message":"no"}"#,
        };
        if let Some(id) = request.id {
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},{result}}}\n", id.get());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        line.clear();
    }
}

pub(crate) fn check(data: &[u8]) {
    let frame =
        [br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":"#, data, b"}}"];
    let Ok(Message::Request { params: Some(params), .. }) = parse_message(Bytes::from(frame.concat()), 127)
    else {
        return;
    };
    let [Some(arguments)] = params.pick(["arguments"]) else { return };
    let way = WAY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let outcome = way.runtime.block_on(way.host.call("s_t", arguments.clone()));
    let arrived: Vec<String> = way.arrived.try_iter().collect();
    if !outcome.success {
        assert_eq!(arrived, [""; 0], "it was refused, and sent: {outcome:?}");
        return;
    }
    // A line break between two tokens would end the message; a blank says the same.
    let text = arguments.as_str().trim().replace(['\n', '\r'], " ");
    assert_eq!(arrived, [text.as_str()], "other arguments arrived than were checked");
    // To whoever keeps one of two twins, and to whoever keeps the other, it is the same.
    let read: Value = serde_json::from_str(&text).expect("what is sent can be read");
    assert!(read.is_object(), "{read}");
}
