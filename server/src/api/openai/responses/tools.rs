//! Owns: the tools of a request, the names that the model knows them by, and the choice among them.
//! Refuses: tools that this server cannot offer, and a choice of one that is not offered.
//! Invariants: a call in the reply has the type, name and namespace that its tool was declared with.

use serde_json::{Value, json};

use crate::api::common::{Object, list, text};
use crate::api::openai::fields::tool;
use crate::refusal::Refusal;
use crate::request::{Tool, ToolChoice};
use crate::shape::{Field, Fields, Kind};

/// What may be offered.
pub const TOOLS: Kind = Kind::List(&Kind::Tagged(&[
    ("function", &FUNCTION),
    ("custom", &CUSTOM),
    ("namespace", &NAMESPACE),
    ("web_search*", &SEARCH),
    ("file_search", &SEARCH),
]));

/// Whether one is called.
pub const CHOICE: Kind = Kind::Either(&[
    Kind::Choice(&["auto", "none", "required"]),
    Kind::Tagged(&[("function", &NAMED_FUNCTION), ("custom", &NAMED_CUSTOM), ("allowed_tools", &ALLOWED)]),
]);

const FUNCTION: Fields = Fields::strict(
    "FunctionTool",
    &[
        Field::required("type", Kind::Only("\"function\""), "Its type."),
        Field::required("name", Kind::Text, "Its name."),
        Field::new("description", Kind::Text, "What it does."),
        Field::new("parameters", Kind::Map, "JSON Schema of its arguments."),
        Field::new("strict", Kind::Flag, "Whether arguments are held to the schema."),
        Field::inert("output_schema", Kind::Anything),
        Field::inert("defer_loading", Kind::Flag),
    ],
);

const ANY_INPUT: Fields = Fields::strict("TextInput", &[Field::required("type", Kind::Only("\"text\""), "Any text.")]);

const GRAMMAR_INPUT: Fields = Fields::strict(
    "GrammarInput",
    &[
        Field::required("type", Kind::Only("\"grammar\""), "Text of a grammar; the model is told it."),
        Field::required("syntax", Kind::Choice(&["lark", "regex"]), "The grammar's notation."),
        Field::required("definition", Kind::Text, "The grammar."),
    ],
);

const CUSTOM: Fields = Fields::strict(
    "CustomTool",
    &[
        Field::required("type", Kind::Only("\"custom\""), "Its type."),
        Field::required("name", Kind::Text, "Its name."),
        Field::new("description", Kind::Text, "What it does."),
        Field::new("format", Kind::Tagged(&[("text", &ANY_INPUT), ("grammar", &GRAMMAR_INPUT)]), "What it is given."),
        Field::inert("defer_loading", Kind::Flag),
    ],
);

const NAMESPACE: Fields = Fields::strict(
    "NamespaceTool",
    &[
        Field::required("type", Kind::Only("\"namespace\""), "Its type."),
        Field::required("name", Kind::Text, "What its members' names begin with."),
        Field::new("description", Kind::Text, "What its members are for."),
        Field::required(
            "tools",
            Kind::List(&Kind::Tagged(&[("function", &FUNCTION), ("custom", &CUSTOM)])),
            "Its members.",
        ),
    ],
);

const SEARCH: Fields = Fields::open(
    "SearchTool",
    &[
        Field::required("type", Kind::Text, "A search that this server does not do: the model is not told of it."),
        Field::inert("external_web_access", Kind::Anything),
        Field::inert("search_context_size", Kind::Anything),
        Field::inert("search_content_types", Kind::Anything),
        Field::inert("user_location", Kind::Anything),
        Field::inert("filters", Kind::Anything),
    ],
);

const NAME: Field = Field::required("name", Kind::Text, "Its name.");
const OF_NAMESPACE: Field = Field::new("namespace", Kind::Text, "Its namespace.");

const NAMED_FUNCTION: Fields = Fields::strict(
    "NamedFunction",
    &[Field::required("type", Kind::Only("\"function\""), "Its type."), NAME, OF_NAMESPACE],
);

const NAMED_CUSTOM: Fields = Fields::strict(
    "NamedCustomTool",
    &[Field::required("type", Kind::Only("\"custom\""), "Its type."), NAME, OF_NAMESPACE],
);

const ALLOWED: Fields = Fields::strict(
    "AllowedTools",
    &[
        Field::required("type", Kind::Only("\"allowed_tools\""), "Its type."),
        Field::required("mode", Kind::Choice(&["auto", "required"]), "Whether one of them is called."),
        Field::required(
            "tools",
            Kind::List(&Kind::Tagged(&[("function", &NAMED_FUNCTION), ("custom", &NAMED_CUSTOM)])),
            "The tools that the model is told of.",
        ),
    ],
);

/// The one parameter of a tool that takes free text.
pub const INPUT: &str = "input";

/// What a member of a namespace is called by.
pub fn full_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}.{name}"))
}

/// A tool that is offered.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The tool as the model is told of it.
    pub tool: Tool,
    /// Its own name.
    pub name: String,
    /// The namespace that declares it.
    pub namespace: Option<String>,
    /// Whether it takes free text.
    pub custom: bool,
}

/// The tools that are offered.
#[derive(Clone, Debug, Default)]
pub struct Offered(Vec<Entry>);

