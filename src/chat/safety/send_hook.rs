//! Hook before a send: the operator's own service allows or rejects each send and each edit.
//!
//! It rewrites nothing, so that a retry stores the message that was acknowledged. It runs outside the
//! queues of conversations. Each user has a share of the questions; a send without room is refused and
//! never passes unchecked. Circuit breakers stop asking for a while after many failures in a row.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::hook_breaker::HookBreakers;
use crate::chat::error::{Error, Result};
use crate::chat::replay_limiter::ReplayLimiter;
use crate::metrics::{self, Histogram, IntCounter, IntCounterVec, LATENCIES, Metrics};
use crate::model::{
    Attachment, Content, ConversationId, MessageId, MessageStep, Timestamp, UserId, text,
};
use crate::signed_post::{PostClient, PostError, PostLimits, PostTarget, SecretFile};
use crate::signed_post::{SecretFileError, SignedMessage};

/// Questions at once, of all users and of one.
const AT_ONCE_MAX: usize = 64;
const USER_AT_ONCE_MAX: usize = 8;
/// Longest wait of a message for its question.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Longest reason of a rejection; a longer one is left out.
const REASON_BYTES_MAX: usize = 255;

/// `[before_send]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendHookSettings {
    pub target: PostTarget,
    /// The address as it was given.
    pub url: String,
    pub allow_http: bool,
    pub secret_file: PathBuf,
    /// Deadline of one question.
    pub timeout: Duration,
    pub on_failure: HookFailureMode,
    /// Whether users may show text while they write it, which the hook has not seen.
    pub live: LiveTextMode,
}

impl SendHookSettings {
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_millis(1_500);
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(5);
}

/// Decision on a message about which the hook cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HookFailureMode {
    Allow,
    Refuse,
}

/// Decision on live messages of users, whose text others see before the hook does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LiveTextMode {
    Allow,
    Refuse,
}

/// Reason for a hook that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SendHookError {
    #[error("before_send: {0}")]
    Secret(#[from] SecretFileError),
    #[error("before_send: {0}")]
    Client(#[from] PostError),
}

/// Message that the hook decides about.
pub(crate) struct CheckedMessage<'a> {
    pub(crate) conversation: ConversationId,
    pub(crate) sender: &'a UserId,
    pub(crate) content: &'a Content,
    /// The message that is edited. `None` for a new one.
    pub(crate) edited: Option<MessageId>,
}

/// Question as the hook receives it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    conversation_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    sender: &'a str,
    body: &'a str,
    attachments: Vec<QuestionAttachment<'a>>,
    metadata: Option<&'a RawValue>,
    mentioned_usernames: Vec<&'a str>,
    mentions_everyone: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<QuestionStep<'a>>,
}

/// Texts of a step.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QuestionStep<'a> {
    title: &'a str,
    detail: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QuestionAttachment<'a> {
    url: &'a str,
    mime_type: &'a str,
    name: Option<&'a str>,
    size_bytes: Option<u64>,
    width: Option<u32>,
    height: Option<u32>,
    duration_ms: Option<u32>,
    thumbnail_url: Option<&'a str>,
}

impl<'a> QuestionStep<'a> {
    fn of(step: &'a MessageStep) -> Self {
        Self {
            title: &step.title,
            detail: step.detail.as_deref(),
        }
    }
}

impl<'a> QuestionAttachment<'a> {
    fn of(attachment: &'a Attachment) -> Self {
        Self {
            url: &attachment.url,
            mime_type: &attachment.mime_type,
            name: attachment.name.as_deref(),
            size_bytes: attachment.size_bytes,
            width: attachment.width,
            height: attachment.height,
            duration_ms: attachment.duration_ms,
            thumbnail_url: attachment.thumbnail_url.as_deref(),
        }
    }
}

/// Answer of the hook. Unknown fields are ignored.
#[derive(Deserialize)]
struct HookAnswer {
    decision: Decision,
    reason: Option<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Allow,
    Reject,
}

