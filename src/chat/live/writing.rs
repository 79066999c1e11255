//! Writes of live messages: a writer claims its number, and appends.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::held::{HeldLive, LiveState};
use super::input::{Fit, LiveDraft, LiveWriteInput, fit};
use super::{AT_ONCE_MAX, AT_ONCE_OF_USER_MAX, FRESH_FOR, LiveService};
use crate::chat::access::restrictions::AdmittedCaller;
use crate::chat::error::{Error, Result};
use crate::model::{
    LiveKey, LiveMessage, LiveStart, LiveText, LiveView, LiveWriters, Viewer, WriterNumber,
    WritersError,
};
use crate::store::live::{LiveListing, LiveWrite, WriterClaim, minute_of};
use crate::store::{FormVersion, Participation};

/// Age of the last read of the list of writers at which a write reads it again.
const REREAD_AFTER: Duration = Duration::from_secs(1);
/// Time from one answer of a live message to the next.
const ANSWER_EVERY: Duration = Duration::from_millis(250);
const TYPING_EVERY: Duration = Duration::from_secs(2);
/// Claims of one write, where others claim at the same time.
const CLAIMS_MAX: usize = 4;
/// Minutes after the last write in which a server looks after the live message.
const DUE_AFTER_MINUTES: u32 = 2;
/// Time after which a refused start may be tried again.
const START_AGAIN: Duration = Duration::from_secs(5);

const SUPERSEDED: &str = "another writer has taken over this live message";
const DIFFERENT: &str = "another text was written at this position";

/// Acknowledged write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveWritten {
    pub view: LiveView,
    /// Position of the next write.
    pub next_position: usize,
}

/// Write in its turn.
struct LiveTurn<'a> {
    live: LiveKey,
    held: &'a HeldLive,
    caller: &'a Viewer,
    /// The caller, as the request was admitted.
    admitted: AdmittedCaller,
    draft: &'a LiveDraft,
    /// Membership of the writer, where it was just read.
    own: Option<Participation>,
}

impl LiveService {
    /// Appends to a live message; position 0 begins it. It is persisted when this returns.
    ///
    /// After an error of unknown outcome the writer repeats it from the same position, with the same text or more.
    pub async fn write(
        &self,
        caller: impl Into<Viewer>,
        input: LiveWriteInput,
    ) -> Result<LiveWritten> {
        let caller = &caller.into();
        let admitted = self.restrictions.admitted(caller);
        let draft = &LiveDraft::parse(input, self.body_bytes_max)?;
        let forms = self.access.forms();
        forms.require(FormVersion::LIVE_MESSAGES).await?;
        let (sender, conversation) = (&caller.user, draft.conversation);
        let live = self.key_of(conversation, sender, &draft.key).await?;
        let rights = self.access.leave_epoch().rights_moment();
        let own = if draft.position == 0 || !self.has_rights(live) {
            let is_start = draft.position == 0;
            let accepted = self
                .writes
                .accept_live_writer(caller, conversation, is_start);
            Some(accepted.await?)
        } else {
            None
        };
        let held = &*self.held.hold(live);
        if own.is_some() {
            held.set_rights(rights);
        }
        let _turn = held.turn().await?;
        self.restrictions.require_admitted(&admitted)?;
        let turn = LiveTurn {
            live,
            held,
            caller,
            admitted,
            draft,
            own,
        };
        let state = self.claimed(&turn).await?;
        self.append(&turn, state).await
    }

    /// Whether the rights of the writer were read so recently that they hold.
    fn has_rights(&self, live: LiveKey) -> bool {
        let held = self.held.get(live);
        let epoch = self.access.leave_epoch();
        held.and_then(|held| held.rights())
            .is_some_and(|moment| epoch.has_rights_of(moment, self.in_flight.is_shared()))
    }

    /// The state of a live message whose shown writer is the one of this write. A writer that is new claims its number first.
    async fn claimed(&self, turn: &LiveTurn<'_>) -> Result<LiveState> {
        let (known, is_stale) = (turn.held.take(), turn.held.take_stale());
        let writer = &turn.draft.writer;
        let is_current = |state: &LiveState| {
            !is_stale
                && state.read_at.elapsed() < REREAD_AFTER
                && state.message.writers.number_of(writer).is_some()
        };
        let mut present = match known {
            Some(state) if is_current(&state) => Some(state),
            Some(state) => self.read_again(state).await?,
            None => self.load(turn.live).await?,
        };
        for _ in 0..=CLAIMS_MAX {
            if let Some(state) = &present {
                self.require_open(&state.message)?;
                if let Some(number) = state.message.writers.number_of(writer) {
                    require_shown(&state.message.writers, number)?;
                    return present.ok_or(Error::Busy);
                }
            }
            let claim = self.next_claim(turn, present.as_ref()).await?;
            // A lost claim is no error: the list is read again either way.
            self.store.claim_live_writer(turn.live, &claim).await?;
            present = self.load(turn.live).await?;
        }
        Err(Error::Busy)
    }

