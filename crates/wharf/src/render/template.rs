//! The inventory by a template of the caller's own.
//!
//! In: a template with `${…}` for values and `{% … %}` for loops and conditions. Out: its text, filled. The template is
//! trusted, the values are not: every text in them is already escaped as in [`super::markdown`].

use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value};

use super::markdown::{by_server, description, escaped};
use crate::error::{Error, Result};
use crate::registry::Route;
use crate::text::{Escaped, Foreign};

/// A template that was read and can be filled.
///
/// It knows `server_names` (comma-separated), `tool_count`, and `tools_by_server`: for each server its tools, each with
/// `name` (the one to call), `tool` (its server's name for it), `title` and `description`.
///
/// ```
/// # use wharf::render::Template;
/// let template = Template::parse(
///     "Servers: ${server_names}\n\
///      {% for server, tools in tools_by_server|items %}\n\
///      ${server} has ${tools|length} tools.\n\
///      {% endfor %}\n",
/// )?;
/// assert_eq!(template.render(&[])?, "Servers: \n");
/// # Ok::<(), wharf::Error>(())
/// ```
pub struct Template(Environment<'static>);

/// What a template can use.
const NAMES: [&str; 3] = ["server_names", "tool_count", "tools_by_server"];
/// The only template of its environment.
const NAME: &str = "template";
/// Steps that one filling may take: some hundred for each tool of a very long list.
const FUEL: u64 = 2_000_000;

// === impl Template ===

impl Template {
    /// Reads a template. An error names the line.
    pub fn parse(text: &str) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .variable_delimiters("${", "}")
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(true)
            .build();
        environment.set_syntax(syntax.map_err(|error| problem(&error))?);
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(50);
        environment.add_template_owned(NAME, text.to_owned()).map_err(|error| problem(&error))?;
        let template = Self(environment);
        template.refuse_unknown(text)?;
        Ok(template)
    }

    /// Fills it with these tools.
    pub fn render(&self, routes: &[Route]) -> Result<String> {
        let servers = by_server(routes);
        let names: Vec<String> = servers.keys().map(|server| escaped(server.as_str())).collect();
        let tools = servers.into_iter().map(|(server, routes)| {
            (escaped(server.as_str()), routes.into_iter().map(tool).collect::<Value>())
        });
        let values = Value::from_pairs([
            ("server_names", Value::from(names.join(", "))),
            ("tool_count", Value::from(routes.len())),
            ("tools_by_server", Value::from_pairs(tools)),
        ]);
        let template = self.0.get_template(NAME).map_err(|error| problem(&error))?;
        template.render(values).map_err(|error| problem(&error))
    }

    /// A name that will never have a value is a mistake even where the template does not come by it today.
    fn refuse_unknown(&self, text: &str) -> Result<()> {
        let template = self.0.get_template(NAME).map_err(|error| problem(&error))?;
        let used = template.undeclared_variables(false);
        let is_known =
            |name: &str| NAMES.contains(&name) || self.0.globals().any(|(global, _)| global == name);
        let mut unknown: Vec<&String> = used.iter().filter(|name| !is_known(name)).collect();
        unknown.sort();
        let Some(name) = unknown.first() else { return Ok(()) };
        let line = text.lines().position(|line| line.contains(name.as_str())).unwrap_or_default() + 1;
        Err(Error::Config {
            message: format!("line {line} of the template: there is no `{}`", Escaped(name)),
            hint: Some(format!("a template can use {}", NAMES.map(|name| format!("`{name}`")).join(", "))),
        })
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").finish_non_exhaustive()
    }
}

fn tool(route: &Route) -> Value {
    let title = route.tool.title.as_ref().map(Foreign::raw).unwrap_or_default();
    Value::from_pairs([
        ("name", Value::from(&*route.public)),
        ("tool", Value::from(escaped(route.tool.name.as_str()))),
        ("title", Value::from(escaped(title))),
        ("description", Value::from(description(route))),
    ])
}

fn problem(error: &minijinja::Error) -> Error {
    let place = error.line().map(|line| format!("line {line} of ")).unwrap_or_default();
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "it does not come to an end".to_owned(),
        kind => match error.detail() {
            Some(detail) => format!("{kind}: {detail}"),
            None => kind.to_string(),
        },
    };
    Error::config(format!("{place}the template: {}", Escaped(&what)))
}
