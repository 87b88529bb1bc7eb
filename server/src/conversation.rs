//! Owns: a conversation as every dialect builds it, and its form for the chat template (server.md sections 6, 8, 9, 10).
//! Refuses: calls without results, results without calls, ids used twice, and a conversation that ends with the model's words.
//! Invariants: results follow their calls in call order, whatever order they came in (the template is positional); a system
//! message after the beginning is the user's text in its place.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value, json};

use crate::refusal::Refusal;

/// A call that the model made earlier.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeCall {
    /// The client's id of it; some APIs have none.
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

/// What the model said earlier.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// Its thoughts.
    pub reasoning: String,
    /// Its answer.
    pub text: String,
    /// Its calls.
    pub calls: Vec<MadeCall>,
}

/// A result of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallResult {
    /// The id of its call.
    pub id: Option<String>,
    /// The function.
    pub name: Option<String>,
    /// The result.
    pub text: String,
}

/// A conversation being built.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    system: Vec<String>,
    turns: Vec<Value>,
    /// Calls of the last turn, with their results.
    open: Vec<(MadeCall, Option<String>)>,
    /// Where in them an id is, and the functions' names, in call order: conversations of a hundred thousand calls come.
    by_id: HashMap<String, usize>,
    by_name: HashMap<String, VecDeque<usize>>,
    /// Calls before this one have results.
    answered: usize,
    /// Ids of all calls so far.
    ids: HashSet<String>,
}

impl Conversation {
    /// A system or developer message.
    ///
    /// # Errors
    /// When calls before it have no result.
    pub fn system(&mut self, text: String, path: &str) -> Result<(), Refusal> {
        self.settle(path)?;
        match self.turns.is_empty() {
            true => self.system.push(text),
            false => self.turns.push(json!({ "role": "user", "content": text })),
        }
        Ok(())
    }

    /// A user's message.
    ///
    /// # Errors
    /// When calls before it have no result.
    pub fn user(&mut self, text: String, path: &str) -> Result<(), Refusal> {
        self.settle(path)?;
        self.turns.push(json!({ "role": "user", "content": text }));
        Ok(())
    }

    /// The model's message.
    ///
    /// # Errors
    /// When calls before it have no result, or an id was used before.
    pub fn assistant(&mut self, said: Said, path: &str) -> Result<(), Refusal> {
        self.settle(path)?;
        for call in &said.calls {
            if let Some(id) = &call.id
                && !self.ids.insert(id.clone())
            {
                return Err(Refusal::field(
                    path,
                    format!("`{path}` uses the call id `{id}` again: each call needs its own"),
                ));
            }
        }
        let mut message = json!({ "role": "assistant", "content": said.text });
        if !said.reasoning.is_empty() {
            message["reasoning_content"] = json!(said.reasoning);
        }
        if !said.calls.is_empty() {
            let call = |call: &MadeCall| json!({ "type": "function", "function": { "name": call.name, "arguments": call.arguments } });
            message["tool_calls"] = said.calls.iter().map(call).collect();
        }
        self.turns.push(message);
        (self.by_id, self.by_name, self.answered) = (HashMap::new(), HashMap::new(), 0);
        for (at, call) in said.calls.iter().enumerate() {
            self.by_id.extend(call.id.clone().map(|id| (id, at)));
            self.by_name.entry(call.name.clone()).or_default().push_back(at);
        }
        self.open = said.calls.into_iter().map(|call| (call, None)).collect();
        Ok(())
    }

    /// The result of a call: by its id, else by its function's name, else of the first call without one.
    ///
    /// # Errors
    /// When there is no such call, or it has a result.
    pub fn result(&mut self, result: CallResult, path: &str) -> Result<(), Refusal> {
        let CallResult { id, name, text } = result;
        let at = match (&id, &name) {
            (Some(id), _) => self.by_id.get(id).copied(),
            (None, Some(name)) => self.first_of(name),
            (None, None) => self.first_open(),
        };
        let wanted = id.as_deref().or(name.as_deref()).unwrap_or("a call");
        let Some((call, done)) = at.and_then(|at| self.open.get_mut(at)) else {
            return Err(Refusal::field(
                path,
                format!("`{path}` is the result of `{wanted}`, which was not called just before it"),
            ));
        };
        if done.is_some() {
            return Err(Refusal::field(path, format!("`{path}` is a second result of the call `{wanted}`")));
        }
        if let Some(name) = name.filter(|name| id.is_some() && *name != call.name) {
            let called = &call.name;
            return Err(Refusal::field(path, format!("`{path}` names `{name}`, but its call is of `{called}`")));
        }
        *done = Some(text);
        Ok(())
    }

