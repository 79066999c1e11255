//! Verification of reports: each can be read, and each resolution belongs to one.

use super::verify::PieceCheck;
use crate::store::Result;
use crate::store::embedded::engine::committer::Op;
use crate::store::embedded::engine::db::InTable;
use crate::store::embedded::engine::key::{self, Key};
use crate::store::rules::{self, finding};

/// Rows of one piece. A report may have several kilobytes.
const ROWS_MAX: usize = 500;

impl PieceCheck<'_> {
    pub(super) fn reports(&mut self, from: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let (rows, next) = self.rows(key::all_reports(), from, ROWS_MAX)?;
        for (bytes, value) in &rows {
            let id = key::report_of(bytes);
            let id = id.in_table("reports_by_week")?;
            let report = key::report(id.order_key());
            let is_report = report.bytes[..] == bytes[..];
            let read = if is_report {
                rules::report::decode(id, value).map(drop)
            } else {
                rules::report::decode_resolution(value).map(drop)
            };
            if let Err(error) = read {
                let example = format!("of reports_by_week, of {id}: {error}");
                self.found(finding::UNREADABLE, example);
            }
            if !is_report && !self.view.has(&report)? {
                self.found(finding::RESOLUTION_STRAY, format!("the report {id}"));
                self.write.ops.push(Op::Delete(Key::of_row(bytes)));
            }
        }
        Ok(next)
    }
}
