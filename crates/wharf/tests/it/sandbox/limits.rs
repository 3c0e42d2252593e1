//! A confined server that takes all it can get.

use std::time::{Duration, Instant};

use serde_json::json;

use super::everywhere;

#[test]
fn prc_07_a_fork_bomb_is_contained() {
    everywhere(|prison| {
        let bomb = "import os, signal, time\nkids = []\ntry:\n    while len(kids) < 400:\n        pid = os.fork()\n        \
                    if pid == 0:\n            time.sleep(600)\n        kids.append(pid)\nexcept OSError as e:\n    out = 'stopped at %d: %s' % (len(kids), e)\n\
                    finally:\n    for pid in kids: os.kill(pid, signal.SIGKILL)\n    for pid in kids: os.waitpid(pid, 0)";
        let told = prison.run(json!({ "processes": 40 }), &[bomb, "out = 'here'"]);
        assert!(told.works().steps[0].contains("stopped at 3"), "{told:?}");
        assert_eq!(told.steps[1], "ok: here");
        let told = prison.run(json!({ "processes": 400 }), &["import os\nfor _ in range(100):\n    pid = os.fork()\n    if pid == 0: os._exit(0)\n    os.waitpid(pid, 0)"]);
        told.works();
    });
}

#[test]
fn prc_07_memory_is_bounded() {
    everywhere(|prison| {
        let greedy = "x = bytearray(512 * 1024 * 1024); out = len(x)";
        let told = prison.run(json!({ "memory": 256 * 1024 * 1024 }), &[greedy]);
        assert!(told.steps[0].contains("MemoryError") || told.steps[0].contains("signal 9"), "{told:?}");
        prison.run(json!(true), &[greedy]).works();
    });
}

#[test]
fn prc_07_the_disk_is_not_filled() {
    everywhere(|prison| {
        let fill = |place: &str| {
            format!(
                "import os\nf = open('{place}', 'wb')\nfor _ in range(64): f.write(b'x' * (1024 * 1024))\nf.flush()"
            )
        };
        let small = json!({ "scratch": 8 * 1024 * 1024, "file_size": 16 * 1024 * 1024, "write": [prison.path("data")] });
        let own = [fill("/tmp/big"), fill(&prison.path("home/big")), fill("/dev/shm/big")];
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        prison.run(small.clone(), &own).fails(&["No space left"]);
        prison.run(small, &[&fill(&prison.path("data/big"))]).fails(&["File too large"]);
        assert!(prison.at("data/big").metadata().unwrap().len() <= 16 * 1024 * 1024);
        prison.run(json!(true), &own[..1]).works();
    });
}

#[test]
fn prc_07_open_files_are_bounded() {
    everywhere(|prison| {
        let hoard = "import os\nout = []\nfor _ in range(100000): out.append(os.open('/dev/null', 0))\nout = len(out)";
        prison.run(json!({ "open_files": 100 }), &[hoard]).fails(&["Too many open files"]);
        prison.run(json!(true), &["import os\nfor _ in range(2000): os.open('/dev/null', 0)"]).works();
    });
}

#[test]
fn prc_07_a_server_that_spins_does_not_hold_the_others_up() {
    everywhere(|prison| {
        let mut spinner = prison.server(json!(true));
        spinner["name"] = json!("spinner");
        let spin = json!({ "server": "spinner", "code": "import os\nfor _ in range(4):\n    if os.fork() == 0:\n        while True: pass" });
        let work = json!({ "server": "cell", "code": "out = 'here'" });
        let since = Instant::now();
        let told = prison.order(&json!({
            "servers": [prison.server(json!(true)), spinner], "steps": [spin, work.clone(), work],
        }));
        assert_eq!(told.works().steps[2], "ok: here");
        // They are gone with the host, which ended only after they were.
        assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    });
}
