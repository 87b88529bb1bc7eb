//! Whole replies of the trained model that are held to a grammar, and how likely it says its tokens are.

use serde_json::{Map, Value, json};
use ss_generate::{
    Ask, Chat, Constraint, Engine, Error, Finish, PromptLogprob, SamplerSettings, TokenTold, Told, Words,
};
use ss_grammar::{Compiled, Grammar, Grammars, Options, ToolRule};
use ss_model::{Cancel, Pass, Want};
use ss_stream::PoolSize;
use ss_tests::golden::root;
use ss_tests::rig::{Rig, RigOptions};
use ss_text::{Event, Reply, ReplyOptions, SpecialTokens, ToolSchemas};

fn engine(slots: PoolSize) -> Engine {
    sharing(slots, 0)
}

/// An engine whose passes share reads of experts, so many tokens each.
fn sharing(slots: PoolSize, read_group: u32) -> Engine {
    let model = root().join("models/flash-next-nano");
    let rig = Rig::new(&model, &RigOptions { slots, read_group, ..RigOptions::default() });
    let words = Words::open(rig.model.checkpoint()).unwrap();
    Engine::new(rig.model, words)
}

/// What a reply told.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    reply: Reply,
    tokens: Vec<TokenTold>,
    prompt: Vec<PromptLogprob>,
    ids: Vec<u32>,
    reasoning: u32,
    finish: Option<Finish>,
}

fn hear(engine: &mut Engine, ask: &Ask, held: Option<&mut dyn Constraint>) -> Result<Heard, Error> {
    let (mut heard, mut state) = (Heard::default(), engine.model.new_state().unwrap());
    let summary = engine.answer_within(&mut state, ask, held, &Cancel::default(), &mut |told| match told {
        Told::Prefilled { .. } => {}
        Told::Prompt(prompt) => heard.prompt = prompt,
        Told::Token(token) => heard.tokens.push(token),
        Told::Reply(event) => heard.reply.add(event),
    })?;
    assert_eq!(summary.prompt_tokens as usize, ask.prompt.len());
    let told: Vec<u32> = heard.tokens.iter().map(|token| token.id).collect();
    assert_eq!(told, summary.output, "every token is told");
    (heard.ids, heard.reasoning, heard.finish) = (summary.output, summary.reasoning_tokens, Some(summary.finish));
    Ok(heard)
}

fn hot(seed: u64) -> SamplerSettings {
    SamplerSettings { temperature: 1.5, seed, ..SamplerSettings::greedy() }
}

fn ask(engine: &Engine, text: &str, tools: &[Value], thinking: bool, sampling: SamplerSettings) -> Ask {
    let options = Map::from_iter([
        ("add_generation_prompt".to_owned(), json!(true)),
        ("enable_thinking".to_owned(), json!(thinking)),
    ]);
    let messages = vec![json!({"role": "user", "content": text})];
    let ids = engine.chat_ids(&Chat { messages, tools: tools.to_vec(), options }).unwrap();
    let mut ask = Ask::new(ids, sampling);
    ask.max_tokens = Some(400);
    let tools = (!tools.is_empty()).then(|| ToolSchemas::new(tools));
    ask.reply = ReplyOptions { thinking, tools, ..ReplyOptions::default() };
    ask
}

fn compiled(engine: &Engine, grammar: &Grammar, thinking: bool) -> Compiled {
    Grammars::new(engine.words().clone()).compile(grammar, &Options { thinking }).unwrap()
}

/// A schema whose values come to an end.
fn trip() -> Value {
    json!({"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 30},
        "kind": {"enum": ["work", "rest", null]},
        "stops": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[A-Z][a-z]{2,6}$"}},
            "required": ["name"], "additionalProperties": false}, "maxItems": 2}
    }, "required": ["city", "days", "kind"], "additionalProperties": false})
}

