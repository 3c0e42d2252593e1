//! How large a schema is, before anything is built of it.

use serde_json::Value;

/// The largest schema, in bytes.
pub const BYTES_MAX: usize = 256 * 1024;
/// The most JSON values in a schema, the outermost included.
pub const NODES_MAX: usize = 10_000;
/// The deepest nesting of a schema.
pub const DEPTH_MAX: usize = 64;
/// The most regular expressions in a schema.
pub const PATTERNS_MAX: usize = 100;
/// The longest regular expression, in bytes.
pub const PATTERN_LEN_MAX: usize = 4096;

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Size {
    pub(super) nodes: usize,
    pub(super) depth: usize,
    pub(super) patterns: usize,
    longest_pattern: usize,
    /// How many states the patterns may have together, roughly: their length times what they repeat.
    pub(super) pattern_states: u64,
}

/// Keywords whose values are data, not schemas.
pub(super) const LITERALS: [&str; 5] = ["enum", "const", "default", "examples", "example"];

// === impl Size ===

impl Size {
    /// Counts the values in a JSON value and how deep they stand.
    pub(super) fn of(value: &Value) -> Self {
        let mut size = Self::default();
        size.walk(value, 1);
        size
    }

    /// Why a schema of this size is not used.
    pub(super) fn refuse(&self) -> Result<(), String> {
        let over = |what: &str, is: usize, max: usize| {
            if is > max { Err(format!("{what} ({is}, the limit is {max})")) } else { Ok(()) }
        };
        over("it has too many parts", self.nodes, NODES_MAX)?;
        over("it is nested too deeply", self.depth, DEPTH_MAX)?;
        over("it has too many patterns", self.patterns, PATTERNS_MAX)?;
        over("one of its patterns is too long", self.longest_pattern, PATTERN_LEN_MAX)
    }

    // Recursion is safe: a value read from text is at most 128 deep.
    fn walk(&mut self, value: &Value, level: usize) {
        self.nodes += 1;
        match value {
            Value::Array(items) => {
                self.depth = self.depth.max(level);
                items.iter().for_each(|item| self.walk(item, level + 1));
            }
            Value::Object(members) => {
                self.depth = self.depth.max(level);
                for (key, member) in members {
                    match (key.as_str(), member) {
                        ("pattern", Value::String(pattern)) => self.pattern(pattern),
                        ("patternProperties", Value::Object(by_pattern)) => {
                            by_pattern.keys().for_each(|pattern| self.pattern(pattern));
                        }
                        _ => {}
                    }
                    self.walk(member, level + 1);
                }
            }
            _ => {}
        }
    }

    fn pattern(&mut self, pattern: &str) {
        self.patterns += 1;
        self.longest_pattern = self.longest_pattern.max(pattern.len());
        // `{1,255}` writes its part out 255 times, and one within another multiplies.
        let counts = pattern.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
        let counts =
            counts.filter_map(|(count, _)| count.rsplit(',').find(|n| !n.is_empty())?.parse::<u64>().ok());
        let states = counts.fold(pattern.len() as u64, |states, count| states.saturating_mul(count.max(1)));
        self.pattern_states = self.pattern_states.saturating_add(states);
    }
}