    /// Reads the list of writers and the registers again. The text is kept while the writer that is shown stays.
    async fn read_again(&self, known: LiveState) -> Result<Option<LiveState>> {
        let (live, shown) = (known.message.key, known.message.writers.shown());
        let read_at = Instant::now();
        let found = self.store.live_messages(&[live]).await?.pop().flatten();
        let Some(message) = found else {
            return Ok(None);
        };
        if message.writers.shown() != shown {
            return self.load(live).await;
        }
        Ok(Some(LiveState {
            message,
            read_at,
            ..known
        }))
    }

    /// The claim of a writer that the list does not have.
    async fn next_claim(
        &self,
        turn: &LiveTurn<'_>,
        present: Option<&LiveState>,
    ) -> Result<WriterClaim> {
        if turn.draft.position != 0 {
            return Err(Error::bad_input(
                &["input", "position"],
                "a new writer begins at position 0",
            ));
        }
        let (now, name) = (self.in_flight.now(), turn.draft.writer.clone());
        let Some(present) = present else {
            let start = self.start(turn).await?;
            let writers = LiveWriters::default().with_writer(name, start.at);
            return Ok(WriterClaim::First {
                writers: writers.map_err(refuse_writer)?,
                start,
            });
        };
        let seen = present.message.writers.clone();
        let to = seen.with_writer(name, now).map_err(refuse_writer)?;
        Ok(WriterClaim::Next { seen, to })
    }

    /// The start of a live message, within the bounds of its conversation.
    async fn start(&self, turn: &LiveTurn<'_>) -> Result<LiveStart> {
        let LiveTurn { caller, draft, .. } = turn;
        let (sender, conversation) = (&caller.user, draft.conversation);
        if let (Some(reply_to), Some(own)) = (draft.reply_to, &turn.own) {
            let floor = self.access.floor_of(own);
            let message = self.history.require_message(conversation, reply_to, floor);
            message.await?;
        }
        let writing = self.writing_in(conversation).await?;
        let own = writing.iter().filter(|live| live.start.sender == *sender);
        if writing.len() >= AT_ONCE_MAX || own.count() >= AT_ONCE_OF_USER_MAX {
            return Err(Error::TooFast {
                retry_after: START_AGAIN,
            });
        }
        self.starts.take(&conversation)?;
        Ok(LiveStart {
            sender: sender.clone(),
            key: draft.key.clone(),
            reply_to: draft.reply_to,
            at: self.in_flight.now(),
        })
    }

    /// The rule of every write: the live message has not ended.
    fn require_open(&self, message: &LiveMessage) -> Result<()> {
        let ended_at = message.start.at.plus_micros(LiveMessage::LIFE_MICROS);
        if self.sent.mark(message.key).get().is_some() {
            Err(Error::LiveConflict("the live message was sent"))
        } else if message.discarded_at.is_some() {
            Err(Error::LiveConflict("the live message was discarded"))
        } else if ended_at <= self.in_flight.now() {
            Err(Error::LiveConflict("a live message ends after 12 hours"))
        } else {
            Ok(())
        }
    }

    async fn append(&self, turn: &LiveTurn<'_>, mut state: LiveState) -> Result<LiveWritten> {
        let row = match self.row(turn, &mut state).await {
            Ok(row) => row,
            Err(error) => {
                if !matches!(error, Error::Store(_)) {
                    turn.held.put(state);
                }
                return Err(error);
            }
        };
        let draft = turn.draft;
        if let Some(last) = state.written_at {
            sleep_until(last + ANSWER_EVERY).await;
        }
        if let Err(error) = self.restrictions.require_admitted(&turn.admitted) {
            turn.held.put(state);
            return Err(error);
        }
        let is_repetition = row.is_none()
            && !draft.text.as_str().is_empty()
            && draft.status.is_none()
            && draft.steps.is_none();
        if !is_repetition && let Err(error) = self.persist(turn, &mut state, row).await {
            // It may be stored all the same.
            self.on_notice(turn.live);
            return Err(error);
        }
        // A server that closes the list reads the text a while later: nothing may be acknowledged after that.
        let is_fresh = state.read_at.elapsed() <= FRESH_FOR;
        self.signal_typing(turn, &mut state);
        state.written_at = Some(Instant::now());
        self.held.count(turn.live, state.body.as_str().len());
        let written = LiveWritten {
            next_position: state.body.as_str().len(),
            view: self.view_of(&state),
        };
        turn.held.put(state);
        if is_fresh {
            self.show(&written.view);
            Ok(written)
        } else {
            self.on_notice(turn.live);
            Err(Error::OutcomeUnknown)
        }
    }