#[test]
fn a_reply_held_to_a_schema_satisfies_it_at_every_pool_size() {
    let judge = jsonschema::validator_for(&trip()).unwrap();
    let mut replies: Vec<Vec<Heard>> = Vec::new();
    for slots in [PoolSize::Smallest, PoolSize::All] {
        let mut engine = engine(slots);
        let held = compiled(&engine, &Grammar::JsonSchema(trip()), false);
        let replies_here = (0..6).map(|seed| {
            let ask = ask(&engine, "Plan a trip.", &[], false, hot(seed));
            let heard = hear(&mut engine, &ask, Some(&mut held.fork())).unwrap();
            assert_eq!(heard.finish, Some(Finish::Stop), "{}", heard.reply.text);
            let value: Value =
                serde_json::from_str(&heard.reply.text).unwrap_or_else(|e| panic!("{e}: {}", heard.reply.text));
            assert!(judge.is_valid(&value), "{value}");
            // What was streamed is what the ids say.
            assert_eq!(heard.reply.text, engine.tokenizer().decode(&heard.ids, SpecialTokens::Drop));
            let told: String = heard.tokens.iter().map(|token| token.text.as_str()).collect();
            assert_eq!(told, engine.words().text_of(&heard.ids));
            heard
        });
        replies.push(replies_here.collect());
    }
    assert_eq!(replies[0], replies[1]);
    assert!(replies[0].windows(2).any(|pair| pair[0].ids != pair[1].ids), "seeds differ");
}

fn tools() -> Vec<Value> {
    let weather = json!({"type": "object", "properties": {"city": {"type": "string", "maxLength": 20},
        "days": {"type": "integer", "minimum": 1, "maximum": 7}}, "required": ["city", "days"], "additionalProperties": false});
    vec![
        json!({"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": weather}}),
        json!({"type": "function", "function": {"name": "stop", "description": "Stops", "parameters": {"type": "object", "properties": {}}}}),
    ]
}

fn rules() -> Vec<ToolRule> {
    let rule = |tool: &Value| ToolRule {
        name: tool["function"]["name"].as_str().unwrap().to_owned(),
        parameters: tool["function"]["parameters"].clone(),
        strict: true,
    };
    tools().iter().map(rule).collect()
}

