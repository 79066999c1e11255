//! Recordings of a server's life on one disk, replayed up to points where the power is cut.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::check::{Outcome, check};
use super::disk::{Disk, Image};
use super::file::Odds;
use super::load::{self, Ledger};
use super::replay::{Acks, Replay};
use super::trace::{Call, Step, Trace, traced};
use crate::binary::Dice;
use crate::support::program::Program;
use crate::support::server::Server;

pub(super) struct Recording {
    /// Disk before the start.
    before: Disk,
    trace: Trace,
    /// Work of this server's users and of those before it, and acknowledgements before the start.
    ledger: Ledger,
}

/// A moment of the replay: the rest of the disk, and the acknowledgements until then.
struct Point {
    number: usize,
    name: String,
    image: Image,
    acks: Acks,
}

impl Recording {
    /// Starts a server on the data folder of the program, runs a load on it, and stops it in order.
    pub(super) async fn make(
        program: &Program,
        mut ledger: Ledger,
        requests: usize,
        seed: u64,
    ) -> Self {
        let before = Disk::load(program.dir.path());
        let folder = tempfile::tempdir().unwrap();
        let calls = folder.path().join("calls");
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--log", "warn"];
        let mut command = program.command(&arguments);
        // A few users do here what takes many, on a server that is slow as each call is traced.
        command.args([
            "--rates",
            "off",
            "--begin-wait",
            "15s",
            "--settle-wait",
            "15s",
        ]);
        let server = Server::spawn(&mut traced(&command, &calls));
        load::run(program, server.address(), &mut ledger, requests, seed).await;
        server.signal("-TERM");
        let (code, _, log) = server.end();
        assert!(code == Some(0) && !log.contains("ERROR"), "{code:?}: {log}");
        let recording = Self {
            before,
            trace: Trace::read(&calls),
            ledger,
        };
        recording.check_itself(program);
        recording
    }