/// Result of one question, as the metrics name it.
enum HookOutcome {
    Allowed,
    Rejected(Option<Arc<str>>),
    /// The hook did not decide within the deadline, or not in a valid form.
    Failed,
    /// All questions at once were in use.
    Overloaded(Error),
    /// A circuit breaker is open.
    Skipped,
}

/// Asks the hook before sends and edits.
pub struct SendHook {
    client: PostClient,
    timeout: Duration,
    on_failure: HookFailureMode,
    live: LiveTextMode,
    questions: ReplayLimiter,
    breakers: Arc<HookBreakers>,
    outcomes: IntCounterVec,
    unchecked: IntCounter,
    seconds: Histogram,
}

impl SendHook {
    /// Reads the secret and the root certificates. Blocks.
    pub fn open(settings: &SendHookSettings) -> Result<Self, SendHookError> {
        let secrets = SecretFile::open(&settings.secret_file)?;
        let outcomes = metrics::counters(
            "wideroom_before_send_total",
            "Sends and edits that the hook before a send was to decide about, by outcome.",
            &["outcome"],
        );
        // Each series begins with zero.
        for name in ["allow", "reject", "failure", "overload", "skipped"] {
            outcomes.with_label_values(&[name]);
        }
        Ok(Self {
            client: PostClient::new(settings.target.clone(), secrets)?,
            timeout: settings.timeout,
            on_failure: settings.on_failure,
            live: settings.live,
            questions: ReplayLimiter::new(USER_AT_ONCE_MAX, AT_ONCE_MAX, WAIT_MAX),
            breakers: Arc::new(HookBreakers::new()),
            outcomes,
            unchecked: metrics::counter(
                "wideroom_before_send_unchecked_total",
                "Messages that passed the hook before a send without its decision, as `on_failure` allows.",
            ),
            seconds: metrics::histogram(
                "wideroom_before_send_seconds",
                "Time that the hook before a send took for its decisions.",
                LATENCIES,
            ),
        })
    }

    pub fn register(&self, metrics: &Metrics) {
        metrics.add(self.outcomes.clone());
        metrics.add(self.unchecked.clone());
        metrics.add(self.seconds.clone());
        let breakers = Arc::clone(&self.breakers);
        metrics.read(
            "wideroom_before_send_down",
            "1 while the hook before a send fails about every user, so that `on_failure` decides, else 0.",
            move || f64::from(u8::from(breakers.is_down())),
        );
    }

    /// Whether users may show text that the hook has not seen.
    pub(crate) fn allows_live(&self) -> bool {
        self.live == LiveTextMode::Allow
    }

    /// Returns once the message may be stored.
    pub(crate) async fn check(&self, message: CheckedMessage<'_>, now: Timestamp) -> Result<()> {
        let outcome = self.ask(&message, now).await;
        let name = match &outcome {
            HookOutcome::Allowed => "allow",
            HookOutcome::Rejected(_) => "reject",
            HookOutcome::Failed => "failure",
            HookOutcome::Overloaded(_) => "overload",
            HookOutcome::Skipped => "skipped",
        };
        self.outcomes.with_label_values(&[name]).inc();
        match outcome {
            HookOutcome::Allowed => Ok(()),
            HookOutcome::Rejected(reason) => Err(Error::Rejected { reason }),
            HookOutcome::Overloaded(error) => Err(error),
            HookOutcome::Failed | HookOutcome::Skipped => match self.on_failure {
                HookFailureMode::Allow => {
                    self.unchecked.inc();
                    Ok(())
                }
                HookFailureMode::Refuse => Err(Error::NotChecked),
            },
        }
    }

