//! What may be started, and with which arguments (l10, l11, l12, l53 and the hostile cases CMD).

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use proptest::{prop_assert, prop_assert_eq, proptest};
use wharf::config::{Origin, ServerConfig, Stdio};
use wharf::names::{CallerName, ServerName, ToolName};
use wharf::policy::{DEFAULT_COMMANDS, LaunchPermit, LaunchRequest, PackageRule, Policy, is_visible};
use wharf::{Error, Result};

fn stdio(command: &str, args: &[&str]) -> Stdio {
    Stdio {
        command: command.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        base: Some("/project".into()),
        ..Stdio::default()
    }
}

fn launch(policy: &Policy, stdio: &Stdio, origin: &Origin) -> Result<LaunchPermit> {
    let server = ServerName::parse("srv").unwrap();
    let program = Path::new("/usr/bin/found");
    let request = LaunchRequest {
        server: &server,
        stdio,
        origin,
        program: Some(program),
        sandbox: None,
        program_hash: None,
        host_env: &BTreeMap::new(),
    };
    policy.permit_launch(&request)
}

fn strict(line: &[&str]) -> Result<LaunchPermit> {
    launch(&Policy::strict(), &stdio(line[0], &line[1..]), &Origin::Given)
}

fn in_folder(line: &[&str]) -> Result<LaunchPermit> {
    let stdio = Stdio { cwd: Some("/project/srv".into()), ..stdio(line[0], &line[1..]) };
    launch(&Policy::strict(), &stdio, &Origin::Given)
}

#[track_caller]
fn refused(line: &[&str]) {
    let error = strict(line).map(|permit| permit.args().to_vec()).unwrap_err();
    assert!(matches!(error, Error::CommandNotAllowed { .. }), "{line:?}: {error}");
    assert!(error.hint().is_some(), "{line:?} has no hint");
}

