//! Attachments of messages.

use async_graphql::{InputObject, Object};

use crate::chat::AttachmentDraft;
use crate::model;

/// Description of a file that is stored elsewhere, such as a picture. Wideroom never fetches the
/// file.
pub(in crate::graphql::types) struct Attachment<'a>(
    pub(in crate::graphql::types) &'a model::Attachment,
);

/// Description of a file that is stored elsewhere, such as a picture. Wideroom never fetches the
/// file.
#[Object]
impl Attachment<'_> {
    /// URL of the file: http or https.
    async fn url(&self) -> &str {
        &self.0.url
    }

    /// Media type, such as `image/png`.
    async fn mime_type(&self) -> &str {
        &self.0.mime_type
    }

    /// File name. Null if the sender gave none.
    async fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Size of the file in bytes: a whole number, at most 2^53.
    async fn size_bytes(&self) -> Option<f64> {
        self.0.size_bytes.map(|size| size as f64)
    }

    /// Width in pixels.
    async fn width(&self) -> Option<i32> {
        self.0.width.and_then(|width| i32::try_from(width).ok())
    }

    /// Height in pixels.
    async fn height(&self) -> Option<i32> {
        self.0.height.and_then(|height| i32::try_from(height).ok())
    }

    /// Duration of a sound or a video, in milliseconds.
    async fn duration_ms(&self) -> Option<i32> {
        let duration = self.0.duration_ms;
        duration.and_then(|duration| i32::try_from(duration).ok())
    }

    /// URL of a small picture of the file: http or https.
    async fn thumbnail_url(&self) -> Option<&str> {
        self.0.thumbnail_url.as_deref()
    }
}

/// Attachment of a message. A message has at most 10. Their texts take at most 8 KiB together, each
/// attachment counting 32 bytes more.
#[derive(InputObject)]
pub(crate) struct AttachmentInput {
    /// URL of the file: http or https, at most 2,048 bytes.
    url: String,
    /// Media type, such as `image/png`: at most 127 bytes.
    mime_type: String,
    /// File name: at most 255 bytes.
    name: Option<String>,
    /// Size of the file in bytes: a whole number, at most 2^53.
    size_bytes: Option<f64>,
    /// Width in pixels.
    width: Option<i32>,
    /// Height in pixels.
    height: Option<i32>,
    /// Duration of a sound or a video, in milliseconds.
    duration_ms: Option<i32>,
    /// URL of a small picture of the file: http or https, at most 2,048 bytes.
    thumbnail_url: Option<String>,
}

impl From<AttachmentInput> for AttachmentDraft {
    fn from(input: AttachmentInput) -> Self {
        Self {
            url: input.url,
            mime_type: input.mime_type,
            name: input.name,
            size_bytes: input.size_bytes,
            width: input.width,
            height: input.height,
            duration_ms: input.duration_ms,
            thumbnail_url: input.thumbnail_url,
        }
    }
}
