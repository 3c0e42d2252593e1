//! Words that are addressed to a model and not to whoever reads a description.
//!
//! A rule is a few words that must come in this order, not too far apart, each with its synonyms. Text is folded first:
//! without what hides in it, look-alike letters as what they look like, in lower case.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use super::names::folded;
use super::sieve::{Groups, Sieve, Sought};
use super::{Hit, Severity};
use crate::text::is_unsafe_to_show;

/// A word of a text, folded, and where it stands.
pub(super) struct Token<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) range: Range<usize>,
}

/// Words in order, each within so many words of the one before it.
pub(super) struct Phrase {
    pub(super) rule: &'static str,
    pub(super) severity: Severity,
    pub(super) within: usize,
    /// Synonyms are parted by spaces; `*` at the end stands for any ending; `@` is an address, `~` a file with secrets.
    pub(super) words: &'static [&'static str],
}

/// No more of a text is looked at: a description of this length is none.
const LONGEST: usize = 64 * 1024;

const DENY: &str =
    "not n't never without avoid avoiding don't dont nothing cannot won't shouldn't needn't doesn't";
const TELL: &str = "tell* mention* inform* reveal* disclos* notify* alert* discuss* explain* show* let say* warn* report* admit*";
const USER: &str = "user* human* person people anyone anybody them operator* customer* client";
const HAND: &str = "send* post* forward* upload* transmit* submit* deliver* copy copies pass* paste* provide* supply include* \
    attach* put place append* embed* hand add bcc cc invite* leak* share* report* read open cat retrieve* load* gather* \
    collect* fetch* extract*";
const MATTER: &str = "conversation* chat* history message* prompt* environment credential* secret* key* password* token* content* \
    file* result* detail* data output* document* line* argument*";

pub(super) static PHRASES: [Phrase; 30] = [
    high(
        "model.override",
        5,
        &[
            "ignore ignoring disregard* forget override* bypass* discard* neglect*",
            "previous prior above earlier preceding all any every everything other your safety system what existing",
            "instruction* rule rules prompt* guideline* polic* direction* directive* told command* restriction* asked constraint*",
        ],
    ),
    high("model.override", 2, &["you", "are", "now no", "in longer a an the under free"]),
    medium("model.override", 2, &["from", "now", "on", "you always"]),
    high(
        "model.override",
        3,
        &[
            "prior previous earlier safety your",
            "guideline* instruction* rule rules prompt* restriction*",
            "suspended no void obsolete lifted disabled replaced",
        ],
    ),
    high(
        "model.override",
        4,
        &["replace* reveal* leak* print* repeat* hidden your show*", "system", "prompt*"],
    ),
    high("model.override", 4, &["obey*", "server operator instruction* us directive*"]),
    medium("model.override", 2, &["new updated", "instructions", "skip follow are"]),
    medium(
        "model.approval",
        3,
        &["skip* bypass* disable* circumvent*", "confirmation* approval* consent permission*"],
    ),
    medium(
        "model.approval",
        4,
        &["approve* pre-approved authorized", "all every any", "call* purchase* request* tool* action*"],
    ),
    medium("model.override", 5, &["regardless even", "of if", "user*"]),
    high("model.secrecy", 5, &[DENY, TELL, USER]),
    high("model.secrecy", 5, &[USER, DENY, "know notice see find learn aware need"]),
    high("model.secrecy", 4, &["hidden secret hide hiding conceal* keep quiet", "from to", USER]),
    high("model.secrecy", 4, &["secretly silently quietly covertly discreetly", HAND]),
    medium("model.secrecy", 3, &["say saying", "nothing"]),
    high("model.exfiltration", 10, &[HAND, MATTER, "@"]),
    high("model.exfiltration", 5, &["bcc cc", "@"]),
    high("model.exfiltration", 5, &["@", "bcc cc"]),
    high("model.exfiltration", 8, &["@", HAND, MATTER, "there"]),
    high(
        "model.exfiltration",
        5,
        &[
            "put paste* send* include* pass* provide* supply attach* append* embed* place",
            "whole full entire complete all last every",
            "conversation* chat messages message prompt",
            "history messages far log here prompt context",
        ],
    ),
    high("model.exfiltration", 4, &["all full complete", "tool", "result* output*", "far seen previous"]),
    high("model.sensitive-file", 10, &[HAND, "~"]),
    high("model.sensitive-file", 10, &["~", HAND]),
    high(
        "model.sensitive-file",
        6,
        &[
            "read pass* send* include* paste* put provide* supply attach* append* collect* gather*",
            "user's private ssh secret",
            "keys key credentials",
        ],
    ),
    high(
        "model.sensitive-file",
        6,
        &["collect* gather* provide* supply append* paste* include*", "environment", "variable*"],
    ),
    high("model.sensitive-file", 6, &["output contents result", "of", "printenv env"]),
    medium(
        "model.precedence",
        4,
        &[
            "before prior whenever ahead prefer* instead always",
            "any every all other competing another",
            "tool* server*",
        ],
    ),
    medium("model.precedence", 4, &["must required mandatory", "first", "read call open retrieve cat"]),
    medium(
        "model.address",
        2,
        &[
            "note message instruction* attention",
            "to for",
            "the ai llm assistant model agent",
            "ai llm assistant model agent",
        ],
    ),
    medium("model.precedence", 8, &["whenever every each", "any other", "tool*", "also"]),
];

