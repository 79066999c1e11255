//! One socket, one task: it reads, writes, executes and keeps time, in that one loop, so that nothing outlives the socket.
//!
//! In each round it looks at the clock, then takes the news of its sources in the order in which they came, then writes: so what there is
//! to tell at one moment goes out with one write. Where much is still to be written no news are taken, and nothing is read either.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_graphql::parser::types::OperationType;
use axum::extract::ws::{Message, WebSocket};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, SplitSink};
use futures_util::{FutureExt, StreamExt};
use serde_json::value::RawValue;
use tokio::time::{Instant, Sleep, sleep_until};

use super::admission::Admission;
use super::linger;
use super::operations::Operations;
use super::outbox::{Full, Held, Outbox};
use super::protocol::{self, Close, Incoming, Outgoing};
use super::rate::Bucket;
use super::source::{Frames, News, Source, Sources};
use super::timers::{Due, Timers};
use crate::graphql::{AnswerBudget, Here, Prepared, Ready};
use crate::model::UserId;
use crate::server::address::Address;
use crate::server::answer::{Answer, Code, Executed, Problem};
use crate::server::gate::{Caller, Counted};
use crate::server::operation::{LogLine, Unidentified};
use crate::server::pieces::Pieces;
use crate::server::request::GraphqlRequest;
use crate::server::{Doors, SocketBounds};

pub(super) struct Connection {
    doors: Arc<Doors>,
    sources: Sources,
    outbox: Outbox<SplitSink<WebSocket, Message>>,
    operations: Operations,
    address: Address,
    session: Session,
    timers: Timers,
    admission: Admission,
    /// `None` once a viewer is known.
    cut: Option<BoxFuture<'static, Close>>,
}

/// What is executed, within which budget; a subscription has one for each event.
type Admitted = (Prepared, Ready, Option<Arc<AnswerBudget>>);

enum Session {
    Waiting,
    Open {
        viewer: Option<UserId>,
        _place: Option<Counted<UserId>>,
        _here: Option<Here>,
    },
}

/// Why the loop ends.
enum End {
    Close(Close),
    /// The other side closes it, and waits for the answer.
    Closed,
    /// The other side is gone, or nothing can be written to it any more.
    Gone,
}

impl From<Close> for End {
    fn from(close: Close) -> Self {
        Self::Close(close)
    }
}

impl From<Full> for End {
    fn from(Full: Full) -> Self {
        Self::Close(Close::slow_consumer())
    }
}

impl Connection {
    /// In a box: a task keeps room for each place that its values are moved through.
    pub(super) fn open(
        doors: Arc<Doors>,
        socket: WebSocket,
        address: Address,
        admission: Admission,
    ) -> Box<Self> {
        let (sink, stream) = socket.split();
        let (bounds, now) = (&doors.bounds.sockets, Instant::now());
        let frames = Frames::new(
            stream,
            Bucket::new(bounds.rate_per_second, bounds.rate_burst, now),
        );
        let stop = Box::pin(doors.stop.clone().cancelled_owned());
        Box::new(Self {
            outbox: Outbox::new(
                sink,
                bounds.queue_messages,
                bounds.queue_bytes,
                doors.meter.waiting.clone(),
            ),
            sources: stream::select_all([Source::Stop(Some(stop)), Source::Frames(frames)]),
            operations: Operations::default(),
            address,
            session: Session::Waiting,
            timers: Timers::new(bounds, now),
            cut: Some(admission.end(bounds.init_bytes)),
            admission,
            doors,
        })
    }

    pub(super) async fn run(mut self: Box<Self>) {
        let mut alarm = pin!(sleep_until(Instant::now()));
        let end = poll_fn(|cx| self.poll_end(alarm.as_mut(), cx)).await;
        self.operations.stop_all(&mut self.sources);
        // It is rare, and the task of every socket would keep room for it.
        Box::pin(self.end(end)).await;
    }