    /// The first call of a function that has no result yet.
    fn first_of(&mut self, name: &str) -> Option<usize> {
        let calls = self.by_name.get_mut(name)?;
        while calls.front().is_some_and(|&at| self.open.get(at).is_none_or(|(_, done)| done.is_some())) {
            calls.pop_front();
        }
        calls.front().copied()
    }

    /// The first call that has no result yet.
    fn first_open(&mut self) -> Option<usize> {
        while self.open.get(self.answered).is_some_and(|(_, done)| done.is_some()) {
            self.answered += 1;
        }
        (self.answered < self.open.len()).then_some(self.answered)
    }

    /// Whether the last turn called functions and not every result is here.
    pub fn awaits_results(&self) -> bool {
        self.open.iter().any(|(_, result)| result.is_none())
    }

    /// The conversation in the template's form.
    ///
    /// # Errors
    /// When calls have no result, there is no message, or the last is the model's.
    pub fn finish(self, path: &str) -> Result<Vec<Value>, Refusal> {
        if self.awaits_results() {
            return Err(self.unanswered(path));
        }
        let messages = self.finish_anywhere(path)?;
        match messages.last() {
            Some(last) if last["role"] == "assistant" => Err(Refusal::field(
                path,
                format!(
                    "`{path}` ends with the assistant's words: going on with a reply is not supported; add a user message"
                ),
            )),
            _ => Ok(messages),
        }
    }

    /// As [`Conversation::finish`], whoever spoke last: calls at the very end may still be without results.
    ///
    /// # Errors
    /// When only some calls have results, or there is no message.
    pub fn finish_anywhere(mut self, path: &str) -> Result<Vec<Value>, Refusal> {
        if self.open.iter().all(|(_, result)| result.is_none()) {
            self.open.clear();
        }
        self.settle(path)?;
        let system: Vec<String> = std::mem::take(&mut self.system);
        let mut messages = Vec::new();
        if !system.is_empty() {
            messages.push(json!({ "role": "system", "content": system.join("\n\n") }));
        }
        messages.append(&mut self.turns);
        match messages.iter().all(|message| message["role"] == "system") {
            true => Err(Refusal::field(path, format!("`{path}` needs at least one message of the user"))),
            false => Ok(messages),
        }
    }

    /// Writes the results of the last calls, in call order.
    fn settle(&mut self, path: &str) -> Result<(), Refusal> {
        if self.awaits_results() {
            return Err(self.unanswered(path));
        }
        (self.by_id, self.by_name, self.answered) = (HashMap::new(), HashMap::new(), 0);
        let results = std::mem::take(&mut self.open).into_iter().filter_map(|(_, text)| text);
        self.turns.extend(results.map(|text| json!({ "role": "tool", "content": text })));
        Ok(())
    }

    fn unanswered(&self, path: &str) -> Refusal {
        let missing = self.open.iter().filter(|(_, result)| result.is_none());
        let missing: Vec<&str> = missing.map(|(call, _)| call.id.as_deref().unwrap_or(&call.name)).collect();
        let missing = missing.join("`, `");
        Refusal::field(
            path,
            format!(
                "`{path}` follows calls without a result: `{missing}`; each call needs one before the next message"
            ),
        )
    }
}

