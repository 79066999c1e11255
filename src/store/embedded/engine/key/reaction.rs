//! Keys of reactions: those of one message lie together, by emoji and by user.

use super::{Key, Span, Tag, name, rows, rows_with, split_name};
use crate::model::{ConversationId, Emoji, MessageId, OrderKey, UserId};

// Reactions: conversation ‖ order key ‖ emoji ‖ 0 ‖ name ‖ 0; ended ones with the name before the emoji. No emoji holds a zero byte.

pub(crate) fn reaction(
    conversation: ConversationId,
    message: MessageId,
    emoji: &Emoji,
    user: &UserId,
) -> Key {
    rows(
        Tag::Reaction,
        &[
            conversation.0.as_bytes(),
            &message.order_key().0,
            emoji.as_str().as_bytes(),
            &[0],
            &name(user),
        ],
    )
}

/// Key of the end of a reaction.
pub(crate) fn ended_reaction(
    conversation: ConversationId,
    message: MessageId,
    emoji: &Emoji,
    user: &UserId,
) -> Key {
    rows(
        Tag::EndedReaction,
        &[
            conversation.0.as_bytes(),
            &message.order_key().0,
            &name(user),
            emoji.as_str().as_bytes(),
            &[0],
        ],
    )
}

pub(crate) fn reactions(conversation: ConversationId, message: MessageId) -> Span {
    let prefix = [conversation.0.as_bytes(), &message.order_key().0[..]];
    rows_with(Tag::Reaction, &prefix)
}

/// Range of a user's ended reactions to a message.
pub(crate) fn ended_reactions_of(
    conversation: ConversationId,
    message: MessageId,
    user: &UserId,
) -> Span {
    let prefix = [
        conversation.0.as_bytes(),
        &message.order_key().0[..],
        &name(user),
    ];
    rows_with(Tag::EndedReaction, &prefix)
}

/// Range of the reactions with one emoji.
pub(crate) fn reactions_of(
    conversation: ConversationId,
    message: MessageId,
    emoji: &Emoji,
) -> Span {
    rows_with(
        Tag::Reaction,
        &[
            conversation.0.as_bytes(),
            &message.order_key().0,
            emoji.as_str().as_bytes(),
            &[0],
        ],
    )
}

/// Range of the reactions after one of them.
pub(crate) fn reactions_after(
    conversation: ConversationId,
    message: MessageId,
    after: Option<&(Emoji, UserId)>,
) -> Span {
    let all = reactions(conversation, message);
    match after {
        Some((emoji, user)) => {
            all.behind(&Span::of_key(reaction(conversation, message, emoji, user)))
        }
        None => all,
    }
}

/// Range of the reactions of all messages of a conversation.
pub(crate) fn reactions_in(conversation: ConversationId) -> Span {
    rows_with(Tag::Reaction, &[conversation.0.as_bytes()])
}

/// Parses the message of a reaction key.
pub(crate) fn reaction_to(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_order_key(OrderKey(bytes.get(17..33)?.try_into().ok()?))
}

/// Parses the emoji and the user of the key of a reaction.
pub(crate) fn reaction_of(bytes: &[u8]) -> Option<(Emoji, UserId)> {
    let rest = bytes.get(33..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let emoji = Emoji::kept(std::str::from_utf8(&rest[..end]).ok()?);
    let (user, rest) = split_name(&rest[end + 1..])?;
    rest.is_empty().then_some((emoji, user))
}
