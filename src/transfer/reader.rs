//! Reader of lines: cuts a file into bounded batches of rows, each with the position of its end.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use super::line::{LINE_BYTES_MAX, Line};
use super::row::rows;
use super::rules::{ImportRules, LineContext, LineRows, Losses};
use crate::clock::Clock;
use crate::model::{BYTE_ORDER_MARK, UserId, UserIdError};
use crate::store::ImportRow;

/// Bounds of one batch in rows and bytes. The unit that crosses a bound is part of the batch.
pub(super) const BATCH_ROWS_MAX: usize = 1_000;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Digits of a line number and a tab, before a line of the spool.
const NUMBER_BYTES_MAX: usize = 21;

/// One line with rows.
pub(super) struct Unit {
    pub(super) number: u64,
    pub(super) text: Vec<u8>,
    pub(super) rows: Vec<ImportRow>,
    pub(super) losses: Losses,
}

/// A broken line, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineFault {
    pub line: u64,
    pub reason: String,
}

#[derive(Default)]
pub(super) struct LineBatch {
    pub(super) units: Vec<Unit>,
    pub(super) faults: Vec<LineFault>,
    /// Start of the next batch: the number of lines and bytes before it.
    pub(super) lines: u64,
    pub(super) offset: u64,
    /// Whether the batch has the first line of an export, and the last one.
    pub(super) has_header: bool,
    pub(super) has_end: bool,
}

/// Whether the lines of a source carry their numbers, as those of the spool do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbering {
    Counted,
    Written,
}

pub(super) struct LineReader<R> {
    input: BufReader<R>,
    numbering: Numbering,
    clock: Arc<dyn Clock>,
    rules: ImportRules,
    lines: u64,
    offset: u64,
}

impl<R: Read> LineReader<R> {
    /// A reader of an input that is positioned after this many lines and bytes.
    pub(super) fn new(
        input: R,
        numbering: Numbering,
        clock: Arc<dyn Clock>,
        rules: ImportRules,
        (lines, offset): (u64, u64),
    ) -> Self {
        Self {
            input: BufReader::with_capacity(256 * 1024, input),
            numbering,
            clock,
            rules,
            lines,
            offset,
        }
    }

    /// The next batch. `None` at the end of the input.
    pub(super) fn batch(&mut self) -> io::Result<Option<LineBatch>> {
        let mut batch = LineBatch::default();
        let (mut row_count, mut bytes) = (0, 0);
        let before = self.offset;
        let now = self.clock.now();
        while row_count < BATCH_ROWS_MAX
            && bytes < BATCH_BYTES_MAX
            && batch.faults.len() < BATCH_ROWS_MAX
        {
            let Some(line) = self.line()? else { break };
            let Ok(text) = line else {
                batch.faults.push(LineFault {
                    line: self.lines,
                    reason: format!("is longer than {LINE_BYTES_MAX} bytes"),
                });
                continue;
            };
            bytes += text.len();
            let (number, text) = self.numbered(text)?;
            if text.trim_ascii().is_empty() {
                continue;
            }
            let line = Line::parse(&text).inspect(|line| {
                batch.has_header |= matches!(line, Line::Header(_));
                batch.has_end |= matches!(line, Line::End(_));
            });
            self.rules.is_export |= batch.has_header;
            let line = line.and_then(|line| self.check_names(line));
            let rules = self.rules;
            let context = LineContext { number, now, rules };
            match line.and_then(|line| rows(line, &context)) {
                Ok(LineRows { rows, .. }) if rows.is_empty() => {}
                Ok(LineRows { rows, losses }) => {
                    row_count += rows.len();
                    batch.units.push(Unit {
                        number,
                        text,
                        rows,
                        losses,
                    });
                }
                Err(reason) => batch.faults.push(LineFault {
                    line: number,
                    reason,
                }),
            }
        }
        (batch.lines, batch.offset) = (self.lines, self.offset);
        Ok((self.offset > before).then_some(batch))
    }

    /// Refuses names that no user can sign in with. An export of ours may have them.
    fn check_names(&self, line: Line) -> Result<Line, String> {
        if !self.rules.is_export {
            for name in line.usernames() {
                // The name of erased users is refused where it may not stand.
                if let Err(error) = UserId::parse_new(name)
                    && error != UserIdError::Erased
                {
                    return Err(format!("{error}: {name:?}"));
                }
            }
        }
        Ok(line)
    }