#[test]
fn a_required_call_is_complete_and_declared() {
    let mut engine = engine(PoolSize::All);
    let judge = jsonschema::validator_for(&tools()[0]["function"]["parameters"]).unwrap();
    let mut seen = 0;
    for (thinking, at_most_one, named) in
        [(false, true, None), (false, false, None), (true, true, None), (false, true, Some("stop"))]
    {
        let named = named.map(str::to_owned);
        let grammar = Grammar::Tools { tools: rules(), required: true, at_most_one, named: named.clone() };
        let held = compiled(&engine, &grammar, thinking);
        for seed in 0..8 {
            let sampling = if seed == 0 { SamplerSettings::greedy() } else { hot(seed) };
            let ask = ask(&engine, "What is the weather in Paris?", &tools(), thinking, sampling);
            let heard = hear(&mut engine, &ask, Some(&mut held.fork())).unwrap();
            assert_eq!(heard.reply.error, None);
            if heard.finish != Some(Finish::Stop) {
                // Thoughts and further calls may go on; a single call cannot.
                assert!(thinking || !at_most_one, "{:?}", heard.reply);
                continue;
            }
            let calls = &heard.reply.calls;
            let count = calls.len();
            assert!(count > 0 && (!at_most_one || count == 1) && heard.reply.text.is_empty(), "{:?}", heard.reply);
            for call in calls {
                assert!(call.complete, "{call:?}");
                let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
                match call.name.as_str() {
                    "get_weather" => assert!(named.is_none() && judge.is_valid(&arguments), "{arguments}"),
                    name => assert_eq!((name, &arguments), ("stop", &json!({}))),
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen} calls");
}

/// A constraint whose mask is lost on its way.
struct Dropped(Compiled);

impl Constraint for Dropped {
    fn mask(&mut self) -> ss_generate::Result<Option<&[u32]>> {
        self.0.mask().map(|_| None)
    }

    fn accept(&mut self, id: u32) -> ss_generate::Result<()> {
        self.0.accept(id)
    }
}

#[test]
fn a_mask_that_is_dropped_does_not_pass_unseen() {
    let mut engine = engine(PoolSize::All);
    let held = compiled(&engine, &Grammar::JsonSchema(trip()), false);
    let ask = ask(&engine, "Plan a trip.", &[], false, hot(1));
    let error = hear(&mut engine, &ask, Some(&mut Dropped(held))).unwrap_err();
    assert!(matches!(error, Error::Constraint(_)), "{error}");
}

#[test]
fn no_reply_inherits_a_mask() {
    let mut engine = engine(PoolSize::All);
    let plain = ask(&engine, "How do I make tea?", &[], false, hot(3));
    let wanted = hear(&mut engine, &plain, None).unwrap();
    let mut held = compiled(&engine, &Grammar::JsonSchema(trip()), false);
    // One that ends, one that fails, one that is cancelled.
    hear(&mut engine, &plain, Some(&mut held.fork())).unwrap();
    assert_eq!(hear(&mut engine, &plain, None).unwrap(), wanted);
    hear(&mut engine, &plain, Some(&mut Dropped(held.fork()))).unwrap_err();
    assert_eq!(hear(&mut engine, &plain, None).unwrap(), wanted);
    let (cancel, mut state, mut told) = (Cancel::default(), engine.model.new_state().unwrap(), 0);
    let mut listen = |step| {
        told += usize::from(matches!(step, Told::Token(_)));
        if told == 3 {
            cancel.cancel();
        }
    };
    let cut = engine.answer_within(&mut state, &plain, Some(&mut held), &cancel, &mut listen).unwrap();
    assert_eq!((cut.finish, cut.output.len()), (Finish::Cancelled, 3));
    // Not even a pass that begins no reply.
    let mut state = engine.model.new_state().unwrap();
    let pass = Pass::prompt(&plain.prompt, Want::Likeliest);
    let listed = engine.model.forward(&mut state, &pass, &Cancel::default()).unwrap().likeliest.unwrap();
    assert!(listed.ids.len() > 200, "{} ids may come", listed.ids.len());
    assert_eq!(hear(&mut engine, &plain, None).unwrap(), wanted);
}

#[test]
fn a_mask_costs_a_step_no_readback_and_is_uploaded_when_it_changes() {
    /// Allows every id but one, always.
    struct Still(Vec<u32>);
    impl Constraint for Still {
        fn mask(&mut self) -> ss_generate::Result<Option<&[u32]>> {
            Ok(Some(&self.0))
        }

        fn accept(&mut self, _: u32) -> ss_generate::Result<()> {
            Ok(())
        }
    }
    let mut engine = engine(PoolSize::All);
    let words = engine.model.geometry().vocab.div_ceil(32) as usize;
    let mut ask = ask(&engine, "How do I make tea?", &[], false, SamplerSettings::greedy());
    ask.max_tokens = Some(20);
    let mut cost = |held: Option<&mut dyn Constraint>| {
        let before = engine.model.backend().counters();
        let heard = hear(&mut engine, &ask, held).unwrap();
        let after = engine.model.backend().counters();
        (after.readbacks - before.readbacks, after.uploaded_bytes - before.uploaded_bytes, heard.ids)
    };
    // Until what it needs is there.
    _ = (cost(None), cost(None));
    let (readbacks, uploaded, ids) = cost(None);
    assert_eq!(cost(None), (readbacks, uploaded, ids.clone()));
    let mut mask = vec![u32::MAX; words];
    mask[0] ^= 1;
    let (masked_readbacks, masked_uploaded, masked_ids) = cost(Some(&mut Still(mask.clone())));
    assert_eq!((masked_readbacks, &masked_ids), (readbacks, &ids));
    // The mask, and the rules before the first token and behind the last.
    let most = 4 * words as u64 + 200;
    assert!(masked_uploaded - uploaded <= most, "{} bytes", masked_uploaded - uploaded);
    let (_, again, _) = cost(Some(&mut Still(mask)));
    assert!(again - uploaded <= 200, "{} bytes for a mask that lies there", again - uploaded);
}

/// Natural logarithms of the softmax of a row, in 64-bit arithmetic.
fn logarithms(row: &[f32]) -> Vec<f64> {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|&logit| (f64::from(logit) - f64::from(largest)).exp()).sum();
    row.iter().map(|&logit| f64::from(logit) - f64::from(largest) - sum.ln()).collect()
}

#[test]
fn tokens_are_as_likely_as_the_models_own_softmax_says() {
    for sampling in
        [SamplerSettings::greedy(), SamplerSettings { presence_penalty: 1.5, logit_bias: vec![(5, 50.0)], ..hot(4) }]
    {
        let mut engine = engine(PoolSize::Floor);
        let greedy = sampling.temperature == 0.0;
        let mut ask = ask(&engine, "How do I make tea?", &[], false, sampling);
        (ask.max_tokens, ask.logprobs) = (Some(24), Some(7));
        let heard = hear(&mut engine, &ask, None).unwrap();
        let vocab = engine.model.geometry().vocab as usize;
        let mut state = engine.model.new_state().unwrap();
        let cancel = Cancel::default();
        let pass = Pass::prompt(&ask.prompt, Want::Last);
        let mut rows = engine.model.forward(&mut state, &pass, &cancel).unwrap().logits;
        rows.extend(engine.model.forward(&mut state, &Pass::generated(&heard.ids, Want::All), &cancel).unwrap().logits);
        for (token, row) in heard.tokens.iter().zip(rows.chunks_exact(vocab)) {
            let exact = logarithms(row);
            let of = |id: u32| exact[id as usize];
            assert!((f64::from(token.logprob.unwrap()) - of(token.id)).abs() < 1e-5, "{token:?}");
            assert_eq!(token.top.len(), 7);
            assert!(token.top.iter().all(|&(id, logprob)| (f64::from(logprob) - of(id)).abs() < 1e-5));
            assert!(token.top.windows(2).all(|pair| pair[0].1 >= pair[1].1));
            if greedy {
                assert_eq!(token.top[0], (token.id, token.logprob.unwrap()), "greedy choice takes the first");
            }
            assert_eq!(token.bytes, engine.tokenizer().bytes_of(token.id));
        }
        ask.logprobs = None;
        let silent = hear(&mut engine, &ask, None).unwrap();
        assert_eq!(silent.ids, heard.ids, "telling changes nothing");
        assert!(silent.tokens.iter().all(|token| token.logprob.is_none() && token.top.is_empty()));
    }
}

#[test]
fn a_prompts_tokens_are_as_likely_as_when_it_is_read_token_by_token() {
    let mut engine = engine(PoolSize::Floor);
    let prompt =
        engine.raw_ids("Once upon a time, there was a little fox who lived in the forest. It was a cold day.").unwrap();
    let (mut state, cancel, mut wanted) = (engine.model.new_state().unwrap(), Cancel::default(), Vec::new());
    for id in &prompt {
        let pass = Pass::prompt(std::slice::from_ref(id), Want::Last);
        wanted.push(logarithms(&engine.model.forward(&mut state, &pass, &cancel).unwrap().logits));
    }
    let mut plain = Ask::new(prompt.clone(), SamplerSettings::greedy());
    plain.max_tokens = Some(5);
    let reply = hear(&mut engine, &plain, None).unwrap();
    let mut shared = sharing(PoolSize::Smallest, 64);
    for (pass, shares) in [(1, false), (3, false), (512, false), (2, true), (5, true)] {
        let engine = if shares { &mut shared } else { &mut engine };
        let mut ask = plain.clone();
        (ask.prefill_pass, ask.prompt_logprobs, ask.logprobs) = (pass, true, Some(3));
        let heard = hear(engine, &ask, None).unwrap();
        assert_eq!(heard.ids, reply.ids);
        let ids: Vec<u32> = heard.prompt.iter().map(|token| token.id).collect();
        assert_eq!(ids, prompt);
        assert_eq!((heard.prompt[0].logprob, heard.prompt[0].top.len()), (None, 0));
        for (token, exact) in heard.prompt[1..].iter().zip(&wanted) {
            assert_eq!(token.logprob.unwrap(), exact[token.id as usize] as f32);
            assert_eq!(token.top.len(), 3);
        }
        ask.max_tokens = Some(0);
        let none = hear(engine, &ask, None).unwrap();
        assert_eq!((none.ids.len(), none.finish, &none.prompt), (0, Some(Finish::Length), &heard.prompt));
    }
    let mut single = Ask::new(prompt[..1].to_vec(), SamplerSettings::greedy());
    (single.prompt_logprobs, single.max_tokens) = (true, Some(1));
    assert_eq!(hear(&mut engine, &single, None).unwrap().prompt.len(), 1);
}

#[test]
fn a_smaller_window_is_kept_and_named() {
    let mut engine = engine(PoolSize::All);
    let mut ask = ask(&engine, "How do I make tea?", &[], false, SamplerSettings::greedy());
    let prompt = ask.prompt.len() as u32;
    ask.window = Some(prompt + 3);
    let heard = hear(&mut engine, &ask, None).unwrap();
    assert_eq!((heard.ids.len(), heard.finish), (3, Some(Finish::Length)));
    ask.window = Some(prompt);
    match hear(&mut engine, &ask, None).unwrap_err() {
        Error::Model(ss_model::Error::Context { wanted, limit }) => {
            assert_eq!((wanted, limit), (u64::from(prompt) + 1, prompt));
        }
        other => panic!("{other}"),
    }
    let refused = engine.words().check_room(ask.prompt.len(), ask.window);
    assert!(matches!(refused, Err(Error::Model(ss_model::Error::Context { .. }))));
    ask.window = Some(u32::MAX);
    ask.max_tokens = Some(2);
    assert_eq!(hear(&mut engine, &ask, None).unwrap().ids.len(), 2, "no window is larger than the model's");
}

#[test]
fn tokens_of_the_reasoning_are_counted() {
    let mut engine = engine(PoolSize::All);
    let ask = ask(&engine, "What is the capital of Japan?", &[], true, SamplerSettings::greedy());
    let heard = hear(&mut engine, &ask, None).unwrap();
    let counted = heard.tokens.iter().filter(|token| token.reasoning).count();
    assert_eq!(heard.reasoning as usize, counted);
    let thought: String = heard.tokens.iter().take(counted).map(|token| token.text.as_str()).collect();
    assert!(counted > 1 && thought.starts_with(&heard.reply.reasoning), "{thought:?} {:?}", heard.reply);
    let held = compiled(&engine, &Grammar::Regex("[A-Z][a-z]{2,8}".to_owned()), true);
    let heard = hear(&mut engine, &ask, Some(&mut held.fork())).unwrap();
    if heard.finish == Some(Finish::Stop) {
        assert!(heard.reply.text.len() < 10 && heard.reply.text.chars().all(char::is_alphabetic), "{:?}", heard.reply);
    }
}

#[test]
fn free_text_with_tools_is_what_it_would_be_without_a_grammar() {
    let mut engine = engine(PoolSize::All);
    let grammar = Grammar::Tools { tools: rules(), required: false, at_most_one: false, named: None };
    let held = compiled(&engine, &grammar, false);
    let (mut free, mut calls) = (0, 0);
    for seed in 0..6 {
        let mut ask = ask(&engine, "What is the weather in Paris?", &tools(), false, hot(seed));
        ask.max_tokens = Some(120);
        let plain = hear(&mut engine, &ask, None).unwrap();
        let heard = hear(&mut engine, &ask, Some(&mut held.fork())).unwrap();
        if plain.reply.calls.is_empty() && plain.reply.error.is_none() {
            assert_eq!(heard, plain);
            free += 1;
        }
        assert_eq!(heard.reply.error, None);
        calls += heard.reply.calls.len();
    }
    println!("{free} replies without a call, {calls} calls");
}

#[test]
fn events_follow_the_token_that_brought_them() {
    let mut engine = engine(PoolSize::All);
    let ask = ask(&engine, "How do I make tea?", &[], false, SamplerSettings::greedy());
    let (mut state, mut written, mut read) = (engine.model.new_state().unwrap(), String::new(), String::new());
    engine
        .answer(&mut state, &ask, &Cancel::default(), &mut |told| match told {
            Told::Token(token) => written += &token.text,
            Told::Reply(Event::Text(text)) => {
                read += &text;
                assert!(written.starts_with(&read));
            }
            _ => {}
        })
        .unwrap();
    assert!(!read.is_empty());
}
