//! Ledger of the answers that agents write: the texts of all writers, and what was acknowledged to them.

use serde_json::Value;

/// All answers of a run, in the order of their starts.
#[derive(Default)]
pub(super) struct AnswerLedger {
    pub(super) answers: Vec<Answer>,
    /// Requests of agents that had no answer in time.
    pub(super) late: Vec<String>,
}

/// Answer under one key, whoever wrote it.
pub(super) struct Answer {
    /// Number of the conversation.
    pub(super) at: usize,
    pub(super) key: String,
    /// Global id of the live message, from the first acknowledged write on.
    pub(super) id: Option<String>,
    pub(super) writers: Vec<AnswerWriter>,
    /// Index of the writer whose write was acknowledged last.
    pub(super) last: Option<usize>,
    /// Bodies that writers have tried to send.
    pub(super) bodies: Vec<String>,
    pub(super) end: AnswerEnd,
    /// Whether its end was checked on a server that was started after it.
    pub(super) is_checked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerEnd {
    Open,
    /// No process writes it any more.
    Abandoned,
    Sent,
}

pub(super) struct AnswerWriter {
    /// Name that no other writer of the run has.
    pub(super) name: String,
    /// All that it would write.
    pub(super) text: String,
    /// Bytes that were acknowledged.
    pub(super) acknowledged: usize,
}

impl AnswerLedger {
    pub(super) fn begin(&mut self, at: usize) -> usize {
        let number = self.answers.len();
        self.answers.push(Answer {
            at,
            key: format!("answer-{number}"),
            id: None,
            writers: Vec::new(),
            last: None,
            bodies: Vec::new(),
            end: AnswerEnd::Open,
            is_checked: false,
        });
        number
    }

    /// The answer that was begun last in a conversation, if it is open.
    pub(super) fn open_in(&self, at: usize) -> Option<usize> {
        let mut answers = self.answers.iter().enumerate().rev();
        let (number, last) = answers.find(|(_, answer)| answer.at == at)?;
        (last.end == AnswerEnd::Open).then_some(number)
    }

    pub(super) fn abandoned_in(&self, at: usize) -> usize {
        let in_it = self.answers.iter().filter(|answer| answer.at == at);
        in_it
            .filter(|answer| answer.end == AnswerEnd::Abandoned)
            .count()
    }

    /// Adds a writer with so many parts of text, each of which says whose it is.
    pub(super) fn add_writer(&mut self, answer: usize, parts: usize) -> usize {
        let writers = &mut self.answers[answer].writers;
        let (index, name) = (writers.len(), format!("{answer}.{}", writers.len()));
        let parts = (0..parts).map(|part| format!("«{name}» wörd {part} "));
        writers.push(AnswerWriter {
            text: parts.collect(),
            name,
            acknowledged: 0,
        });
        index
    }

    pub(super) fn acknowledge(&mut self, answer: usize, writer: usize, written: &Value) {
        let answer = &mut self.answers[answer];
        let position = usize::try_from(written["nextPosition"].as_u64().unwrap()).unwrap();
        let acknowledged = &mut answer.writers[writer].acknowledged;
        assert!(*acknowledged <= position, "{written}");
        *acknowledged = position;
        answer.last = Some(writer);
        let id = written["liveMessage"]["id"].as_str().unwrap();
        let known = answer.id.get_or_insert_with(|| id.to_owned());
        assert_eq!(known, id, "a key has two ids");
    }

    /// Asserts that a text which a viewer of a conversation has is a beginning of one writer's text.
    pub(super) fn assert_beginning(&self, at: usize, text: &str) {
        let answers = self.answers.iter().filter(|answer| answer.at == at);
        let mut writers = answers.flat_map(|answer| &answer.writers);
        assert!(
            writers.any(|writer| writer.text.starts_with(text)),
            "this is the beginning of no writer's text: {text}"
        );
    }
}

impl Answer {
    /// Asserts that a text of the live message is of one writer, and has all that was acknowledged last. A writer whose
    /// first write had no answer may have claimed the live message after that.
    pub(super) fn assert_whole(&self, text: &str) {
        let mut writers = self.writers.iter().enumerate();
        let is_possible = |(index, writer): (usize, &AnswerWriter)| {
            let is_in_doubt = writer.acknowledged == 0;
            let is_last = self.last == Some(index);
            writer.text.starts_with(text)
                && (is_in_doubt || is_last && text.len() >= writer.acknowledged)
        };
        assert!(
            writers.any(is_possible),
            "{}: acknowledged text of writer {:?} is not in {text:?}",
            self.key,
            self.last.map(|last| {
                let last = &self.writers[last];
                (&last.name, &last.text[..last.acknowledged])
            })
        );
    }

    /// Asserts what a reader is told of it: its text while it is written, and its message afterwards.
    pub(super) fn assert_told(&self, told: &Value) {
        let message = &told["message"];
        if message.is_null() {
            assert_ne!(
                self.end,
                AnswerEnd::Sent,
                "{}: its message is lost",
                self.key
            );
            self.assert_whole(told["body"].as_str().unwrap());
            return;
        }
        let body = message["body"].as_str().unwrap();
        if message["isInterrupted"] == true {
            assert_eq!(self.end, AnswerEnd::Abandoned, "{}: {body}", self.key);
            self.assert_whole(body);
        } else {
            assert!(
                self.bodies.iter().any(|sent| sent == body),
                "{}: nobody has sent {body:?}",
                self.key
            );
        }
    }
}
