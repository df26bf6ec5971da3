//! One checkpoint, from the turn that made it due to the front that it becomes part of.
//!
//! The conversation's own model has just read the whole prompt, so it is asked with the very same
//! beginning, up to where the notes end: the upstream has that in its cache and reads only the question.
//! Where that is not possible (tools, images, another model, no room), the text is quoted in chunks that
//! fit the writer's window, one question each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::prompt;
use crate::context::extract::{Said, extract, shorten};
use crate::context::front::Level;
use crate::context::plan::{cut_for, users_that_must_stay};
use crate::context::{Budget, Front, Message, Plan, Role, Tokens, Window};
use crate::dialect::{Dialect, Prompt, Request};
use crate::events;
use crate::ollama::ask::{AskError, Question, ask};
use crate::ollama::count::{count, rough_size};
use crate::ollama::models::Model;
use crate::proxy::Gateway;
use crate::proxy::compact::{EXTRACT, checkpoint, compaction, said_between, spread};
use crate::proxy::conversations::{Covering, Turn};
use crate::proxy::fit::message_size;
use crate::store::Change;

/// What reading questions of our own has cost models, for whoever wants to know.
#[derive(Debug, Default)]
pub struct Cost {
    pub read_ns: AtomicU64,
    pub questions: AtomicU64,
}

/// A finished turn whose conversation is due for a checkpoint.
#[derive(Debug)]
pub struct Job {
    /// With the link of the answer at its end.
    pub turn: Turn,
    pub dialect: Dialect,
    /// The request as it arrived.
    pub body: String,
    pub answer: String,
    /// The request as it left, and the plan that made it so.
    pub sent: Bytes,
    pub plan: Plan,
    pub covering: Option<Covering>,
    /// Tokens that left, without what was recalled.
    pub tokens: Tokens,
    pub limit: Tokens,
    pub window: Window,
    pub model: Arc<Model>,
}

/// A checkpoint being written.
#[derive(Debug)]
pub(super) struct Draft {
    front: Front,
    covered: usize,
    end: usize,
    users_kept: usize,
    messages: usize,
    /// What is to be noted, as text.
    said: Vec<(String, String)>,
    /// Questions still to be asked, the next one last; none yet when how to ask is not decided.
    questions: Option<Vec<Vec<Message<'static>>>>,
    answers: Vec<String>,
    of: usize,
    model: Arc<Model>,
    writer: String,
    gave_up: bool,
}

impl Job {
    /// What would be noted; `None` if it is too soon or not worth it.
    pub(super) fn draft(&self, gateway: &Gateway) -> Option<Draft> {
        let request = self.dialect.parse(&self.body).ok()?;
        let Prompt::Chat(messages) = &request.prompt else { return None };
        let kinds = &request.kinds;
        let covered = self.covering.as_ref().map_or(0, |covering| covering.covered);
        let front = self.covering.as_ref().map(|covering| covering.front.as_ref().clone()).unwrap_or_default();
        let compaction = &gateway.config.compaction;
        if front.made_at > 0 && messages.len() < front.made_at + compaction.cooldown_messages {
            return None;
        }
        let mut sizes = vec![0; kinds.len()];
        for message in &messages[covered..] {
            *sizes.get_mut(message.source)? += message_size(&self.model, message);
        }
        let answer = rough_size(&self.model, &self.answer);
        let start = messages.get(covered)?.source;
        let overhead = self.tokens.saturating_sub(sizes.iter().sum());
        let fixed = spread(overhead, sizes.get_mut(start..)?) + answer + Level::Detailed.budget(self.limit);
        let target = (f64::from(self.limit) * compaction.target) as Tokens;
        let cut = cut_for(kinds, &sizes, start, fixed, target)?;
        let noted: Tokens = sizes[start..cut].iter().sum();
        let gain = noted.saturating_sub(Level::Detailed.budget(self.limit));
        if f64::from(gain) < f64::from(self.limit) * compaction.min_gain {
            return None;
        }
        let end = messages.iter().position(|message| message.source >= cut && message.role != Role::System)?;
        let said = said_between(messages, kinds, &front, covered, cut);
        let owned = |said: Said<'_>| (said.role.to_owned(), said.text.to_owned());
        let writer = gateway.config.checkpoint.model.clone().unwrap_or_else(|| self.model.name.clone());
        Some(Draft {
            users_kept: users_that_must_stay(kinds, cut),
            messages: messages.len() + 1,
            said: said.into_iter().map(owned).collect(),
            questions: None,
            answers: Vec::new(),
            of: 1,
            model: Arc::clone(&self.model),
            writer,
            gave_up: false,
            front,
            covered,
            end,
        })
    }

