//! Rows of the lines of reports.

use super::{Result, attachments, message_id, name, past};
use crate::model::{Body, ConversationId, Report, ReportResolution, Timestamp};
use crate::store::ImportRow;
use crate::transfer::line::ReportLine;

pub(super) fn report_row(line: ReportLine, now: Timestamp) -> Result<ImportRow> {
    let text = |field: &str, text: String, bytes_max: usize| {
        let text = Body::from_history(text, bytes_max, true);
        text.map(|text| text.as_str().to_owned())
            .map_err(|error| format!("`{field}` {error}"))
    };
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
        note: line
            .note
            .map(|note| text("note", note, Report::NOTE_BYTES_MAX))
            .transpose()?,
        conversation: line.conversation_id.map(ConversationId),
        message: line
            .message_id
            .map(|id| message_id("messageId", &id, now))
            .transpose()?,
        body: line
            .body
            .map(|body| text("body", body, Report::BODY_BYTES_MAX))
            .transpose()?,
        attachments: attachments(line.attachments.unwrap_or_default())?,
        resolution: resolution.transpose()?,
    })))
}
