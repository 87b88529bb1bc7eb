//! Owns: the fields of a chat completion's body, as a table.
//! Invariants: a field that is not here is refused; one that changes nothing is taken only with the value that asks for nothing.

use super::super::fields::{BIAS, FUNCTION, POSITIVE, RESPONSE_FORMAT, STREAM_OPTIONS, TOP};
use crate::api::common;
use crate::shape::{ANY_WHOLE, Field, Fields, Kind, TEXT_OR_TEXTS};

const TEXT_PART: Fields = Fields::strict(
    "TextPart",
    &[
        Field::required("type", Kind::Choice(&["text", "input_text", "output_text"]), "What it is."),
        Field::required("text", Kind::Text, "The text."),
        Field::inert("annotations", Kind::List(&Kind::Anything)),
        Field::inert("cache_control", Kind::Map),
    ],
);

const REFUSAL_PART: Fields = Fields::strict(
    "RefusalPart",
    &[
        Field::required("type", Kind::Choice(&["refusal"]), "What the assistant said instead of an answer."),
        Field::required("refusal", Kind::Text, "The text."),
    ],
);

const PICTURE_PART: Fields = Fields::open(
    "PicturePart",
    &[Field::required("type", Kind::Choice(&["image_url", "image", "input_image"]), "A picture, which is refused.")],
);

const CONTENT: Kind = Kind::Either(&[
    Kind::Text,
    Kind::List(&Kind::Tagged(&[
        ("text", &TEXT_PART),
        ("input_text", &TEXT_PART),
        ("output_text", &TEXT_PART),
        ("refusal", &REFUSAL_PART),
        ("image_url", &PICTURE_PART),
        ("image", &PICTURE_PART),
        ("input_image", &PICTURE_PART),
    ])),
]);

const CALLED: Fields = Fields::strict(
    "CalledFunction",
    &[
        Field::required("name", Kind::Text, "The function."),
        Field::new("arguments", Kind::Text, "Its arguments, a JSON object as text; empty is `{}`."),
        Field::inert("provider_specific_fields", Kind::Map),
    ],
);

const TOOL_CALL: Fields = Fields::strict(
    "ToolCall",
    &[
        Field::new("id", Kind::Text, "The call's id."),
        Field::new("type", Kind::Only("\"function\""), "Its type."),
        Field::required("function", Kind::Object(&CALLED), "What was called."),
        Field::inert("index", ANY_WHOLE),
        Field::inert("provider_specific_fields", Kind::Map),
    ],
);

const MESSAGE: Fields = Fields::strict(
    "Message",
    &[
        Field::required("role", Kind::Choice(&["system", "developer", "user", "assistant", "tool"]), "Who speaks."),
        Field::new("content", CONTENT, "What is said: a text or parts."),
        Field::new("name", Kind::Text, "On a tool's message: the function, as in its call."),
        Field::new("tool_calls", Kind::List(&Kind::Object(&TOOL_CALL)), "On the assistant's: calls that it made."),
        Field::new("tool_call_id", Kind::Text, "On a tool's message: the call that it answers."),
        Field::new("reasoning_content", Kind::Text, "On the assistant's: its thoughts."),
        Field::new("reasoning", Kind::Text, "The same by another name."),
        Field::inert("refusal", Kind::Only("null")),
        Field::inert("audio", Kind::Only("null")),
        Field::inert("function_call", Kind::Only("null")),
        Field::inert("annotations", Kind::List(&Kind::Anything)),
        Field::inert("provider_specific_fields", Kind::Map),
    ],
);

const TOOL: Fields = Fields::strict(
    "Tool",
    &[
        Field::required("type", Kind::Only("\"function\""), "Its type."),
        Field::required("function", Kind::Object(&FUNCTION), "The function."),
    ],
);

const NAMED: Fields = Fields::strict(
    "NamedTool",
    &[
        Field::required("type", Kind::Only("\"function\""), "Its type."),
        Field::required(
            "function",
            Kind::Object(&Fields::strict("FunctionName", &[Field::required("name", Kind::Text, "Its name.")])),
            "The function.",
        ),
    ],
);

const OPTIONS: Fields = Fields::strict(
    "WindowOption",
    &[Field::new("num_ctx", Kind::Whole(1, i128::MAX), "Most tokens of prompt and reply, up to the model's window.")],
);

const TEMPLATE: Fields = Fields::strict(
    "TemplateOptions",
    &[
        Field::new("enable_thinking", Kind::Flag, "Whether the model thinks first."),
        Field::new("reasoning_effort", Kind::Text, "How hard."),
        Field::new("preserve_thinking", Kind::Flag, "Whether earlier thoughts stay in the prompt."),
    ],
);

/// The body.
pub const BODY: Fields = Fields::strict(
    "ChatCompletionRequest",
    &[
        Field::new("model", Kind::Text, "The model's name; left out, it is the one that there is."),
        Field::required("messages", Kind::List(&Kind::Object(&MESSAGE)), "The conversation."),
        Field::new("stream", Kind::Flag, "Whether the reply comes in pieces."),
        Field::new("stream_options", Kind::Object(&STREAM_OPTIONS), "What a stream tells at its end."),
        common::TEMPERATURE,
        common::TOP_P,
        common::TOP_K,
        common::MIN_P,
        common::PRESENCE,
        common::FREQUENCY,
        Field::new("repetition_penalty", Kind::Real(0.5, 2.0), "Divides the logits of tokens seen before; 1 is off."),
        Field::new("logit_bias", BIAS, "Token ids, and what is added to their logits, -100 to 100."),
        common::SEED,
        Field::new("max_tokens", POSITIVE, "Most tokens of the reply."),
        Field::new("max_completion_tokens", POSITIVE, "The same; it wins."),
        Field::new("stop", TEXT_OR_TEXTS, "Strings that end the answer; they are left out of it."),
        Field::new("logprobs", Kind::Flag, "Whether each token's likelihood is told."),
        Field::new("top_logprobs", TOP, "How many alternatives are told with it."),
        Field::new("response_format", Kind::Object(&RESPONSE_FORMAT), "What the answer must be; it is enforced."),
        Field::new("tools", Kind::List(&Kind::Object(&TOOL)), "Functions that the model may call."),
        Field::new(
            "tool_choice",
            Kind::Either(&[Kind::Choice(&["auto", "none", "required"]), Kind::Object(&NAMED)]),
            "Whether it calls one.",
        ),
        Field::new("parallel_tool_calls", Kind::Flag, "Whether it may call several."),
        Field::new("reasoning_effort", Kind::Text, "How hard the model thinks: none, low, medium, high, xhigh or max."),
        Field::new("think", Kind::Flag, "Whether the model thinks first."),
        Field::new("chat_template_kwargs", Kind::Object(&TEMPLATE), "Variables of the chat template."),
        Field::new("options", Kind::Object(&OPTIONS), "A smaller window."),
        Field::inert("n", Kind::Only("1")),
        Field::inert("best_of", Kind::Only("1")),
        Field::inert("store", Kind::Only("false")),
        Field::inert("modalities", Kind::Only("[\"text\"]")),
        Field::inert("prediction", Kind::Only("null")),
        Field::inert("user", Kind::Text),
        Field::inert("metadata", Kind::Map),
        Field::inert("prompt_cache_key", Kind::Text),
        Field::inert("prompt_cache_retention", Kind::Text),
        Field::inert("safety_identifier", Kind::Text),
        Field::inert("service_tier", Kind::Text),
        Field::inert("verbosity", Kind::Text),
        Field::inert("cache_prompt", Kind::Flag),
    ],
);
