//! Line to a node of Cassandra that breaks when a statement is about to run, and takes no connection until it is mended.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::support::world::PATIENCE;

const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0a;
const RESULT: u8 = 0x08;
/// Kind of a result that answers a PREPARE.
const PREPARED: [u8; 4] = [0, 0, 0, 4];

pub(super) struct FragileLine {
    pub(super) address: SocketAddr,
    state: Arc<LineState>,
    broken: mpsc::Receiver<()>,
}

struct LineState {
    /// Part of the text of the statement.
    part: String,
    /// Ids under which the node has prepared it.
    ids: Mutex<HashSet<Vec<u8>>>,
    is_broken: AtomicBool,
    breaks: mpsc::Sender<()>,
    is_mended: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
}

/// Frame of the native protocol: its header, then its body.
struct Frame(Vec<u8>);

impl Frame {
    const HEADER: usize = 9;

    /// `None` at the end of the connection.
    fn read(from: &mut TcpStream) -> Option<Self> {
        let mut bytes = vec![0; Self::HEADER];
        from.read_exact(&mut bytes).ok()?;
        let length = u32::from_be_bytes(bytes[5..].try_into().unwrap());
        bytes.resize(Self::HEADER + length as usize, 0);
        from.read_exact(&mut bytes[Self::HEADER..]).ok()?;
        Some(Self(bytes))
    }

    fn stream(&self) -> [u8; 2] {
        [self.0[2], self.0[3]]
    }

    fn is(&self, opcode: u8) -> bool {
        self.0[4] == opcode
    }

    fn body(&self) -> &[u8] {
        &self.0[Self::HEADER..]
    }
}

/// Bytes behind their length in two bytes.
fn short_bytes(from: &[u8]) -> Vec<u8> {
    let length = usize::from(u16::from_be_bytes([from[0], from[1]]));
    from[2..2 + length].to_vec()
}

impl FragileLine {
    pub(super) fn to(node: SocketAddr, part: &str) -> Self {
        let listener = TcpListener::bind((node.ip(), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (breaks, broken) = mpsc::channel();
        let state = Arc::new(LineState {
            part: part.to_owned(),
            ids: Mutex::default(),
            is_broken: AtomicBool::new(false),
            breaks,
            is_mended: AtomicBool::new(false),
            sockets: Mutex::default(),
        });
        let line = Arc::clone(&state);
        std::thread::spawn(move || {
            for incoming in listener.incoming() {
                line.connect(incoming.unwrap(), node);
            }
        });
        Self {
            address,
            state,
            broken,
        }
    }

    /// Waits until the statement was about to run.
    pub(super) fn wait_until_broken(&self) {
        let broken = self.broken.recv_timeout(PATIENCE);
        assert!(broken.is_ok(), "no statement has {}", self.state.part);
    }

    pub(super) fn mend(&self) {
        self.state.is_mended.store(true, Ordering::SeqCst);
    }
}

impl LineState {
    fn is_open(&self) -> bool {
        !self.is_broken.load(Ordering::SeqCst) || self.is_mended.load(Ordering::SeqCst)
    }

    fn connect(self: &Arc<Self>, client: TcpStream, node: SocketAddr) {
        if !self.is_open() {
            return;
        }
        let server = TcpStream::connect(node).unwrap();
        let both = [&client, &server].map(|one| one.try_clone().unwrap());
        self.sockets.lock().unwrap().extend(both);
        let preparing = Arc::<Mutex<HashSet<[u8; 2]>>>::default();
        let (state, asked) = (Arc::clone(self), Arc::clone(&preparing));
        let (requests, answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || state.pass_requests(requests, server, &asked));
        let state = Arc::clone(self);
        std::thread::spawn(move || state.pass_answers(answers, client, &preparing));
    }

    fn pass_requests(
        &self,
        mut client: TcpStream,
        mut node: TcpStream,
        preparing: &Mutex<HashSet<[u8; 2]>>,
    ) {
        while let Some(frame) = Frame::read(&mut client) {
            if frame.is(PREPARE) && String::from_utf8_lossy(frame.body()).contains(&self.part) {
                preparing.lock().unwrap().insert(frame.stream());
            }
            let is_it = frame.is(EXECUTE)
                && self
                    .ids
                    .lock()
                    .unwrap()
                    .contains(&short_bytes(frame.body()));
            if is_it && !self.is_broken.swap(true, Ordering::SeqCst) {
                for socket in self.sockets.lock().unwrap().drain(..) {
                    let _ = socket.shutdown(Shutdown::Both);
                }
                let _ = self.breaks.send(());
                return;
            }
            if node.write_all(&frame.0).is_err() {
                break;
            }
        }
        let _ = node.shutdown(Shutdown::Both);
    }

    fn pass_answers(
        &self,
        mut node: TcpStream,
        mut client: TcpStream,
        preparing: &Mutex<HashSet<[u8; 2]>>,
    ) {
        while let Some(frame) = Frame::read(&mut node) {
            let is_asked = preparing.lock().unwrap().remove(&frame.stream());
            if is_asked && frame.is(RESULT) && frame.body().starts_with(&PREPARED) {
                let id = short_bytes(&frame.body()[PREPARED.len()..]);
                self.ids.lock().unwrap().insert(id);
            }
            if client.write_all(&frame.0).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    }
}