/// Adds a sentence to the system text of a conversation in the template's form.
pub fn instruct(messages: &mut Vec<Value>, sentence: &str) {
    if let Some(first) = messages.first_mut().filter(|first| first["role"] == "system") {
        let text = first["content"].as_str().unwrap_or_default().to_owned();
        first["content"] = json!(if text.is_empty() { sentence.to_owned() } else { format!("{text}\n\n{sentence}") });
    } else {
        messages.insert(0, json!({ "role": "system", "content": sentence }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, name: &str) -> MadeCall {
        MadeCall { id: Some(id.into()), name: name.into(), arguments: Map::new() }
    }

    fn result(id: &str, text: &str) -> CallResult {
        CallResult { id: Some(id.into()), name: None, text: text.into() }
    }

    fn two_calls() -> Conversation {
        let mut talk = Conversation::default();
        talk.user("go".into(), "messages").unwrap();
        talk.assistant(Said { calls: vec![call("a", "f"), call("b", "g")], ..Said::default() }, "messages").unwrap();
        talk
    }

    #[test]
    fn results_come_in_call_order() {
        let mut talk = two_calls();
        talk.result(result("b", "second"), "messages").unwrap();
        talk.result(result("a", "first"), "messages").unwrap();
        let messages = talk.finish("messages").unwrap();
        let texts: Vec<_> = messages[2..].iter().map(|message| message["content"].clone()).collect();
        assert_eq!(texts, ["first", "second"]);
    }

    #[test]
    fn a_result_needs_its_call_and_a_call_its_result() {
        let mut orphan = Conversation::default();
        assert!(orphan.result(result("a", ""), "messages").unwrap_err().message.contains("was not called"));
        let mut twice = two_calls();
        twice.result(result("a", ""), "messages").unwrap();
        assert!(twice.result(result("a", ""), "messages").unwrap_err().message.contains("second result"));
        assert!(twice.clone().user("x".into(), "messages").unwrap_err().message.contains("`b`"));
        assert!(twice.finish("messages").unwrap_err().message.contains("`b`"));
    }

    /// Ten times as many calls take ten times as long, not a hundred times.
    #[test]
    fn many_results_in_any_order_are_found_at_once() {
        const CALLS: usize = 100_000;
        let by_id = |at: usize| result(&at.to_string(), "r");
        let by_name = |_| CallResult { id: None, name: Some("f".into()), text: "r".into() };
        let by_order = |_| CallResult { id: None, name: None, text: "r".into() };
        let ways: [&dyn Fn(usize) -> CallResult; 3] = [&by_id, &by_name, &by_order];
        for way in ways {
            let begun = std::time::Instant::now();
            let mut talk = Conversation::default();
            talk.user("go".into(), "m").unwrap();
            let calls = (0..CALLS).map(|at| call(&at.to_string(), "f")).collect();
            talk.assistant(Said { calls, ..Said::default() }, "m").unwrap();
            (0..CALLS).rev().for_each(|at| talk.result(way(at), "m").unwrap());
            assert_eq!(talk.finish("m").unwrap().len(), CALLS + 2);
            assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        }
    }

    #[test]
    fn an_id_is_used_once() {
        let mut talk = two_calls();
        talk.result(result("a", ""), "messages").unwrap();
        talk.result(result("b", ""), "messages").unwrap();
        let again = Said { calls: vec![call("a", "f")], ..Said::default() };
        assert!(talk.assistant(again, "messages").unwrap_err().message.contains("again"));
    }

    #[test]
    fn a_late_system_message_is_the_users_text() {
        let mut talk = Conversation::default();
        talk.system("one".into(), "m").unwrap();
        talk.system("two".into(), "m").unwrap();
        talk.user("hi".into(), "m").unwrap();
        talk.system("three".into(), "m").unwrap();
        let messages = talk.finish("m").unwrap();
        assert_eq!(messages[0], json!({ "role": "system", "content": "one\n\ntwo" }));
        assert_eq!(messages[2], json!({ "role": "user", "content": "three" }));
    }

    #[test]
    fn a_conversation_needs_a_user_at_its_end() {
        assert!(Conversation::default().finish("m").is_err());
        let mut talk = Conversation::default();
        talk.user("hi".into(), "m").unwrap();
        talk.assistant(Said { text: "ho".into(), ..Said::default() }, "m").unwrap();
        assert!(talk.clone().finish("m").unwrap_err().message.contains("assistant"));
        assert!(talk.finish_anywhere("m").is_ok());
        let mut half = two_calls();
        assert!(half.clone().finish("m").is_err());
        assert!(half.clone().finish_anywhere("m").is_ok());
        half.result(result("a", ""), "m").unwrap();
        assert!(half.finish_anywhere("m").is_err());
    }

    #[test]
    fn a_sentence_joins_the_system_text() {
        let mut with = vec![json!({ "role": "system", "content": "a" })];
        instruct(&mut with, "b");
        assert_eq!(with[0]["content"], "a\n\nb");
        let mut without = vec![json!({ "role": "user", "content": "a" })];
        instruct(&mut without, "b");
        assert_eq!(without.len(), 2);
    }
}
