//! Which form a model wants.

/// A provider's way to write tools and tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// OpenAI Chat Completions, and the many that follow it.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini, with `parametersJsonSchema`.
    Gemini,
    /// Gemini, with the older `parameters` in its subset of OpenAPI.
    GeminiOpenApi,
    /// Mistral.
    Mistral,
    /// Amazon Bedrock Converse.
    Bedrock,
    /// Ollama.
    Ollama,
}
