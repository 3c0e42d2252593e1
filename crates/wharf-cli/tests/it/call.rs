//! `wharf call`: what is typed, what is sent, what is shown.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Command;

use crate::desk::{Desk, Ran};

#[test]
fn l100_call_works_on_a_fresh_machine() {
    let ran = Desk::new().run(&["call", "demo", "echo", "message=hello"]).ok();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("hello\n", ""));
}

#[test]
fn l100_values_follow_the_schema() {
    let desk = Desk::new();
    fs::write(desk.project().join("letter.txt"), "Dear\nreader").unwrap();
    fs::write(desk.project().join("two.json"), "2").unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&["echo", "message=42"], "42\n"),
        (&["echo", "message=true"], "true\n"),
        (&["echo", "message:=\"quoted\""], "quoted\n"),
        (&["echo", "message=@letter.txt"], "Dear\nreader\n"),
        (&["add", "a=1", "b=2"], "3\n"),
        (&["add", "a:=1.5", "b:=@two.json"], "3.5\n"),
        (&["add", "--json-args", "{\"a\": 1, \"b\": 1}", "b=40"], "41\n"),
    ];
    for (args, wanted) in cases {
        let ran = desk.run(&[&["call", "demo"], args].concat()).ok();
        assert_eq!(ran.out, wanted, "{args:?}");
    }
}

#[test]
fn l100_arguments_come_from_standard_input() {
    let desk = Desk::new();
    let ran =
        desk.run_with_input(&["call", "demo", "add", "--json-args", "-"], "{\"a\": 20, \"b\": 22}").ok();
    assert_eq!(ran.out, "42\n");
    let ran =
        desk.run_with_input(&["call", "demo", "add", "--json-args", "-"], "{\"a\": 1, \"a\": 2, \"b\": 3}");
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("`a` appears twice"), "{ran:?}");
}

#[test]
fn l100_json_is_the_whole_result() {
    let ran = Desk::new().run(&["call", "demo", "add", "a=1", "b=2", "--json"]).ok();
    let result = ran.json();
    assert_eq!(result["content"][0]["text"], "3", "{ran:?}");
    assert!(ran.err.is_empty(), "{ran:?}");
}

#[test]
fn l100_bytes_are_described_saved_or_written_out() {
    let desk = Desk::new();
    let image = ["call", "demo", "blob", "bytes=2000", "kind=image"];
    let described = desk.run(&image).ok();
    assert_eq!(described.out, "", "a description is no data");
    assert!(described.err.contains("[image image/png, 2 KB; --save DIR keeps it]"), "{described:?}");

    for name in ["blob-1.png", "blob-2.png"] {
        let saved = desk.run(&[&image[..], &["--save", "kept"]].concat()).ok();
        let file = desk.project().join("kept").join(name);
        assert!(saved.err.contains(name), "{saved:?}");
        assert!(fs::read(&file).unwrap().starts_with(b"\x89PNG"));
    }

    let raw = desk.command(&[&image[..], &["--raw"]].concat()).output().unwrap();
    assert_eq!(raw.stdout, fs::read(desk.project().join("kept/blob-1.png")).unwrap());
}

#[test]
fn l104_wrong_arguments_name_the_field_and_the_usage() {
    let desk = Desk::new();
    let ran = desk.run(&["call", "demo", "add", "a=1", "b=many"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("field `b`") && ran.err.contains("number"), "{ran:?}");
    assert!(ran.err.contains("usage: wharf call demo add a=NUMBER b=NUMBER"), "{ran:?}");
    let ran = desk.run(&["call", "demo", "echo", "mesage=x"]);
    assert!(ran.err.contains("did you mean `message`"), "{ran:?}");
}

#[test]
fn l104_misspelt_names_get_a_suggestion() {
    let desk = Desk::new();
    let tool = desk.run(&["call", "demo", "ecko"]);
    assert_eq!(tool.code, 5, "{tool:?}");
    assert!(tool.err.contains("hint: did you mean `echo`?"), "{tool:?}");
    let server = desk.run(&["call", "dmeo", "echo"]);
    assert_eq!(server.code, 5, "{server:?}");
    assert!(server.err.contains("hint: did you mean `demo`?"), "{server:?}");
}

#[test]
fn l104_a_server_that_dies_is_quoted() {
    let desk = Desk::new();
    let server = desk.dying_server();
    desk.user(&format!("[policy]\ncommands = [{server:?}]\n[mcp.bad]\ncommand = {server:?}\n"));
    let ran = desk.run(&["call", "bad", "anything"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("no token was given"), "{ran:?}");
    assert!(ran.err.contains("hint: "), "{ran:?}");
}

#[test]
fn l100_a_closed_pipe_is_quiet() {
    let desk = Desk::new();
    let mut child = desk.command(&["call", "demo", "blob", "bytes=3000000"]).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
}

#[test]
fn l100_ctrl_c_ends_the_call_and_the_server() {
    let desk = Desk::new();
    let server = desk.good_server();
    desk.user(&format!("[policy]\ncommands = [{server:?}]\n[mcp.good]\ncommand = {server:?}\n"));
    let mut child = desk.command(&["-vv", "call", "good", "sleep", "ms=60000"]).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(err.any(|line| line.contains("--> ") && line.contains("tools/call")), "the call never went out");
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let rest: Vec<String> = err.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    let pid = fs::read_to_string(desk.mark()).unwrap();
    let alive = Command::new("kill").args(["-0", pid.trim()]).output().unwrap().status.success();
    assert!(!alive, "the server is still there");
}

#[test]
fn l100_from_add_to_answer_over_http() {
    let desk = Desk::new();
    let mut server = desk.command(&["test-server", "--http", "127.0.0.1:0"]).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let url = said.trim().strip_prefix("listening on ").unwrap().to_owned();
    desk.run(&["add", "far", &url]).ok();
    desk.run(&["add", "old", "-t", "sse", &url.replace("/mcp", "/sse")]).ok();
    let far = desk.run(&["call", "far", "echo", "message=hello"]);
    let old = desk.run(&["call", "old", "add", "a=20", "b=22"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!((far.ok().out.as_str(), old.ok().out.as_str()), ("hello\n", "42\n"));

    let gone = desk.run(&["call", "far", "echo", "message=hello"]);
    assert_eq!(gone.code, 4, "{gone:?}");
}
