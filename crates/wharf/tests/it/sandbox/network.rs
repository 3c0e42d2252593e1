//! A confined server and the network.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;

use serde_json::json;

use super::everywhere;

#[test]
fn sbx_04_there_is_no_way_to_the_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let six = TcpListener::bind("[::1]:0");
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let (tcp, udp) = (listener.local_addr().unwrap().port(), datagrams.local_addr().unwrap().port());
    everywhere(|prison| {
        let mut tries = vec![
            format!("import socket; socket.create_connection(('127.0.0.1', {tcp}), 5)"),
            "import socket; socket.create_connection(('192.0.2.1', 80), 5)".into(),
            "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))".into(),
            "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('2001:db8::1', 53))".into(),
            "import socket; socket.getaddrinfo('example.com', 80)".into(),
            "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)".into(),
            "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)".into(),
            "import socket; socket.socket(40, socket.SOCK_STREAM)".into(),
            "import socket; socket.socket(38, socket.SOCK_SEQPACKET)".into(),
        ];
        if let Ok(six) = &six {
            let port = six.local_addr().unwrap().port();
            tries.push(format!("import socket; socket.create_connection(('::1', {port}), 5)"));
        }
        let tries: Vec<&str> = tries.iter().map(String::as_str).collect();
        let refused = [
            "unreachable",
            "refused",
            "Operation not permitted",
            "name resolution",
            "Name or service not known",
            "Cannot assign requested address",
        ];
        prison.run(json!(true), &tries).fails(&refused);
        // A datagram to a port of ours goes nowhere, whatever the sender is told.
        let datagram = format!(
            "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))"
        );
        prison.run(json!(true), &[&datagram]);
        assert!(datagrams.recv(&mut [0; 8]).is_err(), "nothing may arrive");
        prison.free(&[tries[0], &datagram]).works();
        assert_eq!(datagrams.recv(&mut [0; 8]).unwrap(), 1);
    });
}

#[test]
fn sbx_04_a_server_can_talk_to_itself() {
    everywhere(|prison| {
        let code = "import socket\ns = socket.create_server(('127.0.0.1', 0))\n\
                    c = socket.create_connection(s.getsockname()); c.send(b'ahoy'); out = s.accept()[0].recv(9)\n\
                    a, b = socket.socketpair()";
        assert_eq!(prison.run(json!(true), &[code]).works().steps, ["ok: b'ahoy'"]);
    });
}

#[test]
fn sbx_01_sockets_of_the_machine_are_out_of_reach() {
    everywhere(|prison| {
        let path = prison.path("data/agent.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let connect = format!("import socket; socket.socket(socket.AF_UNIX).connect('{path}')");
        // Even from a folder that it was given to read, and by a name that is in no folder.
        let nameless = "import socket; socket.socket(socket.AF_UNIX).connect('\\0wharf-test')";
        let given = json!({ "read": [prison.path("data")] });
        prison.run(given, &[&connect, nameless]).fails(&["Operation not permitted"]);
        prison.free(&[&connect]).works();
        // A server that needs sockets for its own parts can be given them.
        let own = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('/tmp/own'); s.listen(); socket.socket(socket.AF_UNIX).connect('/tmp/own')";
        prison.run(json!({ "unix_sockets": true }), &[own]).works();
        prison.run(json!(true), &[own]).fails(&["Operation not permitted"]);
    });
}