    /// The row that this write adds to the text. `None` if all of it is stored.
    async fn row(&self, turn: &LiveTurn<'_>, state: &mut LiveState) -> Result<Option<LiveText>> {
        let (draft, writer) = (turn.draft, shown(state)?);
        let (position, text) = (draft.position, draft.text.as_str());
        if fit(state.body.as_str(), position, text) == Fit::Ahead {
            // Another server may have written the text before it.
            let body = std::mem::take(&mut state.body);
            state.body = self.extended(turn.live, writer, body).await?;
        }
        match fit(state.body.as_str(), position, text) {
            Fit::Ahead => Err(Error::bad_input(
                &["input", "position"],
                "the position lies after the end of the text, or inside a character",
            )),
            Fit::Different => Err(Error::LiveConflict(DIFFERENT)),
            Fit::Known => Ok(None),
            Fit::Beyond(beyond) => Ok(LiveText::new(state.body.end(), beyond.to_owned())),
        }
    }

    /// Writes a row of text and the registers, after the lists by which others find the live message.
    async fn persist(
        &self,
        turn: &LiveTurn<'_>,
        state: &mut LiveState,
        row: Option<LiveText>,
    ) -> Result<()> {
        let (draft, now) = (turn.draft, self.in_flight.now());
        let minute = minute_of(now);
        let is_new_minute = state.listed != Some(minute);
        if is_new_minute {
            self.list_in(minute, &state.message).await?;
            state.listed = Some(minute);
        }
        let write = LiveWrite {
            writer: shown(state)?,
            text: row,
            status: draft.status.clone(),
            steps: draft.steps.clone(),
            at: now,
        };
        self.store.write_live(turn.live, &write).await?;
        if is_new_minute {
            self.publisher.notify_live(turn.live);
        } else {
            self.publisher.signal_live(turn.live);
        }
        if let Some(row) = &write.text {
            state.body.append(row);
        }
        let message = &mut state.message;
        message.touched_at = message.touched_at.max(now);
        if let Some(status) = write.status {
            message.status = status;
        }
        if let Some(steps) = write.steps {
            message.steps = steps;
        }
        Ok(())
    }

    /// A live write counts as typing, for clients that know nothing else.
    /// Lists a live message under a minute.
    pub(super) async fn list_in(&self, minute: u32, message: &LiveMessage) -> Result<()> {
        let listing = LiveListing {
            minute,
            live: message.key,
            sender: message.start.sender.clone(),
            key: message.start.key.clone(),
        };
        let due = minute.saturating_add(DUE_AFTER_MINUTES);
        Ok(self.store.list_live(&listing, due).await?)
    }

    fn signal_typing(&self, turn: &LiveTurn<'_>, state: &mut LiveState) {
        let is_recent = |at: Instant| at.elapsed() < TYPING_EVERY;
        if state.typed_at.is_some_and(is_recent) {
            return;
        }
        state.typed_at = Some(Instant::now());
        let (user, conversation) = (&turn.caller.user, turn.draft.conversation);
        self.publisher.publish_typing(user, conversation, true);
    }
}

fn shown(state: &LiveState) -> Result<WriterNumber> {
    let shown = state.message.writers.shown();
    shown.ok_or(Error::LiveConflict(SUPERSEDED))
}

/// The rule of a writer in the list: its text is shown, and no server sends it.
fn require_shown(writers: &LiveWriters, number: WriterNumber) -> Result<()> {
    if writers.is_closed() {
        return Err(refuse_writer(WritersError::Closed));
    }
    if writers.shown() != Some(number) {
        return Err(Error::LiveConflict(SUPERSEDED));
    }
    Ok(())
}

fn refuse_writer(error: WritersError) -> Error {
    Error::LiveConflict(match error {
        WritersError::Closed => "the writer fell silent, and a server sends what it left",
        WritersError::Full => "the live message has had too many writers",
    })
}