impl Offered {
    /// The tools of a checked body.
    ///
    /// # Errors
    /// Names a tool without a name.
    pub fn read(fields: &Object) -> Result<Self, Refusal> {
        let mut offered = Offered::default();
        for (at, declared) in list(fields, "tools").iter().enumerate() {
            let Some(declared) = declared.as_object() else { continue };
            match text(declared, "type") {
                Some("namespace") => {
                    for (place, member) in list(declared, "tools").iter().enumerate() {
                        let Some(member) = member.as_object() else { continue };
                        offered.add(member, Some(declared), &format!("tools[{at}].tools[{place}]"))?;
                    }
                }
                Some("function" | "custom") => offered.add(declared, None, &format!("tools[{at}]"))?,
                _ => {}
            }
        }
        Ok(offered)
    }

    fn add(&mut self, declared: &Object, namespace: Option<&Object>, path: &str) -> Result<(), Refusal> {
        let custom = text(declared, "type") == Some("custom");
        let mut offered = if custom { freeform(declared) } else { tool(declared) };
        let name = offered.name.clone();
        let space = namespace.and_then(|namespace| text(namespace, "name")).map(str::to_owned);
        if name.is_empty() {
            let path = format!("{path}.name");
            return Err(Refusal::field(&path, format!("`{path}` must not be empty")));
        }
        offered.name = full_name(space.as_deref(), &name);
        let is_first = self.0.last().is_none_or(|entry| entry.namespace != space);
        if let Some(about) = namespace.and_then(|namespace| text(namespace, "description")).filter(|_| is_first) {
            // The model is told of members alone: what they are for together is said once, with the first.
            let own = offered.description.take().map_or_else(String::new, |own| format!("\n\n{own}"));
            offered.description = Some(format!("{about}{own}"));
        }
        self.0.push(Entry { tool: offered, name, namespace: space, custom });
        Ok(())
    }

    /// The tool that the model calls by this name.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.tool.name == name)
    }

    /// The tools that the model is told of, and whether it is to call one.
    ///
    /// # Errors
    /// When the choice names a tool that is not offered.
    pub fn choose(&self, fields: &Object) -> Result<(Vec<Tool>, ToolChoice), Refusal> {
        let all = || self.0.iter().map(|entry| entry.tool.clone()).collect();
        match fields.get("tool_choice") {
            Some(Value::String(word)) => Ok((
                all(),
                match word.as_str() {
                    "none" => ToolChoice::None,
                    "required" => ToolChoice::Required,
                    _ => ToolChoice::Auto,
                },
            )),
            Some(Value::Object(choice)) if text(choice, "type") == Some("allowed_tools") => self.allowed(choice),
            Some(Value::Object(choice)) => {
                Ok((all(), ToolChoice::Named(self.named(choice, "tool_choice")?.tool.name.clone())))
            }
            _ => Ok((all(), ToolChoice::Auto)),
        }
    }

    fn allowed(&self, choice: &Object) -> Result<(Vec<Tool>, ToolChoice), Refusal> {
        let mut names = Vec::new();
        for (at, named) in list(choice, "tools").iter().enumerate() {
            let Some(named) = named.as_object() else { continue };
            names.push(self.named(named, &format!("tool_choice.tools[{at}]"))?.tool.name.as_str());
        }
        if names.is_empty() {
            return Err(Refusal::field("tool_choice.tools", "`tool_choice.tools` is empty: it must name a tool"));
        }
        let kept = self.0.iter().filter(|entry| names.contains(&entry.tool.name.as_str()));
        let mode = if text(choice, "mode") == Some("required") { ToolChoice::Required } else { ToolChoice::Auto };
        Ok((kept.map(|entry| entry.tool.clone()).collect(), mode))
    }

    fn named(&self, choice: &Object, path: &str) -> Result<&Entry, Refusal> {
        let name = full_name(text(choice, "namespace"), text(choice, "name").unwrap_or_default());
        let kind = text(choice, "type").unwrap_or("function");
        self.find(&name).filter(|entry| entry.custom == (kind == "custom")).ok_or_else(|| {
            let name: String = name.chars().take(64).collect();
            Refusal::field(path, format!("`{path}` names the {kind} tool `{name}`, which `tools` does not declare"))
        })
    }
}

/// A tool that takes free text, as a function with one text.
fn freeform(declared: &Object) -> Tool {
    let mut about: Vec<String> = text(declared, "description").map(str::to_owned).into_iter().collect();
    let format = declared.get("format").and_then(Value::as_object);
    if let Some((syntax, definition)) =
        format.and_then(|format| Some((text(format, "syntax")?, text(format, "definition")?)))
    {
        let notation = if syntax == "regex" { "this regular expression" } else { "this grammar in Lark's notation" };
        about.push(format!("`{INPUT}` must match {notation}:\n{definition}"));
    }
    Tool {
        name: text(declared, "name").unwrap_or_default().to_owned(),
        description: (!about.is_empty()).then(|| about.join("\n\n")),
        parameters: json!({
            "type": "object",
            "properties": { INPUT: { "type": "string" } },
            "required": [INPUT],
            "additionalProperties": false,
        }),
        strict: false,
    }
}
