//! The least a server can do, over a pipe or HTTP: one thread, no JSON library, one write for all that was read.
//!
//! In: messages on one line. Out: what they ask for. Not a model for a server: it believes everything. On request it
//! is slow by a known amount, to see that it shows, or hostile, to see what that costs others.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use crate::bytes::{Http, find, members, number_after, text_after};
use crate::process::stay_on;

/// What it has to say.
pub(crate) struct Echo {
    tools: String,
    blobs: HashMap<u64, String>,
    manner: Manner,
}

/// How it behaves.
#[derive(Clone, Copy, Default)]
pub(crate) struct Manner {
    /// How many tools it has.
    pub(crate) tools: usize,
    /// How long it works on a call, without letting the core go.
    pub(crate) busy: Duration,
    /// Which core it stays on, if it does.
    pub(crate) core: Option<usize>,
    /// What it does to others when it is called, if it is hostile.
    pub(crate) malice: Option<Malice>,
}

/// What a hostile server does with a call, over a pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malice {
    /// Reads nothing any more, and never answers.
    Hang,
    /// Answers after two thousand messages that nobody asked for.
    Flood,
    /// Dies without an answer.
    Die,
    /// The same, and nothing keeps it from being started again for the next call.
    DieAgain,
}

/// The size of a read. Larger than what waits at any time, but for large requests.
const READ: usize = 256 * 1024;
/// How many messages a flood has.
const FLOOD: usize = 2000;

// === impl Malice ===

impl Malice {
    /// All of them, with their names.
    pub(crate) const ALL: [(&'static str, Self); 4] = [
        ("hangs", Self::Hang),
        ("floods", Self::Flood),
        ("dies", Self::Die),
        ("dies and has no breaker", Self::DieAgain),
    ];

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find_map(|(own, malice)| (*own == name).then_some(*malice))
    }
}

// === impl Echo ===

impl Echo {
    /// The first of its tools echoes, the second gives text, and all others echo too.
    pub(crate) fn new(manner: Manner) -> Self {
        if let Some(core) = manner.core {
            stay_on(core);
        }
        let own = [
            r#"{"name":"echo","description":"Says it again","inputSchema":{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}}"#.to_owned(),
            r#"{"name":"blob","description":"So much text","inputSchema":{"type":"object","properties":{"bytes":{"type":"integer","minimum":0}},"required":["bytes"]}}"#.to_owned(),
        ];
        let more = (own.len()..manner.tools).map(|number| {
            format!(
                concat!(
                    r#"{{"name":"tool_{:04}","title":"Tool number {}","description":"Looks for records of one kind and gives those that fit. Use it where the id of a record is not known; where it is, the look-up by id is quicker, and it also gives what was deleted.","#,
                    r#""inputSchema":{{"type":"object","properties":{{"message":{{"type":"string","description":"The text to look for; an empty one fits everything"}},"limit":{{"type":"integer","description":"How many records at most","minimum":1,"maximum":1000,"default":50}},"kind":{{"type":"string","enum":["open","closed","all"],"description":"Which records to look at"}}}},"required":["message"]}},"#,
                    r#""annotations":{{"readOnlyHint":true,"openWorldHint":false}}}}"#
                ),
                number, number
            )
        });
        let tools: Vec<String> = own.into_iter().take(manner.tools).chain(more).collect();
        Self { tools: tools.join(","), blobs: HashMap::new(), manner }
    }

    /// Serves a pipe until it ends.
    pub(crate) fn over_pipe(mut self) {
        // Not `stdin()` and `stdout()`, which have buffers of their own.
        let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
        let mut output = File::from(std::io::stdout().as_fd().try_clone_to_owned().unwrap());
        let (mut held, mut answers) = (vec![0; READ], Vec::new());
        let mut filled = 0;
        loop {
            if filled == held.len() {
                held.resize(held.len() * 2, 0);
            }
            let read = input.read(&mut held[filled..]).unwrap();
            if read == 0 {
                return;
            }
            filled += read;
            let mut from = 0;
            while let Some(end) = memchr::memchr(b'\n', &held[from..filled]) {
                let before = answers.len();
                self.answer(&held[from..from + end], &mut answers);
                if answers.len() > before {
                    answers.push(b'\n');
                }
                from += end + 1;
            }
            held.copy_within(from..filled, 0);
            filled -= from;
            if output.write_all(&answers).is_err() {
                return;
            }
            answers.clear();
        }
    }

