//! The least a gateway can do: callers over HTTP, one server over a pipe, nothing between them but who asked.
//!
//! In: a command line. Out: its answers, to whoever waits for them. One thread; it checks nothing and keeps nothing, so
//! it shows how far a gateway that does is from one that does not; and slowed by a known amount, that this shows.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::epoll;

use crate::bytes::{Http, members};
use crate::echo::busy;
use crate::process::Kept;

/// Everything that is open.
struct Relay {
    epoll: std::os::fd::OwnedFd,
    callers: HashMap<u64, (TcpStream, Http)>,
    /// Who asked, by id. Callers must see to it that theirs differ, as ours do.
    asked: HashMap<Vec<u8>, u64>,
    input: ChildStdin,
    output: ChildStdout,
    held: Vec<u8>,
    filled: usize,
    busy: Duration,
}

const LISTENER: u64 = u64::MAX;
const SERVER: u64 = u64::MAX - 1;
/// As much as can be under way: a write never waits for a server that waits for us.
const PIPE: usize = 1 << 20;

/// Relays until the server ends or this is killed.
pub(crate) fn relay(port: u16, words: &[String], busy: Duration) -> Result<(), String> {
    let failed = |e: std::io::Error| e.to_string();
    let listener = TcpListener::bind(("127.0.0.1", port)).map_err(failed)?;
    let (program, args) = words.split_first().ok_or("no server to start")?;
    let mut command = Command::new(program);
    let mut child =
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let (input, output) = (child.stdin.take().ok_or("no pipe")?, child.stdout.take().ok_or("no pipe")?);
    let _child = Kept::new(child);
    let _ = rustix::pipe::fcntl_setpipe_size(&input, PIPE);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| e.to_string())?;
    let (callers, asked, held) = (HashMap::new(), HashMap::new(), vec![0; PIPE]);
    let mut relay = Relay { epoll, callers, asked, input, output, held, filled: 0, busy };
    relay.watch(&listener, LISTENER)?;
    relay.watch(&relay.output, SERVER)?;
    let (mut next, mut events) = (0, Vec::with_capacity(1024));
    loop {
        events.clear();
        epoll::wait(&relay.epoll, rustix::buffer::spare_capacity(&mut events), None)
            .map_err(|e| e.to_string())?;
        for event in &events {
            match event.data.u64() {
                LISTENER => {
                    let (stream, _) = listener.accept().map_err(failed)?;
                    stream.set_nodelay(true).map_err(failed)?;
                    relay.watch(&stream, next)?;
                    relay.callers.insert(next, (stream, Http::default()));
                    next += 1;
                }
                SERVER => relay.hear_server()?,
                caller => relay.hear_caller(caller)?,
            }
        }
    }
}

// === impl Relay ===

impl Relay {
    fn watch(&self, fd: &impl AsFd, number: u64) -> Result<(), String> {
        let data = epoll::EventData::new_u64(number);
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN).map_err(|e| e.to_string())
    }

    fn hear_caller(&mut self, number: u64) -> Result<(), String> {
        let Some((stream, http)) = self.callers.get_mut(&number) else { return Ok(()) };
        if !http.read(stream) {
            self.callers.remove(&number);
            return Ok(());
        }
        while let Some((_, body)) = http.next() {
            match members(body).find(|(name, _)| *name == b"id") {
                Some((_, id)) => drop(self.asked.insert(id.to_vec(), number)),
                None => stream
                    .write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
                    .map_err(|e| e.to_string())?,
            }
            busy(self.busy);
            let line = [body, b"\n"].concat();
            self.input.write_all(&line).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn hear_server(&mut self) -> Result<(), String> {
        if self.filled == self.held.len() {
            self.held.resize(self.filled * 2, 0);
        }
        let read = self.output.read(&mut self.held[self.filled..]).map_err(|e| e.to_string())?;
        if read == 0 {
            return Err("the server has ended".to_owned());
        }
        self.filled += read;
        let mut from = 0;
        while let Some(end) = memchr::memchr(b'\n', &self.held[from..self.filled]) {
            let answer = &self.held[from..from + end];
            from += end + 1;
            let caller = members(answer)
                .find(|(name, _)| *name == b"id")
                .and_then(|(_, id)| self.callers.get_mut(&self.asked.remove(id)?));
            if let Some((stream, _)) = caller {
                let mut reply = Vec::with_capacity(answer.len() + 100);
                let length = answer.len();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
                write!(reply, "{head} {length}\r\n\r\n").map_err(|e| e.to_string())?;
                reply.extend_from_slice(answer);
                let _ = stream.write_all(&reply);
            }
        }
        self.held.copy_within(from..self.filled, 0);
        self.filled -= from;
        Ok(())
    }
}
