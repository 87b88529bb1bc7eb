//! Owns: the request model that every dialect is turned into, and that nothing behind it knows a dialect by.
//! Refuses: JSON, HTTP.
//! Invariants: what a client asked for is here in full or was refused.

use serde_json::{Map, Value};

use crate::{SamplingRequest, Thinking};

/// What a reply is made to.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A conversation in the template's form.
    Chat(Vec<Value>),
    /// Text that is continued as it is.
    Text(String),
    /// Ids that are continued as they are.
    Ids(Vec<u32>),
}

/// A function that is offered.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// Whether the arguments are held to the schema.
    pub strict: bool,
}

impl Tool {
    /// The tool in the template's form.
    pub fn rendered(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".to_owned(), Value::from(self.name.as_str()));
        if let Some(description) = &self.description {
            function.insert("description".to_owned(), Value::from(description.as_str()));
        }
        function.insert("parameters".to_owned(), self.parameters.clone());
        serde_json::json!({ "type": "function", "function": function })
    }
}

/// Whether a function is to be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// None: the tools are not shown.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// What the answer's text must be.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Format {
    /// Any text.
    #[default]
    Text,
    /// A JSON object.
    Json,
    /// JSON that a schema allows.
    Schema(Value),
    /// Text that a regular expression matches.
    Regex(String),
    /// Text of a grammar in Lark's notation.
    Grammar(String),
}

/// A request for a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// What it is made to.
    pub input: Input,
    /// Functions offered.
    pub tools: Vec<Tool>,
    /// Whether one is to be called.
    pub choice: ToolChoice,
    /// Whether several may be called.
    pub parallel: bool,
    /// Whether the model thinks first.
    pub thinking: Thinking,
    /// More variables of the template.
    pub variables: Map<String, Value>,
    /// Sampler settings.
    pub sampling: SamplingRequest,
    /// Most tokens of the reply.
    pub max_tokens: Option<u32>,
    /// Most tokens of prompt and reply.
    pub window: Option<u32>,
    /// Strings that end the answer.
    pub stops: Vec<String>,
    /// What the answer must be.
    pub format: Format,
    /// How many alternatives are told of each token; none: no probabilities.
    pub logprobs: Option<u8>,
    /// Whether probabilities of the prompt's tokens are told.
    pub prompt_logprobs: bool,
}

impl Generation {
    /// A reply to `input` with every setting at its default.
    pub fn new(input: Input) -> Self {
        Generation {
            input,
            tools: Vec::new(),
            choice: ToolChoice::Auto,
            parallel: true,
            thinking: Thinking::Off,
            variables: Map::new(),
            sampling: SamplingRequest::default(),
            max_tokens: None,
            window: None,
            stops: Vec::new(),
            format: Format::Text,
            logprobs: None,
            prompt_logprobs: false,
        }
    }

    /// Whether tools are shown to the model.
    pub fn shows_tools(&self) -> bool {
        !self.tools.is_empty() && self.choice != ToolChoice::None
    }
}