    /// The next line without its end. `Err` for one that is too long, which is skipped.
    fn line(&mut self) -> io::Result<Option<Result<Vec<u8>, ()>>> {
        let bytes_max = LINE_BYTES_MAX
            + if self.numbering == Numbering::Written {
                NUMBER_BYTES_MAX
            } else {
                0
            };
        let mut text = Vec::new();
        let read = self
            .input
            .by_ref()
            .take(bytes_max as u64 + 1)
            .read_until(b'\n', &mut text)?;
        if read == 0 {
            return Ok(None);
        }
        self.lines += 1;
        self.offset += read as u64;
        if self.lines == 1 && text.starts_with(BYTE_ORDER_MARK) {
            text.drain(..BYTE_ORDER_MARK.len());
        }
        if text.last() == Some(&b'\n') {
            text.pop();
        } else if text.len() > bytes_max {
            self.offset += self.input.skip_until(b'\n')? as u64;
            return Ok(Some(Err(())));
        }
        Ok(Some(Ok(text)))
    }

    fn numbered(&self, mut text: Vec<u8>) -> io::Result<(u64, Vec<u8>)> {
        if self.numbering == Numbering::Counted {
            return Ok((self.lines, text));
        }
        let broken = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "a line that was held back lost its number",
            )
        };
        let tab = text
            .iter()
            .position(|byte| *byte == b'\t')
            .ok_or_else(broken)?;
        let rest = text.split_off(tab + 1);
        let number = std::str::from_utf8(&text[..tab])
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(broken)?;
        Ok((number, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn batches(text: impl Into<Vec<u8>>) -> Vec<LineBatch> {
        let mut reader = LineReader::new(
            io::Cursor::new(text.into()),
            Numbering::Counted,
            Arc::new(SystemClock),
            ImportRules::default(),
            (0, 0),
        );
        std::iter::from_fn(|| reader.batch().unwrap()).collect()
    }

    #[test]
    fn a_broken_line_is_named_and_the_rest_goes_on() {
        let text = "{\"type\":\"user\",\"username\":\"a\"}\n\nnonsense\r\n{\"type\":\"user\",\"username\":\"b\"}";
        let batch = batches(text).remove(0);
        assert_eq!(
            batch
                .units
                .iter()
                .map(|unit| unit.number)
                .collect::<Vec<_>>(),
            [1, 4]
        );
        assert_eq!(
            batch
                .faults
                .iter()
                .map(|fault| fault.line)
                .collect::<Vec<_>>(),
            [3]
        );
        assert_eq!((batch.lines, batch.offset), (4, text.len() as u64));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let text = "\u{feff}{\"type\":\"user\",\"username\":\"a\"}\n\u{feff}{\"type\":\"user\",\"username\":\"b\"}\n";
        let batch = batches(text).remove(0);
        let numbers: Vec<_> = batch.units.iter().map(|unit| unit.number).collect();
        assert_eq!((numbers, batch.faults[0].line), (vec![1], 2));
        assert_eq!(batch.offset, text.len() as u64);
    }

    #[test]
    fn a_line_has_a_mebibyte_at_most() {
        let line = |length: usize| {
            let head = r#"{"type":"user","username":"a""#;
            format!("{head}{}}}\n", " ".repeat(length - head.len() - 1))
        };
        let text = [
            line(LINE_BYTES_MAX),
            line(LINE_BYTES_MAX + 1),
            line(3 * LINE_BYTES_MAX),
            line(100),
        ]
        .concat();
        let batch = batches(text.clone()).remove(0);
        assert_eq!(
            batch
                .units
                .iter()
                .map(|unit| unit.number)
                .collect::<Vec<_>>(),
            [1, 4]
        );
        assert_eq!(
            batch.faults[0],
            LineFault {
                line: 2,
                reason: "is longer than 1048576 bytes".to_owned()
            }
        );
        assert_eq!(batch.faults[1].line, 3);
        assert_eq!(batch.offset, text.len() as u64);
    }

    #[test]
    fn a_batch_is_bounded_and_says_where_it_ends() {
        let text = "{\"type\":\"user\",\"username\":\"a\"}\n".repeat(2_500);
        let batches = batches(text);
        assert_eq!(
            batches
                .iter()
                .map(|batch| batch.units.len())
                .collect::<Vec<_>>(),
            [1_000, 1_000, 500]
        );
        assert_eq!((batches[1].lines, batches[1].offset), (2_000, 2_000 * 31));
    }

    #[test]
    fn bytes_that_are_no_text_are_a_broken_line() {
        let batch = batches(b"{\"type\":\"user\",\"username\":\"\xff\"}\n".to_vec()).remove(0);
        assert_eq!(batch.faults.len(), 1);
    }
}
