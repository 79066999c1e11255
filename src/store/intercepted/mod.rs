//! Store behind an interceptor, which sees each operation by its name.

mod instrumented;

use std::fmt;
use std::sync::Arc;

pub use self::instrumented::{InstrumentedStore, OperationMetrics};
use super::cluster::ClusterStore;
use super::live::LiveStore;
use super::{ErasureStore, RemovalStore, ScanStore, SearchStore, Store, StoreAdmin, StoreFuture};

/// Operation of a store: the name of its method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreOperation(pub(super) &'static str);

impl StoreOperation {
    pub fn all() -> impl Iterator<Item = Self> {
        let of_traits = [
            <dyn Store>::NAMES,
            <dyn RemovalStore>::NAMES,
            <dyn LiveStore>::NAMES,
            <dyn ErasureStore>::NAMES,
            <dyn SearchStore>::NAMES,
            <dyn ScanStore>::NAMES,
            <dyn StoreAdmin>::NAMES,
        ];
        let names = of_traits.into_iter().flatten().copied();
        names.chain(["newest_id"]).map(Self)
    }

    pub fn name(self) -> &'static str {
        self.0
    }
}

/// Names of the operations of a trait.
pub(super) trait OperationNames {
    const NAMES: &'static [&'static str];
}

/// Part before a store that sees its operations.
pub trait StoreInterceptor: Send + Sync + 'static {
    /// Answers in place of the store. The store begins once `answer` is polled.
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: StoreOperation,
        answer: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T>;

    /// [`Store::overlap_micros`] of the store as it is seen.
    fn overlap_micros(&self, store: &dyn Store) -> i64 {
        store.overlap_micros()
    }

    /// [`Store::cluster`] of the store as it is seen.
    fn cluster(&self, store: &dyn Store) -> Option<Arc<dyn ClusterStore>> {
        store.cluster()
    }
}

impl<I: StoreInterceptor> StoreInterceptor for Arc<I> {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: StoreOperation,
        answer: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        (**self).intercept(operation, answer)
    }

    fn overlap_micros(&self, store: &dyn Store) -> i64 {
        (**self).overlap_micros(store)
    }

    fn cluster(&self, store: &dyn Store) -> Option<Arc<dyn ClusterStore>> {
        (**self).cluster(store)
    }
}

/// A store with an interceptor before it.
pub struct InterceptedStore<I> {
    pub(super) store: Arc<dyn StoreAdmin>,
    pub(super) interceptor: I,
}

impl<I: StoreInterceptor> InterceptedStore<I> {
    pub fn before(store: Arc<dyn StoreAdmin>, interceptor: I) -> Self {
        Self { store, interceptor }
    }
}

impl<I> fmt::Display for InterceptedStore<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// Declares a trait of a store, and implements it for [`InterceptedStore`]: each operation by the interceptor, `other` methods as the
/// last section has them. An operation returns a [`StoreFuture`]; one that is `provided` has a default. A store that hands operations on
/// to its parts names a macro for that, as `implement NAME;` before the trait ([`super::handed_on`]).
macro_rules! store_trait {
    (implement $implement:ident; $($trait:tt)*) => {
        $crate::store::intercepted::store_trait! { $($trait)* }
        $crate::store::handed_on::handed_on! { ($) $implement $($trait)* }
    };
    (
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
        $(#[$about])*
        pub trait $trait: $($bound +)+ 'static {
            $($(#[$doc])* fn $name<'a>(&'a $self $(, $argument: $type)*) -> $crate::store::StoreFuture<'a, $answer>;)*
            $($($(#[$also])* fn $default<'a>(&'a $this $(, $given: $kind)*) -> $crate::store::StoreFuture<'a, $value> $body)*)?
            $($($other)*)?
        }

        impl $crate::store::intercepted::OperationNames for dyn $trait {
            const NAMES: &'static [&'static str] = &[$(stringify!($name),)* $($(stringify!($default)),*)?];
        }

        #[deny(clippy::missing_trait_methods)]
        impl<I: $crate::store::StoreInterceptor> $trait for $crate::store::InterceptedStore<I> {
            $(fn $name<'a>(&'a $self $(, $argument: $type)*) -> $crate::store::StoreFuture<'a, $answer> {
                let operation = $crate::store::StoreOperation(stringify!($name));
                $self.interceptor.intercept(operation, $self.store.$name($($argument),*))
            })*
            $($(fn $default<'a>(&'a $this $(, $given: $kind)*) -> $crate::store::StoreFuture<'a, $value> {
                let operation = $crate::store::StoreOperation(stringify!($default));
                $this.interceptor.intercept(operation, $this.store.$default($($given),*))
            })*)?
            $($($intercepted)*)?
        }
    };
}
pub(super) use store_trait;