    async fn end(mut self: Box<Self>, end: End) {
        match end {
            End::Gone => tracing::debug!("the client dropped a WebSocket"),
            End::Closed => {
                tracing::debug!("the client closed a WebSocket");
                self.outbox.forget();
                self.outbox
                    .answer_close(self.doors.bounds.sockets.write)
                    .await;
            }
            End::Close(close) => {
                tracing::debug!(code = close.code, "the server closes a WebSocket");
                self.doors
                    .meter
                    .closes
                    .with_label_values(&[close.code.to_string()])
                    .inc();
                if close == Close::slow_consumer() {
                    self.outbox.forget();
                }
                let bounds = &self.doors.bounds.sockets;
                if self.outbox.close(close, bounds.write).await {
                    for source in self.sources.iter_mut() {
                        if let Source::Frames(frames) = source {
                            frames.let_all_come();
                        }
                    }
                    let read_on = async {
                        while let Some(News::Stopping | News::Read(Some(Ok(_)), _)) =
                            self.sources.next().await
                        {}
                    };
                    linger(read_on, bounds).await;
                }
            }
        }
    }

    /// How long nothing may move. Who was told something is closed with a code, for which half of the time is left.
    fn patience(&self) -> Duration {
        if self.outbox.has_told() {
            self.bounds().write / 2
        } else {
            self.bounds().write
        }
    }

    fn bounds(&self) -> &SocketBounds {
        &self.doors.bounds.sockets
    }

    fn write_by(&self) -> Option<Instant> {
        self.outbox
            .stuck_since()
            .map(|since| since + self.patience())
    }