    /// The prompt as it left up to where the notes end, if the same model can be asked behind it.
    async fn same_beginning(&self, gateway: &Gateway, end: usize, answer: Tokens) -> Option<Vec<Message<'static>>> {
        if gateway.config.checkpoint.model.is_some() {
            return None;
        }
        let arrived = self.dialect.parse(&self.body).ok()?;
        let Prompt::Chat(messages) = &arrived.prompt else { return None };
        let cut = messages.get(end)?.source;
        let sent = std::str::from_utf8(&self.sent).ok()?;
        let mut request = self.dialect.parse(sent).ok()?;
        if request.render_with.iter().any(|(name, _)| *name == "tools") {
            return None;
        }
        let Prompt::Chat(sent) = request.prompt else { return None };
        let leaving = self.plan.leaving_before(cut);
        let mut question: Vec<Message<'static>> = sent
            .iter()
            .filter(|message| message.source < leaving || message.role == Role::System)
            .map(Message::to_owned_message)
            .collect();
        if question.iter().any(|message| message.images > 0 || !message.tool_calls.is_empty()) {
            return None;
        }
        question.push(Message::plain(Role::User, prompt::instruction(self.limit), 0));
        request.prompt = Prompt::Chat(question);
        request.render_with.retain(|(name, _)| matches!(*name, "options"));
        let tokens = count(self.model.upstream(), &self.model, &request).await.tokens;
        let Prompt::Chat(question) = request.prompt else { return None };
        let question: Vec<_> = question.iter().map(Message::to_owned_message).collect();
        (tokens.saturating_add(answer) <= self.window).then_some(question)
    }

    /// The request's options and keep-alive, as JSON.
    fn setting(&self) -> (Option<String>, Option<String>) {
        let Ok(request) = self.dialect.parse(&self.body) else { return (None, None) };
        let field = |name: &str, request: &Request<'_>| {
            request.render_with.iter().find(|(field, _)| *field == name).map(|(_, json)| json.clone().into_owned())
        };
        (field("options", &request), field("keep_alive", &request))
    }
}

impl Draft {
    pub(super) fn first(&self) -> usize {
        self.front.last() + 1
    }

    pub(super) fn last(&self) -> usize {
        self.end
    }

    pub(super) fn author(&self) -> &str {
        &self.writer
    }

    pub(super) fn done(&self) -> usize {
        self.answers.len()
    }

    pub(super) fn of(&self) -> usize {
        self.of
    }

    /// Whether there is nothing more to ask.
    pub(super) fn is_written(&self) -> bool {
        self.gave_up || self.questions.as_ref().is_some_and(Vec::is_empty)
    }

    /// The model is not asked any further.
    pub(super) fn give_up(&mut self) {
        self.gave_up = true;
    }

    /// Asks the next question. Dropped half-way, it can be called again.
    pub(super) async fn step(&mut self, gateway: &Gateway, job: &Job) -> Result<(), AskError> {
        let answer_tokens = Level::ALL.iter().map(|level| level.budget(job.limit)).sum::<Tokens>() + 24;
        if self.questions.is_none() {
            let mut questions = match job.same_beginning(gateway, self.end, answer_tokens).await {
                Some(question) => vec![question],
                None => self.chunks(gateway, job, answer_tokens).await,
            };
            questions.reverse();
            self.of = questions.len();
            self.questions = Some(questions);
        }
        let Some(question) = self.questions.as_ref().and_then(|questions| questions.last()) else { return Ok(()) };
        let (options, keep_alive) = job.setting();
        let own = gateway.config.checkpoint.model.is_none();
        let asked = Question {
            model: &self.writer,
            messages: question,
            options: options.as_deref().filter(|_| own),
            keep_alive: keep_alive.as_deref().filter(|_| own),
            answer_tokens,
        };
        // Another model may be elsewhere.
        let other = if own { None } else { gateway.fleet.model(&self.writer).await.ok() };
        let upstream = other.as_ref().unwrap_or(&job.model).upstream();
        let reply = ask(upstream, &asked).await?;
        gateway.cost.read_ns.fetch_add(reply.read_ns, Ordering::Relaxed);
        gateway.cost.questions.fetch_add(1, Ordering::Relaxed);
        self.answers.push(reply.text);
        if let Some(questions) = &mut self.questions {
            questions.pop();
        }
        Ok(())
    }

