//! Callers: one that waits for each answer, over a pipe or HTTP, and many at a time over HTTP.
//!
//! In: what is asked. Out: how long it took. One thread, system calls and nothing else: what they cost is in the figures
//! of the direct calls too.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use rustix::event::epoll;

use crate::bytes::{Http, find, number_after, text_after};

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

/// Whoever is asked, one question at a time.
pub(crate) trait Peer {
    /// Asks, and waits for the answer.
    fn ask(&mut self, ask: &Ask);
}

/// Over HTTP.
pub(crate) struct Web {
    stream: TcpStream,
    http: Http,
    speech: Speech,
    out: Vec<u8>,
}

/// Over a pipe.
pub(crate) struct Pipe {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    held: Vec<u8>,
    speech: Speech,
}

/// How messages are written.
#[derive(Clone)]
struct Speech {
    era: Era,
    port: u16,
    session: String,
    id: u64,
    message: Vec<u8>,
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
/// A hundred bytes, the first of which are the number of the call.
const FILLING: &str =
    "abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz abcdef";

// === impl Speech ===

impl Speech {
    fn new(era: Era, port: u16) -> Self {
        Self { era, port, session: String::new(), id: 0, message: Vec::new() }
    }

    /// The next message.
    fn next(&mut self, ask: &Ask) -> &[u8] {
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
    fn post(&mut self, ask: &Ask, out: &mut Vec<u8>) {
        self.next(ask);
        self.head(Some(ask), out);
    }

    fn head(&self, ask: Option<&Ask>, out: &mut Vec<u8>) {
        out.clear();
        write!(
            out,
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n",
            self.port
        )
        .unwrap();
        match (self.era, ask) {
            (Era::Legacy, None) => {}
            (Era::Legacy, Some(_)) => {
                write!(out, "mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {}\r\n", self.session)
                    .unwrap();
            }
            (Era::Modern, _) => {
                let method = ask.map_or("server/discover", Ask::method);
                write!(out, "mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n").unwrap();
                if let Some(tool) = ask.and_then(Ask::tool) {
                    write!(out, "mcp-name: {tool}\r\n").unwrap();
                }
            }
        }
        write!(out, "content-length: {}\r\n\r\n", self.message.len()).unwrap();
        out.extend_from_slice(&self.message);
    }

    /// The first message of the legacy era.
    fn greeting(&mut self) -> &[u8] {
        self.message = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}"#.to_vec();
        &self.message
    }

    fn check(&self, ask: &Ask, answer: &[u8]) {
        ask.check(self.id, answer);
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

    fn tool(&self) -> Option<&str> {
        match self {
            Self::Echo(tool) | Self::Blob(tool, _) => Some(tool),
            Self::List(_) => None,
        }
    }

    /// An answer to another question, or half an answer, would make every figure worthless.
    fn check(&self, id: u64, answer: &[u8]) {
        let shown = || String::from_utf8_lossy(&answer[..answer.len().min(600)]).into_owned();
        let beginning = &answer[..answer.len().min(64)];
        assert_eq!(number_after(beginning, b"\"id\":"), Some(id), "{}", shown());
        match self {
            Self::Echo(_) => {
                let said = text_after(answer, b"\"text\":\"").unwrap_or_default();
                let number = number_after(said, b"");
                assert!(number == Some(id) && said.len() == 100, "{}", shown());
            }
            Self::Blob(_, bytes) => assert!(answer.len() > *bytes, "{}", shown()),
            Self::List(bytes) => {
                assert!(find(answer, b"\"tools\":[").is_some() && answer.len() >= *bytes, "{}", shown());
            }
        }
    }
}

// === impl Web ===

impl Web {
    /// Connects, and shakes hands where the era wants it.
    pub(crate) fn connect(port: u16, era: Era) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut web = Self { stream, http: Http::default(), speech: Speech::new(era, port), out: Vec::new() };
        if era == Era::Legacy {
            web.speech.greeting();
            web.speech.head(None, &mut web.out);
            web.stream.write_all(&web.out).unwrap();
            let (head, _) = web.receive();
            let head = String::from_utf8_lossy(head).to_lowercase();
            let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
            web.speech.session = session.unwrap_or_default().to_owned();
            web.speech.message = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec();
            web.speech.head(Some(&Ask::List(0)), &mut web.out);
            web.stream.write_all(&web.out).unwrap();
            web.receive();
        }
        web
    }

