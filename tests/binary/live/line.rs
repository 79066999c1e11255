//! Line between agents and a server: it forwards every request, and loses answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::binary::Dice;

/// One answer in so many is lost.
const LOSES_ONE_IN: u64 = 7;

pub(super) struct LossyLine {
    pub(super) address: SocketAddr,
    /// Address of the server. `None`: the line is cut.
    pub(super) to: watch::Sender<Option<SocketAddr>>,
    lost: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl LossyLine {
    pub(super) async fn open(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (to, lost) = (watch::channel(None).0, Arc::new(AtomicUsize::new(0)));
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(accept(listener, to.subscribe(), Arc::clone(&lost), seed));
        Self {
            address,
            to,
            lost,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Answers that were lost until now.
    pub(super) fn lost(&self) -> usize {
        self.lost.load(Ordering::Relaxed)
    }
}

async fn accept(
    listener: TcpListener,
    mut to: watch::Receiver<Option<SocketAddr>>,
    lost: Arc<AtomicUsize>,
    seed: u64,
) {
    for number in 0.. {
        let (near, _) = listener.accept().await.unwrap();
        // The connection ends with the server that it was made to.
        let server = *to.borrow_and_update();
        let mut moved = to.clone();
        let (lost, dice) = (Arc::clone(&lost), Dice::seeded(seed.wrapping_add(number)));
        tokio::spawn(async move {
            tokio::select! {
                // After a cut nothing more comes through.
                biased;
                _ = moved.changed() => {}
                _ = carry(near, server, &lost, dice) => {}
            }
        });
    }
}

async fn carry(
    mut near: TcpStream,
    server: Option<SocketAddr>,
    lost: &AtomicUsize,
    mut dice: Dice,
) -> std::io::Result<()> {
    let Some(server) = server else { return Ok(()) };
    let mut far = TcpStream::connect(server).await?;
    far.set_nodelay(true)?;
    near.set_nodelay(true)?;
    let (mut near_in, mut near_out) = near.split();
    let (mut far_in, mut far_out) = far.split();
    let back = async {
        let mut answer = vec![0; 64 << 10];
        loop {
            let length = far_in.read(&mut answer).await?;
            if length == 0 {
                return Ok(());
            }
            if dice.roll(LOSES_ONE_IN) == 0 {
                lost.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            near_out.write_all(&answer[..length]).await?;
        }
    };
    tokio::select! {
        sent = copy(&mut near_in, &mut far_out) => sent.map(drop),
        back = back => back,
    }
}
