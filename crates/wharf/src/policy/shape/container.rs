//! `docker run [options] image …`, where a user's policy allows `docker` at all: a container, not a way out of one.

use super::super::package::Registry;
use super::Judged;
use super::walk::{Options, Takes, Walk};

const RUN: Options = &[
    (
        &[
            "-i",
            "--interactive",
            "-t",
            "--tty",
            "-it",
            "-ti",
            "--rm",
            "--init",
            "--read-only",
            "-q",
            "--quiet",
        ],
        Takes::Nothing,
    ),
    (&["-e", "--env"], Takes::Checked(is_variable)),
    (&["-v", "--volume"], Takes::Checked(is_modest_volume)),
    (&["--mount"], Takes::Checked(is_modest_mount)),
    (&["--network", "--net"], Takes::Checked(is_modest_network)),
    (
        &[
            "--name",
            "--pull",
            "--platform",
            "-w",
            "--workdir",
            "-u",
            "--user",
            "-l",
            "--label",
        ],
        Takes::Word,
    ),
    (
        &[
            "-m",
            "--memory",
            "--cpus",
            "--pids-limit",
            "--tmpfs",
            "--cap-drop",
            "--add-host",
            "-p",
            "--publish",
        ],
        Takes::Word,
    ),
    (&["--security-opt"], Takes::Checked(is_no_new_privileges)),
];

/// Folders whose contents are the machine itself.
const MACHINE: [&str; 10] = [
    "/",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/etc",
    "/boot",
    "/root",
    "/var/lib/docker",
];

pub(super) fn judge(walk: &mut Walk<'_>) -> Judged {
    if walk.take() != Some("run") {
        return Err("only `docker run` starts a server".into());
    }
    walk.options(RUN, &[])?;
    walk.package(Registry::Image)?;
    walk.take_rest();
    Ok(())
}

fn is_variable(text: &str) -> bool {
    let name = text.split('=').next().unwrap_or_default();
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_modest_volume(text: &str) -> bool {
    let source = text.split(':').next().unwrap_or_default();
    is_modest_source(source)
}

fn is_modest_mount(text: &str) -> bool {
    let source = text
        .split(',')
        .find_map(|part| part.strip_prefix("source=").or_else(|| part.strip_prefix("src=")));
    // Commas and quotes could hide a second source from this reading.
    !text.contains('"')
        && text.matches("source=").count() + text.matches("src=").count() <= 1
        && source.is_none_or(is_modest_source)
}

fn is_modest_source(source: &str) -> bool {
    let is_volume = !source.contains('/') && !source.starts_with(['.', '~']);
    if is_volume {
        return true;
    }
    let inside = |folder: &str| source == folder || source.starts_with(&format!("{folder}/"));
    let deep_enough = source.split('/').filter(|part| !part.is_empty()).count() >= 2;
    source.starts_with('/')
        && deep_enough
        && !source.contains("//")
        && !source.ends_with(".sock")
        && !source.split('/').any(|part| part == ".." || part == ".")
        && !MACHINE.into_iter().any(inside)
}

fn is_modest_network(text: &str) -> bool {
    text != "host" && !text.contains(':')
}

fn is_no_new_privileges(text: &str) -> bool {
    [
        "no-new-privileges",
        "no-new-privileges:true",
        "no-new-privileges=true",
    ]
    .contains(&text)
}