    fn replay(&self, step: usize) -> Replay<'_> {
        let acks = self.ledger.acks.clone();
        let mut replay = Replay::new(&self.trace, self.before.clone(), acks);
        replay.advance(step);
        replay
    }

    /// Checks that the replay ends with the files of the real disk, and has seen every answer.
    fn check_itself(&self, program: &Program) {
        let end = self.replay(self.trace.steps.len());
        let real = Disk::load(program.dir.path()).view();
        let mut differences = end.disk.view().differences(&real);
        // A thread of the engine may write a table as the process ends.
        differences.retain(|path| !end.unended.contains(path));
        assert!(
            differences.is_empty(),
            "the replay missed changes of {differences:?}"
        );
        for (number, task) in self.ledger.tasks.iter().enumerate() {
            let is_before = self.ledger.acks.contains_key(&number);
            assert!(is_before || end.acks.get(&number) == Some(&task.actions.len()));
        }
    }

    /// Names of the files at the end.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let end = self.replay(self.trace.steps.len());
        end.disk.view().files.into_keys().collect()
    }

    /// Cuts the power at random points while the store is created.
    pub(super) fn cut_creation(&self, count: usize, dice: &mut Dice, report: &mut Report) {
        let first = |name: &str, path: &[u8]| {
            let is = |call: &Call| {
                let mut arguments = call.arguments.iter();
                call.name.starts_with(name) && arguments.any(|one| one.bytes.ends_with(path))
            };
            let begins =
                |step: &Step| matches!(step, Step::Begin(call) if is(&self.trace.calls[*call]));
            self.trace.steps.iter().position(begins).unwrap()
        };
        let creation = first("mkdir", b"/data/db")..first("unlink", b"/unfinished-creation") + 2;
        self.cut_within(creation, count, dice, report);
    }

    /// Cuts the power at random points, and checks what is left.
    pub(super) fn cut_at_random(&self, count: usize, dice: &mut Dice, report: &mut Report) {
        self.cut_within(0..self.trace.steps.len() + 1, count, dice, report);
    }

    fn cut_within(&self, within: Range<usize>, count: usize, dice: &mut Dice, report: &mut Report) {
        let mut steps: Vec<_> = (0..count).map(|_| step(within.clone(), dice)).collect();
        steps.sort_unstable();
        let mut replay = self.replay(0);
        let at_once = std::thread::available_parallelism().map_or(1, usize::from);
        for steps in steps.chunks(at_once) {
            let points = steps.iter().map(|step| {
                replay.advance(*step);
                self.point(&replay, *step, *dice.pick(&Odds::ALL), dice, report)
            });
            let points: Vec<_> = points.collect();
            let outcomes = std::thread::scope(|scope| {
                let running: Vec<_> = points
                    .iter()
                    .map(|point| scope.spawn(|| self.check(point)))
                    .collect();
                let ended = running.into_iter().map(|check| check.join().unwrap());
                ended.collect::<Vec<_>>()
            });
            for (point, outcome) in points.iter().zip(outcomes) {
                report.add(point, outcome);
            }
        }
    }

    /// Cuts the power shortly before the end and checks what is left: the disk of a new program.
    pub(super) fn cut_near_end(self, dice: &mut Dice, report: &mut Report) -> (Program, Ledger) {
        let all = self.trace.steps.len();
        let step = step(9 * all / 10..all + 1, dice);
        let replay = self.replay(step);
        let point = self.point(&replay, step, Odds::MIXED, dice, report);
        report.add(&point, self.check(&point));
        report.finish();
        let program = Program::new();
        point.image.write_to(program.dir.path());
        let acks = point.acks;
        (
            program,
            Ledger {
                acks,
                ..self.ledger
            },
        )
    }

    fn point(
        &self,
        replay: &Replay<'_>,
        step: usize,
        odds: Odds,
        dice: &mut Dice,
        report: &mut Report,
    ) -> Point {
        report.points += 1;
        let (number, all) = (report.points, self.trace.steps.len());
        Point {
            number,
            name: format!("point {number}, step {step} of {all}, {odds:?}"),
            image: replay.disk.cut(odds, dice),
            acks: replay.acks.clone(),
        }
    }

    fn check(&self, point: &Point) -> Result<Outcome, String> {
        let program = Program::new();
        point.image.write_to(program.dir.path());
        check(&program, &self.ledger.tasks, &point.acks)
    }

    /// Shows that this test can fail: a disk that ignores syncs loses acknowledged messages.
    pub(super) fn loses_without_syncs(&self) {
        let mut before = self.before.clone();
        before.ignores_syncs = true;
        let mut replay = Replay::new(&self.trace, before, self.ledger.acks.clone());
        replay.advance(self.trace.steps.len());
        let (dice, report) = (&mut Dice::new(), &mut Report::default());
        let point = self.point(&replay, 0, Odds::NOTHING_KEPT, dice, report);
        let outcome = self.check(&point);
        let is_found = |error: &String| error.contains("messages lost");
        assert!(outcome.as_ref().is_err_and(is_found), "{outcome:?}");
    }
}

fn step(within: Range<usize>, dice: &mut Dice) -> usize {
    within.start + usize::try_from(dice.roll(within.len() as u64)).unwrap()
}

#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) seed: u64,
    points: usize,
    opened: usize,
    /// Most messages of one point.
    messages: usize,
    /// Points at which the program refused the folder, by its reason.
    refusals: BTreeMap<String, usize>,
    failures: Vec<String>,
}

impl Report {
    fn add(&mut self, point: &Point, outcome: Result<Outcome, String>) {
        match outcome {
            Ok(Outcome::Opened(messages)) => {
                self.opened += 1;
                self.messages = self.messages.max(messages);
            }
            Ok(Outcome::Refused(reason)) => {
                // The folder has another name each time.
                let words = reason.split(' ').filter(|word| !word.starts_with('/'));
                let reason = words.collect::<Vec<_>>().join(" ");
                *self.refusals.entry(reason).or_default() += 1;
            }
            Err(error) => {
                let folder = format!("power-cut-{}-{}", self.seed, point.number);
                let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
                let _ = fs::remove_dir_all(&folder);
                fs::create_dir_all(&folder).unwrap();
                point.image.write_to(&folder);
                let (name, folder) = (&point.name, folder.display());
                let failure = format!("{name}: {error}; its folder is {folder}");
                println!("{failure}");
                self.failures.push(failure);
            }
        }
    }

    /// Fails if a point did.
    pub(super) fn finish(&self) {
        let refused = self.refusals.values().sum::<usize>();
        println!(
            "{} power cuts: {} opened, with {} messages at most; {refused} refused with nothing acknowledged: {:?}",
            self.points, self.opened, self.messages, self.refusals
        );
        assert!(
            self.failures.is_empty(),
            "seed {}: {}",
            self.seed,
            self.failures.join("\n")
        );
    }
}
