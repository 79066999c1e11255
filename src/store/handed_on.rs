//! Operations that a store hands on, one line each: to a part of it, or to a function that reads on a thread of its own.

use std::borrow::Borrow as _;

use crate::model::{ConversationId, MessageId, OrderKey};

/// Declares a macro that implements operations of a trait.
///
/// - `PART: OPERATION, OPERATION as METHOD; …` calls a method of a field of the store, with the arguments of the operation.
/// - `reads { OPERATION: FUNCTION, … }` calls a function with what the store's own `read` gives it, and these arguments ([`ReadArgument`]).
/// - `cached { OPERATION: CACHED, FUNCTION; … }` is a read, unless the first function finds the answer in memory.
/// - `plans { OPERATION: FUNCTION, … }` has the store's own `carry_out` commit what a function plans from the same arguments. The
///   first one is the conversation.
/// - `METHOD { OPERATION: VALUE, … }` calls a method of the store with these arguments, and a value.
macro_rules! handed_on {
    (
        ($d:tt) $implement:ident
        $(#[$about:meta])*
        pub trait $trait:ident: $($bound:ident +)+ 'static {
            $($(#[$doc:meta])* fn $name:ident(&$self:ident $(, $argument:ident: $type:ty)*) -> $answer:ty;)*
        }
        $(provided {
            $($(#[$also:meta])* fn $default:ident(&$this:ident $(, $given:ident: $kind:ty)*) -> $value:ty $body:block)*
        })?
        $(other { $($other:tt)* }
        intercepted { $($intercepted:tt)* })?
    ) => {
        macro_rules! $implement {
            $((@part $d part:ident $name $d method:ident) => {
                fn $name<'a>(&'a $self $(, $argument: $type)*) -> $crate::store::StoreFuture<'a, $answer> {
                    Box::pin($self.$d part.$d method($($argument),*))
                }
            };
            (@read $name $d function:expr) => {
                fn $name<'a>(&'a $self $(, $argument: $type)*) -> $crate::store::StoreFuture<'a, $answer> {
                    $(let $argument = $crate::store::handed_on::ReadArgument::keep($argument);)*
                    Box::pin($self.read(move |context| {
                        ($d function)(context $(, <$type as $crate::store::handed_on::ReadArgument>::lend(&$argument))*)
                    }))
                }
            };)*
            $($((@part $d part:ident $default $d method:ident) => {
                fn $default<'a>(&'a $this $(, $given: $kind)*) -> $crate::store::StoreFuture<'a, $value> {
                    Box::pin($this.$d part.$d method($($given),*))
                }
            };)*)?
            $((@cached $name $d cached:expr, $d function:expr) => {
                fn $name<'a>(&'a $self $(, $argument: $type)*) -> $crate::store::StoreFuture<'a, $answer> {
                    Box::pin(async move {
                        if let Some(cached) = ($d cached)($self.context() $(, $argument)*) {
                            return Ok(cached);
                        }
                        $(let $argument = $crate::store::handed_on::ReadArgument::keep($argument);)*
                        let read = $self.read(move |context| {
                            ($d function)(context $(, <$type as $crate::store::handed_on::ReadArgument>::lend(&$argument))*)
                        });
                        read.await
                    })
                }
            };
            (@plan $name $d function:expr) => {
                fn $name<'a>(&'a $self $(, $argument: $type)*) -> $crate::store::StoreFuture<'a, $answer> {
                    let kept = std::sync::Arc::new(($($crate::store::handed_on::ReadArgument::keep($argument),)*));
                    Box::pin($self.carry_out(kept.0, move |context, state| {
                        let ($($argument,)*) = &*kept;
                        ($d function)(context, state $(, <$type as $crate::store::handed_on::ReadArgument>::lend($argument))*)
                    }))
                }
            };
            (@with $d method:ident $name $d value:expr) => {
                fn $name<'a>(&'a $self $(, $argument: $type)*) -> $crate::store::StoreFuture<'a, $answer> {
                    Box::pin($self.$d method($($argument,)* $d value))
                }
            };)*
            (@part $d part:ident $d name:ident) => {
                $implement! { @part $d part $d name $d name }
            };
            (reads { $d($d name:ident: $d function:expr,)+ }) => {
                $d($implement! { @read $d name $d function })+
            };
            (cached { $d($d name:ident: $d cached:expr, $d function:expr;)+ }) => {
                $d($implement! { @cached $d name $d cached, $d function })+
            };
            (plans { $d($d name:ident: $d function:expr,)+ }) => {
                $d($implement! { @plan $d name $d function })+
            };
            ($d method:ident { $d($d name:ident: $d value:expr,)+ }) => {
                $d($implement! { @with $d method $d name $d value })+
            };
            ($d($d part:ident: $d($d name:ident $d(as $d method:ident)?),+;)+) => {
                $d($d($implement! { @part $d part $d name $d($d method)? })+)+
            };
        }
        pub(crate) use $implement;
    };
}
pub(super) use handed_on;

/// An argument of an operation, kept for a read that outlives the call.
pub(crate) trait ReadArgument {
    type Kept: Send + Sync + 'static;
    type Lent<'a>;

    fn keep(self) -> Self::Kept;

    fn lend(kept: &Self::Kept) -> Self::Lent<'_>;
}

impl<T: ToOwned<Owned: Send + Sync> + ?Sized + 'static> ReadArgument for &T {
    type Kept = T::Owned;
    type Lent<'a> = &'a T;

    fn keep(self) -> T::Owned {
        self.to_owned()
    }

    fn lend(kept: &T::Owned) -> &T {
        kept.borrow()
    }
}

impl<T: Clone + Send + Sync + 'static> ReadArgument for Option<&T> {
    type Kept = Option<T>;
    type Lent<'a> = Option<&'a T>;

    fn keep(self) -> Option<T> {
        self.cloned()
    }

    fn lend(kept: &Option<T>) -> Option<&T> {
        kept.as_ref()
    }
}

macro_rules! copied {
    ($($type:ty),+) => {
        $(impl ReadArgument for $type {
            type Kept = Self;
            type Lent<'a> = Self;

            fn keep(self) -> Self {
                self
            }

            fn lend(kept: &Self) -> Self {
                *kept
            }
        })+
    };
}
copied!(
    bool,
    u32,
    usize,
    ConversationId,
    Option<ConversationId>,
    MessageId,
    Option<MessageId>,
    (ConversationId, MessageId),
    OrderKey
);