/// What only a result can do: pass itself off as ours.
pub(super) static IMITATIONS: [Phrase; 3] = [
    medium("result.imitation", 6, &["approved granted passed allowed", "policy gateway operator consent"]),
    medium("result.imitation", 6, &["policy gateway operator consent", "approved granted passed allowed"]),
    medium("result.imitation", 6, &["wharf", "approved allowed confirmed policy"]),
];

/// Marks by which providers part the roles of a conversation, and tags that pass for them.
pub(super) const MARKUP: [&str; 20] = [
    "<important",
    "</important",
    "<system",
    "</system",
    "[system]",
    "<|im_",
    "<|start",
    "<|end",
    "<|system",
    "[inst]",
    "<<sys>>",
    "###instruction",
    "### instruction",
    "<instruction",
    "<assistant",
    "<hidden",
    "<secret",
    "</tool",
    "<developer",
    "system note:",
];
/// Somebody is spoken to who does not read descriptions.
pub(super) const CALLED: [&str; 6] =
    ["assistant:", "assistant,", "(ai:", "\nai:", "ai assistant:", "dear ai"];
/// Files in which secrets are.
pub(super) const FILES: [&str; 22] = [
    ".ssh",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    ".aws/",
    "/.env",
    "mcp.json",
    ".cursor/",
    ".npmrc",
    ".netrc",
    ".gnupg",
    ".kube/config",
    "/etc/passwd",
    "/etc/shadow",
    ".pgpass",
    ".git-credentials",
    "wallet.dat",
    ".bash_history",
    ".zsh_history",
    ".docker/config",
    "claude_desktop_config",
    "keychain-db",
];
/// One of them is in the name of each.
pub(super) const SIGNS: [u8; 4] = *b"._/-";

static SIEVE: LazyLock<Sieve> = LazyLock::new(Sieve::new);

pub(super) fn hits(text: &str, is_result: bool) -> Vec<Hit> {
    let text = &text[..text.floor_char_boundary(LONGEST)];
    let mut hits = Vec::new();
    // A single word is no instruction, and most strings of a schema are one.
    if is_one_word(text) {
        return hits;
    }
    let sieve = &*SIEVE;
    sieve.markup(text, &mut hits);
    let words = tokens(text);
    let groups: Vec<Groups> = words.iter().map(|word| sieve.groups(&word.text)).collect();
    let there = groups.iter().fold(0, |there, groups| there | groups);
    let mut look = |phrases: &[Sought]| {
        let may_be = phrases.iter().filter(|sought| sought.all & !there == 0);
        hits.extend(may_be.filter_map(|sought| sought.find(&words, &groups)));
    };
    look(&sieve.anywhere);
    if is_result {
        look(&sieve.in_results);
    }
    hits
}

fn is_one_word(text: &str) -> bool {
    // Whatever is not ASCII may be a space.
    let parts = |b: u8| matches!(b, b'\t'..=b'\r' | b' ' | b'<' | b'[' | 0x80..);
    !text.bytes().any(parts) || !text.contains(|c: char| c.is_whitespace() || c == '<' || c == '[')
}

/// The words of a text. A path, an address and a name of a tool are each one word.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let inner = |c: char| match c {
        '_' | '-' | '.' | '/' | '~' | '@' | ':' | '\'' | '’' | '?' | '=' | '&' | '\\' => true,
        c if c.is_ascii() => c.is_ascii_alphanumeric() || (c.is_ascii_control() && !c.is_whitespace()),
        c => c.is_alphanumeric() || (is_unsafe_to_show(c) && !c.is_whitespace()),
    };
    let mut tokens = Vec::with_capacity(text.len() / 6 + 1);
    let mut from = 0;
    while let Some(start) = text[from..].find(inner).map(|at| from + at) {
        let end = text[start..].find(|c| !inner(c)).map_or(text.len(), |at| start + at);
        let word = &text[start..end];
        let trimmed = word.trim_end_matches(['.', ':', '\'', '?', '/', '\\']);
        let lead = trimmed.len() - trimmed.trim_start_matches(['\'', ':', '-']).len();
        let range = start + lead..start + trimmed.len();
        if !range.is_empty() {
            tokens.push(Token { text: fold(&text[range.clone()]), range });
        }
        from = end;
    }
    tokens
}

fn fold(word: &str) -> Cow<'_, str> {
    // Most words are as they would be.
    if word.bytes().all(|b| matches!(b, b'!'..=b'@' | b'['..=b'~')) {
        return Cow::Borrowed(word);
    }
    let seen = word.chars().filter(|c| !is_unsafe_to_show(*c));
    let folded = seen.map(|c| if c == '’' { '\'' } else { folded(c).unwrap_or(c) });
    Cow::Owned(folded.flat_map(char::to_lowercase).collect())
}

const fn high(rule: &'static str, within: usize, words: &'static [&'static str]) -> Phrase {
    Phrase { rule, severity: Severity::High, within, words }
}

const fn medium(rule: &'static str, within: usize, words: &'static [&'static str]) -> Phrase {
    Phrase { rule, severity: Severity::Medium, within, words }
}
