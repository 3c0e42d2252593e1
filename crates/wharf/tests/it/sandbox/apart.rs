//! Servers among themselves.

use serde_json::{Value, json};

use super::everywhere;

#[test]
fn sbx_09_servers_cannot_get_at_each_other() {
    everywhere(|prison| {
        let mut other = prison.server(json!(true));
        other["name"] = json!("other");
        let step = |server: &str, code: &str| json!({ "server": server, "code": code });
        let steps: Vec<Value> = vec![
            step(
                "cell",
                "import socket; keep = socket.create_server(('127.0.0.1', 4321)); globals()['k'] = keep",
            ),
            step("cell", "open('/tmp/shared', 'w').write('x'); open('/dev/shm/shared', 'w')"),
            step("other", "import socket; socket.create_connection(('127.0.0.1', 4321), 5)"),
            step("other", "open('/tmp/shared')"),
            step("other", "open('/dev/shm/shared')"),
            step("other", "import os; out = [p for p in os.listdir('/proc') if p.isdigit()].__len__()"),
            // Whatever it can send a signal to, it is none of the other's.
            step(
                "other",
                "import os, signal\nfor p in range(2, 400):\n    if p != os.getpid():\n        try: os.kill(p, signal.SIGKILL)\n        except OSError: pass",
            ),
            step("cell", "out = 'alive'"),
        ];
        let told = prison.order(&json!({ "servers": [prison.server(json!(true)), other], "steps": steps }));
        assert!(told.unstarted.is_empty(), "{told:?}");
        for (at, words) in [(2, "refused"), (3, "FileNotFoundError"), (4, "FileNotFoundError")] {
            assert!(told.steps[at].contains(words), "{told:#?}");
        }
        assert!(told.steps[5].as_str() <= "ok: 3", "{told:#?}");
        assert_eq!(told.steps[7], "ok: alive", "{told:#?}");
    });
}
