//! What each provider accepts, as data.
//!
//! In: a [`Provider`]. Out: its limits and the dialect of JSON Schema it reads. Providers change their rules; this is the
//! one place to change with them. How a schema is brought into a dialect is in `schema`.

use super::Provider;

/// What a provider takes.
#[derive(Debug)]
pub(super) struct Rules {
    /// The longest name of a tool.
    pub(super) name_max: usize,
    /// The most tools of a request, where there is a limit.
    pub(super) tools_max: Option<usize>,
    /// The schemas it reads.
    pub(super) dialect: &'static Dialect,
    /// The schemas it holds the model to, where it has such a mode.
    pub(super) strict: Option<&'static Dialect>,
    /// Whether that mode is used unasked.
    pub(super) strict_by_default: bool,
}

/// A dialect of JSON Schema.
#[derive(Debug)]
pub(super) struct Dialect {
    /// The keywords it knows, beside `$ref` and `$defs`.
    pub(super) keywords: &'static [&'static str],
    pub(super) refs: Refs,
    pub(super) enums: Enums,
    pub(super) objects: Objects,
    /// The formats it knows; `None` where it takes any.
    pub(super) formats: Option<&'static [&'static str]>,
    /// One type a schema, `nullable`, and `anyOf` with nothing beside it: the subset of OpenAPI.
    pub(super) openapi: bool,
    /// Every name in `required` must be in `properties`.
    pub(super) required_declared: bool,
    /// What the names of properties must look like.
    pub(super) property_names: Names,
    /// The largest `minItems` it knows.
    pub(super) min_items_max: u64,
}

/// What becomes of references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refs {
    /// They stay, with what stands beside them.
    Keep,
    /// They are written out; only those that lead back to themselves stay, alone.
    Recursive,
    /// The same, and those that lead back stay only below a property that is not required.
    RecursiveOptional,
    /// They are written out, and those that lead back to themselves are cut.
    Never,
}

/// Which values an `enum` may list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enums {
    Any,
    StringsAndNumbers,
    Strings,
}

/// What is asked of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objects {
    /// Nothing.
    Open,
    /// `additionalProperties: false`.
    Closed,
    /// The same, and every property is required.
    ClosedAndRequired,
}

/// What the names of properties may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Any,
    /// `[A-Za-z0-9_.-]`, at most 64, for the arguments themselves.
    PlainAtRoot,
    /// `[A-Za-z_][A-Za-z0-9_]*`, at most 64, everywhere.
    Identifiers,
}

/// Everything of 2020-12 that says something about a value.
const ALL: &[&str] = &[
    "type",
    "title",
    "description",
    "enum",
    "const",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "items",
    "prefixItems",
    "contains",
    "minContains",
    "maxContains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "unevaluatedItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];
const GEMINI: &[&str] = &[
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "properties",
    "additionalProperties",
    "required",
];
const GEMINI_OPENAPI: &[&str] = &[
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "minItems",
    "maxItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "anyOf",
    "default",
];
const OLLAMA: &[&str] = &["type", "description", "properties", "required", "items", "enum", "anyOf"];
const OPENAI_STRICT: &[&str] = &[
    "type",
    "title",
    "description",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "anyOf",
];
const ANTHROPIC_STRICT: &[&str] = &[
    "type",
    "title",
    "description",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "format",
    "anyOf",
];

/// JSON Schema 2020-12 as it is.
const JSON_SCHEMA: Dialect = Dialect {
    keywords: ALL,
    refs: Refs::Keep,
    enums: Enums::Any,
    objects: Objects::Open,
    formats: None,
    openapi: false,
    required_declared: false,
    property_names: Names::Any,
    min_items_max: u64::MAX,
};
static ANTHROPIC: Dialect = Dialect { property_names: Names::PlainAtRoot, ..JSON_SCHEMA };
static WRITTEN_OUT: Dialect = Dialect { refs: Refs::Never, ..JSON_SCHEMA };
static FOR_GEMINI: Dialect = Dialect {
    keywords: GEMINI,
    refs: Refs::RecursiveOptional,
    enums: Enums::StringsAndNumbers,
    required_declared: true,
    ..JSON_SCHEMA
};
static FOR_GEMINI_OPENAPI: Dialect = Dialect {
    keywords: GEMINI_OPENAPI,
    refs: Refs::Never,
    enums: Enums::Strings,
    formats: Some(&["enum", "date-time", "float", "double", "int32", "int64"]),
    openapi: true,
    required_declared: true,
    property_names: Names::Identifiers,
    ..JSON_SCHEMA
};
static FOR_OLLAMA: Dialect = Dialect { keywords: OLLAMA, refs: Refs::Never, ..JSON_SCHEMA };
static FOR_OPENAI_STRICT: Dialect = Dialect {
    keywords: OPENAI_STRICT,
    refs: Refs::Recursive,
    objects: Objects::ClosedAndRequired,
    formats: Some(&["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"]),
    required_declared: true,
    ..JSON_SCHEMA
};
static FOR_ANTHROPIC_STRICT: Dialect = Dialect {
    keywords: ANTHROPIC_STRICT,
    refs: Refs::Recursive,
    objects: Objects::Closed,
    formats: Some(&[
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "uri",
        "ipv4",
        "ipv6",
        "uuid",
    ]),
    required_declared: true,
    property_names: Names::PlainAtRoot,
    min_items_max: 1,
    ..JSON_SCHEMA
};
static FOR_OPENAI: Dialect = JSON_SCHEMA;

// === impl Rules ===

impl Rules {
    /// The longest name for most. Gemini takes one character less, though its papers promise more.
    const NAME: usize = 64;

    pub(super) fn of(provider: Provider) -> Self {
        let plain = Self {
            name_max: Self::NAME,
            tools_max: None,
            dialect: &WRITTEN_OUT,
            strict: None,
            strict_by_default: false,
        };
        match provider {
            Provider::OpenAiChat => Self {
                tools_max: Some(128),
                dialect: &FOR_OPENAI,
                strict: Some(&FOR_OPENAI_STRICT),
                strict_by_default: true,
                ..plain
            },
            Provider::OpenAiResponses => Self {
                name_max: 128,
                dialect: &FOR_OPENAI,
                strict: Some(&FOR_OPENAI_STRICT),
                strict_by_default: true,
                ..plain
            },
            // How many strict tools a request may have is not known, so it is not used unasked.
            Provider::Anthropic => {
                Self { name_max: 128, dialect: &ANTHROPIC, strict: Some(&FOR_ANTHROPIC_STRICT), ..plain }
            }
            Provider::Gemini => Self { name_max: 63, tools_max: Some(512), dialect: &FOR_GEMINI, ..plain },
            Provider::GeminiOpenApi => {
                Self { name_max: 63, tools_max: Some(512), dialect: &FOR_GEMINI_OPENAPI, ..plain }
            }
            Provider::Mistral | Provider::Bedrock => plain,
            Provider::Ollama => Self { dialect: &FOR_OLLAMA, ..plain },
        }
    }
}

// === impl Dialect ===

impl Dialect {
    pub(super) fn accepts(&self, keyword: &str) -> bool {
        self.keywords.contains(&keyword)
    }

    /// Whether the model is held to it, so that nothing may be lost.
    pub(super) fn is_strict(&self) -> bool {
        self.objects != Objects::Open
    }
}
