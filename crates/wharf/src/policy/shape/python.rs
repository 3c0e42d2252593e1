//! `python3 [options] server.py …` and `python3 [options] -m package …`.

use super::Judged;
use super::walk::{Options, Takes, Walk, shown};

const PYTHON: Options = &[
    (&["-u"], Takes::Nothing),
    (&["-B"], Takes::Nothing),
    (&["-I"], Takes::Nothing),
    (&["-E"], Takes::Nothing),
    (&["-s"], Takes::Nothing),
    (&["-S"], Takes::Nothing),
    (&["-P"], Takes::Nothing),
    (&["-O"], Takes::Nothing),
    (&["-OO"], Takes::Nothing),
    (&["-W"], Takes::Checked(is_plain_warning)),
    (&["-X"], Takes::Checked(is_plain_setting)),
];

/// The standard library. No module of it is an MCP server, and many run what their arguments say (`timeit`, `pdb`,
/// `runpy`, `pickle`, `webbrowser` …), so none is allowed.
const STANDARD: &str = " abc aifc annotationlib antigravity argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb \
    binascii bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop collections colorsys \
    compileall compression concurrent configparser contextlib contextvars copy copyreg crypt csv ctypes curses \
    dataclasses datetime dbm decimal difflib dis distutils doctest email encodings ensurepip enum errno faulthandler \
    fcntl filecmp fileinput fnmatch fractions ftplib functools gc genericpath getopt getpass gettext glob graphlib grp \
    gzip hashlib heapq hmac html http idlelib imaplib imghdr imp importlib inspect io ipaddress itertools json keyword \
    lib2to3 linecache locale logging lzma mailbox mailcap marshal math mimetypes mmap modulefinder msilib msvcrt \
    multiprocessing netrc nis nntplib nt ntpath nturl2path numbers opcode operator optparse os ossaudiodev pathlib pdb \
    pickle pickletools pipes pkgutil platform plistlib poplib posix posixpath pprint profile profiling pstats pty pwd \
    py_compile pyclbr pydoc pydoc_data pyexpat queue quopri random re readline reprlib resource rlcompleter runpy sched \
    secrets select selectors shelve shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 \
    sre_compile sre_constants sre_parse ssl stat statistics string stringprep struct subprocess sunau symtable sys \
    sysconfig syslog tabnanny tarfile telnetlib tempfile termios test textwrap this threading time timeit tkinter token \
    tokenize tomllib trace traceback tracemalloc tty turtle turtledemo types typing unicodedata unittest urllib uu uuid \
    venv warnings wave weakref webbrowser winreg winsound wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zlib zoneinfo ";

/// Well-known packages whose purpose is to run, test or install other code.
const TOOLS: &str = " pip setuptools pkg_resources wheel build IPython ipykernel jupyter notebook ptpython bpython pytest _pytest \
    nose nose2 xdoctest coverage debugpy ipdb pudb viztracer scalene kernprof line_profiler memory_profiler pyinstrument \
    invoke fabric nox tox hatch hatchling poetry pdm pipx uv rye virtualenv pre_commit honcho watchdog watchfiles \
    ansible celery ";

pub(super) fn judge(walk: &mut Walk<'_>) -> Judged {
    walk.options(PYTHON, &["-m"])?;
    if walk.peek() != Some("-m") {
        return walk.script();
    }
    module(walk)
}

/// Accepts `-m package` and the rest as its arguments.
pub(super) fn module(walk: &mut Walk<'_>) -> Judged {
    walk.take();
    let Some(module) = walk.take() else {
        return Err("`-m` lacks its module".into());
    };
    let first = module.split('.').next().unwrap_or_default();
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !module.split('.').all(part) {
        return Err(format!("`{}` is not the name of a module", shown(module)));
    }
    if first.starts_with('_') || in_list(STANDARD, first) {
        return Err(format!(
            "module `{module}` is part of Python itself, where no server is and much runs its arguments"
        ));
    }
    if in_list(TOOLS, first) {
        return Err(format!(
            "module `{module}` runs or installs whatever its arguments say"
        ));
    }
    walk.take_rest();
    Ok(())
}

/// On some file systems `-m Timeit` finds `timeit`.
fn in_list(list: &str, name: &str) -> bool {
    list.to_ascii_lowercase()
        .contains(&format!(" {} ", name.to_ascii_lowercase()))
}

/// A category with a dot makes Python import the module before it.
fn is_plain_warning(value: &str) -> bool {
    let (action, category) = value.split_once("::").unwrap_or((value, ""));
    ["ignore", "default", "always", "module", "once", "error", "all"].contains(&action)
        && category.chars().all(|c| c.is_ascii_alphabetic())
}

fn is_plain_setting(value: &str) -> bool {
    let name = value.split('=').next().unwrap_or_default();
    [
        "dev",
        "utf8",
        "importtime",
        "faulthandler",
        "tracemalloc",
        "no_debug_ranges",
        "frozen_modules",
        "gil",
        "int_max_str_digits",
    ]
    .contains(&name)
}
