//! Rows of the lines of reports.

use super::{Result, attachments, body, message_id, name, past};
use crate::model::{ConversationId, Report, ReportResolution, Timestamp};
use crate::store::ImportRow;
use crate::transfer::line::ReportLine;

pub(super) fn report_row(line: ReportLine, now: Timestamp) -> Result<ImportRow> {
    let resolution = line.resolution.map(|line| {
        Ok::<_, String>(ReportResolution {
            outcome: line.outcome,
            by: name(&line.by)?,
            at: past("at", Some(line.at), now)?.unwrap_or_default(),
        })
    });
    Ok(ImportRow::Report(Box::new(Report {
        id: message_id("id", &line.id, now)?,
        reporter: name(&line.reporter)?,
        user: name(&line.user)?,
        reason: line.reason,
        note: body("note", line.note, Report::NOTE_BYTES_MAX, true)?,
        conversation: line.conversation_id.map(ConversationId),
        message: line
            .message_id
            .map(|id| message_id("messageId", &id, now))
            .transpose()?,
        body: body("body", line.body, Report::BODY_BYTES_MAX, true)?,
        attachments: attachments(line.attachments.unwrap_or_default())?,
        resolution: resolution.transpose()?,
    })))
}