    /// Does all there is to do, until it has to end.
    fn poll_end(&mut self, mut alarm: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            match self.poll_round(cx) {
                Ok(Round::Again) => continue,
                Ok(Round::Done) => {}
                Err(end) => return Poll::Ready(end),
            }
            let wake = [self.timers.next(), self.write_by()]
                .into_iter()
                .flatten()
                .min();
            let Some(wake) = wake else {
                return Poll::Pending;
            };
            if alarm.deadline() != wake {
                alarm.as_mut().reset(wake);
            }
            ready!(alarm.as_mut().poll(cx));
        }
    }

    fn poll_round(&mut self, cx: &mut Context<'_>) -> Result<Round, End> {
        self.look_at_clock(Instant::now())?;
        if let Some(cut) = &mut self.cut
            && let Poll::Ready(close) = cut.poll_unpin(cx)
        {
            return Err(close.into());
        }
        // Who reads slowly is told slowly: a subscription waits, and reads the store for what the bus could not keep for it.
        let mut has_room = self.outbox.has_room();
        while has_room && let Poll::Ready(Some(news)) = self.sources.poll_next_unpin(cx) {
            self.take(news)?;
            has_room = self.outbox.has_room();
        }
        if self.timers.is_draining() && !self.operations.has_requests() {
            return Err(Close::draining().into());
        }
        if self.outbox.is_idle() {
            return Ok(Round::Done);
        }
        let is_written = self
            .outbox
            .poll_flush(cx)
            .map_err(|_| End::Gone)?
            .is_ready();
        // Without room nothing was looked at.
        let is_again = !has_room && (is_written || self.outbox.has_room());
        Ok(if is_again { Round::Again } else { Round::Done })
    }

    fn take(&mut self, news: News) -> Result<(), End> {
        match news {
            News::Told(text, held) => Ok(self.outbox.tell(text, held.map(Held::Event))?),
            News::Read(frame, over_for) => self.read(frame, over_for),
            News::Answered(id, executed) => {
                self.answered(&id, executed);
                Ok(())
            }
            News::Refused(id, answer) => {
                self.operations.ended(&id, answer.code());
                self.say(&Outgoing::Error {
                    id: &id,
                    payload: &answer.errors,
                })
            }
            News::Over(id) => {
                self.operations.ended(&id, "OK");
                self.say(&Outgoing::Complete { id: &id })
            }
            News::Stopping => {
                // No `complete`: a client would take that for the end of what it asked for, and not come back.
                self.operations.stop_subscriptions(&mut self.sources);
                self.timers
                    .drain(Instant::now() + self.doors.bounds.drain / 2);
                Ok(())
            }
        }
    }

    fn look_at_clock(&mut self, now: Instant) -> Result<(), End> {
        if self.write_by().is_some_and(|by| by <= now) {
            return Err(if self.outbox.has_told() {
                Close::slow_consumer().into()
            } else {
                End::Gone
            });
        }
        match self
            .timers
            .due(&self.doors.bounds.sockets, self.doors.clock.as_ref(), now)
        {
            Due::Nothing => Ok(()),
            Due::Ping => self.say(&Outgoing::Ping),
            Due::Close(close) => Err(close.into()),
        }
    }

    fn say(&mut self, message: &Outgoing<'_>) -> Result<(), End> {
        Ok(self.outbox.tell(message.json(), None)?)
    }

    fn read(
        &mut self,
        frame: Option<Result<Message, axum::Error>>,
        over_for: Duration,
    ) -> Result<(), End> {
        if over_for > self.bounds().rate_patience {
            return Err(Close::too_fast(self.bounds().rate_per_second).into());
        }
        self.timers.heard();
        match frame {
            None => Err(End::Gone),
            Some(Ok(Message::Close(_))) => Err(End::Closed),
            // Either the connection is lost, and closing it fails too, or the frame was no good.
            Some(Err(_)) => Err(Close::broken().into()),
            // Pongs to these are the library's.
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Binary(_))) => Err(Close::invalid("messages are text").into()),
            Some(Ok(Message::Text(text))) if text.len() > self.bounds().message_bytes => {
                Err(Close::too_big(self.bounds().message_bytes).into())
            }
            Some(Ok(Message::Text(text))) => match Incoming::parse(&text)? {
                Incoming::Init { authorization } => self.init(authorization.as_deref()),
                Incoming::Ping { payload } => self.say(&Outgoing::Pong { payload }),
                Incoming::Pong => Ok(()),
                Incoming::Subscribe { id, payload } => self.subscribe(&id, payload),
                Incoming::Complete { id } => {
                    self.operations.stop(&mut self.sources, &id);
                    Ok(())
                }
            },
        }
    }

    fn init(&mut self, authorization: Option<&str>) -> Result<(), End> {
        if matches!(self.session, Session::Open { .. }) {
            return Err(Close::too_many_inits().into());
        }
        // The address has paid for it when the socket was opened.
        let identity = authorization
            .map(|authorization| self.doors.identify(authorization, || Ok(())))
            .transpose();
        let identity = identity.map_err(|why| match why {
            Unidentified::Token(sentence) => Close::forbidden(&sentence),
            Unidentified::NotAdmitted(problem) => Close::forbidden(&problem.sentence),
        })?;
        let place = identity
            .as_ref()
            .map(|identity| self.doors.gate.socket_of(&identity.user))
            .transpose();
        let place = place.map_err(Close::too_many_sockets)?.flatten();
        if identity.is_some() {
            self.admission.admit()?;
            self.cut = None;
        }
        self.admission.accept();
        let expires_at = identity.as_ref().and_then(|identity| identity.expires_at);
        self.timers.open(
            &self.doors.bounds.sockets,
            identity.is_some(),
            expires_at,
            self.doors.clock.as_ref(),
            Instant::now(),
        );
        let viewer = identity.map(|identity| identity.user);
        let here = viewer
            .as_ref()
            .map(|viewer| self.doors.executor.arrive(viewer));
        self.session = Session::Open {
            viewer,
            _place: place,
            _here: here,
        };
        self.say(&Outgoing::ConnectionAck)
    }

    fn subscribe(&mut self, id: &str, payload: &RawValue) -> Result<(), End> {
        let Session::Open { viewer, .. } = &self.session else {
            return Err(Close::unauthorized().into());
        };
        let viewer = viewer.clone();
        if self.operations.contains(id) {
            return Err(Close::duplicate(id).into());
        }
        if self.timers.is_draining() {
            // It is asked again on the next server.
            return Ok(());
        }
        let mut line = LogLine::start(&self.doors, "ws");
        line.viewer(viewer.as_ref());
        let caller = Caller {
            viewer,
            address: self.address,
        };
        if let Err(problem) = self.doors.gate.enter(&caller) {
            return self.refuse(id, problem, line);
        }
        let request = GraphqlRequest::from_json(payload.get().as_bytes())
            .map_err(|problem| Close::invalid(problem.sentence))?;
        if let Err(problem) = request.document(self.doors.trusted.as_ref())
            && problem.code == Code::BadUserInput
        {
            return Err(Close::invalid(problem.sentence).into());
        }
        match self.prepare(&request, &caller, &mut line) {
            Ok((prepared, ready, budget)) => {
                self.start(id, prepared, ready, &caller, budget, line);
                Ok(())
            }
            Err(problem) => self.refuse(id, problem, line),
        }
    }

    /// An operation is not begun.
    fn refuse(&mut self, id: &str, problem: Problem, mut line: LogLine) -> Result<(), End> {
        line.end(problem.code.as_str());
        let answer = Answer::from(problem);
        self.say(&Outgoing::Error {
            id,
            payload: &answer.errors,
        })
    }

    fn prepare(
        &self,
        request: &GraphqlRequest<'_>,
        caller: &Caller,
        line: &mut LogLine,
    ) -> Result<Admitted, Problem> {
        let most = self.bounds().operations;
        if self.operations.are_full(&self.sources, most) {
            let sentence = format!("A socket runs at most {most} operations at once.");
            return Err(Problem::too_many(sentence));
        }
        let document = request.document(self.doors.trusted.as_ref())?;
        let prepared = self
            .doors
            .executor
            .prepare(document, request.operation_name.as_deref());
        let prepared = prepared.map_err(Problem::from)?;
        line.operation(&prepared);
        let variables = request.variables(self.doors.bounds.variables_bytes)?;
        let ready = prepared.accept(variables).map_err(Problem::from)?;
        self.doors
            .gate
            .admit(caller, prepared.operation, ready.cost)?;
        let budget = match prepared.operation {
            OperationType::Subscription => None,
            OperationType::Query | OperationType::Mutation => {
                Some(self.doors.accounts.admit(caller)?)
            }
        };
        Ok((prepared, ready, budget))
    }

    fn start(
        &mut self,
        id: &str,
        prepared: Prepared,
        ready: Ready,
        caller: &Caller,
        budget: Option<Arc<AnswerBudget>>,
        line: LogLine,
    ) {
        match budget {
            None => self.operations.subscription(
                &mut self.sources,
                id,
                line,
                self.doors.subscribe(prepared, ready, caller),
            ),
            Some(budget) => {
                let (doors, deadline) = (
                    Arc::clone(&self.doors),
                    Instant::now() + self.doors.bounds.request,
                );
                let viewer = caller.viewer.clone();
                let answer = async move {
                    doors
                        .execute(&prepared, ready.variables, viewer, deadline, budget)
                        .await
                };
                self.operations
                    .request(&mut self.sources, id, line, answer.boxed());
            }
        }
    }

    /// A query or a mutation has its one answer.
    fn answered(&mut self, id: &str, executed: Executed) {
        let budget = Arc::clone(&executed.budget);
        // One message is one piece: the library writes no message in several frames.
        let mut text = Pieces::new(usize::MAX, budget.bytes_max(), budget.spent());
        text.frame(&protocol::next_head(id));
        let answer = executed.write(&mut text);
        self.operations.ended(id, answer.code());
        if answer.is_refusal() {
            self.outbox.answer(
                Outgoing::Error {
                    id,
                    payload: &answer.errors,
                }
                .json(),
                None,
            );
        } else {
            text.frame(protocol::NEXT_TAIL);
            self.outbox
                .answer(text.into_text(), Some(Held::Answer(budget)));
            self.outbox.answer(Outgoing::Complete { id }.json(), None);
        }
    }
}

enum Round {
    /// There is room for more.
    Again,
    /// All that is left waits.
    Done,
}
