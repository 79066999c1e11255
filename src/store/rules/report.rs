//! Reports and their resolutions as bytes: a version, then the rest. Their id is in the key.

use crate::model::content::{put_attachments, take_attachments};
use crate::model::{
    Attachment, ConversationId, MessageId, Parts, Report, ReportId, ReportOutcome, ReportReason,
    ReportResolution, Timestamp, UserId,
};
use crate::store::{Error, Result};

const TABLE: &str = "reports_by_week";
const VERSION: u8 = 1;

#[derive(serde::Serialize, serde::Deserialize)]
struct StoredReport {
    reporter: UserId,
    user: UserId,
    /// Number of the reason.
    reason: u8,
    note: Option<String>,
    conversation: Option<ConversationId>,
    message: Option<MessageId>,
    body: Option<String>,
    attachments: Vec<Attachment>,
}

/// Number of the outcome, and the name of the service. `None` for a report that is open again.
type StoredOutcome = Option<(u8, UserId)>;

fn corrupt(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Corrupt {
        table: TABLE,
        cause: cause.into(),
    }
}

/// Bytes of a report, without its resolution.
pub(in crate::store) fn encode(report: &Report) -> Vec<u8> {
    let stored = StoredReport {
        reporter: report.reporter.clone(),
        user: report.user.clone(),
        reason: report.reason.number(),
        note: report.note.clone(),
        conversation: report.conversation,
        message: report.message,
        body: report.body.clone(),
        attachments: report.attachments.clone(),
    };
    let mut parts = Parts::default();
    put_attachments(&mut parts, &report.attachments);
    let bytes = postcard::to_extend(&stored, vec![VERSION]);
    // They follow the first version's fields, and an earlier version passes over them.
    let bytes = bytes.and_then(|bytes| match parts.is_empty() {
        true => Ok(bytes),
        false => postcard::to_extend(&parts, bytes),
    });
    bytes.expect("plain data serialises")
}

/// The report of these bytes, open.
pub(in crate::store) fn decode(id: ReportId, bytes: &[u8]) -> Result<Report> {
    let Some((&VERSION, body)) = bytes.split_first() else {
        return Err(corrupt("a report begins with its version"));
    };
    let (mut stored, rest): (StoredReport, _) = postcard::take_from_bytes(body).map_err(corrupt)?;
    if !rest.is_empty() {
        let mut parts: Parts = postcard::from_bytes(rest).map_err(corrupt)?;
        take_attachments(&mut parts, &mut stored.attachments).map_err(corrupt)?;
    }
    Ok(Report {
        id,
        reporter: stored.reporter,
        user: stored.user,
        reason: ReportReason::from_number(stored.reason),
        note: stored.note,
        conversation: stored.conversation,
        message: stored.message,
        body: stored.body,
        attachments: stored.attachments,
        resolution: None,
    })
}

/// Bytes of a resolution at a moment, as a maximum register: the later one is greater.
pub(in crate::store) fn encode_resolution(
    resolution: Option<&ReportResolution>,
    at: Timestamp,
) -> Vec<u8> {
    let outcome: StoredOutcome =
        resolution.map(|resolution| (resolution.outcome as u8, resolution.by.clone()));
    let mut bytes = at.micros().to_be_bytes().to_vec();
    bytes.push(VERSION);
    postcard::to_extend(&outcome, bytes).expect("plain data serialises")
}

/// The resolution of these bytes. `None` for a report that is open again.
pub(in crate::store) fn decode_resolution(bytes: &[u8]) -> Result<Option<ReportResolution>> {
    let broken = || corrupt("a resolution is a moment, a version and an outcome");
    let (micros, rest) = bytes.split_first_chunk::<8>().ok_or_else(broken)?;
    let Some((&VERSION, body)) = rest.split_first() else {
        return Err(broken());
    };
    let outcome: StoredOutcome = postcard::from_bytes(body).map_err(corrupt)?;
    Ok(outcome.map(|(number, by)| ReportResolution {
        // A later version's outcome is an action.
        outcome: if number == ReportOutcome::Dismissed as u8 {
            ReportOutcome::Dismissed
        } else {
            ReportOutcome::Acted
        },
        by,
        at: Timestamp::from_micros(i64::from_be_bytes(*micros)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_and_its_resolution_survive_the_round_trip() {
        let user = |name| UserId::parse(name).unwrap();
        let id = ReportId::new(Timestamp::from_micros(1_742_000_000_000_000), [7; 8]);
        let report = Report {
            id,
            reporter: user("ann"),
            user: user("ben"),
            reason: ReportReason::Hate,
            note: Some("look".to_owned()),
            conversation: Some(ConversationId::random()),
            message: Some(id),
            body: Some("rude".to_owned()),
            attachments: Vec::new(),
            resolution: None,
        };
        assert_eq!(decode(id, &encode(&report)).unwrap(), report);
        let clip = Attachment {
            url: "https://files.example/clip".to_owned(),
            mime_type: "video/mp4".to_owned(),
            name: None,
            size_bytes: None,
            width: None,
            height: None,
            duration_ms: Some(7),
            thumbnail_url: Some("https://files.example/still".to_owned()),
        };
        let with_clip = Report {
            attachments: vec![clip],
            ..report.clone()
        };
        let bytes = encode(&with_clip);
        assert_eq!(decode(id, &bytes).unwrap(), with_clip);
        // An earlier version reads the fields that it knows.
        let known: StoredReport = postcard::from_bytes(&bytes[1..]).unwrap();
        assert_eq!(known.attachments[0].url, with_clip.attachments[0].url);
        assert!(decode(id, &[]).is_err());
        let at = Timestamp::from_micros(9);
        for outcome in [ReportOutcome::Dismissed, ReportOutcome::Acted] {
            let by = user("mod");
            let resolution = ReportResolution { outcome, by, at };
            let bytes = encode_resolution(Some(&resolution), at);
            assert_eq!(decode_resolution(&bytes).unwrap(), Some(resolution));
        }
        let again = encode_resolution(None, at.plus_micros(1));
        assert_eq!(decode_resolution(&again).unwrap(), None);
        assert!(again > encode_resolution(None, at));
    }
}