    fn receive(&mut self) -> (&[u8], &[u8]) {
        // Two steps, because what is found is borrowed from what is searched.
        while !self.http.is_ready() {
            assert!(self.http.read(&mut self.stream), "the connection was closed");
        }
        self.http.next().unwrap()
    }
}

impl Peer for Web {
    fn ask(&mut self, ask: &Ask) {
        self.speech.post(ask, &mut self.out);
        self.stream.write_all(&self.out).unwrap();
        let id = self.speech.id;
        let (head, body) = self.receive();
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(head));
        ask.check(id, body);
    }
}

// === impl Pipe ===

impl Pipe {
    /// Speaks with a program that was started, and shakes hands where the era wants it.
    pub(crate) fn with(mut child: Child, era: Era) -> Self {
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut pipe = Self { child, input, output, held: vec![0; 1 << 21], speech: Speech::new(era, 0) };
        if era == Era::Legacy {
            let mut line = pipe.speech.greeting().to_vec();
            line.push(b'\n');
            pipe.input.as_mut().unwrap().write_all(&line).unwrap();
            pipe.receive();
            let line = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
            pipe.input.as_mut().unwrap().write_all(line).unwrap();
        }
        pipe
    }

    fn receive(&mut self) -> usize {
        let mut filled = 0;
        loop {
            let read = self.output.read(&mut self.held[filled..]).unwrap();
            assert!(read > 0, "the pipe was closed");
            filled += read;
            // One question at a time: nothing comes behind the answer.
            if self.held[filled - 1] == b'\n' {
                return filled;
            }
        }
    }
}

impl Peer for Pipe {
    fn ask(&mut self, ask: &Ask) {
        self.speech.next(ask);
        self.speech.message.push(b'\n');
        self.input.as_mut().unwrap().write_all(&self.speech.message).unwrap();
        let filled = self.receive();
        self.speech.check(ask, &self.held[..filled]);
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // Its input ends, and so does the program.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// The median time of one question.
pub(crate) fn one_at_a_time(peer: &mut dyn Peer, ask: &Ask, calls: usize) -> Duration {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let started = Instant::now();
        peer.ask(ask);
        times.push(started.elapsed());
    }
    times.sort();
    times[calls / 2]
}

/// How many questions a second are answered, with so many callers that each ask the next as soon as they can.
pub(crate) fn in_flight(port: u16, era: Era, ask: &Ask, (callers, calls): (usize, usize)) -> f64 {
    let mut all: Vec<Web> = vec![Web::connect(port, era)];
    for _ in 1..callers {
        // All callers of one session: an agent with many calls.
        let mut web = Web::connect(port, Era::Modern);
        web.speech = all[0].speech.clone();
        all.push(web);
    }
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    for (number, web) in all.iter().enumerate() {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&epoll, &web.stream, data, epoll::EventFlags::IN).unwrap();
    }
    // Ids of one session must differ as long as they are in use.
    let mut id = 0;
    let mut send = |web: &mut Web| {
        web.speech.id = id;
        id += 1;
        web.speech.post(ask, &mut web.out);
        web.stream.write_all(&web.out).unwrap();
    };
    let (mut done, warm) = (0, calls / 5);
    let mut started = Instant::now();
    all.iter_mut().for_each(&mut send);
    let mut events = Vec::with_capacity(callers);
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
        for event in &events {
            let web = &mut all[event.data.u64() as usize];
            assert!(web.http.read(&mut web.stream), "the connection was closed");
            let asked = web.speech.id;
            let Some((head, body)) = web.http.next() else { continue };
            assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(head));
            ask.check(asked, body);
            done += 1;
            if done == warm {
                started = Instant::now();
            }
            if done == calls + warm {
                return calls as f64 / started.elapsed().as_secs_f64();
            }
            send(web);
        }
    }
}