    /// Serves HTTP at a port, which is printed first, until its standard input ends.
    pub(crate) fn over_http(mut self, port: u16) {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        println!("{}", listener.local_addr().unwrap().port());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let watch = |fd: &dyn std::os::fd::AsFd, number: u64| {
            epoll::add(&epoll, fd.as_fd(), epoll::EventData::new_u64(number), epoll::EventFlags::IN)
        };
        watch(&listener.as_fd(), u64::MAX).unwrap();
        // A file or `/dev/null` cannot be watched: then it is killed in the end.
        let _ = watch(&std::io::stdin().as_fd(), u64::MAX - 1);
        let mut callers: HashMap<u64, (TcpStream, Http)> = HashMap::new();
        let (mut next, mut answer, mut reply) = (0, Vec::new(), Vec::new());
        let mut events = Vec::with_capacity(1024);
        loop {
            events.clear();
            epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
            for event in &events {
                let number = event.data.u64();
                if number == u64::MAX {
                    let (stream, _) = listener.accept().unwrap();
                    stream.set_nodelay(true).unwrap();
                    watch(&stream.as_fd(), next).unwrap();
                    callers.insert(next, (stream, Http::default()));
                    next += 1;
                    continue;
                }
                let Some((stream, http)) = callers.get_mut(&number) else {
                    // It is the input: a byte means nothing, its end is ours.
                    if matches!(rustix::io::read(std::io::stdin(), &mut [0; 64]), Ok(0) | Err(_)) {
                        return;
                    }
                    continue;
                };
                let mut open = http.read(stream);
                while open && let Some((head, body)) = http.next() {
                    self.reply(head, body, (&mut answer, &mut reply));
                    open = stream.write_all(&reply).is_ok();
                }
                if !open {
                    callers.remove(&number);
                }
            }
        }
    }

    fn reply(&mut self, head: &[u8], body: &[u8], (answer, reply): (&mut Vec<u8>, &mut Vec<u8>)) {
        answer.clear();
        reply.clear();
        if head.starts_with(b"POST") {
            self.answer(body, answer);
            let status = if answer.is_empty() { "202 Accepted" } else { "200 OK" };
            write!(reply, "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n").unwrap();
        } else {
            reply.extend_from_slice(b"HTTP/1.1 405 Method Not Allowed\r\n");
        }
        write!(reply, "content-length: {}\r\n\r\n", answer.len()).unwrap();
        reply.extend_from_slice(answer);
    }

    fn answer(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let (mut id, mut method) = (None, &b""[..]);
        for (name, value) in members(message) {
            match name {
                b"id" => id = Some(value),
                b"method" => method = value,
                _ => {}
            }
        }
        let Some(id) = id else { return };
        if method == b"\"tools/call\"" {
            self.behave(out);
        }
        let modern = find(message, b"io.modelcontextprotocol/protocolVersion").is_some();
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id);
        out.extend_from_slice(br#","result":{"#);
        if modern {
            out.extend_from_slice(br#""resultType":"complete","#);
        }
        match method {
            b"\"tools/call\"" => self.call(message, out),
            b"\"tools/list\"" => {
                write!(out, "\"tools\":[{}]", self.tools).unwrap();
                if modern {
                    out.extend_from_slice(br#","ttlMs":300000,"cacheScope":"public""#);
                }
            }
            b"\"server/discover\"" => out.extend_from_slice(
                br#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":300000,"cacheScope":"public""#,
            ),
            b"\"ping\"" => {}
            _ => {
                // Whichever revision is wished for: what is used of them is the same in all.
                let revision = text_after(message, b"\"protocolVersion\":").unwrap_or(b"2025-11-25");
                out.extend_from_slice(br#""protocolVersion":""#);
                out.extend_from_slice(revision);
                out.extend_from_slice(
                    br#"","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}"#,
                );
            }
        }
        out.extend_from_slice(b"}}");
    }

    fn behave(&self, out: &mut Vec<u8>) {
        busy(self.manner.busy);
        match self.manner.malice {
            None => {}
            Some(Malice::Hang) => loop {
                std::thread::park();
            },
            Some(Malice::Die | Malice::DieAgain) => std::process::exit(1),
            Some(Malice::Flood) => {
                let line = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"nobody asked for this"}}"#;
                (0..FLOOD).for_each(|_| out.extend(line.iter().chain(b"\n")));
            }
        }
    }

    fn call(&mut self, message: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(br#""content":[{"type":"text","text":""#);
        match number_after(message, b"\"bytes\":") {
            Some(bytes) => {
                let blob = self.blobs.entry(bytes).or_insert_with(|| blob(bytes as usize));
                out.extend_from_slice(blob.as_bytes());
            }
            None => out.extend_from_slice(text_after(message, b"\"message\":").unwrap_or_default()),
        }
        out.extend_from_slice(br#""}],"isError":false"#);
    }
}

/// Works for so long, without letting the core go.
pub(crate) fn busy(time: Duration) {
    if !time.is_zero() {
        let started = Instant::now();
        while started.elapsed() < time {
            std::hint::spin_loop();
        }
    }
}

/// A text of so many bytes, in lines of eighty, so with escapes.
fn blob(bytes: usize) -> String {
    let mut text = format!("{}\\n", "x".repeat(78)).repeat(bytes / 80);
    text.push_str(&"y".repeat(bytes - text.len()));
    text
}
