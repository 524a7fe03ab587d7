//! A panic in one call is that call's failure and nobody else's.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// The outcome of a future, or none where it panicked. What it shares with others must be in cells that an
/// unwinding leaves whole.
pub async fn unless_it_panics<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| {
        // It is not polled again after a panic.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Some),
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use tokio::task::yield_now;

    use super::*;

    #[test]
    fn a_panic_at_any_poll_ends_the_future_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for panics_at in [0, 1, 3, 9] {
            let turns = Cell::new(0);
            let outcome = runtime.block_on(unless_it_panics(pin!(async {
                while turns.get() < 5 {
                    assert_ne!(turns.get(), panics_at, "on purpose");
                    turns.set(turns.get() + 1);
                    yield_now().await;
                }
                turns.get()
            })));
            assert_eq!(outcome, (panics_at == 9).then_some(5));
        }
    }
}