    async fn ask(&self, message: &CheckedMessage<'_>, now: Timestamp) -> HookOutcome {
        let _permit = match self.questions.acquire(message.sender).await {
            Ok(permit) => permit,
            Err(error) => return HookOutcome::Overloaded(error),
        };
        if self.breakers.is_open(message.sender) {
            return HookOutcome::Skipped;
        }
        let began = Instant::now();
        let signed = SignedMessage {
            id: format!("msg_{}", uuid::Uuid::new_v4().simple()),
            timestamp: now.micros().div_euclid(1_000_000),
            body: question(message),
        };
        let limits = PostLimits {
            deadline: self.timeout,
            answer_bytes: ANSWER_BYTES_MAX,
        };
        let answer = self.client.post(&signed, limits).await;
        self.seconds.observe(began.elapsed().as_secs_f64());
        let decided = match answer {
            Ok(answer) if answer.is_success() => answer.body.as_deref().and_then(parse),
            Ok(answer) => {
                tracing::debug!(status = answer.status, "the hook before a send failed");
                None
            }
            Err(error) => {
                tracing::debug!(%error, "the hook before a send failed");
                None
            }
        };
        match decided {
            Some(decided) => {
                self.breakers.decided(message.sender);
                decided
            }
            None => {
                if self.breakers.failed(message.sender) {
                    tracing::warn!(address = %self.client.target(), on_failure = ?self.on_failure, "the hook before a send fails; the server asks it again every 5 seconds, and decides by on_failure meanwhile. Check its service");
                }
                HookOutcome::Failed
            }
        }
    }
}

fn question(message: &CheckedMessage<'_>) -> Bytes {
    let CheckedMessage {
        conversation,
        sender,
        content,
        edited,
    } = message;
    let question = Question {
        kind: match edited {
            Some(_) => "message.editing",
            None => "message.sending",
        },
        conversation_id: conversation.to_string(),
        message_id: edited.map(|message| message.to_string()),
        sender: sender.as_str(),
        body: content.body.as_str(),
        attachments: content
            .attachments
            .iter()
            .map(QuestionAttachment::of)
            .collect(),
        metadata: content
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.json().ok()),
        mentioned_usernames: content
            .mentions
            .users()
            .iter()
            .map(UserId::as_str)
            .collect(),
        mentions_everyone: content.mentions.everyone,
        steps: content
            .steps
            .as_slice()
            .iter()
            .map(QuestionStep::of)
            .collect(),
    };
    serde_json::to_vec(&question)
        .expect("plain data serialises")
        .into()
}

/// The decision in an answer. `None` for an answer of another form.
fn parse(body: &[u8]) -> Option<HookOutcome> {
    let answer: HookAnswer = serde_json::from_slice(body).ok()?;
    Some(match answer.decision {
        Decision::Allow => HookOutcome::Allowed,
        Decision::Reject => {
            let reason = answer.reason;
            let valid = reason.filter(|reason| text::parse_line(reason, REASON_BYTES_MAX).is_ok());
            HookOutcome::Rejected(valid.map(Arc::from))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_allows_or_rejects_and_anything_else_is_none() {
        let parsed = |text: &str| parse(text.as_bytes());
        for allowed in [
            r#"{"decision": "allow"}"#,
            r#"{"decision": "allow", "reason": "fine", "more": [1]}"#,
        ] {
            assert!(matches!(parsed(allowed), Some(HookOutcome::Allowed)));
        }
        let long = format!(
            r#"{{"decision": "reject", "reason": "{}"}}"#,
            "x".repeat(256)
        );
        for (text, expected) in [
            (r#"{"decision": "reject"}"#, None),
            (
                r#"{"decision": "reject", "reason": "no links"}"#,
                Some("no links"),
            ),
            (r#"{"decision": "reject", "reason": "\n"}"#, None),
            (long.as_str(), None),
        ] {
            match parsed(text) {
                Some(HookOutcome::Rejected(reason)) => assert_eq!(reason.as_deref(), expected),
                _ => panic!("{text}"),
            }
        }
        for other in [
            "",
            "true",
            "{}",
            r#"{"decision": "maybe"}"#,
            r#"{"allow": true}"#,
        ] {
            assert!(parsed(other).is_none(), "{other}");
        }
    }
}