#[track_caller]
fn allowed(line: &[&str]) -> LaunchPermit {
    strict(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

#[track_caller]
fn started_as(line: &[&str], args: &[&str]) {
    let permit = allowed(line);
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    assert_eq!(permit.args(), args, "{line:?}");
}

proptest! {
    /// What was checked is what is started: word for word, but for paths made absolute.
    #[test]
    fn l12_an_accepted_command_line_is_the_one_that_was_written(
        command in proptest::sample::select(DEFAULT_COMMANDS.to_vec()),
        args in proptest::collection::vec(proptest::sample::select(WORDS.to_vec()), 0..7),
    ) {
        let stdio = Stdio { cwd: Some("/project".into()), ..stdio(command, &args) };
        let Ok(permit) = launch(&Policy::strict(), &stdio, &Origin::Given) else { return Ok(()) };
        prop_assert_eq!(permit.args().len(), args.len());
        for (started, written) in permit.args().iter().zip(&args) {
            let started = started.to_str().unwrap();
            prop_assert!(started == *written || (started.starts_with("/project") && started.ends_with(written)));
        }
        let first_plain = args.iter().position(|arg| !arg.starts_with('-')).unwrap_or(args.len());
        for text in ["-c", "-e", "--eval", "-yc", "--call"] {
            prop_assert!(!args[..first_plain].contains(&text), "{} {:?}", command, args);
        }
    }
}

const WORDS: [&str; 34] = [
    "-c",
    "-e",
    "--eval",
    "-yc",
    "--call",
    "-y",
    "-q",
    "-p",
    "-m",
    "-s",
    "--",
    "-",
    "run",
    "exec",
    "x",
    "tool",
    "--from",
    "--with",
    "--package",
    "--directory",
    "--project",
    "-u",
    "-X",
    "utf8",
    "server.py",
    "a.js",
    "src",
    "pkg",
    "pkg@1.0.0",
    "pkg==1.0",
    "python",
    "node",
    "sh",
    "mod.sub",
];

#[test]
fn l10_the_default_commands_are_those_of_the_seeds() {
    let policy = Policy::default();
    assert!(policy.is_strict());
    assert_eq!(policy.commands().collect::<Vec<_>>(), DEFAULT_COMMANDS);
    for name in ["python", "python3", "python3.10", "python3.13", "node"] {
        assert_eq!(allowed(&[name, "server.x"]).program(), Path::new("/usr/bin/found"));
    }
}

#[test]
fn l10_the_error_names_the_command_the_allowlist_and_the_line_that_allows_it() {
    let error = strict(&["my-runner"]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("`my-runner`") && text.contains("npx, ") && text.contains("`srv`"), "{text}");
    assert!(error.hint().unwrap().contains("[policy]\n  commands = [\"my-runner\"]"));
    launch(
        &Policy::strict().with_commands(["my-runner"]),
        &stdio("my-runner", &["-c", "anything"]),
        &Origin::Given,
    )
    .unwrap();
}

#[test]
fn l10_a_path_is_refused_unless_the_policy_names_exactly_it() {
    for path in ["/usr/bin/python3", "./npx", "../x/npx", "bin\\node"] {
        refused(&[path, "server.py"]);
    }
    let policy = Policy::strict().with_commands(["/opt/srv/run", "./near"]);
    launch(&policy, &stdio("/opt/srv/run", &[]), &Origin::Given).unwrap();
    launch(&policy, &stdio("/opt/srv/run2", &[]), &Origin::Given).unwrap_err();
    launch(&policy, &stdio("./near", &[]), &Origin::Given).unwrap_err();
}

#[test]
fn l10_a_named_path_to_an_interpreter_keeps_the_argument_rules() {
    let policy = Policy::strict().with_commands(["/usr/bin/python3"]);
    launch(&policy, &stdio("/usr/bin/python3", &["server.py"]), &Origin::Given).unwrap();
    launch(&policy, &stdio("/usr/bin/python3", &["-c", "1"]), &Origin::Given).unwrap_err();
}

#[test]
fn l10_replaced_commands_are_the_only_ones_and_none_means_none() {
    let policy = Policy::strict().replace_commands(["node"]);
    launch(&policy, &stdio("node", &["a.js"]), &Origin::Given).unwrap();
    launch(&policy, &stdio("python3", &["a.py"]), &Origin::Given).unwrap_err();
    let none = Policy::strict().replace_commands(Vec::<String>::new());
    let error = launch(&none, &stdio("node", &["a.js"]), &Origin::Given).unwrap_err();
    assert!(error.to_string().contains("allowed are nothing"), "{error}");
}

#[test]
fn l10_without_strict_any_command_may_start_but_odd_names_may_not() {
    let policy = Policy::strict().with_strict(false);
    launch(&policy, &stdio("sh", &["-c", "true"]), &Origin::Given).unwrap();
    launch(&policy, &stdio("/opt/x", &[]), &Origin::Given).unwrap();
    let permit = launch(&policy, &stdio("python3", &["server.py"]), &Origin::Given).unwrap();
    assert_eq!(permit.args(), ["/project/server.py"]);
    for odd in ["", "npx ", "npx.", "np\0x", "npx\u{200b}", "-x"] {
        launch(&policy, &stdio(odd, &[]), &Origin::Given).unwrap_err();
    }
}

#[test]
fn l10_the_built_in_server_is_exempt_but_still_needs_an_absolute_program() {
    let policy = Policy::strict();
    let stdio = stdio("/opt/wharf/wharf", &["test-server", "-c"]);
    launch(&policy, &stdio, &Origin::BuiltIn).unwrap();
    launch(&policy, &stdio, &Origin::Given).unwrap_err();
    let server = ServerName::parse("demo").unwrap();
    let env = BTreeMap::new();
    let request = LaunchRequest {
        server: &server,
        stdio: &stdio,
        origin: &Origin::BuiltIn,
        program: Some(Path::new("wharf")),
        sandbox: None,
        program_hash: None,
        host_env: &env,
    };
    policy.permit_launch(&request).unwrap_err();
}

#[test]
fn l11_a_policy_does_not_change() {
    let before = Policy::strict();
    let after = before.with_commands(["docker"]);
    assert!(!before.commands().any(|command| command == "docker"));
    assert!(after.commands().any(|command| command == "docker"));
}

#[test]
fn l12_the_ordinary_forms_work() {
    started_as(&["python3", "server.py", "--port", "1"], &["/project/server.py", "--port", "1"]);
    started_as(
        &["python3", "-u", "-X", "utf8", "./src/server.py"],
        &["-u", "-X", "utf8", "/project/src/server.py"],
    );
    started_as(&["python", "-m", "mcp_server_git", "-c", "x"], &["-m", "mcp_server_git", "-c", "x"]);
    started_as(&["node", "dist/index.js", "-e"], &["/project/dist/index.js", "-e"]);
    started_as(
        &["node", "--no-warnings", "--max-old-space-size=512", "/a.js"],
        &["--no-warnings", "--max-old-space-size=512", "/a.js"],
    );
    started_as(&["npx", "-y", "@scope/pkg@1.2.3", "/data"], &["-y", "@scope/pkg@1.2.3", "/data"]);
    started_as(
        &["npx", "-y", "-p", "pkg@1.2.3", "pkg-mcp", "-c"],
        &["-y", "-p", "pkg@1.2.3", "pkg-mcp", "-c"],
    );
    started_as(&["npx", "-y", "tsx", "server.ts"], &["-y", "tsx", "/project/server.ts"]);
    started_as(&["uvx", "mcp-server-git", "--repository", "."], &["mcp-server-git", "--repository", "."]);
    started_as(
        &["uvx", "--from", "pkg==1.0", "--python", "3.12", "pkg-mcp"],
        &["--from", "pkg==1.0", "--python", "3.12", "pkg-mcp"],
    );
    started_as(
        &["uv", "--directory", "srv", "run", "server.py"],
        &["--directory", "/project/srv", "run", "/project/srv/server.py"],
    );
    started_as(
        &["uv", "run", "--with", "mcp[cli]", "mcp", "run", "/s.py"],
        &["run", "--with", "mcp[cli]", "mcp", "run", "/s.py"],
    );
    started_as(&["uv", "run", "--project=/p", "-m", "my_srv"], &["run", "--project=/p", "-m", "my_srv"]);
    started_as(&["uv", "tool", "run", "srv@1.2"], &["tool", "run", "srv@1.2"]);
    started_as(&["pipx", "run", "srv==1.0", "x"], &["run", "srv==1.0", "x"]);
    started_as(&["pipx", "run", "--spec", "pkg==1", "srv"], &["run", "--spec", "pkg==1", "srv"]);
    started_as(
        &["deno", "run", "-A", "--allow-net=a.b", "main.ts"],
        &["run", "-A", "--allow-net=a.b", "/project/main.ts"],
    );
    started_as(&["deno", "run", "npm:pkg@1.0.0"], &["run", "npm:pkg@1.0.0"]);
    started_as(&["bun", "run", "src/index.ts"], &["run", "/project/src/index.ts"]);
    started_as(&["bun", "x", "pkg@1.0.0"], &["x", "pkg@1.0.0"]);
    started_as(
        &["npm", "exec", "--yes", "--", "pkg@1.0.0", "-c"],
        &["exec", "--yes", "--", "pkg@1.0.0", "-c"],
    );
    started_as(&["npm", "--prefix", "srv", "run", "start"], &["--prefix", "/project/srv", "run", "start"]);
    started_as(
        &["poetry", "-C", "srv", "run", "python", "a.py"],
        &["-C", "/project/srv", "run", "python", "/project/srv/a.py"],
    );
}

#[test]
fn l12_what_reads_its_folder_needs_one() {
    for line in
        [["npm", "run", "start"], ["bun", "run", "start"], ["poetry", "run", "srv"], ["pdm", "run", "srv"]]
    {
        refused(&line);
        in_folder(&line).unwrap();
    }
}

#[test]
fn l12_a_relative_script_starts_at_the_file_that_defines_the_server() {
    let permit = in_folder(&["python3", "server.py"]).unwrap();
    assert_eq!(permit.args(), ["/project/server.py"]);
    assert_eq!(permit.cwd(), Some(Path::new("/project/srv")));
    let relative = Stdio { cwd: Some(PathBuf::from("data")), ..stdio("python3", &["a.py"]) };
    let permit = launch(&Policy::strict(), &relative, &Origin::Given).unwrap();
    assert_eq!(permit.cwd(), Some(Path::new("/project/data")));
    let nowhere = Stdio { base: None, ..stdio("python3", &["a.py"]) };
    launch(&Policy::strict(), &nowhere, &Origin::Given).unwrap_err();
}

#[test]
fn l12_a_command_line_the_user_allowed_passes_as_it_stands() {
    let line = ["python3", "-c", "import my_server"].map(str::to_owned).to_vec();
    let policy = Policy::strict().with_allowed_argv(vec![line]);
    let permit = launch(&policy, &stdio("python3", &["-c", "import my_server"]), &Origin::Given).unwrap();
    assert_eq!(permit.args(), ["-c", "import my_server"]);
    launch(&policy, &stdio("python3", &["-c", "import my_server "]), &Origin::Given).unwrap_err();
}

#[test]
fn a_program_that_is_not_there_is_an_error_that_says_where_it_comes_from() {
    let server = ServerName::parse("srv").unwrap();
    let (stdio, env) = (stdio("npx", &["-y", "pkg@1.0.0"]), BTreeMap::new());
    let request = LaunchRequest {
        server: &server,
        stdio: &stdio,
        origin: &Origin::Given,
        program: None,
        sandbox: None,
        program_hash: None,
        host_env: &env,
    };
    let error = Policy::strict().permit_launch(&request).unwrap_err();
    assert!(error.to_string().contains("`npx` was not found on `PATH`; it comes with Node.js"), "{error}");
    assert!(!error.is_retryable());
}

#[test]
fn cmd_01_shells_are_no_servers() {
    refused(&["sh", "-c", "touch x"]);
    refused(&["bash", "run.sh"]);
    refused(&["cmd", "/c", "dir"]);
    refused(&["powershell", "-Command", "1"]);
    refused(&["busybox", "sh"]);
    allowed(&["python3", "server.py"]);
}

#[test]
fn cmd_02_npx_runs_packages_not_text() {
    for line in [
        &["npx", "-c", "touch x"][..],
        &["npx", "--call=touch x"],
        &["npx", "--call", "touch x"],
        &["npx", "-y", "-c", "touch x"],
        &["npx", "-yc", "touch x"],
        &["npx", "-cy", "touch x"],
        &["npx", "-p", "pkg@1.0.0", "-c", "touch x"],
        &["npx", "-p", "pkg@1.0.0", "sh", "-c", "touch x"],
        &["npx", "-p", "pkg@1.0.0", "node", "-e", "1"],
        &["npx", "-y", "node", "-e", "1"],
        &["npx", "--no", "pkg@1.0.0", "-c", "touch x"],
        &["npx", "--bun", "pkg@1.0.0", "-c", "touch x"],
        &["npm", "exec", "-p", "pkg@1.0.0", "bin"],
        &["npm", "exec", "--yes", "false", "pkg@1.0.0"],
        &["npx", "--script-shell=/x", "pkg"],
        &["npx", "--registry", "https://x", "pkg"],
        &["npx"],
        &["npm", "exec", "-c", "touch x"],
        &["npm", "exec", "pkg@1.0.0", "-c", "touch x"],
        &["npm", "x", "--call=touch x"],
        &["npm", "install", "pkg"],
        &["npm", "run", "--script-shell", "/x", "start"],
        &["bun", "x", "-c", "x"],
    ] {
        refused(line);
    }
    allowed(&["npx", "-y", "pkg@1.0.0", "-c", "the server's own option"]);
}

#[test]
fn cmd_03_python_runs_files_and_modules_not_text() {
    for option in ["-c", "-Ic", "-Ssc", "-cprint(1)", "-i", "-", "-x", "-mtimeit", "--command"] {
        refused(&["python3", option, "print(1)"]);
    }
    refused(&["python3"]);
    refused(&["python3", "-W", "ignore::antigravity.X", "a.py"]);
    refused(&["python3", "-X", "presite=evil", "a.py"]);
    refused(&["python3", "https://example.com/a.py"]);
    allowed(&["python3", "-I", "-B", "-W", "ignore::DeprecationWarning", "a.py"]);
}

#[test]
fn cmd_04_node_runs_files_not_text() {
    for option in [
        "-e",
        "-p",
        "-pe",
        "-i",
        "--eval=1",
        "--eval",
        "--print",
        "-r",
        "--require=./x.js",
        "--import",
        "--import=data:,1",
        "--loader",
        "--experimental-loader=x",
        "--inspect",
        "--inspect-brk=0.0.0.0",
        "--env-file=x",
        "--run",
        "-",
    ] {
        refused(&["node", option, "data:text/javascript,1"]);
    }
    refused(&["node"]);
    refused(&["node", "inspect", "a.js"]);
    refused(&["deno", "eval", "1"]);
    refused(&["deno", "run", "https://example.com/a.ts"]);
    refused(&["deno", "run", "--preload", "x.ts", "a.ts"]);
    refused(&["bun", "-e", "1"]);
    refused(&["bun", "--preload", "x.ts", "a.ts"]);
    allowed(&["node", "--enable-source-maps", "a.js", "--eval"]);
}

#[test]
fn cmd_05_indirect_evaluators_are_refused() {
    for line in [
        &["python3", "-m", "timeit", "import os"][..],
        &["python3", "-m", "pdb", "-c", "x"],
        &["python3", "-m", "runpy", "x"],
        &["python3", "-m", "code"],
        &["python3", "-m", "idlelib.idle"],
        &["python3", "-m", "cProfile", "x.py"],
        &["python3", "-m", "Timeit", "x"],
        &["python3", "-m", "pickle", "x"],
        &["python3", "-m", "_pyrepl"],
        &["python3", "-m", "pip", "install", "x"],
        &["python3", "-m", "IPython", "-c", "1"],
        &["python3", "-m", "../x"],
        &["uv", "run", "sh", "-c", "x"],
        &["uv", "run", "--", "bash", "-c", "x"],
        &["uv", "run", "SH", "-c", "x"],
        &["uv", "run", "python", "-c", "x"],
        &["uv", "run", "/bin/sh"],
        &["uv", "run", "env", "sh"],
        &["uv", "run", "uv", "run", "uv", "run", "uv", "run", "uv", "run", "a.py"],
        &["uv", "run", "-"],
        &["uv", "run", "https://example.com/a.py"],
        &["uv", "run", "--with", "./evil", "srv"],
        &["uv", "run", "--with", "a,git+https://x", "srv"],
        &["uv", "run", "--with-requirements", "x.txt", "srv"],
        &["uv", "run", "--env-file", "x", "srv"],
        &["uv", "run", "--python", "/tmp/evil", "srv"],
        &["uv", "pip", "install", "x"],
        &["uvx", "--from", "p", "python", "-c", "x"],
        &["uvx", "python", "-c", "x"],
        &["uvx", "python@3.12", "-c", "x"],
        &["uvx", "--index-url", "https://x", "pkg"],
        &["uv", "tool", "run", "--from", "p", "sh"],
        &["uv", "tool", "install", "p"],
        &["pipx", "run", "--spec", "p", "bash"],
        &["pipx", "run", "https://example.com/x.py"],
        &["pipx", "install", "x"],
        &["poetry", "-C", "/p", "run", "python", "-c", "x"],
        &["pdm", "-p", "/p", "run", "sh"],
        &["rye", "run", "sh"],
    ] {
        refused(line);
    }
    allowed(&["uvx", "--from", "p==1", "python", "-m", "p.server"]);
    allowed(&["uv", "run", "python", "server.py"]);
}

#[test]
fn cmd_06_launchers_of_other_commands_are_not_on_the_list() {
    for line in [
        &["env", "npx", "x"][..],
        &["env", "-S", "sh -c x"],
        &["nice", "sh"],
        &["timeout", "1", "sh"],
        &["xargs", "sh"],
        &["find", ".", "-exec", "sh", ";"],
        &["tar", "--checkpoint-action=exec=sh"],
        &["git", "-c", "alias.x=!sh", "x"],
        &["ssh", "-o", "ProxyCommand=sh", "x"],
    ] {
        refused(line);
        let inner: Vec<&str> = ["uv", "run"].into_iter().chain(line.iter().copied()).collect();
        refused(&inner);
    }
    allowed(&["uv", "run", "mcp-server-git"]);
}

#[test]
fn cmd_07_a_package_comes_from_a_registry() {
    for spec in [
        "./p",
        "../p",
        "/p",
        "~/p",
        ".",
        "file:p",
        "github:u/r",
        "u/r",
        "https://x/p.tgz",
        "git+https://x/p",
        "git@x:p",
        "p.tgz",
        "p@file:x",
        "p@npm:other",
        "p@https://x/p.tgz",
        "@scope",
        "@/x",
        "",
        "p@../x",
        "$(x)",
    ] {
        refused(&["npx", "-y", spec]);
        refused(&["npx", "-y", "-p", spec, "bin"]);
        refused(&["bun", "x", spec]);
    }
    for spec in [
        "./p",
        "/p",
        "git+https://x/p",
        "p @ https://x/p.whl",
        "p.whl",
        "https://x/p.tar.gz",
        "p;python_version>'3'",
    ] {
        refused(&["uvx", spec]);
        refused(&["uvx", "--from", spec, "bin"]);
        refused(&["uv", "run", "--with", spec, "bin"]);
        refused(&["pipx", "run", "--spec", spec, "bin"]);
    }
    allowed(&["npx", "-y", "@scope/p.q-r_s@1.0.0-rc.1"]);
    allowed(&["uvx", "p.q-r_s[x,y]>=1.0,<2"]);
    let line = ["uvx", "git+https://x/p"].map(str::to_owned).to_vec();
    launch(
        &Policy::strict().with_allowed_argv(vec![line]),
        &stdio("uvx", &["git+https://x/p"]),
        &Origin::Given,
    )
    .unwrap();
}

#[test]
fn cmd_07_a_refusal_does_not_repeat_an_address_with_its_password() {
    let error = strict(&["npx", "-y", "https://ada:hunter2@x/p.tgz"]).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    let error = strict(&["node", "--eval=hunter2"]).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
}

#[test]
fn cmd_08_an_unpinned_package_is_never_silent() {
    for (line, name) in [
        (&["npx", "-y", "pkg"][..], "`pkg@1.2.3`"),
        (&["npx", "-y", "pkg@latest"], "`pkg@1.2.3`"),
        (&["npx", "-y", "pkg@^1.2.3"], "`pkg@1.2.3`"),
        (&["npx", "-y", "pkg@1.2"], "`pkg@1.2.3`"),
        (&["npx", "-y", "@s/pkg"], "`@s/pkg@1.2.3`"),
        (&["uvx", "pkg"], "`pkg==1.2.3`"),
        (&["uvx", "pkg@latest"], "`pkg==1.2.3`"),
        (&["uvx", "pkg>=1"], "`pkg==1.2.3`"),
        (&["uvx", "pkg==1.*"], "`pkg==1.2.3`"),
        (&["uv", "run", "--with", "pkg", "srv"], "`pkg==1.2.3`"),
        (&["pipx", "run", "pkg"], "`pkg==1.2.3`"),
        (&["deno", "run", "npm:pkg"], "`pkg@1.2.3`"),
        (&["bun", "x", "pkg"], "`pkg@1.2.3`"),
    ] {
        let permit = allowed(line);
        assert!(permit.warnings().iter().any(|w| w.contains(name)), "{line:?}: {:?}", permit.warnings());
        let pinned = Policy::strict().with_packages(PackageRule::Pinned);
        launch(&pinned, &stdio(line[0], &line[1..]), &Origin::Given).unwrap_err();
    }
    for line in [
        &["npx", "-y", "pkg@1.2.3"][..],
        &["npx", "@s/pkg@1.2.3-beta.1"],
        &["uvx", "pkg==1.2.3"],
        &["uvx", "pkg@1.2.3"],
        &["uv", "run", "--with", "pkg[x]==1.2", "srv"],
    ] {
        assert_eq!(allowed(line).warnings(), [""; 0], "{line:?}");
        let pinned = Policy::strict().with_packages(PackageRule::Pinned);
        launch(&pinned, &stdio(line[0], &line[1..]), &Origin::Given).unwrap();
    }
}

#[test]
fn cmd_08_listed_packages_are_the_only_ones() {
    let policy = Policy::strict().with_packages(PackageRule::Listed(vec![
        "good".into(),
        "exact@1.0.0".into(),
        "My_Pkg".into(),
    ]));
    let judge = |line: &[&str]| launch(&policy, &stdio(line[0], &line[1..]), &Origin::Given);
    judge(&["npx", "-y", "good@2.0.0"]).unwrap();
    judge(&["npx", "-y", "exact@1.0.0"]).unwrap();
    judge(&["uvx", "my-pkg"]).unwrap();
    judge(&["npx", "-y", "exact@1.0.1"]).unwrap_err();
    judge(&["npx", "-y", "goood"]).unwrap_err();
    judge(&["npx", "-y", "-p", "good", "-p", "bad", "bin"]).unwrap_err();
    let none = Policy::strict().with_packages(PackageRule::Listed(Vec::new()));
    launch(&none, &stdio("npx", &["-y", "good"]), &Origin::Given).unwrap_err();
}

#[test]
fn cmd_09_odd_names_are_not_the_names_they_look_like() {
    for name in [
        "npx ",
        " npx",
        "npx.",
        "NPX",
        "Npx",
        "./npx",
        "../x/npx",
        "npx\u{200b}",
        "n\u{440}x",
        "npx\n",
        "npx\0",
        "",
    ] {
        refused(&[name, "-y", "pkg@1.0.0"]);
    }
    allowed(&["npx", "-y", "pkg@1.0.0"]);
}

#[test]
fn cmd_12_shell_characters_are_passed_as_they_are() {
    let odd = ["; rm", "| x", "& y", "$(z)", "`w`", "a\nb", "${HOME}", "*"];
    let line: Vec<&str> = ["python3", "/s.py"].into_iter().chain(odd).collect();
    assert_eq!(allowed(&line).args()[1..], odd.map(OsString::from));
}

#[test]
fn cmd_13_impossible_arguments_are_a_clean_error() {
    let line = |args: Vec<String>| Stdio { command: "node".into(), args, ..Stdio::default() };
    let judge = |args| launch(&Policy::strict(), &line(args), &Origin::Given);
    let script = || "/a.js".to_owned();
    judge(vec![script(), "a\0b".into()]).unwrap_err();
    judge(vec![script(), "x".repeat(3 << 20)]).unwrap_err();
    judge(vec![script(); 100_000]).unwrap_err();
    judge(vec![script(); 4097]).unwrap_err();
    judge(vec![script(); 4096]).unwrap();
    judge(vec![script(), "x".repeat((2 << 20) - 5)]).unwrap();
    judge(vec![script(), "x".repeat((2 << 20) - 4)]).unwrap_err();
}

#[test]
fn cmd_14_docker_is_refused_and_where_allowed_stays_a_container() {
    refused(&["docker", "run", "-i", "--rm", "mcp/git:1.0"]);
    let policy = Policy::strict().with_commands(["docker"]);
    let judge = |args: &[&str]| launch(&policy, &stdio("docker", args), &Origin::Given);
    for args in [
        &["run", "--privileged", "img:1.0"][..],
        &["run", "-v", "/:/h", "img:1.0"],
        &["run", "-v/:/h", "img:1.0"],
        &["run", "--volume=/:/h", "img:1.0"],
        &["run", "-v", "/etc/x:/h", "img:1.0"],
        &["run", "-v", "/home:/h", "img:1.0"],
        &["run", "-v", "/data/../../:/h", "img:1.0"],
        &["run", "-v", "/var/run/docker.sock:/s", "img:1.0"],
        &["run", "-v", "/data/podman.sock:/s", "img:1.0"],
        &["run", "--mount", "type=bind,src=/,dst=/h", "img:1.0"],
        &["run", "--mount", "type=bind,src=/data/x,source=/,dst=/h", "img:1.0"],
        &["run", "--net", "host", "img:1.0"],
        &["run", "--network=host", "img:1.0"],
        &["run", "--net=container:other", "img:1.0"],
        &["run", "--pid", "host", "img:1.0"],
        &["run", "--cap-add", "ALL", "img:1.0"],
        &["run", "--device", "/dev/sda", "img:1.0"],
        &["run", "--security-opt", "seccomp=unconfined", "img:1.0"],
        &["exec", "x", "sh"],
        &["-H", "tcp://x", "run", "img:1.0"],
        &["run"],
    ] {
        judge(args).unwrap_err();
    }
    let permit = judge(&[
        "run",
        "-i",
        "--rm",
        "-e",
        "TOKEN",
        "-v",
        "/data/docs:/docs:ro",
        "mcp/git:1.0",
        "-v",
        "/:/own",
    ])
    .unwrap();
    assert_eq!(permit.warnings(), [""; 0]);
    assert_eq!(judge(&["run", "-i", "mcp/git"]).unwrap().warnings().len(), 1);
}

#[test]
fn cmd_15_an_option_where_a_name_belongs_is_refused() {
    refused(&["npx", "--", "-c", "x"]);
    refused(&["npx", "-p", "--call=x", "bin"]);
    refused(&["uvx", "--from", "--index-url=x", "bin"]);
    refused(&["python3", "--", "-c"]);
    refused(&["uv", "run", "--directory", "--with=x", "bin"]);
    refused(&["node", "--", "-e", "1"]);
    allowed(&["npx", "--", "pkg@1.0.0", "-c"]);
}

#[test]
fn cmd_16_windows_endings_are_not_on_the_list() {
    for name in ["npx.cmd", "x.bat ", "x.bat.", "npx.exe", "NODE.EXE"] {
        refused(&[name, "pkg@1.0.0"]);
    }
    refused(&["uv", "run", "cmd.exe", "/c", "x"]);
    refused(&["uv", "run", "PowerShell.EXE"]);
    allowed(&["npx", "pkg@1.0.0", "\"&calc"]);
}

#[test]
fn l16_a_credential_among_the_arguments_is_pointed_out_without_being_shown() {
    let permit = allowed(&["node", "/a.js", "--token=ghp_0123456789abcdef0123"]);
    assert_eq!(permit.warnings().len(), 1);
    assert!(!permit.warnings()[0].contains("ghp_"));
    assert_eq!(allowed(&["node", "/a.js", "--token=env"]).warnings(), [""; 0]);
}

#[test]
fn l53_a_hidden_tool_is_neither_seen_nor_called() {
    let caller = CallerName::local();
    let tool = |name: &str| ToolName::parse(name).unwrap();
    let mut server = ServerConfig::stdio(ServerName::parse("srv").unwrap(), "node", ["a.js"]);
    let call = |server: &ServerConfig, name: &str| {
        let tool = tool(name);
        let permit = Policy::strict().permit_call(&caller, server, &tool, None);
        assert_eq!(permit.is_ok(), is_visible(server, &tool), "listing and calling disagree on {name}");
        permit.map(|permit| permit.tool().clone())
    };
    assert_eq!(call(&server, "a").unwrap(), tool("a"));
    server.enabled_tools = Some(vec!["a".into(), "b".into()]);
    server.disabled_tools = vec!["b".into()];
    call(&server, "a").unwrap();
    for (name, rule) in [("b", "disabled_tools"), ("c", "enabled_tools"), ("A", "enabled_tools")] {
        let error = call(&server, name).unwrap_err();
        assert!(matches!(&error, Error::Denied { .. }) && error.to_string().contains(rule), "{error}");
    }
    server.enabled_tools = Some(Vec::new());
    server.disabled_tools = Vec::new();
    call(&server, "a").unwrap_err();
}

#[test]
fn l53_a_server_that_is_switched_off_cannot_be_called() {
    let mut server = ServerConfig::stdio(ServerName::parse("srv").unwrap(), "node", ["a.js"]);
    let tool = ToolName::parse("a").unwrap();
    Policy::strict().permit_call(&CallerName::local(), &server, &tool, None).unwrap();
    server.enabled = false;
    Policy::strict().permit_call(&CallerName::local(), &server, &tool, None).unwrap_err();
}
