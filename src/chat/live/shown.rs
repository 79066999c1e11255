//! Live messages as participants read them.

use futures_util::future::{try_join, try_join_all};
use tokio::time::Instant;

use super::held::LiveState;
use super::{AT_ONCE_MAX, LiveService};
use crate::chat::error::{Error, Result};
pub(super) use crate::chat::live_feed::SILENCE_MICROS;
use crate::model::{
    ConversationId, LiveBody, LiveExtent, LiveKey, LiveMessage, LiveView, Timestamp, Viewer,
    WriterNumber,
};
use crate::store::live::{LiveTextQuery, minute_of};

/// Rows of the list of a conversation that are read.
const LISTED_MAX: usize = 128;
/// Rows of text of one read.
const TEXTS_MAX: usize = 500;

impl LiveService {
    /// Messages that participants are writing in view of the caller, the last begun first.
    pub async fn writing(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
    ) -> Result<Vec<LiveView>> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let visible = self.access.visible_to(caller, &[conversation]).await?;
        let visible = visible.into_iter().next().flatten();
        let visible = visible.ok_or(Error::NotFound("the conversation"))?;
        if self.access.is_hidden(viewer, &visible.conversation).await? {
            return Ok(Vec::new());
        }
        let blocks = self.access.blocks().of(viewer).await?;
        let mut writing = self.writing_in(conversation).await?;
        writing.retain(|live| !blocks.has(&live.start.sender));
        writing.truncate(AT_ONCE_MAX);
        let views = writing.into_iter().map(async |message| {
            let body = self.body(&message).await?.into_text();
            Ok::<_, Error>(LiveView {
                message,
                body,
                sent: None,
            })
        });
        try_join_all(views).await
    }

    /// A live message that the caller may see, ended or not. `None` for one that does not exist any more.
    pub async fn view(&self, caller: impl Into<Viewer>, live: LiveKey) -> Result<Option<LiveView>> {
        let caller = &caller.into();
        let visible = self.access.visible_to(caller, &[live.conversation]).await?;
        let Some(visible) = visible.into_iter().next().flatten() else {
            return Ok(None);
        };
        let is_hidden = self.access.is_hidden(&caller.user, &visible.conversation);
        if is_hidden.await? {
            return Ok(None);
        }
        let blocks = self.access.blocks().of(&caller.user).await?;
        let state = self.load(live).await?;
        let state = state.filter(|state| !blocks.has(&state.message.start.sender));
        Ok(state.map(|state| self.view_of(&state)))
    }

    /// A live message, whoever may see it.
    pub(super) async fn require_view(&self, live: LiveKey) -> Result<LiveView> {
        let state = self.load(live).await?;
        let state = state.ok_or(Error::NotFound("the live message"))?;
        Ok(self.view_of(&state))
    }

    pub(super) fn view_of(&self, state: &LiveState) -> LiveView {
        LiveView {
            message: state.message.clone(),
            body: state.body.as_str().to_owned(),
            sent: state.sent.get().copied(),
        }
    }

    /// The live messages of a conversation that have not ended, the last begun first.
    pub(super) async fn writing_in(
        &self,
        conversation: ConversationId,
    ) -> Result<Vec<LiveMessage>> {
        let now = self.in_flight.now();
        let from = minute_of(now).saturating_sub(1);
        let listed = self.store.listed_lives(conversation, from, LISTED_MAX);
        let mut keys: Vec<_> = listed.await?.into_iter().map(|one| one.live).collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.store.live_messages(&keys).await?;
        let mut writing: Vec<_> = found
            .into_iter()
            .flatten()
            .filter(|live| !has_ended(live, now))
            .collect();
        let senders: Vec<_> = writing
            .iter()
            .map(|live| (live.start.sender.clone(), live.start.key.clone()))
            .collect();
        let sent = self.store.earlier_sends(conversation, &senders).await?;
        let mut sent = sent.into_iter();
        writing.retain(|_| sent.next().flatten().is_none());
        writing.sort_by_key(|live| std::cmp::Reverse((live.start.at, live.key)));
        Ok(writing)
    }

    /// Reads a live message whole. `None` for one that nobody has begun.
    pub(super) async fn load(&self, live: LiveKey) -> Result<Option<LiveState>> {
        let read_at = Instant::now();
        let found = self.store.live_messages(&[live]).await?.pop().flatten();
        let Some(message) = found else {
            return Ok(None);
        };
        let sender = [(message.start.sender.clone(), message.start.key.clone())];
        let sent = self.store.earlier_sends(live.conversation, &sender);
        let sent = async { Ok::<_, Error>(sent.await?) };
        let (sent, body) = try_join(sent, self.body(&message)).await?;
        let mark = self.sent.mark(live);
        if let Some(sent) = sent.into_iter().flatten().next() {
            // The first message with a key is the only one.
            let _ = mark.set(sent.message);
        }
        Ok(Some(LiveState {
            message,
            body,
            read_at,
            listed: None,
            written_at: None,
            typed_at: None,
            sent: mark,
        }))
    }

    async fn body(&self, message: &LiveMessage) -> Result<LiveBody> {
        let body = LiveBody::default();
        match message.writers.shown() {
            Some(writer) => self.extended(message.key, writer, body).await,
            None => Ok(body),
        }
    }

    /// A writer's text, with the rows that came since it was read.
    pub(super) async fn extended(
        &self,
        live: LiveKey,
        writer: WriterNumber,
        mut body: LiveBody,
    ) -> Result<LiveBody> {
        let mut after = LiveExtent::up_to(body.end());
        loop {
            let query = LiveTextQuery {
                live,
                writer,
                after,
                limit: TEXTS_MAX,
            };
            let rows = self.store.live_texts(&query).await?;
            for row in &rows {
                body.append(row);
            }
            match rows.last() {
                Some(last) if rows.len() >= TEXTS_MAX => after = last.extent(),
                Some(_) | None => return Ok(body),
            }
        }
    }
}

/// Whether a live message has ended by its own row, at a moment.
fn has_ended(live: &LiveMessage, now: Timestamp) -> bool {
    live.discarded_at.is_some()
        || live.writers.is_closed()
        || live.touched_at.plus_micros(SILENCE_MICROS) <= now
}
