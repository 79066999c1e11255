//! Signals: the first SIGTERM or SIGINT ends a command in order, the second at once. A server survives SIGHUP.

use std::future::Future;
use std::io;

use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Error;

/// Token that the first SIGTERM or SIGINT cancels.
pub(super) type Stop = CancellationToken;

/// Listens for SIGINT, which a person sends who waits for the end.
pub(super) fn interrupts() -> io::Result<Signal> {
    signal(SignalKind::interrupt())
}

/// Keeps SIGHUP from killing the process. Operators send it to servers that read their files again.
pub(super) fn survive_hangup() -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::info!(
                "the server ignores SIGHUP: it reads changed keys by itself; restart it for other settings"
            );
        }
    });
    Ok(())
}

/// Runs a command on a runtime of its own, until it ends or a second signal arrives.
pub(super) fn run<F>(command: impl FnOnce(Stop) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    let outcome = runtime.block_on(async {
        let (stop, left) = (Stop::new(), CancellationToken::new());
        tokio::spawn(watch(stop.clone(), left.clone()).map_err(Error::Runtime)?);
        tokio::select! {
            outcome = command(stop) => outcome,
            () = left.cancelled() => Err(Error::Left),
        }
    });
    // A blocking read of a pipe without a writer never returns.
    runtime.shutdown_background();
    outcome
}

fn watch(stop: Stop, left: CancellationToken) -> io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    Ok(async move {
        for token in [stop, left] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            token.cancel();
        }
    })
}
