//! In: a program and its arguments. Out: the arguments with relative scripts made absolute, and warnings, or the
//! reason why the command line has none of the shapes that are known to start a server and nothing else.
//! The shapes are an allowlist: an option that no table names is refused, in every spelling. Which package may be
//! fetched is for `package`; what an accepted package does once it runs is for the sandbox.

mod container;
mod node;
mod python;
mod uv;
mod walk;

use std::path::Path;

use self::walk::Walk;
use super::PackageRule;

/// What the shapes need to know about the launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// Where relative paths start.
    pub(super) base: Option<&'a Path>,
    /// Whether the server has a working folder of its own, and so files that its command may find there.
    pub(super) has_cwd: bool,
    /// Which packages may be fetched.
    pub(super) packages: &'a PackageRule,
}

/// A command line that may be started.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) args: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// What it fetches and runs, as it is written.
    pub(super) packages: Vec<String>,
}

/// Why not, in words.
type Judged = Result<(), String>;

/// Programs that run what their arguments say. A launcher may not be used to reach them.
const RUNNERS: &str = " sh bash dash zsh fish ksh csh tcsh ash rbash busybox toybox cmd powershell pwsh \
    env nice nohup timeout xargs find tar git ssh scp sftp rsync sudo doas su setsid stdbuf time watch strace ltrace gdb lldb \
    script expect tclsh wish awk gawk mawk nawk sed perl ruby irb php lua luajit osascript java jshell scala groovy \
    make ninja just cmake cargo go dotnet vi vim nvim emacs ed ex less more man docker podman kubectl nsenter unshare \
    chroot bwrap firejail socat nc ncat telnet curl wget parallel entr flock systemd-run at batch crontab runuser \
    ip perf tmux screen zip unzip cpio install mount gcc cc tcc sqlite3 psql mysql \
    ipython ipython3 jupyter ptpython bpython pip pip3 pytest coverage debugpy invoke nox tox hatch \
    concurrently cross-env cross-env-shell dotenv dotenv-cli env-cmd nodemon pm2 forever zx shx npm-run-all \
    pnpm pnpx yarn yarnpkg corepack ";

/// Judges the arguments of a program that the allowlist let through. A program without a known shape was added by
/// the user and takes any.
pub(super) fn judge(command: &str, args: &[String], place: Place<'_>) -> Result<Accepted, String> {
    let mut walk = Walk::new(command, args, place);
    program(&mut walk, &file_name(command))?;
    Ok(walk.finish())
}

/// The packages that a command line fetches and runs; none where it has no known shape.
pub(super) fn packages(command: &str, args: &[String]) -> Vec<String> {
    let place = Place { base: Some(Path::new("/")), has_cwd: true, packages: &PackageRule::Any };
    judge(command, args, place).map(|accepted| accepted.packages).unwrap_or_default()
}

fn program(walk: &mut Walk<'_>, name: &str) -> Judged {
    match name {
        name if is_python(name) => python::judge(walk),
        "node" | "nodejs" => node::script(walk, node::NODE),
        "tsx" | "ts-node" => node::script(walk, node::TYPESCRIPT),
        "npx" => node::npx(walk),
        "bunx" => node::bunx(walk),
        "npm" => node::npm(walk),
        "bun" => node::bun(walk),
        "deno" => node::deno(walk),
        "uv" => uv::uv(walk),
        "uvx" => uv::tool(walk),
        "pipx" => uv::pipx(walk),
        "pdm" | "poetry" | "rye" => uv::project(walk, name),
        "docker" | "podman" => container::judge(walk),
        _ => {
            walk.take_rest();
            Ok(())
        }
    }
}

/// The command that a launcher starts: judged like a command of its own, and never one that runs its arguments.
fn inner(walk: &mut Walk<'_>) -> Judged {
    let Some(command) = walk.peek() else {
        return Err("it names nothing to run".into());
    };
    if command.ends_with(".py") {
        return walk.script();
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !command.starts_with(|c: char| c.is_ascii_alphanumeric()) || !command.chars().all(plain) {
        return Err(format!(
            "it would run `{}`, which is not the plain name of a command",
            walk::shown(command)
        ));
    }
    let name = file_name(command);
    walk.take();
    walk.program(&name)
}

/// The name that decides the shape: without folder, without a Windows ending, in lower case as some file systems see it.
fn file_name(command: &str) -> String {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command).to_ascii_lowercase();
    let ending = [".exe", ".cmd", ".bat", ".com", ".ps1"].into_iter().find(|ending| name.ends_with(ending));
    ending.and_then(|ending| name.strip_suffix(ending)).map(str::to_owned).unwrap_or(name)
}

fn is_runner(name: &str) -> bool {
    RUNNERS.contains(&format!(" {name} "))
}

fn is_python(name: &str) -> bool {
    let version = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy"));
    version.is_some_and(|version| {
        version.chars().all(|c| c.is_ascii_digit() || c == '.' || c == 'w' || c == 't')
    })
}