    /// What was said, quoted in pieces that fit the writer's window.
    async fn chunks(&self, gateway: &Gateway, job: &Job, answer: Tokens) -> Vec<Vec<Message<'static>>> {
        let writer = match &gateway.config.checkpoint.model {
            None => Some((Arc::clone(&job.model), job.window)),
            Some(name) => gateway.fleet.model(name).await.ok().map(|model| {
                let (window, _) = gateway.window(&model, None);
                (model, window)
            }),
        };
        let Some((model, window)) = writer else { return Vec::new() };
        let limit = Budget::new(window, gateway.config.reserve, Some(answer)).limit;
        let asking = rough_size(&model, &prompt::instruction_on("", job.limit)) + 64;
        let room = limit.saturating_sub(asking).max(64);
        let transcripts = pieces(&self.said, room, |text| rough_size(&model, text));
        let question =
            |transcript: String| vec![Message::plain(Role::User, prompt::instruction_on(&transcript, job.limit), 0)];
        transcripts.into_iter().map(question).collect()
    }

    /// The notes at all levels, and who wrote them.
    fn texts(&self, limit: Tokens) -> ([String; 3], String) {
        let size = |text: &str| rough_size(&self.model, text);
        let mut versions = [String::new(), String::new(), String::new()];
        for answer in &self.answers {
            for (version, part) in versions.iter_mut().zip(prompt::read(answer)) {
                if !version.is_empty() && !part.is_empty() {
                    version.push('\n');
                }
                version.push_str(&part);
            }
        }
        let read: Tokens = self.said.iter().map(|(_, text)| size(text)).sum();
        let [compact, moderate, detailed] = versions;
        let usable = !self.gave_up && !detailed.is_empty() && size(&detailed) < read.max(1);
        let budgets = Level::ALL.map(|level| level.budget(limit));
        if usable {
            let or_longer =
                |version: String, longer: &str| if version.is_empty() { longer.to_owned() } else { version };
            let moderate = or_longer(moderate, &detailed);
            let compact = or_longer(compact, &moderate);
            let texts = [
                shorten(&compact, budgets[0], &size),
                shorten(&moderate, budgets[1], &size),
                shorten(&detailed, budgets[2], &size),
            ];
            if texts.iter().all(|text| !text.is_empty()) {
                return (texts, self.writer.clone());
            }
        }
        let said: Vec<Said<'_>> = self.said.iter().map(|(role, text)| Said { role, text }).collect();
        (budgets.map(|budget| extract(&said, budget, &size)), EXTRACT.to_owned())
    }

    /// Makes the notes part of the conversation: on disk first, then in what leaves.
    pub(super) async fn keep(self, gateway: &Gateway, job: &Job) -> Result<(), String> {
        let size = |text: &str| rough_size(&self.model, text);
        let (texts, author) = self.texts(job.limit);
        let checkpoint = checkpoint(&self.front, self.end, &author, texts);
        let link = self.end.checked_sub(1).and_then(|last| job.turn.links.get(last));
        let link = *link.ok_or("the history has no such place")?;
        let messages = [checkpoint.first, checkpoint.last];
        let event = events::checkpoint(&checkpoint.id, &author, messages, size(checkpoint.text()));
        let noted: Tokens = self.said.iter().map(|(_, text)| size(text)).sum();
        let front = Front {
            users_kept: self.users_kept,
            made_at: self.messages,
            saved: self.front.saved.saturating_add(noted.saturating_sub(size(checkpoint.text()))),
            ..self.front.with(checkpoint, job.limit, &size)
        };
        let covering = Covering { front: Arc::new(front), covered: self.end.max(self.covered), link };
        let stored = gateway.events.submit(Change::Compaction(compaction(&job.turn, &covering, None, event)));
        stored.await.map_err(|error| error.to_string())?;
        gateway.conversations.set_front(job.turn.conversation, covering.link, covering.front);
        Ok(())
    }
}

/// `role: text` lines in pieces of at most `room` tokens; a message that is longer is cut.
fn pieces(said: &[(String, String)], room: Tokens, size: impl Fn(&str) -> Tokens) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut left = room;
    for (role, text) in said.iter().filter(|(_, text)| !text.trim().is_empty()) {
        let mut rest = text.trim();
        while !rest.is_empty() {
            let mut line = format!("{role}: {rest}\n");
            let mut taken = rest.len();
            let mut tokens = size(&line);
            if tokens > left && left < room {
                pieces.push(String::new());
                left = room;
            }
            while tokens > left && taken > 16 {
                let share = taken as u64 * u64::from(left) / u64::from(tokens.max(1));
                // Always something, or a role that is longer than the room would never end.
                let first = rest.chars().next().map_or(0, char::len_utf8);
                taken = rest.floor_char_boundary(share as usize * 9 / 10).max(first);
                line = format!("{role}: {}\n", &rest[..taken]);
                tokens = size(&line);
            }
            if let Some(piece) = pieces.last_mut() {
                piece.push_str(&line);
            }
            left = left.saturating_sub(tokens);
            rest = rest[taken..].trim_start();
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fit_their_room_and_lose_nothing() {
        let size = |text: &str| text.split_whitespace().count() as Tokens;
        let said: Vec<_> = [5, 40, 3, 200, 1]
            .iter()
            .enumerate()
            .map(|(number, &words)| {
                let text = (0..words).map(|word| format!("w{number}.{word}")).collect::<Vec<_>>().join(" ");
                ("user".to_owned(), text)
            })
            .collect();
        let pieces = pieces(&said, 50, size);
        assert!(pieces.iter().all(|piece| size(piece) <= 50), "{pieces:?}");
        let all = pieces.join("").replace("user: ", "").replace('\n', " ");
        let squeezed = |text: &str| text.chars().filter(|char| !char.is_whitespace()).collect::<String>();
        let expected: String = said.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(squeezed(&all), squeezed(&expected));
    }
}
