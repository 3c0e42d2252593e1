//! The least a server can do, over a pipe or HTTP: one thread, no JSON library, one write for all that was read.
//!
//! In: messages as this benchmark and Wharf write them, on one line, the id first. Out: what they ask for. Not a model
//! for a server: it believes everything.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;

use rustix::event::epoll;

use crate::bytes::{Http, find, number_after, text_after};

/// What it has to say.
pub(crate) struct Echo {
    tools: String,
    blobs: HashMap<u64, String>,
}

/// The size of a read. Larger than what waits at any time, but for large requests.
const READ: usize = 256 * 1024;

impl Echo {
    /// With so many tools, of which the first echoes, the second gives text, and all others echo too.
    pub(crate) fn new(tools: usize) -> Self {
        let own = [
            r#"{"name":"echo","description":"Says it again","inputSchema":{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}}"#.to_owned(),
            r#"{"name":"blob","description":"So much text","inputSchema":{"type":"object","properties":{"bytes":{"type":"integer","minimum":0}},"required":["bytes"]}}"#.to_owned(),
        ];
        let more = (own.len()..tools).map(|number| {
            format!(
                concat!(
                    r#"{{"name":"tool_{:04}","title":"Tool number {}","description":"Looks for records of one kind and gives those that fit. Use it where the id of a record is not known; where it is, the look-up by id is quicker, and it also gives what was deleted.","#,
                    r#""inputSchema":{{"type":"object","properties":{{"message":{{"type":"string","description":"The text to look for; an empty one fits everything"}},"limit":{{"type":"integer","description":"How many records at most","minimum":1,"maximum":1000,"default":50}},"kind":{{"type":"string","enum":["open","closed","all"],"description":"Which records to look at"}}}},"required":["message"]}},"#,
                    r#""annotations":{{"readOnlyHint":true,"openWorldHint":false}}}}"#
                ),
                number, number
            )
        });
        let tools: Vec<String> = own.into_iter().take(tools).chain(more).collect();
        Self { tools: tools.join(","), blobs: HashMap::new() }
    }

    /// Serves a pipe until it ends.
    pub(crate) fn over_pipe(mut self) {
        let mut input = std::io::stdin().lock();
        // Not `stdout()`, which searches every answer for line breaks.
        let mut output = std::fs::File::options().write(true).open("/dev/stdout").unwrap();
        let (mut held, mut answers) = (vec![0; READ], Vec::new());
        let mut filled = 0;
        loop {
            if filled == held.len() {
                held.resize(held.len() * 2, 0);
            }
            // Not more than is there: `Stdin` has a buffer of its own, which is read past by this size.
            let read = input.read(&mut held[filled..]).unwrap();
            if read == 0 {
                return;
            }
            filled += read;
            let mut from = 0;
            while let Some(end) = held[from..filled].iter().position(|byte| *byte == b'\n') {
                let before = answers.len();
                self.answer(&held[from..from + end], &mut answers);
                if answers.len() > before {
                    answers.push(b'\n');
                }
                from += end + 1;
            }
            held.copy_within(from..filled, 0);
            filled -= from;
            output.write_all(&answers).unwrap();
            answers.clear();
        }
    }

    /// Serves HTTP at a free port, which is printed first, until it is killed.
    pub(crate) fn over_http(mut self) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        println!("{}", listener.local_addr().unwrap().port());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let watch = |fd: &dyn std::os::fd::AsFd, number: u64| {
            epoll::add(&epoll, fd.as_fd(), epoll::EventData::new_u64(number), epoll::EventFlags::IN).unwrap();
        };
        watch(&listener.as_fd(), u64::MAX);
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
                    watch(&stream.as_fd(), next);
                    callers.insert(next, (stream, Http::default()));
                    next += 1;
                    continue;
                }
                let (stream, http) = callers.get_mut(&number).unwrap();
                if !http.read(stream) {
                    callers.remove(&number);
                    continue;
                }
                while let Some((head, body)) = http.next() {
                    answer.clear();
                    reply.clear();
                    if head.starts_with(b"POST") {
                        self.answer(body, &mut answer);
                        reply.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n");
                    } else {
                        reply.extend_from_slice(b"HTTP/1.1 405 Method Not Allowed\r\n");
                    }
                    write!(reply, "content-length: {}\r\n\r\n", answer.len()).unwrap();
                    reply.extend_from_slice(&answer);
                    stream.write_all(&reply).unwrap();
                }
            }
        }
    }

    fn answer(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let beginning = &message[..message.len().min(200)];
        let Some(id) = number_after(beginning, b"\"id\":") else { return };
        let modern = find(message, b"io.modelcontextprotocol/protocolVersion").is_some();
        write!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{").unwrap();
        if modern {
            out.extend_from_slice(br#""resultType":"complete","#);
        }
        match text_after(beginning, b"\"method\":\"").unwrap_or_default() {
            b"tools/call" => self.call(message, out),
            b"tools/list" => {
                write!(out, "\"tools\":[{}]", self.tools).unwrap();
                if modern {
                    out.extend_from_slice(br#","ttlMs":300000,"cacheScope":"public""#);
                }
            }
            b"server/discover" => out.extend_from_slice(
                br#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":300000,"cacheScope":"public""#,
            ),
            _ => out.extend_from_slice(
                br#""protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}"#,
            ),
        }
        out.extend_from_slice(b"}}");
    }

    fn call(&mut self, message: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(br#""content":[{"type":"text","text":""#);
        match number_after(message, b"\"bytes\":") {
            Some(bytes) => {
                let blob = self.blobs.entry(bytes).or_insert_with(|| blob(bytes as usize));
                out.extend_from_slice(blob.as_bytes());
            }
            None => out.extend_from_slice(text_after(message, b"\"message\":\"").unwrap_or_default()),
        }
        out.extend_from_slice(br#""}],"isError":false"#);
    }
}

/// A text of so many bytes, in lines of eighty, so with escapes.
fn blob(bytes: usize) -> String {
    let mut text = format!("{}\\n", "x".repeat(78)).repeat(bytes / 80);
    text.push_str(&"y".repeat(bytes - text.len()));
    text
}
