//! Owns: one answer: made, shown while it is made, and reported.
//! Invariants: what was shown stays, whatever ended it.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use ss_generate::{Ask, Chat, Finish, SamplerSettings, Told};
use ss_model::Cancel;
use ss_server::{Column, SamplingRequest, Thinking};
use ss_text::{Event, ReplyOptions, ToolSchemas};

use crate::args::{ReplyArgs, SamplingArgs};
use crate::progress::Progress;
use crate::report::Report;
use crate::setup::Ready;
use crate::terminal;

/// The settings of an answer.
pub struct Settings<'a> {
    /// Flags that shape the reply.
    pub reply: &'a ReplyArgs,
    /// Sampling flags.
    pub sampling: &'a SamplingArgs,
    /// Tools offered.
    pub tools: &'a [Value],
}

/// An answer as it was shown.
#[derive(Default)]
pub struct Answer {
    /// The thoughts.
    pub reasoning: String,
    /// The answer's text.
    pub text: String,
    /// Complete calls, in OpenAI's form with object arguments.
    pub calls: Vec<Value>,
}

impl Settings<'_> {
    /// The system message, if there is one; an empty one is none.
    pub fn system(&self) -> Option<Value> {
        let text = self.reply.system.as_ref().filter(|text| !text.is_empty())?;
        Some(json!({ "role": "system", "content": text }))
    }

    /// Ids of a conversation.
    ///
    /// # Errors
    /// When the template refuses it.
    pub fn chat_ids(&self, ready: &Ready, messages: Vec<Value>) -> Result<Vec<u32>> {
        let options = self.reply.think.unwrap_or_default().template_options();
        Ok(ready.engine.chat_ids(&Chat { messages, tools: self.tools.to_vec(), options })?)
    }

    fn thinking(&self) -> bool {
        self.reply.think.is_some_and(Thinking::is_on)
    }

    /// How tokens are drawn: by the flags, else the model's own settings, else the defaults (server.md section 5).
    ///
    /// # Errors
    /// When the model's own settings cannot be read.
    pub fn sampler(&self, ready: &Ready) -> Result<SamplerSettings> {
        let s = self.sampling;
        let request = SamplingRequest {
            temperature: s.temperature,
            top_k: s.top_k,
            top_p: s.top_p,
            min_p: s.min_p,
            presence_penalty: s.presence_penalty,
            frequency_penalty: s.frequency_penalty,
            repetition_penalty: s.repetition_penalty,
            logit_bias: s.logit_bias.clone(),
            seed: s.seed,
        };
        let model = &ready.engine.model;
        let config = model.checkpoint().generation_config().map_err(ss_generate::Error::from)?;
        let column = Column::of(self.thinking(), !self.tools.is_empty());
        Ok(request.resolve(config.as_ref(), column, model.geometry().is_released()))
    }

    /// Refuses a bias for a token that the model does not have.
    ///
    /// # Errors
    /// Names the id and the ids that there are.
    pub fn check(&self, ready: &Ready) -> Result<()> {
        let ids = ready.engine.tokenizer().vocabulary();
        for (id, _) in &self.sampling.logit_bias {
            ensure!(
                (*id as usize) < ids,
                "`--logit-bias`: there is no token {id}; this model's tokens are 0 to {}",
                ids - 1
            );
        }
        Ok(())
    }

    /// The request for an answer to `prompt`.
    ///
    /// # Errors
    /// As [`Settings::sampler`].
    pub fn ask(&self, ready: &Ready, prompt: Vec<u32>) -> Result<Ask> {
        let mut ask = Ask::new(prompt, self.sampler(ready)?);
        ask.max_tokens = self.reply.max_tokens;
        ask.prefill_pass = self.reply.prefill_pass;
        ask.reply = ReplyOptions {
            thinking: self.thinking(),
            tools: (!self.tools.is_empty()).then(|| ToolSchemas::new(self.tools)),
            stops: self.reply.stop.clone(),
            one_call: false,
        };
        Ok(ask)
    }
}

/// Makes an answer and shows it as it comes; gives what was shown and what it took.
///
/// # Errors
/// When the model fails, the reply cannot be used, or standard output cannot be written.
pub fn answer(ready: &mut Ready, ask: &Ask, cancel: &Cancel) -> Result<(Answer, Report)> {
    let mut state = ready.engine.model.new_state().map_err(ss_generate::Error::from)?;
    let before = Report::before(ready);
    let mut bar = Progress::reading();
    let mut shown = Answer::default();
    let (mut failed, mut read) = (None, 0);
    let summary = ready.engine.answer(&mut state, ask, cancel, &mut |told| match told {
        Told::Prefilled { done, total } => {
            read = done;
            bar.update(done as u64, total as u64);
        }
        Told::Prompt(_) | Told::Token(_) => {}
        Told::Reply(event) => {
            if let Err(error) = shown.show(event) {
                failed.get_or_insert(error);
                cancel.cancel();
            }
        }
    });
    drop(bar);
    let ended = shown.end();
    let summary = summary?;
    match failed {
        Some(error) => return Err(error),
        None => ended?,
    }
    let report = Report::after(before, ready, ask, summary, read)?;
    shown.explain(&report);
    Ok((shown, report))
}

impl Answer {
    fn show(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Reasoning(text) => {
                terminal::thought(&text);
                self.reasoning += &text;
            }
            Event::Text(text) => {
                self.begin();
                write(&text)?;
                self.text += &text;
            }
            Event::CallEnd { name, arguments, .. } => {
                let arguments: Value = serde_json::from_str(&arguments)?;
                let call = json!({ "name": name, "arguments": arguments });
                self.begin();
                self.end_text()?;
                write(&format!("{call}\n"))?;
                self.calls.push(json!({ "type": "function", "function": call }));
            }
            Event::Failed(error) => bail!("the reply cannot be used: {error}"),
            Event::CallStart { .. } | Event::CallArguments { .. } | Event::Stop(_) => {}
        }
        Ok(())
    }

    /// Whether nothing was shown.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.reasoning.is_empty() && self.calls.is_empty()
    }

    /// Sets the answer apart from the thoughts.
    fn begin(&self) {
        if self.text.is_empty() && self.calls.is_empty() && !self.reasoning.is_empty() {
            terminal::end_line();
            terminal::gap();
        }
    }

    /// Ends the last line of the text, which is shown before the calls.
    fn end_text(&self) -> Result<()> {
        if self.calls.is_empty() && !self.text.is_empty() && !self.text.ends_with('\n') {
            write("\n")?;
        }
        Ok(())
    }

    /// Ends what was shown.
    fn end(&self) -> Result<()> {
        self.end_text()?;
        terminal::end_line();
        Ok(())
    }

    /// Says why there is less than a person expects.
    fn explain(&self, report: &Report) {
        match report.summary.finish {
            Finish::Cancelled => {
                // The terminal has shown `^C` where the answer would begin.
                if self.is_empty() {
                    terminal::gap();
                }
                terminal::note("(stopped)");
            }
            Finish::Repeated => terminal::note(format_args!("(ended: the reply repeats itself)")),
            Finish::Length => terminal::note(format_args!("(cut off after {} tokens)", report.summary.output.len())),
            Finish::Stop | Finish::Listener => {}
        }
    }
}

fn write(text: &str) -> Result<()> {
    terminal::answer(text).context("standard output cannot be written")
}
